/* Rank 2 still computes, while all others are in a collective call. */
#include "hung.h"
#include <mpi.h>

static volatile double residual = 1;

static void free_us(void)
{
    residual = 0;
}

static void solve(void)
{
    while (residual > 0); /* odd */
}

static int exchange(void)
{
    int mine = 1, sum = 0;

    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); /* others */
    return sum == 4 ? 7 : 0;
}

int main(int argc, char **argv)
{
    int rank, result;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    begin();
    if (rank == 2)
        solve();
    result = exchange();
    end(result);
    MPI_Finalize();
    return 0;
}
