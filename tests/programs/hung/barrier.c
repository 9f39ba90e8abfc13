/* A barrier for one thread more than those that come. */
#include "hung.h"
#include <pthread.h>

static pthread_barrier_t all;

static void free_us(void)
{
}

static void *come_late(void *unused)
{
    (void)unused;
    while (!freed)
        usleep(1000);
    pthread_barrier_wait(&all);
    return NULL;
}

int main(void)
{
    pthread_t late;

    if (begin() == 1) {
        pthread_barrier_init(&all, NULL, 2);
        pthread_create(&late, NULL, come_late, NULL);
        pthread_barrier_wait(&all); /* odd */
        pthread_join(late, NULL);
    } else {
        wait_for_the_others();
    }
    return end(7);
}
