/* Co-allocated jobs, through the functions of gantry.h. RANK is a program that calls the barrier and checks the
   rest. */
#include "check.h"

static char *part(const char *label, const char *program, const char *more) {
    return text("(&(resourceManagerContact=localhost)(label=%s)(executable=\"%s\")%s)", label, program, more);
}

/* The state of the subjob with that label. -1: there is no such subjob. */
static int state_of(gantry_job_id_t job, const char *label) {
    int count = -1, *states = NULL, found = -1;
    char **labels = NULL;
    CHECK(gantry_getSubjobStates(job, &count, &states, &labels) == 0);
    for (int i = 0; i < count; i++) {
        if (strcmp(labels[i], label) == 0) found = states[i];
        free(labels[i]);
    }
    free(labels);
    free(states);
    return found;
}

static int count_of(gantry_job_id_t job) {
    int count = -1;
    CHECK(gantry_getSubjobStates(job, &count, NULL, NULL) == 0);
    return count;
}

static gantry_job_id_t request(const char *spec) {
    gantry_job_id_t job = gantry_requestJob(spec, NULL, NULL);
    if (job <= 0) FAIL("no job");
    return job;
}

/* Programs that are linked with the runtime library wait where they call the barrier. */
static void releases(void) {
    const char *rank = getenv("RANK");
    char *ran = here("ran");
    char *more = text("(count=2)(arguments=\"%s\")", ran);
    char *spec = text("+%s%s", part("a", rank, more), part("b", rank, "(count=3)"));
    int count = -1, *results = NULL, code = -1;
    gantry_job_id_t job = gantry_requestJob(spec, &count, &results);
    if (job <= 0) FAIL("no job");
    CHECK(count == 2 && results[0] == GANTRY_NO_ERROR && results[1] == GANTRY_NO_ERROR);
    free(results);
    UNTIL(state_of(job, "a") == GANTRY_SUBJOB_CHECKED_IN && state_of(job, "b") == GANTRY_SUBJOB_CHECKED_IN);
    CHECK(exists(text("%s.0", ran)) && exists(text("%s.1", ran)));
    int events = gantry_openJobEvents(job);
    CHECK(events >= 0);
    CHECK(gantry_releaseJob(job, 1) == 0);
    FAILS(gantry_releaseJob(job, 1) == 0, "the job is");
    FAILS(gantry_deleteSubjob(job, "a") == 0, "the job is");
    CHECK(gantry_waitJob(job, &code) == 0);
    if (code != 0) FAIL("the ranks are not content: %d", code);
    CHECK(state_of(job, "a") == GANTRY_SUBJOB_DONE && state_of(job, "b") == GANTRY_SUBJOB_DONE);
    char *said = read_all(events);
    CHECK(strstr(said, "\"state\":\"checked_in\"") && strstr(said, "\"state\":\"released\"") && strstr(said, "\"state\":\"over\""));
    close(events);
    CHECK(gantry_closeJob(job) == 0);
    FAILS(gantry_waitJob(job, NULL) == 0, "no job");
}

/* Every subrequest has a result. If one of them cannot be satisfied, none is started. */
static void refuses(void) {
    char *ran = here("ran");
    char *free_one = part("a", "/usr/bin/touch", text("(subjobStartType=no-barrier)(arguments=\"%s\")", ran));
    char *spec = text("+%s(&(resourceManagerContact=moon)(executable=x))%s", free_one, part("c", "/bin/true", "(project=x)"));
    int count = -1, *results = NULL;
    FAILS(gantry_requestJob(spec, &count, &results) != 0, "moon");
    CHECK(gantry_error_kind() == GANTRY_INVALID);
    CHECK(count == 3 && results[0] == GANTRY_NO_ERROR && results[1] != GANTRY_NO_ERROR && results[2] != GANTRY_NO_ERROR);
    free(results);
    CHECK(!exists(ran));
    FAILS(gantry_requestJob("+(&(", &count, &results) != 0, "line 1");
    CHECK(count == 0 && results == NULL);
    FAILS(gantry_requestJob(NULL, NULL, NULL) != 0, "NULL");
    FAILS(gantry_cancelJob(77) == 0, "no job");
    FAILS(gantry_openJobEvents(77) >= 0, "no job");
}

/* Adds and removes subjobs before the release. */
static void changes(void) {
    char *kept = here("kept"), *out = here("out"), *added = here("added");
    gantry_job_id_t job = request(text("+%s%s", part("kept", "/usr/bin/touch", text("(arguments=\"%s\")", kept)),
        part("out", "/usr/bin/touch", text("(arguments=\"%s\")", out))));
    UNTIL(state_of(job, "out") == GANTRY_SUBJOB_CHECKED_IN);
    FAILS(gantry_deleteSubjob(job, "none-such") == 0, "no subjob 'none-such'");
    CHECK(gantry_deleteSubjob(job, "out") == 0);
    CHECK(count_of(job) == 1 && state_of(job, "out") == -1);
    FAILS(gantry_addSubjob(job, "&(executable=x)") == 0, "resourceManagerContact");
    char *more = part("added", "/usr/bin/touch", text("(arguments=\"%s\")", added));
    more[strlen(more) - 1] = 0;
    CHECK(gantry_addSubjob(job, more + 1) == 0);
    CHECK(gantry_releaseJob(job, 1) == 0);
    int code = -1;
    CHECK(gantry_waitJob(job, &code) == 0 && code == 0);
    CHECK(exists(kept) && exists(added) && !exists(out));
    CHECK(gantry_closeJob(job) == 0);
}

/* A release without waiting kills a job with missing processes; it releases a complete one. */
static void releases_at_once(void) {
    gantry_job_id_t job = request(text("+%s%s", part("a", "/bin/true", ""), part("late", "/bin/sleep", "(barrierPoint=runtime)(arguments=1000)")));
    UNTIL(state_of(job, "a") == GANTRY_SUBJOB_CHECKED_IN && state_of(job, "late") == GANTRY_SUBJOB_ACTIVE);
    FAILS(gantry_releaseJob(job, 0) == 0, "not all subjobs had checked in");
    CHECK(gantry_waitJob(job, NULL) == 0);
    CHECK(state_of(job, "a") == GANTRY_SUBJOB_FAILED);
    CHECK(gantry_closeJob(job) == 0);
    job = request(text("+%s", part("a", "/bin/true", "")));
    UNTIL(state_of(job, "a") == GANTRY_SUBJOB_CHECKED_IN);
    CHECK(gantry_releaseJob(job, 0) == 0);
    CHECK(gantry_waitJob(job, NULL) == 0);
    CHECK(gantry_closeJob(job) == 0);
}

/* Several jobs at the same time, one of them cancelled. The others end with the library. */
static void several(void) {
    gantry_job_id_t jobs[3];
    for (int i = 0; i < 3; i++) jobs[i] = request(text("+%s", part("a", "/bin/sleep", "(arguments=1000)")));
    for (int i = 0; i < 3; i++) UNTIL(state_of(jobs[i], "a") == GANTRY_SUBJOB_CHECKED_IN);
    CHECK(gantry_cancelJob(jobs[0]) == 0);
    int code = -1;
    CHECK(gantry_waitJob(jobs[0], &code) == 0 && code != 0);
    CHECK(gantry_cancelJob(jobs[0]) == 0);
    CHECK(gantry_releaseJob(jobs[1], 1) == 0);
    CHECK(gantry_setDeadline(50) == 0);
    FAILS(gantry_waitJob(jobs[1], NULL) == 0, "waiting for the job's end");
    CHECK(gantry_setDeadline(-1) == 0);
    CHECK(gantry_finalize() == 0);
}

/* The tool ends right after the release. It must leave no remains; the test's world checks that. */
static void leaves_after_release(void) {
    gantry_job_id_t job = request(text("+%s", part("a", "/bin/sleep", "(arguments=1000)(count=2)")));
    CHECK(gantry_releaseJob(job, 1) == 0);
    printf("ok leaves_after_release\n");
    fflush(stdout);
    _exit(0);
}

static void leaves_after_cancel(void) {
    gantry_job_id_t job = request(text("+%s", part("a", "/bin/sleep", "(arguments=1000)(count=2)")));
    UNTIL(state_of(job, "a") == GANTRY_SUBJOB_CHECKED_IN);
    CHECK(gantry_cancelJob(job) == 0);
    printf("ok leaves_after_cancel\n");
    fflush(stdout);
    _exit(0);
}

/* A released job continues after its tool has detached from it. A job that was not released cannot be detached. */
static void lets_go_on(void) {
    char *gate = here("gate"), *on = here("on");
    CHECK(mkfifo(gate, 0600) == 0);
    gantry_job_id_t job = request(text("+%s", part("a", "/bin/sh", text("(arguments=-c \"read x < '%s'; : > '%s'\")", gate, on))));
    UNTIL(state_of(job, "a") == GANTRY_SUBJOB_CHECKED_IN);
    FAILS(gantry_detachJob(job) == 0, "cannot be left alone");
    CHECK(state_of(job, "a") == GANTRY_SUBJOB_CHECKED_IN);
    CHECK(gantry_releaseJob(job, 1) == 0);
    CHECK(gantry_detachJob(job) == 0);
    FAILS(gantry_detachJob(job) == 0, "no job");
    FAILS(gantry_waitJob(job, NULL) == 0, "no job");
    CHECK(gantry_finalize() == 0);
    CHECK(!exists(on));
    /* Both sides must open it. If the program has ended, this call blocks until the test's timeout. */
    FILE *go = fopen(gate, "w");
    CHECK(go != NULL && fputs("go\n", go) >= 0 && fclose(go) == 0);
    UNTIL(exists(on));
}

static const struct test tests[] = {
    {"releases", releases},
    {"refuses", refuses},
    {"changes", changes},
    {"releases_at_once", releases_at_once},
    {"several", several},
    {"leaves_after_release", leaves_after_release},
    {"leaves_after_cancel", leaves_after_cancel},
    {"lets_go_on", lets_go_on},
    {NULL, NULL},
};

int main(int argc, char **argv) {
    return run_named(tests, argc, argv);
}
