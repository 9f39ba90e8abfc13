/*
 * say [ARGS...]: prints its identity and ends at once. For tests of the environment of ranks and daemons. Prints
 * one "name=value" per line: pid, cwd, argc, arg<i>, then every environment variable that starts with GANTRY_, and
 * the variables of Slurm and Flux for its identity.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv)
{
    char cwd[4096];

    printf("pid=%d\n", (int)getpid());
    printf("cwd=%s\n", getcwd(cwd, sizeof cwd) ? cwd : "?");
    printf("argc=%d\n", argc);
    for (int i = 1; i < argc; i++)
        printf("arg%d=%s\n", i, argv[i]);
    for (char **variable = environ; *variable; variable++)
        if (strncmp(*variable, "GANTRY_", 7) == 0 || strncmp(*variable, "SLURM_PROCID=", 13) == 0 ||
            strncmp(*variable, "SLURM_NTASKS=", 13) == 0 || strncmp(*variable, "SLURM_LOCALID=", 14) == 0 ||
            strncmp(*variable, "SLURM_NODEID=", 13) == 0 || strncmp(*variable, "FLUX_TASK_", 10) == 0 ||
            strncmp(*variable, "FLUX_JOB_SIZE=", 14) == 0 || strncmp(*variable, "TEST_NODE=", 10) == 0)
            printf("%s\n", *variable);
    return 0;
}
