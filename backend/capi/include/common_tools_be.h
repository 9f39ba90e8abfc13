/*
 * For tool daemons in C and C++: the daemon's node, the application's processes on it, and the daemon's files.
 * Library: libcommontools_be; compile and link with the output of `pkg-config --cflags --libs common_tools_be`.
 *
 * A daemon is a program that cti_execToolDaemon has started. In any other process calls return their value for
 * errors.
 * The first call that needs it connects to the node's agent. It waits for at most 30 s, and so does every later
 * call.
 * Calls may be made from any thread. Returned memory is from malloc: free strings with free(), and lists with the
 * function that is named with them. gantry_be_error_str in gantry_be.h returns the cause of an error.
 */
#ifndef _COMMON_TOOLS_BE_H
#define _COMMON_TOOLS_BE_H

#include <sys/types.h>

#include "common_tools_shared.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A process of the application on this node, and its rank. */
typedef struct {
    pid_t pid;
    int rank;
} cti_rankPidPair_t;

/* The processes of the application on this node. */
typedef struct {
    int numPids;
    cti_rankPidPair_t *pids;
} cti_pidList_t;

/* The version of the interface that this library follows: CTI_BE_VERSION. Not to be freed. */
const char *cti_be_version(void);

/* The workload manager of the application. CTI_WLM_NONE: this is no tool daemon, or its agent is gone. */
cti_wlm_type_t cti_be_current_wlm(void);

/* The name of a workload manager. Not to be freed. */
const char *cti_be_wlm_type_toString(cti_wlm_type_t wlm_type);

/* The id of the application, the same in the daemons' environment on the frontend and on every node. For free();
 * NULL on error. */
char *cti_be_getAppId(void);

/* The processes that live now, in the order of their ranks. For cti_be_destroyPidList; NULL on error. */
cti_pidList_t *cti_be_findAppPids(void);

/* Frees a list of cti_be_findAppPids. NULL is fine; a list that was freed before is left alone. */
void cti_be_destroyPidList(cti_pidList_t *pid_list);

/* This node's name as the workload manager knows it. For free(); NULL on error. */
char *cti_be_getNodeHostname(void);

/* The lowest rank of this node. Ranks of a node need not follow one another: cti_be_findAppPids has them all. -1 on error, and without ranks here. */
int cti_be_getNodeFirstPE(void);

/* How many ranks this node has, with those that have ended. -1 on error. */
int cti_be_getNodePEs(void);

/* Directories of the daemon's session on this node: its root, programs, libraries, files, and a directory for the
 * daemon's output. All are removed with the session. For free(); NULL on error. */
char *cti_be_getRootDir(void);
char *cti_be_getBinDir(void);
char *cti_be_getLibDir(void);
char *cti_be_getFileDir(void);
char *cti_be_getTmpDir(void);

#ifdef __cplusplus
}
#endif

#endif
