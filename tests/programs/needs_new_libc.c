/*
 * needs_new_libc: calls a function that glibc has since version 2.36, reports success and ends.
 * For tests of nodes whose C library is older than the one here.
 */
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    printf("a random number: %u\n", (unsigned)arc4random());
    return 0;
}
