/* Rank 0 waits for a message with another tag than the one that was sent. */
#include "hung.h"
#include <mpi.h>

static void free_us(void)
{
}

static int gather(void)
{
    int part;

    MPI_Recv(&part, 1, MPI_INT, 3, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* odd */
    return part;
}

/*
 * Each rank exchanges messages with every other one. On several nodes, MPICH 4.0 with UCX often hangs in
 * MPI_Finalize right after the first messages: one rank spins for a peer that is already done.
 */
static void settle(void)
{
    int to[64] = {0}, from[64];

    for (int round = 0; round < 20; round++) {
        MPI_Alltoall(to, 1, MPI_INT, from, 1, MPI_INT, MPI_COMM_WORLD);
        usleep(10000);
    }
}

int main(int argc, char **argv)
{
    int rank, part = 7;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    begin();
    if (rank == 3) {
        MPI_Send(&part, 1, MPI_INT, 0, 8, MPI_COMM_WORLD);
        while (!freed)
            usleep(1000); /* late */
        MPI_Send(&part, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
    }
    if (rank == 0) {
        part = gather();
        MPI_Recv(&part, 1, MPI_INT, 3, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD); /* others */
    end(part);
    settle();
    MPI_Finalize();
    return 0;
}
