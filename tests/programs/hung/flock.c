/* flock FILE: rank 1 waits for a flock(2) lock that it already holds, on a second file description. */
#include "hung.h"
#include <fcntl.h>
#include <sys/file.h>

static int first;

static void free_us(void)
{
    if (first > 0)
        flock(first, LOCK_UN);
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "";
    int second;

    if (begin() == 1) {
        first = open(path, O_RDWR | O_CREAT, 0600);
        second = open(path, O_RDWR);
        flock(first, LOCK_EX);
        if (flock(second, LOCK_EX) != 0) /* odd */
            return 8;
    } else {
        wait_for_the_others();
    }
    return end(7);
}
