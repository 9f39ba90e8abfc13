/*
 * tm_threads: one thread waits in tm_poll for the end of a long task. Meanwhile another thread ends the task. For
 * tests of libgantry_tm. Run it as the script of a job.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <tm.h>

static volatile pid_t waiter;

/* Takes the next request that ends. */
static void *take(void *event)
{
    int error = 0;

    waiter = (pid_t)syscall(SYS_gettid);
    *(tm_event_t *)event = TM_NULL_EVENT;
    while (tm_poll(TM_NULL_EVENT, event, 1, &error) == TM_SUCCESS && *(tm_event_t *)event == TM_NULL_EVENT) {
    }
    return NULL;
}

/* Whether a thread sleeps, in any call. */
static int sleeps(pid_t thread)
{
    char path[64], text[256] = "";
    FILE *file;

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    file = fopen(path, "r");
    if (file == NULL)
        return 0;
    if (fgets(text, sizeof text, file) == NULL)
        text[0] = 0;
    fclose(file);
    return strstr(text, ") S ") != NULL;
}

int main(void)
{
    char *argv[] = {"/bin/sleep", "1000", NULL};
    struct tm_roots roots;
    tm_task_id task = TM_NULL_TASK;
    tm_event_t event, ended[2], obit, killed;
    int error = 0, status = -1;
    pthread_t thread;

    /* Ends the program if one thread's call blocks the other forever. */
    alarm(60);
    setvbuf(stdout, NULL, _IONBF, 0);
    printf("init %d\n", tm_init(NULL, &roots));
    printf("spawn %d\n", tm_spawn(2, argv, NULL, 0, &task, &event));
    printf("poll %d\n", tm_poll(TM_NULL_EVENT, &ended[0], 1, &error));
    printf("obit %d\n", tm_obit(task, &status, &obit));
    pthread_create(&thread, NULL, take, &ended[1]);
    while (waiter == 0 || !sleeps(waiter))
        usleep(1000);
    printf("kill %d\n", tm_kill(task, SIGKILL, &killed));
    take(&ended[0]);
    pthread_join(thread, NULL);
    printf("both %d\n", (ended[0] == obit && ended[1] == killed) || (ended[0] == killed && ended[1] == obit));
    printf("finalize %d\n", tm_finalize());
    return 0;
}
