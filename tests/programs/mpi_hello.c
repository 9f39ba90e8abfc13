/*
 * An MPI program: every rank tells rank 0 where it is, and rank 0 prints "rank R of N on HOST" for all, in order.
 * With an argument it ends by MPI_Finalize.
 */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    int rank, size, length;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(name, &length);
    if (rank != 0)
        MPI_Send(name, sizeof name, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    for (int from = 0; rank == 0 && from < size; from++) {
        if (from != 0)
            MPI_Recv(name, sizeof name, MPI_CHAR, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("rank %d of %d on %s\n", from, size, name);
    }
    /* No MPI_Finalize: MPICH 4.0.2 over UCX hangs in it now and then, one rank in ucp_worker_progress, the others in PMI's barrier. */
    MPI_Barrier(MPI_COMM_WORLD);
    fflush(stdout);
    if (argc > 1) {
        MPI_Finalize();
        return 0;
    }
    _exit(0);
}
