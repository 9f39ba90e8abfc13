/* The stable ABI, written out a second time: every value, every layout, every signature. This file only has to
 * compile. */
#include <stddef.h>

#include "common_tools_be.h"
#include "common_tools_fe.h"

#define SAME(one, other) _Static_assert((one) == (other), #one)
#define OFFSET(type, field, at) SAME(offsetof(type, field), at)

SAME(CTI_WLM_NONE, 0);
SAME(CTI_WLM_MOCK, 1);
SAME(CTI_WLM_SLURM, 2);
SAME(CTI_WLM_SSH, 3);
SAME(CTI_WLM_ALPS, 4);
SAME(CTI_WLM_PALS, 5);
SAME(CTI_WLM_FLUX, 6);
SAME(CTI_WLM_LOCALHOST, 7);
SAME(CTI_WLM_PBS, 8);
SAME(CTI_ATTR_STAGE_DEPENDENCIES, 0);
SAME(CTI_LOG_DIR, 1);
SAME(CTI_DEBUG, 2);
SAME(CTI_PMI_FOPEN_TIMEOUT, 3);
SAME(CTI_EXTRA_SLEEP, 4);
SAME(CTI_SYMBOLS_YES, 0);
SAME(CTI_SYMBOLS_NO, 1);
SAME(CTI_SYMBOLS_ERROR, 2);
SAME(CTI_SYMBOLS_ALL, 0);
SAME(CTI_SYMBOLS_ANY, 1);
SAME(CTI_FE_CURRENT - CTI_FE_AGE, 2);
SAME(CTI_BE_CURRENT - CTI_BE_AGE, 2);

SAME(sizeof(cti_app_id_t), 8);
SAME(sizeof(cti_session_id_t), 8);
SAME(sizeof(cti_manifest_id_t), 8);
SAME(sizeof(cti_wlm_type_t), sizeof(int));
OFFSET(cti_host_t, numPes, sizeof(char *));
OFFSET(cti_hostsList_t, hosts, sizeof(char *));
OFFSET(cti_binaryList_t, rankMap, sizeof(char *));
OFFSET(cti_aprunProc_t, aprunPid, 8);
OFFSET(cti_srunProc_t, stepid, 4);
OFFSET(cti_rankPidPair_t, rank, 4);
OFFSET(cti_pidList_t, pids, sizeof(char *));
SAME(sizeof(cti_alps_ops_t), 4 * sizeof(void *));
SAME(sizeof(cti_slurm_ops_t), 5 * sizeof(void *));
SAME(sizeof(cti_pals_ops_t), 5 * sizeof(void *));
SAME(sizeof(cti_ssh_ops_t), 3 * sizeof(void *));
SAME(sizeof(cti_flux_ops_t), 3 * sizeof(void *));
SAME(sizeof(cti_localhost_ops_t), sizeof(void *));
SAME(sizeof(cti_pbs_ops_t), 3 * sizeof(void *));
OFFSET(cti_slurm_ops_t, registerJobStep, sizeof(void *));
OFFSET(cti_slurm_ops_t, getSrunInfo, 2 * sizeof(void *));
OFFSET(cti_slurm_ops_t, submitBatchScript, 3 * sizeof(void *));
OFFSET(cti_slurm_ops_t, registerJobStepWait, 4 * sizeof(void *));
OFFSET(cti_ssh_ops_t, registerRemoteJob, sizeof(void *));

typedef const char *text;
typedef const char *const *texts;
typedef int64_t id;

struct signatures {
    text (*version)(void);
    int (*error_str_r)(char *, size_t);
    cti_wlm_type_t (*current_wlm)(void);
    text (*to_string)(cti_wlm_type_t);
    char *(*hostname)(void);
    int (*set_attribute)(cti_attr_type_t, text);
    text (*get_attribute)(cti_attr_type_t);
    int (*of_id)(id);
    void (*forget)(id);
    char *(*text_of_id)(id);
    char **(*texts_of_id)(id);
    cti_hostsList_t *(*placement)(id);
    void (*destroy_hosts)(cti_hostsList_t *);
    cti_binaryList_t *(*binaries)(id);
    void (*destroy_binaries)(cti_binaryList_t *);
    id (*launch)(texts, int, int, text, text, texts);
    id (*launch_fd)(texts, int, int, int, text, texts);
    int (*kill)(id, int);
    cti_wlm_type_t (*open_ops)(void **);
    id (*make)(id);
    int (*add)(id, text);
    int (*exec)(id, text, texts, texts);
    cti_symbol_result_t (*symbols)(text, texts, cti_symbol_query_t);
    cti_pidList_t *(*pids)(void);
    void (*destroy_pids)(cti_pidList_t *);
    int (*number)(void);
};

const struct signatures all[] = {
    {cti_version, cti_error_str_r, cti_current_wlm, cti_wlm_type_toString, cti_getHostname, cti_setAttribute,
     cti_getAttribute, cti_appIsValid, cti_deregisterApp, cti_getLauncherHostName, cti_getAppHostsList,
     cti_getAppHostsPlacement, cti_destroyHostsList, cti_getAppBinaryList, cti_destroyBinaryList, cti_launchApp,
     cti_launchApp_fd, cti_killApp, cti_open_ops, cti_createSession, cti_addManifestBinary, cti_execToolDaemon,
     cti_containsSymbols, cti_be_findAppPids, cti_be_destroyPidList, cti_be_getNodeFirstPE},
    {.version = cti_error_str, .of_id = cti_releaseApp, .text_of_id = cti_getSessionRootDir,
     .texts_of_id = cti_getSessionLockFiles, .launch = cti_launchAppBarrier, .launch_fd = cti_launchAppBarrier_fd,
     .make = cti_createManifest, .add = cti_addManifestLibrary, .number = cti_be_getNodePEs, .hostname = cti_be_getAppId},
    {.version = cti_be_version, .of_id = cti_getNumAppPEs, .text_of_id = cti_getSessionBinDir,
     .add = cti_addManifestLibDir, .current_wlm = cti_be_current_wlm, .to_string = cti_be_wlm_type_toString,
     .hostname = cti_be_getNodeHostname},
    {.of_id = cti_getNumAppNodes, .text_of_id = cti_getSessionLibDir, .add = cti_addManifestFile, .hostname = cti_be_getRootDir},
    {.of_id = cti_releaseAppBarrier, .text_of_id = cti_getSessionFileDir, .hostname = cti_be_getBinDir},
    {.of_id = cti_sessionIsValid, .text_of_id = cti_getSessionTmpDir, .hostname = cti_be_getLibDir},
    {.of_id = cti_destroySession, .hostname = cti_be_getFileDir},
    {.of_id = cti_manifestIsValid, .hostname = cti_be_getTmpDir},
    {.of_id = cti_sendManifest},
};
