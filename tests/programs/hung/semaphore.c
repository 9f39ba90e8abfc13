/* A semaphore token that is never returned. */
#include "hung.h"
#include <semaphore.h>

static sem_t tokens;

static void free_us(void)
{
    sem_post(&tokens);
}

static void take(void)
{
    while (sem_wait(&tokens) != 0) /* odd */
        ;
}

int main(void)
{
    sem_init(&tokens, 0, 0);
    if (begin() == 1)
        take();
    else
        wait_for_the_others();
    return end(7);
}
