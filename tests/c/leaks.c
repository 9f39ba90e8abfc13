/* A careful tool: it frees all memory that it gets. It runs under a leak checker. VIEW in the environment is a
   daemon's command line for a shell. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gantry.h"

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: not so: %s; %s\n", __FILE__, __LINE__, #what, cti_error_str()); \
            return 1; \
        } \
    } while (0)

static int once(void) {
    const char *argv[] = {"-N", "2", "-n", "3", "sleep", "100", NULL}, *env[] = {"A=1", NULL}, *bad[] = {"=", NULL};
    cti_app_id_t app = cti_launchAppBarrier(argv, -1, -1, NULL, NULL, env);
    CHECK(app > 0);
    CHECK(cti_launchApp(argv, -1, -1, NULL, NULL, bad) == 0 && cti_launchApp(argv, -1, -1, "/no/such", NULL, NULL) == 0);
    char **hosts = cti_getAppHostsList(app);
    CHECK(hosts);
    for (char **host = hosts; *host; host++) free(*host);
    free(hosts);
    cti_hostsList_t *placement = cti_getAppHostsPlacement(app);
    cti_binaryList_t *programs = cti_getAppBinaryList(app);
    CHECK(placement && programs && cti_getNumAppPEs(app) == 3);
    cti_destroyHostsList(placement);
    cti_destroyHostsList(placement);
    cti_destroyBinaryList(programs);
    free(cti_getHostname());
    free(gantry_getAppName(app));
    CHECK(cti_getAttribute(CTI_EXTRA_SLEEP) && cti_setAttribute(CTI_EXTRA_SLEEP, "1") == 0);
    int events = gantry_openEvents(app);
    cti_session_id_t session = cti_createSession(app), other = cti_createSession(app);
    CHECK(session > 0 && other > 0);
    cti_manifest_id_t manifest = cti_createManifest(session);
    CHECK(cti_addManifestBinary(manifest, "sleep") == 0 && cti_addManifestLibrary(manifest, "libm.so.6") == 0);
    CHECK(cti_addManifestFile(manifest, "no-such") == 1 && cti_sendManifest(manifest) == 0);
    const char *args[] = {"-c", getenv("VIEW"), NULL};
    CHECK(cti_createManifest(other) > 0);
    CHECK(cti_execToolDaemon(cti_createManifest(session), "sh", args, env) == 0);
    char **locks = cti_getSessionLockFiles(session);
    CHECK(locks);
    for (char **lock = locks; *lock; lock++) free(*lock);
    free(locks);
    free(cti_getSessionRootDir(session));
    /* Both daemons have ended when both ends are reported. */
    char line[1 << 16];
    size_t size = 0;
    const char *found;
    while (!(found = memmem(line, size, "daemon_exited", 13)) ||
           !memmem(found + 1, size - (size_t)(found + 1 - line), "daemon_exited", 13)) {
        CHECK(size < sizeof line);
        ssize_t got = read(events, line + size, sizeof line - size);
        CHECK(got > 0);
        size += (size_t)got;
    }
    close(events);
    CHECK(cti_destroySession(session) == 0 && cti_releaseAppBarrier(app) == 0 && cti_killApp(app, SIGTERM) == 0);
    CHECK(gantry_waitApp(app, NULL) == 0);
    CHECK(cti_appIsValid(app) == 0);
    return 0;
}

int main(void) {
    for (int times = 0; times < 2; times++)
        if (once()) return 1;
    CHECK(gantry_finalize() == 0);
    printf("ok leaks\n");
    return 0;
}
