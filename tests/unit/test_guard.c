/* Mapped data files that are cut while they are read: an error that names them, and no death. */
#include "tests/unit/data_files.h"

#include "daemon/data/files/guard.h"
#include "daemon/data/files/source.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 8 };

static const char *make(const char *name)
{
    char data[PAGES * PAGE];

    memset(data, 'x', sizeof data);
    return harness_file(name, data, sizeof data);
}

static void open_guarded(const char *path, struct guard *guard, struct source *ret)
{
    const struct data_env env = {.guard = guard};
    struct dl_error err = {0};

    if (source_open(path, &env, ret, &err) < 0)
        fail_msg("%s", err.message);
}

static uint8_t at(const struct source *source, unsigned page)
{
    return *(const volatile uint8_t *)(source->data + page * PAGE);
}

TEST(test_a_cut_file_is_found_out_each_time)
{
    _cleanup_free_ char *path = strdup(make("cut"));
    struct guard guard = {0};
    struct source source, other;
    struct dl_error err = {0};

    open_guarded(path, &guard, &source);
    open_guarded(make("other"), &guard, &other);
    guard_install(&guard);
    assert_int_equal(at(&source, 7), 'x');
    assert_int_equal(guard_check(&guard, &err), 0);
    assert_int_equal(truncate(path, 3 * PAGE), 0);
    for (int again = 0; again < 3; again++) {
        assert_int_equal(at(&source, 2), 'x');
        assert_int_equal(at(&other, 7), 'x');
        assert_int_equal(guard_check(&guard, &err), 0);
        assert_int_equal(at(&source, 3), 0);
        assert_int_equal(at(&source, 6), 0);
        assert_int_equal(guard_check(&guard, &err), -EIO);
        assert_int_equal(err.code, EIO);
        assert_string_equal(err.path, path);
        assert_string_equal(err.message,
                            "has 12288 bytes and had 32768 when it was opened: it was truncated "
                            "during use; write a new file and rename it to this name, then open "
                            "the loader again");
    }
    /* It is as good as before once it is whole. */
    assert_int_equal(truncate(path, PAGES * PAGE), 0);
    assert_int_equal(at(&source, 6), 0);
    assert_int_equal(guard_check(&guard, &err), 0);
    source_close(&source);
    source_close(&other);
    guard_uninstall();
    guard_deinit(&guard);
    assert_true(guard_is_empty(&guard));
}

static sigjmp_buf survived;

static void survive(int number)
{
    siglongjmp(survived, number);
}

static void survive_with_info(int number, siginfo_t *info, void *context)
{
    (void)context;
    siglongjmp(survived, info->si_addr ? number : -1);
}

/* The handler is the program's own, and lives on. */
static void try_handler(const struct sigaction *handler)
{
    _cleanup_free_ char *mine = strdup(make("mine"));
    _cleanup_free_ char *path = strdup(make("guarded"));
    struct guard guard = {0};
    struct source other, source;
    struct sigaction former;
    struct dl_error err = {0};
    volatile int times = 0;
    int number;

    open_guarded(mine, NULL, &other);
    open_guarded(path, &guard, &source);
    assert_int_equal(sigaction(SIGBUS, handler, &former), 0);
    guard_install(&guard);
    assert_int_equal(truncate(mine, 0), 0);
    assert_int_equal(truncate(path, 0), 0);
    number = sigsetjmp(survived, 1);
    if (times++ < 2) {
        assert_int_equal(number, times > 1 ? SIGBUS : 0);
        (void)at(&other, 0);
        fail_msg("it can be read");
    }
    assert_int_equal(number, SIGBUS);
    assert_int_equal(times, 3); /* what is guarded does not come here */
    assert_int_equal(at(&source, 0), 0);
    assert_int_equal(guard_check(&guard, &err), -EIO);
    source_close(&source);
    source_close(&other);
    guard_uninstall();
    guard_deinit(&guard);
    assert_int_equal(sigaction(SIGBUS, &former, NULL), 0);
}

/* After a signal of other memory the guard holds again. */
TEST(test_a_handler_of_the_program)
{
    const struct sigaction handlers[] = {
        {.sa_handler = survive}, {.sa_sigaction = survive_with_info, .sa_flags = SA_SIGINFO}};

    for (size_t i = 0; i < ARRAY_SIZE(handlers); i++)
        try_handler(&handlers[i]);
}

TEST(test_a_cut_file_without_a_name)
{
    _cleanup_free_ char *path = strdup(make("nameless"));
    struct guard guard = {0};
    struct source source;
    struct dl_error err = {0};

    open_guarded(path, &guard, &source);
    guard_install(&guard);
    int fd = open(path, O_RDWR);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(at(&source, 7), 'x');
    assert_int_equal(guard_check(&guard, &err), 0);
    assert_int_equal(ftruncate(fd, 0), 0);
    close(fd);
    assert_int_equal(at(&source, 0), 0);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(guard_check(&guard, &err), -EIO);
        assert_error_has(&err, "cannot be read any more");
    }
    source_close(&source);
    guard_uninstall();
}

TEST(test_looking_without_a_signal)
{
    _cleanup_free_ char *path = strdup(make("looked"));
    struct guard guard = {0};
    struct source source;
    struct dl_error err = {0};

    open_guarded(path, &guard, &source);
    assert_int_equal(guard_look(&guard, &err), 0);
    assert_int_equal(truncate(path, PAGES * PAGE - 1), 0);
    assert_int_equal(guard_look(&guard, &err), -EIO);
    assert_error_has(&err, "has 32767 bytes and had 32768");
    /* Another file of that name is no matter. */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(guard_look(&guard, &err), 0);
    make("looked");
    assert_int_equal(truncate(path, 1), 0);
    assert_int_equal(guard_look(&guard, &err), 0);
    source_close(&source);
    assert_int_equal(guard_check(NULL, &err), 0);
}

static void expect_written(struct guard *guard, const char *path, const char *text)
{
    struct dl_error what = {0};

    assert_true(guard_find_written(guard, &what));
    assert_string_equal(what.path, path);
    assert_error_has(&what, text);
    assert_false(guard_find_written(guard, &what));
}

static void write_byte(const char *path, bool set_back)
{
    struct stat before;
    int fd = open(path, O_RDWR);

    assert_int_equal(fstat(fd, &before), 0);
    /* The clock that files have may tick 250 times a second. */
    assert_int_equal(usleep(20000), 0);
    assert_int_equal(pwrite(fd, "y", 1, 1), 1);
    if (set_back)
        assert_int_equal(futimens(fd, (struct timespec[]){{.tv_nsec = UTIME_OMIT}, before.st_mtim}),
                         0);
    close(fd);
}

TEST(test_what_was_written_to_is_told_once)
{
    _cleanup_free_ char *path = strdup(make("written"));
    struct guard guard = {0};
    struct source source, again;
    struct dl_error what = {0};

    assert_true(guard_is_empty(&guard));
    open_guarded(path, &guard, &source);
    assert_false(guard_is_empty(&guard));
    assert_false(guard_find_written(&guard, &what));
    write_byte(path, false);
    expect_written(&guard, path, "was written to while it is in use: it was last modified at 20");
    write_byte(path, false);
    assert_false(guard_find_written(&guard, &what));
    open_guarded(path, &guard, &again);
    write_byte(path, true);
    expect_written(&guard, path, "and the time of its modification set back");
    source_close(&again);
    source_close(&source);
    assert_true(guard_is_empty(&guard));
    /* One that is closed before anybody asks. */
    open_guarded(path, &guard, &source);
    assert_int_equal(truncate(path, PAGE), 0);
    source_close(&source);
    assert_false(guard_is_empty(&guard));
    expect_written(&guard, path, "it has 4096 bytes and had 32768");
    open_guarded(path, &guard, &source);
    write_byte(path, false);
    source_close(&source);
    guard_deinit(&guard);
    assert_true(guard_is_empty(&guard));
}

TEST(test_what_is_no_writing)
{
    _cleanup_free_ char *path = strdup(make("unwritten"));
    _cleanup_free_ char *other = strdup(make("another"));
    struct guard guard = {0};
    struct source source;
    struct dl_error what = {0};

    open_guarded(path, &guard, &source);
    assert_int_equal(usleep(20000), 0);
    assert_int_equal(chmod(path, 0400), 0);
    assert_false(guard_find_written(&guard, &what));
    assert_int_equal(rename(other, path), 0);
    assert_false(guard_find_written(&guard, &what));
    assert_int_equal(unlink(path), 0);
    assert_false(guard_find_written(&guard, &what));
    source_close(&source);
    assert_true(guard_is_empty(&guard));
}

/* Memory that is no data file's, under a guard: it dies of it as ever. */
static void read_behind(void)
{
    static struct guard guard;
    int fd = open(make("foreign"), O_RDWR);
    volatile char *memory = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0);

    (void)signal(SIGBUS, SIG_DFL);
    guard_install(&guard);
    if (ftruncate(fd, PAGE) == 0 && memory[PAGE] == 0)
        _exit(0);
    _exit(1);
}

TEST(test_other_memory_is_none_of_its_business)
{
    int status = 0;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        read_behind();
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}
