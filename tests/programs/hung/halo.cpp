// Rank 1 waits for an edge that its neighbour does not send, in a class template.
#include "hung.h"
#include <mpi.h>
#include <vector>

static void free_us() {}

namespace grid {
template <typename T> class Halo {
public:
    T receive(int from)
    {
        std::vector<T> edge(1);
        std::vector<MPI_Request> requests(1);

        MPI_Irecv(edge.data(), 1, MPI_INT, from, 0, MPI_COMM_WORLD, requests.data());
        MPI_Waitall(1, requests.data(), MPI_STATUSES_IGNORE); // odd
        return edge[0];
    }
};
}

int main(int argc, char **argv)
{
    int rank, edge = 7;
    grid::Halo<int> halo;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    begin();
    if (rank == 1)
        edge = halo.receive(0);
    else
        wait_for_the_others();
    if (rank == 0)
        MPI_Send(&edge, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    end(edge);
    MPI_Finalize();
    return 0;
}
