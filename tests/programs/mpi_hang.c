/*
 * mpi_hang: a program that hangs. Rank 0 waits for a message that never comes, the last rank turns in a loop,
 * the others wait for both in a barrier. Prints "hanging" before. For stack tools. Ends with 0 after 300 s.
 * mpi_hang deep N: the same below N calls of one function.
 * mpi_hang till-told [exit]: all ranks spin until SIGUSR1 comes, and end by MPI_Finalize, or without it.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile int turns;
static volatile sig_atomic_t told;

static void time_is_up(int signal)
{
    (void)signal;
    _exit(0);
}

static void be_told(int signal)
{
    (void)signal;
    told = 1;
}

__attribute__((noinline)) void wait_for_nobody(void)
{
    int message;

    MPI_Recv(&message, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    turns = message;
}

__attribute__((noinline)) void turn_for_ever(void)
{
    for (;;) {
        turns++;
        usleep(1000);
    }
}

__attribute__((noinline)) void meet_the_others(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    turns = 0;
}

__attribute__((noinline)) void hang_below(int calls, int rank, int size)
{
    if (calls > 0)
        hang_below(calls - 1, rank, size);
    else if (rank == 0)
        wait_for_nobody();
    else if (rank == size - 1)
        turn_for_ever();
    else
        meet_the_others();
    turns++;
}

int main(int argc, char **argv)
{
    int rank, size;
    int till_told = argc > 1 && strcmp(argv[1], "till-told") == 0;

    signal(SIGUSR1, be_told);
    signal(SIGALRM, time_is_up);
    alarm(300);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("hanging\n");
    fflush(stdout);
    while (till_told && !told)
        usleep(1000);
    if (till_told && argc > 2)
        _exit(0);
    if (!till_told)
        hang_below(argc > 2 ? atoi(argv[2]) : 0, rank, size);
    MPI_Finalize();
    return 0;
}
