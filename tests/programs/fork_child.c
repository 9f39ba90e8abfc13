/*
 * fork_child [stay|session]: leaves a child in the background and prints "child PID" once it runs. The parent
 * exits with 0 at once. "stay": it waits for a signal. "session": the child first makes its own session, so that
 * it is in none of our process groups. SIGALRM ends the child after 600 s. For tests that the whole tree of a rank
 * or a daemon ends, not only its first process.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    int ready[2];
    char byte = 0;
    pid_t child;

    if (pipe(ready) != 0 || (child = fork()) < 0) {
        perror("fork_child");
        return 1;
    }
    if (child == 0) {
        if (strcmp(how, "session") == 0)
            setsid();
        alarm(600);
        if (write(ready[1], "", 1) != 1)
            _exit(1);
        close(ready[0]);
        close(ready[1]);
        for (;;)
            pause();
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1)
        return 1;
    printf("child %d\n", (int)child);
    fflush(stdout);
    if (strcmp(how, "stay") == 0) {
        alarm(600);
        pause();
    }
    return 0;
}
