/*
 * strays [leave]: starts five processes that are hard to find, and waits for SIGUSR1, which ends it with exit code
 * 3. "leave": it ends at once. One process is a child, one leads its own process group, one leads a session, one
 * has lost its parent, and one has lost its parent and leads a session. They ignore SIGUSR1 and keep all
 * descriptors. SIGALRM ends them after 600 s. For tests that all processes end that a rank or a daemon has
 * started.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void stay(void)
{
    signal(SIGUSR1, SIG_IGN);
    alarm(600);
    for (;;)
        pause();
}

static void stop(int signal)
{
    (void)signal;
    _exit(3);
}

static void start(int own_group, int own_session, int lose_parent)
{
    pid_t child = fork();

    if (child < 0)
        _exit(1);
    if (child > 0)
        return;
    if (own_group)
        setpgid(0, 0);
    if (lose_parent) {
        child = fork();
        if (child != 0)
            _exit(child < 0);
    }
    if (own_session)
        setsid();
    stay();
}

int main(int argc, char **argv)
{
    sigset_t usr1;

    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    signal(SIGUSR1, stop);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    start(0, 0, 0);
    start(1, 0, 0);
    start(0, 1, 0);
    start(0, 0, 1);
    start(0, 1, 1);
    if (argc > 1 && strcmp(argv[1], "leave") == 0)
        return 3;
    sigprocmask(SIG_UNBLOCK, &usr1, NULL);
    alarm(600);
    for (;;)
        pause();
}
