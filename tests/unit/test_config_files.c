/* The configuration's file, whatever its keys are, and the worker's program. */
#include "proto/limits.h"
#include "tests/unit/config_case.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- files ---------------------------------------------------------------------------------- */

static void expect_file_error(const char *path, int code, const char *where, const char *message)
{
    struct config config = {0};
    struct dl_error err = {0};

    assert_int_equal(config_load(path, &config, &err), -code);
    assert_int_equal(err.code, code);
    assert_string_equal(err.path, where);
    assert_string_equal(err.message, message);
    assert_null(config.socket);
}

TEST(test_files_that_cannot_be_read)
{
    const char *dir = harness_tmpdir();
    char path[4300];

    snprintf(path, sizeof path, "%s/absent.conf", dir);
    expect_file_error(path, ENOENT, path,
                      "cannot read the configuration: No such file or directory");
    expect_file_error("", ENOENT, "", "cannot read the configuration: No such file or directory");
    expect_file_error(dir, EISDIR, dir, "cannot read the configuration: Is a directory");
}

TEST(test_what_is_no_mapping)
{
    static const struct {
        const char *text, *message;
    } cases[] = {{"5", "the configuration is a mapping, not an integer"},
                 {"[a, b]", "the configuration is a mapping, not a list"},
                 {"socket", "the configuration is a mapping, not a string"}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *path = write_text(cases[i].text);
        expect_file_error(path, EINVAL, path, cases[i].message);
    }
}

/* What yaml_parse() refuses names file and line; the rest is its own tests'. */
TEST(test_broken_yaml)
{
    static const char *const texts[] = {"socket: /a\nsocket: /b\n", "linger: 1s\nsocket: [a",
                                        "linger: 1s\n\xFF"};

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        const char *path = write_text(texts[i]);
        struct config config = {0};
        struct dl_error err = {0};

        assert_true(config_load(path, &config, &err) < 0);
        assert_int_equal(strncmp(err.path, path, strlen(path)), 0);
        assert_true(err.message[0]);
        assert_null(config.socket);
    }
}

TEST(test_the_longest_file)
{
    static char text[DL_BOUND_SPEC_TEXT + 1];
    struct config config = {0};
    struct dl_error err = {0};

    memset(text, '#', sizeof text);
    memcpy(text, "linger: 9s\n", 11);
    assert_int_equal(config_load(harness_file("long.conf", text, sizeof text - 1), &config, &err),
                     0);
    assert_int_equal(config.linger, 9000000000);
    config_deinit(&config);
    const char *path = harness_file("long.conf", text, sizeof text);
    expect_file_error(path, EFBIG, path, "a configuration has at most 262144 bytes");
    path = harness_file("zeros.conf", "\0\0\0", 3);
    assert_true(config_load(path, &config, NULL) < 0); /* that is not "nothing" */
}

/* ---- the worker's program ------------------------------------------------------------------- */

TEST(test_a_worker_that_is_named)
{
    struct config config = load("worker: /bin/sh");
    struct dl_error err = {0};

    assert_int_equal(config_find_worker(&config, &err), 0);
    assert_string_equal(config.worker, "/bin/sh");
    config_deinit(&config);

    config = load("worker: /no/worker");
    assert_int_equal(config_find_worker(&config, &err), -ENOENT);
    assert_string_equal(err.path, "worker");
    assert_string_equal(err.message, "/no/worker cannot be executed: No such file or directory");
    config_deinit(&config);

    const char *file = harness_file("not_executable", "x", 1);
    char text[4500];
    snprintf(text, sizeof text, "worker: %s", file);
    config = load(text);
    assert_int_equal(config_find_worker(&config, &err), -EACCES);
    snprintf(text, sizeof text, "%s cannot be executed: Permission denied", file);
    assert_string_equal(err.message, text);
    config_deinit(&config);
}

/* Beside this program there is none; where it would be installed there may be. */
TEST(test_a_worker_that_was_installed)
{
    struct config config = load("");
    struct dl_error err = {0};
    int r = config_find_worker(&config, &err);

    if (r == 0) {
        assert_int_equal(access(config.worker, X_OK), 0);
        assert_int_equal(config.worker[0], '/');
    } else {
        assert_int_equal(r, -ENOENT);
        assert_string_equal(config.worker, "");
        assert_string_equal(err.path, "worker");
        assert_non_null(strstr(err.message, "dloader-worker is neither beside dloaderd nor at /"));
        assert_non_null(strstr(err.message, "; give its path in the configuration"));
    }
    config_deinit(&config);
}

#define ASKED_FOR "TEST_CONFIG_WORKER"

/* The copy of this program, in a directory with a worker: 0 when it finds that worker. */
static int find_beside(const char *want)
{
    struct config config = {0};

    if (config_load(NULL, &config, NULL) < 0 || config_find_worker(&config, NULL) < 0)
        return 2;
    int r = strcmp(config.worker, want) == 0 ? 0 : 3;
    config_deinit(&config);
    return r;
}

static void copy_program(const char *to)
{
    static char data[1 << 16];
    FILE *in = fopen("/proc/self/exe", "rb");
    FILE *out = fopen(to, "wb");
    size_t n;

    assert_non_null(in);
    assert_non_null(out);
    while ((n = fread(data, 1, sizeof data, in)) > 0)
        assert_int_equal(fwrite(data, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(chmod(to, 0700), 0);
}

TEST(test_a_worker_beside_the_daemon)
{
    char *dir = realpath(harness_tmpdir(), NULL);
    char program[4300];
    char worker[4300];
    int status = 0;

    snprintf(program, sizeof program, "%s/program", dir);
    snprintf(worker, sizeof worker, "%s/dloader-worker", dir);
    copy_program(program);
    assert_int_equal(chmod(harness_file("dloader-worker", "x", 1), 0700), 0);
    assert_int_equal(setenv(ASKED_FOR, worker, 1), 0);
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, (char *)NULL);
        _exit(1);
    }
    assert_int_equal(unsetenv(ASKED_FOR), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    free(dir);
}

BEFORE_TESTS
{
    const char *worker = getenv(ASKED_FOR);

    if (worker)
        exit(find_beside(worker));
}
