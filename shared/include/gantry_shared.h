/*
 * What gantry.h and gantry_be.h have in common: kinds of errors, and what the calls of the channel and of rendezvous take and give.
 *
 * Who is given a structure frees it with the function of the library that gave it: gantry_destroyX, or gantry_be_destroyX. NULL is fine there, and who frees
 * one twice changes nothing and is told so by the last error.
 */
#ifndef GANTRY_SHARED_H
#define GANTRY_SHARED_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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
    GANTRY_LOST = 8,            /* a node or the link to it is lost */
    GANTRY_GONE = 9,            /* what was asked about has ended or was closed */
    GANTRY_OTHER = 10,
    GANTRY_SYSTEM = 11,         /* the operating system refused: files, processes, memory or space are short */
    GANTRY_INTERNAL = 12        /* gantry itself is at fault: report it */
} gantry_error_kind_t;

/* A daemon on one node: an end of its session's channel. */
typedef struct {
    uint32_t node;   /* the node's number among those of the application, from 0 */
    uint32_t daemon; /* which daemon: cti_execToolDaemon starts one of one number on all nodes */
} gantry_member_t;

/* Bytes that came: a message, a result, data of a rendezvous. */
typedef struct {
    size_t size;
    unsigned char *bytes; /* never NULL; a 0 follows them, which is not counted */
    gantry_member_t from; /* of a message to the tool: who sent it; else zeros */
    uint32_t tag;         /* of a message; else 0 */
} gantry_data_t;

/* Bytes that are given, to be sent or merged. They are read during the call only. */
typedef struct {
    gantry_member_t member; /* of a scatter: the receiver; otherwise ignored */
    const void *bytes;
    size_t size;
} gantry_part_t;

/* A filter of the tool's own: makes one part of several, and gives it as memory of malloc() in `*result`, which gantry frees. Which parts come together, and in
 * which order, must not matter; its result may be one of the next parts. 0; anything else: it cannot. When it fails, gantry does not look at `*result` and frees
 * nothing: memory that the filter has allocated by then is the filter's to free. `parts` are gantry's in any case. */
typedef int (*gantry_merge_t)(void *context, const gantry_part_t *parts, int count, void **result, size_t *size);

/* How a rendezvous stands. */
typedef enum {
    GANTRY_WAITING = 0,  /* not all have registered */
    GANTRY_COMPLETE = 1, /* all have */
    GANTRY_BROKEN = 2    /* one has ended before it has: it will never be complete */
} gantry_standing_t;

typedef struct {
    char *name;           /* backend: its handle; frontend: the part of a handle behind the `?` */
    int level;            /* 1: of ranks; 2: of applications; and so on */
    uint32_t expected;    /* how many register */
    uint32_t registered;  /* how many have */
    gantry_standing_t standing;
    char *why;            /* broken: who has ended, and why; else NULL */
    char *above;          /* the one above it, named alike; NULL where there is none */
    uint32_t numberAbove; /* its number there */
} gantry_rendezvous_t;

typedef struct {
    int count;
    gantry_rendezvous_t *items;
} gantry_rendezvousList_t;

#ifdef __cplusplus
}
#endif

#endif
