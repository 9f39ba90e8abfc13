/*
 * A tool in C: holds an application and shows the places of its ranks. On every node it starts a daemon, which calls
 * back. Then it releases the application.
 *
 *     cc -o hold_and_ask hold_and_ask.c $(pkg-config --cflags --libs common_tools_fe)
 *     ./hold_and_ask ./answer -n 4 ./app
 *
 * The first argument is the daemon (answer.c); the others are the launcher's arguments. Daemons call back through a
 * pipe in the file system, so this example is for one machine. On other nodes they would connect to a TCP port of the
 * tool.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gantry.h"

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, cti_error_str());
    return 1;
}

/* Shows the nodes, their ranks and programs. */
static int show(cti_app_id_t app) {
    cti_hostsList_t *nodes = cti_getAppHostsPlacement(app);
    cti_binaryList_t *programs = cti_getAppBinaryList(app);
    if (!nodes || !programs) return failed("where are the ranks");
    for (int node = 0; node < nodes->numHosts; node++)
        printf("%s has %d ranks\n", nodes->hosts[node].hostname, nodes->hosts[node].numPes);
    for (int rank = 0; programs->rankMap[rank] >= 0; rank++)
        printf("rank %d runs %s\n", rank, programs->binaries[programs->rankMap[rank]]);
    cti_destroyHostsList(nodes);
    cti_destroyBinaryList(programs);
    return 0;
}

/* Prints the daemons' lines, and subtracts them from the number of expected lines. */
static int show_answers(int answers, int *left) {
    char bytes[512];
    struct pollfd wait = {answers, POLLIN, 0};
    if (poll(&wait, 1, 30000) != 1) {
        fprintf(stderr, "a daemon does not answer\n");
        return 1;
    }
    ssize_t size = read(answers, bytes, sizeof bytes);
    for (ssize_t at = 0; at < size; at++) *left -= bytes[at] == '\n';
    fwrite(bytes, 1, size > 0 ? (size_t)size : 0, stdout);
    return size <= 0;
}

/* Starts the daemon on every node, and prints their reports about every rank. */
static int ask(cti_app_id_t app, const char *daemon) {
    char folder[] = "/tmp/hold_and_ask-XXXXXX", pipe[64];
    if (!mkdtemp(folder)) return failed("mkdtemp");
    snprintf(pipe, sizeof pipe, "%s/pipe", folder);
    if (mkfifo(pipe, 0600)) return failed("mkfifo");

    cti_session_id_t session = cti_createSession(app);
    cti_manifest_id_t manifest = cti_createManifest(session);
    const char *args[] = {pipe, NULL};
    int result = cti_execToolDaemon(manifest, daemon, args, NULL) ? failed("the daemon") : 0;
    /* Open for writing too: else it is at its end whenever no daemon has it open. */
    int answers = open(pipe, O_RDWR);
    int left = cti_getNumAppPEs(app);
    while (!result && left > 0) result = show_answers(answers, &left);
    close(answers);
    cti_destroySession(session);
    unlink(pipe);
    rmdir(folder);
    return result;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s DAEMON LAUNCHER-ARGUMENTS...\n", argv[0]);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    cti_app_id_t app = cti_launchAppBarrier((const char *const *)argv + 2, -1, -1, NULL, NULL, NULL);
    if (!app) return failed("launch");
    int code = 1;
    if (show(app) == 0 && ask(app, argv[1]) == 0) {
        printf("letting go\n");
        if (cti_releaseAppBarrier(app)) return failed("release");
        if (gantry_waitApp(app, &code)) return failed("wait");
    }
    cti_deregisterApp(app);
    return code;
}
