/* A tool daemon that writes the answers of libcommontools_be to one file per node: VIEW.NODE in the directory of the
   first argument. Then it waits for SIGTERM, unless there is a second argument. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gantry_be.h"

extern char **environ;

static void say(FILE *to, const char *what, char *value) {
    fprintf(to, "%s=%s\n", what, value ? value : "(null)");
    free(value);
}

int main(int argc, char **argv) {
    char *path = NULL, *ready = NULL;
    const char *folder = argc > 1 ? argv[1] : ".";
    if (asprintf(&path, "%s/.view.%d", folder, gantry_be_getNode()) < 0) return 3;
    if (asprintf(&ready, "%s/view.%d", folder, gantry_be_getNode()) < 0) return 3;
    FILE *to = fopen(path, "w");
    if (!to) return 4;
    fprintf(to, "version=%s\nwlm=%d\n", cti_be_version(), (int)cti_be_current_wlm());
    fprintf(to, "self=%d\n", (int)getpid());
    fprintf(to, "word=%s\n", cti_be_wlm_type_toString(cti_be_current_wlm()));
    say(to, "app", cti_be_getAppId());
    say(to, "host", cti_be_getNodeHostname());
    fprintf(to, "first=%d\nhere=%d\n", cti_be_getNodeFirstPE(), cti_be_getNodePEs());
    fprintf(to, "node=%d\nnodes=%d\nsize=%d\n", gantry_be_getNode(), gantry_be_getNumNodes(), gantry_be_getNumPEs());
    say(to, "root", cti_be_getRootDir());
    say(to, "bin", cti_be_getBinDir());
    say(to, "lib", cti_be_getLibDir());
    say(to, "file", cti_be_getFileDir());
    say(to, "tmp", cti_be_getTmpDir());
    cti_pidList_t *pids = cti_be_findAppPids();
    for (int at = 0; pids && at < pids->numPids; at++) fprintf(to, "rank=%d pid=%d\n", pids->pids[at].rank, pids->pids[at].pid);
    fprintf(to, "pids=%d\n", pids ? pids->numPids : -1);
    cti_be_destroyPidList(pids);
    cti_be_destroyPidList(pids);
    fprintf(to, "error=%s\n", gantry_be_error_str());
    cti_be_destroyPidList(NULL);
    for (int at = 2; at < argc; at++) fprintf(to, "arg=%s\n", argv[at]);
    for (char **at = environ; *at; at++)
        if (!strncmp(*at, "CTI_", 4) || !strncmp(*at, "MINE", 4) || !strncmp(*at, "TMPDIR", 6)) fprintf(to, "env %s\n", *at);
    if (fclose(to)) return 5;
    if (rename(path, ready)) return 6;
    free(path);
    free(ready);
    for (; argc < 3;) pause();
    return 0;
}
