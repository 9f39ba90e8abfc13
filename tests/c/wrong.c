/* Every function of libcommontools_fe that can fail, with wrong arguments: unknown ids, ids of other kinds or
   expired ones, NULL, invalid text, foreign or freed memory. The function must return its error value, and the error
   text must name the function. The suite that runs this checks that no function is left out. */
#include "check.h"

static int64_t wrong[8];
static int wrongs;

static void says(const char *name) {
    size_t size = strlen(name);
    if (strncmp(cti_error_str(), name, size) || strncmp(cti_error_str() + size, ": ", 2)) FAIL("%s has not said why", name);
    if (strlen(cti_error_str()) < size + 6) FAIL("%s has not said much", name);
}

/* Another function fails first, so the error text must come from this one. */
#define NO(name, call, bad) \
    do { \
        CHECK(cti_setAttribute((cti_attr_type_t)99, NULL) == 1); \
        if ((call) != (bad)) FAIL("did not fail: %s", #call); \
        says(name); \
    } while (0)

#define REFUSES(function, arguments, bad) NO(#function, function arguments, bad)

/* For each wrong id. */
#define EACH(function, arguments, bad) \
    for (int at = 0; at < wrongs; at++) { \
        int64_t id = wrong[at]; \
        REFUSES(function, arguments, bad); \
    }

/* The same, for a function without a return value. */
#define QUIET(function, arguments) \
    do { \
        CHECK(cti_setAttribute((cti_attr_type_t)99, NULL) == 1); \
        function arguments; \
        says(#function); \
    } while (0)

/* Foreign memory, and a second free. */
#define FOREIGN(function, type) \
    do { \
        type mine; \
        memset(&mine, 0, sizeof mine); \
        QUIET(function, (&mine)); \
        CHECK(strstr(cti_error_str(), "is not gantry's")); \
        function(NULL); \
    } while (0)

static const gantry_member_t member = {0, 0};
static const gantry_part_t part = {{0, 0}, "x", 1};
static const char *bad_text = "\xff\xfe";

static void wrong_ids(void) {
    EACH(cti_appIsValid, (id), 0)
    for (int at = 0; at < wrongs; at++) QUIET(cti_deregisterApp, (wrong[at]));
    EACH(cti_releaseApp, (id), 1)
    EACH(cti_getLauncherHostName, (id), NULL)
    EACH(cti_getNumAppPEs, (id), 0)
    EACH(cti_getNumAppNodes, (id), 0)
    EACH(cti_getAppHostsList, (id), NULL)
    EACH(cti_getAppHostsPlacement, (id), NULL)
    EACH(cti_getAppBinaryList, (id), NULL)
    EACH(cti_releaseAppBarrier, (id), 1)
    EACH(cti_killApp, (id, SIGTERM), 1)
    EACH(cti_createSession, (id), 0)
    EACH(cti_sessionIsValid, (id), 0)
    EACH(cti_destroySession, (id), 1)
    EACH(cti_createManifest, (id), 0)
    EACH(cti_manifestIsValid, (id), 0)
    EACH(cti_addManifestBinary, (id, "sh"), 1)
    EACH(cti_addManifestLibrary, (id, "libc.so.6"), 1)
    EACH(cti_addManifestLibDir, (id, "."), 1)
    EACH(cti_addManifestFile, (id, "/etc/passwd"), 1)
    EACH(cti_sendManifest, (id), 1)
    EACH(cti_execToolDaemon, (id, "sh", NULL, NULL), 1)
    EACH(cti_getSessionLockFiles, (id), NULL)
    EACH(cti_getSessionRootDir, (id), NULL)
    EACH(cti_getSessionBinDir, (id), NULL)
    EACH(cti_getSessionLibDir, (id), NULL)
    EACH(cti_getSessionFileDir, (id), NULL)
    EACH(cti_getSessionTmpDir, (id), NULL)
    EACH(gantry_getAppName, (id), NULL)
    EACH(gantry_waitApp, (id, NULL), 1)
    EACH(gantry_openEvents, (id), -1)
    EACH(gantry_getSessionDirOn, (id, "here"), NULL)
    EACH(gantry_getMembers, (id), NULL)
    EACH(gantry_broadcast, (id, 1, "x", 1), NULL)
    EACH(gantry_scatter, (id, 1, &part, 1), NULL)
    EACH(gantry_send, (id, member, 1, "x", 1), 1)
    EACH(gantry_gather, (id, 1, GANTRY_ALL), NULL)
    EACH(gantry_reduce, (id, 1, "sum", GANTRY_ALL), NULL)
    EACH(gantry_registerFilter, (id, "own", NULL, NULL), 1)
    EACH(gantry_openInbox, (id, 1), 0)
    EACH(gantry_getInboxFd, (id), -1)
    EACH(gantry_receive, (id), NULL)
    EACH(gantry_closeInbox, (id), 1)
    EACH(gantry_waitRendezvous, (id), NULL)
    EACH(gantry_listRendezvous, (id), NULL)
    EACH(gantry_joinMultijob, (id, id, 0), 1)
    EACH(gantry_launchSubjob, (id, 0, 0, (args_t){"true", NULL}, -1, -1, NULL, NULL, NULL), 0)
    EACH(gantry_waitMultijob, (id), NULL)
    EACH(gantry_getMultijob, (id), NULL)
    EACH(gantry_destroyMultijob, (id), 1)
    EACH(gantry_addSubjob, (id, "&(executable=x)"), 1)
    EACH(gantry_deleteSubjob, (id, "a"), 1)
    EACH(gantry_releaseJob, (id, 0), 1)
    EACH(gantry_cancelJob, (id), 1)
    EACH(gantry_getSubjobStates, (id, NULL, NULL, NULL), 1)
    EACH(gantry_openJobEvents, (id), -1)
    EACH(gantry_waitJob, (id, NULL), 1)
    EACH(gantry_detachJob, (id), 1)
    EACH(gantry_closeJob, (id), 1)
}

static void wrong_memory(void) {
    FOREIGN(cti_destroyHostsList, cti_hostsList_t);
    FOREIGN(cti_destroyBinaryList, cti_binaryList_t);
    FOREIGN(gantry_destroyMembers, gantry_memberList_t);
    FOREIGN(gantry_destroyOutcome, gantry_outcome_t);
    FOREIGN(gantry_destroyData, gantry_data_t);
    FOREIGN(gantry_destroyRendezvousList, gantry_rendezvousList_t);
    int64_t integers[1];
    double reals[1];
    int ranks[1];
    gantry_outcome_t none = {0, 0, NULL, 0, NULL};
    REFUSES(gantry_getIntegers, (NULL, integers, 1), -1);
    REFUSES(gantry_getReals, (NULL, reals, 1), -1);
    REFUSES(gantry_getRanks, (NULL, ranks, 1), -1);
    REFUSES(gantry_describeResult, (NULL, "sum"), NULL);
    REFUSES(gantry_describeResult, (&none, NULL), NULL);
    REFUSES(gantry_describeResult, (&none, bad_text), NULL);
    uint32_t way[] = {0};
    const unsigned char *item;
    size_t size;
    REFUSES(gantry_findItem, (NULL, 5, way, 1, &item, &size), 1);
    REFUSES(gantry_findItem, ("xxxxx", 5, NULL, 1, &item, &size), 1);
    REFUSES(gantry_findItem, ("xxxxx", 5, way, 1, NULL, NULL), 1);
    REFUSES(gantry_findItem, ("xxxxx", 5, way, -1, &item, &size), 1);
    REFUSES(gantry_findItem, ("xxxxx", 5, way, 1, &item, &size), 1);
}

static void wrong_arguments(void) {
    args_t no_text = {"\xff\xfe/no/such", NULL}, bad_env = {"A=1", "=", NULL};
    args_t good = {"true", NULL};
    REFUSES(cti_setAttribute, (CTI_DEBUG, bad_text), 1);
    REFUSES(cti_getAttribute, ((cti_attr_type_t)99), NULL);
    REFUSES(cti_launchApp, (NULL, -1, -1, NULL, NULL, NULL), 0);
    REFUSES(cti_launchApp, (no_text, -1, -1, NULL, NULL, NULL), 0);
    REFUSES(cti_launchApp, (good, -1, -1, bad_text, NULL, NULL), 0);
    REFUSES(cti_launchAppBarrier, (good, -1, -1, NULL, bad_text, NULL), 0);
    REFUSES(cti_launchAppBarrier, (good, -1, 4711, NULL, NULL, NULL), 0);
    REFUSES(cti_launchApp_fd, (good, -1, -1, 4711, NULL, NULL), 0);
    REFUSES(cti_launchAppBarrier_fd, (good, -1, -1, -1, NULL, bad_env), 0);
    REFUSES(cti_containsSymbols, (NULL, good, CTI_SYMBOLS_ALL), CTI_SYMBOLS_ERROR);
    REFUSES(cti_containsSymbols, (bad_text, good, CTI_SYMBOLS_ALL), CTI_SYMBOLS_ERROR);
    REFUSES(cti_containsSymbols, ("/proc/self/exe", NULL, CTI_SYMBOLS_ANY), CTI_SYMBOLS_ERROR);
    REFUSES(cti_open_ops, (NULL), CTI_WLM_NONE);
    REFUSES(gantry_setDeadline, (-2), 1);
    REFUSES(gantry_setQueueDeadline, (-2), 1);
    REFUSES(gantry_attach, (NULL), 0);
    REFUSES(gantry_attach, (bad_text), 0);
    REFUSES(gantry_attach, (""), 0);
    REFUSES(gantry_createMultijob, (0, 1), 0);
    REFUSES(gantry_createMultijob, (-5, 1), 0);
    REFUSES(gantry_createMultijob, (2, 0), 0);
    REFUSES(gantry_requestJob, (NULL, NULL, NULL), 0);
    REFUSES(gantry_requestJob, (bad_text, NULL, NULL), 0);
    CHECK(cti_error_str_r(NULL, 10) == ERANGE);
    CHECK(strcmp(cti_wlm_type_toString((cti_wlm_type_t)99), "Invalid WLM.") == 0);
    setenv("CTI_WLM_IMPL", bad_text, 1);
    REFUSES(cti_current_wlm, (), CTI_WLM_NONE);
    setenv("CTI_WLM_IMPL", "localhost", 1);
}

/* With existing objects. */
static void wrong_arguments_of(cti_app_id_t app, cti_session_id_t session, cti_manifest_id_t manifest) {
    REFUSES(cti_killApp, (app, 0), 1);
    REFUSES(cti_killApp, (app, 4711), 1);
    REFUSES(cti_addManifestBinary, (manifest, NULL), 1);
    REFUSES(cti_addManifestBinary, (manifest, bad_text), 1);
    REFUSES(cti_addManifestLibrary, (manifest, NULL), 1);
    REFUSES(cti_addManifestLibrary, (manifest, bad_text), 1);
    REFUSES(cti_addManifestLibDir, (manifest, NULL), 1);
    REFUSES(cti_addManifestLibDir, (manifest, bad_text), 1);
    REFUSES(cti_addManifestFile, (manifest, NULL), 1);
    REFUSES(cti_addManifestFile, (manifest, bad_text), 1);
    REFUSES(cti_execToolDaemon, (manifest, NULL, NULL, NULL), 1);
    REFUSES(gantry_getSessionDirOn, (session, NULL), NULL);
    REFUSES(gantry_getSessionDirOn, (session, bad_text), NULL);
    REFUSES(gantry_broadcast, (session, 1, NULL, 5), NULL);
    REFUSES(gantry_scatter, (session, 1, NULL, 5), NULL);
    REFUSES(gantry_scatter, (session, 1, &part, -1), NULL);
    REFUSES(gantry_send, (session, member, 1, NULL, 5), 1);
    REFUSES(gantry_reduce, (session, 1, NULL, GANTRY_ALL), NULL);
    REFUSES(gantry_reduce, (session, 1, bad_text, GANTRY_ALL), NULL);
    REFUSES(gantry_registerFilter, (session, NULL, NULL, NULL), 1);
    REFUSES(gantry_registerFilter, (session, "own", NULL, NULL), 1);
    CHECK(cti_appIsValid(app) && cti_sessionIsValid(session) && cti_manifestIsValid(manifest));
}

/* The tables of functions for each workload manager, one after the other. */
static void wrong_in_tables(void) {
    void *ops = NULL;
    setenv("CTI_WLM_IMPL", "slurm", 1);
    CHECK(cti_open_ops(&ops) == CTI_WLM_SLURM && ops);
    cti_slurm_ops_t *slurm = ops;
    NO("getJobInfo", slurm->getJobInfo(-1), NULL);
    NO("getJobInfo", slurm->getJobInfo(getpid()), NULL);
    NO("registerJobStep", slurm->registerJobStep(0, 0), 0);
    NO("registerJobStepWait", slurm->registerJobStepWait(0, 0, 1), 0);
    NO("submitBatchScript", slurm->submitBatchScript(NULL, NULL, NULL), NULL);
    NO("submitBatchScript", slurm->submitBatchScript("x", NULL, (args_t){"=", NULL}), NULL);
    for (int at = 0; at < wrongs; at++) NO("getSrunInfo", slurm->getSrunInfo(wrong[at]), NULL);
    setenv("CTI_WLM_IMPL", "generic", 1);
    CHECK(cti_open_ops(&ops) == CTI_WLM_SSH && ops);
    cti_ssh_ops_t *ssh = ops;
    NO("registerJob", ssh->registerJob(-1), 0);
    NO("registerJob", ssh->registerJob(getpid()), 0);
    NO("registerLauncherPid", ssh->registerLauncherPid(0), 0);
    NO("registerRemoteJob", ssh->registerRemoteJob(NULL, 1), 0);
    NO("registerRemoteJob", ssh->registerRemoteJob(bad_text, 1), 0);
    NO("registerRemoteJob", ssh->registerRemoteJob("here", -1), 0);
    setenv("CTI_WLM_IMPL", "pbs", 1);
    CHECK(cti_open_ops(&ops) == CTI_WLM_PBS && ops);
    cti_pbs_ops_t *pbs = ops;
    NO("registerJob", pbs->registerJob(NULL), 0);
    NO("registerJob", pbs->registerJob(bad_text), 0);
    NO("registerJobWait", pbs->registerJobWait(NULL, 1), 0);
    for (int at = 0; at < wrongs; at++) NO("getJobId", pbs->getJobId(wrong[at]), NULL);
    setenv("CTI_WLM_IMPL", "flux", 1);
    CHECK(cti_open_ops(&ops) == CTI_WLM_FLUX && ops);
    cti_flux_ops_t *flux = ops;
    NO("registerJob", flux->registerJob(NULL), 0);
    NO("registerJob", flux->registerJob(bad_text), 0);
    NO("registerJobWait", flux->registerJobWait(NULL, 1), 0);
    NO("getJobid", flux->getJobid(-1), NULL);
    NO("getJobid", flux->getJobid(getpid()), NULL);
    setenv("CTI_WLM_IMPL", "localhost", 1);
    CHECK(cti_open_ops(&ops) == CTI_WLM_LOCALHOST && ops);
    cti_localhost_ops_t *localhost = ops;
    NO("registerJob", localhost->registerJob(NULL), 0);
    NO("registerJob", localhost->registerJob(bad_text), 0);
    NO("registerJob", localhost->registerJob(""), 0);
    /* Those that gantry lacks are no workload managers here. */
    const char *lacking[] = {"alps", "pals"};
    for (int at = 0; at < 2; at++) {
        setenv("CTI_WLM_IMPL", lacking[at], 1);
        ops = localhost;
        REFUSES(cti_open_ops, (&ops), CTI_WLM_NONE);
        CHECK(strstr(cti_error_str(), lacking[at]) && !ops);
    }
    setenv("CTI_WLM_IMPL", "localhost", 1);
}

/* Passes a structure to the function that frees another type of the same library. It must free nothing, and both
   structures must stay valid. */
static void freed_by_the_function_of_another(cti_app_id_t app) {
    cti_hostsList_t *hosts = cti_getAppHostsPlacement(app);
    cti_binaryList_t *binaries = cti_getAppBinaryList(app);
    CHECK(hosts && binaries);
    QUIET(cti_destroyHostsList, ((cti_hostsList_t *)binaries));
    CHECK(strstr(cti_error_str(), "belongs to another free function"));
    QUIET(cti_destroyBinaryList, ((cti_binaryList_t *)hosts));
    QUIET(gantry_destroyMembers, ((gantry_memberList_t *)hosts));
    QUIET(gantry_destroyOutcome, ((gantry_outcome_t *)binaries));
    QUIET(gantry_destroyData, ((gantry_data_t *)hosts));
    QUIET(gantry_destroyRendezvousList, ((gantry_rendezvousList_t *)binaries));
    CHECK(hosts->numHosts == 1 && strlen(hosts->hosts[0].hostname) > 0 && binaries->rankMap[0] == 0);
    cti_destroyHostsList(hosts);
    cti_destroyBinaryList(binaries);
}

/* Functions that cannot fail. They are named here because the suite wants every function in this file: cti_version
   cti_error_str cti_getHostname gantry_error_kind gantry_getDeadline gantry_getQueueDeadline. */
static void everything(void) {
    cti_app_id_t app = launch_held((args_t){"sleep", "100", NULL});
    cti_session_id_t gone = cti_createSession(app), session = cti_createSession(app);
    cti_manifest_id_t manifest = cti_createManifest(session), sent = cti_createManifest(session);
    gantry_multijob_id_t multijob = gantry_createMultijob(2, 2);
    CHECK(gone > 0 && session > 0 && manifest > 0 && multijob > 0);
    CHECK(cti_destroySession(gone) == 0 && cti_sendManifest(sent) == 0 && gantry_destroyMultijob(multijob) == 0);
    REFUSES(gantry_destroyMultijob, (multijob), 1);
    cti_app_id_t ended = launch((args_t){"true", NULL});
    cti_deregisterApp(ended);
    const int64_t all[] = {0, -1, INT64_MAX, INT64_MIN, gone, sent, ended, multijob};
    memcpy(wrong, all, sizeof all);
    wrongs = 8;
    wrong_ids();
    wrong_memory();
    wrong_arguments();
    wrong_arguments_of(app, session, manifest);
    wrong_in_tables();
    /* A held rank is of no use as another kind of thing. */
    wrong[0] = app;
    wrongs = 1;
    REFUSES(cti_createManifest, (app), 0);
    REFUSES(cti_sendManifest, (session), 1);
    REFUSES(cti_getNumAppPEs, (manifest), 0);
    cti_hostsList_t *list = cti_getAppHostsPlacement(app);
    cti_destroyHostsList(list);
    QUIET(cti_destroyHostsList, (list));
    freed_by_the_function_of_another(app);
    CHECK(cti_getNumAppPEs(app) == 1 && cti_killApp(app, SIGKILL) == 0);
    cti_deregisterApp(app);
    CHECK(cti_version() && cti_error_str() && gantry_getDeadline() == -1 && gantry_getQueueDeadline() == -1 && gantry_error_kind() != GANTRY_NO_ERROR);
    char *host = cti_getHostname();
    CHECK(host);
    free(host);
    CHECK(gantry_finalize() == 0);
}

static const struct test tests[] = {{"everything", everything}, {NULL, NULL}};

int main(int argc, char **argv) {
    return run_named(tests, argc, argv);
}
