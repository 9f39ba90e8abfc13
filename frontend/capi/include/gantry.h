/*
 * Functions of gantry for tools, beyond the Common Tools Interface. Library: libcommontools_fe.
 * Sections: errors; timeouts; applications; events; sessions; the channel to daemons; rendezvous; co-allocation;
 * the end.
 */
#ifndef GANTRY_H
#define GANTRY_H

#include "common_tools_fe.h"
#include "gantry_shared.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---- */

/* The kind of this thread's last error, by its remedy: see gantry_shared.h. */
gantry_error_kind_t gantry_error_kind(void);

/* ---- deadlines ---- */

/* How long calls of this thread may wait from now on, in milliseconds; -1: the default in common_tools_fe.h. 0; 1
 * on error. */
int gantry_setDeadline(int64_t milliseconds);

/* The timeout that this thread has set, or -1. */
int64_t gantry_getDeadline(void);

/* How long launches and batch jobs of this thread may wait in a queue for their nodes from now on, in milliseconds;
 * -1: as long as it takes. That time does not count towards gantry_setDeadline. When it is over, the job is
 * cancelled, and the call fails with GANTRY_TIMED_OUT. 0; 1 on error. */
int gantry_setQueueDeadline(int64_t milliseconds);

/* The timeout that this thread has set for queues, or -1. */
int64_t gantry_getQueueDeadline(void);

/* ---- applications ---- */

/* Attaches to a running application, named as its workload manager does: see `gantry attach --help`. 0 on error. */
cti_app_id_t gantry_attach(const char *target);

/* The application's name in gantry's other commands and in its daemons (cti_be_getAppId). For free(); NULL on error. */
char *gantry_getAppName(cti_app_id_t app_id);

/* Waits until all ranks have ended and sets `*exit_code` (if it is not NULL) to the highest of their codes, a
 * signal counting as 128 and its number. A deadline that was set holds; else it waits for as long as it takes. 0; 1
 * on error. */
int gantry_waitApp(cti_app_id_t app_id, int *exit_code);

/* ---- events ---- */

/* A descriptor with the application's events, first its state: a line of JSON for every event, as `gantry --json`
 * prints them. It can be polled. At its end the application and all that belonged to it is gone. It is yours to
 * close(); any number of them may be open. -1 on error. */
int gantry_openEvents(cti_app_id_t app_id);

/* ---- sessions ---- */

/* The root of a session on the node of that name: the same path on every node that has it. For free(); NULL on error. */
char *gantry_getSessionDirOn(cti_session_id_t sid, const char *hostname);

/* ---- the channel to daemons ---- */

/* The tool and all daemons of a session. Every call may be made from any thread, and waits no longer than the
 * thread's timeout. Tags group operations: those with one tag run one after the other, those with different tags at
 * once. The members of an operation are the daemons that were started in the session and had not ended when it
 * began. gantry_openEvents reports starts and ends of daemons and losses of nodes: `daemon_started`,
 * `daemon_exited`, `nodes_lost`. */

typedef struct {
    int numMembers;
    gantry_member_t *members;
} gantry_memberList_t;

/* The daemons that are members now. For gantry_destroyMembers(); NULL on error. */
gantry_memberList_t *gantry_getMembers(cti_session_id_t sid);

/* Frees a list of members. */
void gantry_destroyMembers(gantry_memberList_t *list);

/* How many members must take part. An operation fails as soon as too many are missing: the error's text names them
 * and the reasons, and the error has the kind of the first reason. A number above 0: that many. */
#define GANTRY_ALL (-1)
#define GANTRY_BEST_EFFORT 0

/* A member's contribution. */
typedef struct {
    gantry_member_t member;
    size_t size;
    unsigned char *bytes; /* never NULL; a 0 follows them, which is not counted */
} gantry_contribution_t;

/* A member that has not done its part. */
typedef struct {
    gantry_member_t member;
    char *host;               /* its node's name */
    gantry_error_kind_t kind; /* GANTRY_TIMED_OUT, GANTRY_LOST, GANTRY_GONE: it has ended */
    char *why;
} gantry_missing_t;

/* The result of a successful operation. */
typedef struct {
    uint64_t contributed;         /* how many members have done their part */
    int numParts;                 /* gather: as many; reduce: one, the result, without a member; else none */
    gantry_contribution_t *parts; /* in the order of daemons and nodes */
    int numMissing;
    gantry_missing_t *missing;
} gantry_outcome_t;

/* Frees an outcome. */
void gantry_destroyOutcome(gantry_outcome_t *outcome);

/* Sends a message to all members; waits until all have received it, which does not mean that they have read it.
 * Missing members have ended, or their node was lost. Any size: more than 128 KiB go down a narrow tree, at the
 * pace of the slowest node. NULL on error. */
gantry_outcome_t *gantry_broadcast(cti_session_id_t sid, uint32_t tag, const void *bytes, size_t size);

/* As gantry_broadcast, with a message of its own for each of some members. */
gantry_outcome_t *gantry_scatter(cti_session_id_t sid, uint32_t tag, const gantry_part_t *parts, int count);

/* Sends a message to one member; waits until it has taken it in. 0; 1 on error. */
int gantry_send(cti_session_id_t sid, gantry_member_t member, uint32_t tag, const void *bytes, size_t size);

/* Waits until each member has contributed once with this tag (gantry_be_contribute): 64 MiB each at most, 1 GiB together. NULL on error. */
gantry_outcome_t *gantry_gather(cti_session_id_t sid, uint32_t tag, int64_t policy);

/* As gantry_gather, but a filter merges the contributions on their way, so that ten thousand of them cost as little
 * as ten:
 *
 *     `sum` `min` `max`   vectors of numbers           gantry_be_contributeIntegers, gantry_be_contributeReals
 *     `ranks`             the union of sets of ranks   gantry_be_contributeRanks
 *     `keys`              the ranks of each key        gantry_be_contributeKeys
 *     `stacks`            call paths as a tree         gantry_be_contributeStacks
 *
 * Any other name is that of a filter of the tool's own, which daemons serve (gantry_be_serveFilter) and the tool has
 * registered. NULL on error. */
gantry_outcome_t *gantry_reduce(cti_session_id_t sid, uint32_t tag, const char *filter, int64_t policy);

/* The result of `sum`, `min`, `max`, or of `ranks`: writes as many values as there is room for and returns their
 * total number; 0 without contributions. -1 on error. */
int gantry_getIntegers(const gantry_outcome_t *outcome, int64_t *values, int room);
int gantry_getReals(const gantry_outcome_t *outcome, double *values, int room);
int gantry_getRanks(const gantry_outcome_t *outcome, int *ranks, int room);

/* The result of a filter as text, which any filter but the tool's own has: numbers with spaces between; `0-3,7`; a
 * line `KEY [0-3,7]` for each key, and a line `main > solve > MPI_Waitall [0-3,7]` for each way on which there are
 * ranks. For free(); NULL on error. */
char *gantry_describeResult(const gantry_outcome_t *outcome, const char *filter);

/* Registers a filter of the tool's own for reductions of this session: it merges the parts that no daemon on the
 * way has merged. Until the session ends, the library's threads may call `merge` at any time during gantry_reduce.
 * cti_destroySession, cti_deregisterApp, cti_releaseApp and gantry_finalize wait for a running call; after they
 * have returned, `merge` is not called any more and `context` may be freed. They fail when `merge` itself calls
 * them; other functions work there. 0; 1 on error. */
int gantry_registerFilter(cti_session_id_t sid, const char *name, gantry_merge_t merge, void *context);

typedef int64_t gantry_inbox_id_t;

/* Opens an inbox for messages that daemons send with this tag (gantry_be_send). 256 KiB of unreceived messages
 * block their sender: receive all tags that daemons use. 0 on error. */
gantry_inbox_id_t gantry_openInbox(cti_session_id_t sid, uint32_t tag);

/* A descriptor for poll(), readable while there is something to receive, or nothing more can come. Not to be read from; it goes with the inbox. -1 on error. */
int gantry_getInboxFd(gantry_inbox_id_t inbox);

/* The next message; messages of one daemon come in order. Waits for it; with a timeout of 0 it takes one that is
 * there. For gantry_destroyData(); NULL on error: GANTRY_TIMED_OUT; GANTRY_GONE when the session is over and all
 * was received. */
gantry_data_t *gantry_receive(gantry_inbox_id_t inbox);

/* Closes an inbox; not during a call for it. Unreceived messages stay for the next inbox of that tag. 0; 1 on error. */
int gantry_closeInbox(gantry_inbox_id_t inbox);

/* Frees received data. */
void gantry_destroyData(gantry_data_t *data);

/* ---- rendezvous ---- */

/* How ranks register data and get it is in gantry_be.h. A tool may look on, and may put applications together to a multijob: a rendezvous above them. */

/* All that the application's ranks have registered, in the form of GT4: gantry_findItem finds its way there. Waits
 * until it is complete. For gantry_destroyData(); NULL on error: GANTRY_LOST, with the rank that has ended before,
 * GANTRY_TIMED_OUT. */
gantry_data_t *gantry_waitRendezvous(cti_app_id_t app_id);

/* The states of all rendezvous of the application: that of all ranks first, then those of its processes, by name.
 * For gantry_destroyRendezvousList(); NULL on error. */
gantry_rendezvousList_t *gantry_listRendezvous(cti_app_id_t app_id);

/* Frees a list. */
void gantry_destroyRendezvousList(gantry_rendezvousList_t *list);

/* Finds an item in the result of gantry_waitRendezvous or gantry_waitMultijob, without a copy. For an application
 * the path is the rank; for a multijob the application's number and the rank; so there are as many steps as levels.
 * 0; 1 on error. */
int gantry_findItem(const void *bytes, size_t size, const uint32_t *way, int steps, const unsigned char **item, size_t *itemSize);

typedef int64_t gantry_multijob_id_t;

/* Makes a rendezvous of that many applications (level 2), or of that many multijobs of the level below (3 and higher). 0 on error. */
gantry_multijob_id_t gantry_createMultijob(int level, uint32_t members);

/* Makes a multijob the member of that number, from 0, of one of the level above. 0; 1 on error. */
int gantry_joinMultijob(gantry_multijob_id_t multijob, gantry_multijob_id_t above, uint32_t number);

/* Launches an application as the member of that number, from 0, of a multijob of level 2: as cti_launchAppBarrier
 * where `held` is not 0, else as cti_launchApp. A number whose launch has failed may be used again. 0 on error. */
cti_app_id_t gantry_launchSubjob(gantry_multijob_id_t multijob, uint32_t number, int held, const char *const launcher_argv[], int stdout_fd,
                                 int stderr_fd, const char *inputFile, const char *chdirPath, const char *const env_list[]);

/* All data of its members: the aggregates that their ranks of number 0 have registered. Waits until it is complete.
 * For gantry_destroyData(); NULL on error: GANTRY_LOST, with the member that has ended before, GANTRY_TIMED_OUT. */
gantry_data_t *gantry_waitMultijob(gantry_multijob_id_t multijob);

/* Its state: a list of one. For gantry_destroyRendezvousList(); NULL on error. */
gantry_rendezvousList_t *gantry_getMultijob(gantry_multijob_id_t multijob);

/* Forgets a multijob; it goes when the last application of it does. 0; 1 on error. */
int gantry_destroyMultijob(gantry_multijob_id_t multijob);

/* ---- co-allocation ---- */

/* One job over several workload managers. Its parts start all or not at all, and are released together: `gantry
 * coalloc --help` explains the description. There may be any number of jobs. The functions for its processes are in
 * gantry_be.h. */
typedef int64_t gantry_job_id_t;

typedef enum {
    GANTRY_SUBJOB_PENDING = 0,    /* its workload manager was asked */
    GANTRY_SUBJOB_ACTIVE = 1,     /* its processes are there, and not all at the barrier */
    GANTRY_SUBJOB_CHECKED_IN = 2, /* all of them wait at the barrier */
    GANTRY_SUBJOB_RELEASED = 3,   /* they run */
    GANTRY_SUBJOB_DONE = 4,       /* it was released and has ended */
    GANTRY_SUBJOB_FAILED = 5      /* it has ended without having been released */
} gantry_subjob_state_t;

/* Requests a job, and does not wait for its parts. All subrequests are checked first: if one is impossible, nothing
 * is started. Sets `*count` to their number and `*results` to an array with 0 or the error's kind
 * (gantry_error_kind_t) for each, for free(); either may be NULL. 0 on error: they are set all the same, as far as
 * the description could be parsed. */
gantry_job_id_t gantry_requestJob(const char *description, int *count, int **results);

/* Adds a subjob to a job that was not released, or takes out the one of that label (or number) and ends it. 0; 1 on error. */
int gantry_addSubjob(gantry_job_id_t job_id, const char *description);
int gantry_deleteSubjob(gantry_job_id_t job_id, const char *label);

/* Releases the barrier: if `wait_for_subjobs` is not 0, as soon as all have checked in; else now, and an incomplete
 * job is cancelled. Waits until every process is released, until the thread's timeout, or without a limit if none
 * is set. 0; 1 on error, also when the job was killed instead. */
int gantry_releaseJob(gantry_job_id_t job_id, int wait_for_subjobs);

/* Ends all subjobs, wherever they stand, and does not wait for their end. 0; 1 on error. */
int gantry_cancelJob(gantry_job_id_t job_id);

/* How the subjobs stand that were not deleted: `*states` is an array of gantry_subjob_state_t, `*labels` one of
 * strings; each array and string for free(). Any of the three may be NULL. 0; 1 on error. */
int gantry_getSubjobStates(gantry_job_id_t job_id, int *count, int **states, char ***labels);

/* A descriptor with a job's events, as from gantry_openEvents: first its state, then every event, one line of JSON
 * each as `gantry coalloc --json` prints them. -1 on error. */
int gantry_openJobEvents(gantry_job_id_t job_id);

/* Waits until all subjobs have ended and nothing of them is left, and sets `*exit_code` (if it is not NULL) to the
 * first code that is not 0. A deadline that was set holds. 0; 1 on error. */
int gantry_waitJob(gantry_job_id_t job_id, int *exit_code);

/* Detaches from a released job, and forgets its id: its processes continue when this tool has ended, without output
 * and without messages between them. 0; 1 on error: then the id stays, and an unreleased job is unchanged. */
int gantry_detachJob(gantry_job_id_t job_id);

/* Ends the rest of a job, waits until nothing is left, and forgets its id. gantry_finalize does this, too. 0; 1 on
 * error. */
int gantry_closeJob(gantry_job_id_t job_id);

/* ---- the end ---- */

/* Deregisters all applications at once, waits until nothing is left of them, and ends the library's threads. Ids
 * are forgotten. The library can be used on. No other call may be under way; one that is fails. 0; 1 on error. */
int gantry_finalize(void);

#ifdef __cplusplus
}
#endif

#endif
