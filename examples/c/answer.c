/*
 * A tool daemon in C: reports which ranks are on its node, and that they are stopped. It writes to the pipe that is its
 * argument.
 *
 *     cc -o answer answer.c $(pkg-config --cflags --libs common_tools_be)
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gantry_be.h"

/* The letter of a process' state in /proc: T for stopped. */
static char state_of(pid_t pid) {
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    char *end = size ? strrchr(text, ')') : NULL;
    return end && end[1] && end[2] ? end[2] : '?';
}

int main(int argc, char **argv) {
    int answers = argc > 1 ? open(argv[1], O_WRONLY) : -1;
    char *host = cti_be_getNodeHostname();
    cti_pidList_t *ranks = cti_be_findAppPids();
    if (answers < 0 || !host || !ranks) {
        fprintf(stderr, "%s: %s\n", argv[0], gantry_be_error_str());
        return 1;
    }
    for (int at = 0; at < ranks->numPids; at++)
        /* A line is written at once: daemons of other nodes write to the same pipe. */
        dprintf(answers, "%s: rank %d is process %d in state %c\n", host, ranks->pids[at].rank, (int)ranks->pids[at].pid,
                state_of(ranks->pids[at].pid));
    cti_be_destroyPidList(ranks);
    free(host);
    close(answers);
    return 0;
}
