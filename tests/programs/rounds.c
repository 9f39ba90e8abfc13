/*
 * rounds [SECONDS]: for debuggers. Each rank has the numbers `rank`, `limit` (rank 2 has a different one) and
 * `field`. It calls solve() repeatedly, some hundred times a second, and prints "round" about once a second. It
 * exits with 0 after SECONDS (default 300).
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

volatile int rank, limit, rounds;
volatile double field[4];

__attribute__((noinline)) void solve(int n)
{
    int i;

    for (i = 0; i < 4; i++)
        field[i] += n;
    rounds++;
}

int main(int argc, char **argv)
{
    const char *number = getenv("GANTRY_RANK");
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 300);
    int i;

    if (number == NULL)
        number = getenv("SLURM_PROCID") ? getenv("SLURM_PROCID") : getenv("FLUX_TASK_RANK");
    rank = number ? atoi(number) : 0;
    limit = rank == 2 ? 11 : 10;
    for (i = 0; i < 4; i++)
        field[i] = rank + i;
    while (time(NULL) < end) {
        solve(limit);
        usleep(5000);
        if (rounds % 200 == 0) {
            printf("round\n");
            fflush(stdout);
        }
    }
    return 0;
}
