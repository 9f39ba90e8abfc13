/* A rank that waits in the kernel and cannot be stopped: here for a child of vfork(2). In practice it is a file
 * system. */
#define _GNU_SOURCE
#include "hung.h"
#include <sys/wait.h>

static void free_us(void)
{
}

/* The child shares the memory of its parent, which is suspended meanwhile. */
static int load(void)
{
    pid_t child = vfork();

    if (child == 0) {
        while (!freed)
            usleep(1000);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    return 7;
}

int main(void)
{
    int result = 7;

    if (begin() == 1)
        result = load();
    else
        wait_for_the_others();
    return end(result);
}
