/* A pipe without a reader. */
#include "hung.h"
#include <poll.h>

static int ends[2];
static char block[4096];

/* Empties the pipe. */
static void free_us(void)
{
    struct pollfd news = {.fd = ends[0], .events = POLLIN};
    static char taken[4096];

    while (ends[0] > 0 && poll(&news, 1, 0) == 1 && read(ends[0], taken, sizeof taken) > 0)
        ;
}

static int report(void)
{
    int written = 0;

    while (!freed && write(ends[1], block, sizeof block) > 0) /* odd */
        written++;
    return written > 7 ? 7 : written;
}

int main(void)
{
    int result = 7;

    if (begin() == 1 && pipe(ends) == 0)
        result = report();
    else
        wait_for_the_others();
    return end(result);
}
