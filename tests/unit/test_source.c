/* Opening data files: what is accepted, what is refused and in which words; gzip. */
#include "tests/unit/data_files.h"

#include "daemon/data/files/guard.h"
#include "daemon/data/files/seen.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

TEST(test_content)
{
    struct source source;
    const char *path = harness_file("content", "hello", 5);

    assert_int_equal(source_open(path, &anywhere, &source, NULL), 0);
    assert_int_equal(source.bytes, 5);
    assert_memory_equal(source.data, "hello", 5);
    assert_false(source_is_gzip(&source));
    source_close(&source);
    assert_null(source.data);
}

TEST(test_empty)
{
    struct source source;

    assert_int_equal(source_open(harness_file("empty", "", 0), &anywhere, &source, NULL), 0);
    assert_int_equal(source.bytes, 0);
    assert_non_null(source.data);
    assert_false(source_is_gzip(&source));
    source_close(&source);
}

/* A failure leaves the result alone, and keeps no descriptor (the harness counts them). */
static void refused(const char *path, const struct data_env *env, int code, struct dl_error *ret)
{
    struct source source = {.data = (const uint8_t *)"untouched", .bytes = 99};

    *ret = (struct dl_error){0};
    assert_int_equal(source_open(path, env, &source, ret), -code);
    assert_int_equal(source.bytes, 99);
    assert_string_equal(source.data, "untouched");
    assert_string_equal(ret->path, path);
    assert_int_equal(ret->code, code);
}

TEST(test_missing)
{
    struct dl_error err;

    refused("/nonexistent/train.npy", &anywhere, ENOENT, &err);
    assert_error(&err, ENOENT, "/nonexistent/train.npy",
                 "no such file; a relative path starts from the directory of the loader spec");
    refused("", &anywhere, ENOENT, &err);
}

TEST(test_not_a_file)
{
    char fifo[PATH_MAX];
    struct dl_error err;

    refused(harness_tmpdir(), &anywhere, EISDIR, &err);
    assert_error_has(&err, "is a directory; name a data file in it");
    snprintf(fifo, sizeof fifo, "%s/fifo", harness_tmpdir());
    assert_int_equal(mkfifo(fifo, 0600), 0);
    refused(fifo, &anywhere, EINVAL, &err);
    assert_error_has(&err, "is not a regular file");
    refused("/dev/null", &anywhere, EINVAL, &err);
    assert_error_has(&err, "is not a regular file");
}

TEST(test_name_errors)
{
    char path[PATH_MAX], loop[PATH_MAX];
    struct dl_error err;

    snprintf(path, sizeof path, "%s/x", harness_file("plain", "x", 1));
    refused(path, &anywhere, ENOTDIR, &err);
    assert_error_has(&err, "cannot be opened: Not a directory");
    snprintf(loop, sizeof loop, "%s/loop", harness_tmpdir());
    assert_int_equal(symlink("loop", loop), 0);
    refused(loop, &anywhere, ELOOP, &err);
}

TEST(test_permission)
{
    const char *path = harness_file("secret", "x", 1);
    bool root = geteuid() == 0;
    char want[64];
    struct dl_error err;

    assert_int_equal(chmod(path, 0), 0);
    if (root)
        assert_int_equal(seteuid(65534), 0);
    refused(path, &anywhere, EACCES, &err);
    snprintf(want, sizeof want, "user %u may not read it", (unsigned)geteuid());
    if (root)
        assert_int_equal(seteuid(0), 0);
    assert_error_has(&err, want);
}

/* Two directories, `in` and `inside`, with a file each, and links between them. */
struct tree_fixture {
    char in[PATH_MAX], sibling[PATH_MAX];
    char in_file[PATH_MAX], out_file[PATH_MAX];
    char link_out[PATH_MAX], link_in[PATH_MAX];
};

static void touch(const char *path)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs("data", file);
    fclose(file);
}

static void make_tree(struct tree_fixture *t)
{
    char real[PATH_MAX - 64];

    assert_non_null(realpath(harness_tmpdir(), real));
    snprintf(t->in, PATH_MAX, "%s/in", real);
    snprintf(t->sibling, PATH_MAX, "%s/inside", real);
    snprintf(t->in_file, PATH_MAX, "%s/in/a", real);
    snprintf(t->out_file, PATH_MAX, "%s/inside/a", real);
    snprintf(t->link_out, PATH_MAX, "%s/in/link", real);
    snprintf(t->link_in, PATH_MAX, "%s/inside/link", real);
    mkdir(t->in, 0700);
    mkdir(t->sibling, 0700);
    touch(t->in_file);
    touch(t->out_file);
    (void)!symlink(t->out_file, t->link_out);
    (void)!symlink(t->in_file, t->link_in);
}

TEST(test_roots_inside)
{
    struct tree_fixture t;
    char slash[PATH_MAX + 2];
    struct source source;

    make_tree(&t);
    snprintf(slash, sizeof slash, "%s//", t.in);
    char *below[] = {t.in, slash, "/"};
    for (size_t i = 0; i < ARRAY_SIZE(below); i++) {
        struct data_env env = {.roots = &below[i], .n_roots = 1};
        assert_int_equal(source_open(t.in_file, &env, &source, NULL), 0);
        source_close(&source);
        /* Reached from outside, but what was opened lies inside. */
        assert_int_equal(source_open(t.link_in, &env, &source, NULL), 0);
        source_close(&source);
    }
    char *second[] = {"/nonexistent", t.in};
    struct data_env env = {.roots = second, .n_roots = 2};
    assert_int_equal(source_open(t.in_file, &env, &source, NULL), 0);
    source_close(&source);
}

TEST(test_roots_outside)
{
    struct tree_fixture t;
    char dotted[PATH_MAX + 16];
    char want[DL_ERROR_MESSAGE_MAX];
    struct dl_error err;

    make_tree(&t);
    char *paths[] = {t.in, "/nonexistent"};
    struct data_env env = {.roots = paths, .n_roots = 1};

    /* The root's name is a prefix of the sibling's. */
    refused(t.out_file, &env, EACCES, &err);
    snprintf(want, sizeof want,
             "lies outside the daemon's data_roots (%.400s); move it below one of them, or have "
             "its directory added",
             t.in);
    assert_error(&err, EACCES, t.out_file, want);

    refused(t.link_out, &env, EACCES, &err);
    snprintf(want, sizeof want,
             "links to %.400s, outside the daemon's data_roots (%.400s); move the file below "
             "one of them, or have its directory added",
             t.out_file, t.in);
    assert_error(&err, EACCES, t.link_out, want);

    snprintf(dotted, sizeof dotted, "%s/../inside/a", t.in);
    refused(dotted, &env, EACCES, &err);
    assert_error_has(&err, "links to ");
    env.n_roots = 2;
    refused(t.out_file, &env, EACCES, &err);
    assert_error_has(&err, ", ...)");
}

/* Whether a file outside exists is nobody's business. */
TEST(test_roots_tell_nothing)
{
    struct tree_fixture t;
    char dotted[PATH_MAX + 16];
    struct dl_error err;

    make_tree(&t);
    char *paths[] = {t.in};
    struct data_env env = {.roots = paths, .n_roots = 1};

    refused("/nonexistent/file", &env, EACCES, &err);
    assert_error_has(&err, "lies outside");
    refused(t.sibling, &env, EACCES, &err); /* not: is a directory */
    assert_error_has(&err, "lies outside");
    snprintf(dotted, sizeof dotted, "%s/../missing", t.in);
    refused(dotted, &env, EACCES, &err);
    assert_error_has(&err, "lies outside");
    snprintf(dotted, sizeof dotted, "%s/missing", t.in);
    refused(dotted, &env, ENOENT, &err);
}

/* What clients call a place, and where that is; the names alone, without any file. */
TEST(test_seen_names)
{
    char *roots[] = {(char *)"/mnt/data", (char *)"/srv", (char *)"/mnt/data/deep", (char *)"/"};
    char *seen_as[] = {(char *)"/data", (char *)"", (char *)"/data/other", (char *)"/all"};
    struct data_env env = {.roots = roots, .seen_as = seen_as, .n_roots = 4};
    static const struct {
        const char *name, *place;
        bool both; /* ways */
    } rows[] = {
        {"/data", "/mnt/data", true},
        {"/data/a/b", "/mnt/data/a/b", true},
        {"/data/../a", "/mnt/data/../a", true}, /* what is opened is judged */
        {"/database", "/database", false},
        {"/srv/a", "/srv/a", false},
        {"/data/other/x", "/mnt/data/deep/x", true}, /* the deepest */
        {"/data/otherwise", "/mnt/data/otherwise", true},
        {"/all/etc", "/etc", true},
        {"/all", "/", false},
        {"data/a", "data/a", false},
    };
    char buffer[PATH_MAX], longest[PATH_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_string_equal(seen_place(&env, rows[i].name, buffer), rows[i].place);
        if (rows[i].both)
            assert_string_equal(seen_name(&env, rows[i].place, buffer), rows[i].name);
    }
    memset(longest, 'a', sizeof longest);
    memcpy(longest, "/data/", 6);
    longest[PATH_MAX - 1] = '\0';
    assert_int_equal(open(seen_place(&env, longest, buffer), O_RDONLY | O_CLOEXEC), -1);
    assert_int_equal(errno, ENAMETOOLONG);
    env.seen_as = NULL;
    assert_string_equal(seen_place(&env, "/data/a", buffer), "/data/a");
}

/* Files of clients that see them at /data: opened, judged and named. */
TEST(test_roots_seen_elsewhere)
{
    struct tree_fixture t;
    char want[DL_ERROR_MESSAGE_MAX];
    struct guard guard = {0};
    struct source source;
    struct stat st;
    struct dl_error err = {0};

    make_tree(&t);
    char *roots[] = {t.in}, *seen_as[] = {(char *)"/data"};
    struct data_env env = {.roots = roots, .seen_as = seen_as, .n_roots = 1, .guard = &guard};
    assert_int_equal(source_open("/data/a", &env, &source, NULL), 0);
    assert_int_equal(source.bytes, 4);
    assert_int_equal(source_stat("/data/a", true, &env, &st), 0);
    assert_int_equal(source_allows("/data", "/data/x*", &env, NULL), 0);
    assert_int_equal(guard_look(&guard, &err), 0);
    assert_int_equal(truncate(t.in_file, 2), 0);
    assert_int_equal(guard_look(&guard, &err), -EIO);
    assert_string_equal(err.path, "/data/a");
    source_close(&source);
    guard_deinit(&guard);
    env.guard = NULL;
    /* The same file by the daemon's own name. */
    assert_int_equal(source_open(t.in_file, &env, &source, NULL), 0);
    source_close(&source);

    refused("/data/none", &env, ENOENT, &err);
    assert_error_has(&err, "no such file");
    refused("/data/link", &env, EACCES, &err);
    snprintf(want, sizeof want,
             "links to %.400s, outside the daemon's data_roots (/data); move the file below one of "
             "them, or have its directory added",
             t.out_file);
    assert_error(&err, EACCES, "/data/link", want);
    refused(t.out_file, &env, EACCES, &err);
    assert_error_has(&err, "lies outside the daemon's data_roots (/data)");
    refused("/data/../inside/a", &env, EACCES, &err);
    assert_error_has(&err, "outside the daemon's data_roots (/data)");
    assert_int_equal(source_allows("/data/..", "/data/../x*", &env, &err), -EACCES);
    assert_error_has(&err, "lies outside the daemon's data_roots (/data)");
}

TEST(test_alloc)
{
    struct source source;
    struct dl_error err = {0};
    uint8_t *memory;

    assert_int_equal(source_alloc(3 << 20, "f", &source, &memory, &err), 0);
    assert_int_equal(memory[0], 0);
    memory[(3 << 20) - 1] = 7;
    source_freeze(&source);
    assert_int_equal(source.data[(3 << 20) - 1], 7);
    source_close(&source);

    assert_int_equal(source_alloc(0, "f", &source, &memory, &err), 0);
    source_freeze(&source);
    source_close(&source);

    assert_int_equal(source_alloc(1ULL << 60, "f", &source, &memory, &err), -ENOMEM);
    assert_error(&err, ENOMEM, "f",
                 "needs 1152921504606846976 bytes of memory in each worker, which the system "
                 "does not have; store it as plain .npy, which is mapped instead");
}

/* Unpacks all of `gz`, which should be `want` bytes, into `out`. */
static int unpack(const uint8_t *gz, size_t len, void *out, size_t want, struct dl_error *err)
{
    struct gunzip g;
    int r;

    *err = (struct dl_error){0};
    assert_int_equal(gunzip_begin(&g, gz, len, "f.gz", err), 0);
    r = gunzip_read(&g, out, want, err);
    if (r == 0)
        r = gunzip_finish(&g, err);
    gunzip_end(&g);
    assert_int_equal(err->code, -r);
    return r;
}

static uint8_t plain[3000];
static uint8_t unpacked[sizeof plain + 1];

static size_t make_packed(uint8_t *out, size_t room)
{
    for (size_t i = 0; i < sizeof plain; i++)
        plain[i] = (uint8_t)(i * i >> 5);
    return make_gzip(plain, sizeof plain, out, room);
}

TEST(test_gunzip)
{
    uint8_t gz[8192];
    struct dl_error err;
    struct gunzip g;
    size_t len = make_packed(gz, sizeof gz);

    assert_int_equal(unpack(gz, len, unpacked, sizeof plain, &err), 0);
    assert_memory_equal(unpacked, plain, sizeof plain);

    /* In pieces of every size. */
    for (size_t piece = 1; piece < 40; piece++) {
        assert_int_equal(gunzip_begin(&g, gz, len, "f.gz", &err), 0);
        for (size_t at = 0; at < sizeof plain; at += piece)
            assert_int_equal(
                gunzip_read(&g, unpacked + at, min_u64(piece, sizeof plain - at), &err), 0);
        assert_int_equal(gunzip_finish(&g, &err), 0);
        gunzip_end(&g);
        assert_memory_equal(unpacked, plain, sizeof plain);
    }
}

TEST(test_gunzip_members)
{
    uint8_t gz[8192], out[9];
    struct dl_error err;
    size_t len = make_gzip("abc", 3, gz, sizeof gz);

    len += make_gzip("", 0, gz + len, sizeof gz - len);
    len += make_gzip("defghi", 6, gz + len, sizeof gz - len);
    assert_int_equal(unpack(gz, len, out, 9, &err), 0);
    assert_memory_equal(out, "abcdefghi", 9);
}

TEST(test_gunzip_wrong_size)
{
    uint8_t gz[8192];
    struct dl_error err;
    size_t len = make_packed(gz, sizeof gz);

    assert_int_equal(unpack(gz, len, unpacked, sizeof plain + 1, &err), -EINVAL);
    assert_error(&err, EINVAL, "f.gz",
                 "unpacks to 1 bytes fewer than its header says; it is truncated");
    assert_int_equal(unpack(gz, len, unpacked, sizeof plain - 1, &err), -EINVAL);
    assert_error(&err, EINVAL, "f.gz", "unpacks to more bytes than its header says; it is damaged");
}

TEST(test_gunzip_truncated)
{
    uint8_t gz[8192];
    struct dl_error err;
    size_t len = make_packed(gz, sizeof gz);

    for (size_t cut = 0; cut < len; cut++) {
        /* Exactly so many bytes of heap: ASan sees a read past them. */
        _cleanup_free_ uint8_t *exact = malloc(cut ? cut : 1);
        memcpy(exact, gz, cut);
        assert_int_equal(unpack(exact, cut, unpacked, sizeof plain, &err), -EINVAL);
        assert_error(&err, EINVAL, "f.gz", "its gzip data is truncated; fetch the file again");
    }
}

/* A flipped bit is noticed, or changes nothing in what comes out (as in the time of the header). */
TEST(test_gunzip_damaged)
{
    uint8_t gz[8192];
    struct dl_error err;
    size_t len = make_packed(gz, sizeof gz);
    size_t unnoticed = 0;

    for (size_t bit = 0; bit < len * 8; bit++) {
        gz[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (unpack(gz, len, unpacked, sizeof plain, &err) == 0) {
            assert_memory_equal(unpacked, plain, sizeof plain);
            unnoticed++;
        }
        gz[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_in_range(unnoticed, 1, len * 8 / 10);
}

TEST(test_gunzip_trailing)
{
    uint8_t gz[8192];
    struct dl_error err;
    size_t len = make_packed(gz, sizeof gz);

    memcpy(gz + len, "garbage", 7);
    assert_int_equal(unpack(gz, len + 7, unpacked, sizeof plain, &err), -EINVAL);
    assert_error(&err, EINVAL, "f.gz",
                 "has 7 other bytes after its gzip data; it is damaged, or two files were joined");
    memcpy(gz + len, "\x1f\x8b\x08", 3); /* a member that has hardly begun */
    assert_int_equal(unpack(gz, len + 3, unpacked, sizeof plain, &err), -EINVAL);
    assert_error_has(&err, "truncated");
    memcpy(gz + len, "\x1f\x8bgarbage", 9);
    assert_int_equal(unpack(gz, len + 9, unpacked, sizeof plain, &err), -EINVAL);
    assert_error_has(&err, "its gzip data is damaged (");
}

TEST(test_gunzip_bound)
{
    static uint8_t zeros[1 << 20], gz[4096];
    size_t len = make_gzip(zeros, sizeof zeros, gz, sizeof gz);

    assert_true(gunzip_bound(len) >= sizeof zeros);
    assert_true(gunzip_bound(len) < 2 * sizeof zeros);
    assert_true(gunzip_bound(UINT64_MAX / 2) == UINT64_MAX);
}
