/* Properties of every node of an app that tools rely on. Arguments: the test, the number of nodes, the launcher's
 * arguments for two ranks on each. */
#include "check.h"

static int nodes;
static char **options;

/* The launcher's arguments with those of a program behind them, and variables for it. */
static cti_app_id_t launch_with(args_t program, int out, args_t variables) {
    const char *argv[64] = {NULL};
    int count = 0;
    for (char **at = options; *at && count < 40; at++) argv[count++] = *at;
    for (const char *const *at = program; *at && count < 63; at++) argv[count++] = *at;
    cti_app_id_t app = cti_launchAppBarrier(argv, out, -1, NULL, "/", variables);
    if (app <= 0) FAIL("no launch");
    CHECK(cti_getNumAppNodes(app) == nodes && cti_getNumAppPEs(app) == 2 * nodes);
    return app;
}

static cti_app_id_t launch_on_all(args_t program, int out) { return launch_with(program, out, NULL); }

/* Every node's daemon ends with 0. */
static void all_end_well(int events) {
    for (int ended = 0; ended < nodes;) {
        char *line = read_line(events);
        if (!strstr(line, "\"daemon_exited\"")) continue;
        if (!strstr(line, "\"code\":0")) FAIL("%s", line);
        ended++;
    }
}

/* The tool's directories are those of every node: a daemon with them as arguments finds the sent files there. */
static void paths(void) {
    cti_app_id_t app = launch_on_all((args_t){"sleep", "2101", NULL}, -1);
    cti_session_id_t session = cti_createSession(app);
    cti_manifest_id_t manifest = cti_createManifest(session);
    write_file("data", "data", 0600);
    CHECK(mkdir("plugins", 0700) == 0);
    write_file("plugins/.hidden", "h", 0600);
    CHECK(cti_addManifestBinary(manifest, "sleep") == 0 && cti_addManifestLibrary(manifest, "libz.so.1") == 0);
    CHECK(cti_addManifestLibDir(manifest, "plugins") == 0 && cti_addManifestFile(manifest, "data") == 0);
    if (cti_sendManifest(manifest)) FAIL("not sent");
    char *root = cti_getSessionRootDir(session), *bin = cti_getSessionBinDir(session), *lib = cti_getSessionLibDir(session);
    char *file = cti_getSessionFileDir(session), *tmp = cti_getSessionTmpDir(session);
    CHECK(root && bin && lib && file && tmp);
    write_file("look", "#!/bin/sh\n[ \"$1\" = \"$CTI_ROOT_DIR\" ] && [ -x \"$2/sleep\" ] && [ -e \"$3/libz.so.1\" ] && [ -e \"$3/plugins/.hidden\" ] && "
                       "[ \"$(cat \"$4/data\")\" = data ] && : >\"$5/mine\"\n", 0755);
    int events = gantry_openEvents(app);
    if (cti_execToolDaemon(cti_createManifest(session), "./look", (args_t){root, bin, lib, file, tmp, NULL}, NULL)) FAIL("no daemon");
    all_end_well(events);
    /* A library that is preloaded by its path, as tools do that wrap calls. It may be a link to the node's own. */
    write_file("maps", "#!/bin/sh\n[ -e \"$1/libz.so.1\" ] && grep -q libz.so /proc/self/maps\n", 0755);
    char *preload = text("LD_PRELOAD=%s/libz.so.1", lib);
    if (cti_execToolDaemon(cti_createManifest(session), "./maps", (args_t){lib, NULL}, (args_t){preload, NULL})) FAIL("no second");
    all_end_well(events);
    close(events), free(root), free(bin), free(lib), free(file), free(tmp);
    CHECK(cti_destroySession(session) == 0 && cti_killApp(app, SIGKILL) == 0);
    exit_code(app);
    cti_deregisterApp(app);
    CHECK(gantry_finalize() == 0);
}

/* Killing an application also kills the children of its ranks, even in other sessions. The suite that runs this
   checks for remains. */
static void children(void) {
    int out[2];
    CHECK(pipe2(out, O_CLOEXEC) == 0);
    cti_app_id_t app =
        launch_on_all((args_t){"sh", "-c", "setsid sleep 2102 & sleep 2103 & echo up; exec sleep 2104", NULL}, out[1]);
    close(out[1]);
    CHECK(cti_releaseAppBarrier(app) == 0);
    for (int up = 0; up < 2 * nodes; up++) CHECK(strstr(read_line(out[0]), "up"));
    CHECK(cti_killApp(app, SIGKILL) == 0);
    double begun = now();
    exit_code(app);
    cti_deregisterApp(app);
    CHECK(now() - begun < SOON);
    close(out[0]);
    CHECK(gantry_finalize() == 0);
}

/* The tool makes ranks preload a library. It must be in every rank, also behind a script, and in no rank of another
   application. */
static void preload(void) {
    args_t look = {"sh", "-c", "grep -q libz.so /proc/self/maps && echo loaded || echo plain", NULL};
    for (int loaded = 0; loaded < 2; loaded++) {
        int out[2];
        CHECK(pipe2(out, O_CLOEXEC) == 0);
        cti_app_id_t app = launch_with(look, out[1], loaded ? (args_t){"LD_PRELOAD=libz.so.1", NULL} : NULL);
        close(out[1]);
        CHECK(cti_releaseAppBarrier(app) == 0);
        for (int rank = 0; rank < 2 * nodes; rank++) {
            char *line = read_line(out[0]);
            if (!strstr(line, loaded ? "loaded" : "plain")) FAIL("%s", line);
        }
        CHECK(exit_code(app) == 0);
        cti_deregisterApp(app);
        close(out[0]);
    }
    CHECK(gantry_finalize() == 0);
}

/* A stop takes effect before the signal that is sent next. That signal waits until the ranks continue. */
static void stops(void) {
    int out[2];
    CHECK(pipe2(out, O_CLOEXEC) == 0);
    cti_app_id_t app = launch_on_all((args_t){"sh", "-c", "trap 'exit 0' USR1; echo up; while :; do :; done", NULL}, out[1]);
    close(out[1]);
    CHECK(cti_releaseAppBarrier(app) == 0);
    for (int up = 0; up < 2 * nodes; up++) CHECK(strstr(read_line(out[0]), "up"));
    CHECK(cti_killApp(app, SIGSTOP) == 0 && cti_killApp(app, SIGUSR1) == 0 && cti_appIsValid(app));
    CHECK(cti_killApp(app, SIGSTOP) == 0 && cti_appIsValid(app));
    CHECK(cti_killApp(app, SIGCONT) == 0 && exit_code(app) == 0);
    cti_deregisterApp(app);
    close(out[0]);
    CHECK(gantry_finalize() == 0);
}

static const struct test tests[] = {{"paths", paths}, {"children", children}, {"preload", preload}, {"stops", stops}, {NULL, NULL}};

int main(int argc, char **argv) {
    if (argc > 2) nodes = atoi(argv[2]), options = argv + 3;
    return run_named(tests, argc, argv);
}
