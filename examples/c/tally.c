/*
 * A tool in C that talks to its daemons over the channel. It gets the number of ranks and their states, and sends a
 * message to each node. The answers of the daemons are merged on the way, so the tool's work does not grow with the
 * number of nodes.
 *
 *     cc -o tally tally.c $(pkg-config --cflags --libs common_tools_fe)
 *     ./tally ./count -n 4 ./app
 *
 * The first argument is the daemon (count.c); the others are the launcher's arguments.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gantry.h"

enum { QUESTION = 1, COUNT, STATES, NEWS }; /* tags: what belongs together */

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, cti_error_str());
    return 1;
}

/* Sends a question to all daemons, and prints their merged answers. */
static int ask(cti_session_id_t session) {
    const char question[] = "what is there?";
    gantry_outcome_t *asked = gantry_broadcast(session, QUESTION, question, strlen(question));
    gantry_outcome_t *count = gantry_reduce(session, COUNT, "sum", GANTRY_ALL);
    gantry_outcome_t *states = gantry_reduce(session, STATES, "keys", GANTRY_BEST_EFFORT);
    int64_t ranks = 0;
    char *said = states ? gantry_describeResult(states, "keys") : NULL;
    int result = asked && count && said && gantry_getIntegers(count, &ranks, 1) == 1 ? 0 : failed("the daemons");
    if (!result) {
        printf("%d nodes have %d ranks\n%s", (int)count->contributed, (int)ranks, said);
        for (int at = 0; at < states->numMissing; at++) printf("without %s: %s\n", states->missing[at].host, states->missing[at].why);
    }
    free(said);
    gantry_destroyOutcome(asked);
    gantry_destroyOutcome(count);
    gantry_destroyOutcome(states);
    return result;
}

/* Prints messages that the daemons send without a request, one from each. */
static int listen(cti_session_id_t session, int nodes) {
    gantry_inbox_id_t inbox = gantry_openInbox(session, NEWS);
    for (; nodes > 0; nodes--) {
        gantry_data_t *news = gantry_receive(inbox);
        if (!news) return failed("a daemon's news");
        printf("node %u says: %s\n", (unsigned)news->from.node, (char *)news->bytes);
        gantry_destroyData(news);
    }
    return gantry_closeInbox(inbox);
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s DAEMON LAUNCHER-ARGUMENTS...\n", argv[0]);
        return 2;
    }
    gantry_setDeadline(60000);
    cti_app_id_t app = cti_launchAppBarrier((const char *const *)argv + 2, -1, -1, NULL, NULL, NULL);
    if (!app) return failed("launch");
    int code = 1;
    cti_session_id_t session = cti_createSession(app);
    if (cti_execToolDaemon(cti_createManifest(session), argv[1], NULL, NULL)) failed("the daemon");
    else if (ask(session) == 0 && listen(session, cti_getNumAppNodes(app)) == 0) {
        if (cti_releaseAppBarrier(app) || gantry_waitApp(app, &code)) code = failed("the application");
    }
    cti_deregisterApp(app);
    return code;
}
