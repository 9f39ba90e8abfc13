/* The peer is dead, but its end of the connection is still open in this process. */
#include "hung.h"
#include <sys/socket.h>
#include <sys/wait.h>

static int ends[2];

/* Sends the missing message. */
static void free_us(void)
{
    int answer = 7;

    if (ends[1] > 0 && send(ends[1], &answer, sizeof answer, 0) < 0)
        _exit(8);
}

static int ask(void)
{
    int answer = 0;

    if (recv(ends[0], &answer, sizeof answer, 0) < 0) /* odd */
        return 0;
    return answer;
}

int main(void)
{
    int result = 7;
    pid_t peer;

    if (begin() == 1 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0) {
        peer = fork();
        if (peer == 0)
            _exit(1);
        waitpid(peer, NULL, 0);
        result = ask();
    } else {
        wait_for_the_others();
    }
    return end(result);
}
