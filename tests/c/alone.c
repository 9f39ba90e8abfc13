/* libcommontools_be in a program that is no tool daemon. Every function returns its error value, with an error text. */
#include <stdio.h>
#include <string.h>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gantry_be.h"

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: not so: %s; %s\n", __FILE__, __LINE__, #what, gantry_be_error_str()); \
            return 1; \
        } \
    } while (0)

/* Calls for as long as the program lives. */
static void *calls(void *unused) {
    for (;;)
        if (cti_be_getNodeHostname() || gantry_be_getMember(NULL) != 1 || gantry_be_getRank() != -1) return unused;
}

/* A child inherits the locks of its parent's threads, but not the threads. */
static int forks_while_threads_call(void) {
    pthread_t thread;
    for (int at = 0; at < 4; at++) CHECK(pthread_create(&thread, NULL, calls, NULL) == 0);
    for (int at = 0; at < 300; at++) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(15);
            if (cti_be_getNodeHostname() || gantry_be_openChannel() != 1 || gantry_be_getRank() != -1) _exit(1);
            cti_pidList_t mine = {0, NULL};
            cti_be_destroyPidList(&mine);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return 0;
}

int main(void) {
    CHECK(strcmp(gantry_be_error_str(), "Unknown CTI error") == 0);
    CHECK(strcmp(cti_be_version(), CTI_BE_VERSION) == 0);
    CHECK(cti_be_current_wlm() == CTI_WLM_NONE);
    CHECK(strstr(gantry_be_error_str(), "cti_be_current_wlm: failed to find this node's agent: not started by gantry"));
    const char *first = gantry_be_error_str();
    CHECK(cti_be_getAppId() == NULL && cti_be_findAppPids() == NULL && cti_be_getNodeHostname() == NULL);
    CHECK(cti_be_getNodeFirstPE() == -1 && cti_be_getNodePEs() == -1);
    CHECK(cti_be_getRootDir() == NULL && cti_be_getBinDir() == NULL && cti_be_getLibDir() == NULL);
    CHECK(cti_be_getFileDir() == NULL && cti_be_getTmpDir() == NULL);
    CHECK(gantry_be_getNode() == -1 && gantry_be_getNumNodes() == -1 && gantry_be_getNumPEs() == -1);
    CHECK(strncmp(gantry_be_error_str(), "gantry_be_getNumPEs: ", 21) == 0);
    /* The other functions of gantry: the kind of an error, and the member of data. */
    gantry_member_t member;
    gantry_rendezvousList_t list = {0, NULL};
    gantry_data_t data = {0, NULL, {0, 0}, 0};
    int64_t integers[] = {1};
    double reals[] = {1};
    int ranks[] = {1}, index, count, *sizes;
    const char *keys[] = {"a"}, *frames[] = {"main", NULL};
    gantry_be_stack_t stack = {0, frames};
    char **all;
    void *message;
    size_t size;
    const unsigned char *item;
    uint32_t way[] = {0};
#define NO(function, arguments, bad) \
    do { \
        CHECK(function arguments == (bad)); \
        CHECK(strncmp(gantry_be_error_str(), #function ": ", sizeof #function + 1) == 0); \
        CHECK(gantry_be_error_kind() != GANTRY_NO_ERROR); \
    } while (0)
    NO(gantry_be_setDeadline, (-2), 1);
    CHECK(gantry_be_setDeadline(50) == 0 && gantry_be_getDeadline() == 50);
    NO(gantry_be_openChannel, (), 1);
    NO(gantry_be_getMember, (&member), 1);
    NO(gantry_be_getMember, (NULL), 1);
    NO(gantry_be_getChannelFd, (), -1);
    NO(gantry_be_receive, (1), NULL);
    NO(gantry_be_receiveAny, (), NULL);
    NO(gantry_be_send, (1, "x", 1), 1);
    NO(gantry_be_send, (1, NULL, 1), 1);
    NO(gantry_be_contribute, (1, "x", 1), 1);
    NO(gantry_be_contribute, (1, NULL, 1), 1);
    NO(gantry_be_contributeIntegers, (1, integers, 1), 1);
    NO(gantry_be_contributeIntegers, (1, NULL, 1), 1);
    NO(gantry_be_contributeReals, (1, reals, 1), 1);
    NO(gantry_be_contributeReals, (1, reals, -1), 1);
    NO(gantry_be_contributeRanks, (1, ranks, 1), 1);
    NO(gantry_be_contributeRanks, (1, NULL, 1), 1);
    NO(gantry_be_contributeKeys, (1, keys, ranks, 1), 1);
    NO(gantry_be_contributeKeys, (1, NULL, NULL, 1), 1);
    NO(gantry_be_contributeStacks, (1, &stack, 1), 1);
    NO(gantry_be_contributeStacks, (1, NULL, 1), 1);
    NO(gantry_be_serveFilter, ("own", NULL, NULL), 1);
    NO(gantry_be_serveFilter, (NULL, NULL, NULL), 1);
    NO(gantry_be_register, (NULL, "x", 1), 1);
    NO(gantry_be_register, ("\xff", "x", 1), 1);
    NO(gantry_be_getAll, (NULL), NULL);
    NO(gantry_be_getItem, (NULL, 0), NULL);
    NO(gantry_be_waitComplete, (NULL), 1);
    NO(gantry_be_openRendezvous, (NULL), -1);
    NO(gantry_be_createRendezvous, (NULL, "own", 1), NULL);
    NO(gantry_be_createRendezvous, (NULL, NULL, 1), NULL);
    NO(gantry_be_getRendezvous, (NULL), NULL);
    NO(gantry_be_listRendezvous, ("no handle"), NULL);
    NO(gantry_be_findItem, (NULL, 5, way, 1, &item, &size), 1);
    NO(gantry_be_findItem, ("xxxxx", 5, way, 1, &item, &size), 1);
    NO(gantry_be_barrier, (), 1);
    NO(gantry_be_getRank, (), -1);
    NO(gantry_be_getSize, (), -1);
    NO(gantry_be_getSubjobs, (&index, &count, &sizes), 1);
    NO(gantry_be_sendToSubjob, (0, "tag", "x", 1), 1);
    NO(gantry_be_sendToSubjob, (0, NULL, "x", 1), 1);
    NO(gantry_be_sendToRank, (0, "tag", "x", 1), 1);
    NO(gantry_be_sendToRank, (0, "tag", NULL, 1), 1);
    NO(gantry_be_receiveFromSubjobs, ("tag", &message, &size, &index), 1);
    NO(gantry_be_receiveFromRanks, (NULL, &message, &size, &index), 1);
    NO(gantry_be_exchange, ("x", &index, &count, &all), 1);
    NO(gantry_be_exchange, (NULL, NULL, NULL, NULL), 1);
    NO(gantry_be_masterVector, ("x", &count, &all), 1);
    NO(gantry_be_orderedMasterVector, ("x", 0, &count, &all), 1);
    gantry_be_destroyData(&data);
    CHECK(strstr(gantry_be_error_str(), "gantry_be_destroyData: ") && strstr(gantry_be_error_str(), "is not gantry's"));
    gantry_be_destroyRendezvousList(&list);
    CHECK(strstr(gantry_be_error_str(), "gantry_be_destroyRendezvousList: "));
    gantry_be_destroyData(NULL);
    gantry_be_destroyRendezvousList(NULL);
    cti_pidList_t mine = {0, NULL};
    cti_be_destroyPidList(&mine);
    CHECK(strstr(gantry_be_error_str(), "is not gantry's"));
    cti_be_destroyPidList(NULL);
    CHECK(strcmp(cti_be_wlm_type_toString(CTI_WLM_SLURM), CTI_WLM_TYPE_SLURM_STR) == 0);
    CHECK(strcmp(cti_be_wlm_type_toString(CTI_WLM_SSH), CTI_WLM_TYPE_SSH_STR) == 0);
    CHECK(strcmp(cti_be_wlm_type_toString(CTI_WLM_ALPS), CTI_WLM_TYPE_ALPS_STR) == 0);
    CHECK(strcmp(cti_be_wlm_type_toString(CTI_WLM_PALS), CTI_WLM_TYPE_PALS_STR) == 0);
    CHECK(strcmp(cti_be_wlm_type_toString(CTI_WLM_FLUX), CTI_WLM_TYPE_FLUX_STR) == 0);
    CHECK(strcmp(cti_be_wlm_type_toString(CTI_WLM_LOCALHOST), CTI_WLM_TYPE_LOCALHOST_STR) == 0);
    CHECK(strcmp(cti_be_wlm_type_toString(CTI_WLM_PBS), CTI_WLM_TYPE_PBS_STR) == 0);
    CHECK(strncmp(first, "cti_be_current_wlm: failed", 26) == 0);
    if (forks_while_threads_call()) return 1;
    printf("ok alone\n");
    return 0;
}
