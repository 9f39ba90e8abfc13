/*
 * Functions of gantry for tool daemons, and for the ranks of co-allocated jobs, beyond the Common Tools Interface.
 * Library: libcommontools_be.
 * Sections: errors; the daemon's node; timeouts; the channel to the tool; rendezvous; co-allocated jobs.
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

/* Why the last call of this thread that failed did so: "FUNCTION: CAUSE". Never NULL. It stays valid after the thread's
 * next error and after its end, until the library has given a thousand other texts. */
const char *gantry_be_error_str(void);

/* The kind of the error, by its remedy. */
gantry_error_kind_t gantry_be_error_kind(void);

/* ---- where am I ---- */

/* This node's number among those of the application, from 0. -1 on error. */
int gantry_be_getNode(void);

/* How many nodes the application has. -1 on error. */
int gantry_be_getNumNodes(void);

/* How many ranks the application has on all nodes together. -1 on error. */
int gantry_be_getNumPEs(void);

/* ---- deadlines ---- */

/* How long each call of this thread in the sections below may wait from now on, in milliseconds; -1: ten minutes,
 * as at first. A call that is late fails with GANTRY_TIMED_OUT. 0; 1 on error. */
int gantry_be_setDeadline(int64_t milliseconds);

/* The timeout that this thread has set, or -1. */
int64_t gantry_be_getDeadline(void);

/* ---- the channel to the tool ---- */

/* For tool daemons, not for ranks. The library has no thread: a waiting call reads the connection for all threads
 * of the process. Any thread may call. Tags group messages; the tool chooses them. */

/* Opens this daemon's end. The calls below do that too; the process keeps it until it ends, a forked child has none. 0; 1 on error. */
int gantry_be_openChannel(void);

/* This daemon's member number and node on the channel. 0; 1 on error. */
int gantry_be_getMember(gantry_member_t *member);

/* A descriptor for poll(), readable when data has come from the tool or the channel is over. Do not read or close
 * it. With a timeout of 0 the receiving calls process arrived data, and fail with GANTRY_TIMED_OUT when it contains
 * no message for them: poll only after such a call. -1 on error. */
int gantry_be_getChannelFd(void);

/* The next message with this tag. Waits for it. For gantry_be_destroyData(); NULL on error: GANTRY_TIMED_OUT, and a
 * partial message is kept; GANTRY_LOST when the channel is over. */
gantry_data_t *gantry_be_receive(uint32_t tag);

/* As gantry_be_receive, for any tag; the result contains the tag. */
gantry_data_t *gantry_be_receiveAny(void);

/* Frees received data. */
void gantry_be_destroyData(gantry_data_t *data);

/* Sends a message to the tool unasked, of 128 KiB at most. Waits while 256 KiB of this daemon's messages wait for the tool. 0; 1 on error. */
int gantry_be_send(uint32_t tag, const void *bytes, size_t size);

/* Contributes to the tool's next gather or reduction with this tag to which this daemon has not yet contributed, 64
 * MiB at most. Up to 64 KiB are sent at once; the rest is sent when the tool asks for it. Returns 0, even if the
 * operation is over already; 1 on error. */
int gantry_be_contribute(uint32_t tag, const void *bytes, size_t size);

/* As gantry_be_contribute, for the filters `sum`, `min` and `max`: vectors of one length from all daemons. A sum of reals is exact and rounded once. */
int gantry_be_contributeIntegers(uint32_t tag, const int64_t *values, int count);
int gantry_be_contributeReals(uint32_t tag, const double *values, int count);

/* As gantry_be_contribute, for the filter `ranks`: a set of ranks. */
int gantry_be_contributeRanks(uint32_t tag, const int *ranks, int count);

/* As gantry_be_contribute, for the filter `keys`: a key for each of `count` ranks; ranks with equal keys are grouped. */
int gantry_be_contributeKeys(uint32_t tag, const char *const keys[], const int *ranks, int count);

/* Where a rank is: the functions from the outermost to the innermost, with a NULL at the end. */
typedef struct {
    int rank;
    const char *const *frames;
} gantry_be_stack_t;

/* As gantry_be_contribute, for the filter `stacks`: call paths, which become one tree. */
int gantry_be_contributeStacks(uint32_t tag, const gantry_be_stack_t *stacks, int count);

/* Merges contributions and results of this node and those below it for reductions by the tool's own filter of that
 * name, until the channel is over: best on a thread of its own. `merge` is called on this thread only. If no daemon
 * of a node serves the filter, or `merge` fails, parts are passed on unmerged, in the end to the tool. 0 when the
 * session has ended; 1 on error. */
int gantry_be_serveFilter(const char *name, gantry_merge_t merge, void *context);

/* ---- rendezvous ---- */

/* For ranks, and for all processes with a handle. A handle is text, `serviceURL?resourceID`, valid on its node;
 * NULL is the rendezvous of all ranks of the application. Its handle is in the environment of ranks and of their
 * daemons, under the first of these names. The second name has that of the multijob, if the application is part of
 * one; the third has the application's number in it. The names of GT4 have the same values: GLOBUS_GRAM_JOB_HANDLE
 * and so on. */
#define GANTRY_JOB_HANDLE_ENV_VAR "GANTRY_JOB_HANDLE"
#define GANTRY_MULTIJOB_HANDLE_ENV_VAR "GANTRY_MULTIJOB_HANDLE"
#define GANTRY_SUBJOB_RANK_ENV_VAR "GANTRY_SUBJOB_RANK"

/* Registers this rank's data, any bytes up to 16 MiB, once. Waits until it is registered. Above applications rank 0
 * registers the result of gantry_be_getAll of the level below. 0; 1 on error: GANTRY_INVALID for a second time,
 * GANTRY_NO_ACCESS for a process that is not a rank, GANTRY_LOST when a member has ended before. */
int gantry_be_register(const char *handle, const void *bytes, size_t size);

/* All registered data, in the format of GT4: gantry_be_findItem finds items in it. Waits until it is complete. For
 * gantry_be_destroyData(); NULL on error: GANTRY_LOST, with the member that has ended before, GANTRY_TIMED_OUT. */
gantry_data_t *gantry_be_getAll(const char *handle);

/* The data of one rank or one application. Waits for that member only, and transfers only its data. For
 * gantry_be_destroyData(); NULL on error. */
gantry_data_t *gantry_be_getItem(const char *handle, uint32_t member);

/* Waits until all have registered, and takes no data. 0; 1 on error. */
int gantry_be_waitComplete(const char *handle);

/* A descriptor for poll(), readable once all have registered or that will never be: then the calls above answer at once. Yours to close(). -1 on error. */
int gantry_be_openRendezvous(const char *handle);

/* A rendezvous that the ranks of this application create: the first call creates it, for the first `expected`
 * ranks. A later call with another number is an error, and with 0 it must exist. The name has 1 to 64 letters,
 * digits, `.`, `_` and `-`. `handle` is of any rendezvous of the application. Returns its handle for free(); NULL
 * on error. */
char *gantry_be_createRendezvous(const char *handle, const char *name, uint32_t expected);

/* Its state: a list of one. For gantry_be_destroyRendezvousList(); NULL on error. */
gantry_rendezvousList_t *gantry_be_getRendezvous(const char *handle);

/* The states of all rendezvous that this node knows: that of all ranks, the named ones, those above. For
 * gantry_be_destroyRendezvousList(); NULL on error. */
gantry_rendezvousList_t *gantry_be_listRendezvous(const char *handle);

/* Frees a list. */
void gantry_be_destroyRendezvousList(gantry_rendezvousList_t *list);

/* Finds an item in the result of gantry_be_getAll, without a copy. For one application the path is the rank; for a
 * multijob the application's number and the rank; so there are as many steps as levels. 0; 1 on error. */
int gantry_be_findItem(const void *bytes, size_t size, const uint32_t *way, int steps, const unsigned char **item, size_t *itemSize);

/* ---- co-allocated jobs ---- */

/* For ranks, not for tool daemons: one job over several workload managers (gantry_requestJob in gantry.h, `gantry
 * coalloc`). Any thread may call at any time. A waiting call receives all messages and keeps them by tag; the
 * library starts no thread. Calls use the thread's timeout if one was set; otherwise they wait without a limit. A
 * rank that gantry has started without such a job is a job by itself. */

/* Call this before any action that cannot be undone. Returns 0 when all processes of all subjobs are there and the
 * job was released; 1 on error: if the job was killed, exit. A program that imports this call from the library
 * waits here; others are held before their first instruction (attribute barrierPoint). */
int gantry_be_barrier(void);

/* This process's rank in its subjob, and how many ranks that has. -1 on error. */
int gantry_be_getRank(void);
int gantry_be_getSize(void);

/* The subjobs that exchange messages: this one's number, how many there are, and how many ranks each has, an array
 * for free(). Any of the three may be NULL. Waits until all of them are there. 0; 1 on error, also in a subjob that
 * takes no part (subjobCommsType=independent). */
int gantry_be_getSubjobs(int *index, int *count, int **sizes);

/* Sends a message of any size to rank 0 of a subjob, or to a rank of this one, and waits until it is in transit; it
 * then arrives even if this process ends. Tags have at most 255 bytes; tags of subjobs are separate from those of
 * ranks. 0; 1 on error. */
int gantry_be_sendToSubjob(int subjob, const char *tag, const void *message, size_t size);
int gantry_be_sendToRank(int rank, const char *tag, const void *message, size_t size);

/* Takes the next message with that tag from another subjob, or from a rank of this one, and waits until there is
 * one. Sets `*message` for free() (a zero byte follows it), `*size`, and the sender; each of them may be NULL. 0; 1
 * on error: the timeout has expired, or all other subjobs have ended. */
int gantry_be_receiveFromSubjobs(const char *tag, void **message, size_t *size, int *subjob);
int gantry_be_receiveFromRanks(const char *tag, void **message, size_t *size, int *rank);

/* How processes find each other. These are for all ranks of all subjobs that exchange messages, in the same order.
 * Lists end with NULL; they and each string of them are for free(). Places for results may be NULL. 0; 1 on error. */

/* Gives every process the text of rank 0 of each subjob, by the subjob's number; the texts of other ranks are
 * ignored. */
int gantry_be_exchange(const char *said, int *index, int *count, char ***all);

/* Gives the job's first process all start points (any data about a process for the others), subjob after subjob,
 * rank after rank; all other processes get 0 and NULL. In the second form each subjob chooses a unique place in the
 * order, from 0; the master is rank 0 of the first. */
int gantry_be_masterVector(const char *start, int *count, char ***all);
int gantry_be_orderedMasterVector(const char *start, int place, int *count, char ***all);

#ifdef __cplusplus
}
#endif

#endif
