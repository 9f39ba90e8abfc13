/* Versions of the Common Tools Interface that these libraries follow. */
#ifndef _COMMON_TOOLS_VERSION_H
#define _COMMON_TOOLS_VERSION_H

#define CTI_PACKAGE_VERSION "2.21.1"
#define CTI_PACKAGE_MAJOR 2
#define CTI_PACKAGE_MINOR 21
#define CTI_PACKAGE_REVISION 1
#define CTI_PACKAGE_BUILD_NUMBER

#define CTI_BE_VERSION "2.4.1"
#define CTI_BE_CURRENT 6
#define CTI_BE_AGE 4
#define CTI_BE_REVISION 1

#define CTI_FE_VERSION "2.4.1"
#define CTI_FE_CURRENT 6
#define CTI_FE_AGE 4
#define CTI_FE_REVISION 1

#endif
