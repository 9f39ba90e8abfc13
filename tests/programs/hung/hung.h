/*
 * The common part of this folder's programs. Rank 1 hangs, in each program for another reason. The other ranks
 * wait for it. Each rank first prints "there". SIGUSR1 to all ranks ends the hang: its handler calls the program's
 * `free_us`. Each rank then prints "result N". A comment such as `odd` marks the line where a rank is while it
 * hangs.
 */
#ifndef HUNG_H
#define HUNG_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t freed;

/* Resolves the hang of rank 1. */
static void free_us(void);

static void be_freed(int number)
{
    (void)number;
    freed = 1;
    free_us();
}

/* No SIGUSR1 came in time. Exits without a result. */
static void give_up(int number)
{
    (void)number;
    _exit(9);
}

/* Installs the handlers and returns the rank. */
__attribute__((unused)) static int begin(void)
{
    struct sigaction action;
    const char *rank = getenv("GANTRY_RANK");

    memset(&action, 0, sizeof action);
    action.sa_handler = be_freed;
    /* An interrupted call must continue to wait. */
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGALRM, give_up);
    alarm(300);
    printf("there\n");
    fflush(stdout);
    return rank ? atoi(rank) : 1;
}

/* Where ranks wait that do not hang. */
__attribute__((unused)) static void wait_for_the_others(void)
{
    sigset_t news, before;

    sigemptyset(&news);
    sigaddset(&news, SIGUSR1);
    sigprocmask(SIG_BLOCK, &news, &before);
    while (!freed)
        sigsuspend(&before); /* others */
    sigprocmask(SIG_SETMASK, &before, NULL);
}

__attribute__((unused)) static int end(int result)
{
    printf("result %d\n", result);
    fflush(stdout);
    return 0;
}

#endif
