/* The daemon's one policy for memory that has run out: its end, which is said. */
#include "tests/lib/harness.h"

#include "daemon/base/memory.h"

#include <sys/wait.h>

/* What the child says before it ends, with status 1. */
static void expect_end(void (*run)(void), const char *words)
{
    int pipes[2], status;
    char said[256] = "";

    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        (void)dup2(pipes[1], STDERR_FILENO);
        run();
        _exit(0);
    }
    close(pipes[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(read(pipes[0], said, sizeof said - 1) > 0);
    close(pipes[0]);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_non_null(strstr(said, words));
}

static void have_none(void)
{
    must_have(NULL);
}

TEST(test_its_end)
{
    expect_end(have_none, "out of memory");
}

TEST(test_what_is_given)
{
    struct dl_buffer buf = {0};
    uint8_t *bytes = must_alloc(3);

    assert_int_equal(bytes[0] + bytes[1] + bytes[2], 0);
    must_append(&buf, "ab", 2);
    must_append(&buf, NULL, 0);
    must_append(&buf, "c", 2);
    assert_string_equal(buf.data, "abc");
    assert_ptr_equal(must_have(bytes), bytes);
    free(bytes);
    buffer_deinit(&buf);
}
