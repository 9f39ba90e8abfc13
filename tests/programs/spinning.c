/*
 * A library with a function that spins while it waits, as functions of MPI do. Its name is one that tools take for a
 * function of MPI.
 */
#include <time.h>

/* Waits for so many milliseconds; without any, for ever. */
__attribute__((visibility("default"))) void MPIX_Spin(int milliseconds)
{
    struct timespec begin, now;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while (milliseconds == 0 ||
           (now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < milliseconds);
}
