/* The headers, in any order and twice, in every standard of C and C++ that tools are written in. */
#include "common_tools_shared.h"

/* Daemons have these types from it alone. */
struct types_of_daemons {
    uint32_t number;
    pid_t process;
};

#include "gantry.h"
#include "gantry_be.h"
#include "common_tools_be.h"
#include "common_tools_fe.h"
#include "common_tools_shared.h"
#include "common_tools_version.h"

int main(void) {
    return CTI_WLM_NONE + CTI_PACKAGE_MAJOR - 2;
}
