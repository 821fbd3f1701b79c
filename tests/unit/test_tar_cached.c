/* What is known of a dataset's tar shards, kept on disk and handed to others. */
#include "daemon/data/kinds/index_files.h"
#include "daemon/data/kinds/tar/tar_cached.h"
#include "proto/common/clock.h"
#include "tests/unit/data_files.h"
#include "tests/unit/fail_alloc.h"
#include "tests/unit/make_tar.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>

enum { SHARDS = 3, SAMPLES = 400, ALL = SHARDS * SAMPLES, UID = 1000 };

static const struct sample_key any;
static char paths[SHARDS][4500], cache[4500];
static struct spec_file files[SHARDS];

/* SAMPLES samples, of numbers from `first` on. */
static void write_shard(int k, int first)
{
    struct tar_file tar = tar_new();
    char name[32], text[32];

    for (int i = 0; i < SAMPLES; i++) {
        snprintf(name, sizeof name, "%04d.cls", i);
        snprintf(text, sizeof text, "%d", first + i);
        tar_text(&tar, name, text);
    }
    tar_end(&tar);
    snprintf(name, sizeof name, "%d.tar", k);
    snprintf(paths[k], sizeof paths[k], "%s", harness_file(name, tar.data, tar.len));
    tar_free(&tar);
}

/* Until it is long enough ago that a shard was written. */
static void settle(void)
{
    const struct timespec longer = {.tv_nsec = 150 * 1000 * 1000};

    nanosleep(&longer, NULL);
}

/* Another cache for each test. */
static int set_up(void **state)
{
    static int number;

    for (int k = 0; k < SHARDS; k++) {
        write_shard(k, k * SAMPLES);
        files[k].path = paths[k];
    }
    snprintf(cache, sizeof cache, "%s/cache-%d", harness_tmpdir(), number++);
    settle();
    return 0;
}

static struct spec_dataset spec_of_all(void)
{
    return (struct spec_dataset){.kind = DATASET_TAR,
                                 .files = files,
                                 .n_files = SHARDS,
                                 .decode = true,
                                 .index = INDEX_AUTO,
                                 .image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC}};
}

/* With what user `uid` has in the cache; what is made goes there. */
static struct dataset *open_as(uint32_t uid, struct shared_indexes *indexes)
{
    struct spec_dataset spec = spec_of_all();
    struct index_files cached;
    struct data_env env = {.index_files = &cached, .indexes = indexes};
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    index_files_begin(&cached, cache, uid, &spec);
    cached.dir = indexes ? NULL : strdup(cache);
    if (dataset_open(&spec, &env, &ds, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    index_files_end(&cached);
    return ds;
}

static int64_t number_at(struct dataset *ds, uint64_t i)
{
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};
    int64_t number = -1;

    if (dataset_get(ds, &any, i, &sample, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    for (uint32_t n = 0; n < sample.tree.count; n++)
        if (sample.tree.nodes[n].kind == TREE_TENSOR)
            memcpy(&number, sample.data[n], sizeof number);
    sample_deinit(&sample);
    arena_deinit(&arena);
    return number;
}

/* All are there, and right; but those of the first shard begin with sample `skipped`. */
static void expect_opens(uint32_t uid, uint64_t skipped)
{
    struct dataset *ds = open_as(uid, NULL);

    assert_int_equal(ds->length, ALL - skipped);
    for (uint64_t i = 0; i < ds->length; i += 37)
        assert_int_equal(number_at(ds, i), i + skipped);
    dataset_close(ds);
}

static struct index_cache_key key_of(uint32_t uid)
{
    struct spec_dataset spec = spec_of_all();

    return (struct index_cache_key){.key = tar_cached_key(&spec), .uid = uid};
}

static int read_kept(uint32_t uid, struct dl_buffer *ret)
{
    struct index_cache_key key = key_of(uid);
    _cleanup_fd_ int fd = index_cache_open(cache, &key);

    return fd < 0 ? fd : index_cache_read(fd, &key, ret);
}

static struct tar_cached_shard *shard_in(struct dl_buffer *bytes, const char *path)
{
    struct tar_cached_shard *shards = (void *)(bytes->data + 24);
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    for (int i = 0; i < SHARDS; i++)
        if (shards[i].file.ino == st.st_ino)
            return &shards[i];
    return NULL;
}

/*
 * The cache says that the first shard begins with its second sample, which no scan would find: so
 * who opens with that sample first has believed the cache, and not walked along the headers.
 */
static void forge(uint32_t uid)
{
    struct index_cache_key key = key_of(uid);
    struct dl_buffer bytes = {0};

    assert_int_equal(read_kept(uid, &bytes), 0);
    struct tar_cached_shard *shard = shard_in(&bytes, paths[0]);
    shard->first++;
    shard->n--;
    assert_int_equal(index_cache_store(cache, &key, (struct dl_span){bytes.data, bytes.len}, NULL),
                     0);
    buffer_deinit(&bytes);
}

/* ---- on disk -------------------------------------------------------------------------------- */

TEST(test_kept, set_up)
{
    expect_opens(UID, 0);
    expect_opens(UID, 0);
    forge(UID);
    expect_opens(UID, 1);
    expect_opens(UID + 1, 0); /* another user believes only what is his own */
    expect_opens(UID, 1);
}

/* A shard that was written to is scanned anew; the others are not, and the cache has all then. */
TEST(test_changed, set_up)
{
    struct dl_buffer bytes = {0};

    expect_opens(UID, 0);
    forge(UID);
    write_shard(1, 5000); /* as many bytes as before */
    settle();
    struct dataset *ds = open_as(UID, NULL);
    assert_int_equal(ds->length, ALL - 1);
    assert_int_equal(number_at(ds, 0), 1);
    assert_int_equal(number_at(ds, SAMPLES - 1), 5000);
    dataset_close(ds);

    write_shard(0, 0);
    write_shard(1, SAMPLES);
    settle();
    expect_opens(UID, 0);
    assert_int_equal(read_kept(UID, &bytes), 0);
    for (int k = 0; k < SHARDS; k++)
        assert_non_null(shard_in(&bytes, paths[k]));
    buffer_deinit(&bytes);
}

/* One that was written to just now may be written to once more in the same tick. */
TEST(test_unsettled, set_up)
{
    struct dl_buffer bytes = {0};
    struct stat st;

    write_shard(2, 2 * SAMPLES);
    expect_opens(UID, 0);
    assert_int_equal(stat(paths[2], &st), 0);
    if (read_kept(UID, &bytes) == 0) {
        const struct tar_cached_shard *shard = shard_in(&bytes, paths[2]);
        struct timespec later;
        (void)clock_gettime(CLOCK_REALTIME, &later);
        int64_t age = (int64_t)(later.tv_sec - st.st_ctim.tv_sec) * 1000 +
                      (later.tv_nsec - st.st_ctim.tv_nsec) / 1000000;
        if (age < 100) /* else this machine was too slow to see it */
            assert_null(shard);
    }
    buffer_deinit(&bytes);
    settle();
    expect_opens(UID, 0);
}

TEST(test_damaged_file, set_up)
{
    char path[4600];

    expect_opens(UID, 0);
    snprintf(path, sizeof path, "%s/%u-%016llx.index", cache, UID,
             (unsigned long long)key_of(UID).key);
    for (off_t at = 0; at < 300; at += 13) {
        uint8_t byte;
        forge(UID);
        _cleanup_fd_ int fd = open(path, O_RDWR | O_CLOEXEC);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        expect_opens(UID, 0); /* and it is there again */
    }
    forge(UID);
    assert_int_equal(truncate(path, 100), 0);
    expect_opens(UID, 0);
}

/* A cache that cannot be read or written costs time, and nothing else. */
TEST(test_no_cache, set_up)
{
    snprintf(cache, sizeof cache, "%s", harness_file("no-directory", "", 0));
    expect_opens(UID, 0);
    snprintf(cache, sizeof cache, "/proc/self/nothing");
    expect_opens(UID, 0);
}

/* Few samples that were found at once are no file. */
TEST(test_not_worth_it, set_up)
{
    struct spec_dataset spec = spec_of_all();
    struct tar_file tar = tar_new();
    struct index_files cached = {.uid = UID, .dir = strdup(cache)};
    struct data_env env = {.index_files = &cached};
    struct dataset *ds = NULL;

    tar_text(&tar, "a.cls", "1");
    tar_end(&tar);
    files[0].path = (char *)harness_file("small.tar", tar.data, tar.len);
    spec.n_files = 1;
    settle();
    uint64_t began = clock_ns();
    assert_int_equal(dataset_open(&spec, &env, &ds, NULL), 0);
    if (clock_ns() - began < 100 * 1000 * 1000)
        assert_int_not_equal(access(cache, F_OK), 0);
    else
        print_message("# skipped: to open one file took this machine 100 ms\n");
    dataset_close(ds);
    index_files_end(&cached);
    tar_free(&tar);
}

/* ---- handed to others ----------------------------------------------------------------------- */

struct offered {
    int calls;
    uint64_t key;
    int fd;
};

static int on_offer(void *owner, const char *place, uint32_t form, uint64_t key, int fd)
{
    struct offered *offered = owner;

    assert_string_equal(place, "dataset");
    assert_int_equal(form, SHARED_INDEX_TAR);
    offered->calls++;
    offered->key = key;
    close_fdp(&offered->fd);
    offered->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return 0;
}

TEST(test_shared, set_up)
{
    struct offered offered = {.fd = -1};
    const struct shared_indexes none = {.offer = on_offer, .owner = &offered};
    struct shared_indexes first = none, second = none;

    /* The first worker scans, and says under which key it is worth keeping. */
    dataset_close(open_as(UID, &first));
    assert_int_equal(offered.calls, 1);
    assert_int_equal(offered.key, key_of(UID).key);
    /* It need not once more, nor need others. */
    dataset_close(open_as(UID, &first));
    assert_int_equal(offered.calls, 1);
    shared_indexes_deinit(&first);
    assert_int_equal(shared_indexes_add(&second, span_str("dataset"), SHARED_INDEX_TAR,
                                        fcntl(offered.fd, F_DUPFD_CLOEXEC, 3)),
                     0);
    struct dataset *ds = open_as(UID, &second);
    assert_int_equal(ds->length, ALL);
    assert_int_equal(number_at(ds, ALL - 1), ALL - 1);
    assert_int_equal(offered.calls, 1);
    dataset_close(ds);
    shared_indexes_deinit(&second);

    /* What was in the cache is handed on, and not kept again. */
    expect_opens(UID, 0);
    forge(UID);
    first = none;
    ds = open_as(UID, &first);
    assert_int_equal(ds->length, ALL - 1);
    assert_int_equal(number_at(ds, 0), 1);
    assert_int_equal(number_at(ds, ALL - 2), ALL - 1);
    assert_int_equal(offered.calls, 2);
    assert_int_equal(offered.key, 0);
    dataset_close(ds);
    shared_indexes_deinit(&first);
    close_fdp(&offered.fd);
}

/* Each allocation of ours fails once, from an empty cache, from a full one, and for others. */
TEST(test_memory, set_up)
{
    struct spec_dataset spec = spec_of_all();
    struct offered offered = {.fd = -1};

    for (int way = 0; way < 3; way++) {
        bool failed = true;
        for (int k = 0; failed; k++) {
            struct shared_indexes indexes = {.offer = on_offer, .owner = &offered};
            struct index_files cached;
            struct data_env env = {.index_files = &cached, .indexes = way == 2 ? &indexes : NULL};
            struct dataset *ds = NULL;
            struct dl_error err = {0};
            if (way == 0)
                snprintf(cache, sizeof cache, "%s/memory-%d", harness_tmpdir(), k);
            fail_in = k;
            index_files_begin(&cached, cache, UID, &spec);
            cached.dir = strdup(cache);
            int r = dataset_open(&spec, &env, &ds, &err);
            failed = fail_in < 0;
            fail_in = -1;
            assert_true(r == 0 || (failed && r == -ENOMEM));
            if (ds) {
                assert_int_equal(ds->length, ALL);
                assert_int_equal(number_at(ds, SAMPLES), SAMPLES);
            }
            dataset_close(ds);
            shared_indexes_deinit(&indexes);
            index_files_end(&cached);
        }
    }
    close_fdp(&offered.fd);
}

/* ---- bytes that are wrong in one place ------------------------------------------------------ */

TEST(test_unsound)
{
    static const struct {
        uint64_t at; /* a number of so many bytes there becomes */
        uint64_t value;
        uint32_t bytes;
        bool seen; /* and the whole is a view all the same */
    } rows[] = {
        {0, 'x', 1, false},        {8, 2, 8, false},
        {8, UINT64_MAX, 8, false}, {8, UINT64_MAX / 64 + 1, 8, false},
        {16, 4, 8, false},         {16, UINT64_MAX / 4 + 2, 8, false},
        {24 + 48, 4, 8, true},     {24 + 48, UINT64_MAX, 8, true},
        {24 + 56, 4, 8, true},     {24 + 56, UINT64_MAX, 8, true},
        {24 + 64, 1, 4, true},     {24 + 64 + 8, 4, 4, true},
        {24 + 64 + 8, 1, 4, true}, {24 + 16, 1024, 8, true},
    };
    struct stat st = {.st_ino = 7, .st_size = 2048};
    struct tar_index index = {.blocks = (uint32_t[]){0, 1, 3}, .n = 3};
    struct tar_cached_item item = {&st, &index};
    struct dl_buffer good = {0};
    struct tar_index found;
    struct tar_cached cached;

    assert_int_equal(tar_cached_make(&item, 1, &good), 0);
    assert_int_equal(good.len, 24 + 64 + 12);
    assert_int_equal(tar_cached_view(good.data, good.len, &cached), 0);
    assert_true(tar_cached_find(&cached, &st, &found));
    assert_int_equal(found.n, 3);
    assert_memory_equal(found.blocks, index.blocks, 12);
    for (size_t len = 0; len < good.len; len++)
        assert_int_equal(tar_cached_view(good.data, len, &cached), -EINVAL);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint64_t bytes[16];
        memcpy(bytes, good.data, good.len);
        memcpy((uint8_t *)bytes + rows[i].at, &rows[i].value, rows[i].bytes);
        int r = tar_cached_view((uint8_t *)bytes, good.len, &cached);
        if ((r == 0) != rows[i].seen || (r == 0 && tar_cached_find(&cached, &st, &found)))
            fail_msg("row %zu is taken", i);
    }
    buffer_deinit(&good);
}
