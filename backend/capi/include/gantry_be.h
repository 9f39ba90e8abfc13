/*
 * What gantry has for tool daemons, and for the ranks of co-allocated jobs, beyond the Common Tools Interface. Library: libcommontools_be.
 * Sections: errors; where am I; deadlines; the channel to the tool; rendezvous; co-allocated jobs.
 */
#ifndef GANTRY_BE_H
#define GANTRY_BE_H

#include <stddef.h>
#include <stdint.h>

#include "common_tools_be.h"
#include "gantry_shared.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---- */

/* Why the last call of this thread that failed did so: "FUNCTION: CAUSE". Never NULL; stays until this thread's next error. */
const char *gantry_be_error_str(void);

/* What can be done about it. */
gantry_error_kind_t gantry_be_error_kind(void);

/* ---- where am I ---- */

/* This node's number among those of the application, from 0. -1 on error. */
int gantry_be_getNode(void);

/* How many nodes the application has. -1 on error. */
int gantry_be_getNumNodes(void);

/* How many ranks the application has on all nodes together. -1 on error. */
int gantry_be_getNumPEs(void);

/* ---- deadlines ---- */

/* How long each call of this thread in the sections below may wait from now on, in milliseconds; -1: ten minutes, as at first. A call that is late fails with
 * GANTRY_TIMED_OUT. 0; 1 on error. */
int gantry_be_setDeadline(int64_t milliseconds);

/* What this thread has set, or -1. */
int64_t gantry_be_getDeadline(void);

/* ---- the channel to the tool ---- */

/* For tool daemons, not for ranks. The library has no thread: whoever waits reads the connection for all threads of the process, and any of them may call. Tags
 * tell what belongs together, as the tool likes. */

/* Opens this daemon's end. The calls below do that too; the process keeps it until it ends, a forked child has none. 0; 1 on error. */
int gantry_be_openChannel(void);

/* Who this daemon is on the channel. 0; 1 on error. */
int gantry_be_getMember(gantry_member_t *member);

/* A descriptor for poll(), readable when something has come from the tool or the channel is over. Not to be read from or closed. With a deadline of 0 the
 * calls that receive take in what has come, and fail with GANTRY_TIMED_OUT when that is nothing for them: poll only after they have. -1 on error. */
int gantry_be_getChannelFd(void);

/* The next message with this tag. Waits for it. For gantry_be_destroyData(); NULL on error: GANTRY_TIMED_OUT, after which what has come of it is kept;
 * GANTRY_LOST when the channel is over. */
gantry_data_t *gantry_be_receive(uint32_t tag);

/* As gantry_be_receive, whatever the tag; it is in what this gives. */
gantry_data_t *gantry_be_receiveAny(void);

/* Frees what came. */
void gantry_be_destroyData(gantry_data_t *data);

/* Sends a message to the tool unasked, of 128 KiB at most. Waits while 256 KiB of this daemon's messages wait for the tool. 0; 1 on error. */
int gantry_be_send(uint32_t tag, const void *bytes, size_t size);

/* Contributes to the tool's next gather or reduction with this tag to which this daemon has not yet contributed, 64 MiB at most. Up to 64 KiB wait for nobody;
 * of more the rest is sent when the tool asks for it. 0, also when the operation is over before; 1 on error. */
int gantry_be_contribute(uint32_t tag, const void *bytes, size_t size);

/* As gantry_be_contribute, for the filters `sum`, `min` and `max`: vectors of one length from all daemons. A sum of reals is exact and rounded once. */
int gantry_be_contributeIntegers(uint32_t tag, const int64_t *values, int count);
int gantry_be_contributeReals(uint32_t tag, const double *values, int count);

/* As gantry_be_contribute, for the filter `ranks`: a set of ranks. */
int gantry_be_contributeRanks(uint32_t tag, const int *ranks, int count);

/* As gantry_be_contribute, for the filter `keys`: what each of `count` ranks says; ranks that say the same are put together. */
int gantry_be_contributeKeys(uint32_t tag, const char *const keys[], const int *ranks, int count);

/* Where a rank is: the functions from the outermost to the innermost, with a NULL at the end. */
typedef struct {
    int rank;
    const char *const *frames;
} gantry_be_stack_t;

/* As gantry_be_contribute, for the filter `stacks`: call paths, which become one tree. */
int gantry_be_contributeStacks(uint32_t tag, const gantry_be_stack_t *stacks, int count);

/* Merges contributions and results of this node and those below it for reductions by the tool's own filter of that name, until the channel is over: best on a
 * thread of its own. `merge` is called on this thread only. Where no daemon of a node serves the filter, or `merge` fails, parts go on as they are, at last to
 * the tool. 0 when the session has ended; 1 on error. */
int gantry_be_serveFilter(const char *name, gantry_merge_t merge, void *context);

/* ---- rendezvous ---- */

/* For ranks, and for all who know a handle. A handle is text, `serviceURL?resourceID`, good on its node; NULL is the one of all ranks of the application, which
 * stands in the environment of ranks, and of their daemons, under the first of these names. The second one is above the application where it is part of
 * a multijob, of which it has the number under the third. The same stands under the names of GT4: GLOBUS_GRAM_JOB_HANDLE and so on. */
#define GANTRY_JOB_HANDLE_ENV_VAR "GANTRY_JOB_HANDLE"
#define GANTRY_MULTIJOB_HANDLE_ENV_VAR "GANTRY_MULTIJOB_HANDLE"
#define GANTRY_SUBJOB_RANK_ENV_VAR "GANTRY_SUBJOB_RANK"

/* Registers what this rank has, any bytes up to 16 MiB, once. Waits until it is registered. Above applications rank 0 registers all that gantry_be_getAll of the
 * level below has given it. 0; 1 on error: GANTRY_INVALID for a second time, GANTRY_NO_ACCESS for who is no rank, GANTRY_LOST where somebody has ended before. */
int gantry_be_register(const char *handle, const void *bytes, size_t size);

/* All that has been registered, in the form of GT4: gantry_be_findItem finds its way there. Waits until it is complete. For gantry_be_destroyData(); NULL on
 * error: GANTRY_LOST, with who has ended before, GANTRY_TIMED_OUT. */
gantry_data_t *gantry_be_getAll(const char *handle);

/* What one rank, or one application, has registered. Waits for that one only, and carries nobody else's. For gantry_be_destroyData(); NULL on error. */
gantry_data_t *gantry_be_getItem(const char *handle, uint32_t member);

/* Waits until all have registered, and takes no data. 0; 1 on error. */
int gantry_be_waitComplete(const char *handle);

/* A descriptor for poll(), readable once all have registered or that will never be: then the calls above answer at once. Yours to close(). -1 on error. */
int gantry_be_openRendezvous(const char *handle);

/* One that the ranks of this application make themselves: the first who asks makes it, for the first `expected` ranks; with another number later it is an error,
 * and with 0 it must be there. The name has 1 to 64 letters, digits, `.`, `_` and `-`. `handle` is of any rendezvous of the application. Its handle for free();
 * NULL on error. */
char *gantry_be_createRendezvous(const char *handle, const char *name, uint32_t expected);

/* How it stands: a list of one. For gantry_be_destroyRendezvousList(); NULL on error. */
gantry_rendezvousList_t *gantry_be_getRendezvous(const char *handle);

/* How all stand that this node knows: that of all ranks, those with names, those above. For gantry_be_destroyRendezvousList(); NULL on error. */
gantry_rendezvousList_t *gantry_be_listRendezvous(const char *handle);

/* Frees a list. */
void gantry_be_destroyRendezvousList(gantry_rendezvousList_t *list);

/* Finds an item in what gantry_be_getAll has given, without a copy: of one application the way is the rank; of a multijob the application's number and the rank;
 * so there are as many steps as levels. 0; 1 on error. */
int gantry_be_findItem(const void *bytes, size_t size, const uint32_t *way, int steps, const unsigned char **item, size_t *itemSize);

/* ---- co-allocated jobs ---- */

/* For ranks, not for tool daemons: one job over several workload managers (gantry_requestJob in gantry.h, `gantry coalloc`). Calls may be made by any thread at any time. While one waits
 * it takes what comes and keeps it by tag; the library starts no thread. A deadline that was set holds; without
 * one they wait as long as it takes. A rank that gantry has started without such a job is a job by itself. */

/* To be called before anything that could not be undone. Returns 0 when all processes of all subjobs are there and the job was released; 1 on error: if the job was killed, leave. A program
 * that takes this call from the library waits here; others are held before their first instruction (attribute barrierPoint). */
int gantry_be_barrier(void);

/* This process's rank in its subjob, and how many ranks that has. -1 on error. */
int gantry_be_getRank(void);
int gantry_be_getSize(void);

/* The subjobs that exchange messages: this one's number, how many there are, and how many ranks each has, an array for free(). Any of the three may be NULL. Waits until all of them are
 * there. 0; 1 on error, also in a subjob that takes no part (subjobCommsType=independent). */
int gantry_be_getSubjobs(int *index, int *count, int **sizes);

/* Sends a message of any size to rank 0 of a subjob, or to a rank of this one, and waits until it is on its way; it arrives also if this process ends then. Tags have at most 255
 * bytes; those of subjobs are others than those of ranks. 0; 1 on error. */
int gantry_be_sendToSubjob(int subjob, const char *tag, const void *message, size_t size);
int gantry_be_sendToRank(int rank, const char *tag, const void *message, size_t size);

/* Takes the next message with that tag that another subjob, or a rank of this one, has sent to this rank, and waits until there is one. Sets `*message` for free() (a zero byte follows
 * it), `*size`, and who has sent it; each of them may be NULL. 0; 1 on error: the deadline has passed, or all other subjobs have ended. */
int gantry_be_receiveFromSubjobs(const char *tag, void **message, size_t *size, int *subjob);
int gantry_be_receiveFromRanks(const char *tag, void **message, size_t *size, int *rank);

/* How processes find each other. These are for all ranks of all subjobs that exchange messages, in the same order. Lists end with NULL; they and each string of them are for free(). Places
 * for results may be NULL. 0; 1 on error. */

/* Gives every process what rank 0 of each subjob says, by the subjob's number; what other ranks say is not looked at. */
int gantry_be_exchange(const char *said, int *index, int *count, char ***all);

/* Gives the job's first process all start points (whatever a process wants others to know of it), subjob after subjob, rank after rank; all others get 0 and NULL. In the second
 * form each subjob chooses its place in the order, from 0, each taken by one; the master is rank 0 of the first. */
int gantry_be_masterVector(const char *start, int *count, char ***all);
int gantry_be_orderedMasterVector(const char *start, int place, int *count, char ***all);

#ifdef __cplusplus
}
#endif

#endif
