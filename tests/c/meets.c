/* A rank that uses rendezvous. `meets together`: registers, waits by poll(), and gets the items of all members. If
   its application is part of a multijob, it gets those of the multijob too. It also creates a named rendezvous.
   `meets dies`: rank 1 ends before it registers; the others get an error. It frees all memory that it gets. */
#define _GNU_SOURCE
#include <poll.h>
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

static int number(const char *one, const char *other) {
    const char *text = getenv(one) ? getenv(one) : getenv(other);
    return text ? atoi(text) : -1;
}

/* The data of a rank. */
static size_t word(char *to, int rank) {
    return (size_t)sprintf(to, "%d of sub ", rank);
}

static void is(const unsigned char *item, size_t size, int rank) {
    char expected[32];
    CHECK(size == word(expected, rank) && memcmp(item, expected, size) == 0);
}

static void in_all(const gantry_data_t *all, const uint32_t *way, int steps, int rank) {
    const unsigned char *item;
    size_t size;
    CHECK(all && gantry_be_findItem(all->bytes, all->size, way, steps, &item, &size) == 0);
    is(item, size, rank);
}

static void above(int rank, int size) {
    const char *handle = getenv(GANTRY_MULTIJOB_HANDLE_ENV_VAR);
    if (!handle) return;
    if (rank == 0) {
        gantry_data_t *own = gantry_be_getAll(NULL);
        CHECK(own && gantry_be_register(handle, own->bytes, own->size) == 0);
        gantry_be_destroyData(own);
    } else {
        CHECK(gantry_be_register(handle, "0 ", 2) == 1);
    }
    gantry_data_t *all = gantry_be_getAll(handle);
    uint32_t way[] = {(uint32_t)atoi(getenv(GANTRY_SUBJOB_RANK_ENV_VAR)), (uint32_t)(size - 1)};
    in_all(all, way, 2, size - 1);
    way[0] = 1 - way[0];
    way[1] = 0;
    in_all(all, way, 2, 0);
    gantry_be_destroyData(all);
    gantry_rendezvousList_t *one = gantry_be_getRendezvous(NULL);
    CHECK(one && one->count == 1 && one->items[0].above && !strcmp(one->items[0].above, handle));
    CHECK(one->items[0].level == 1 && one->items[0].standing == GANTRY_COMPLETE);
    gantry_be_destroyRendezvousList(one);
}

static void own(int rank) {
    char *mine = gantry_be_createRendezvous(NULL, "pair", 2);
    CHECK(mine && strstr(mine, "?job/pair"));
    if (rank < 2) CHECK(gantry_be_register(mine, "", 0) == 0);
    CHECK(gantry_be_waitComplete(mine) == 0);
    gantry_data_t *nothing = gantry_be_getItem(mine, 1);
    CHECK(nothing && nothing->size == 0 && nothing->bytes[0] == 0);
    gantry_be_destroyData(nothing);
    free(mine);
    CHECK(gantry_be_createRendezvous(NULL, "pair", 3) == NULL && gantry_be_createRendezvous(NULL, "no such", 3) == NULL);
    CHECK(gantry_be_createRendezvous(NULL, "absent", 0) == NULL && gantry_be_error_kind() == GANTRY_NOT_FOUND);
    gantry_rendezvousList_t *all = gantry_be_listRendezvous(NULL);
    CHECK(all && all->count >= 2 && strstr(all->items[0].name, "?job") && all->items[1].expected == 2 && all->items[1].registered == 2);
    gantry_be_destroyRendezvousList(all);
    gantry_be_destroyRendezvousList(all);
    CHECK(strstr(gantry_be_error_str(), "freed before"));
}

static void together(int rank, int size) {
    char mine[32];
    int ready = gantry_be_openRendezvous(NULL);
    CHECK(ready >= 0);
    CHECK(gantry_be_register(NULL, mine, word(mine, rank)) == 0);
    struct pollfd one = {ready, POLLIN, 0};
    CHECK(poll(&one, 1, 60000) == 1);
    close(ready);
    CHECK(gantry_be_register(NULL, "again", 5) == 1 && gantry_be_error_kind() == GANTRY_INVALID);
    CHECK(strstr(gantry_be_error_str(), "already"));
    gantry_be_setDeadline(20000);
    gantry_data_t *item = gantry_be_getItem(NULL, (uint32_t)((rank + 1) % size)), *all = gantry_be_getAll(NULL);
    CHECK(item);
    is(item->bytes, item->size, (rank + 1) % size);
    for (uint32_t at = 0; at < (uint32_t)size; at++) in_all(all, &at, 1, (int)at);
    uint32_t outside = (uint32_t)size;
    const unsigned char *found;
    size_t found_size;
    CHECK(gantry_be_findItem(all->bytes, all->size, &outside, 1, &found, &found_size) == 1);
    CHECK(gantry_be_findItem(all->bytes, all->size - 1, &outside, 1, &found, &found_size) == 1);
    CHECK(gantry_be_findItem(NULL, 7, &outside, 1, &found, &found_size) == 1);
    gantry_be_destroyData(item);
    gantry_be_destroyData(all);
    above(rank, size);
    own(rank);
    CHECK(gantry_be_waitComplete("no handle") == 1 && gantry_be_error_kind() == GANTRY_INVALID);
}

static void dies(int rank) {
    char mine[32];
    if (rank == 1) return;
    /* It may be broken already. */
    if (gantry_be_register(NULL, mine, word(mine, rank))) CHECK(gantry_be_error_kind() == GANTRY_LOST);
    CHECK(gantry_be_getAll(NULL) == NULL && gantry_be_error_kind() == GANTRY_LOST);
    CHECK(strstr(gantry_be_error_str(), "rank 1"));
    gantry_rendezvousList_t *one = gantry_be_getRendezvous(NULL);
    CHECK(one && one->items[0].standing == GANTRY_BROKEN && strstr(one->items[0].why, "rank 1"));
    gantry_be_destroyRendezvousList(one);
}

int main(int argc, char **argv) {
    int rank = number("GANTRY_RANK", "SLURM_PROCID"), size = number("GANTRY_SIZE", "SLURM_NTASKS");
    if (argc < 2) return 9;
    if (!strcmp(argv[1], "together")) together(rank, size);
    else if (!strcmp(argv[1], "dies")) dies(rank);
    else return 9;
    return 0;
}
