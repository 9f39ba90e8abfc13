// A promise that is never fulfilled.
#include "hung.h"
#include <future>
#include <thread>

static void free_us() {}

static int await(std::future<int> answer)
{
    return answer.get(); // odd
}

int main()
{
    int result = 7;

    if (begin() == 1) {
        std::promise<int> promise;
        std::future<int> answer = promise.get_future();
        std::thread late([&] {
            while (!freed)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            promise.set_value(7);
        });
        result = await(std::move(answer));
        late.join();
    } else {
        wait_for_the_others();
    }
    return end(result);
}
