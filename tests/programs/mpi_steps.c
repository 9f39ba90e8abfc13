/*
 * mpi_steps SECONDS [wait]: computes and exchanges again and again: each turn is an MPI_Allreduce, mostly of nothing else, so that a rank is nearly always
 * in one. Ends with 0 after SECONDS, and says how many turns that were.
 * With "wait", each rank then prints "hangs". Rank 0 waits for a message that never comes, and the others in a barrier, until they are killed.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static volatile double sum;

__attribute__((noinline)) void compute(int rounds)
{
    for (int i = 1; i < rounds; i++)
        sum += 1.0 / i;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 10, until;
    int rank, size, message, go_on = 1, turns = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("begun\n");
    fflush(stdout);
    until = MPI_Wtime() + seconds;
    while (go_on) {
        int mine, all;

        compute(100 + turns % 10);
        mine = MPI_Wtime() < until;
        MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        go_on = all;
        turns++;
    }
    printf("turns: %d\n", turns);
    if (argc > 2)
        printf("hangs\n");
    fflush(stdout);
    if (argc > 2 && rank == 0)
        MPI_Recv(&message, 1, MPI_INT, size - 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
