/* Applications through libcommontools_fe: launch, input and output, environment, release, signals, information, end. */
#include "check.h"

static void launches(void) {
    int out[2], err[2];
    CHECK(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
    cti_app_id_t app =
        cti_launchApp((args_t){"-n", "2", "sh", "-c", "echo out; echo err >&2", NULL}, out[1], err[1], NULL, NULL, NULL);
    CHECK(app == 1);
    close(out[1]);
    close(err[1]);
    CHECK(strcmp(read_all(out[0]), "out\nout\n") == 0);
    CHECK(strcmp(read_all(err[0]), "err\nerr\n") == 0);
    CHECK(exit_code(app) == 0);
    UNTIL(!cti_appIsValid(app));
    FAILS(!cti_releaseAppBarrier(app), "there is no application 1");
    /* Launches that fail; and an id is not used again. */
    FAILS(cti_launchApp((args_t){"-n", "2", "/no/such/program", NULL}, -1, -1, NULL, NULL, NULL), "/no/such/program");
    FAILS(cti_launchApp((args_t){"-n", "x", "true", NULL}, -1, -1, NULL, NULL, NULL), "'-n x'");
    FAILS(cti_launchApp((args_t){NULL}, -1, -1, NULL, NULL, NULL), "no program");
    FAILS(cti_launchApp(NULL, -1, -1, NULL, NULL, NULL), "NULL");
    FAILS(cti_launchApp((args_t){"true", NULL}, 12345, -1, NULL, NULL, NULL), "12345");
    CHECK(launch((args_t){"true", NULL}) > app);
}

static void holds(void) {
    int out[2];
    CHECK(pipe2(out, O_CLOEXEC | O_NONBLOCK) == 0);
    cti_app_id_t app = cti_launchAppBarrier((args_t){"-n", "3", "echo", "x", NULL}, out[1], -1, NULL, NULL, NULL);
    CHECK(app > 0 && cti_appIsValid(app));
    int events = gantry_openEvents(app);
    CHECK(events >= 0);
    char *line = read_line(events), *state = line;
    CHECK(strstr(line, "\"event\":\"held\""));
    for (int rank = 0; rank < 3; rank++) CHECK(state = strstr(state + 1, "\"state\":\"held\""));
    char byte;
    CHECK(read(out[0], &byte, 1) == -1 && errno == EAGAIN);
    CHECK(cti_releaseAppBarrier(app) == 0);
    CHECK(strstr(read_line(events), "\"event\":\"released\""));
    close(out[1]);
    CHECK(strcmp(read_all(out[0]), "x\nx\nx\n") == 0);
    CHECK(exit_code(app) == 0);
    /* The last line is the end. No line follows it. */
    char *rest = read_all(events);
    CHECK(strstr(rest, "\"event\":\"exited\""));
    close(events);
}

static void reads_files_and_descriptors(void) {
    write_file("input", "one\ntwo\n", 0644);
    CHECK(strcmp(output_of((args_t){"-n", "2", "cat", NULL}, "input", NULL, NULL), "one\ntwo\n") == 0);
    CHECK(strcmp(output_of((args_t){"cat", NULL}, NULL, NULL, NULL), "") == 0);
    FAILS(cti_launchApp((args_t){"cat", NULL}, -1, -1, "no-such-file", NULL, NULL), "no-such-file");
    int in[2], out[2];
    for (int held = 0; held < 2; held++) {
        CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
        cti_app_id_t app = (held ? cti_launchAppBarrier_fd : cti_launchApp_fd)((args_t){"cat", NULL}, out[1], -1, in[0],
                                                                               NULL, NULL);
        CHECK(app > 0);
        CHECK(!held || cti_releaseAppBarrier(app) == 0);
        close(in[0]);
        close(out[1]);
        CHECK(write(in[1], "by pipe", 7) == 7);
        close(in[1]);
        CHECK(strcmp(read_all(out[0]), "by pipe") == 0);
        CHECK(exit_code(app) == 0);
    }
    /* Output that is not redirected goes to this process's own descriptors. */
    CHECK(exit_code(launch((args_t){"echo", "inherited", NULL})) == 0);
    /* And files. */
    int file = open("redirected", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    cti_app_id_t app = cti_launchApp((args_t){"echo", "kept", NULL}, file, file, NULL, NULL, NULL);
    cti_deregisterApp((exit_code(app), app));
    CHECK(strcmp(read_path("redirected"), "kept\n") == 0);
}

static void sets_environment_and_directory(void) {
    const char *print[] = {"sh", "-c", "echo $A:$B:$HERE; pwd", NULL};
    setenv("HERE", "mine", 1);
    CHECK(mkdir("below", 0700) == 0);
    char *said = output_of(print, NULL, "below", (args_t){"A=1=2", "B=", NULL});
    CHECK(strcmp(said, text("1=2::mine\n%s\n", here("below"))) == 0);
    const char *bad[] = {"", "=", "=x", "NOTHING"};
    for (int at = 0; at < 4; at++)
        FAILS(cti_launchApp(print, -1, -1, NULL, NULL, (args_t){"A=1", bad[at], NULL}), "environment string");
    FAILS(cti_launchApp(print, -1, -1, NULL, "no/such/folder", NULL), "no/such/folder");
}

static void releases_once(void) {
    cti_app_id_t app = launch_held((args_t){"sleep", "100", NULL});
    CHECK(cti_releaseAppBarrier(app) == 0);
    FAILS(!cti_releaseAppBarrier(app), "is not held");
    cti_app_id_t running = launch((args_t){"sleep", "100", NULL});
    FAILS(!cti_releaseAppBarrier(running), "is not held");
    cti_deregisterApp(app);
    cti_deregisterApp(running);
    CHECK(!cti_appIsValid(app) && !cti_appIsValid(running));
}

static void sends_signals(void) {
    const int ends[] = {SIGTERM, SIGKILL, SIGINT};
    for (int at = 0; at < 3; at++) {
        cti_app_id_t app = launch((args_t){"-n", "2", "sleep", "100", NULL});
        CHECK(cti_killApp(app, ends[at]) == 0);
        CHECK(exit_code(app) == 128 + ends[at]);
        CHECK(!cti_appIsValid(app));
    }
    cti_app_id_t app = launch((args_t){"sleep", "100", NULL});
    FAILS(!cti_killApp(app, 0), "0 is not a signal");
    FAILS(!cti_killApp(app, 1000), "1000 is not a signal");
    FAILS(!cti_killApp(app, -9), "-9 is not a signal");
    /* A stopped process keeps a signal for later. */
    int events = gantry_openEvents(app);
    char *pid = strstr(read_line(events), "\"pid\":");
    CHECK(pid && cti_killApp(app, SIGSTOP) == 0);
    /* If two signals are pending, the kernel delivers the one with the lower number first. */
    UNTIL(strstr(read_path(text("/proc/%d/stat", atoi(pid + 6))), "(sleep) T"));
    CHECK(cti_killApp(app, SIGINT) == 0 && close(events) == 0);
    gantry_setDeadline(200);
    FAILS(!gantry_waitApp(app, NULL), "no answer within");
    CHECK(gantry_error_kind() == GANTRY_TIMED_OUT);
    gantry_setDeadline(-1);
    CHECK(cti_appIsValid(app) && cti_killApp(app, SIGCONT) == 0);
    CHECK(exit_code(app) == 128 + SIGINT);
    /* A held application must not run. */
    cti_app_id_t held = launch_held((args_t){"sleep", "100", NULL});
    FAILS(!cti_killApp(held, SIGTERM), "is held");
    CHECK(cti_killApp(held, SIGKILL) == 0 && exit_code(held) == 128 + SIGKILL);
}

static void tells_of_ranks(void) {
    cti_app_id_t app = launch_held((args_t){"-N", "3", "-n", "7", "sleep", "100", NULL});
    CHECK(cti_getNumAppPEs(app) == 7 && cti_getNumAppNodes(app) == 3);
    char **hosts = cti_getAppHostsList(app);
    cti_hostsList_t *placement = cti_getAppHostsPlacement(app);
    CHECK(hosts && placement && placement->numHosts == 3);
    int ranks = 0;
    for (int at = 0; at < 3; at++) {
        CHECK(strcmp(hosts[at], placement->hosts[at].hostname) == 0);
        ranks += placement->hosts[at].numPes;
        free(hosts[at]);
    }
    CHECK(hosts[3] == NULL && ranks == 7 && placement->hosts[0].numPes == 3);
    free(hosts);
    cti_destroyHostsList(placement);
    cti_destroyHostsList(placement);
    CHECK(strstr(cti_error_str(), "cti_destroyHostsList: nothing was freed"));
    cti_binaryList_t *programs = cti_getAppBinaryList(app);
    CHECK(programs && strstr(programs->binaries[0], "sleep") && programs->binaries[1] == NULL);
    for (int rank = 0; rank < 7; rank++) CHECK(programs->rankMap[rank] == 0);
    CHECK(programs->rankMap[7] == -1);
    cti_destroyBinaryList(programs);
    cti_destroyBinaryList(programs);
    CHECK(strstr(cti_error_str(), "cti_destroyBinaryList: nothing was freed"));
    cti_destroyHostsList(NULL);
    cti_destroyBinaryList(NULL);
    FAILS(cti_getLauncherHostName(app), "does not tell");
    char *name = gantry_getAppName(app);
    CHECK(name && strlen(name) == 8);
    free(name);
    cti_deregisterApp(app);
}

/* Two programs in one application. CTI_LAUNCHER_NAME names the launcher. */
static void tells_of_two_programs(void) {
    cti_app_id_t app = launch_held((args_t){"-n", "1", "sleep", "100", ":", "-n", "2", "tail", "-f", "/dev/null", NULL});
    cti_binaryList_t *programs = cti_getAppBinaryList(app);
    CHECK(programs && programs->binaries[0] && programs->binaries[1] && !programs->binaries[2]);
    CHECK(strstr(programs->binaries[0], "sleep") && strstr(programs->binaries[1], "tail"));
    CHECK(programs->rankMap[0] == 0 && programs->rankMap[1] == 1 && programs->rankMap[2] == 1);
    CHECK(programs->rankMap[3] == -1);
    cti_destroyBinaryList(programs);
    CHECK(cti_getNumAppPEs(app) == 3);
    cti_deregisterApp(app);
}

/* Checks that all ranks are reported to run one program. */
static void runs(cti_app_id_t app, int ranks, const char *name) {
    cti_binaryList_t *programs = cti_getAppBinaryList(app);
    CHECK(programs && programs->binaries[0] && !programs->binaries[1] && cti_getNumAppPEs(app) == ranks);
    if (!strstr(programs->binaries[0], name)) FAIL("%s and not %s", programs->binaries[0], name);
    cti_destroyBinaryList(programs);
}

/* Only with a launcher whose ranks block no signal. The launcher's own wrapper has its command line. A program
   around a rank is not a rank. */
static void wraps(void) {
    char *masks = output_of((args_t){"-n", "1", "grep", "SigBlk", "/proc/self/status", NULL}, NULL, NULL, NULL);
    if (!strstr(masks, "SigBlk:\t0000000000000000\n")) FAIL("%s", masks);
    write_file("wrap", "#!/bin/sh\necho \"$1\" > wrapped\nshift\n\"$@\"\n", 0700);
    setenv("CTI_LAUNCHER_WRAPPER", text("%s 'a \"b\"'", here("wrap")), 1);
    cti_app_id_t app = launch_held((args_t){"-n", "2", "sleep", "100", NULL});
    CHECK(strcmp(read_path("wrapped"), "a \"b\"\n") == 0);
    runs(app, 2, "sleep");
    CHECK(cti_releaseAppBarrier(app) == 0 && cti_killApp(app, SIGTERM) == 0);
    exit_code(app);
    cti_deregisterApp(app);
    setenv("CTI_LAUNCHER_WRAPPER", "/no/such/wrapper", 1);
    FAILS(cti_launchApp((args_t){"-n", "2", "sleep", "100", NULL}, -1, -1, NULL, NULL, NULL), "/no/such/wrapper");
    unsetenv("CTI_LAUNCHER_WRAPPER");
    /* Ranks within another program: the child is held, released, and found. */
    write_file("box", "#!/bin/sh\n\"$@\" &\nwait\n", 0700);
    setenv("CTI_BACKEND_WRAPPER", "box", 1);
    for (int held = 1; held >= 0; held--) {
        args_t boxed = {"-n", "2", "./box", "sleep", "101", NULL}, plain = {"-n", "2", "sleep", "101", NULL};
        for (int inside = 0; inside < 2; inside++) {
            app = held ? launch_held(inside ? boxed : plain) : launch(inside ? boxed : plain);
            runs(app, 2, "sleep");
            if (held) {
                CHECK(strstr(read_line(gantry_openEvents(app)), "\"state\":\"held\""));
                CHECK(cti_releaseAppBarrier(app) == 0);
            }
            CHECK(cti_killApp(app, SIGTERM) == 0);
            exit_code(app);
            cti_deregisterApp(app);
        }
    }
    /* And where they run already. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execl("./box", "./box", "sleep", "102", (char *)NULL);
        _exit(127);
    }
    UNTIL(strstr(read_path(text("/proc/%d/task/%d/children", child, child)), " "));
    pid_t rank = atoi(read_path(text("/proc/%d/task/%d/children", child, child)));
    UNTIL(strcmp(read_path(text("/proc/%d/comm", rank)), "sleep\n") == 0);
    app = gantry_attach(text("localhost:%d", child));
    if (app <= 0) FAIL("not attached");
    CHECK(strstr(read_line(gantry_openEvents(app)), text("\"pid\":%d", rank)));
    runs(app, 1, "sleep");
    CHECK(cti_killApp(app, SIGTERM) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    cti_deregisterApp(app);
}

/* If a process is stopped at its first instruction when this attaches to it, it counts as held, and stays so. A
   process that is stopped elsewhere does not. */
static void attaches_to_what_is_held(void) {
    cti_app_id_t app = launch_held((args_t){"sleep", "103", NULL});
    int pid = atoi(strstr(read_line(gantry_openEvents(app)), "\"pid\":") + 6);
    cti_app_id_t other = gantry_attach(text("%d", pid));
    CHECK(other > 0 && strstr(read_line(gantry_openEvents(other)), "\"state\":\"held\""));
    cti_deregisterApp(other);
    CHECK(strstr(read_path(text("/proc/%d/stat", pid)), "(sleep) T"));
    other = gantry_attach(text("%d", pid));
    CHECK(cti_releaseAppBarrier(other) == 0);
    FAILS(!cti_releaseAppBarrier(other), "is not held");
    /* Until the program itself sleeps: before, it may still be at its first instruction. */
    UNTIL(strstr(read_path(text("/proc/%d/stat", pid)), "(sleep) S"));
    cti_deregisterApp(other);
    CHECK(kill(pid, SIGSTOP) == 0);
    UNTIL(strstr(read_path(text("/proc/%d/stat", pid)), "(sleep) T"));
    other = gantry_attach(text("%d", pid));
    CHECK(other > 0);
    FAILS(!cti_releaseAppBarrier(other), "is not held");
    cti_deregisterApp(other);
    cti_deregisterApp(app);
}

static void attaches_twice(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execlp("sleep", "sleep", "100", (char *)NULL);
        _exit(127);
    }
    UNTIL(strcmp(read_path(text("/proc/%d/comm", child)), "sleep\n") == 0);
    cti_localhost_ops_t *ops = NULL;
    CHECK(cti_open_ops((void **)&ops) == CTI_WLM_LOCALHOST && ops);
    FAILS(cti_open_ops(NULL), "NULL");
    cti_app_id_t by_name = ops->registerJob(text("%d.sleep", getpid()));
    if (by_name <= 0) FAIL("no registerJob");
    cti_app_id_t by_pid = gantry_attach(text("%d", child));
    if (by_pid <= 0) FAIL("no gantry_attach");
    CHECK(by_name != by_pid && cti_getNumAppPEs(by_name) == 1 && cti_getNumAppPEs(by_pid) == 1);
    /* Each is left as it was found, and the other does not notice. */
    cti_deregisterApp(by_name);
    CHECK(!cti_appIsValid(by_name) && cti_appIsValid(by_pid));
    CHECK(waitpid(child, NULL, WNOHANG) == 0);
    CHECK(cti_killApp(by_pid, SIGTERM) == 0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    UNTIL(!cti_appIsValid(by_pid));
    FAILS(ops->registerJob(text("%d.no-such-name", getpid())), "no-such-name");
    FAILS(ops->registerJob(NULL), "NULL");
    FAILS(ops->registerJob("\xff\xfe"), "not UTF-8");
    FAILS(gantry_attach("no-such-wlm:7"), "no-such-wlm");
}

static void deregisters(void) {
    cti_app_id_t app = launch((args_t){"-n", "2", "sleep", "100", NULL});
    cti_session_id_t session = cti_createSession(app);
    cti_manifest_id_t manifest = cti_createManifest(session);
    CHECK(cti_sessionIsValid(session) && cti_manifestIsValid(manifest));
    int events = gantry_openEvents(app);
    cti_deregisterApp(app);
    /* The call has waited until the application and its processes were gone. */
    char *rest = read_all(events);
    CHECK(strstr(rest, "\"event\":\"exited\""));
    CHECK(!cti_appIsValid(app) && !cti_sessionIsValid(session) && !cti_manifestIsValid(manifest));
    close(events);
    cti_deregisterApp(app);
    CHECK(strstr(cti_error_str(), text("there is no application %ld", (long)app)));
}

/* Every function with unknown ids: an error, and no harm. */
static void refuses_wrong_ids(void) {
    cti_app_id_t app = launch_held((args_t){"sleep", "100", NULL});
    cti_session_id_t session = cti_createSession(app);
    const int64_t wrong[] = {0, -1, INT64_MAX, INT64_MIN, session};
    for (int at = 0; at < 5; at++) {
        int64_t id = wrong[at];
        const char *words = "there is no application";
        FAILS(cti_appIsValid(id), words);
        FAILS(cti_getNumAppPEs(id), words);
        FAILS(cti_getNumAppNodes(id), words);
        FAILS(cti_getAppHostsList(id), words);
        FAILS(cti_getAppHostsPlacement(id), words);
        FAILS(cti_getAppBinaryList(id), words);
        FAILS(cti_getLauncherHostName(id), words);
        FAILS(!cti_killApp(id, SIGTERM), words);
        FAILS(!cti_releaseAppBarrier(id), words);
        FAILS(!cti_releaseApp(id), words);
        FAILS(cti_createSession(id), words);
        FAILS(gantry_openEvents(id) >= 0, words);
        FAILS(gantry_getAppName(id), words);
        FAILS(!gantry_waitApp(id, NULL), words);
        id = id == session ? app : id;
        words = "there is no session";
        FAILS(cti_sessionIsValid(id), words);
        FAILS(!cti_destroySession(id), words);
        FAILS(cti_createManifest(id), words);
        FAILS(cti_getSessionLockFiles(id), words);
        FAILS(cti_getSessionRootDir(id), words);
        FAILS(cti_getSessionBinDir(id), words);
        FAILS(cti_getSessionLibDir(id), words);
        FAILS(cti_getSessionFileDir(id), words);
        FAILS(cti_getSessionTmpDir(id), words);
        FAILS(gantry_getSessionDirOn(id, "x"), words);
        words = "there is no manifest";
        FAILS(cti_manifestIsValid(id), words);
        FAILS(!cti_addManifestBinary(id, "sh"), words);
        FAILS(!cti_addManifestLibrary(id, "libc.so.6"), words);
        FAILS(!cti_addManifestLibDir(id, "."), words);
        FAILS(!cti_addManifestFile(id, "x"), words);
        FAILS(!cti_sendManifest(id), words);
        FAILS(!cti_execToolDaemon(id, "sh", NULL, NULL), words);
    }
    FAILS(!gantry_waitApp(-1, NULL), "there is no application -1");
    CHECK(gantry_error_kind() == GANTRY_GONE);
    cti_deregisterApp(app);
}

/* An application continues without this process. It ends by itself when the file exists. */
static void lets_go(void) {
    cti_app_id_t app = launch((args_t){"sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; touch gone", NULL});
    CHECK(cti_releaseApp(app) == 0);
    FAILS(!cti_releaseApp(app), "there is no application");
    CHECK(!cti_appIsValid(app) && gantry_finalize() == 0);
    CHECK(!exists("gone"));
    write_file("go", "", 0600);
    UNTIL(exists("gone"));
}

/* The suite that runs this test kills it. */
static void is_killed(void) {
    cti_app_id_t app = launch((args_t){"-n", "2", "sleep", "100", NULL});
    cti_session_id_t session = cti_createSession(app);
    CHECK(cti_execToolDaemon(cti_createManifest(session), "sleep", (args_t){"200", NULL}, NULL) == 0);
    printf("ready\n");
    fflush(stdout);
    for (;;) pause();
}

/* An exit without any call to the library, with an application, a session and a daemon. It must not hang, and must
   leave no remains. */
static void exits(void) {
    cti_app_id_t app = launch_held((args_t){"-n", "2", "sleep", "100", NULL});
    cti_session_id_t session = cti_createSession(app);
    CHECK(cti_execToolDaemon(cti_createManifest(session), "sleep", (args_t){"200", NULL}, NULL) == 0);
}

static const struct test tests[] = {
    {"launches", launches},
    {"holds", holds},
    {"reads_files_and_descriptors", reads_files_and_descriptors},
    {"sets_environment_and_directory", sets_environment_and_directory},
    {"releases_once", releases_once},
    {"sends_signals", sends_signals},
    {"tells_of_ranks", tells_of_ranks},
    {"tells_of_two_programs", tells_of_two_programs},
    {"wraps", wraps},
    {"attaches_to_what_is_held", attaches_to_what_is_held},
    {"attaches_twice", attaches_twice},
    {"deregisters", deregisters},
    {"refuses_wrong_ids", refuses_wrong_ids},
    {"lets_go", lets_go},
    {"is_killed", is_killed},
    {"exits", exits},
    {NULL, NULL},
};

int main(int argc, char **argv) {
    return run_named(tests, argc, argv);
}
