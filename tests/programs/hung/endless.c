/* A loop that does not converge. */
#include "hung.h"

static volatile double error = 1;

static void free_us(void)
{
    error = 0;
}

static int solve(void)
{
    int rounds = 7;

    while (error > 0); /* odd */
    return rounds;
}

int main(void)
{
    int result = 7;

    if (begin() == 1)
        result = solve();
    else
        wait_for_the_others();
    return end(result);
}
