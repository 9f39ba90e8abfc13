/* The functions for ssh in libcommontools_fe. Arguments: the test, the pid of a launcher on host n001, the pid of a
   launcher on this host. Each launcher has two ranks on n001 and on n002. */
#include "check.h"

static pid_t there, own;

static void check_and_leave(cti_app_id_t app) {
    check_attached(app, 4, 2);
    cti_hostsList_t *placement = cti_getAppHostsPlacement(app);
    CHECK(placement && strcmp(placement->hosts[0].hostname, "n001") == 0 && strcmp(placement->hosts[1].hostname, "n002") == 0);
    CHECK(placement->hosts[0].numPes == 2 && placement->hosts[1].numPes == 2);
    cti_destroyHostsList(placement);
    serve_and_leave(app);
}

static void attaches(void) {
    cti_ssh_ops_t *ops = NULL;
    CHECK(cti_open_ops((void **)&ops) == CTI_WLM_SSH && ops && cti_current_wlm() == CTI_WLM_SSH);
    check_and_leave(ops->registerRemoteJob("n001", there));
    check_and_leave(ops->registerJob(own));
    cti_app_id_t again = ops->registerLauncherPid(own);
    check_attached(again, 4, 2);
    cti_deregisterApp(again);
    FAILS(ops->registerRemoteJob("n999", there), "n999");
    FAILS(ops->registerRemoteJob("n001", 4194304), "there is no process 4194304");
    FAILS(ops->registerRemoteJob("-oProxyCommand=x", there), "'-oProxyCommand=x' is not the name of a host");
    FAILS(ops->registerJob(getpid()), "no MPIR symbols");
    CHECK(gantry_finalize() == 0);
}

static const struct test tests[] = {{"attaches", attaches}, {NULL, NULL}};

int main(int argc, char **argv) {
    if (argc > 3) there = atoi(argv[2]), own = atoi(argv[3]);
    return run_named(tests, argc, argv);
}
