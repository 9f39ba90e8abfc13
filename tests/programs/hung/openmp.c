/* One thread of a team is late. The first thread waits for it at the end of the region. */
#include "hung.h"
#include <omp.h>

static void free_us(void)
{
}

static int region(void)
{
    int sum = 0;

#pragma omp parallel num_threads(3) reduction(+ : sum) /* odd */
    {
        sum = omp_get_thread_num() == 1 ? 5 : 1;
        while (omp_get_thread_num() == 1 && !freed)
            usleep(1000);
    }
    return sum;
}

int main(void)
{
    int result = 7;

    if (begin() == 1)
        result = region();
    else
        wait_for_the_others();
    return end(result);
}
