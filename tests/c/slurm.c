/* libcommontools_fe on a Slurm of two nodes. Arguments: the test, the path of the daemon view.c, for `attaches` the job. */
#include "check.h"

static const char *daemon_path;
static uint32_t job;

static void hosts_are_two(cti_app_id_t app) {
    CHECK(cti_getNumAppPEs(app) == 4 && cti_getNumAppNodes(app) == 2);
    cti_hostsList_t *placement = cti_getAppHostsPlacement(app);
    CHECK(placement && placement->numHosts == 2);
    CHECK(strcmp(placement->hosts[0].hostname, "n001") == 0 && strcmp(placement->hosts[1].hostname, "n002") == 0);
    CHECK(placement->hosts[0].numPes == 2 && placement->hosts[1].numPes == 2);
    cti_destroyHostsList(placement);
}

/* A session, a manifest that is sent, and a daemon that leaves its view in the directory of sessions of every node. */
static void serve(cti_app_id_t app) {
    cti_session_id_t session = cti_createSession(app);
    if (session <= 0) FAIL("no session");
    cti_manifest_id_t manifest = cti_createManifest(session);
    CHECK(cti_addManifestBinary(manifest, "sleep") == 0 && cti_addManifestFile(manifest, "/etc/passwd") == 0);
    if (cti_sendManifest(manifest)) FAIL("not sent");
    int events = gantry_openEvents(app);
    manifest = cti_createManifest(session);
    if (cti_execToolDaemon(manifest, daemon_path, (args_t){".", "once", NULL}, NULL)) FAIL("no daemon");
    /* Both end by themselves, with 0: they could write into their session. */
    for (int ended = 0; ended < 2;) {
        char *line = read_line(events);
        if (strstr(line, "\"daemon_exited\"")) {
            CHECK(strstr(line, "\"code\":0"));
            ended++;
        }
    }
    close(events);
    CHECK(cti_destroySession(session) == 0);
}

/* The lowest pid of an srun here: it forks, and its child has its name. */
static pid_t srun_pid(void) {
    for (pid_t pid = 2; pid < 1 << 16; pid++)
        if (exists(text("/proc/%d", pid)) && strcmp(read_path(text("/proc/%d/comm", pid)), "srun\n") == 0) return pid;
    return 0;
}

static void launches(void) {
    CHECK(cti_current_wlm() == CTI_WLM_SLURM);
    cti_slurm_ops_t *ops = NULL;
    CHECK(cti_open_ops((void **)&ops) == CTI_WLM_SLURM && ops);
    cti_app_id_t app = cti_launchAppBarrier((args_t){"-N2", "--ntasks-per-node=2", "sleep", "1000", NULL}, -1, -1, NULL, "/", NULL);
    if (app <= 0) FAIL("no launch");
    hosts_are_two(app);
    cti_srunProc_t *step = ops->getSrunInfo(app);
    CHECK(step && step->jobid > 0 && step->stepid == 0);
    free(step);
    serve(app);
    CHECK(cti_releaseAppBarrier(app) == 0);
    FAILS(!cti_releaseAppBarrier(app), "is not held");
    CHECK(cti_killApp(app, SIGTERM) == 0);
    exit_code(app);
    CHECK(!cti_appIsValid(app));
    cti_deregisterApp(app);
    CHECK(gantry_finalize() == 0);
}

static void attaches(void) {
    cti_slurm_ops_t *ops = NULL;
    CHECK(cti_open_ops((void **)&ops) == CTI_WLM_SLURM && ops);
    for (int waits = 0; waits < 2; waits++) {
        cti_app_id_t app = waits ? ops->registerJobStepWait(job, 0, 20) : ops->registerJobStep(job, 0);
        if (app <= 0) FAIL("not attached");
        hosts_are_two(app);
        cti_srunProc_t *step = ops->getSrunInfo(app);
        CHECK(step && step->jobid == job && step->stepid == 0);
        free(step);
        step = ops->getJobInfo(srun_pid());
        CHECK(step && step->jobid == job && step->stepid == 0);
        free(step);
        serve(app);
        cti_deregisterApp(app);
    }
    FAILS(ops->getJobInfo(getpid()), "getJobInfo");
    FAILS(ops->getJobInfo(0), "0 is no pid");
    FAILS(ops->registerJobStep(job, 77), text("%u.77", job));
    /* Wants more than there is: an error, and at once. */
    FAILS(ops->submitBatchScript("x", NULL, NULL), "is not built into gantry");
    CHECK(gantry_error_kind() == GANTRY_UNSUPPORTED && gantry_finalize() == 0);
}

static const struct test tests[] = {{"launches", launches}, {"attaches", attaches}, {NULL, NULL}};

int main(int argc, char **argv) {
    if (argc > 2) daemon_path = argv[2];
    if (argc > 3) job = (uint32_t)atoi(argv[3]);
    return run_named(tests, argc, argv);
}
