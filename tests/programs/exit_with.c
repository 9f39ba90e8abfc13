/*
 * exit_with CODE [CODE...]: exits at once with the code of its rank: the first for rank 0, the second for rank 1,
 * the last for all others. For tests of exit codes per rank and of the exit code that gantry passes on.
 */
#include <stdlib.h>

int main(int argc, char **argv)
{
    const char *variable = getenv("SLURM_PROCID") ? getenv("SLURM_PROCID") : getenv("FLUX_TASK_RANK");
    if (!variable) variable = getenv("GANTRY_RANK");
    int rank = variable ? atoi(variable) : 0;

    if (argc < 2)
        return 2;
    return atoi(argv[rank + 1 < argc ? rank + 1 : argc - 1]);
}
