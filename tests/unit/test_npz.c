/* Archives of arrays: what is left when a signal ends who writes one. test_py_replay.py has NumPy
 * read them. */
#include "client/dlctl/batch/npz.h"
#include "tests/lib/harness.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { ARRAY_BYTES = 4 << 20, BEFORE_BYTES = 6, WRITTEN = 0, FAILED = 1 };

static int file, number;

/* The array, which lies in an empty file, is being read, and so the archive written: it gets its
 * bytes, and the signal comes now. */
static void on_fault(int fault)
{
    (void)fault;
    if (ftruncate(file, ARRAY_BYTES) < 0)
        abort();
    (void)kill(getpid(), number);
}

static int write_archive(const char *path, const void *array)
{
    const struct npz_array whole = {
        .type = "u1", .ndim = 1, .shape = {ARRAY_BYTES}, .data = array, .nbytes = ARRAY_BYTES};
    struct dl_error err = {0};
    struct npz *npz = NULL;

    if (npz_begin(path, &npz, &err) < 0)
        return FAILED;
    if (npz_add(npz, "x", &whole, &err) < 0) {
        npz_discard(npz);
        return FAILED;
    }
    return npz_end(npz, &err) < 0 ? FAILED : WRITTEN;
}

/* In a process of its own, which gets the signal in the middle; how it ended. */
static int write_interrupted(const char *path, int with, bool ignored)
{
    int status;
    pid_t child;

    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        number = with;
        file = memfd_create("array", MFD_CLOEXEC);
        (void)signal(SIGBUS, on_fault);
        (void)signal(with, ignored ? SIG_IGN : SIG_DFL);
        const void *array = mmap(NULL, ARRAY_BYTES, PROT_READ, MAP_SHARED, file, 0);
        _exit(array == MAP_FAILED ? FAILED : write_archive(path, array));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static int count_files(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    int n = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)))
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void test_signals(void **state)
{
    static const struct {
        int with;
        bool ignored;
    } cases[] = {
        {SIGTERM, false}, {SIGINT, false}, {SIGHUP, false}, {SIGTERM, true}, {SIGHUP, true},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *path = harness_file("batch.npz", "before", BEFORE_BYTES);
        int status = write_interrupted(path, cases[i].with, cases[i].ignored);
        struct stat st;

        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(count_files(harness_tmpdir()), 1);
        if (cases[i].ignored) {
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == WRITTEN);
            assert_true(st.st_size > ARRAY_BYTES);
        } else {
            assert_true(WIFSIGNALED(status));
            assert_int_equal(WTERMSIG(status), cases[i].with);
            assert_int_equal(st.st_size, BEFORE_BYTES);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_signals),
};

TEST_MAIN(tests)
