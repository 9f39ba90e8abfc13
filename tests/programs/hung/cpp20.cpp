// A rank that waits in a C++20 primitive, which a macro selects: latch, barrier, semaphore, thread, or changed value.
// The wait never ends by itself.
#include "hung.h"
#include <atomic>
#include <barrier>
#include <latch>
#include <semaphore>
#include <thread>

static void free_us() {}

static void until_freed()
{
    while (!freed)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

#if defined LATCH
static std::latch tool{2};
#elif defined BARRIER
static std::barrier<> tool{2};
#elif defined SEMAPHORE
static std::counting_semaphore<4> tool{0};
#else
static std::atomic<int> tool{0};
#endif

static void come()
{
    until_freed();
#if defined LATCH
    tool.count_down();
#elif defined BARRIER
    static_cast<void>(tool.arrive());
#elif defined SEMAPHORE
    tool.release();
#else
    tool.store(7);
    tool.notify_all();
#endif
}

__attribute__((noinline)) static int meet(std::jthread &late)
{
#if defined LATCH
    tool.arrive_and_wait(); // latch
    late.join();
#elif defined BARRIER
    tool.arrive_and_wait(); // barrier
    late.join();
#elif defined SEMAPHORE
    tool.acquire(); // semaphore
    late.join();
#elif defined THREAD
    late.join(); // thread
#else
    tool.wait(0); // value
    late.join();
#endif
    return 7;
}

int main()
{
    int result = 7;

    if (begin() == 1) {
        std::jthread late(come);
        result = meet(late);
    } else {
        wait_for_the_others();
    }
    return end(result);
}
