/*
 * touch_and_wait FILE [SECONDS]: creates FILE as the first thing it does, then waits for a signal;
 * ends with 0 after SECONDS (300 when not given), so that a broken test leaves nothing for ever.
 * For tests of holding: a held rank has run no instruction, so FILE is not there. A "%" in FILE is
 * replaced by GANTRY_RANK, so that every rank has its own.
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
