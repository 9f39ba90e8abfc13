/*
 * Times fences of PMI-1, without an MPI library: its argument says how many. Before each fence every rank puts a new
 * key with 200 bytes. Rank 0 prints the microseconds of each fence, from its put to its answer, on one line.
 * A fence without keys goes before each, so that all ranks begin together.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { VALUE_BYTES = 200 };

static int pmi;

/* Sends a line, and waits for the line that answers it. */
static void ask(const char *line)
{
    char answer[4096];
    size_t length = strlen(line), read_bytes = 0;
    if (write(pmi, line, length) != (ssize_t)length)
        exit(2);
    do {
        ssize_t count = read(pmi, answer + read_bytes, sizeof answer - 1 - read_bytes);
        if (count <= 0)
            exit(3);
        read_bytes += (size_t)count;
    } while (answer[read_bytes - 1] != '\n');
    answer[read_bytes] = 0;
    /* Launchers may leave rc out where nothing can fail. */
    if (strstr(answer, "rc=") && !strstr(answer, "rc=0")) {
        fprintf(stderr, "%s", answer);
        exit(4);
    }
}

static long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000L + time.tv_nsec / 1000;
}

int main(int argc, char **argv)
{
    const char *fd = getenv("PMI_FD"), *rank = getenv("PMI_RANK");
    int fences = argc > 1 ? atoi(argv[1]) : 1;
    char value[VALUE_BYTES + 1], line[512], space[128] = "", answer[512];
    if (!fd || !rank)
        return 1;
    pmi = atoi(fd);
    memset(value, 'v', VALUE_BYTES);
    value[VALUE_BYTES] = 0;
    ask("cmd=init pmi_version=1 pmi_subversion=1\n");
    /* The name of the key-value space goes into each put. */
    const char *question = "cmd=get_my_kvsname\n";
    if (write(pmi, question, strlen(question)) < 0)
        return 2;
    ssize_t count = read(pmi, answer, sizeof answer - 1);
    if (count <= 0)
        return 3;
    answer[count] = 0;
    const char *name = strstr(answer, "kvsname=");
    if (!name || sscanf(name, "kvsname=%127s", space) != 1)
        return 3;
    for (int fence = 0; fence < fences; fence++) {
        ask("cmd=barrier_in\n");
        long begin = now();
        snprintf(line, sizeof line, "cmd=put kvsname=%s key=k%s-%d value=%s\n", space, rank, fence, value);
        ask(line);
        ask("cmd=barrier_in\n");
        if (strcmp(rank, "0") == 0)
            printf("%ld ", now() - begin);
    }
    ask("cmd=finalize\n");
    if (strcmp(rank, "0") == 0)
        printf("\n");
    return 0;
}
