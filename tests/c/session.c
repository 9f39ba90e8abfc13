/* Sessions, manifests and tool daemons through libcommontools_fe. VIEW in the environment is the path of the daemon
   view.c. */
#include "check.h"

static cti_manifest_id_t manifest_of(cti_session_id_t session) {
    cti_manifest_id_t manifest = cti_createManifest(session);
    if (manifest <= 0) FAIL("no manifest");
    return manifest;
}

static cti_session_id_t session_of(cti_app_id_t app) {
    cti_session_id_t session = cti_createSession(app);
    if (session <= 0) FAIL("no session");
    return session;
}

/* The path of something in a session on this machine. */
static char *in(cti_session_id_t session, const char *name) {
    char *root = cti_getSessionRootDir(session);
    CHECK(root);
    char *path = text("%s/%s", root, name);
    free(root);
    return path;
}

static int same(const char *one, const char *other) {
    return strcmp(one, other) == 0;
}

static int has_line(const char *all, const char *line) {
    return strstr(text("\n%s", all), text("\n%s\n", line)) != NULL;
}

static void sessions(void) {
    cti_app_id_t app = launch_held((args_t){"-N", "2", "-n", "2", "sleep", "100", NULL});
    cti_session_id_t one = session_of(app), two = session_of(app);
    CHECK(one != two && cti_sessionIsValid(one) && cti_sessionIsValid(two));
    char *root = cti_getSessionRootDir(one), *bin = cti_getSessionBinDir(one), *lib = cti_getSessionLibDir(one);
    char *file = cti_getSessionFileDir(one), *tmp = cti_getSessionTmpDir(one);
    CHECK(same(bin, text("%s/bin", root)) && same(lib, text("%s/lib", root)) && same(tmp, text("%s/tmp", root)));
    CHECK(same(file, root) && exists(bin) && exists(lib) && exists(tmp) && !same(root, in(two, "")));
    struct stat found;
    CHECK(stat(root, &found) == 0 && (found.st_mode & 0777) == 0700);
    /* Every node has it at the same path. */
    char **hosts = cti_getAppHostsList(app);
    char *first = gantry_getSessionDirOn(one, hosts[0]), *second = gantry_getSessionDirOn(one, hosts[1]);
    CHECK(same(first, root) && same(second, root) && exists(second));
    FAILS(gantry_getSessionDirOn(one, "nowhere"), "no node 'nowhere'");
    FAILS(gantry_getSessionDirOn(one, NULL), "NULL");
    FAILS(cti_getSessionLockFiles(one), "nothing was shipped");
    CHECK(cti_destroySession(one) == 0);
    CHECK(!exists(root) && !exists(second) && !cti_sessionIsValid(one) && cti_sessionIsValid(two));
    FAILS(!cti_destroySession(one), "there is no session");
    free(root), free(bin), free(lib), free(file), free(tmp), free(first), free(second);
    free(hosts[0]), free(hosts[1]), free(hosts);
    /* The end of the application has destroyed this session. */
    CHECK(cti_killApp(app, SIGKILL) == 0 && exit_code(app) == 137);
    CHECK(!cti_sessionIsValid(two));
    cti_deregisterApp(app);
}

static void manifests(void) {
    write_file("data", "data", 0600);
    write_file("tool", "#!/bin/sh\n", 0700);
    CHECK(mkdir("plugins", 0700) == 0 && mkdir("plugins/deep", 0700) == 0);
    write_file("plugins/.hidden", "h", 0600);
    write_file("plugins/deep/er", "e", 0600);
    cti_app_id_t app = launch_held((args_t){"sleep", "100", NULL});
    cti_session_id_t session = session_of(app);
    cti_manifest_id_t manifest = manifest_of(session);
    CHECK(cti_manifestIsValid(manifest));
    CHECK(cti_addManifestBinary(manifest, "sleep") == 0 && cti_addManifestBinary(manifest, "./tool") == 0);
    CHECK(cti_addManifestLibrary(manifest, "libm.so.6") == 0);
    CHECK(cti_addManifestLibDir(manifest, "plugins") == 0);
    CHECK(cti_addManifestFile(manifest, here("data")) == 0 && cti_addManifestFile(manifest, "tar") == 0);
    /* Additions that fail, without harm. */
    FAILS(!cti_addManifestBinary(manifest, "no-such-program"), "no-such-program");
    FAILS(!cti_addManifestBinary(manifest, "data"), "data");
    FAILS(!cti_addManifestLibrary(manifest, "libno-such.so"), "libno-such.so");
    FAILS(!cti_addManifestFile(manifest, "no-such-file"), "no-such-file");
    FAILS(!cti_addManifestLibDir(manifest, "no-such-dir"), "no-such-dir");
    FAILS(!cti_addManifestLibDir(manifest, here("data")), "not a directory");
    FAILS(!cti_addManifestFile(manifest, NULL), "NULL");
    FAILS(!cti_addManifestFile(manifest, "\xff\xfe/x"), "No such file");
    CHECK(cti_sendManifest(manifest) == 0);
    CHECK(!cti_manifestIsValid(manifest));
    FAILS(!cti_sendManifest(manifest), "there is no manifest");
    FAILS(!cti_addManifestFile(manifest, "data"), "there is no manifest");
    const char *there[] = {"bin/sleep", "bin/tool", "lib/plugins/.hidden", "lib/plugins/deep/er", "data", "tar"};
    for (int at = 0; at < 6; at++)
        if (!exists(in(session, there[at]))) FAIL("%s is not there", there[at]);
    CHECK(same(read_path(in(session, "data")), "data"));
    /* A second manifest: existing files are not sent again. Another file with the same name is refused. */
    manifest = manifest_of(session);
    CHECK(cti_addManifestFile(manifest, "data") == 0);
    CHECK(mkdir("other", 0700) == 0);
    write_file("other/data", "other", 0600);
    write_file("more", "more", 0600);
    FAILS(!cti_addManifestFile(manifest, "other/data"), "data");
    CHECK(cti_addManifestFile(manifest, "more") == 0 && cti_sendManifest(manifest) == 0);
    CHECK(same(read_path(in(session, "more")), "more") && same(read_path(in(session, "data")), "data"));
    /* An empty manifest. */
    CHECK(cti_sendManifest(manifest_of(session)) == 0);
    char **locks = cti_getSessionLockFiles(session);
    CHECK(locks && locks[0] && locks[1] && !locks[2]);
    for (int at = 0; at < 2; at++) {
        CHECK(exists(locks[at]) && strncmp(locks[at], in(session, ""), strlen(in(session, ""))) == 0);
        free(locks[at]);
    }
    free(locks);
    /* A session takes its manifests along. */
    manifest = manifest_of(session);
    CHECK(cti_destroySession(session) == 0 && !cti_manifestIsValid(manifest));
    cti_deregisterApp(app);
}

static void dependencies_are_an_attribute(void) {
    cti_app_id_t app = launch_held((args_t){"sleep", "100", NULL});
    for (int with = 1; with >= 0; with--) {
        CHECK(cti_setAttribute(CTI_ATTR_STAGE_DEPENDENCIES, with ? "1" : "0") == 0);
        cti_session_id_t session = session_of(app);
        cti_manifest_id_t manifest = manifest_of(session);
        CHECK(cti_addManifestBinary(manifest, getenv("VIEW")) == 0 && cti_sendManifest(manifest) == 0);
        CHECK(exists(in(session, "bin/view")));
        CHECK(exists(in(session, "lib/libcommontools_be.so.2")) == with);
        CHECK(cti_destroySession(session) == 0);
    }
    cti_deregisterApp(app);
}

/* A daemon's report about its node, once it is there. */
static char *view(int node) {
    char *path = text("view.%d", node);
    UNTIL(exists(path));
    char *said = read_path(path);
    CHECK(unlink(path) == 0);
    return said;
}

static void daemons(void) {
    cti_app_id_t app = launch_held((args_t){"-N", "2", "-n", "3", "sleep", "100", NULL});
    cti_session_id_t session = session_of(app);
    setenv("TMPDIR", here(""), 1);
    CHECK(cti_setAttribute(CTI_PMI_FOPEN_TIMEOUT, "7") == 0 && cti_setAttribute(CTI_EXTRA_SLEEP, "2") == 0);
    cti_manifest_id_t manifest = manifest_of(session);
    args_t args = {here(""), "a b", "", "$(c)", NULL};
    FAILS(!cti_execToolDaemon(manifest, getenv("VIEW"), args, (args_t){"=x", NULL}), "environment string");
    FAILS(!cti_execToolDaemon(manifest, NULL, args, NULL), "NULL");
    CHECK(cti_manifestIsValid(manifest));
    if (cti_execToolDaemon(manifest, getenv("VIEW"), args, (args_t){"MINE=1=2", NULL})) FAIL("no daemon");
    CHECK(!cti_manifestIsValid(manifest));
    char *name = gantry_getAppName(app);
    char **hosts = cti_getAppHostsList(app);
    for (int node = 0; node < 2; node++) {
        char *said = view(node), *root = gantry_getSessionDirOn(session, hosts[node]);
        const char *lines[] = {
            "version=2.4.1", "wlm=7", "word=localhost", text("app=%s", name), text("host=%s", hosts[node]),
            text("node=%d", node), "nodes=2", "size=3", text("root=%s", root), text("bin=%s/bin", root),
            text("lib=%s/lib", root), text("file=%s", root), text("tmp=%s/tmp", root), node ? "first=2" : "first=0",
            node ? "here=1" : "here=2", node ? "pids=1" : "pids=2", "arg=a b", "arg=", "arg=$(c)", "env MINE=1=2",
            "env CTI_IAMBACKEND=1", "env CTI_WLM=7", text("env CTI_APID=%s", name), text("env CTI_ROOT_DIR=%s", root),
            text("env CTI_BIN_DIR=%s/bin", root), text("env CTI_LIB_DIR=%s/lib", root), text("env CTI_FILE_DIR=%s", root),
            text("env TMPDIR=%s/tmp", root), "env CTI_PMI_FOPEN_TIMEOUT=7", "env CTI_PMI_EXTRA_SLEEP=2",
            "error=cti_be_destroyPidList: nothing was freed: the pointer was freed before, is not gantry's, or belongs to another free function",
        };
        for (size_t at = 0; at < sizeof lines / sizeof *lines; at++)
            if (!has_line(said, lines[at])) FAIL("'%s' is not in\n%s", lines[at], said);
        /* The pids are those of held ranks. */
        int pid = atoi(strstr(said, "pid=") + 4);
        CHECK(strstr(read_path(text("/proc/%d/stat", pid)), "(sleep) T"));
        free(hosts[node]);
    }
    char **locks = cti_getSessionLockFiles(session);
    CHECK(locks && exists(locks[0]) && !locks[1]);
    CHECK(cti_releaseAppBarrier(app) == 0);
    cti_deregisterApp(app);
    FAILS(!cti_execToolDaemon(manifest, "sh", NULL, NULL), "there is no manifest");
}

/* A tool may run with a library that is preloaded. Its daemons get only the one that it gives them. */
static void preloads_are_the_tools_own(void) {
    cti_app_id_t app = launch((args_t){"sleep", "100", NULL});
    cti_session_id_t session = session_of(app);
    setenv("LD_PRELOAD", "libm.so.6", 1);
    const char *says = "echo $LD_PRELOAD >$0.new; mv $0.new $0";
    const char *given[] = {NULL, "LD_PRELOAD=libc.so.6"}, *said[] = {"\n", "libc.so.6\n"};
    for (int at = 0; at < 2; at++) {
        char *to = text("%s.%d", here("preload"), at);
        CHECK(cti_execToolDaemon(manifest_of(session), "sh", (args_t){"-c", says, to, NULL}, (args_t){given[at], NULL}) == 0);
        UNTIL(exists(to));
        CHECK(same(read_path(to), said[at]));
    }
    cti_deregisterApp(app);
}

/* Two daemons in one session. The end of the session ends both. */
static void two_daemons(void) {
    write_file("first", "#!/bin/sh\necho $$ > $TMPDIR/new; mv $TMPDIR/new $CTI_FILE_DIR/one; exec sleep 300\n", 0700);
    cti_app_id_t app = launch((args_t){"sleep", "100", NULL});
    cti_session_id_t session = session_of(app);
    CHECK(cti_execToolDaemon(manifest_of(session), getenv("VIEW"), (args_t){here(""), NULL}, NULL) == 0);
    CHECK(cti_execToolDaemon(manifest_of(session), "./first", NULL, NULL) == 0);
    FAILS(!cti_execToolDaemon(manifest_of(session), "no-such-daemon", NULL, NULL), "no-such-daemon");
    char *root = in(session, "");
    UNTIL(exists(in(session, "one")));
    int pids[] = {atoi(strstr(view(0), "self=") + 5), atoi(read_path(in(session, "one")))};
    CHECK(pids[0] > 1 && pids[1] > 1 && kill(pids[0], 0) == 0 && kill(pids[1], 0) == 0);
    CHECK(cti_destroySession(session) == 0);
    CHECK(kill(pids[0], 0) == -1 && kill(pids[1], 0) == -1 && !exists(root));
    CHECK(cti_appIsValid(app));
    cti_deregisterApp(app);
}

/* A daemon that takes its time: the session stays for another try. */
static void destroys_again(void) {
    cti_app_id_t app = launch((args_t){"-N", "2", "-n", "2", "sleep", "100", NULL});
    cti_session_id_t session = session_of(app);
    cti_manifest_id_t other = manifest_of(session);
    const char *stubborn = "trap '' TERM; echo $$ >$0/new.$GANTRY_NODE; mv $0/new.$GANTRY_NODE $0/pid.$GANTRY_NODE; exec sleep 300";
    CHECK(cti_execToolDaemon(manifest_of(session), "sh", (args_t){"-c", stubborn, here(""), NULL}, NULL) == 0);
    UNTIL(exists("pid.0") && exists("pid.1"));
    pid_t pids[] = {atoi(read_path("pid.0")), atoi(read_path("pid.1"))};
    CHECK(pids[0] > 1 && pids[1] > 1);
    char *root = in(session, "");
    /* Less than the ten seconds until SIGKILL. */
    CHECK(gantry_setDeadline(300) == 0);
    for (int node = 0; node < 2; node++) {
        FAILS(!cti_destroySession(session), "destroying a session");
        CHECK(gantry_error_kind() == GANTRY_TIMED_OUT);
        CHECK(cti_sessionIsValid(session) && cti_manifestIsValid(other) && strcmp(in(session, ""), root) == 0);
        FAILS(!cti_sendManifest(manifest_of(session)), "gone");
        CHECK(kill(pids[node], SIGKILL) == 0);
    }
    CHECK(gantry_setDeadline(-1) == 0);
    if (cti_destroySession(session)) FAIL("the third time");
    CHECK(!cti_sessionIsValid(session) && !cti_manifestIsValid(other));
    UNTIL(!exists(root));
    FAILS(!cti_destroySession(session), "there is no session");
    cti_deregisterApp(app);
}

/* If CTI_CONTAINER_INSTANCE is set, a program that enters that container starts the daemons, with other search
   paths. Here this program is a script that changes the variables as the real one does. */
static void daemons_in_containers(void) {
    write_file("daemon", "#!/bin/sh\necho $INSIDE:$1:$LD_LIBRARY_PATH > $CTI_FILE_DIR/new; mv $CTI_FILE_DIR/new $CTI_FILE_DIR/seen\n", 0700);
    cti_app_id_t app = launch((args_t){"sleep", "100", NULL});
    cti_session_id_t session = session_of(app);
    setenv("CTI_CONTAINER_INSTANCE", "instance://here", 1);
    FAILS(!cti_execToolDaemon(manifest_of(session), "./daemon", (args_t){"a b", NULL}, NULL), "instance://here: neither singularity");
    CHECK(mkdir("starters", 0700) == 0);
    write_file("starters/singularity", "#!/bin/sh\n[ \"$1 $2\" = 'exec instance://here' ] || exit 9\nshift 2\n"
                                       "exec env -i CTI_FILE_DIR=$CTI_FILE_DIR INSIDE=yes PATH=$SINGULARITYENV_PREPEND_PATH:/bin "
                                       "LD_LIBRARY_PATH=$SINGULARITYENV_LD_LIBRARY_PATH \"$@\"\n", 0700);
    setenv("PATH", text("%s:%s", here("starters"), getenv("PATH")), 1);
    if (cti_execToolDaemon(manifest_of(session), "./daemon", (args_t){"a b", NULL}, NULL)) FAIL("no daemon");
    UNTIL(exists(in(session, "seen")));
    char *lib = cti_getSessionLibDir(session), *expected = text("yes:a b:%s", lib);
    char *seen = read_path(in(session, "seen"));
    if (strncmp(seen, expected, strlen(expected))) FAIL("%s\nand not\n%s", seen, expected);
    free(lib);
    cti_deregisterApp(app);
}

/* With CTI_DEBUG and CTI_LOG_DIR, this process and daemons write logs. */
static void logs(void) {
    CHECK(mkdir("logs", 0700) == 0);
    CHECK(cti_setAttribute(CTI_LOG_DIR, here("logs")) == 0 && cti_setAttribute(CTI_DEBUG, "1") == 0);
    cti_app_id_t app = launch((args_t){"sleep", "100", NULL});
    cti_session_id_t session = session_of(app);
    CHECK(cti_execToolDaemon(manifest_of(session), "sh", (args_t){"-c", "echo said; touch done", NULL}, NULL) == 0);
    UNTIL(exists(in(session, "done")));
    char host[256];
    CHECK(gethostname(host, sizeof host) == 0);
    char *own = text("logs/dbglog_%s.%d.log", host, getpid());
    struct stat found;
    CHECK(stat(own, &found) == 0 && (found.st_mode & 0777) == 0600 && found.st_size > 0);
    char *name = gantry_getAppName(app);
    UNTIL(exists(text("logs/gantry-%s-d1-%s.out", name, host)));
    UNTIL(same(read_path(text("logs/gantry-%s-d1-%s.out", name, host)), "said\n"));
    CHECK(cti_setAttribute(CTI_DEBUG, "0") == 0);
    CHECK(truncate(own, 0) == 0);
    cti_deregisterApp(app);
    CHECK(stat(own, &found) == 0 && found.st_size == 0);
}

/* With CTI_DEBUG alone, they write logs in /tmp. */
static void logs_without_directory(void) {
    CHECK(cti_setAttribute(CTI_DEBUG, "1") == 0);
    cti_app_id_t app = launch((args_t){"sleep", "100", NULL});
    char host[256], *name = gantry_getAppName(app);
    CHECK(gethostname(host, sizeof host) == 0);
    char *own = text("/tmp/dbglog_%s.%d.log", host, getpid()), *output = text("/tmp/gantry-%s-d1-%s.out", name, host);
    CHECK(exists(own) && unlink(own) == 0);
    CHECK(cti_execToolDaemon(manifest_of(session_of(app)), "sh", (args_t){"-c", "echo said", NULL}, NULL) == 0);
    UNTIL(exists(output) && same(read_path(output), "said\n"));
    CHECK(unlink(output) == 0 && unlink(text("/tmp/gantry-%s-d1-%s.err", name, host)) == 0);
    cti_deregisterApp(app);
}

static const struct test tests[] = {
    {"sessions", sessions},
    {"manifests", manifests},
    {"dependencies_are_an_attribute", dependencies_are_an_attribute},
    {"daemons", daemons},
    {"preloads_are_the_tools_own", preloads_are_the_tools_own},
    {"two_daemons", two_daemons},
    {"destroys_again", destroys_again},
    {"daemons_in_containers", daemons_in_containers},
    {"logs", logs},
    {"logs_without_directory", logs_without_directory},
    {NULL, NULL},
};

int main(int argc, char **argv) {
    return run_named(tests, argc, argv);
}
