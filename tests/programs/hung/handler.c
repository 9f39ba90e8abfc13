/* A signal arrived while a lock was held, and its handler takes the same lock. It can only be killed. */
#include "hung.h"
#include <pthread.h>

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

static void free_us(void)
{
}

static void write_to_the_log(int number)
{
    pthread_mutex_lock(&log_lock); /* odd */
    if (number == SIGUSR2)
        return;
    raise(SIGUSR2);
    pthread_mutex_unlock(&log_lock);
}

int main(void)
{
    if (begin() == 1) {
        signal(SIGUSR2, write_to_the_log);
        write_to_the_log(0);
    }
    wait_for_the_others();
    return end(7);
}
