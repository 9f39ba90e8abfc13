/* What tool frontends and tool daemons of the Common Tools Interface share. Included by the headers of both libraries. */
#ifndef _COMMON_TOOLS_SHARED_H
#define _COMMON_TOOLS_SHARED_H

#include <stdint.h>
#include <sys/types.h>

#include "common_tools_version.h"

/* Workload managers. A value travels from frontend to daemon; none is ever given another meaning. */
typedef enum {
    CTI_WLM_NONE = 0,
    CTI_WLM_MOCK = 1,
    CTI_WLM_SLURM = 2,
    CTI_WLM_SSH = 3,
    CTI_WLM_ALPS = 4,
    CTI_WLM_PALS = 5,
    CTI_WLM_FLUX = 6,
    CTI_WLM_LOCALHOST = 7,
    CTI_WLM_PBS = 8 /* gantry's own */
} cti_wlm_type_t;

/* Names of environment variables that users set. The page "Environment variables" of gantry's book has their effects. */
#define CTI_BASE_DIR_ENV_VAR "CTI_INSTALL_DIR"
#define CTI_LOG_DIR_ENV_VAR "CTI_LOG_DIR"
#define CTI_DBG_ENV_VAR "CTI_DEBUG"
#define CTI_CFG_DIR_ENV_VAR "CTI_CFG_DIR"
#define CTI_LAUNCHER_SCRIPT_ENV_VAR "CTI_LAUNCHER_SCRIPT"
#define CTI_LAUNCHER_NAME_ENV_VAR "CTI_LAUNCHER_NAME"
#define CTI_WLM_IMPL_ENV_VAR "CTI_WLM_IMPL"
#define CTI_LAUNCHER_WRAPPER_ENV_VAR "CTI_LAUNCHER_WRAPPER"
#define CTI_BACKEND_WRAPPER_ENV_VAR "CTI_BACKEND_WRAPPER"
#define CTI_BACKEND_TMPDIR_ENV_VAR "CTI_BACKEND_TMPDIR"
#define CTI_CONTAINER_INSTANCE_ENV_VAR "CTI_CONTAINER_INSTANCE"

/* Words for workload managers, as cti_wlm_type_toString and cti_be_wlm_type_toString give them and CTI_WLM_IMPL takes them. */
#define CTI_WLM_TYPE_SLURM_STR "slurm"
#define CTI_WLM_TYPE_ALPS_STR "alps"
#define CTI_WLM_TYPE_SSH_STR "generic"
#define CTI_WLM_TYPE_PALS_STR "pals"
#define CTI_WLM_TYPE_FLUX_STR "flux"
#define CTI_WLM_TYPE_LOCALHOST_STR "localhost"
#define CTI_WLM_TYPE_PBS_STR "pbs" /* gantry's own */

#endif
