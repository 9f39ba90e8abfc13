/*
 * loop_forever [spin]: prints "looping" and never ends by itself. SIGALRM ends it after 600 s, in case a test is
 * broken. It waits in pause, so that many ranks fit on few cores. "spin": it burns a core. For tests that kill
 * something: only the kill ends it.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile unsigned long turns;

int main(int argc, char **argv)
{
    int spin = argc > 1 && strcmp(argv[1], "spin") == 0;

    alarm(600);
    printf("looping\n");
    fflush(stdout);
    for (;;) {
        if (spin)
            turns++;
        else
            pause();
    }
}
