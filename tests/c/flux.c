/* libcommontools_fe and its table of Flux, on two nodes. Arguments: the test, the path of the daemon view.c, for `attaches` a job of four ranks and the
 * pid of a `flux run` that is attached to it. */
#include "check.h"

static const char *daemon_path, *job, *launcher;

static cti_flux_ops_t *open_table(void) {
    cti_flux_ops_t *ops = NULL;
    CHECK(cti_current_wlm() == CTI_WLM_FLUX);
    CHECK(cti_open_ops((void **)&ops) == CTI_WLM_FLUX && ops);
    return ops;
}

static void hosts_are_two(cti_app_id_t app) {
    cti_hostsList_t *placement = cti_getAppHostsPlacement(app);
    CHECK(placement && placement->numHosts == 2);
    CHECK(strcmp(placement->hosts[0].hostname, "n001") == 0 && strcmp(placement->hosts[1].hostname, "n002") == 0);
    CHECK(placement->hosts[0].numPes == 2 && placement->hosts[1].numPes == 2);
    cti_destroyHostsList(placement);
}

/* A job of Flux has one program. */
static void ranks_run(cti_app_id_t app, const char *program) {
    cti_binaryList_t *programs = cti_getAppBinaryList(app);
    CHECK(programs && programs->binaries[0] && !programs->binaries[1]);
    CHECK(strstr(programs->binaries[0], program));
    for (int rank = 0; rank < 4; rank++) CHECK(programs->rankMap[rank] == 0);
    cti_destroyBinaryList(programs);
}

/* A session, and a daemon of each node that leaves its view of the ranks. */
static void serve(cti_app_id_t app) {
    cti_session_id_t session = cti_createSession(app);
    if (session <= 0) FAIL("no session");
    int events = gantry_openEvents(app);
    if (cti_execToolDaemon(cti_createManifest(session), daemon_path, (args_t){".", "once", NULL}, NULL)) FAIL("no daemon");
    for (int ended = 0; ended < 2;) {
        char *line = read_line(events);
        if (!strstr(line, "\"daemon_exited\"")) continue;
        if (!strstr(line, "\"code\":0")) FAIL("%s", line);
        ended++;
    }
    close(events);
    CHECK(cti_destroySession(session) == 0);
}

static void launches(void) {
    cti_flux_ops_t *ops = open_table();
    cti_app_id_t app = cti_launchAppBarrier((args_t){"-N2", "-n4", "sleep", "1000", NULL}, -1, -1, NULL, "/", NULL);
    check_attached(app, 4, 2);
    hosts_are_two(app);
    ranks_run(app, "sleep");
    serve(app);
    CHECK(cti_releaseAppBarrier(app) == 0);
    FAILS(!cti_releaseAppBarrier(app), "is not held");
    FAILS(ops->getJobid(getpid()), "attached to no job");
    FAILS(!cti_killApp(app, 0), "0 is not a signal");
    CHECK(cti_killApp(app, SIGTERM) == 0);
    exit_code(app);
    CHECK(!cti_appIsValid(app));
    cti_deregisterApp(app);
    CHECK(gantry_finalize() == 0);
}

/* Input, output, environment, directory. */
static void surrounds(void) {
    args_t cat = {"-n1", "cat", NULL}, print = {"-n1", "sh", "-c", "echo $A:$B; pwd", NULL};
    write_file("input", "by file\n", 0644);
    CHECK(strcmp(output_of(cat, "input", "/", NULL), "by file\n") == 0);
    CHECK(strcmp(output_of(print, NULL, "/usr", (args_t){"A=1=2", "B=", NULL}), "1=2:\n/usr\n") == 0);
    FAILS(cti_launchApp(print, -1, -1, NULL, "no/such/folder", NULL), "no/such/folder");
    FAILS(cti_launchApp((args_t){"-n1", "/no/such/program", NULL}, -1, -1, NULL, "/", NULL), "/no/such/program");
    FAILS(cti_launchApp((args_t){"-n99999", "true", NULL}, -1, -1, NULL, "/", NULL), "unsatisfiable request");
    CHECK(gantry_finalize() == 0);
}

/* A job of somebody else: by its id in both forms, with and without waiting for it. */
static void attaches(void) {
    cti_flux_ops_t *ops = open_table();
    char *told = ops->getJobid((pid_t)atoi(launcher));
    if (!told) FAIL("no job of the launcher");
    CHECK(told[0] == 'f');
    for (int way = 0; way < 3; way++) {
        cti_app_id_t app = way == 0 ? ops->registerJob(told) : way == 1 ? ops->registerJob(job) : ops->registerJobWait(job, 20);
        check_attached(app, 4, 2);
        hosts_are_two(app);
        ranks_run(app, "sleep");
        serve(app);
        serve_and_leave(app);
        CHECK(!cti_appIsValid(app));
    }
    free(told);
    FAILS(ops->registerJob("f234"), "f234");
    FAILS(ops->registerJob("no job"), "no job");
    FAILS(ops->registerJob(NULL), "the job");
    FAILS(ops->getJobid(0), "0 is not a pid");
    FAILS(ops->getJobid(getpid()), "attached to no job");
    CHECK(gantry_finalize() == 0);
}

static const struct test tests[] = {{"launches", launches}, {"surrounds", surrounds}, {"attaches", attaches}, {NULL, NULL}};

int main(int argc, char **argv) {
    if (argc > 2) daemon_path = argv[2];
    if (argc > 4) job = argv[3], launcher = argv[4];
    return run_named(tests, argc, argv);
}
