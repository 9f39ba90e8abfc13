/* A rank of a co-allocated job: reports that it runs, waits at the barrier, and uses every function. Its argument is
 * the file for the report. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gantry_be.h"

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: not so: %s\n  last error: %s\n", __FILE__, __LINE__, #what, gantry_be_error_str()); \
            exit(1); \
        } \
    } while (0)

static int subjobs, own, *sizes;

static void ring(void) {
    int next = (own + 1) % subjobs, from = -1;
    size_t size = 0;
    void *token = NULL;
    char said[64];
    snprintf(said, sizeof said, "from %d", own);
    CHECK(gantry_be_sendToSubjob(next, "ring", said, strlen(said)) == 0);
    CHECK(gantry_be_receiveFromSubjobs("ring", &token, &size, &from) == 0);
    snprintf(said, sizeof said, "from %d", (own + subjobs - 1) % subjobs);
    CHECK(from == (own + subjobs - 1) % subjobs);
    CHECK(size == strlen(said) && strcmp(token, said) == 0);
    free(token);
}

static void *receive_other(void *tag) {
    void *got = NULL;
    size_t size = 0;
    CHECK(gantry_be_receiveFromRanks(tag, &got, &size, NULL) == 0);
    CHECK(size == 3 && memcmp(got, tag, 3) == 0);
    free(got);
    return NULL;
}

/* Two threads wait for messages that arrive in the opposite order. */
static void threads(int rank) {
    static char one[] = "one", two[] = "two";
    pthread_t other;
    CHECK(pthread_create(&other, NULL, receive_other, one) == 0);
    CHECK(gantry_be_sendToRank(rank, two, two, 3) == 0);
    CHECK(gantry_be_sendToRank(rank, one, one, 3) == 0);
    receive_other(two);
    CHECK(pthread_join(other, NULL) == 0);
}

static void free_list(char **list) {
    for (char **at = list; at && *at; at++) free(*at);
    free(list);
}

static void bootstrap(int rank) {
    char said[64], expected[64];
    char **all = NULL;
    int count = -1, index = -1, total = 0;
    snprintf(said, sizeof said, "subjob %d rank %d", own, rank);
    CHECK(gantry_be_exchange(said, &index, &count, &all) == 0);
    CHECK(index == own && count == subjobs && all[count] == NULL);
    for (int i = 0; i < count; i++) {
        snprintf(expected, sizeof expected, "subjob %d rank 0", i);
        CHECK(strcmp(all[i], expected) == 0);
        total += sizes[i];
    }
    free_list(all);
    CHECK(gantry_be_masterVector(said, &count, &all) == 0);
    CHECK(own == 0 && rank == 0 ? count == total : count == 0 && all == NULL);
    for (int i = 0, r = 0, at = 0; at < count; at++) {
        snprintf(expected, sizeof expected, "subjob %d rank %d", i, r);
        CHECK(strcmp(all[at], expected) == 0);
        if (++r == sizes[i]) r = 0, i++;
    }
    free_list(all);
    CHECK(gantry_be_orderedMasterVector(said, subjobs - 1 - own, &count, &all) == 0);
    CHECK((count > 0) == (own == subjobs - 1 && rank == 0));
    if (count > 0) CHECK(strcmp(all[0], said) == 0);
    free_list(all);
    CHECK(gantry_be_orderedMasterVector(said, -1, &count, &all) != 0);
    CHECK(strstr(gantry_be_error_str(), "order"));
}

int main(int argc, char **argv) {
    int rank = gantry_be_getRank();
    CHECK(rank >= 0 && gantry_be_getSize() > rank);
    if (argc > 1) {
        char path[4096];
        snprintf(path, sizeof path, "%s.%d", argv[1], rank);
        FILE *file = fopen(path, "w");
        CHECK(file && fclose(file) == 0);
    }
    CHECK(gantry_be_setDeadline(-2) != 0);
    CHECK(gantry_be_barrier() == 0 && gantry_be_barrier() == 0);
    CHECK(gantry_be_setDeadline(60000) == 0);
    CHECK(gantry_be_getSubjobs(&own, &subjobs, &sizes) == 0);
    CHECK(sizes[own] == gantry_be_getSize());
    if (rank == 0) ring();
    threads(rank);
    bootstrap(rank);
    CHECK(gantry_be_sendToSubjob(subjobs, "x", NULL, 0) != 0);
    CHECK(gantry_be_sendToRank(-1, "x", NULL, 0) != 0);
    CHECK(gantry_be_sendToRank(0, NULL, NULL, 0) != 0);
    CHECK(gantry_be_setDeadline(1) == 0);
    CHECK(gantry_be_receiveFromRanks("nothing", NULL, NULL, NULL) != 0);
    printf("well %d/%d\n", own, rank);
    return 0;
}
