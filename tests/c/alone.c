/* libcommontools_be in a program that is no tool daemon: every function answers with its value for errors, and says why. */
#include <stdio.h>
#include <string.h>

#include "gantry_be.h"

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: not so: %s; %s\n", __FILE__, __LINE__, #what, gantry_be_error_str()); \
            return 1; \
        } \
    } while (0)

int main(void) {
    CHECK(strcmp(gantry_be_error_str(), "Unknown CTI error") == 0);
    CHECK(strcmp(cti_be_version(), CTI_BE_VERSION) == 0);
    CHECK(cti_be_current_wlm() == CTI_WLM_NONE);
    CHECK(strstr(gantry_be_error_str(), "cti_be_current_wlm: failed to find this node's agent: not started by gantry"));
    CHECK(cti_be_getAppId() == NULL && cti_be_findAppPids() == NULL && cti_be_getNodeHostname() == NULL);
    CHECK(cti_be_getNodeFirstPE() == -1 && cti_be_getNodePEs() == -1);
    CHECK(cti_be_getRootDir() == NULL && cti_be_getBinDir() == NULL && cti_be_getLibDir() == NULL);
    CHECK(cti_be_getFileDir() == NULL && cti_be_getTmpDir() == NULL);
    CHECK(gantry_be_getNode() == -1 && gantry_be_getNumNodes() == -1 && gantry_be_getNumPEs() == -1);
    CHECK(strncmp(gantry_be_error_str(), "gantry_be_getNumPEs: ", 21) == 0);
    cti_pidList_t mine = {0, NULL};
    cti_be_destroyPidList(&mine);
    CHECK(strstr(gantry_be_error_str(), "never came from here"));
    cti_be_destroyPidList(NULL);
    CHECK(strcmp(cti_be_wlm_type_toString(CTI_WLM_SLURM), CTI_WLM_TYPE_SLURM_STR) == 0);
    CHECK(strcmp(cti_be_wlm_type_toString(CTI_WLM_SSH), CTI_WLM_TYPE_SSH_STR) == 0);
    CHECK(strcmp(cti_be_wlm_type_toString(CTI_WLM_ALPS), CTI_WLM_TYPE_ALPS_STR) == 0);
    CHECK(strcmp(cti_be_wlm_type_toString(CTI_WLM_PALS), CTI_WLM_TYPE_PALS_STR) == 0);
    CHECK(strcmp(cti_be_wlm_type_toString(CTI_WLM_FLUX), CTI_WLM_TYPE_FLUX_STR) == 0);
    CHECK(strcmp(cti_be_wlm_type_toString(CTI_WLM_LOCALHOST), CTI_WLM_TYPE_LOCALHOST_STR) == 0);
    CHECK(strcmp(cti_be_wlm_type_toString(CTI_WLM_PBS), CTI_WLM_TYPE_PBS_STR) == 0);
    printf("ok alone\n");
    return 0;
}
