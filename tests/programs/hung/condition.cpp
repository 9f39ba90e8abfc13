// A condition variable that was notified before the wait.
#include "hung.h"
#include <condition_variable>
#include <thread>

static void free_us() {}

template <typename T> class Queue {
public:
    void put(T it)
    {
        std::lock_guard<std::mutex> lock(door);
        last = it;
        news.notify_all();
    }
    T take()
    {
        std::unique_lock<std::mutex> lock(door);
        news.wait(lock); // odd
        return last;
    }

private:
    std::mutex door;
    std::condition_variable news;
    T last{};
};

int main()
{
    int result = 7;
    Queue<int> queue;

    if (begin() == 1) {
        queue.put(7);
        std::thread again([&] {
            while (!freed)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            queue.put(7);
        });
        result = queue.take();
        again.join();
    } else {
        wait_for_the_others();
    }
    return end(result);
}
