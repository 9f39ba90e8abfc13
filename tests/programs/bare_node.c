/*
 * bare_node HOST PORT: the minimum of an agent's timed work on a node, for benches. It connects to HOST and obeys
 * orders of one byte. It answers each with one byte when it is done:
 *   h  start two processes of /bin/true and hold each at its first instruction
 *   s  start /bin/sleep 600 (returns when that has been executed)
 *   k  end the process of "s" by SIGTERM and wait for it
 *   c  release the processes of "h"
 *   e  wait for the released processes
 * No secret, no encryption, no storage, one process, one thread. A program that is only slightly slower has little
 * left to gain. When the connection ends, it kills the processes that it has started, and exits.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 256

extern char **environ;

static pid_t started[MOST], held[MOST];
static int starts, holds;

static void end_all(const pid_t *pids, int count, int signal)
{
    for (int i = 0; i < count; i++)
        kill(pids[i], signal);
    for (int i = 0; i < count; i++)
        waitpid(pids[i], NULL, 0);
}

static int start(void)
{
    static char *const argv[] = {"sleep", "600", NULL};

    return starts < MOST && posix_spawn(&started[starts], "/bin/sleep", NULL, NULL, argv, environ) == 0 && ++starts;
}

static int hold(void)
{
    static char *const argv[] = {"true", NULL};
    int status;
    pid_t pid = vfork();

    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execv("/bin/true", argv);
        _exit(127);
    }
    if (pid < 0 || holds == MOST || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
        return 0;
    held[holds++] = pid;
    return ptrace(PTRACE_DETACH, pid, NULL, (void *)SIGSTOP) == 0;
}

static int obey(char order)
{
    switch (order) {
    case 'h':
        return hold() && hold();
    case 's':
        return start();
    case 'k':
        end_all(started, starts, SIGTERM);
        starts = 0;
        return 1;
    case 'c':
        for (int i = 0; i < holds; i++)
            kill(held[i], SIGCONT);
        return 1;
    case 'e':
        end_all(held, holds, SIGCONT);
        holds = 0;
        return 1;
    default:
        return 0;
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_in peer = {.sin_family = AF_INET};
    int link = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char order;

    if (argc != 3 || inet_pton(AF_INET, argv[1], &peer.sin_addr) != 1)
        return 2;
    peer.sin_port = htons((unsigned short)atoi(argv[2]));
    if (connect(link, (struct sockaddr *)&peer, sizeof peer) != 0)
        return 1;
    while (read(link, &order, 1) == 1) {
        char answer = obey(order) ? 'y' : 'n';
        if (write(link, &answer, 1) != 1)
            break;
    }
    end_all(started, starts, SIGKILL);
    end_all(held, holds, SIGKILL);
    return 0;
}
