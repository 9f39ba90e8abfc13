/*
 * A tool daemon in C: contributes the state, the memory and the number of threads of every rank of its node, from
 * /proc/PID/status.
 *
 *     cc -o read_status read_status.c $(pkg-config --cflags --libs common_tools_be)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gantry_be.h"

enum { STATUS = 1 };

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, gantry_be_error_str());
    return 1;
}

/* Writes a line for a rank. */
static void describe(FILE *lines, const char *host, int rank, pid_t pid) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *status = fopen(path, "r");
    fprintf(lines, "rank %d on %s:", rank, host);
    while (status && fgets(line, sizeof line, status)) {
        if (strncmp(line, "State", 5) && strncmp(line, "VmRSS", 5) && strncmp(line, "Threads", 7)) continue;
        line[strcspn(line, "\n")] = 0;
        fprintf(lines, " %s", line);
    }
    fputs("\n", lines);
    if (status) fclose(status);
}

int main(void) {
    char *text = NULL, *host = cti_be_getNodeHostname();
    size_t size = 0;
    cti_pidList_t *ranks = cti_be_findAppPids();
    FILE *lines = open_memstream(&text, &size);
    if (!host || !ranks || !lines) return failed("the ranks of this node");
    for (int at = 0; at < ranks->numPids; at++) describe(lines, host, ranks->pids[at].rank, ranks->pids[at].pid);
    fclose(lines);
    gantry_be_setDeadline(60000);
    int result = gantry_be_contribute(STATUS, text, size) ? failed("contribute") : 0;
    cti_be_destroyPidList(ranks);
    free(text);
    free(host);
    return result;
}
