/*
 * MPI programs whose results are known. Its arguments say which, in their order:
 *   ring N        a number goes round all ranks N times, and each adds its own
 *   allreduce N   N times the sum of a vector of all ranks
 *   stencil N     N steps of heat on a line that all ranks share, with the cells of neighbours; the same is computed by one rank alone
 *   wait          ranks wait for each other for ever
 * Each rank prints "rank R of N, program A: WHICH right", or "wrong", and ends with 1 after that.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELLS 50
#define LENGTH 10000

static int rank, size;

static int ring(int rounds)
{
    long long value = 0, all = (long long)size * (size - 1) / 2;
    for (int round = 0; round < rounds; round++) {
        if (rank > 0)
            MPI_Recv(&value, 1, MPI_LONG_LONG, rank - 1, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        value += rank;
        if (size > 1)
            MPI_Send(&value, 1, MPI_LONG_LONG, (rank + 1) % size, round, MPI_COMM_WORLD);
        if (rank == 0 && size > 1)
            MPI_Recv(&value, 1, MPI_LONG_LONG, size - 1, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Bcast(&value, 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
    return value == rounds * all;
}

static int allreduce(int rounds)
{
    static double mine[LENGTH], sum[LENGTH];
    int right = 1;
    for (int round = 0; round < rounds; round++) {
        for (int at = 0; at < LENGTH; at++)
            mine[at] = rank + at + round;
        MPI_Allreduce(mine, sum, LENGTH, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int at = 0; at < LENGTH; at++)
            right &= sum[at] == size * (size - 1) / 2 + (double)size * (at + round);
    }
    return right;
}

/* One step of the cells 1 to count; cells 0 and count + 1 are the neighbours'. */
static void step(const double *old, double *new, int count)
{
    for (int at = 1; at <= count; at++)
        new[at] = old[at] + 0.25 * (old[at - 1] - 2 * old[at] + old[at + 1]);
}

static int stencil(int steps)
{
    int count = CELLS * size, left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
    double *all = calloc(2 * ((size_t)count + 2), sizeof *all), *next = all + count + 2;
    double mine[CELLS + 2] = {0}, new[CELLS + 2] = {0};
    for (int at = 1; at <= count; at++)
        all[at] = at % 17;
    memcpy(mine + 1, all + 1 + rank * CELLS, CELLS * sizeof *mine);
    for (int round = 0; round < steps; round++) {
        step(all, next, count);
        memcpy(all + 1, next + 1, (size_t)count * sizeof *all);
        MPI_Sendrecv(mine + 1, 1, MPI_DOUBLE, left, 1, mine + CELLS + 1, 1, MPI_DOUBLE, right, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv(mine + CELLS, 1, MPI_DOUBLE, right, 2, mine, 1, MPI_DOUBLE, left, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        step(mine, new, CELLS);
        memcpy(mine + 1, new + 1, CELLS * sizeof *mine);
    }
    int same = memcmp(mine + 1, all + 1 + rank * CELLS, CELLS * sizeof *mine) == 0;
    free(all);
    return same;
}

int main(int argc, char **argv)
{
    int *program = NULL, found = 0, failed = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &program, &found);
    for (int at = 1; at < argc; at++) {
        const char *what = argv[at];
        if (strcmp(what, "wait") == 0) {
            char byte;
            printf("rank %d waits\n", rank);
            fflush(stdout);
            MPI_Recv(&byte, 1, MPI_CHAR, (rank + 1) % size, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            continue;
        }
        int count = at + 1 < argc ? atoi(argv[++at]) : 1;
        int right = strcmp(what, "ring") == 0 ? ring(count) : strcmp(what, "stencil") == 0 ? stencil(count) : allreduce(count);
        printf("rank %d of %d, program %d: %s %s\n", rank, size, found ? *program : -1, what, right ? "right" : "wrong");
        failed |= !right;
    }
    fflush(stdout);
    /* MPICH 4.0 waits for ever in MPI_Finalize now and then, whatever its launcher: ranks end when all have come so far. */
    MPI_Barrier(MPI_COMM_WORLD);
    _Exit(failed);
}
