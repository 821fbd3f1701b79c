/* The cache of lengths, and the fingerprint that it is asked by. */
#include "daemon/cache/disk_cache.h"
#include "daemon/cache/lengths_cache.h"
#include "daemon/data/collate/lengths.h"
#include "tests/unit/dataset_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

/* ---- the cache ------------------------------------------------------------------------------ */

static const char *file_of(const char *dir, uint64_t fingerprint)
{
    char name[64];

    snprintf(name, sizeof name, "%s/%016llx.lengths", dir, (unsigned long long)fingerprint);
    return harness_below(name);
}

static void must_store(const char *dir, uint64_t fingerprint, uint64_t n, const uint32_t *lengths)
{
    struct dl_error err = {0};

    if (lengths_cache_store(harness_below(dir), fingerprint, n, lengths, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

TEST(test_round_trip)
{
    enum { MANY = 300000 };
    static const uint64_t counts[] = {0, 1, 5, MANY};
    _cleanup_free_ uint32_t *lengths = calloc(MANY, sizeof *lengths);
    _cleanup_free_ uint32_t *got = calloc(MANY, sizeof *got);
    struct stat st;

    for (uint32_t i = 0; i < MANY; i++)
        lengths[i] = i * 2654435761U + 1;
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        uint64_t n = counts[i], fingerprint = 0xabc0000000000000 + i;
        assert_int_equal(lengths_cache_load(harness_below("new/cache"), fingerprint, n, got),
                         -ENOENT);
        must_store("new/cache", fingerprint, n, lengths);
        assert_int_equal(lengths_cache_load(harness_below("new/cache"), fingerprint, n, got), 0);
        assert_memory_equal(got, lengths, n * sizeof *got);
        /* Asked for what is not there. */
        assert_int_equal(lengths_cache_load(harness_below("new/cache"), fingerprint + 100, n, got),
                         -ENOENT);
        assert_int_equal(lengths_cache_load(harness_below("new/cache"), fingerprint, n + 1, got),
                         -ENOENT);
        if (n > 0)
            assert_int_equal(
                lengths_cache_load(harness_below("new/cache"), fingerprint, n - 1, got), -ENOENT);
        assert_int_equal(stat(file_of("new/cache", fingerprint), &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(st.st_size, 40 + 4 * n);
    }
    assert_int_equal(stat(harness_below("new/cache"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(harness_below("new"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(lengths_cache_load(harness_below("new/cache"), 1, UINT64_MAX / 4 + 1, got),
                     -ENOENT);
    assert_int_equal(lengths_cache_load(harness_below("new/cache"), 1, UINT64_MAX / 8, got),
                     -ENOENT);

    /* Another one in its place. */
    must_store("new/cache", 0xabc0000000000002, 2, (uint32_t[]){8, 9});
    assert_int_equal(lengths_cache_load(harness_below("new/cache"), 0xabc0000000000002, 2, got), 0);
    assert_memory_equal(got, ((uint32_t[]){8, 9}), 8);
}

/* Every byte counts; so does every byte that is missing, or too many. */
TEST(test_damage)
{
    static const uint32_t lengths[] = {1, 2, 3, 400000};
    uint8_t good[128], bad[128];
    uint32_t got[4];

    must_store("damage", 7, 4, lengths);
    const char *path = file_of("damage", 7);
    FILE *file = fopen(path, "rbe");
    size_t len = fread(good, 1, sizeof good, file);
    fclose(file);
    assert_int_equal(len, 56);
    for (size_t i = 0; i < len; i++) {
        memcpy(bad, good, len);
        bad[i] ^= 1;
        harness_file("damage/0000000000000007.lengths", bad, len);
        assert_int_equal(lengths_cache_load(harness_below("damage"), 7, 4, got), -ENOENT);
    }
    for (size_t n = 0; n <= len + 1; n++) {
        memcpy(bad, good, len);
        harness_file("damage/0000000000000007.lengths", bad, n);
        assert_int_equal(lengths_cache_load(harness_below("damage"), 7, 4, got),
                         n == len ? 0 : -ENOENT);
    }
    /* Foreign: of another fingerprint, by name; a directory; a link; a pipe. */
    harness_file("damage/0000000000000008.lengths", good, len);
    assert_int_equal(lengths_cache_load(harness_below("damage"), 8, 4, got), -ENOENT);
    harness_file("damage/0000000000000007.lengths", good, len);
    assert_int_equal(mkdir(file_of("damage", 9), 0700), 0);
    assert_int_equal(symlink(file_of("damage", 7), file_of("damage", 10)), 0);
    assert_int_equal(mkfifo(file_of("damage", 11), 0600), 0);
    for (uint64_t fingerprint = 9; fingerprint <= 11; fingerprint++)
        assert_int_equal(lengths_cache_load(harness_below("damage"), fingerprint, 4, got), -ENOENT);
    assert_int_equal(lengths_cache_load(harness_below("damage"), 7, 4, got), 0);

    /* What is damaged is replaced. */
    must_store("damage", 8, 4, lengths);
    assert_int_equal(lengths_cache_load(harness_below("damage"), 8, 4, got), 0);
    assert_memory_equal(got, lengths, sizeof lengths);
}

TEST(test_refusals)
{
    struct dl_error err = {0};
    uint32_t one = 1;

    harness_file("a-file", "", 0);
    assert_int_equal(lengths_cache_load(harness_below("none"), 1, 1, &one), -ENOENT);
    assert_int_equal(lengths_cache_load(harness_below("a-file"), 1, 1, &one), -ENOENT);
    assert_int_equal(lengths_cache_load(harness_below("."), 0, 1, &one), -ENOENT);
    assert_int_equal(lengths_cache_store(harness_below("none"), 0, 1, &one, &err), -EINVAL);
    assert_error(&err, EINVAL, harness_below("none"), "lengths without a fingerprint are not kept");
    assert_false(exists(harness_below("none")));
    assert_int_equal(lengths_cache_store(harness_below("a-file/x"), 1, 1, &one, &err), -ENOTDIR);
    assert_error(&err, ENOTDIR, harness_below("a-file/x"),
                 "the directory for the cache cannot be made: Not a directory");
    assert_int_equal(lengths_cache_store(harness_below("a-file"), 1, 1, &one, &err), -ENOTDIR);
    assert_error(&err, ENOTDIR, harness_below("a-file"),
                 "lengths of 1 samples cannot be stored there: Not a directory");
    /* A directory stands where the file is to be: what was begun does not stay. */
    assert_int_equal(mkdir(harness_below("full"), 0700), 0);
    assert_int_equal(mkdir(file_of("full", 1), 0700), 0);
    assert_int_equal(lengths_cache_store(harness_below("full"), 1, 1, &one, &err), -EISDIR);
    assert_int_equal(rmdir(file_of("full", 1)), 0);
    assert_int_equal(rmdir(harness_below("full")), 0);
}

/* A file of so many bytes, none of them on the disk, that was used at this second. */
static const char *make_old(const char *name, uint64_t bytes, time_t when)
{
    const char *path = harness_file(name, "", 0);
    const struct timespec times[2] = {{.tv_sec = when}, {.tv_sec = when}};

    assert_int_equal(truncate(path, (off_t)bytes), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    return path;
}

TEST(test_eviction)
{
    const uint64_t third = DISK_CACHE_BYTES / 3;
    const time_t now = time(NULL);
    uint32_t one = 1, got;

    assert_int_equal(mkdir(harness_below("evict"), 0700), 0);
    must_store("evict", 5, 1, &one);
    make_old("evict/0000000000000005.lengths.bak", third, now - 9000);
    make_old("evict/notes.lengths", third, now - 9000);
    make_old("evict/000000000000000G.lengths", third, now - 9000);
    make_old("evict/new-fresh", third, now - 60);
    make_old("evict/new-dead", third, now - 9000);
    make_old("evict/0000000000000001.lengths", third, now - 4000);
    make_old("evict/0000000000000002.lengths", third, now - 5000);
    make_old("evict/0000000000000003.lengths", third, now - 3000);
    must_store("evict", 4, 1, &one);
    /* The oldest of its own went, and what was left behind; nothing else of others. */
    assert_false(exists(file_of("evict", 2)));
    assert_false(exists(harness_below("evict/new-dead")));
    for (uint64_t fingerprint = 1; fingerprint <= 5; fingerprint++)
        assert_int_equal(exists(file_of("evict", fingerprint)), fingerprint != 2);
    assert_true(exists(harness_below("evict/0000000000000005.lengths.bak")));
    assert_true(exists(harness_below("evict/notes.lengths")));
    assert_true(exists(harness_below("evict/000000000000000G.lengths")));
    assert_true(exists(harness_below("evict/new-fresh")));

    /* What was of use lately stays, however long ago it was stored. */
    const struct timespec old[2] = {{.tv_sec = 100}, {.tv_sec = 100}};
    assert_int_equal(utimensat(AT_FDCWD, file_of("evict", 5), old, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, file_of("evict", 4), old, 0), 0);
    assert_int_equal(lengths_cache_load(harness_below("evict"), 5, 1, &got), 0);
    make_old("evict/0000000000000006.lengths", third, now - 2000);
    must_store("evict", 7, 1, &one);
    assert_int_equal(lengths_cache_load(harness_below("evict"), 5, 1, &got), 0);
    assert_int_equal(lengths_cache_load(harness_below("evict"), 4, 1, &got), -ENOENT);
    assert_int_equal(lengths_cache_load(harness_below("evict"), 7, 1, &got), 0);
    assert_false(exists(file_of("evict", 1)));
    assert_true(exists(file_of("evict", 3)));

    /* Even when the one just stored is older than the others, by a clock that was set. */
    make_old("evict/0000000000000008.lengths", 4 * third, now + 100000);
    must_store("evict", 9, 1, &one);
    assert_int_equal(lengths_cache_load(harness_below("evict"), 9, 1, &got), 0);
    assert_false(exists(file_of("evict", 8)));
    assert_false(exists(file_of("evict", 3)));
}

/* ---- the fingerprint ------------------------------------------------------------------------ */

static uint64_t fingerprint_in(const char *text, const char *leaf, const struct data_env *env)
{
    struct dl_spec spec = read_dataset(text);
    uint64_t fingerprint = lengths_fingerprint(&spec.dataset, leaf, env);

    spec_deinit(&spec);
    return fingerprint;
}

static uint64_t print_of(const char *text, const char *leaf)
{
    uint64_t first = fingerprint_in(text, leaf, &anywhere),
             again = fingerprint_in(text, leaf, &anywhere);

    assert_int_equal(first, again);
    return first;
}

enum { LARGE = 20000 };

/* Changes that are made to f.txt, of LARGE bytes, with all its times but one set back. */
static void grow(const char *path)
{
    FILE *file = fopen(path, "abe");
    assert_int_equal(fwrite("x", 1, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

static void shrink(const char *path)
{
    assert_int_equal(truncate(path, LARGE - 1), 0);
}

static void put(const char *path, long at)
{
    FILE *file = fopen(path, "r+be");
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fputc('\n', file), '\n');
    assert_int_equal(fclose(file), 0);
}

static void change_first(const char *path)
{
    put(path, 0);
}

static void change_4096th(const char *path)
{
    put(path, 4095);
}

static void change_near_end(const char *path)
{
    put(path, LARGE - 4096);
}

static void change_middle(const char *path)
{
    put(path, LARGE / 2);
}

static void touch(const char *path)
{
    const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000, .tv_nsec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* By another one of the same size, and of the same time. */
static void replace(const char *path)
{
    static char text[LARGE];
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    memset(text, 'z', sizeof text);
    const char *other = harness_file("other", text, sizeof text);
    assert_int_equal(utimensat(AT_FDCWD, other, (struct timespec[]){st.st_atim, st.st_mtim}, 0), 0);
    assert_int_equal(rename(other, path), 0);
}

/* In the middle, where nobody looks, with the file's own time set back: the inode's tells. */
static void change_in_secret(const char *path)
{
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    put(path, LARGE / 2);
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){st.st_atim, st.st_mtim}, 0), 0);
}

TEST(test_files_change)
{
    static void (*const changes[])(const char *path) = {
        grow,          shrink, change_first, change_4096th,    change_near_end,
        change_middle, touch,  replace,      change_in_secret,
    };
    static const char *const specs[] = {
        "{kind: text, paths: f.txt, tokenizer: bytes}",
        "{kind: text, paths: [e.txt, 'f*.txt'], tokenizer: bytes}",
        "{kind: records, paths: f.txt, dtype: uint8, shape: [5]}",
        "{kind: npy, paths: {a: e.txt, b: f.txt}}",
        "{kind: tokens, paths: f.txt, dtype: uint16, sequence_length: 8}",
        ("{kind: concat, datasets: [{kind: subset, dataset: {kind: text, paths: f.txt}, "
         "indices: []}]}"),
    };
    static char text[LARGE];

    memset(text, 'a', sizeof text);
    harness_file("e.txt", "", 0);
    for (size_t s = 0; s < ARRAY_SIZE(specs); s++) {
        for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
            const char *path = harness_file("f.txt", text, sizeof text);
            uint64_t before = print_of(specs[s], NULL);
            assert_int_not_equal(before, 0);
            usleep(20000); /* the kernel's clock for files goes by ticks */
            changes[i](path);
            if (print_of(specs[s], NULL) == before)
                fail_msg("%s: change %zu is not seen", specs[s], i);
        }
    }
}

/* Each is another one, and none is 0. */
TEST(test_differences)
{
    static const struct {
        const char *text;
        const char *leaf;
    } rows[] = {
        {"{kind: text, paths: d0.txt, tokenizer: bytes}", NULL},
        {"{kind: text, paths: d0.txt, tokenizer: bytes}", "tokens"},
        {"{kind: text, paths: d0.txt, tokenizer: bytes}", "token"},
        {"{kind: text, paths: d0.txt, tokenizer: bytes, max_length: 5}", NULL},
        {"{kind: text, paths: d0.txt, tokenizer: bytes, format: json}", NULL},
        {"{kind: text, paths: d1.txt, tokenizer: bytes}", NULL},
        {"{kind: text, paths: [d0.txt, d1.txt], tokenizer: bytes}", NULL},
        {"{kind: text, paths: [d1.txt, d0.txt], tokenizer: bytes}", NULL},
        {"{kind: text, paths: 'd?.txt', tokenizer: bytes}", NULL},
        {"{kind: range, length: 5}", NULL},
        {"{kind: range, length: 6}", NULL},
        {"{kind: split, dataset: {kind: range, length: 5}, parts: [2, 3], part: 0, seed: 1}", NULL},
        {"{kind: split, dataset: {kind: range, length: 5}, parts: [2, 3], part: 0, seed: 2}", NULL},
        {"{kind: imagefolder, paths: folder}", NULL},
    };
    uint64_t prints[ARRAY_SIZE(rows) + 3];
    size_t n = ARRAY_SIZE(rows);

    harness_file("d0.txt", "a\n", 2);
    harness_file("d1.txt", "a\n", 2);
    assert_int_equal(mkdir(harness_below("folder"), 0700), 0);
    assert_int_equal(mkdir(harness_below("folder/class"), 0700), 0);
    harness_file("folder/class/1.png", "no image", 8);
    for (size_t i = 0; i < n; i++) {
        prints[i] = print_of(rows[i].text, rows[i].leaf);
        assert_int_not_equal(prints[i], 0);
    }
    /* One more file that fits. */
    harness_file("d2.txt", "a\n", 2);
    prints[n++] = print_of("{kind: text, paths: 'd?.txt', tokenizer: bytes}", NULL);
    harness_file("folder/class/2.png", "no image", 8);
    prints[n++] = print_of("{kind: imagefolder, paths: folder}", NULL);
    harness_file("folder/class/1.png", "an image", 8);
    prints[n++] = print_of("{kind: imagefolder, paths: folder}", NULL);
    for (size_t i = 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++)
            if (prints[i] == prints[k])
                fail_msg("%zu and %zu are alike", i, k);
}

TEST(test_cannot_be_told)
{
    static const char *const rows[] = {
        "{kind: python, object: 'm:f'}",
        "{kind: plugin, path: p.so}",
        "{kind: concat, datasets: [{kind: range, length: 3}, {kind: plugin, path: p.so}]}",
        "{kind: text, paths: none.txt}",
        "{kind: text, paths: 'none*.txt'}",
        "{kind: text, paths: [there.txt, none.txt]}",
        "{kind: records, paths: ., dtype: uint8, shape: [1]}",
        "{kind: imagefolder, paths: none}",
    };

    harness_file("there.txt", "a\n", 2);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (print_of(rows[i], NULL) != 0)
            fail_msg("%s: has a fingerprint", rows[i]);
}

/* Files outside are not looked at: not by name, pattern, or link. */
TEST(test_roots)
{
    static const struct {
        const char *text;
        bool allowed;
    } rows[] = {
        {"{kind: text, paths: root/in.txt}", true},    {"{kind: text, paths: 'root/i*.txt'}", true},
        {"{kind: text, paths: out.txt}", false},       {"{kind: text, paths: 'out*.txt'}", false},
        {"{kind: text, paths: root/link.txt}", false}, {"{kind: range, length: 3}", true},
        {"{kind: imagefolder, paths: folder}", false},
    };
    char *roots[] = {(char *)(uintptr_t)harness_below("root")};
    const struct data_env env = {.roots = roots, .n_roots = 1};

    assert_int_equal(mkdir(harness_below("root"), 0700), 0);
    harness_file("root/in.txt", "a", 1);
    harness_file("out.txt", "a", 1);
    assert_int_equal(symlink(harness_below("out.txt"), harness_below("root/link.txt")), 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint64_t fingerprint = fingerprint_in(rows[i].text, NULL, &env);
        if ((fingerprint != 0) != rows[i].allowed)
            fail_msg("%s: %llx", rows[i].text, (unsigned long long)fingerprint);
    }
}
