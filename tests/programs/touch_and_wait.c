/*
 * touch_and_wait FILE [SECONDS]: creates FILE first, then waits for a signal. It exits with 0 after SECONDS
 * (default 300), so that a broken test leaves nothing forever. GANTRY_RANK replaces a "%" in FILE, so that every
 * rank has its own file. For tests of holding: a held rank has run no instruction, so FILE does not exist.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void time_is_up(int signal)
{
    (void)signal;
    _exit(0);
}

int main(int argc, char **argv)
{
    char path[4096];
    const char *rank = getenv("SLURM_PROCID") ? getenv("SLURM_PROCID") : getenv("FLUX_TASK_RANK");
    if (!rank) rank = getenv("GANTRY_RANK");
    char *percent;
    int fd;

    if (argc < 2) {
        fprintf(stderr, "usage: touch_and_wait FILE [SECONDS]\n");
        return 2;
    }
    percent = strchr(argv[1], '%');
    if (percent)
        snprintf(path, sizeof path, "%.*s%s%s", (int)(percent - argv[1]), argv[1], rank ? rank : "none",
                 percent + 1);
    else
        snprintf(path, sizeof path, "%s", argv[1]);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) {
        perror(path);
        return 3;
    }
    close(fd);
    signal(SIGALRM, time_is_up);
    alarm(argc > 2 ? (unsigned)atoi(argv[2]) : 300);
    for (;;)
        pause();
}
