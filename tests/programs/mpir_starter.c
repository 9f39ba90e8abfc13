/*
 * mpir_starter [-n N] [-x NAME[=VALUE]] PROGRAM ARG...: a launcher for tests of a launcher's table. Starts N ranks
 * (default 2) on this machine with the variables of Open MPI, and fills the table of the MPIR interface. LIE=pid:
 * rank 1 has a wrong pid in the table. LIE=host: a wrong host. LIE=count: the table has one rank more. Exits with
 * the highest exit code of its ranks.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mpir_symbols.c"

static void number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static int start(int rank, int ranks, char **argv)
{
    int pid = fork();

    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    number("OMPI_COMM_WORLD_RANK", rank);
    number("OMPI_COMM_WORLD_SIZE", ranks);
    number("OMPI_COMM_WORLD_LOCAL_RANK", rank);
    number("OMPI_COMM_WORLD_LOCAL_SIZE", ranks);
    execvp(argv[0], argv);
    _exit(127);
}

int main(int argc, char **argv)
{
    int ranks = 2, at = 1, rank, status, code = 0;
    const char *lie = "";
    char host[256] = "";

    for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
        if (!strcmp(argv[at], "-n"))
            ranks = atoi(argv[at + 1]);
        else if (!strncmp(argv[at + 1], "LIE=", 4))
            lie = argv[at + 1] + 4;
    }
    if (at >= argc || ranks < 2)
        return 2;
    gethostname(host, sizeof host - 1);
    MPIR_proctable = calloc((size_t)ranks + 1, sizeof *MPIR_proctable);
    for (rank = 0; rank < ranks + 1; rank++) {
        MPIR_proctable[rank].host_name = rank == 1 && !strcmp(lie, "host") ? "elsewhere" : host;
        MPIR_proctable[rank].executable_name = argv[at];
        MPIR_proctable[rank].pid = rank < ranks ? start(rank, ranks, argv + at) : 1;
    }
    if (!strcmp(lie, "pid"))
        MPIR_proctable[1].pid = 1;
    MPIR_proctable_size = ranks + !strcmp(lie, "count");
    MPIR_debug_state = 1;
    for (rank = 0; rank < ranks; rank++)
        if (wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) > code)
            code = WEXITSTATUS(status);
    return code;
}
