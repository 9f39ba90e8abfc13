/* A tool daemon that carries out its arguments on its channel, in order; see the functions below. It frees all memory
 * that it gets. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gantry_be.h"

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: not so: %s; %s\n", __FILE__, __LINE__, #what, gantry_be_error_str()); \
            exit(1); \
        } \
    } while (0)

static int node;

/* Contributes the message with tag 1. */
static void echo(void) {
    gantry_data_t *data = gantry_be_receive(1);
    CHECK(data && data->tag == 1 && data->bytes[data->size] == 0);
    CHECK(gantry_be_contribute(1, data->bytes, data->size) == 0);
    gantry_be_destroyData(data);
    gantry_be_destroyData(data);
    CHECK(strstr(gantry_be_error_str(), "freed before"));
    gantry_be_destroyData(NULL);
}

/* Something for every filter, with tags from 10 on. */
static void give(void) {
    int64_t integers[] = {node, 1};
    double reals[] = {node + 0.5};
    int ranks[] = {2 * node, 2 * node + 1};
    const char *keys[] = {"even", "odd"}, *here[] = {"main", "solve", NULL}, *there[] = {"main", node ? "wait" : "write", NULL};
    gantry_be_stack_t stacks[] = {{ranks[0], here}, {ranks[1], there}};
    CHECK(gantry_be_contributeIntegers(10, integers, 2) == 0);
    CHECK(gantry_be_contributeReals(11, reals, 1) == 0);
    CHECK(gantry_be_contributeRanks(12, ranks, 2) == 0);
    CHECK(gantry_be_contributeKeys(13, keys, ranks, 2) == 0);
    CHECK(gantry_be_contributeStacks(14, stacks, 2) == 0);
    int wrong = -1;
    CHECK(gantry_be_contributeRanks(15, &wrong, 1) == 1 && strstr(gantry_be_error_str(), "-1 is not a rank"));
    CHECK(gantry_be_contributeIntegers(15, NULL, 1) == 1 && gantry_be_error_kind() == GANTRY_INVALID);
    CHECK(gantry_be_contributeIntegers(15, integers, -1) == 1);
}

/* Three messages unasked. */
static void say(void) {
    for (int at = 0; at < 3; at++) {
        char word[32];
        snprintf(word, sizeof word, "%d from %d", at, node);
        CHECK(gantry_be_send(20, word, strlen(word)) == 0);
    }
    char *large = calloc(1, 200000);
    CHECK(gantry_be_send(20, large, 200000) == 1 && gantry_be_error_kind() == GANTRY_INVALID);
    free(large);
}

/* Waits for a message by poll() only, and answers it. */
static void polls(void) {
    CHECK(gantry_be_setDeadline(-2) == 1 && gantry_be_setDeadline(0) == 0 && gantry_be_getDeadline() == 0);
    gantry_data_t *data;
    while (!(data = gantry_be_receiveAny())) {
        CHECK(gantry_be_error_kind() == GANTRY_TIMED_OUT);
        struct pollfd one = {gantry_be_getChannelFd(), POLLIN, 0};
        CHECK(poll(&one, 1, 60000) == 1);
    }
    CHECK(data->tag == 2);
    CHECK(gantry_be_send(21, data->bytes, data->size) == 0);
    gantry_be_destroyData(data);
    CHECK(gantry_be_setDeadline(-1) == 0 && gantry_be_getDeadline() == -1);
}

/* Merges two parts: the longest one is the result. */
static int longest(void *context, const gantry_part_t *parts, int count, void **result, size_t *size) {
    const gantry_part_t *best = parts;
    for (int at = 1; at < count; at++)
        if (parts[at].size > best->size) best = &parts[at];
    *(int *)context += 1;
    *size = best->size;
    *result = malloc(best->size ? best->size : 1);
    memcpy(*result, best->bytes, best->size);
    return 0;
}

static int merged;

static void *serves(void *unused) {
    (void)unused;
    CHECK(gantry_be_serveFilter("longest", longest, &merged) == 0);
    return NULL;
}

/* Contributes little with tag 31 and much with tag 32, for a filter that no daemon serves. */
static void more(void) {
    char *much = calloc(1, 200002);
    CHECK(gantry_be_contribute(31, "x", 1) == 0);
    CHECK(gantry_be_contribute(32, much, 200000 + (size_t)node) == 0);
    free(much);
}

/* Serves a filter of the tool. Contributes as many letters to it as its node's number, and waits until the session
   ends. */
static void serve(void) {
    pthread_t thread;
    CHECK(gantry_be_serveFilter("longest", NULL, NULL) == 1 && gantry_be_serveFilter(NULL, longest, NULL) == 1);
    CHECK(pthread_create(&thread, NULL, serves, NULL) == 0);
    CHECK(gantry_be_contribute(30, "xxxxxxxx", (size_t)node) == 0);
    pthread_join(thread, NULL);
}

/* Reads the ranks' rendezvous without registering. */
static void look(void) {
    CHECK(getenv(GANTRY_JOB_HANDLE_ENV_VAR));
    gantry_data_t *item = gantry_be_getItem(NULL, 1);
    CHECK(item && item->size == 9 && memcmp(item->bytes, "1 of sub ", 9) == 0);
    CHECK(gantry_be_register(NULL, "x", 1) == 1 && gantry_be_error_kind() == GANTRY_NO_ACCESS);
    CHECK(gantry_be_contribute(40, item->bytes, item->size) == 0);
    gantry_be_destroyData(item);
}

int main(int argc, char **argv) {
    gantry_member_t member;
    CHECK(gantry_be_openChannel() == 0 && gantry_be_getMember(&member) == 0 && gantry_be_getMember(NULL) == 1);
    node = (int)member.node;
    CHECK(node == gantry_be_getNode() && gantry_be_getChannelFd() >= 0);
    for (int at = 1; at < argc; at++) {
        if (!strcmp(argv[at], "echo")) echo();
        else if (!strcmp(argv[at], "give")) give();
        else if (!strcmp(argv[at], "say")) say();
        else if (!strcmp(argv[at], "polls")) polls();
        else if (!strcmp(argv[at], "more")) more();
        else if (!strcmp(argv[at], "serve")) serve();
        else if (!strcmp(argv[at], "look")) look();
        /* One daemon ends here, the others continue. */
        else if (!strcmp(argv[at], "leave1")) { if (node == 1) return 0; }
        else return 9;
    }
    return 0;
}
