/* The functions for PBS in libcommontools_fe. Arguments: the test; a job whose script runs three ranks, one on each
   of three hosts. */
#include "check.h"

static const char *job;

static void check_and_leave(cti_pbs_ops_t *ops, cti_app_id_t app) {
    check_attached(app, 3, 3);
    char *id = ops->getJobId(app);
    CHECK(id && strcmp(id, job) == 0);
    free(id);
    serve_and_leave(app);
}

static void attaches(void) {
    cti_pbs_ops_t *ops = NULL;
    CHECK(cti_open_ops((void **)&ops) == CTI_WLM_PBS && ops && cti_current_wlm() == CTI_WLM_PBS);
    check_and_leave(ops, ops->registerJob(job));
    check_and_leave(ops, ops->registerJobWait(job, 60));
    FAILS(ops->registerJob("999999"), "999999");
    FAILS(ops->registerJob("no job"), "no job");
    CHECK(gantry_finalize() == 0);
}

static const struct test tests[] = {{"attaches", attaches}, {NULL, NULL}};

int main(int argc, char **argv) {
    if (argc > 2) job = argv[2];
    return run_named(tests, argc, argv);
}
