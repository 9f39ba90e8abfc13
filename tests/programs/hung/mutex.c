/* A lock that another thread keeps. */
#include "hung.h"
#include <pthread.h>

static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;
static int balance;

static void free_us(void)
{
}

static void *keep_the_door_shut(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&door);
    pthread_barrier_wait(&both);
    while (!freed)
        usleep(1000);
    balance = 7;
    pthread_mutex_unlock(&door);
    return NULL;
}

static int withdraw(void)
{
    int all;

    pthread_mutex_lock(&door); /* odd */
    all = balance;
    pthread_mutex_unlock(&door);
    return all;
}

int main(void)
{
    pthread_t keeper;
    int result = 7;

    if (begin() == 1) {
        pthread_barrier_init(&both, NULL, 2);
        pthread_create(&keeper, NULL, keep_the_door_shut, NULL);
        pthread_barrier_wait(&both);
        result = withdraw();
        pthread_join(keeper, NULL);
    } else {
        wait_for_the_others();
    }
    return end(result);
}
