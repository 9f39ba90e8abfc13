/* libcommontools_fe on a Slurm with two nodes. Arguments: the test, the path of the daemon view.c, for `attaches`
   the job, for others a directory that all hosts see. */
#include "check.h"

#include <pthread.h>

static const char *daemon_path, *folder;
static uint32_t job;

static void hosts_are_two(cti_app_id_t app) {
    CHECK(cti_getNumAppPEs(app) == 4 && cti_getNumAppNodes(app) == 2);
    cti_hostsList_t *placement = cti_getAppHostsPlacement(app);
    CHECK(placement && placement->numHosts == 2);
    CHECK(strcmp(placement->hosts[0].hostname, "n001") == 0 && strcmp(placement->hosts[1].hostname, "n002") == 0);
    CHECK(placement->hosts[0].numPes == 2 && placement->hosts[1].numPes == 2);
    cti_destroyHostsList(placement);
}

/* Creates a session, sends a manifest, and starts a daemon. The daemon writes its view into the session directory of
   every node. */
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

/* The standard output of one step. */
static char *said_by(args_t argv, int in, const char *input, const char *chdir, args_t env) {
    int out[2];
    CHECK(pipe2(out, O_CLOEXEC) == 0);
    cti_app_id_t app = in < 0 ? cti_launchApp(argv, out[1], -1, input, chdir, env) : cti_launchApp_fd(argv, out[1], -1, in, chdir, env);
    close(out[1]);
    if (app <= 0) FAIL("no launch");
    char *said = read_all(out[0]);
    close(out[0]);
    cti_deregisterApp(app);
    return said;
}

/* Input, output, environment, directory. */
static void surrounds(void) {
    args_t cat = {"-N1", "-n1", "cat", NULL}, print = {"-N1", "-n1", "sh", "-c", "echo $A:$B; pwd", NULL};
    write_file("input", "by file\n", 0644);
    CHECK(strcmp(said_by(cat, -1, "input", "/", NULL), "by file\n") == 0);
    int in = open("input", O_RDONLY | O_CLOEXEC);
    CHECK(in >= 0 && strcmp(said_by(cat, in, NULL, "/", NULL), "by file\n") == 0);
    close(in);
    CHECK(strcmp(said_by(print, -1, NULL, "/usr", (args_t){"A=1=2", "B=", NULL}), "1=2:\n/usr\n") == 0);
    const char *bad[] = {"", "=", "=x"};
    for (int at = 0; at < 3; at++)
        FAILS(cti_launchApp(print, -1, -1, NULL, "/", (args_t){bad[at], NULL}), "environment string");
    FAILS(cti_launchApp(print, -1, -1, NULL, "no/such/folder", NULL), "no/such/folder");
    FAILS(cti_launchApp(print, -1, -1, "no-such-file", "/", NULL), "no-such-file");
    CHECK(gantry_finalize() == 0);
}

/* A launch that waits in the queue. First it exceeds the queue's timeout. Then the queue has no timeout, and the
   wait is longer than the deadline of the launch. */
static void queues(void) {
    args_t argv = {"-N2", text("--dependency=afterany:%u", job), "sleep", "2006", NULL};
    CHECK(gantry_getQueueDeadline() == -1);
    FAILS(!gantry_setQueueDeadline(-2), "-2");
    CHECK(gantry_setQueueDeadline(1500) == 0 && gantry_getQueueDeadline() == 1500);
    FAILS(cti_launchAppBarrier(argv, -1, -1, NULL, "/", NULL), "waiting in the queue");
    CHECK(gantry_error_kind() == GANTRY_TIMED_OUT);
    CHECK(gantry_setQueueDeadline(-1) == 0 && gantry_setDeadline(8000) == 0);
    puts("again");
    fflush(stdout);
    cti_app_id_t app = cti_launchAppBarrier(argv, -1, -1, NULL, "/", NULL);
    if (app <= 0) FAIL("no launch");
    CHECK(cti_getNumAppPEs(app) == 2 && cti_releaseAppBarrier(app) == 0);
    CHECK(cti_killApp(app, SIGKILL) == 0);
    CHECK(gantry_finalize() == 0);
}

/* Signals, and the step registered once more while its first id is there. */
static void signals(void) {
    cti_slurm_ops_t *ops = NULL;
    CHECK(cti_open_ops((void **)&ops) == CTI_WLM_SLURM);
    cti_app_id_t app = cti_launchApp((args_t){"-N2", "--ntasks-per-node=2", "sleep", "2003", NULL}, -1, -1, NULL, "/", NULL);
    CHECK(app > 0);
    FAILS(!cti_killApp(app, 0), "0 is not a signal");
    CHECK(cti_killApp(app, SIGCONT) == 0 && cti_appIsValid(app));
    cti_srunProc_t *step = ops->getSrunInfo(app);
    CHECK(step);
    for (int times = 0; times < 2; times++) {
        cti_app_id_t again = ops->registerJobStep(step->jobid, step->stepid);
        CHECK(again > 0 && again != app);
        hosts_are_two(again);
        cti_deregisterApp(again);
        CHECK(!cti_appIsValid(again) && cti_appIsValid(app));
    }
    free(step);
    CHECK(cti_killApp(app, SIGKILL) == 0);
    exit_code(app);
    UNTIL(!cti_appIsValid(app));
    CHECK(gantry_finalize() == 0);
}

static void *open_and_send(void *shared) {
    cti_session_id_t session = cti_createSession(*(cti_app_id_t *)shared);
    cti_manifest_id_t manifest = cti_createManifest(session);
    CHECK(cti_addManifestFile(manifest, "data") == 0 && cti_sendManifest(manifest) == 0);
    CHECK(cti_destroySession(session) == 0);
    return NULL;
}

/* Two programs in one step. Manifests with all kinds of content one after the other, two daemons in one session, and
   eight threads. */
static void stages(void) {
    char *parts = text("%s/parts", folder);
    write_file(parts, "0-1 sleep 2004\n2-3 tail -f /dev/null\n", 0644);
    cti_app_id_t app = cti_launchAppBarrier((args_t){"-N2", "--ntasks-per-node=2", "--multi-prog", parts, NULL}, -1, -1, NULL, "/", NULL);
    if (app <= 0) FAIL("no launch");
    cti_binaryList_t *programs = cti_getAppBinaryList(app);
    CHECK(programs && strstr(programs->binaries[0], "sleep") && strstr(programs->binaries[1], "tail") && !programs->binaries[2]);
    CHECK(programs->rankMap[1] == 0 && programs->rankMap[2] == 1 && programs->rankMap[4] == -1);
    cti_destroyBinaryList(programs);
    write_file("data", "data", 0600);
    CHECK(mkdir("plugins", 0700) == 0);
    write_file("plugins/.hidden", "h", 0600);
    cti_session_id_t session = cti_createSession(app);
    cti_manifest_id_t manifest = cti_createManifest(session);
    CHECK(cti_addManifestBinary(manifest, "sleep") == 0 && cti_addManifestLibrary(manifest, "libz.so.1") == 0);
    CHECK(cti_addManifestLibDir(manifest, "plugins") == 0 && cti_addManifestFile(manifest, "data") == 0);
    if (cti_sendManifest(manifest)) FAIL("not sent");
    /* The first daemon checks the files, and waits. The second one runs at the same time. */
    write_file("look", "#!/bin/sh\ncd $CTI_ROOT_DIR && [ -x bin/sleep ] && [ -e lib/libz.so.1 ] && [ -e lib/plugins/.hidden ] && "
                       "[ \"$(cat data)\" = data ] && [ \"$1 $MINE\" = 'a b c' ] && exec sleep 2005\n", 0755);
    int events = gantry_openEvents(app);
    if (cti_execToolDaemon(cti_createManifest(session), "./look", (args_t){"a b", NULL}, (args_t){"MINE=c", NULL})) FAIL("no daemon");
    if (cti_execToolDaemon(cti_createManifest(session), daemon_path, (args_t){".", "once", NULL}, NULL)) FAIL("no second");
    for (int ended = 0; ended < 2;) {
        char *line = read_line(events);
        if (!strstr(line, "\"daemon_exited\"")) continue;
        CHECK(strstr(line, "\"code\":0"));
        ended++;
    }
    char **locks = cti_getSessionLockFiles(session);
    CHECK(locks && locks[0] && locks[1] && locks[2] && !locks[3]);
    for (int at = 0; at < 3; at++) free(locks[at]);
    free(locks);
    char *tmp = cti_getSessionTmpDir(session), *root = cti_getSessionRootDir(session);
    CHECK(strcmp(tmp, text("%s/tmp", root)) == 0);
    free(tmp), free(root), close(events);
    CHECK(cti_destroySession(session) == 0);
    pthread_t threads[8];
    for (int at = 0; at < 8; at++) CHECK(pthread_create(&threads[at], NULL, open_and_send, &app) == 0);
    for (int at = 0; at < 8; at++) CHECK(pthread_join(threads[at], NULL) == 0);
    cti_deregisterApp(app);
    CHECK(gantry_finalize() == 0);
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
    FAILS(ops->getJobInfo(0), "0 is not a pid");
    FAILS(ops->registerJobStep(job, 77), text("%u.77", job));
    FAILS(ops->submitBatchScript("/no/such/script", NULL, NULL), "/no/such/script");
    CHECK(gantry_finalize() == 0);
}

/* Fails also if squeue does not answer. */
static const char *no_jobs = "jobs=$(squeue --me --noheader) && test -z \"$jobs\"";

/* A batch script, in the directory of the fourth argument: its first step waits for us, its second does not. */
static void submits(void) {
    cti_slurm_ops_t *ops = NULL;
    CHECK(cti_open_ops((void **)&ops) == CTI_WLM_SLURM && ops);
    char *script = text("%s/script", folder), *said = text("%s/said", folder), *after = text("%s/after", folder);
    write_file(script, text("#!/bin/sh\nsrun sh -c 'echo $MINE >> %s; exec sleep 2000'\nsrun -n1 touch %s\n", said, after), 0755);
    args_t args = {"-N2", "-n4", "--ntasks-per-node=2", "--output=/dev/null", "--export=NONE", NULL};
    cti_srunProc_t *step = ops->submitBatchScript(script, args, (args_t){"MINE=1 2", NULL});
    if (!step) FAIL("not submitted");
    CHECK(step->jobid > 0 && step->stepid == 0);
    cti_app_id_t app = ops->registerJobStep(step->jobid, step->stepid);
    if (app <= 0) FAIL("not attached");
    char *line = read_line(gantry_openEvents(app)), *state = line;
    for (int rank = 0; rank < 4; rank++)
        if (!(state = strstr(state + 1, "\"state\":\"held\""))) FAIL("not held: %s", line);
    hosts_are_two(app);
    serve(app);
    CHECK(!exists(said));
    CHECK(cti_releaseAppBarrier(app) == 0);
    FAILS(!cti_releaseAppBarrier(app), "is not held");
    UNTIL(exists(said) && strcmp(read_path(said), "1 2\n1 2\n1 2\n1 2\n") == 0);
    CHECK(!exists(after) && cti_killApp(app, SIGTERM) == 0);
    UNTIL(exists(after));
    cti_deregisterApp(app);
    free(step);
    /* A held job without a tool must not stay. scontrol stops answering once the ranks of an array's task are found. */
    setenv("PATH", text("%s:%s", folder, getenv("PATH")), 1);
    write_file(text("%s/scontrol", folder),
               "#!/bin/sh\ncase \"$*\" in *'show job '*_3) exit ;; esac\nPATH=${PATH#*:}\nexec scontrol \"$@\"\n", 0755);
    args_t array = {"-N2", "-n4", "--ntasks-per-node=2", "--output=/dev/null", "--export=NONE", "--array=3", NULL};
    FAILS(ops->submitBatchScript(script, array, NULL), "_3; scontrol reports: nothing");
    UNTIL(system(no_jobs) == 0);
    write_file(text("%s/scontrol", folder), "#!/bin/sh\n", 0755);
    FAILS(ops->submitBatchScript(script, args, NULL), "scontrol reports: nothing");
    UNTIL(system(no_jobs) == 0);
    CHECK(gantry_finalize() == 0);
}

/* Wrappers of srun, and wrappers of ranks. */
static void wraps(void) {
    write_file(text("%s/wrap", folder), text("#!/bin/sh\necho \"$1\" > %s/wrapped\nshift\n\"$@\"\n", folder), 0755);
    write_file(text("%s/box", folder), "#!/bin/sh\n\"$@\" &\nwait\n", 0755);
    setenv("CTI_LAUNCHER_WRAPPER", text("%s/wrap 'a b'", folder), 1);
    setenv("CTI_BACKEND_WRAPPER", "box", 1);
    cti_app_id_t app =
        cti_launchAppBarrier((args_t){"-N2", "--ntasks-per-node=2", text("%s/box", folder), "sleep", "2001", NULL}, -1, -1, NULL, "/", NULL);
    if (app <= 0) FAIL("no launch");
    CHECK(strcmp(read_path(text("%s/wrapped", folder)), "a b\n") == 0);
    hosts_are_two(app);
    cti_slurm_ops_t *ops = NULL;
    CHECK(cti_open_ops((void **)&ops) == CTI_WLM_SLURM && cti_releaseAppBarrier(app) == 0);
    cti_srunProc_t *step = ops->getSrunInfo(app);
    CHECK(step);
    cti_app_id_t again = ops->registerJobStep(step->jobid, step->stepid);
    if (again <= 0) FAIL("not attached");
    free(step);
    for (int at = 0; at < 2; at++) {
        cti_binaryList_t *programs = cti_getAppBinaryList(at ? again : app);
        CHECK(programs && strstr(programs->binaries[0], "sleep") && !programs->binaries[1]);
        cti_destroyBinaryList(programs);
    }
    cti_deregisterApp(again);
    CHECK(cti_killApp(app, SIGTERM) == 0);
    exit_code(app);
    cti_deregisterApp(app);
    CHECK(gantry_finalize() == 0);
}

static const struct test tests[] = {{"launches", launches}, {"attaches", attaches}, {"surrounds", surrounds}, {"signals", signals}, {"queues", queues}, {"stages", stages}, {"submits", submits}, {"wraps", wraps}, {NULL, NULL}};

int main(int argc, char **argv) {
    if (argc > 2) daemon_path = argv[2];
    if (argc > 3) job = (uint32_t)atoi(argv[3]);
    if (argc > 3) folder = argv[3];
    return run_named(tests, argc, argv);
}
