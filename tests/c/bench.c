/* The time of calls of the C libraries. `bench calls` prints lines "NAME MICROSECONDS", which are medians. `bench
   load LIBRARY` prints the time that the loader needs for a library. */
#include "check.h"

#include <dlfcn.h>

static int by_size(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static cti_app_id_t app;

static void send_signal(void) {
    cti_killApp(app, SIGCONT);
}

static void count_ranks(void) {
    cti_getNumAppPEs(app);
}

static void is_valid(void) {
    cti_appIsValid(app);
}

static void list_hosts(void) {
    char **hosts = cti_getAppHostsList(app);
    for (char **host = hosts; *host; host++) free(*host);
    free(hosts);
}

static void list_programs(void) {
    cti_destroyBinaryList(cti_getAppBinaryList(app));
}

static void open_session(void) {
    cti_destroySession(cti_createSession(app));
}

/* It has ended, so this waits only for the library's own thread. */
static void wait_for_nothing(void) {
    gantry_waitApp(app, NULL);
}

static void fail(void) {
    cti_getNumAppPEs(-1);
}

static void measure(const char *name, void (*call)(void), int inner) {
    enum { ROUNDS = 101 };
    double times[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double from = now();
        for (int at = 0; at < inner; at++) call();
        times[round] = (now() - from) / inner * 1e6;
    }
    qsort(times, ROUNDS, sizeof *times, by_size);
    printf("%s %.3f\n", name, times[ROUNDS / 2]);
}

int main(int argc, char **argv) {
    if (argc > 2) {
        double from = now();
        void *library = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
        double took = now() - from;
        if (!library) FAIL("%s", dlerror());
        printf("%.3f\n", took * 1e6);
        return 0;
    }
    app = launch((args_t){"-n", "8", "sleep", "1000", NULL});
    measure("valid", is_valid, 1000);
    measure("ranks", count_ranks, 1000);
    measure("hosts", list_hosts, 1000);
    measure("programs", list_programs, 1000);
    measure("error", fail, 1000);
    measure("signal", send_signal, 1);
    measure("session", open_session, 1);
    cti_deregisterApp(app);
    app = launch((args_t){"true", NULL});
    exit_code(app);
    measure("wait", wait_for_nothing, 100);
    cti_deregisterApp(app);
    return gantry_finalize();
}
