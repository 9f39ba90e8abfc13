/*
 * gaps SECONDS: computes that long, and notes every time in which it did not run, without the time in which it waited for
 * a processor. At its end it prints the median of the hundred longest, in microseconds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LONGEST 100
#define LONG 500 /* microseconds; shorter gaps count as they are */

static long now(void)
{
    struct timespec it;

    clock_gettime(CLOCK_MONOTONIC, &it);
    return it.tv_sec * 1000000L + it.tv_nsec / 1000;
}

/*
 * How long it has waited for a processor, in microseconds; 0 where the kernel does not say. Source: the kernel's
 * sched-stats.rst.
 */
static long waited(void)
{
    FILE *file = fopen("/proc/self/schedstat", "r");
    unsigned long long wait = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%*u %llu", &wait) != 1)
        wait = 0;
    fclose(file);
    return (long)(wait / 1000);
}

int main(int argc, char **argv)
{
    static long longest[LONGEST]; /* in falling order */
    long last = now(), end = last + (argc > 1 ? atol(argv[1]) : 5) * 1000000L, before = waited();

    while (last < end) {
        long this = now(), gap = this - last;
        int at = LONGEST;

        if (gap >= LONG) {
            long after = waited();

            gap -= after - before;
            before = after;
            this = now();
        }
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
