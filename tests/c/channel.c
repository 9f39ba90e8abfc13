/* The tool's side of the channel and of rendezvous, as in gantry.h. PEER and MEETS in the environment are the paths
   of a daemon (peer.c) and of a rank (meets.c). The test frees all memory that it gets, because valgrind checks it. */
#include "check.h"

#include <pthread.h>

static cti_app_id_t begin(cti_session_id_t *session, int ranks, const char *const steps[]) {
    char number[8];
    snprintf(number, sizeof number, "%d", ranks);
    const char *argv[] = {"-N", "3", "-n", number, "sleep", "1000", NULL};
    cti_app_id_t app = cti_launchApp(argv, -1, -1, NULL, NULL, NULL);
    if (app <= 0) FAIL("no launch");
    *session = cti_createSession(app);
    CHECK(*session > 0);
    if (cti_execToolDaemon(cti_createManifest(*session), getenv("PEER"), steps, NULL)) FAIL("no daemon");
    return app;
}

static void end(cti_app_id_t app) {
    CHECK(cti_killApp(app, SIGKILL) == 0);
    cti_deregisterApp(app);
}

static void described(const gantry_outcome_t *outcome, const char *filter, const char *expected) {
    char *said = gantry_describeResult(outcome, filter);
    if (!said || strcmp(said, expected)) FAIL("%s is '%s', not '%s'", filter, said ? said : "", expected);
    free(said);
}

static gantry_outcome_t *reduce(cti_session_id_t session, uint32_t tag, const char *filter) {
    gantry_outcome_t *outcome = gantry_reduce(session, tag, filter, GANTRY_ALL);
    if (!outcome) FAIL("no %s", filter);
    CHECK(outcome->contributed == 3 && outcome->numParts == 1 && outcome->numMissing == 0);
    return outcome;
}

static void filters(cti_session_id_t session) {
    int64_t integers[2] = {0, 0};
    double real = 0;
    int ranks[6] = {9, 9, 9, 9, 9, 9};
    gantry_outcome_t *sum = reduce(session, 10, "sum");
    CHECK(gantry_getIntegers(sum, integers, 2) == 2 && integers[0] == 3 && integers[1] == 3);
    integers[1] = 7;
    CHECK(gantry_getIntegers(sum, integers, 1) == 2 && integers[1] == 7 && gantry_getIntegers(sum, NULL, 0) == 2);
    CHECK(gantry_getReals(sum, &real, 1) == -1 && gantry_getIntegers(sum, NULL, 2) == -1 && gantry_getIntegers(NULL, integers, 2) == -1);
    described(sum, "sum", "3 3");
    CHECK(gantry_describeResult(sum, "mine") == NULL && gantry_describeResult(sum, NULL) == NULL);
    gantry_destroyOutcome(sum);
    gantry_outcome_t *max = reduce(session, 11, "max"), *set = reduce(session, 12, "ranks");
    CHECK(gantry_getReals(max, &real, 1) == 1 && real == 2.5);
    CHECK(gantry_getRanks(set, ranks, 6) == 6 && ranks[0] == 0 && ranks[5] == 5);
    described(set, "ranks", "0-5");
    gantry_outcome_t *keys = reduce(session, 13, "keys"), *stacks = reduce(session, 14, "stacks");
    described(keys, "keys", "even [0,2,4]\nodd [1,3,5]\n");
    described(stacks, "stacks", "main > solve [0,2,4]\nmain > wait [3,5]\nmain > write [1]\n");
    gantry_destroyOutcome(max);
    gantry_destroyOutcome(set);
    gantry_destroyOutcome(keys);
    gantry_destroyOutcome(stacks);
}

static void operations(cti_session_id_t session) {
    gantry_memberList_t *members = gantry_getMembers(session);
    CHECK(members && members->numMembers == 3);
    gantry_outcome_t *sent = gantry_broadcast(session, 1, "a\0b", 3);
    CHECK(sent && sent->contributed == 3 && sent->numParts == 0 && sent->numMissing == 0);
    gantry_outcome_t *echoed = gantry_gather(session, 1, GANTRY_ALL);
    CHECK(echoed && echoed->numParts == 3 && echoed->contributed == 3);
    for (int at = 0; at < 3; at++) {
        CHECK(echoed->parts[at].member.node == (uint32_t)at && echoed->parts[at].size == 3);
        CHECK(memcmp(echoed->parts[at].bytes, "a\0b", 4) == 0);
    }
    gantry_destroyOutcome(echoed);
    gantry_destroyOutcome(sent);
    gantry_destroyOutcome(sent);
    CHECK(strstr(cti_error_str(), "freed before"));
    gantry_destroyOutcome(NULL);
    /* Different data for each member: two members in one call, the third in a separate call. */
    gantry_part_t parts[] = {{members->members[0], "zero", 4}, {members->members[2], NULL, 0}};
    gantry_outcome_t *scattered = gantry_scatter(session, 1, parts, 2);
    CHECK(scattered && scattered->contributed == 2);
    gantry_destroyOutcome(scattered);
    CHECK(gantry_send(session, members->members[1], 1, "one", 3) == 0);
    gantry_outcome_t *own = gantry_gather(session, 1, 3);
    CHECK(own && own->numParts == 3 && own->parts[2].size == 0);
    CHECK(!strcmp((char *)own->parts[0].bytes, "zero") && !strcmp((char *)own->parts[1].bytes, "one"));
    gantry_destroyOutcome(own);
    gantry_member_t missing = {7, 7};
    FAILS(gantry_send(session, missing, 1, "x", 1) == 0, "daemon 7");
    CHECK(gantry_gather(session, 1, -7) == NULL && gantry_error_kind() == GANTRY_INVALID);
    CHECK(gantry_broadcast(session, 1, NULL, 1) == NULL && gantry_broadcast(0, 1, "x", 1) == NULL);
    gantry_destroyMembers(members);
    gantry_destroyMembers(members);
    CHECK(strstr(cti_error_str(), "freed before"));
    gantry_destroyMembers(NULL);
}

static void messages(cti_session_id_t session) {
    gantry_inbox_id_t inbox = gantry_openInbox(session, 20), empty = gantry_openInbox(session, 99);
    CHECK(inbox > 0 && empty > 0);
    int seen[3] = {0, 0, 0};
    for (int at = 0; at < 9; at++) {
        struct pollfd one = {gantry_getInboxFd(inbox), POLLIN, 0};
        CHECK(poll(&one, 1, (int)(SOON * 1000)) == 1);
        gantry_setDeadline(0);
        gantry_data_t *data = gantry_receive(inbox);
        gantry_setDeadline(-1);
        if (!data) FAIL("nothing to receive");
        char expected[32];
        snprintf(expected, sizeof expected, "%d from %u", seen[data->from.node]++, data->from.node);
        CHECK(data->tag == 20 && data->size == strlen(expected) && !strcmp((char *)data->bytes, expected));
        gantry_destroyData(data);
    }
    struct pollfd both[] = {{gantry_getInboxFd(inbox), POLLIN, 0}, {gantry_getInboxFd(empty), POLLIN, 0}};
    CHECK(poll(both, 2, 0) == 0);
    gantry_setDeadline(50);
    CHECK(gantry_receive(inbox) == NULL && gantry_error_kind() == GANTRY_TIMED_OUT);
    gantry_setDeadline(-1);
    CHECK(gantry_closeInbox(inbox) == 0 && gantry_closeInbox(inbox) == 1 && gantry_receive(inbox) == NULL && gantry_getInboxFd(inbox) == -1);
    CHECK(gantry_closeInbox(empty) == 0);
}

/* Every call, with its result. */
static void speaks(void) {
    const char *steps[] = {"echo", "echo", "give", "say", "polls", "echo", NULL};
    cti_session_id_t session;
    cti_app_id_t app = begin(&session, 6, steps);
    operations(session);
    filters(session);
    messages(session);
    gantry_inbox_id_t inbox = gantry_openInbox(session, 21);
    gantry_outcome_t *asked = gantry_broadcast(session, 2, "?", 1);
    CHECK(asked && asked->contributed == 3);
    gantry_destroyOutcome(asked);
    for (int at = 0; at < 3; at++) {
        gantry_data_t *data = gantry_receive(inbox);
        CHECK(data && data->size == 1 && data->bytes[0] == '?');
        gantry_destroyData(data);
    }
    /* A waiting call gets an error when the session ends; its descriptor becomes readable. */
    CHECK(cti_destroySession(session) == 0);
    struct pollfd one = {gantry_getInboxFd(inbox), POLLIN, 0};
    CHECK(poll(&one, 1, (int)(SOON * 1000)) == 1);
    CHECK(gantry_receive(inbox) == NULL && gantry_error_kind() == GANTRY_GONE);
    CHECK(gantry_closeInbox(inbox) == 0);
    CHECK(gantry_gather(session, 1, GANTRY_ALL) == NULL && gantry_openInbox(session, 1) == 0);
    end(app);
}

/* A megabyte to all members and back. */
static void carries_a_megabyte(void) {
    const char *steps[] = {"echo", NULL};
    cti_session_id_t session;
    cti_app_id_t app = begin(&session, 3, steps);
    size_t size = 1 << 20;
    unsigned char *bytes = malloc(size);
    for (size_t at = 0; at < size; at++) bytes[at] = (unsigned char)(at * 31 >> 3);
    gantry_outcome_t *sent = gantry_broadcast(session, 1, bytes, size), *back = gantry_gather(session, 1, GANTRY_ALL);
    CHECK(sent && back && back->numParts == 3);
    for (int at = 0; at < 3; at++) CHECK(back->parts[at].size == size && !memcmp(back->parts[at].bytes, bytes, size));
    gantry_destroyOutcome(sent);
    gantry_destroyOutcome(back);
    free(bytes);
    end(app);
}

/* One daemon ends without a message. The policy decides what happens. */
static void names_who_is_missing(void) {
    const char *steps[] = {"leave1", "give", "polls", NULL};
    cti_session_id_t session;
    cti_app_id_t app = begin(&session, 6, steps);
    /* Begun before it has ended or after: it is missing, or was no member. */
    gantry_setDeadline(20000);
    gantry_outcome_t *some = gantry_reduce(session, 10, "sum", GANTRY_BEST_EFFORT), *two = gantry_reduce(session, 11, "min", 2);
    CHECK(some && two && some->contributed == 2 && two->contributed == 2);
    described(some, "sum", "2 2");
    described(two, "min", "0.5");
    for (int at = 0; at < some->numMissing; at++) {
        gantry_missing_t *who = &some->missing[at];
        CHECK(who->member.node == 1 && strlen(who->host) && strlen(who->why) && who->kind == GANTRY_GONE);
    }
    gantry_destroyOutcome(some);
    gantry_destroyOutcome(two);
    CHECK(gantry_reduce(session, 12, "ranks", 3) == NULL);
    /* These two do not contribute to tag 50. */
    gantry_setDeadline(300);
    gantry_outcome_t *late = gantry_gather(session, 50, GANTRY_BEST_EFFORT);
    CHECK(late && late->contributed == 0 && late->numParts == 0 && late->numMissing == 2);
    CHECK(late->missing[0].kind == GANTRY_TIMED_OUT && late->missing[1].member.node == 2);
    gantry_destroyOutcome(late);
    FAILS(gantry_gather(session, 50, GANTRY_ALL) != NULL, "in time");
    CHECK(gantry_error_kind() == GANTRY_TIMED_OUT);
    gantry_setDeadline(-1);
    end(app);
}

static int merged;

static int longest(void *context, const gantry_part_t *parts, int count, void **result, size_t *size) {
    const gantry_part_t *best = parts;
    for (int at = 1; at < count; at++)
        if (parts[at].size > best->size) best = &parts[at];
    *(int *)context += 1;
    *size = best->size;
    *result = malloc(best->size + 1);
    memcpy(*result, best->bytes, best->size);
    return 0;
}

/* A filter of the tool's own, in daemons and in the tool. */
static void merges_by_its_own_filter(void) {
    const char *steps[] = {"serve", NULL};
    cti_session_id_t session;
    cti_app_id_t app = begin(&session, 3, steps);
    CHECK(gantry_registerFilter(session, "sum", longest, &merged) == 1 && gantry_registerFilter(session, "longest", NULL, NULL) == 1);
    CHECK(gantry_registerFilter(session, "longest", longest, &merged) == 0);
    gantry_outcome_t *outcome = reduce(session, 30, "longest");
    CHECK(outcome->parts[0].size == 2 && !strcmp((char *)outcome->parts[0].bytes, "xx"));
    /* Three nodes hang at the tool itself. */
    CHECK(merged == 1);
    gantry_destroyOutcome(outcome);
    end(app);
}

/* A slow filter, and the parts that it has got. */
struct slow {
    cti_session_id_t session;
    int calls, refused;
};

static struct slow *slow_context;
static volatile int slow_began, session_ended, ended_too_early;

static int slow(void *context, const gantry_part_t *parts, int count, void **result, size_t *size) {
    struct slow *own = context;
    own->calls++;
    own->refused = cti_destroySession(own->session) == 1 && strstr(cti_error_str(), "a filter cannot end") != NULL;
    slow_began = 1;
    /* The other thread has half a second to end the session during the call. */
    for (int at = 0; at < 50 && !session_ended; at++) usleep(10000);
    ended_too_early = session_ended;
    own->calls++;
    return longest(&own->calls, parts, count, result, size);
}

static void *reduces(void *session) {
    gantry_outcome_t *outcome = gantry_reduce(*(cti_session_id_t *)session, 30, "longest", GANTRY_BEST_EFFORT);
    if (outcome) gantry_destroyOutcome(outcome);
    return NULL;
}

/* When a session has ended, its filters and their contexts belong to the tool again. */
static void waits_for_a_filter_that_runs(void) {
    const char *steps[] = {"serve", NULL};
    cti_session_id_t session;
    cti_app_id_t app = begin(&session, 3, steps);
    slow_context = calloc(1, sizeof *slow_context);
    slow_context->session = session;
    CHECK(gantry_registerFilter(session, "longest", slow, slow_context) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, reduces, &session) == 0);
    UNTIL(slow_began);
    CHECK(cti_destroySession(session) == 0);
    session_ended = 1;
    CHECK(slow_context->refused && !ended_too_early && slow_context->calls == 3);
    memset(slow_context, 0xff, sizeof *slow_context);
    free(slow_context);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(!ended_too_early);
    end(app);
}

/* A filter that calls the library, and what the calls have returned. */
struct calling {
    cti_session_id_t session;
    gantry_member_t member;
    int calls, sent, refused;
};

static int calling(void *context, const gantry_part_t *parts, int count, void **result, size_t *size) {
    struct calling *own = context;
    own->sent += gantry_send(own->session, own->member, 90, "x", 1) == 0;
    own->refused += gantry_finalize() == 1 && strstr(cti_error_str(), "a filter cannot end") != NULL;
    return longest(&own->calls, parts, count, result, size);
}

/* A filter may call what waits for the library's threads, whatever it merges. The call that ends them is refused. */
static void calls_from_a_filter(void) {
    const char *steps[] = {"more", "serve", NULL};
    cti_session_id_t session;
    cti_app_id_t app = begin(&session, 3, steps);
    gantry_memberList_t *members = gantry_getMembers(session);
    CHECK(members && members->numMembers == 3);
    struct calling own = {session, members->members[0], 0, 0, 0};
    CHECK(gantry_registerFilter(session, "more", calling, &own) == 0);
    for (uint32_t tag = 31; tag <= 32; tag++) {
        gantry_outcome_t *outcome = reduce(session, tag, "more");
        CHECK(outcome->parts[0].size == (tag == 31 ? 1 : 200002));
        gantry_destroyOutcome(outcome);
    }
    CHECK(own.calls == 2 && own.sent == 2 && own.refused == 2 && cti_appIsValid(app));
    gantry_destroyMembers(members);
    end(app);
}

static cti_app_id_t member(gantry_multijob_id_t multijob, uint32_t number, const char *ranks, const char *what) {
    const char *argv[] = {"-N", "2", "-n", ranks, getenv("MEETS"), what, NULL};
    cti_app_id_t app = gantry_launchSubjob(multijob, number, 1, argv, -1, -1, NULL, NULL, NULL);
    if (app <= 0) FAIL("no launch");
    return app;
}

/* Two applications below one multijob, which is below another multijob. */
static void puts_applications_together(void) {
    gantry_multijob_id_t multijob = gantry_createMultijob(2, 2), above = gantry_createMultijob(3, 1);
    CHECK(multijob > 0 && above > 0 && gantry_createMultijob(1, 2) == 0 && gantry_createMultijob(2, 0) == 0 && gantry_createMultijob(-1, 1) == 0);
    CHECK(gantry_joinMultijob(multijob, above, 1) == 1 && gantry_joinMultijob(multijob, above, 0) == 0);
    cti_app_id_t first = member(multijob, 0, "3", "together"), second = member(multijob, 1, "2", "together");
    const char *argv[] = {"-n", "1", "true", NULL};
    CHECK(gantry_launchSubjob(multijob, 1, 0, argv, -1, -1, NULL, NULL, NULL) == 0);
    CHECK(gantry_launchSubjob(multijob, 2, 0, argv, -1, -1, NULL, NULL, NULL) == 0);
    gantry_setDeadline(50);
    CHECK(gantry_waitMultijob(multijob) == NULL && gantry_error_kind() == GANTRY_TIMED_OUT);
    gantry_setDeadline(-1);
    cti_session_id_t session = cti_createSession(first);
    const char *steps[] = {"look", NULL};
    CHECK(cti_execToolDaemon(cti_createManifest(session), getenv("PEER"), steps, NULL) == 0);
    CHECK(cti_releaseAppBarrier(first) == 0 && cti_releaseAppBarrier(second) == 0);
    /* After the ranks have ended, daemons continue only for seconds. So this waits for their answers first. */
    gantry_outcome_t *looked = gantry_gather(session, 40, GANTRY_BEST_EFFORT);
    CHECK(looked && looked->numParts == 2 && !memcmp(looked->parts[1].bytes, "1 of sub ", 9));
    gantry_destroyOutcome(looked);
    gantry_data_t *all = gantry_waitMultijob(multijob), *below = gantry_waitRendezvous(second);
    CHECK(all && below);
    uint32_t way[] = {0, 2};
    const unsigned char *item;
    size_t size;
    CHECK(gantry_findItem(all->bytes, all->size, way, 2, &item, &size) == 0 && size == 9 && !memcmp(item, "2 of sub ", 9));
    way[0] = 1;
    CHECK(gantry_findItem(all->bytes, all->size, way, 2, &item, &size) == 1 && gantry_findItem(all->bytes, all->size, way, 1, &item, &size) == 1);
    CHECK(gantry_findItem(below->bytes, below->size, way, 1, &item, &size) == 0 && !memcmp(item, "1 of sub ", 9));
    gantry_destroyData(all);
    gantry_destroyData(below);
    CHECK(exit_code(first) == 0 && exit_code(second) == 0);
    gantry_rendezvousList_t *list = gantry_listRendezvous(first), *one = gantry_getMultijob(multijob);
    CHECK(list && list->count == 2 && !strcmp(list->items[1].name, "job/pair") && list->items[0].expected == 3);
    CHECK(one && one->count == 1 && one->items[0].level == 2 && one->items[0].standing == GANTRY_COMPLETE && one->items[0].above);
    gantry_destroyRendezvousList(list);
    gantry_destroyRendezvousList(one);
    gantry_destroyRendezvousList(one);
    CHECK(strstr(cti_error_str(), "freed before"));
    CHECK(gantry_destroyMultijob(multijob) == 0 && gantry_destroyMultijob(multijob) == 1 && gantry_destroyMultijob(above) == 0);
    cti_deregisterApp(first);
    cti_deregisterApp(second);
}

static void says_who_has_died(void) {
    const char *argv[] = {"-N", "2", "-n", "4", getenv("MEETS"), "dies", NULL};
    cti_app_id_t app = cti_launchApp(argv, -1, -1, NULL, NULL, NULL);
    CHECK(app > 0);
    FAILS(gantry_waitRendezvous(app) != NULL, "rank 1");
    CHECK(gantry_error_kind() == GANTRY_LOST);
    gantry_rendezvousList_t *list = gantry_listRendezvous(app);
    CHECK(list && list->items[0].standing == GANTRY_BROKEN && strstr(list->items[0].why, "rank 1"));
    gantry_destroyRendezvousList(list);
    CHECK(exit_code(app) == 0);
    cti_deregisterApp(app);
    CHECK(gantry_listRendezvous(app) == NULL && gantry_waitRendezvous(app) == NULL);
}

/* All of it, ended in order: for valgrind. */
static void everything(void) {
    speaks();
    carries_a_megabyte();
    names_who_is_missing();
    merges_by_its_own_filter();
    waits_for_a_filter_that_runs();
    calls_from_a_filter();
    puts_applications_together();
    says_who_has_died();
    CHECK(gantry_finalize() == 0);
}

static const struct test tests[] = {
    {"speaks", speaks},
    {"carries_a_megabyte", carries_a_megabyte},
    {"names_who_is_missing", names_who_is_missing},
    {"merges_by_its_own_filter", merges_by_its_own_filter},
    {"waits_for_a_filter_that_runs", waits_for_a_filter_that_runs},
    {"calls_from_a_filter", calls_from_a_filter},
    {"puts_applications_together", puts_applications_together},
    {"says_who_has_died", says_who_has_died},
    {"everything", everything},
    {NULL, NULL},
};

int main(int argc, char **argv) {
    return run_named(tests, argc, argv);
}
