/* Which node the daemon before this one was: told to the next one on this file and kernel, and to
 * nobody while that daemon lives. */
#include "tests/lib/harness.h"

#include "daemon/base/predecessor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE = 36 + 1 + 3 * 17 };

static const char *path_of(const char *name)
{
    static char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", harness_tmpdir(), name);
    return path;
}

/* The one before, as a daemon is told that is that node; it ends, and leaves what it has noted. */
static uint64_t told(const char *path, uint64_t id)
{
    struct predecessor *predecessor = NULL;
    struct dl_error err = {0};
    uint64_t before = 99;

    if (predecessor_open(path, id, &predecessor, &before, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    assert_null(predecessor_close(predecessor));
    return before;
}

static size_t read_all(const char *path, char ret[256])
{
    FILE *file = fopen(path, "re");

    assert_non_null(file);
    size_t n = fread(ret, 1, 255, file);
    ret[n] = '\0';
    (void)fclose(file);
    return n;
}

static void write_all(const char *path, const char *bytes, size_t n)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

TEST(test_one_after_the_other)
{
    const char *path = path_of("node");
    struct predecessor *predecessor = NULL;
    struct dl_error err = {0};
    uint64_t before;

    assert_int_equal(told(path, 5), 0);
    assert_int_equal(told(path, UINT64_MAX), 5);
    assert_int_equal(told(path, 7), UINT64_MAX);
    assert_int_equal(predecessor_open(path, 8, &predecessor, &before, &err), 0);
    assert_int_equal(before, 7);
    predecessor_forget(predecessor); /* it has left in order */
    (void)predecessor_close(predecessor);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(told(path, 9), 0);
    predecessor_forget(NULL);
    assert_null(predecessor_close(NULL));
    assert_int_equal(unlink(path), 0);
}

/* Another process has it: nothing is told, nor noted; when it was killed, all is. */
TEST(test_while_it_lives)
{
    const char *path = path_of("lives");
    struct predecessor *predecessor = NULL;
    struct dl_error err = {0};
    uint64_t before = 99;
    int ends[2];
    char byte;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t child = fork();
    if (child == 0) {
        if (predecessor_open(path, 5, &predecessor, &before, &err) < 0)
            _exit(1);
        (void)!write(ends[1], "x", 1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(predecessor_open(path, 6, &predecessor, &before, &err), -EBUSY);
    assert_null(predecessor);
    assert_int_equal(before, 0);
    assert_string_equal(err.path, path);
    assert_non_null(strstr(err.message, "another process has locked it"));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(told(path, 6), 5);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(unlink(path), 0);
}

/* A line that is not of this file and kernel, or is none, says nothing; and is written anew. */
TEST(test_other_lines)
{
    const char *path = path_of("lines");
    char line[256], other[256];

    assert_int_equal(told(path, 5), 0);
    assert_int_equal(read_all(path, line), LINE);
    for (size_t i = 0; i < LINE; i++) { /* each byte is another: no line, or another's */
        memcpy(other, line, LINE + 1);
        other[i] = other[i] == 'x' ? 'y' : 'x';
        write_all(path, other, LINE);
        assert_int_equal(told(path, 5), 0);
    }
    for (size_t n = 0; n < LINE; n++) {
        write_all(path, line, n);
        assert_int_equal(told(path, 5), 0);
    }
    memcpy(other, line, LINE);
    other[LINE] = '\n';
    write_all(path, other, LINE + 1);
    assert_int_equal(told(path, 6), 0);
    assert_int_equal(read_all(path, line), LINE);
    assert_int_equal(told(path, 7), 6);
    /* A copy is another file. */
    read_all(path, line);
    char copy[600];
    (void)snprintf(copy, sizeof copy, "%s.copy", path);
    write_all(copy, line, LINE);
    assert_int_equal(chmod(copy, 0600), 0);
    assert_int_equal(told(copy, 8), 0);
    assert_int_equal(unlink(copy), 0);
    assert_int_equal(unlink(path), 0);
}

/* Files that are nobody's alone, or none, are left as they are. */
TEST(test_no_files)
{
    const char *path = path_of("none");
    struct predecessor *predecessor = NULL;
    struct dl_error err = {0};
    char other[600];
    uint64_t before;

    (void)snprintf(other, sizeof other, "%s.other", path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(predecessor_open(path, 5, &predecessor, &before, &err), -EPERM);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/etc/hostname", path), 0);
    assert_int_equal(predecessor_open(path, 5, &predecessor, &before, &err), -ELOOP);
    assert_int_equal(unlink(path), 0);
    write_all(path, "what is there\n", 14);
    assert_int_equal(link(path, other), 0);
    assert_int_equal(predecessor_open(path, 5, &predecessor, &before, &err), -EPERM);
    assert_int_equal(read_all(path, (char[256]){0}), 14);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(other), 0);
    (void)snprintf(other, sizeof other, "%s/there", path);
    assert_int_equal(predecessor_open(other, 5, &predecessor, &before, &err), -ENOENT);
    assert_null(predecessor);
}
