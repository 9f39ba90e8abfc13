/* libcommontools_fe does not affect its host program. Signals, masks, threads, forks, errors of threads, the end, the
 * rest of the interface. */
#include "check.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>

static volatile sig_atomic_t children;

static void on_child(int signum) {
    (void)signum;
    children++;
}

static char *own_signals(void) {
    char *status = read_path("/proc/self/status"), *from = strstr(status, "SigBlk:");
    char *to = strstr(from, "Cap");
    return text("%.*s", (int)(to - from), from);
}

static void *nothing(void *unused) {
    return unused;
}

/* Neither handlers nor masks change, here or in ranks. */
static void leaves_signals_alone(void) {
    struct sigaction mine = {.sa_handler = on_child, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGCHLD, &mine, NULL) == 0);
    signal(SIGUSR2, SIG_IGN);
    sigset_t some;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &some, NULL) == 0);
    /* The C library installs a signal handler for itself when the first thread starts. */
    pthread_t first;
    CHECK(pthread_create(&first, NULL, nothing, NULL) == 0 && pthread_join(first, NULL) == 0);
    char *before = own_signals();
    char *ranks = output_of((args_t){"grep", "Sig[BI]", "/proc/self/status", NULL}, NULL, NULL, NULL);
    CHECK(strcmp(ranks, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n") == 0);
    cti_app_id_t app = launch_held((args_t){"sleep", "100", NULL});
    cti_session_id_t session = cti_createSession(app);
    CHECK(cti_execToolDaemon(cti_createManifest(session), "true", NULL, NULL) == 0);
    CHECK(cti_destroySession(session) == 0);
    struct sigaction now_set;
    CHECK(sigaction(SIGCHLD, NULL, &now_set) == 0 && now_set.sa_handler == on_child);
    if (strcmp(before, own_signals())) FAIL("before:\n%s\nafter:\n%s", before, own_signals());
    /* Only we wait for our own child. The library must not leave other children. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(7);
    int status;
    CHECK(waitpid(-1, &status, 0) == child && WEXITSTATUS(status) == 7);
    CHECK(waitpid(-1, &status, 0) == -1 && errno == ECHILD);
    cti_deregisterApp(app);
}

/* A closed reader ends only the program that writes to it. */
static void survives_readers_that_go(void) {
    int out[2];
    CHECK(pipe2(out, O_CLOEXEC) == 0);
    cti_app_id_t app = cti_launchAppBarrier((args_t){"-n", "2", "sh", "-c", "echo x; echo y", NULL}, out[1], out[1], NULL, NULL, NULL);
    int events = gantry_openEvents(app);
    CHECK(app > 0 && events >= 0);
    close(out[0]);
    close(out[1]);
    close(events);
    CHECK(cti_releaseAppBarrier(app) == 0);
    exit_code(app);
    cti_deregisterApp(app);
}

static void *wait_long(void *app) {
    int code = -1;
    CHECK(gantry_waitApp(*(cti_app_id_t *)app, &code) == 0 && code == 128 + SIGKILL);
    return NULL;
}

/* One thread waits; all others continue. */
static void waits_block_nobody(void) {
    cti_app_id_t app = launch((args_t){"sleep", "100", NULL});
    pthread_t waiter;
    CHECK(pthread_create(&waiter, NULL, wait_long, &app) == 0);
    for (int times = 0; times < 3; times++) cti_deregisterApp(launch_held((args_t){"sleep", "100", NULL}));
    CHECK(cti_appIsValid(app) && cti_killApp(app, SIGKILL) == 0);
    CHECK(pthread_join(waiter, NULL) == 0);
}

static void *work(void *shared) {
    cti_session_id_t session = cti_createSession(*(cti_app_id_t *)shared);
    if (session <= 0) FAIL("no session");
    for (int times = 0; times < 3; times++) {
        cti_manifest_id_t manifest = cti_createManifest(session);
        CHECK(cti_addManifestBinary(manifest, "sleep") == 0 && cti_sendManifest(manifest) == 0);
    }
    cti_app_id_t own = launch_held((args_t){"sleep", "100", NULL});
    CHECK(cti_releaseAppBarrier(own) == 0 && cti_killApp(own, SIGTERM) == 0);
    CHECK(exit_code(own) == 128 + SIGTERM);
    cti_deregisterApp(own);
    CHECK(cti_destroySession(session) == 0);
    return NULL;
}

static void serves_eight_threads(void) {
    cti_app_id_t app = launch_held((args_t){"sleep", "100", NULL});
    pthread_t threads[8];
    for (int at = 0; at < 8; at++) CHECK(pthread_create(&threads[at], NULL, work, &app) == 0);
    for (int at = 0; at < 8; at++) CHECK(pthread_join(threads[at], NULL) == 0);
    cti_deregisterApp(app);
}

static void *fail_here(void *unused) {
    (void)unused;
    CHECK(strcmp(cti_error_str(), "Unknown CTI error") == 0 && gantry_error_kind() == GANTRY_NO_ERROR);
    CHECK(cti_getNumAppPEs(77) == 0 && strstr(cti_error_str(), "77"));
    CHECK(gantry_getDeadline() == -1 && gantry_setDeadline(5) == 0);
    return NULL;
}

static void errors_belong_to_threads(void) {
    CHECK(strcmp(cti_error_str(), "Unknown CTI error") == 0);
    CHECK(cti_getNumAppPEs(66) == 0);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, fail_here, NULL) == 0 && pthread_join(other, NULL) == 0);
    const char *kept = "cti_getNumAppPEs: there is no application 66; it may have ended";
    CHECK(strcmp(cti_error_str(), kept) == 0);
    CHECK(gantry_getDeadline() == -1);
    FAILS(!gantry_setDeadline(-2), "-2");
    CHECK(cti_version() && strstr(cti_error_str(), "-2"));
    char buffer[10];
    memset(buffer, 'x', sizeof buffer);
    CHECK(cti_error_str_r(buffer, 0) == ERANGE && buffer[0] == 'x');
    CHECK(cti_error_str_r(buffer, 4) == 0 && strcmp(buffer, "gan") == 0 && buffer[4] == 'x');
    CHECK(cti_error_str_r(NULL, 4) == ERANGE);
    char large[4096];
    CHECK(cti_error_str_r(large, sizeof large) == 0 && strcmp(large, cti_error_str()) == 0);
}

/* The texts of this many threads, and so many of each, are fewer than a thousand. */
enum { FAILING = 4, TEXTS = 200 };

struct failing {
    int first;
    const char *texts[TEXTS];
};

static const char *gone(int app) {
    return text("cti_getNumAppPEs: there is no application %d; it may have ended", app);
}

static void *fails_and_ends(void *shared) {
    struct failing *mine = shared;
    for (int at = 0; at < TEXTS; at++) {
        CHECK(cti_getNumAppPEs(mine->first + at) == 0);
        mine->texts[at] = cti_error_str();
    }
    return NULL;
}

/* A text may be used after the thread's next error, and after the thread's end. */
static void texts_of_errors_stay(void) {
    CHECK(cti_getNumAppPEs(66) == 0);
    const char *own = cti_error_str();
    static struct failing failing[FAILING];
    pthread_t threads[FAILING];
    for (int at = 0; at < FAILING; at++) {
        failing[at].first = 1000 * (at + 1);
        CHECK(pthread_create(&threads[at], NULL, fails_and_ends, &failing[at]) == 0);
    }
    for (int at = 0; at < FAILING; at++) CHECK(pthread_join(threads[at], NULL) == 0);
    CHECK(cti_setAttribute((cti_attr_type_t)99, NULL) == 1 && cti_error_str() != own);
    for (int at = 0; at < FAILING; at++)
        for (int number = 0; number < TEXTS; number++)
            CHECK(strcmp(failing[at].texts[number], gone(failing[at].first + number)) == 0);
    CHECK(strcmp(own, gone(66)) == 0);
    /* One text for equal errors. */
    CHECK(cti_getNumAppPEs(66) == 0 && cti_error_str() == own);
}

static void forks(void) {
    cti_app_id_t app = launch((args_t){"sleep", "100", NULL});
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* The child has none of the parent's objects, but the library works. */
        CHECK(!cti_appIsValid(app));
        cti_app_id_t own = launch_held((args_t){"sleep", "100", NULL});
        CHECK(own == 1 && cti_releaseAppBarrier(own) == 0 && cti_killApp(own, SIGTERM) == 0);
        CHECK(exit_code(own) == 128 + SIGTERM && gantry_finalize() == 0);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(cti_appIsValid(app) && cti_killApp(app, SIGTERM) == 0 && exit_code(app) == 128 + SIGTERM);
    cti_deregisterApp(app);
}

static const char *const no_program[] = {"/no/such/program", NULL};

/* Calls that fail, and are logged, for as long as the program lives. */
static void *fails(void *unused) {
    while (cti_launchApp(no_program, -1, -1, NULL, NULL, NULL) == 0) {
    }
    return unused;
}

/* A child inherits the locks of its parent's threads, including the lock of the log, but not the threads. */
static void forks_while_threads_log(void) {
    CHECK(mkdir("logs", 0700) == 0);
    CHECK(cti_setAttribute(CTI_LOG_DIR, here("logs")) == 0 && cti_setAttribute(CTI_DEBUG, "1") == 0);
    cti_app_id_t app = launch((args_t){"true", NULL});
    cti_deregisterApp(app);
    pthread_t thread;
    for (int at = 0; at < 4; at++) CHECK(pthread_create(&thread, NULL, fails, NULL) == 0);
    for (int at = 0; at < 100; at++) {
        fflush(stdout);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(20);
            cti_hostsList_t mine;
            cti_destroyHostsList(&mine);
            _exit(cti_appIsValid(app) || cti_launchApp(no_program, -1, -1, NULL, NULL, NULL));
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        if (!WIFEXITED(status) || WEXITSTATUS(status)) FAIL("child %d has ended with %#x", at, status);
    }
}

static int count_threads(void) {
    return atoi(strstr(read_path("/proc/self/status"), "Threads:") + 8);
}

static void ends_and_begins_anew(void) {
    CHECK(gantry_finalize() == 0);
    cti_app_id_t last = 0;
    for (int times = 0; times < 2; times++) {
        cti_app_id_t app = launch_held((args_t){"-n", "2", "sleep", "100", NULL});
        cti_session_id_t session = cti_createSession(app);
        char *root = cti_getSessionRootDir(session);
        CHECK(app > last && exists(root) && count_threads() > 1);
        CHECK(gantry_finalize() == 0);
        CHECK(!exists(root) && !cti_appIsValid(app) && !cti_sessionIsValid(session));
        UNTIL(count_threads() == 1);
        free(root);
        last = app;
    }
}

/* Loaded late and closed early, as plugins are. */
static void is_loaded_and_closed(void) {
    void *library = dlopen("libcommontools_fe.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) FAIL("%s", dlerror());
    CHECK(dlsym(library, "cti_launchApp") && dlsym(library, "gantry_finalize"));
    cti_deregisterApp(launch((args_t){"true", NULL}));
    CHECK(dlclose(library) == 0);
    cti_deregisterApp(launch((args_t){"true", NULL}));
}

static void attributes(void) {
    const struct {
        cti_attr_type_t which;
        const char *first, *good, *then, *bad;
    } all[] = {
        {CTI_ATTR_STAGE_DEPENDENCIES, "1", "0", "0", "x"}, {CTI_LOG_DIR, "", ".", ".", "/no/such"},
        {CTI_DEBUG, "0", "1", "1", ""},                    {CTI_PMI_FOPEN_TIMEOUT, "60", "5", "5", "five"},
        {CTI_EXTRA_SLEEP, "0", "3", "3", "-3"},
    };
    const char *kept[5];
    for (int at = 0; at < 5; at++) {
        kept[at] = cti_getAttribute(all[at].which);
        CHECK(kept[at] && strcmp(kept[at], all[at].first) == 0);
    }
    /* Setting one must not change another. */
    CHECK(strcmp(kept[0], "1") == 0 && strcmp(kept[3], "60") == 0);
    for (int at = 0; at < 5; at++) {
        CHECK(cti_setAttribute(all[at].which, all[at].good) == 0);
        CHECK(strcmp(cti_getAttribute(all[at].which), all[at].then) == 0);
        CHECK(cti_setAttribute(all[at].which, all[at].bad) == 1);
        FAILS(!cti_setAttribute(all[at].which, NULL), "NULL");
        CHECK(strcmp(cti_getAttribute(all[at].which), all[at].then) == 0);
    }
    FAILS(!cti_setAttribute((cti_attr_type_t)5, "1"), "no attribute 5");
    FAILS(cti_getAttribute((cti_attr_type_t)-1), "no attribute -1");
}

/* In a network, it is an address there. */
static void is_for_other_systems(const char *name) {
    struct ifaddrs *all;
    int networks = 0, found = 0;
    CHECK(getifaddrs(&all) == 0);
    for (struct ifaddrs *at = all; at; at = at->ifa_next) {
        char shown[INET_ADDRSTRLEN];
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || !(at->ifa_flags & IFF_UP)) continue;
        CHECK(inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)at->ifa_addr)->sin_addr, shown, sizeof shown));
        if (strncmp(shown, "127.", 4) == 0 || strncmp(shown, "169.254.", 8) == 0) continue;
        networks += (at->ifa_flags & IFF_RUNNING) != 0;
        found += strcmp(shown, name) == 0;
    }
    freeifaddrs(all);
    if (networks && !found && !strchr(name, ':')) FAIL("'%s' is no address of a network", name);
}

static void tells_of_itself(void) {
    CHECK(strcmp(cti_version(), CTI_FE_VERSION) == 0);
    CHECK(cti_current_wlm() == CTI_WLM_LOCALHOST);
    CHECK(strcmp(cti_wlm_type_toString(CTI_WLM_SLURM), CTI_WLM_TYPE_SLURM_STR) == 0);
    CHECK(strcmp(cti_wlm_type_toString(CTI_WLM_SSH), CTI_WLM_TYPE_SSH_STR) == 0);
    CHECK(strcmp(cti_wlm_type_toString(CTI_WLM_LOCALHOST), CTI_WLM_TYPE_LOCALHOST_STR) == 0);
    CHECK(strcmp(cti_wlm_type_toString(CTI_WLM_PBS), CTI_WLM_TYPE_PBS_STR) == 0);
    for (int type = -1; type < 12; type++) CHECK(cti_wlm_type_toString((cti_wlm_type_t)type)[0]);
    char *name = cti_getHostname();
    CHECK(name);
    is_for_other_systems(name);
    free(name);
    setenv("CTI_HOST_ADDRESS", "10.1.2.3", 1);
    name = cti_getHostname();
    CHECK(strcmp(name, "10.1.2.3") == 0);
    free(name);
    setenv("CTI_WLM_IMPL", "linux/localhost", 1);
    CHECK(cti_current_wlm() == CTI_WLM_LOCALHOST);
    setenv("CTI_WLM_IMPL", "abacus", 1);
    FAILS(cti_current_wlm() != CTI_WLM_NONE, "abacus");
    setenv("CTI_WLM_IMPL", "localhost", 1);
    setenv("CTI_BACKEND_WRAPPER", "wrap", 1);
    FAILS(cti_launchApp((args_t){"true", NULL}, -1, -1, NULL, NULL, NULL), "there is no 'wrap' around ranks");
    unsetenv("CTI_BACKEND_WRAPPER");
    setenv("CTI_LAUNCHER_WRAPPER", "wrap 'it up'", 1);
    FAILS(cti_launchApp((args_t){"true", NULL}, -1, -1, NULL, NULL, NULL), "there is no launcher for 'wrap it up' to start");
    setenv("CTI_LAUNCHER_WRAPPER", "wrap 'it up", 1);
    FAILS(cti_launchApp((args_t){"true", NULL}, -1, -1, NULL, NULL, NULL), "not closed");
}

static int entries(const char *path) {
    DIR *folder = opendir(path);
    int count = 0;
    if (!folder) return -1;
    for (struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* Variables that users set for all tools. */
static void variables(void) {
    char host[256];
    CHECK(gethostname(host, sizeof host) == 0);
    unsetenv("GANTRY_RUNTIME_DIR"), unsetenv("GANTRY_STAGE_DIR"), unsetenv("GANTRY_LAUNCHER");
    CHECK(mkdir("cfg", 0700) == 0 && mkdir("stage", 0700) == 0 && mkdir("log", 0700) == 0);
    setenv("CTI_CFG_DIR", here("cfg"), 1), setenv("CTI_BACKEND_TMPDIR", here("stage"), 1);
    setenv("CTI_DEBUG", "", 1), setenv("CTI_LOG_DIR", here("log"), 1);
    CHECK(strcmp(cti_getAttribute(CTI_DEBUG), "1") == 0 && strcmp(cti_getAttribute(CTI_LOG_DIR), here("log")) == 0);
    cti_app_id_t app = launch_held((args_t){"sleep", "100", NULL});
    cti_session_id_t session = cti_createSession(app);
    char *root = cti_getSessionRootDir(session), *stage = here("stage");
    CHECK(root && strncmp(root, stage, strlen(stage)) == 0 && entries(stage) == 1);
    CHECK(entries(text("%s/gantry-runtime-%d", here("cfg"), (int)getuid())) > 0);
    CHECK(exists(text("log/dbglog_%s.%d.log", host, getpid())));
    cti_deregisterApp(app);
    CHECK(entries(stage) == 0);
    const char *names[] = {"CTI_LAUNCHER_NAME", "CTI_LAUNCHER_SCRIPT"};
    for (int at = 0; at < 2; at++) {
        setenv(names[at], text("/no/such/%d", at), 1);
        FAILS(cti_launchApp((args_t){"true", NULL}, -1, -1, NULL, NULL, NULL), text("/no/such/%d", at));
        unsetenv(names[at]);
    }
    free(root);
    CHECK(gantry_finalize() == 0);
}

static void says_its_address(void) {
    char *name = cti_getHostname();
    CHECK(name);
    puts(name);
    free(name);
}

int defined_here;

static void finds_symbols(void) {
    const char *own = "/proc/self/exe";
    CHECK(cti_containsSymbols(own, (args_t){"main", "defined_here", NULL}, CTI_SYMBOLS_ALL) == CTI_SYMBOLS_YES);
    CHECK(cti_containsSymbols(own, (args_t){"main", "not_here", NULL}, CTI_SYMBOLS_ALL) == CTI_SYMBOLS_NO);
    CHECK(cti_containsSymbols(own, (args_t){"main", "not_here", NULL}, CTI_SYMBOLS_ANY) == CTI_SYMBOLS_YES);
    /* It is used here and defined elsewhere. */
    CHECK(cti_containsSymbols(own, (args_t){"pthread_create", NULL}, CTI_SYMBOLS_ANY) == CTI_SYMBOLS_NO);
    FAILS(cti_containsSymbols("/etc/passwd", (args_t){"main", NULL}, CTI_SYMBOLS_ALL) == CTI_SYMBOLS_ERROR ? 0 : 1, "passwd");
    CHECK(cti_containsSymbols("/no/such", (args_t){"main", NULL}, CTI_SYMBOLS_ALL) == CTI_SYMBOLS_ERROR);
    CHECK(cti_containsSymbols(NULL, (args_t){"main", NULL}, CTI_SYMBOLS_ALL) == CTI_SYMBOLS_ERROR);
    CHECK(cti_containsSymbols(own, NULL, CTI_SYMBOLS_ALL) == CTI_SYMBOLS_ERROR);
    CHECK(cti_containsSymbols(own, (args_t){"main", NULL}, (cti_symbol_query_t)7) == CTI_SYMBOLS_ERROR);
}

static const struct test tests[] = {
    {"leaves_signals_alone", leaves_signals_alone},
    {"survives_readers_that_go", survives_readers_that_go},
    {"waits_block_nobody", waits_block_nobody},
    {"serves_eight_threads", serves_eight_threads},
    {"errors_belong_to_threads", errors_belong_to_threads},
    {"texts_of_errors_stay", texts_of_errors_stay},
    {"forks", forks},
    {"forks_while_threads_log", forks_while_threads_log},
    {"ends_and_begins_anew", ends_and_begins_anew},
    {"is_loaded_and_closed", is_loaded_and_closed},
    {"attributes", attributes},
    {"tells_of_itself", tells_of_itself},
    {"variables", variables},
    {"finds_symbols", finds_symbols},
    {"says_its_address", says_its_address},
    {NULL, NULL},
};

int main(int argc, char **argv) {
    return run_named(tests, argc, argv);
}
