/*
 * gaps SECONDS: computes that long, and notes every time in which it did not run. At its end it prints the median of
 * the hundred longest, in microseconds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LONGEST 100

static long now(void)
{
    struct timespec it;

    clock_gettime(CLOCK_MONOTONIC, &it);
    return it.tv_sec * 1000000L + it.tv_nsec / 1000;
}

int main(int argc, char **argv)
{
    static long longest[LONGEST]; /* in falling order */
    long last = now(), end = last + (argc > 1 ? atol(argv[1]) : 5) * 1000000L;

    while (last < end) {
        long this = now(), gap = this - last;
        int at = LONGEST;

        for (; at > 0 && longest[at - 1] < gap; at--)
            if (at < LONGEST)
                longest[at] = longest[at - 1];
        if (at < LONGEST)
            longest[at] = gap;
        last = this;
    }
    printf("median %ld\n", longest[LONGEST / 2]);
    return 0;
}
