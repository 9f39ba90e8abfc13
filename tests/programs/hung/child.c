/* A rank that waits for a child process. */
#include "hung.h"
#include <sys/wait.h>

static void free_us(void)
{
}

static int run(void)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        wait_for_the_others();
        _exit(7);
    }
    waitpid(child, &status, 0); /* odd */
    return WEXITSTATUS(status);
}

int main(void)
{
    int result = 7;

    if (begin() == 1)
        result = run();
    else
        wait_for_the_others();
    return end(result);
}
