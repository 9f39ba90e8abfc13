/* A rank that has ended while the others wait for it. */
#include "hung.h"

static void free_us(void)
{
}

int main(void)
{
    if (begin() != 1)
        wait_for_the_others();
    return end(7);
}
