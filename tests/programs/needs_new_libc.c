/*
 * needs_new_libc: calls a function that glibc has had since version 2.36, reports success and ends. For tests of
 * nodes with an older C library than ours.
 */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    printf("a random number: %u\n", (unsigned)arc4random());
    return 0;
}
