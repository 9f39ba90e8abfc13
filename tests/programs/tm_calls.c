/*
 * tm_calls: every call of tm(3), once with success and once with failure, like a program for PBS's own library. It
 * includes <tm.h> of the library that it is compiled with. Its output does not depend on times and task numbers,
 * so two libraries can be compared. For tests of libgantry_tm. Run it as the script of a job with three hosts of
 * two nodes each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <signal.h>
#include <sys/wait.h>

#include <tm.h>

#define HERE 0
#define LAST 4

/* Waits for the end of one request and prints its result. */
static int wait_for(const char *what, int begun, tm_event_t event)
{
    tm_event_t ended = TM_NULL_EVENT;
    int error = 0, polled;

    if (begun != TM_SUCCESS) {
        printf("%s: not begun: %d\n", what, begun);
        return begun;
    }
    polled = tm_poll(TM_NULL_EVENT, &ended, 1, &error);
    printf("%s: poll %d, the same event %d, error %d\n", what, polled, ended == event, error);
    return polled ? polled : error;
}

static tm_task_id start(tm_node_id node, char *script, char **environment)
{
    char *argv[] = {"/bin/sh", "-c", script, NULL};
    tm_task_id task = TM_NULL_TASK;
    tm_event_t event = TM_NULL_EVENT;
    int begun = tm_spawn(3, argv, environment, node, &task, &event);

    wait_for("spawn", begun, event);
    printf("a task: %d\n", task != TM_NULL_TASK);
    return task;
}

static void end_of(tm_task_id task)
{
    int status = -1;
    tm_event_t event = TM_NULL_EVENT;
    int begun = tm_obit(task, &status, &event);

    wait_for("obit", begun, event);
    printf("status %d\n", status);
}

static void before_init(void)
{
    tm_event_t event = TM_NULL_EVENT;
    tm_node_id *list = NULL;
    int count = 0, error = 0;

    printf("before tm_init: %d %d %d %d %d\n", tm_poll(TM_NULL_EVENT, &event, 0, &error), tm_nodeinfo(&list, &count),
           tm_finalize(), tm_notify(15), tm_kill(1, 0, &event));
}

static void nodes_and_tasks(void)
{
    tm_node_id *list = NULL, where = -7;
    tm_task_id tasks[2] = {7, 7}, many[100] = {0}, task;
    tm_event_t event = TM_NULL_EVENT;
    int count = -1, index, begun;

    printf("nodeinfo: %d", tm_nodeinfo(&list, &count));
    for (index = 0; index < count; index++)
        printf(" %d", list[index]);
    printf("\n");
    free(list);
    task = start(LAST, "exit 3", NULL);
    printf("atnode: %d", tm_atnode(task, &where));
    printf(" %d\n", where);
    printf("atnode of nobody: %d\n", tm_atnode(0x0fffffff, &where));
    end_of(task);
    begun = tm_taskinfo(HERE, tasks, 2, &count, &event);
    wait_for("taskinfo", begun, event);
    printf("tasks: %d, the script %d\n", count, tasks[0] == TM_INIT_TASK);
    begun = tm_taskinfo(LAST, many, 100, &count, &event);
    wait_for("taskinfo", begun, event);
    for (index = 0; index < count && many[index] != task; index++)
        ;
    printf("it is among them: %d, and a null at the end: %d\n", index < count, many[count] == TM_NULL_TASK);
    printf("no list: %d\n", tm_taskinfo(HERE, NULL, 2, &count, &event));
    begun = tm_taskinfo(99, many, 100, &count, &event);
    wait_for("taskinfo of a node that is not there", begun, event);
}

static void programs(void)
{
    char *environment[] = {"COLOUR=green", "EMPTY=", "nonsense", NULL};
    char *missing[] = {"/nonexistent/program", NULL};
    tm_task_id task = TM_NULL_TASK;
    tm_event_t event = TM_NULL_EVENT;
    int begun;

    end_of(start(HERE, "[ \"$COLOUR\" = green ] && [ -z \"$EMPTY\" ] && exit 5", environment));
    end_of(start(LAST, "[ \"$COLOUR\" = green ] && exit 6", environment));
    begun = tm_spawn(1, missing, NULL, HERE, &task, &event);
    wait_for("spawn of nothing", begun, event);
    end_of(task);
    printf("no arguments: %d\n", tm_spawn(0, missing, NULL, HERE, &task, &event));
    begun = tm_spawn(1, missing, NULL, 99, &task, &event);
    wait_for("spawn on a node that is not there", begun, event);
    task = start(LAST, "exec sleep 300", NULL);
    begun = tm_kill(task, 15, &event);
    wait_for("kill", begun, event);
    end_of(task);
    printf("kill nobody: %d\n", tm_kill(0x0fffffff, 15, &event));
    printf("obit of nobody: %d\n", tm_obit(0x0fffffff, &begun, &event));
}

static void names(tm_task_id me)
{
    char info[16] = "...............";
    tm_event_t event = TM_NULL_EVENT;
    int length = -1, begun;

    begun = tm_publish("name", "a\0bcdef", 7, &event);
    wait_for("publish", begun, event);
    begun = tm_subscribe(me, "name", info, 4, &length, &event);
    wait_for("subscribe", begun, event);
    printf("%d bytes, the first %d, then %s\n", length, memcmp(info, "a\0bc", 4) == 0, info + 4);
    begun = tm_subscribe(me, "no such name", info, 16, &length, &event);
    wait_for("subscribe to nothing", begun, event);
    printf("subscribe to nobody: %d\n", tm_subscribe(0x0fffffff, "name", info, 16, &length, &event));
}

static void resources(void)
{
    char text[512], small[6] = ".....";
    tm_event_t event = TM_NULL_EVENT;
    int begun = tm_rescinfo(LAST, text, sizeof text, &event);

    wait_for("rescinfo", begun, event);
    printf("%d, a colon %d\n", strncmp(text, "Linux ", 6) == 0, strchr(text, ':') != NULL);
    begun = tm_rescinfo(LAST, small, 4, &event);
    wait_for("rescinfo", begun, event);
    printf("%s\n", small);
    printf("no room: %d\n", tm_rescinfo(LAST, text, 0, &event));
}

static void events(void)
{
    tm_event_t late = TM_NULL_EVENT, quick = TM_NULL_EVENT, ended = 77;
    int status = -1, error = 77, polled, count = 0;
    tm_task_id task, list[100];

    printf("nothing is under way: %d\n", tm_poll(TM_NULL_EVENT, &ended, 1, &error));
    printf("an event of one's own: %d\n", tm_poll(5, &ended, 0, &error));
    printf("no place: %d\n", tm_poll(TM_NULL_EVENT, NULL, 0, &error));
    task = start(LAST, "exec sleep 300", NULL);
    tm_obit(task, &status, &late);
    polled = tm_poll(TM_NULL_EVENT, &ended, 0, &error);
    printf("none yet: poll %d event %d\n", polled, ended);
    tm_taskinfo(HERE, list, 100, &count, &quick);
    polled = tm_poll(TM_NULL_EVENT, &ended, 1, &error);
    printf("who was asked last answers first: poll %d, %d\n", polled, ended == quick && quick != late);
    tm_kill(task, 9, &quick);
    polled = tm_poll(TM_NULL_EVENT, &ended, 1, &error);
    polled += tm_poll(TM_NULL_EVENT, &ended, 1, &error);
    printf("both have ended: poll %d status %d\n", polled, status);
}

static void unsupported(void)
{
    tm_whattodo_t what = {TM_TODO_NOP, 0, 0};
    tm_event_t event;

    printf("not there: %d %d %d %d %d %d\n", tm_notify(15), tm_alloc("ncpus=1", &event), tm_dealloc(0, &event),
           tm_create_event(&event), tm_destroy_event(&event), tm_register(&what, &event));
}

/* A session that TM has not started. */
static void attachments(void)
{
    tm_task_id task = TM_NULL_TASK;
    char *job = getenv("PBS_JOBID");
    int port = atoi(getenv("PBS_MOMPORT"));
    int ready[2];
    char byte;
    pid_t child;

    if (pipe(ready) != 0)
        return;
    child = fork();
    if (child == 0) {
        setsid();
        if (write(ready[1], "r", 1) == 1)
            pause();
        _exit(0);
    }
    if (read(ready[0], &byte, 1) != 1)
        return;
    printf("attach: %d\n", tm_attach(job, NULL, child, &task, NULL, port));
    printf("a task: %d\n", task != TM_NULL_TASK);
    printf("attach again: %d\n", tm_attach(job, NULL, child, &task, NULL, port));
    printf("attach nobody: %d\n", tm_attach(job, NULL, 0x7fffffff, &task, NULL, port));
    kill(child, 9);
    waitpid(child, NULL, 0);
}

int main(void)
{
    struct tm_roots roots;
    int outcome;

    setvbuf(stdout, NULL, _IOLBF, 0);
    before_init();
    attachments();
    memset(&roots, 7, sizeof roots);
    outcome = tm_init(NULL, &roots);
    printf("init: %d\n", outcome);
    if (outcome != TM_SUCCESS)
        return 1;
    printf("me %u parent %u nodes %d tasks %d pool %d list %d\n", roots.tm_me, roots.tm_parent, roots.tm_nnodes,
           roots.tm_ntasks, roots.tm_taskpoolid, roots.tm_tasklist == NULL);
    printf("init again: %d\n", tm_init(NULL, &roots));
    nodes_and_tasks();
    programs();
    names(roots.tm_me);
    resources();
    events();
    unsupported();
    printf("finalize: %d %d\n", tm_finalize(), tm_finalize());
    printf("init anew: %d\n", tm_init(NULL, &roots));
    printf("finalize: %d\n", tm_finalize());
    return 0;
}
