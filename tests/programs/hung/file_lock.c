/* file_lock FILE: rank 1 waits for a lock of the file, which rank 0 holds. */
#include "hung.h"
#include <fcntl.h>

static void free_us(void)
{
}

static void lock(int file)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (fcntl(file, F_SETLKW, &all) != 0) /* odd */
        perror("fcntl");
}

int main(int argc, char **argv)
{
    int rank = begin();
    int file = open(argc > 1 ? argv[1] : "", O_RDWR | O_CREAT, 0600);
    char mark = 0;

    if (rank == 0) {
        lock(file);
        /* Rank 0 has the lock before rank 1 tries. */
        if (write(file, "x", 1) != 1)
            return 8;
    }
    while (rank == 1 && pread(file, &mark, 1, 0) != 1)
        usleep(1000);
    if (rank == 1)
        lock(file);
    else
        wait_for_the_others();
    return end(7);
}
