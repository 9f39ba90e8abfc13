/* A rank that sleeps, like a program that retries with growing delays. */
#include "hung.h"

static void free_us(void)
{
}

static int try_again_later(void)
{
    unsigned pause = 100;

    while (!freed) {
        sleep(pause); /* odd */
        pause *= 2;
    }
    return 7;
}

int main(void)
{
    int result = 7;

    if (begin() == 1)
        result = try_again_later();
    else
        wait_for_the_others();
    return end(result);
}
