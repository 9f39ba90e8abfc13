/* clock: asks for the time forever, in ask_the_time. The kernel's vdso answers, which is a library without a file. */
#include <time.h>

static volatile long last;

__attribute__((noinline)) void ask_the_time(void)
{
    struct timespec time;
    for (int turn = 0; turn < 1000; turn++) {
        clock_gettime(CLOCK_MONOTONIC, &time);
        last = time.tv_nsec;
    }
}

int main(void)
{
    for (;;)
        ask_the_time();
}
