/* Lists of files: ranges, patterns, their order, their limits, and the roots. */
#include "daemon/data/files/globs.h"
#include "tests/unit/data_files.h"

#include <errno.h>
#include <sys/stat.h>

static struct spec_file files[8];

/* `patterns`: separated by spaces, each below the test's directory unless it begins with '/'. */
static struct spec_dataset list_of(const char *patterns)
{
    static char text[8][4200];
    struct spec_dataset spec = {.kind = DATASET_TEXT, .files = files};
    _cleanup_free_ char *copy = strdup(patterns);

    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) {
        uint32_t i = spec.n_files++;
        snprintf(text[i], sizeof text[i], "%s%s%s", word[0] == '/' ? "" : harness_tmpdir(),
                 word[0] == '/' ? "" : "/", word);
        files[i].path = text[i];
    }
    return spec;
}

static void make_files(void)
{
    const char *names[] = {"a1", "a10", "a2", "b", "B", "x[1]", ".hidden", "s-01", "s-02"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        harness_file(names[i], "x", 1);
}

TEST(test_lists)
{
    static const struct {
        const char *patterns;
        const char *want; /* behind the test's directory */
    } rows[] = {
        {"b a1 b", "b a1 b"},
        {"not-there", "not-there"},
        {"a*", "a1 a10 a2"},
        {"[aB]? b", "a1 a2 b"},
        {"*", "B a1 a10 a2 b s-01 s-02 x[1]"},
        {"x\\[1]", "x[1]"},
        {"n-{8..11}", "n-8 n-9 n-10 n-11"},
        {"n-{08..11}", "n-08 n-09 n-10 n-11"},
        {"n-{000..001}.tar", "n-000.tar n-001.tar"},
        {"n-{3..3}", "n-3"},
        {"{1..2}{5..6}", "15 16 25 26"},
        {"s-{00..01}*", NULL},
        {"s-{01..02}*", "s-01 s-02"},
        {"n-{a..b}{1}{1..2", "n-{a..b}{1}{1..2"},
        {"n-{{0..1}}", "n-{0} n-{1}"},
        {"{1..9999999999999999999}", "{1..9999999999999999999}"},
    };

    make_files();
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct spec_dataset spec = list_of(rows[i].patterns);
        struct file_list list = {0};
        struct dl_error err = {0};
        char got[4000] = "";

        int r = file_list_make(&spec, &anywhere, &list, &err);
        assert_int_equal(r, rows[i].want ? 0 : -EINVAL);
        for (uint32_t k = 0; k < list.n; k++) {
            size_t len = strlen(got);
            snprintf(got + len, sizeof got - len, "%s%s", k ? " " : "",
                     list.paths[k] + strlen(harness_tmpdir()) + 1);
        }
        assert_string_equal(got, rows[i].want ? rows[i].want : "");
        file_list_deinit(&list);
    }
}

TEST(test_refusals)
{
    static const struct {
        const char *patterns;
        int code;
        const char *says;
    } rows[] = {
        {"c*", EINVAL, "matches no file; if it is a file's name"},
        {"none/*.txt", EINVAL, "matches no file"},
        {"n-{5..4}", EINVAL, "the range {5..4} counts down; write {4..5}"},
        {"n-{0..2000000}", E2BIG, "more than 2000000 files"},
        {"n-{0..999999999999999999}", E2BIG, "more than 2000000 files"},
        {"{0..9}{0..9}{0..9}{0..9}{0..9}{0..9}{0..9}", E2BIG, "put samples into fewer"},
        {"*/../b", EINVAL, "has .. after one of * ? ["},
        {"", EINVAL, "has no files"},
    };

    make_files();
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct spec_dataset spec = list_of(rows[i].patterns);
        struct file_list list = {0};
        struct dl_error err = {0};

        assert_int_equal(file_list_make(&spec, &anywhere, &list, &err), -rows[i].code);
        assert_error_has(&err, rows[i].says);
        if (spec.n_files > 0)
            assert_string_equal(err.path, files[0].path);
        assert_null(list.paths);
    }
}

/* Long paths, so many that only their bytes are too many. */
TEST(test_bytes_are_bounded)
{
    struct spec_dataset spec = list_of("x");
    struct file_list list = {0};
    struct dl_error err = {0};
    char path[4000];

    memset(path, 'a', sizeof path);
    path[0] = '/';
    snprintf(path + 3900, sizeof path - 3900, "{1..900000}");
    files[0].path = path;
    assert_int_equal(file_list_make(&spec, &anywhere, &list, &err), -E2BIG);
    assert_error_has(&err, "268435456 bytes of paths");
}

/* A pattern tells nothing about directories outside the roots, links included. */
TEST(test_roots)
{
    char root[4200], link[4300];
    struct data_env env = {.roots = (char *[]){root}, .n_roots = 1};
    struct file_list list = {0};
    struct dl_error err = {0};

    make_files();
    snprintf(root, sizeof root, "%s/root", harness_tmpdir());
    assert_int_equal(mkdir(root, 0700), 0);
    snprintf(link, sizeof link, "%s/out", root);
    assert_int_equal(symlink(harness_tmpdir(), link), 0);
    harness_file("root/in", "x", 1);

    static const char *const outside[] = {"a*",         "zzz*",       "none/a*", "root/out/a*",
                                          "root/../a*", "/etc/pass*", "roo*/in"};
    for (size_t i = 0; i < ARRAY_SIZE(outside); i++) {
        struct spec_dataset spec = list_of(outside[i]);
        assert_int_equal(file_list_make(&spec, &env, &list, &err), -EACCES);
        assert_error_has(&err, "outside the daemon's data_roots");
    }
    struct spec_dataset spec = list_of("root/i*");
    assert_int_equal(file_list_make(&spec, &env, &list, &err), 0);
    assert_int_equal(list.n, 1);
    file_list_deinit(&list);
}

TEST(test_unreadable_directory)
{
    char dir[4200];
    struct spec_dataset spec = list_of("closed/*");
    struct file_list list = {0};
    struct dl_error err = {0};

    snprintf(dir, sizeof dir, "%s/closed", harness_tmpdir());
    assert_int_equal(mkdir(dir, 0), 0);
    /* Root may read it all the same: for a moment it is somebody else. */
    uid_t me = geteuid();
    if (me == 0)
        assert_int_equal(seteuid(65534), 0);
    int r = file_list_make(&spec, &anywhere, &list, &err);
    assert_int_equal(seteuid(me), 0);
    assert_int_equal(r, -EACCES);
    assert_error_has(&err, "cannot be searched: Permission denied");
    assert_int_equal(rmdir(dir), 0);
}

static void note_told(void *owner, const char *what, uint64_t done, uint64_t all)
{
    uint64_t *told = owner;

    assert_string_equal(what, "names looked at");
    assert_true(done > *told && all == UINT64_MAX);
    *told = done;
}

/* One large directory is no long silence; and what is found is the same. */
TEST(test_progress)
{
    uint64_t told = 0;
    const struct data_progress progress = {.tell = note_told, .owner = &told};
    const struct data_env watched = {.progress = &progress};
    struct file_list plain = {0}, list = {0};
    struct dl_error err = {0};
    char dir[512];

    snprintf(dir, sizeof dir, "%s/many", harness_tmpdir());
    assert_int_equal(mkdir(dir, 0700), 0);
    for (unsigned i = 0; i < 2 * DATA_TELL_EVERY + 10; i++) {
        char name[64];
        snprintf(name, sizeof name, "many/%u.%s", i, i % 3 ? "tar" : "txt");
        harness_file(name, "", 0);
    }
    struct spec_dataset spec = list_of("ma*/*.tar");
    assert_int_equal(file_list_make(&spec, &anywhere, &plain, &err), 0);
    assert_int_equal(told, 0);
    assert_int_equal(file_list_make(&spec, &watched, &list, &err), 0);
    assert_int_equal(told, 2 * DATA_TELL_EVERY);
    assert_int_equal(list.n, plain.n);
    for (uint32_t i = 0; i < list.n; i++)
        assert_string_equal(list.paths[i], plain.paths[i]);
    file_list_deinit(&plain);
    file_list_deinit(&list);
}
