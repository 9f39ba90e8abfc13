/*
 * cat: copies stdin to stdout until the end of stdin, unbuffered, then exits with 0. For tests of the stdin of
 * rank 0: the bytes and the end must arrive.
 */
#include <stdio.h>
#include <unistd.h>

static char buffer[65536];

int main(void)
{
    ssize_t got;

    while ((got = read(0, buffer, sizeof buffer)) > 0)
        for (ssize_t done = 0; done < got;) {
            ssize_t wrote = write(1, buffer + done, (size_t)(got - done));
            if (wrote < 0) {
                perror("write");
                return 1;
            }
            done += wrote;
        }
    return got < 0;
}
