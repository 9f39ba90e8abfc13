/*
 * What gantry has for tools beyond the Common Tools Interface. Library: libcommontools_fe.
 * Sections: errors; deadlines; applications; events; sessions; the end.
 */
#ifndef GANTRY_H
#define GANTRY_H

#include "common_tools_fe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---- */

/* What can be done about the last error of this thread. */
typedef enum {
    GANTRY_NO_ERROR = 0,
    GANTRY_NOT_FOUND = 1,       /* name another file, host, job or process */
    GANTRY_NO_ACCESS = 2,       /* ask for permission */
    GANTRY_TIMED_OUT = 3,       /* wait longer, or see who is missing */
    GANTRY_LAUNCHER_FAILED = 4, /* see what the launcher said */
    GANTRY_UNSUPPORTED = 5,     /* this system, workload manager or launcher cannot do it */
    GANTRY_INVALID = 6,         /* ask for something else */
    GANTRY_PROTOCOL = 7,        /* see whether all of gantry is of one version */
    GANTRY_LOST = 8,            /* a node or the link to it is gone */
    GANTRY_GONE = 9,            /* what was asked about has ended or was closed */
    GANTRY_OTHER = 10
} gantry_error_kind_t;

gantry_error_kind_t gantry_error_kind(void);

/* ---- deadlines ---- */

/* How long calls of this thread may wait from now on, in milliseconds; -1: what common_tools_fe.h says. 0; 1 on error. */
int gantry_setDeadline(int64_t milliseconds);

/* What this thread has set, or -1. */
int64_t gantry_getDeadline(void);

/* ---- applications ---- */

/* Attaches to what runs already, in the words of its workload manager: see `gantry attach --help`. 0 on error. */
cti_app_id_t gantry_attach(const char *target);

/* The application's name in gantry's other commands and in its daemons (cti_be_getAppId). For free(); NULL on error. */
char *gantry_getAppName(cti_app_id_t app_id);

/* Waits until all ranks have ended and sets `*exit_code` (if it is not NULL) to the highest of their codes, a signal counting as 128 and its number. A
 * deadline that was set holds; else it waits for as long as it takes. 0; 1 on error. */
int gantry_waitApp(cti_app_id_t app_id, int *exit_code);

/* ---- events ---- */

/* A descriptor from which is read what happens to the application, first how it stands: a line of JSON for every event, as `gantry --json` prints them.
 * It can be polled. At its end the application and all that belonged to it is gone. It is yours to close(); any number of them may be open. -1 on error. */
int gantry_openEvents(cti_app_id_t app_id);

/* ---- sessions ---- */

/* The root of a session on the node of that name. For free(); NULL on error. */
char *gantry_getSessionDirOn(cti_session_id_t sid, const char *hostname);

/* ---- the end ---- */

/* Deregisters all applications at once, waits until nothing is left of them, and ends the library's threads. Ids are forgotten. The library can be
 * used on. No other call may be under way; one that is fails. 0; 1 on error. */
int gantry_finalize(void);

#ifdef __cplusplus
}
#endif

#endif
