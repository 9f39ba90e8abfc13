/*
 * named_threads [SECONDS]: three threads in different functions, for stack tools. The first thread waits in main
 * -> lead. The thread "reader" waits in read_parts -> read of a pipe. The thread "writer" waits in write_parts ->
 * pause. On rank 1 the writer waits in write_parts -> take_the_lock, for a lock that is never released. Prints
 * "waiting" once the threads run, and exits with 0 after SECONDS (default 300). Built with frame pointers and
 * symbols.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile int after;
static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;
static int ends[2];
static int rank;

static void time_is_up(int signal)
{
    (void)signal;
    _exit(0);
}

/* The stores after the calls prevent tail calls, which would leave no frame. */
__attribute__((noinline)) void take_the_lock(void)
{
    pthread_mutex_lock(&door);
    after = 1;
}

__attribute__((noinline)) void *write_parts(void *unused)
{
    (void)unused;
    if (rank == 1)
        take_the_lock();
    for (;;)
        pause();
}

__attribute__((noinline)) void *read_parts(void *unused)
{
    char part;

    (void)unused;
    while (read(ends[0], &part, 1) != 0)
        after = 2;
    return NULL;
}

__attribute__((noinline)) void lead(void)
{
    for (;;)
        sleep(1000);
}

int main(int argc, char **argv)
{
    pthread_t reader, writer;
    const char *told = getenv("GANTRY_RANK");

    rank = told ? atoi(told) : 0;
    signal(SIGALRM, time_is_up);
    alarm(argc > 1 ? (unsigned)atoi(argv[1]) : 300);
    pthread_mutex_lock(&door);
    if (pipe(ends) != 0 || pthread_create(&reader, NULL, read_parts, NULL) != 0 ||
        pthread_create(&writer, NULL, write_parts, NULL) != 0)
        return 1;
    pthread_setname_np(reader, "reader");
    pthread_setname_np(writer, "writer");
    printf("waiting\n");
    fflush(stdout);
    lead();
    return 0;
}
