/*
 * What gantry has for tool daemons beyond the Common Tools Interface. Library: libcommontools_be.
 * Sections: errors; where am I.
 */
#ifndef GANTRY_BE_H
#define GANTRY_BE_H

#include <stddef.h>

#include "common_tools_be.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---- */

/* Why the last call of this thread that failed did so: "FUNCTION: CAUSE". Never NULL; stays until this thread's next error. */
const char *gantry_be_error_str(void);

/* ---- where am I ---- */

/* This node's number among those of the application, from 0. -1 on error. */
int gantry_be_getNode(void);

/* How many nodes the application has. -1 on error. */
int gantry_be_getNumNodes(void);

/* How many ranks the application has on all nodes together. -1 on error. */
int gantry_be_getNumPEs(void);

#ifdef __cplusplus
}
#endif

#endif
