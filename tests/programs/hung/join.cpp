// A rank that waits for a thread that does not end.
#include "hung.h"
#include <thread>

static void free_us() {}

int main()
{
    if (begin() == 1) {
        std::thread worker([] {
            while (!freed)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
        worker.join(); // odd
    } else {
        wait_for_the_others();
    }
    return end(7);
}
