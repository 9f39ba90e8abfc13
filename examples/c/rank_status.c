/*
 * A tool in C: shows the content of /proc/PID/status for every rank of a running program.
 *
 *     cc -o rank_status rank_status.c $(pkg-config --cflags --libs common_tools_fe)
 *     ./rank_status ./read_status 4711
 *
 * The first argument is the daemon (read_status.c). The second one names the program: the process id of its launcher,
 * or a job.
 */
#include <stdio.h>

#include "gantry.h"

enum { STATUS = 1 };

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, cti_error_str());
    return 1;
}

/* Prints what the daemons contribute. */
static int show(cti_session_id_t session) {
    gantry_outcome_t *status = gantry_gather(session, STATUS, GANTRY_BEST_EFFORT);
    if (!status) return failed("gather");
    for (int at = 0; at < status->numParts; at++) fputs((char *)status->parts[at].bytes, stdout);
    for (int at = 0; at < status->numMissing; at++)
        fprintf(stderr, "without %s: %s\n", status->missing[at].host, status->missing[at].why);
    gantry_destroyOutcome(status);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s DAEMON TARGET\n", argv[0]);
        return 2;
    }
    gantry_setDeadline(60000);
    cti_app_id_t app = gantry_attach(argv[2]);
    if (!app) return failed("attach");
    cti_session_id_t session = cti_createSession(app);
    int result = cti_execToolDaemon(cti_createManifest(session), argv[1], NULL, NULL) ? failed("the daemon") : show(session);
    cti_deregisterApp(app); /* the ranks go on */
    return result;
}
