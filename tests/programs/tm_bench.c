/*
 * tm_bench each | near N | far N | flight N: how long task management takes, in microseconds, with the library
 * that this is compiled with.
 *   each    one program on every node, from before tm_init until all have ended
 *   near    N requests about the own node, one after the other; far: about the last node
 *   flight  N programs, all requests in flight at the same time, until all have ended
 * For the bench pbs_tm. Run it as the script of a job.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tm.h>

#define MOST 5000

static tm_task_id tasks[MOST];
static tm_event_t spawned[MOST];
static int statuses[MOST];

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static void must(int outcome, const char *what)
{
    if (outcome != TM_SUCCESS) {
        printf("%s: %d\n", what, outcome);
        exit(1);
    }
}

/* Starts `count` programs over all nodes. Asks for the end of each as soon as it runs. */
static void run(int count, int nodes)
{
    char *argv[] = {"/bin/true", NULL};
    tm_event_t event;
    int index, error, ended = 0;

    for (index = 0; index < count; index++)
        must(tm_spawn(1, argv, NULL, index % nodes, &tasks[index], &spawned[index]), "spawn");
    while (ended < count) {
        must(tm_poll(TM_NULL_EVENT, &event, 1, &error), "poll");
        must(error, "a request");
        for (index = 0; index < count && spawned[index] != event; index++)
            ;
        if (index == count) {
            ended++;
        } else {
            must(tm_obit(tasks[index], &statuses[index], &event), "obit");
        }
    }
}

static void ask(int count, tm_node_id node)
{
    static tm_task_id list[MOST * 4];
    tm_event_t event;
    int index, error, found;

    for (index = 0; index < count; index++) {
        must(tm_taskinfo(node, list, MOST * 4, &found, &event), "taskinfo");
        must(tm_poll(TM_NULL_EVENT, &event, 1, &error), "poll");
        must(error, "a request");
    }
}

int main(int argc, char **argv)
{
    struct tm_roots roots;
    double begin = now();
    int count = argc > 2 ? atoi(argv[2]) : 1;

    must(tm_init(NULL, &roots), "init");
    if (argc > 1 && strcmp(argv[1], "each") == 0) {
        run(roots.tm_nnodes, roots.tm_nnodes);
    } else {
        begin = now();
        if (argc > 1 && strcmp(argv[1], "flight") == 0)
            run(count, roots.tm_nnodes);
        else
            ask(count, argc > 1 && strcmp(argv[1], "far") == 0 ? roots.tm_nnodes - 1 : 0);
    }
    printf("%.0f\n", (now() - begin) / count);
    tm_finalize();
    return 0;
}
