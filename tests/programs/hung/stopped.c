/* A signal has stopped a rank. SIGCONT resumes it. */
#include "hung.h"

static volatile int rounds;

static void free_us(void)
{
}

static int work(void)
{
    while (rounds < 7)
        rounds++;
    raise(SIGSTOP); /* odd */
    return rounds;
}

int main(void)
{
    int result = 7;

    if (begin() == 1)
        result = work();
    else
        wait_for_the_others();
    return end(result);
}
