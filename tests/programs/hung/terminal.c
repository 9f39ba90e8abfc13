/* A rank that waits for input from a terminal. */
#define _GNU_SOURCE
#include "hung.h"
#include <fcntl.h>

static int keyboard;

static void free_us(void)
{
    if (keyboard > 0 && write(keyboard, "7\n", 2) != 2)
        _exit(8);
}

static int ask(FILE *terminal)
{
    char answer[16] = "0";

    if (!fgets(answer, sizeof answer, terminal)) /* odd */
        return 0;
    return atoi(answer);
}

int main(void)
{
    int result = 7;

    if (begin() == 1) {
        keyboard = posix_openpt(O_RDWR | O_NOCTTY);
        if (grantpt(keyboard) != 0 || unlockpt(keyboard) != 0)
            return 8;
        result = ask(fdopen(open(ptsname(keyboard), O_RDWR | O_NOCTTY), "r"));
    } else {
        wait_for_the_others();
    }
    return end(result);
}
