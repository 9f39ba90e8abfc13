// A C++ lock that another thread keeps.
#include "hung.h"
#include <future>
#include <mutex>
#include <thread>

static void free_us() {}

namespace bank {
class Account {
public:
    __attribute__((noinline)) int withdraw()
    {
        std::lock_guard<std::mutex> lock(door); // odd
        return balance;
    }
    void keep_shut(std::promise<void> shut)
    {
        std::unique_lock<std::mutex> lock(door);
        shut.set_value();
        while (!freed)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        balance = 7;
    }

private:
    std::mutex door;
    int balance = 0;
};
}

int main()
{
    int result = 7;
    bank::Account account;

    if (begin() == 1) {
        std::promise<void> shut;
        std::future<void> is_shut = shut.get_future();
        std::thread keeper(&bank::Account::keep_shut, &account, std::move(shut));
        is_shut.wait();
        result = account.withdraw();
        keeper.join();
    } else {
        wait_for_the_others();
    }
    return end(result);
}
