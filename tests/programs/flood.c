/*
 * flood BYTES [stderr]: writes exactly BYTES bytes as fast as it can, then exits with 0. Lines have 64 bytes. A
 * line's first 16 characters are the offset of its start, in hexadecimal. For tests of forwarded output under
 * load: nothing lost, no torn lines, no deadlock.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int fd = argc > 2 && strcmp(argv[2], "stderr") == 0 ? 2 : 1;
    unsigned long long total, offset = 0;
    char line[65];

    if (argc < 2)
        return 2;
    total = strtoull(argv[1], NULL, 10);
    memset(line, '.', sizeof line);
    while (offset < total) {
        snprintf(line, sizeof line, "%016llx", offset);
        line[16] = ' ';
        line[63] = '\n';
        size_t length = total - offset < 64 ? (size_t)(total - offset) : 64;
        for (size_t done = 0; done < length;) {
            ssize_t wrote = write(fd, line + done, length - done);
            if (wrote < 0)
                return 1;
            done += (size_t)wrote;
        }
        offset += length;
    }
    return 0;
}
