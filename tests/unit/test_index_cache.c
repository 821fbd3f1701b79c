/* Indexes of files in the cache on disk. */
#include "daemon/cache/disk_cache.h"
#include "daemon/cache/index_cache.h"
#include "tests/unit/data_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

static const struct index_cache_key whose = {.key = 0xabc, .uid = 1000};
static const char content[] = "an index of something";

static const char *dir_named(const char *name)
{
    static char path[4400];

    snprintf(path, sizeof path, "%s/%s", harness_tmpdir(), name);
    return path;
}

static void must_store(const char *dir, const struct index_cache_key *key)
{
    struct dl_error err = {0};

    if (index_cache_store(dir, key, span_str(content), &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
}

/* 0, and it is what was stored; -ENOENT. */
static int load(const char *dir, const struct index_cache_key *key)
{
    struct dl_buffer got = {0};
    _cleanup_fd_ int fd = index_cache_open(dir, key);

    if (fd < 0)
        return fd;
    int r = index_cache_read(fd, key, &got);
    if (r < 0) {
        assert_null(got.data);
        return r;
    }
    assert_int_equal(got.len, strlen(content));
    assert_memory_equal(got.data, content, got.len);
    buffer_deinit(&got);
    /* From its beginning each time. */
    assert_int_equal(index_cache_read(fd, key, &got), 0);
    buffer_deinit(&got);
    return r;
}

TEST(test_round_trip)
{
    const struct index_cache_key others[] = {{.key = 0xabd, .uid = 1000},
                                             {.key = 0xabc, .uid = 1001}};
    const char *dir = dir_named("new/cache");
    struct stat st;
    char path[4500];

    assert_int_equal(load(dir, &whose), -ENOENT);
    must_store(dir, &whose);
    assert_int_equal(load(dir, &whose), 0);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        assert_int_equal(load(dir, &others[i]), -ENOENT);
    must_store(dir, &others[0]);
    must_store(dir, &whose); /* again */
    assert_int_equal(load(dir, &whose), 0);
    snprintf(path, sizeof path, "%s/1000-0000000000000abc.index", dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(st.st_size, 40 + strlen(content));
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
}

/* Every byte counts; so does every byte that is missing, or too many; and whose it is. */
TEST(test_damage)
{
    const struct index_cache_key other = {.key = 0xabc, .uid = 1001};
    uint8_t good[128], bad[128];

    must_store(dir_named("damage"), &whose);
    FILE *file = fopen(dir_named("damage/1000-0000000000000abc.index"), "rbe");
    size_t len = fread(good, 1, sizeof good, file);
    fclose(file);
    assert_int_equal(len, 40 + strlen(content));
    for (size_t i = 0; i < len; i++) {
        memcpy(bad, good, len);
        bad[i] ^= 1;
        harness_file("damage/1000-0000000000000abc.index", bad, len);
        assert_int_equal(load(dir_named("damage"), &whose), -ENOENT);
    }
    memcpy(bad, good, len);
    bad[len] = 0;
    for (size_t n = 0; n <= len + 1; n++) {
        harness_file("damage/1000-0000000000000abc.index", bad, n);
        assert_int_equal(load(dir_named("damage"), &whose), n == len ? 0 : -ENOENT);
    }
    memset(bad + 24, 0xff, 8); /* of 2^64 bytes */
    harness_file("damage/1000-0000000000000abc.index", bad, len);
    assert_int_equal(load(dir_named("damage"), &whose), -ENOENT);
    harness_file("damage/1001-0000000000000abc.index", good, len);
    assert_int_equal(load(dir_named("damage"), &other), -ENOENT);
    must_store(dir_named("damage"), &whose);
    assert_int_equal(load(dir_named("damage"), &whose), 0);
}

TEST(test_refusals)
{
    const struct dl_span large = {(const uint8_t *)content, INDEX_CACHE_BYTES + 1};
    struct dl_error err = {0};

    const char *dir = harness_file("a-file", "", 0);
    assert_int_equal(load(dir, &whose), -ENOENT);
    assert_int_equal(index_cache_store(dir, &whose, span_str(content), &err), -ENOTDIR);
    assert_error(&err, ENOTDIR, dir,
                 "an index of 21 bytes cannot be stored there: Not a directory");
    assert_int_equal(index_cache_store(dir, &whose, large, &err), -EFBIG);
    assert_error_has(&err, "is not kept there: the most is");
}

/* As on a disk that is full: what was there stays, and nothing is left of what was begun. */
TEST(test_no_room)
{
    const char *dir = dir_named("full");
    struct rlimit before, least;
    struct dl_error err = {0};
    int files = 0;

    must_store(dir, &whose);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    least = (struct rlimit){.rlim_cur = 50, .rlim_max = before.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &least), 0);
    int r = index_cache_store(dir, &whose, span_str("another index, which is longer"), &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(r, -EFBIG);
    assert_error_has(&err, "an index of 30 bytes cannot be stored there: File too large");
    assert_int_equal(load(dir, &whose), 0);
    DIR *stream = opendir(dir);
    for (const struct dirent *entry; (entry = readdir(stream));)
        files += entry->d_name[0] != '.';
    closedir(stream);
    assert_int_equal(files, 1);
}

/* Lengths and indexes share the room; what was used last stays. */
TEST(test_eviction)
{
    static const char *const old[] = {"evict/1000-0000000000000001.index",
                                      "evict/0000000000000002.lengths",
                                      "evict/1000-0000000000000003.index"};
    static const char *const foreign[] = {"evict/-0000000000000001.index",
                                          "evict/x-0000000000000001.index",
                                          "evict/1000-00000000000000001.index"};
    const time_t now = time(NULL);

    must_store(dir_named("evict"), &whose);
    for (size_t i = 0; i < ARRAY_SIZE(old) + ARRAY_SIZE(foreign); i++) {
        const char *path =
            harness_file(i < ARRAY_SIZE(old) ? old[i] : foreign[i - ARRAY_SIZE(old)], "", 0);
        const struct timespec times[2] = {{.tv_sec = now - 5000 + (time_t)i * 100},
                                          {.tv_sec = now - 5000 + (time_t)i * 100}};
        assert_int_equal(truncate(path, DISK_CACHE_BYTES / 2 - 4096), 0);
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    must_store(dir_named("evict"), &(struct index_cache_key){.key = 9, .uid = 7});
    for (size_t i = 0; i < ARRAY_SIZE(old); i++)
        assert_int_equal(access(dir_named(old[i]), F_OK) == 0, i > 0);
    for (size_t i = 0; i < ARRAY_SIZE(foreign); i++)
        assert_int_equal(access(dir_named(foreign[i]), F_OK), 0);
    assert_int_equal(load(dir_named("evict"), &whose), 0);
}
