/*
 * For tools in C and C++: launch a parallel application, optionally held before its first instruction; see where
 * its ranks are; put files and tool daemons next to them; release it.
 * Library: libcommontools_fe; compile and link with the output of `pkg-config --cflags --libs common_tools_fe`.
 *
 * Threads: every function may be called from any thread at any time. Calls for one application do not wait for
 * those of another one.
 * Errors: every function returns its value for errors; cti_error_str then tells the calling thread the cause.
 * Ids: numbers from 1 up; an id is never used again. 0 is no id. An unknown or expired id is an error and does no
 * harm.
 * Memory: strings and lists of strings are from malloc and yours to free(), each string and then the list; lists
 * with a function to destroy them need that function. Never free() a `const char *`.
 * Waiting: launches and attaching wait as long as the workload manager lets them; everything else for at most ten
 * minutes. gantry_setDeadline in gantry.h changes that.
 * Signals: the library installs no handler, and does not change your threads' signal masks. Its own threads block
 * all signals.
 * fork: a child has a library without any of its parent's applications, and may launch its own. A child that
 * neither executes a program nor ends keeps its parent's connections open. So the remains of its parent are then
 * cleaned up only when the child has ended.
 * exit: applications that were launched and not released by cti_releaseApp end with the process, however it ends;
 * sessions are removed. The exit does not wait for that; gantry_finalize in gantry.h does. The library stays in
 * memory until then: dlclose does not take it away.
 */
#ifndef _COMMON_TOOLS_FE_H
#define _COMMON_TOOLS_FE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common_tools_shared.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- types ---- */

typedef int64_t cti_app_id_t;      /* an application */
typedef int64_t cti_session_id_t;  /* a storage place on all nodes of an application */
typedef int64_t cti_manifest_id_t; /* what is to be put there */

/* What can be set with cti_setAttribute. */
typedef enum {
    CTI_ATTR_STAGE_DEPENDENCIES = 0, /* "1": binaries and libraries bring what they need; "0": they do not. Default: "1" */
    CTI_LOG_DIR = 1,                 /* a directory for logs. Default: the variable CTI_LOG_DIR, or "", which is /tmp, for daemons on their nodes */
    CTI_DEBUG = 2,                   /* "1": logs are written, also of tool daemons' output. Default: "1" if the variable CTI_DEBUG is set */
    CTI_PMI_FOPEN_TIMEOUT = 3,       /* seconds, given to daemons in their environment. Default: "60" */
    CTI_EXTRA_SLEEP = 4              /* seconds, given to daemons in their environment. Default: "0" */
} cti_attr_type_t;

/* A node, and how many ranks it has. */
typedef struct {
    char *hostname;
    int numPes;
} cti_host_t;

/* The nodes of an application. */
typedef struct {
    int numHosts;
    cti_host_t *hosts;
} cti_hostsList_t;

/* The programs of an application, in alphabetical order with NULL behind the last; and for every rank the number of its program, with -1 behind the last. */
typedef struct {
    char **binaries;
    int *rankMap;
} cti_binaryList_t;

typedef enum {
    CTI_SYMBOLS_YES = 0,
    CTI_SYMBOLS_NO = 1,
    CTI_SYMBOLS_ERROR = 2
} cti_symbol_result_t;

typedef enum {
    CTI_SYMBOLS_ALL = 0, /* are all of them defined? */
    CTI_SYMBOLS_ANY = 1  /* is one of them defined? */
} cti_symbol_query_t;

/* ---- the library ---- */

/* The version of the interface that this library follows: CTI_FE_VERSION. */
const char *cti_version(void);

/* The cause of this thread's last failed call: "FUNCTION: CAUSE (REMEDY)". Never NULL. It stays valid after the
 * thread's next error and after its end, until the library has given a thousand other texts. */
const char *cti_error_str(void);

/* Copies that into a buffer, cut where it does not fit. 0; ERANGE if there is no room for anything. */
int cti_error_str_r(char *buf, size_t buf_len);

/* The workload manager in use. CTI_WLM_NONE on error. */
cti_wlm_type_t cti_current_wlm(void);

/* The name of a workload manager. */
const char *cti_wlm_type_toString(cti_wlm_type_t wlm_type);

/* An address of this machine that other systems can connect to: the variable CTI_HOST_ADDRESS, else the first of
 * those that gantry's agents are offered (that of the default route; IPv4 before IPv6), else the host name. For free();
 * NULL on error. */
char *cti_getHostname(void);

/* Sets an attribute. 0; 1 on error. */
int cti_setAttribute(cti_attr_type_t attrib, const char *value);

/* An attribute's value; it stays until this thread asks for the same attribute again. NULL on error. */
const char *cti_getAttribute(cti_attr_type_t attrib);

/* ---- applications ---- */

/* Launches. `launcher_argv`: the launcher's arguments, without its own name, NULL at the end. `stdout_fd`,
 * `stderr_fd`: destination of the output; -1: that of this process. `inputFile`: standard input of rank 0; NULL:
 * nothing. `chdirPath`: the ranks' directory; NULL: the current one. `env_list`: "NAME=VALUE" for ranks, NULL at
 * the end; NULL: none. Descriptors stay yours. 0 on error. */
cti_app_id_t cti_launchApp(const char * const launcher_argv[], int stdout_fd, int stderr_fd, const char *inputFile,
                           const char *chdirPath, const char * const env_list[]);

/* As cti_launchApp; the standard input of rank 0 is a descriptor. -1: nothing. */
cti_app_id_t cti_launchApp_fd(const char * const launcher_argv[], int stdout_fd, int stderr_fd, int stdin_fd,
                              const char *chdirPath, const char * const env_list[]);

/* As cti_launchApp; every rank is stopped before its first instruction until cti_releaseAppBarrier. */
cti_app_id_t cti_launchAppBarrier(const char * const launcher_argv[], int stdout_fd, int stderr_fd, const char *inputFile,
                                  const char *chdirPath, const char * const env_list[]);

/* As cti_launchAppBarrier; the standard input of rank 0 is a descriptor. -1: nothing. */
cti_app_id_t cti_launchAppBarrier_fd(const char * const launcher_argv[], int stdout_fd, int stderr_fd, int stdin_fd,
                                     const char *chdirPath, const char * const env_list[]);

/* Lets held ranks go. 0; 1 on error, as for an application that is not held any more. */
int cti_releaseAppBarrier(cti_app_id_t app_id);

/* Sends a signal to all ranks. 0; 1 on error: signal 0 is none (ask cti_appIsValid), and a held application takes SIGKILL only. */
int cti_killApp(cti_app_id_t app_id, int signum);

/* 1: the application is known and has not ended. 0: it has; its id is forgotten then. */
int cti_appIsValid(cti_app_id_t app_id);

/* Forgets an application: its daemons end, its sessions are removed. One that was launched ends; one that was attached to is left as it was found. */
void cti_deregisterApp(cti_app_id_t app_id);

/* Forgets an application, which continues without this process; daemons and sessions stay until it ends. 0; 1 on
 * error. */
int cti_releaseApp(cti_app_id_t app_id);

/* No workload manager of gantry's has it: NULL. */
char *cti_getLauncherHostName(cti_app_id_t app_id);

/* How many ranks; 0 on error. */
int cti_getNumAppPEs(cti_app_id_t app_id);

/* How many nodes; 0 on error. */
int cti_getNumAppNodes(cti_app_id_t app_id);

/* The names of the nodes. NULL on error. */
char **cti_getAppHostsList(cti_app_id_t app_id);

/* The nodes and how many ranks each has. For cti_destroyHostsList; NULL on error. */
cti_hostsList_t *cti_getAppHostsPlacement(cti_app_id_t app_id);

/* Frees such a list. NULL is allowed; a list that was freed before is an error and does no harm. */
void cti_destroyHostsList(cti_hostsList_t *placement_list);

/* Which rank runs which program. For cti_destroyBinaryList; NULL on error. */
cti_binaryList_t *cti_getAppBinaryList(cti_app_id_t app_id);

/* Frees such a list, as cti_destroyHostsList. */
void cti_destroyBinaryList(cti_binaryList_t *binary_list);

/* ---- sessions: a private storage place on every node, which goes with the application ---- */

/* Makes one. 0 on error. */
cti_session_id_t cti_createSession(cti_app_id_t app_id);

/* 1: it is there. */
int cti_sessionIsValid(cti_session_id_t sid);

/* Ends all its daemons (SIGTERM; SIGKILL after ten seconds), removes its storage, and waits for both. 0; 1 on error:
 * the session stays valid, with daemons that are being ended and for no new ones. Call this again to wait for the rest. */
int cti_destroySession(cti_session_id_t sid);

/* For every shipped manifest the path of something that came with it. All of the manifest is on every node by then:
 * cti_sendManifest and cti_execToolDaemon wait for it. NULL on error, and when there is none yet. */
char **cti_getSessionLockFiles(cti_session_id_t sid);

/* Directories of the session, with the same path on every node of the application: root, programs, libraries, files
 * (the root), the daemons' own. Daemons can be given them as arguments. NULL on error. */
char *cti_getSessionRootDir(cti_session_id_t sid);
char *cti_getSessionBinDir(cti_session_id_t sid);
char *cti_getSessionLibDir(cti_session_id_t sid);
char *cti_getSessionFileDir(cti_session_id_t sid);
char *cti_getSessionTmpDir(cti_session_id_t sid);

/* ---- manifests: files for a session ---- */

/* Makes an empty one. 0 on error. */
cti_manifest_id_t cti_createManifest(cti_session_id_t sid);

/* 1: it is there and was not shipped. */
int cti_manifestIsValid(cti_manifest_id_t mid);

/* Adds a program, a path or a name in PATH, to the session's programs. 0; 1 on error, as are two different ones of one name. */
int cti_addManifestBinary(cti_manifest_id_t mid, const char *fstr);

/* Adds a library, a path or a name for the loader's search, to the session's libraries. 0; 1 on error. */
int cti_addManifestLibrary(cti_manifest_id_t mid, const char *fstr);

/* Adds a directory with all files in it, hidden ones too, to the session's libraries. Empty directories are left out. 0; 1 on error. */
int cti_addManifestLibDir(cti_manifest_id_t mid, const char *fstr);

/* Adds a file to the session's root. 0; 1 on error. */
int cti_addManifestFile(cti_manifest_id_t mid, const char *fstr);

/* Ships it, and waits until every node has it. The id is forgotten. 0; 1 on error. */
int cti_sendManifest(cti_manifest_id_t mid);

/* Ships it with a tool daemon, starts that on every node, and waits until it runs on all of them. `fstr`: as for
 * cti_addManifestBinary. `args`: its arguments without its name, `env`: "NAME=VALUE", both with NULL at the end, or
 * NULL. Daemons do not get the tool's own LD_PRELOAD. The id is forgotten. 0; 1 on error: it runs nowhere then. */
int cti_execToolDaemon(cti_manifest_id_t mid, const char *fstr, const char * const args[], const char * const env[]);

/* ---- programs ---- */

/* Whether an executable defines symbols. `symbols` has NULL at its end. */
cti_symbol_result_t cti_containsSymbols(char const *binary_path, char const * const *symbols, cti_symbol_query_t query);

/* ---- functions of single workload managers ---- */

/* Sets `*ops` to the table of the workload manager in use, which is not to be freed, and returns its type.
 * On error CTI_WLM_NONE, and `*ops` is NULL. */
cti_wlm_type_t cti_open_ops(void **ops);

typedef struct {
    uint64_t apid;
    pid_t aprunPid;
} cti_aprunProc_t;

typedef struct {
    uint32_t jobid;
    uint32_t stepid;
} cti_srunProc_t;

/* Functions of a table answer 0 or NULL on error; structures and strings that they give are for free(). */

typedef struct {
    cti_app_id_t (*registerApid)(uint64_t apid);
    uint64_t (*getApid)(pid_t aprunPid);
    cti_aprunProc_t *(*getAprunInfo)(cti_app_id_t appId);
    int (*getAlpsOverlapOrdinal)(cti_app_id_t appId);
} cti_alps_ops_t;

typedef struct {
    /* The job step of a running srun. */
    cti_srunProc_t *(*getJobInfo)(pid_t srunPid);
    /* Attaches to a step. */
    cti_app_id_t (*registerJobStep)(uint32_t job_id, uint32_t step_id);
    /* The job step of an application. */
    cti_srunProc_t *(*getSrunInfo)(cti_app_id_t appId);
    /* Submits a script and waits until the ranks of its first step are there, held: registerJobStep attaches to them,
     * cti_releaseAppBarrier lets them go. The script finds srun by its name; one that names it by a path is not held.
     * gantry must be installed where the nodes see it. After an error gantry cancels the job, soon after the call; if it
     * knows that it cannot, the error says so. After a success the job stays, even if the tool ends: attach to it, or
     * cancel it. */
    cti_srunProc_t *(*submitBatchScript)(char const *script_path, char const * const *sbatch_args, char const * const *env_list);
    /* Attaches to a step, and waits until it is there; 0 seconds: for as long as it takes. */
    cti_app_id_t (*registerJobStepWait)(uint32_t job_id, uint32_t step_id, uint32_t timeout_sec);
} cti_slurm_ops_t;

typedef struct {
    char *(*getApid)(pid_t craycliPid);
    cti_app_id_t (*registerApid)(char const *job_or_apid);
    char *(*submitJobScript)(char const *script_path, char const * const *launcher_args, char const * const *env_list);
    cti_app_id_t (*launchAppBarrierNonMpi)(const char * const launcher_argv[], int stdout_fd, int stderr_fd, const char *inputFile,
                                           const char *chdirPath, const char * const env_list[]);
    cti_app_id_t (*registerApidWait)(char const *job_or_apid, uint32_t timeout_sec);
} cti_pals_ops_t;

typedef struct {
    /* Attaches to the ranks of a launcher on this machine. */
    cti_app_id_t (*registerJob)(pid_t launcher_pid);
    /* Attaches to the ranks of a launcher on another one. */
    cti_app_id_t (*registerRemoteJob)(char const *hostname, pid_t launcher_pid);
    /* As registerJob. */
    cti_app_id_t (*registerLauncherPid)(pid_t launcher_pid);
} cti_ssh_ops_t;

typedef struct {
    cti_app_id_t (*registerJob)(char const *job_id);
    char *(*getJobid)(pid_t fluxAttachPid);
    cti_app_id_t (*registerJobWait)(char const *job_id, uint32_t timeout_sec);
} cti_flux_ops_t;

typedef struct {
    /* Attaches to processes of this machine: "PID.NAME", those with that name below a process; or "PID,PID,..." or the
     * pid of a launcher. */
    cti_app_id_t (*registerJob)(char const *job_id);
} cti_localhost_ops_t;

/* gantry's own. */
typedef struct {
    /* Attaches to a job. */
    cti_app_id_t (*registerJob)(char const *job_id);
    /* Attaches to a job, and waits until it is there; 0 seconds: for as long as it takes. */
    cti_app_id_t (*registerJobWait)(char const *job_id, uint32_t timeout_sec);
    /* The job of an application. */
    char *(*getJobId)(cti_app_id_t app_id);
} cti_pbs_ops_t;

#ifdef __cplusplus
}
#endif

#endif
