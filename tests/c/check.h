/* Common parts of the C suites: checks that report place and reason, a table of tests, waiting with a timeout. */
#ifndef CHECK_H
#define CHECK_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gantry.h"

#define SOON 20.0 /* seconds that anything may take that takes no time */

#define FAIL(...) \
    do { \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
        fprintf(stderr, __VA_ARGS__); \
        fprintf(stderr, "\n  last error: %s\n", cti_error_str()); \
        exit(1); \
    } while (0)

#define CHECK(what) \
    do { \
        if (!(what)) FAIL("not so: %s", #what); \
    } while (0)

/* A call that must fail, for a reason that has these words in it. */
#define FAILS(call, words) \
    do { \
        if (call) FAIL("did not fail: %s", #call); \
        if (!strstr(cti_error_str(), words)) FAIL("%s failed for another reason than '%s'", #call, words); \
    } while (0)

/* Waits until a condition holds, and fails at the timeout. */
#define UNTIL(what) \
    do { \
        double limit_ = now() + SOON; \
        while (!(what)) { \
            struct timespec pause_ = {0, 5000000}; \
            if (now() > limit_) FAIL("not in time: %s", #what); \
            nanosleep(&pause_, NULL); \
        } \
    } while (0)

typedef const char *const args_t[];

struct test {
    const char *name;
    void (*run)(void);
};

static inline double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A text in memory that is never freed: tests are short. */
__attribute__((format(printf, 1, 2))) static inline char *text(const char *format, ...) {
    char *made = NULL;
    __builtin_va_list list;
    __builtin_va_start(list, format);
    if (vasprintf(&made, format, list) < 0) abort();
    __builtin_va_end(list);
    return made;
}

static inline char *here(const char *name) {
    char folder[PATH_MAX];
    CHECK(getcwd(folder, sizeof folder));
    return text("%s/%s", folder, name);
}

static inline int exists(const char *path) {
    struct stat found;
    return lstat(path, &found) == 0;
}

static inline void write_file(const char *path, const char *content, mode_t mode) {
    FILE *file = fopen(path, "w");
    CHECK(file);
    CHECK(fputs(content, file) >= 0);
    CHECK(fclose(file) == 0);
    CHECK(chmod(path, mode) == 0);
}

/* Reads all bytes from a descriptor until its end. */
static inline char *read_all(int fd) {
    size_t size = 0, room = 1 << 16;
    char *bytes = malloc(room);
    for (;;) {
        struct pollfd one = {fd, POLLIN, 0};
        CHECK(size + 1 < room);
        CHECK(poll(&one, 1, (int)(SOON * 1000)) == 1);
        ssize_t got = read(fd, bytes + size, room - size - 1);
        CHECK(got >= 0);
        if (got == 0) break;
        size += (size_t)got;
    }
    bytes[size] = 0;
    return bytes;
}

static inline char *read_path(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) FAIL("%s: %s", path, strerror(errno));
    char *content = read_all(fd);
    close(fd);
    return content;
}

/* A line from a descriptor, without its end. */
static inline char *read_line(int fd) {
    size_t size = 0, room = 1 << 16;
    char *line = malloc(room);
    for (;;) {
        struct pollfd one = {fd, POLLIN, 0};
        CHECK(size + 1 < room);
        CHECK(poll(&one, 1, (int)(SOON * 1000)) == 1);
        CHECK(read(fd, line + size, 1) == 1);
        if (line[size] == '\n') break;
        size++;
    }
    line[size] = 0;
    return line;
}

static inline cti_app_id_t launch(args_t argv) {
    cti_app_id_t app = cti_launchApp(argv, -1, -1, NULL, NULL, NULL);
    if (app <= 0) FAIL("no launch");
    return app;
}

static inline cti_app_id_t launch_held(args_t argv) {
    cti_app_id_t app = cti_launchAppBarrier(argv, -1, -1, NULL, NULL, NULL);
    if (app <= 0) FAIL("no launch");
    return app;
}

static inline int exit_code(cti_app_id_t app) {
    int code = -1;
    if (gantry_waitApp(app, &code)) FAIL("no end");
    return code;
}

/* Attached to so many ranks on so many nodes. */
static inline void check_attached(cti_app_id_t app, int ranks, int nodes) {
    if (app <= 0) FAIL("not attached");
    CHECK(cti_appIsValid(app) && cti_getNumAppPEs(app) == ranks && cti_getNumAppNodes(app) == nodes);
}

/* A session with a daemon, and the application is left as it was found. */
static inline void serve_and_leave(cti_app_id_t app) {
    cti_session_id_t session = cti_createSession(app);
    if (session <= 0) FAIL("no session");
    CHECK(cti_execToolDaemon(cti_createManifest(session), "sleep", (args_t){"300", NULL}, NULL) == 0);
    CHECK(cti_destroySession(session) == 0);
    cti_deregisterApp(app);
}

/* The standard output of an application, from its launch to its end. */
static inline char *output_of(args_t argv, const char *input, const char *folder, args_t env) {
    int out[2];
    CHECK(pipe2(out, O_CLOEXEC) == 0);
    cti_app_id_t app = cti_launchApp(argv, out[1], -1, input, folder, env);
    close(out[1]);
    if (app <= 0) FAIL("no launch");
    char *said = read_all(out[0]);
    close(out[0]);
    cti_deregisterApp(app);
    return said;
}

/* Runs the test that the first argument names. */
static inline int run_named(const struct test *tests, int argc, char **argv) {
    for (; tests->name; tests++)
        if (argc > 1 && strcmp(tests->name, argv[1]) == 0) {
            tests->run();
            printf("ok %s\n", tests->name);
            return 0;
        }
    fprintf(stderr, "no such test\n");
    return 2;
}

#endif
