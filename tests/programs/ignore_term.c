/*
 * ignore_term: ignores SIGTERM, SIGINT and SIGHUP, prints "ready" and waits. SIGALRM ends it after 600 s. For
 * tests of endings: a process that ignores SIGTERM must be killed after its grace time.
 */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    alarm(600);
    printf("ready\n");
    fflush(stdout);
    for (;;)
        pause();
}
