/*
 * steps MODE [COUNT]: healthy and hanging programs, to test how hangs are detected. Prints "begun" first. Exits
 * with 0.
 * work: computes. sleep: sleeps for a second, COUNT times. files: writes and reads a little, with breaks, COUNT times.
 * hang: waits for a pipe without a writer. sleeps-in-a-loop: polls by sleeping, for something that never comes.
 * once: hangs until SIGUSR1 comes, then computes.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile double sum;
static volatile sig_atomic_t told;

static void be_told(int signal)
{
    (void)signal;
    told = 1;
}

__attribute__((noinline)) void compute(int rounds)
{
    for (int round = 0; round < rounds; round++)
        for (int i = 1; i < 1000; i++)
            sum += 1.0 / i;
}

__attribute__((noinline)) void use_files(void)
{
    FILE *file = tmpfile();
    char text[64];

    if (!file)
        exit(1);
    fprintf(file, "%f\n", sum);
    rewind(file);
    if (!fgets(text, sizeof text, file))
        exit(1);
    fclose(file);
}

__attribute__((noinline)) void wait_for_nobody(void)
{
    int ends[2];
    char byte;

    if (pipe(ends))
        exit(1);
    while (!told && read(ends[0], &byte, 1) != 1)
        ;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "work";
    int count = argc > 2 ? atoi(argv[2]) : 1000;
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = be_told;
    sigaction(SIGUSR1, &action, NULL);
    printf("begun\n");
    fflush(stdout);
    for (int turn = 0; turn < count; turn++) {
        if (!strcmp(mode, "sleep")) {
            sleep(1);
        } else if (!strcmp(mode, "files")) {
            use_files();
            usleep(100000);
        } else if (!strcmp(mode, "hang")) {
            wait_for_nobody();
        } else if (!strcmp(mode, "sleeps-in-a-loop")) {
            while (!told)
                usleep(100000);
        } else if (!strcmp(mode, "once")) {
            wait_for_nobody();
            for (;;)
                compute(1000);
        } else {
            compute(10000);
        }
    }
    return 0;
}
