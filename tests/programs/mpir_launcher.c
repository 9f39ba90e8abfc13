/*
 * mpir_launcher WORD...: a launcher for tests of launcher control. Prints "debugged 0" or "debugged 1", then obeys
 * its words in order, and exits with 0:
 *   ranks=N[/H]  fills the table with N ranks on H hosts n0, n1, ... (default 1), pids from 1001; each string has its
 *                own memory
 *   state=N  size=N  twin  unfilled: change the data for debuggers (twin: rank 1 is rank 0; unfilled: the last rank
 *                has no host)
 *   call         calls MPIR_Breakpoint and prints "called"
 *   calls=N      N threads call it at once; prints "called" once
 *   adrift       calls it with an invalid stack pointer and no return address on the stack (x86-64); prints "back"
 *   fork  vfork  a child that calls MPIR_Breakpoint (vfork: executes /bin/true); prints "child 0" or its wait status
 *   threads=N    threads that spin until the end
 *   handle       prints "got 10" when SIGUSR1 comes
 *   say=TEXT  complain=TEXT  abort=TEXT: to standard output, to standard error, as the reason of an abort
 *   where        prints "table 0x..." with the table's address
 *   wait         reads standard input to its end
 *   pause        waits for signals only
 *   exec         executes the program that the other words name
 *   exit=N
 * With SYMBOLS_ELSEWHERE it must be linked with mpir_symbols. SIGALRM ends it after 300 s, so that a broken test
 * leaves nothing.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef SYMBOLS_ELSEWHERE
struct mpir_process {
    char *host_name;
    char *executable_name;
    int pid;
};
extern int MPIR_being_debugged, MPIR_debug_state, MPIR_proctable_size;
extern struct mpir_process *MPIR_proctable;
extern char *MPIR_debug_abort_string;
extern void MPIR_Breakpoint(void);
#else
#include "mpir_symbols.c"
#endif

static void got(int number)
{
    char text[] = "got 10\n";

    text[4] = (char)('0' + number / 10);
    text[5] = (char)('0' + number % 10);
    if (write(1, text, sizeof text - 1) < 0)
        _exit(9);
}

static void *spin(void *nothing)
{
    for (volatile unsigned long turn = 0;; turn++)
        usleep(100);
    return nothing;
}

static void *call(void *nothing)
{
    MPIR_Breakpoint();
    return nothing;
}

static void call_by_threads(int count)
{
    pthread_t threads[16];
    int at;

    for (at = 0; at < count && at < 16; at++)
        pthread_create(&threads[at], 0, call, 0);
    while (at-- > 0)
        pthread_join(threads[at], 0);
    puts("called");
}

#ifdef ADRIFT
/* mpir_symbols then has another breakpoint function, which takes its stack pointer from here. */
unsigned long mpir_stack;

static void call_adrift(void)
{
    __asm__ volatile("sub $128, %%rsp\n\t"
                     "push %%rbp\n\t"
                     "lea 1f(%%rip), %%rax\n\t"
                     "push %%rax\n\t"
                     "mov %%rsp, mpir_stack(%%rip)\n\t"
                     "mov $4096, %%rsp\n\t"
                     "jmp MPIR_Breakpoint\n"
                     "1:\n\t"
                     "pop %%rbp\n\t"
                     "add $128, %%rsp"
                     ::: "rax", "memory", "cc");
    puts("back");
}
#endif

static void fill(const char *how)
{
    int ranks = 0, hosts = 1, rank;
    char host[32];

    sscanf(how, "%d/%d", &ranks, &hosts);
    MPIR_proctable = calloc((size_t)ranks, sizeof *MPIR_proctable);
    for (rank = 0; rank < ranks; rank++) {
        snprintf(host, sizeof host, "n%d", rank % hosts);
        MPIR_proctable[rank].host_name = strdup(host);
        MPIR_proctable[rank].executable_name = strdup("./app");
        MPIR_proctable[rank].pid = 1001 + rank;
    }
    MPIR_proctable_size = ranks;
    MPIR_debug_state = 1;
}

static void child(int borrow)
{
    int status = 0;
    pid_t pid = borrow ? vfork() : fork();

    if (pid == 0) {
        if (borrow)
            execl("/bin/true", "true", (char *)0);
        else
            MPIR_Breakpoint();
        _exit(0);
    }
    waitpid(pid, &status, 0);
    printf("child %d\n", status);
}

static void obey(const char *word, const char *value, char **rest)
{
    pthread_t thread;
    char byte;
    int count;

    if (!strcmp(word, "ranks"))
        fill(value);
    else if (!strcmp(word, "state"))
        MPIR_debug_state = atoi(value);
    else if (!strcmp(word, "size"))
        MPIR_proctable_size = atoi(value);
    else if (!strcmp(word, "twin"))
        MPIR_proctable[1] = MPIR_proctable[0];
    else if (!strcmp(word, "unfilled"))
        MPIR_proctable[MPIR_proctable_size - 1].host_name = 0;
    else if (!strcmp(word, "fork") || !strcmp(word, "vfork"))
        child(word[0] == 'v');
    else if (!strcmp(word, "threads"))
        for (count = atoi(value); count > 0; count--)
            pthread_create(&thread, 0, spin, 0);
    else if (!strcmp(word, "calls"))
        call_by_threads(atoi(value));
#ifdef ADRIFT
    else if (!strcmp(word, "adrift"))
        call_adrift();
#endif
    else if (!strcmp(word, "handle"))
        signal(SIGUSR1, got);
    else if (!strcmp(word, "say"))
        puts(value);
    else if (!strcmp(word, "complain"))
        fprintf(stderr, "%s\n", value);
    else if (!strcmp(word, "where"))
        printf("table %p\n", (void *)MPIR_proctable);
    else if (!strcmp(word, "wait"))
        while (read(0, &byte, 1) > 0)
            ;
    else if (!strcmp(word, "pause"))
        for (;;)
            pause();
    else if (!strcmp(word, "exec"))
        execvp(rest[0], rest);
    else if (!strcmp(word, "exit"))
        exit(atoi(value));
    else if (!strcmp(word, "abort")) {
        MPIR_debug_abort_string = (char *)value;
        MPIR_debug_state = 2;
        MPIR_Breakpoint();
    } else if (!strcmp(word, "call")) {
        MPIR_Breakpoint();
        puts("called");
    } else {
        fprintf(stderr, "mpir_launcher: what is %s?\n", word);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    int at;

    alarm(300);
    setvbuf(stdout, 0, _IOLBF, 0);
    printf("debugged %d\n", MPIR_being_debugged);
    for (at = 1; at < argc; at++) {
        char *value = strchr(argv[at], '=');

        if (value)
            *value++ = 0;
        obey(argv[at], value ? value : "", argv + at + 1);
    }
    return 0;
}
