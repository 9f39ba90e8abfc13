/*
 * mpi_threads MODE SECONDS: each rank has a thread beside the first one. Prints "begun" first.
 * poll: that thread polls for messages all the time. The first one exchanges for SECONDS, says how many turns that
 * were, and prints "hangs". Rank 0 then waits for a message that never comes, and the others in a barrier, until they
 * are killed.
 * pause: as poll, and the thread gives the processor away after each look.
 * compute: that thread computes for SECONDS, and the first one waits for its message. Ends with 0.
 * join: that thread computes for SECONDS, and the first one waits for its end. Ends with 0.
 */
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What the computing thread remembers; none of it is on its stack. */
struct work {
    double until, sum, cells[4096];
    long turns;
};

static volatile int is_over;

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void *poll_for_messages(void *pauses)
{
    int there;

    while (!is_over) {
        MPI_Iprobe(MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
        if (pauses)
            sched_yield();
    }
    return NULL;
}

__attribute__((noinline)) void advance(struct work *work)
{
    for (int cell = 1; cell < 4095; cell++)
        work->cells[cell] = (work->cells[cell - 1] + work->cells[cell + 1]) / 2;
    work->cells[0] = work->turns++ % 7;
}

static void *compute(void *all)
{
    struct work *work = all;

    while (now() < work->until)
        advance(work);
    return NULL;
}

static void *compute_and_send(void *all)
{
    int done = 1, rank;

    compute(all);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Send(&done, 1, MPI_INT, rank, 3, MPI_COMM_WORLD);
    return NULL;
}

static void exchange(double seconds, int rank)
{
    double until = now() + seconds;
    int go_on = 1, turns = 0, message;

    while (go_on) {
        int mine = now() < until;

        MPI_Allreduce(&mine, &go_on, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        turns++;
    }
    if (rank == 0) {
        printf("turns: %d\nhangs\n", turns);
        fflush(stdout);
        MPI_Recv(&message, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE); /* odd */
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "poll";
    double seconds = argc > 2 ? atof(argv[2]) : 10;
    int polls = !strcmp(mode, "poll") || !strcmp(mode, "pause"), joins = !strcmp(mode, "join");
    struct work *work = calloc(1, sizeof *work);
    pthread_t thread;
    int rank, level, message;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!work || level < MPI_THREAD_MULTIPLE)
        MPI_Abort(MPI_COMM_WORLD, 1);
    if (rank == 0) {
        printf("begun\n");
        fflush(stdout);
    }
    work->until = now() + seconds;
    if (polls)
        pthread_create(&thread, NULL, poll_for_messages, strcmp(mode, "poll") ? work : NULL);
    else
        pthread_create(&thread, NULL, joins ? compute : compute_and_send, work);
    if (polls)
        exchange(seconds, rank);
    else if (!joins)
        MPI_Recv(&message, 1, MPI_INT, rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    is_over = 1;
    pthread_join(thread, NULL);
    MPI_Finalize();
    return 0;
}
