#include "tests/lib/harness.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { MOST_CASES = 200 };

static struct CMUnitTest cases[MOST_CASES];
static size_t n_cases;
static CMFixtureFunction group_setup, group_teardown;
static int fds_at_start;
static char tmpdir[4096];

int harness_count_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

void harness_begin(void)
{
    alarm(TEST_DEADLINE_S * (getenv("CI") ? 5 : 1));
    fds_at_start = harness_count_fds();
}

int harness_end(const char *program, int failed)
{
    if (harness_count_fds() != fds_at_start) {
        fprintf(stderr, "%s: %d file descriptors at the start, %d at the end\n", program,
                fds_at_start, harness_count_fds());
        failed++;
    }
    if (waitpid(-1, NULL, WNOHANG) >= 0) {
        fprintf(stderr, "%s: left a child process behind\n", program);
        failed++;
    }
    return failed;
}

size_t harness_stride(void)
{
    return getenv("DLOADER_TEST_QUICK") ? 7 : 1;
}

bool harness_has(uint64_t number)
{
    const char *turn = getenv("DLOADER_TEST_TURN");

    return !turn || !*turn || number % 4 == strtoul(turn, NULL, 10) % 4;
}

void harness_case(const char *name, CMUnitTestFunction run, const CMFixtureFunction around[2])
{
    if (n_cases == MOST_CASES)
        abort();
    cases[n_cases++] = (struct CMUnitTest){name, run, around[0], around[1], NULL};
}

void harness_group(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    group_setup = setup;
    group_teardown = teardown;
}

int main(void)
{
    harness_begin();
    return harness_end(
        program_invocation_short_name,
        _cmocka_run_group_tests("tests", cases, n_cases, group_setup, group_teardown));
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void remove_tmpdir(void)
{
    nftw(tmpdir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *harness_tmpdir(void)
{
    if (!tmpdir[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(tmpdir, sizeof tmpdir, "%s/dloader-test-XXXXXX", base ? base : "/tmp");
        assert_non_null(mkdtemp(tmpdir));
        atexit(remove_tmpdir);
    }
    return tmpdir;
}

const char *harness_below(const char *name)
{
    static char paths[8][4400];
    static unsigned turn;
    char *path = paths[turn++ % ARRAY_SIZE(paths)];

    snprintf(path, sizeof paths[0], "%s/%s", harness_tmpdir(), name);
    return path;
}

const char *harness_file(const char *name, const void *data, size_t len)
{
    char dir[4400];
    const char *path = harness_below(name);

    for (const char *slash = strchr(path + strlen(harness_tmpdir()) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path);
        (void)mkdir(dir, 0755);
    }
    /* ext4 flushes a file that was truncated and written again when it is closed. */
    (void)unlink(path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
    return path;
}

const char *harness_text(const char *name, const char *text)
{
    return harness_file(name, text, strlen(text));
}
