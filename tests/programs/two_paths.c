/*
 * two_paths [SECONDS]: ranks of one app in different functions, for stack tools. Even ranks wait in even_path ->
 * work -> wait_here, odd ranks in odd_path -> wait_here. Prints "waiting" there, and exits with 0 after SECONDS
 * (default 300). Built with frame pointers and symbols. With ROOM, each function has so many bytes of variables.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef ROOM
#define ROOM 1
#endif

static volatile int after;

static void time_is_up(int signal)
{
    (void)signal;
    _exit(0);
}

__attribute__((noinline)) void wait_here(void)
{
    volatile char room[ROOM] = {0};

    (void)room;
    printf("waiting\n");
    fflush(stdout);
    for (;;)
        pause();
}

/* The stores after the calls prevent tail calls, which would leave no frame. */
__attribute__((noinline)) void work(void)
{
    volatile char room[ROOM] = {0};

    (void)room;
    wait_here();
    after = 1;
}

__attribute__((noinline)) void even_path(void)
{
    volatile char room[ROOM] = {0};

    (void)room;
    work();
    after = 2;
}

__attribute__((noinline)) void odd_path(void)
{
    volatile char room[ROOM] = {0};

    (void)room;
    wait_here();
    after = 3;
}

int main(int argc, char **argv)
{
    const char *rank = getenv("GANTRY_RANK");

    signal(SIGALRM, time_is_up);
    alarm(argc > 1 ? (unsigned)atoi(argv[1]) : 300);
    if (rank && atoi(rank) % 2 == 1)
        odd_path();
    else
        even_path();
    return 0;
}
