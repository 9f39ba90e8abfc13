/* Two threads take two locks in opposite order: a deadlock. It can only be killed. */
#include "hung.h"
#include <pthread.h>

static pthread_mutex_t left = PTHREAD_MUTEX_INITIALIZER, right = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static void free_us(void)
{
}

static void *from_the_right(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&right);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&left);
    return NULL;
}

static void from_the_left(void)
{
    pthread_mutex_lock(&left);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&right); /* odd */
}

int main(void)
{
    pthread_t other;

    if (begin() == 1) {
        pthread_barrier_init(&both, NULL, 2);
        pthread_create(&other, NULL, from_the_right, NULL);
        from_the_left();
    }
    wait_for_the_others();
    return end(7);
}
