/*
 * The task management interface of PBS, tm(3), as libgantry_tm has it. Names, types and values are those of PBS's own
 * library, so that a program written for that one is compiled and linked with this one:
 *
 *     cc program.c $(pkg-config --cflags --libs gantry_tm)
 *
 * All but tm_init, tm_nodeinfo, tm_poll, tm_atnode, tm_attach and tm_finalize start a request and return. tm_poll
 * reports the ends of requests, in the order in which they end. Only then the variables that a request points to are set. Several
 * threads may call: a waiting tm_poll lets other calls in. When several threads wait, any of them may get a request's
 * end.
 */
#ifndef GANTRY_TM_H
#define GANTRY_TM_H

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A host, as a number. */
typedef int tm_host_id;
/* A place of the job where tasks can be started: a line of PBS_NODEFILE, counted from 0. */
typedef int tm_node_id;
#define TM_ERROR_NODE ((tm_node_id)-1)

/* A request that was begun; above 0. */
typedef int tm_event_t;
#define TM_NULL_EVENT ((tm_event_t)0)
#define TM_ERROR_EVENT ((tm_event_t)-1)

/* A task; unique in the job. */
typedef unsigned int tm_task_id;
#define TM_NULL_TASK ((tm_task_id)0)
#define TM_INIT_TASK ((tm_task_id)1)

/* Return values of functions, and values of tm_errno after tm_poll. Moms of other hosts also return numbers from
 * 15001 on. */
#define TM_SUCCESS 0
#define TM_ESYSTEM 17000         /* no mom, or it could not do it */
#define TM_ENOEVENT 17001        /* an answer to nothing */
#define TM_ENOTCONNECTED 17002   /* the connection has ended, and with it all requests */
#define TM_EUNKNOWNCMD 17003
#define TM_ENOTIMPLEMENTED 17004
#define TM_EBADENVIRONMENT 17005 /* PBS_* variables are missing; a null pointer */
#define TM_ENOTFOUND 17006       /* no such node, task or name; in tm_poll: nothing is under way */
#define TM_BADINIT 17007         /* before tm_init, or tm_init twice */
#define TM_ESESSION 17008        /* the session is a task already */
#define TM_EUSER 17009           /* the job is another user's */
#define TM_EOWNER 17010          /* the process is another user's */
#define TM_ENOPROC 17011         /* no such process */
#define TM_EHOOK 17012           /* refused by the site */

/* For tm_register. */
#define TM_TODO_NOP 5000
#define TM_TODO_CKPT 5001
#define TM_TODO_MOVE 5002
#define TM_TODO_QUIT 5003
#define TM_TODO_STOP 5004

/* The caller's place in its job. */
struct tm_roots {
    tm_task_id tm_me;
    tm_task_id tm_parent;    /* TM_NULL_TASK: PBS itself */
    int tm_nnodes;
    int tm_ntasks;           /* always 0 */
    int tm_taskpoolid;       /* always -1 */
    tm_task_id *tm_tasklist; /* always NULL */
};

typedef struct tm_whattodo {
    int tm_todo;
    tm_task_id tm_what;
    tm_node_id tm_where;
} tm_whattodo_t;

/* Connects to the mom of this host. Waits for its answer, a minute at most. `info` is not used. */
int tm_init(void *info, struct tm_roots *roots);

/* The next request that has ended. `poll_event` must be TM_NULL_EVENT. Without `wait`, and when a signal comes, `result_event` may be
 * TM_NULL_EVENT: none yet. */
int tm_poll(tm_event_t poll_event, tm_event_t *result_event, int wait, int *tm_errno);

/* The nodes of the job, in memory that the caller frees. */
int tm_nodeinfo(tm_node_id **list, int *nnodes);

/* Starts a task. A successful start does not mean that the program was executed: the end of one that cannot be
 * executed is 254. */
int tm_spawn(int argc, char *argv[], char *envp[], tm_node_id where, tm_task_id *tid, tm_event_t *event);

/* Sends a signal to all processes of a task's session. */
int tm_kill(tm_task_id tid, int sig, tm_event_t *event);

/* The end of a task: its exit code, or 256 and the number of the signal that killed it. */
int tm_obit(tm_task_id tid, int *obitval, tm_event_t *event);

/* The tasks of a node. `ntasks` may say that there are more than fit into the list. */
int tm_taskinfo(tm_node_id node, tm_task_id *list, int lsize, int *ntasks, tm_event_t *event);

/* The node of a task that the caller knows. */
int tm_atnode(tm_task_id tid, tm_node_id *node);

/* The output of uname there, a colon, the resources of the job. Cut, and then without a terminating zero, if it does
 * not fit. */
int tm_rescinfo(tm_node_id node, char *resource, int len, tm_event_t *event);

/* Leaves bytes under a name, and reads a task's bytes; `amount` is set to their number, even if they do not fit. */
int tm_publish(char *name, void *info, int nbytes, tm_event_t *event);
int tm_subscribe(tm_task_id tid, char *name, void *info, int len, int *amount, tm_event_t *event);

/* Makes the session of a process a task of a job of the caller; `cookie` must be NULL, `host` NULL or "localhost". Waits for the answer. */
int tm_attach(char *jobid, char *cookie, pid_t pid, tm_task_id *tid, char *host, int port);

/* Hangs up, and forgets all requests. */
int tm_finalize(void);

/* Not supported by PBS: TM_ENOTIMPLEMENTED. */
int tm_notify(int tm_signal);
int tm_alloc(char *resources, tm_event_t *event);
int tm_dealloc(tm_node_id node, tm_event_t *event);
int tm_create_event(tm_event_t *event);
int tm_destroy_event(tm_event_t *event);
int tm_register(tm_whattodo_t *what, tm_event_t *event);

#ifdef __cplusplus
}
#endif

#endif
