/*
 * crash [abort|segv|trap|kill] [RANK]: dies by that signal (default abort). With RANK only that rank dies, and the
 * others exit with 0. It writes no core file. For tests of the report when a signal kills a rank.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static volatile int *volatile nowhere;

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "abort";
    const char *rank = getenv("SLURM_PROCID") ? getenv("SLURM_PROCID") : getenv("FLUX_TASK_RANK");
    if (!rank) rank = getenv("GANTRY_RANK");
    struct rlimit no_core = {0, 0};

    setrlimit(RLIMIT_CORE, &no_core);
    if (argc > 2 && rank && strcmp(rank, argv[2]) != 0)
        return 0;
    if (strcmp(how, "segv") == 0)
        *nowhere = 1;
    else if (strcmp(how, "trap") == 0)
        raise(SIGTRAP);
    else if (strcmp(how, "kill") == 0)
        raise(SIGKILL);
    abort();
}
