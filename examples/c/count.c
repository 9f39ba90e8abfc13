/*
 * A tool daemon in C: waits for its tool's question, and contributes the number of its node's ranks and the state of
 * each.
 *
 *     cc -o count count.c $(pkg-config --cflags --libs common_tools_be)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gantry_be.h"

enum { QUESTION = 1, COUNT, STATES, NEWS };

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, gantry_be_error_str());
    return 1;
}

/* A process's state as a word. */
static const char *state_of(pid_t pid) {
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    char *end = size ? strrchr(text, ')') : NULL;
    switch (end && end[1] ? end[2] : '?') {
    case 'R': return "runs";
    case 'S': case 'D': return "waits";
    case 'T': case 't': return "is stopped";
    default: return "is gone";
    }
}

/* Answers with the number and the states of the ranks in the list. */
static int answer(const cti_pidList_t *list) {
    int count = list->numPids;
    const char **states = calloc((size_t)count + 1, sizeof *states);
    int *ranks = calloc((size_t)count + 1, sizeof *ranks);
    for (int at = 0; at < count; at++) {
        ranks[at] = list->pids[at].rank;
        states[at] = state_of(list->pids[at].pid);
    }
    int64_t number = count;
    int result = gantry_be_contributeIntegers(COUNT, &number, 1) || gantry_be_contributeKeys(STATES, states, ranks, count);
    free(states);
    free(ranks);
    return result ? failed("contribute") : 0;
}

int main(void) {
    gantry_be_setDeadline(60000);
    gantry_data_t *question = gantry_be_receive(QUESTION);
    if (!question) return failed("the question");
    gantry_be_destroyData(question);
    cti_pidList_t *list = cti_be_findAppPids();
    if (!list || answer(list)) return failed("the answer");
    cti_be_destroyPidList(list);
    const char news[] = "that was all";
    return gantry_be_send(NEWS, news, strlen(news)) ? failed("the news") : 0;
}
