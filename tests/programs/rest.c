/*
 * rest [SECONDS | PATH]: waits that long (default half a second), or until a FIFO is opened for writing. Then it
 * ends. For commands in the documents, whose programs end by themselves.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 0.5;
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

    if (argc > 1 && argv[1][0] == '/')
        return open(argv[1], O_RDONLY) < 0;
    while (nanosleep(&left, &left) != 0)
        ;
    return 0;
}
