/*
 * report_signal: prints "ready", then "got SIGxxx" for each signal that can be caught. It exits with 40 + the
 * signal's number. SIGCONT is printed and does not end it. After 300 s without a signal it exits with 0. For tests
 * of forwarding and killing: which signal came, and that the program could act on it.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t caught;

static void remember(int signal)
{
    caught = signal;
}

int main(void)
{
    struct sigaction action;
    sigset_t all, none;

    /* Signals are blocked everywhere but in sigsuspend, so none is missed between the check and the wait. */
    sigfillset(&all);
    sigemptyset(&none);
    sigprocmask(SIG_BLOCK, &all, NULL);
    memset(&action, 0, sizeof action);
    action.sa_handler = remember;
    sigfillset(&action.sa_mask);
    for (int number = 1; number < NSIG; number++)
        if (number != SIGKILL && number != SIGSTOP)
            sigaction(number, &action, NULL); /* fails for libc's own real-time signals, as expected */
    alarm(300);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        caught = 0;
        sigsuspend(&none);
        if (caught == 0)
            continue;
        if (caught == SIGALRM)
            return 0;
        const char *name = sigabbrev_np(caught);
        if (name)
            printf("got SIG%s\n", name);
        else
            printf("got SIG%d\n", (int)caught);
        fflush(stdout);
        if (caught != SIGCONT)
            return 40 + caught;
    }
}
