/*
 * An MPI program that shows in which world it is. Its arguments say what it does, in their order:
 *   late RANK        that rank says "late" and waits 300 s, before MPI_Init
 *   sum              all ranks add up their numbers; each prints "rank R of N, program A, places U, sum S"
 *   say              each prints the variables of its launcher: PMI_RANK, PMI_SIZE, MPI_LOCALRANKID and MPI_LOCALNRANKS,
 *                    or those of Open MPI
 *   abort RANK CODE  that rank ends all by MPI_Abort, the others wait for it
 *   leave RANK CODE  once all are through MPI_Init, that rank ends without MPI_Finalize, the others wait for it
 *   kill RANK SIGNAL the same by a signal
 *   spawn COUNT      rank 0 asks for that many programs more with one process each, and prints the result
 *   names            rank 0 publishes a name and looks it up, and prints the results
 *   shared           each prints "rank R shares memory with N"
 *   exit CODE STEP   MPI_Finalize, and the exit code CODE + rank * STEP
 *   finalize         MPI_Finalize
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *variable(const char *name, const char *of_open_mpi)
{
    const char *value = getenv(name);
    if (!value)
        value = getenv(of_open_mpi);
    return value ? value : "?";
}

static const char *own_rank(void)
{
    return variable("PMI_RANK", "OMPI_COMM_WORLD_RANK");
}

static int attribute(int key)
{
    int *value = NULL, found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, key, &value, &found);
    return found ? *value : -1;
}

static void wait_for(int rank, int other)
{
    char byte;
    if (rank != other)
        MPI_Recv(&byte, 1, MPI_CHAR, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static const char *result(int failed)
{
    return failed == MPI_SUCCESS ? "done" : "refused";
}

static void spawn(int count)
{
    MPI_Comm others;
    char *commands[] = {"/bin/true", "/bin/true", "/bin/true"};
    int ones[] = {1, 1, 1}, codes[3];
    MPI_Info none[] = {MPI_INFO_NULL, MPI_INFO_NULL, MPI_INFO_NULL};
    if (count < 1 || count > 3)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    printf("spawn %s\n", result(MPI_Comm_spawn_multiple(count, commands, MPI_ARGVS_NULL, ones, none, 0, MPI_COMM_SELF, &others, codes)));
}

static void names(void)
{
    char port[MPI_MAX_PORT_NAME] = "a port";
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    printf("publish %s\n", result(MPI_Publish_name("a name", MPI_INFO_NULL, port)));
    printf("lookup %s\n", result(MPI_Lookup_name("a name", MPI_INFO_NULL, port)));
}

static void shared(int rank)
{
    MPI_Comm near;
    int size;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near);
    MPI_Comm_size(near, &size);
    MPI_Comm_free(&near);
    printf("rank %d shares memory with %d\n", rank, size);
}

int main(int argc, char **argv)
{
    int rank, size, sum, at = 1;
    if (argc > 2 && strcmp(argv[1], "late") == 0) {
        if (strcmp(own_rank(), argv[2]) == 0) {
            printf("late\n");
            fflush(stdout);
            sleep(300);
        }
        at = 3;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (; at < argc; at++) {
        if (strcmp(argv[at], "sum") == 0) {
            MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            printf("rank %d of %d, program %d, places %d, sum %d\n", rank, size, attribute(MPI_APPNUM), attribute(MPI_UNIVERSE_SIZE), sum);
        } else if (strcmp(argv[at], "say") == 0) {
            printf("told %s of %s, %s of %s here\n", own_rank(), variable("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"), variable("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK"),
                   variable("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE"));
        } else if (strcmp(argv[at], "abort") == 0 && at + 2 < argc) {
            int who = atoi(argv[++at]), code = atoi(argv[++at]);
            if (rank == who)
                MPI_Abort(MPI_COMM_WORLD, code);
            wait_for(rank, who);
        } else if (strcmp(argv[at], "leave") == 0 && at + 2 < argc) {
            int who = atoi(argv[++at]), code = atoi(argv[++at]);
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == who)
                _exit(code);
            wait_for(rank, who);
        } else if (strcmp(argv[at], "kill") == 0 && at + 2 < argc) {
            int who = atoi(argv[++at]), number = atoi(argv[++at]);
            MPI_Barrier(MPI_COMM_WORLD);
            if (rank == who)
                raise(number);
            wait_for(rank, who);
        } else if (strcmp(argv[at], "spawn") == 0 && at + 1 < argc) {
            int count = atoi(argv[++at]);
            if (rank == 0)
                spawn(count);
        } else if (strcmp(argv[at], "names") == 0) {
            if (rank == 0)
                names();
        } else if (strcmp(argv[at], "shared") == 0) {
            shared(rank);
        } else if (strcmp(argv[at], "exit") == 0 && at + 2 < argc) {
            int code = atoi(argv[++at]), step = atoi(argv[++at]);
            MPI_Finalize();
            return code + rank * step;
        } else if (strcmp(argv[at], "finalize") == 0) {
            MPI_Finalize();
            return 0;
        }
    }
    /* No MPI_Finalize: that of MPICH 4.0.2 hangs now and then. */
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    _exit(0);
}
