/* Tar shards as an iterable dataset: who gets what, in which order, and what stays how long. */
#include "daemon/data/files/unpack.h"
#include "daemon/data/kinds/tar/tar.h"
#include "tests/unit/dataset_words.h"
#include "tests/unit/fail_open.h"
#include "tests/unit/make_tar.h"

#include <errno.h>

enum { SHARDS = 7, MOST = 200 };

/* Shard i is of i + 1 samples, "s<i>-<k>" with the number 100·i + k. */
static struct dataset *open_shards(uint64_t shuffle, bool divide)
{
    char spec[128];

    for (int i = 0; i < SHARDS; i++) {
        struct tar_file tar = tar_new();
        char name[32], text[32];
        for (int k = 0; k <= i; k++) {
            snprintf(name, sizeof name, "s%d-%d.cls", i, k);
            snprintf(text, sizeof text, "%d", 100 * i + k);
            tar_text(&tar, name, text);
        }
        tar_end(&tar);
        snprintf(name, sizeof name, "shard-%d.tar", i);
        harness_file(name, tar.data, tar.len);
        tar_free(&tar);
    }
    snprintf(spec, sizeof spec,
             "{kind: tar, paths: 'shard-{0..%d}.tar', shuffle: %llu, divide: %s}", SHARDS - 1,
             (unsigned long long)shuffle, divide ? "true" : "false");
    return open_dataset(spec, &anywhere);
}

static struct replica_params replica(uint64_t epoch, uint32_t rank, uint32_t world, uint32_t worker,
                                     uint32_t workers)
{
    return (struct replica_params){
        .key = {.seed = 42, .epoch = epoch},
        .seed = dataset_replica_seed(42, epoch, rank, workers, worker),
        .worker = worker,
        .workers = workers,
        .rank = rank,
        .world = world,
    };
}

/* The numbers that come from `it`, up to n; -1 for an error. Returns how many. */
static size_t drain(struct dataset_iter *it, int64_t *ret, size_t n)
{
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    size_t got = 0;
    int r = 0;

    for (; got < n; got++) {
        struct dl_error err = {0};
        r = it->ops->next(it, &sample, &err);
        if (r == DATASET_END)
            break;
        assert_int_equal(r, -err.code);
        ret[got] = -1;
        if (r == 0)
            memcpy(&ret[got], sample.data[sample.tree.count - 1], sizeof *ret);
        sample_clear(&sample);
        if (got % 3 == 2)
            arena_clear(&arena);
    }
    if (r == DATASET_END) /* from then on always */
        assert_int_equal(it->ops->next(it, &sample, NULL), DATASET_END);
    sample_deinit(&sample);
    arena_deinit(&arena);
    return got;
}

static struct dataset_iter *must_iterate(struct dataset *ds, const struct replica_params *params)
{
    struct dataset_iter *it = NULL;
    struct dl_error err = {0};

    assert_int_equal(ds->ops->iterate(ds, params, &it, &err), 0);
    return it;
}

static size_t pass(struct dataset *ds, const struct replica_params *params, int64_t *ret)
{
    struct dataset_iter *it = must_iterate(ds, params);
    size_t n = drain(it, ret, MOST);

    it->ops->close(it);
    return n;
}

enum { SAMPLES = SHARDS * (SHARDS + 1) / 2 };

static int compare_numbers(const void *a, const void *b)
{
    int64_t x, y;

    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* Each sample once. */
static void assert_whole(const int64_t *got, size_t n)
{
    int64_t sorted[MOST];
    size_t at = 0;

    assert_int_equal(n, SAMPLES);
    memcpy(sorted, got, n * sizeof *got);
    qsort(sorted, n, sizeof *sorted, compare_numbers);
    for (int i = 0; i < SHARDS; i++)
        for (int k = 0; k <= i; k++)
            assert_int_equal(sorted[at++], 100 * i + k);
}

/* Rank, then worker; and each replica has all where they do not divide. */
TEST(test_divide)
{
    static const struct {
        uint32_t world;
        uint32_t workers;
    } rows[] = {{1, 1}, {1, 3}, {2, 1}, {2, 2}, {3, 4}, {9, 1}, {2, 9}, {1, 0}, {0, 0}};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dataset *ds = open_shards(0, true), *whole = open_shards(0, false);
        int64_t all[MOST], got[MOST];
        size_t n = 0;

        assert_true(dataset_is_iterable(ds));
        assert_true(ds->length == DATASET_LENGTH_UNKNOWN);
        for (uint32_t rank = 0; rank < max_u64(rows[i].world, 1); rank++) {
            for (uint32_t worker = 0; worker < max_u64(rows[i].workers, 1); worker++) {
                struct replica_params params =
                    replica(3, rank, rows[i].world, worker, rows[i].workers);
                size_t mine = pass(ds, &params, got), want = 0;
                for (uint32_t s = rank; s < SHARDS; s += (uint32_t)max_u64(rows[i].world, 1)) {
                    uint32_t j = s / (uint32_t)max_u64(rows[i].world, 1);
                    if (j % max_u64(rows[i].workers, 1) != worker)
                        continue;
                    for (uint32_t k = 0; k <= s; k++)
                        assert_int_equal(got[want++], 100 * s + k);
                }
                assert_int_equal(mine, want);
                memcpy(all + n, got, mine * sizeof *got);
                n += mine;
                assert_int_equal(pass(whole, &params, got), SAMPLES);
            }
        }
        assert_whole(all, n);
        dataset_close(ds);
        dataset_close(whole);
    }
}

TEST(test_shuffle)
{
    static const uint64_t sizes[] = {1, 2, 5, 27, 28, 1000000};
    int64_t a[MOST], b[MOST];

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct dataset *ds = open_shards(sizes[i], true), *again = open_shards(sizes[i], true);
        struct replica_params params = replica(1, 0, 1, 0, 1);
        size_t n = pass(ds, &params, a);
        assert_whole(a, n);
        assert_int_equal(pass(again, &params, b), n);
        assert_memory_equal(a, b, n * sizeof *a); /* the same for the same */

        params = replica(2, 0, 1, 0, 1);
        assert_whole(b, pass(ds, &params, b));
        assert_memory_not_equal(a, b, n * sizeof *a); /* another epoch */
        params = replica(1, 0, 1, 0, 1);
        params.key.seed = 43;
        assert_whole(b, pass(ds, &params, b));
        assert_memory_not_equal(a, b, n * sizeof *a); /* another seed */
        params = replica(1, 0, 1, 0, 1);
        params.seed++;
        assert_whole(b, pass(ds, &params, b));
        if (sizes[i] > 1)
            assert_memory_not_equal(a, b, n * sizeof *a); /* another replica's draws */
        else
            assert_memory_equal(a, b, n * sizeof *a); /* of one there is nothing to draw */

        /* One order of shards for all replicas: together they have each sample once. */
        size_t all = 0;
        for (uint32_t rank = 0; rank < 2; rank++) {
            for (uint32_t worker = 0; worker < 3; worker++) {
                params = replica(5, rank, 2, worker, 3);
                all += pass(ds, &params, b + all);
            }
        }
        assert_whole(b, all);
        dataset_close(ds);
        dataset_close(again);
    }
}

/* Every sample has its chance to come first, and a buffer of n delays none by... more than it. */
TEST(test_shuffle_reaches_all)
{
    struct dataset *ds = open_shards(1000, true);
    bool first[SHARDS * 100] = {false};
    int64_t got = -1;
    int seen = 0;

    for (uint64_t epoch = 0; epoch < 600; epoch++) {
        struct replica_params params = replica(epoch, 0, 1, 0, 1);
        struct dataset_iter *it = must_iterate(ds, &params);
        assert_int_equal(drain(it, &got, 1), 1);
        it->ops->close(it);
        assert_in_range(got, 0, ARRAY_SIZE(first) - 1);
        seen += !first[got];
        first[got] = true;
    }
    assert_int_equal(seen, SAMPLES);
    dataset_close(ds);
}

static int pass_over(struct dataset_iter *it, uint64_t n)
{
    uint64_t passed = UINT64_MAX;
    int r = it->ops->skip(it, n, &passed);

    assert_true(r == DATASET_END ? passed < n : passed == n);
    return r;
}

/* What skip() passes over is what next() would have given. */
TEST(test_skip)
{
    static const uint64_t shuffles[] = {0, 1, 4, 100};

    for (size_t i = 0; i < ARRAY_SIZE(shuffles); i++) {
        struct dataset *ds = open_shards(shuffles[i], true);
        for (uint64_t skipped = 0; skipped <= SAMPLES + 1; skipped++) {
            struct replica_params params = replica(7, skipped % 2, 2, 0, 1);
            int64_t all[MOST], rest[MOST];
            size_t n = pass(ds, &params, all);
            struct dataset_iter *it = must_iterate(ds, &params);

            assert_int_equal(pass_over(it, skipped / 2), skipped / 2 <= n ? 0 : DATASET_END);
            assert_int_equal(pass_over(it, 0), 0);
            uint64_t more = skipped - skipped / 2;
            assert_int_equal(pass_over(it, more), skipped <= n ? 0 : DATASET_END);
            size_t left = drain(it, rest, MOST);
            assert_int_equal(left, skipped <= n ? n - skipped : 0);
            if (left > 0)
                assert_memory_equal(rest, all + skipped, left * sizeof *rest);
            it->ops->close(it);
        }
        dataset_close(ds);
    }
}

/* Samples stay until their arena is cleared, whatever was closed before. */
TEST(test_samples_outlive_all)
{
    struct tar_file tar = tar_new();
    struct spec_file files[3];
    struct spec_dataset spec = {.kind = DATASET_TAR, .files = files, .n_files = 3, .shuffle = 2};
    struct arena arena = {0};
    struct sample samples[3] = {{.arena = &arena}, {.arena = &arena}, {.arena = &arena}};
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    tar_text(&tar, "a.txt", "hello");
    for (int i = 0; i < 3; i++)
        files[i] = (struct spec_file){
            .path = (char *)harness_file((char[]){(char)('x' + i), '\0'}, tar.data, tar.len)};
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), 0);
    struct replica_params params = replica(0, 0, 1, 0, 1);
    struct dataset_iter *it = must_iterate(ds, &params);
    for (int i = 0; i < 3; i++)
        assert_int_equal(it->ops->next(it, &samples[i], &err), 0);
    assert_int_equal(it->ops->next(it, &(struct sample){.arena = &arena}, &err), DATASET_END);
    it->ops->close(it);
    dataset_close(ds);
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(samples[i].data[2], "hello", 5);
        assert_memory_equal(samples[i].data[1], "a", 1);
        sample_deinit(&samples[i]);
    }
    arena_deinit(&arena);
    tar_free(&tar);
}

/* Bad samples, a damaged shard, one that vanished: errors in their places, and it goes on. */
TEST(test_errors_in_place)
{
    static const int64_t want[] = {1, -1, 2, -1, -1, 3};
    static const char *const says[] = {
        "not an integer", "its header at byte 1024 has a wrong checksum", "no such file"};
    struct spec_file files[4];
    struct spec_dataset spec = {.kind = DATASET_TAR,
                                .files = files,
                                .n_files = 4,
                                .decode = true,
                                .image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC}};
    struct replica_params params = replica(0, 0, 1, 0, 1);
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct tar_file tar = tar_new();
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    tar_text(&tar, "a.cls", "1");
    tar_text(&tar, "b.cls", "cat");
    tar_text(&tar, "c.cls", "2");
    files[0].path = (char *)harness_file("bad-sample", tar.data, tar.len);
    tar.data[(size_t)2 * TAR_BLOCK] ^= 1;
    files[1].path = (char *)harness_file("bad-header", tar.data, tar.len);
    files[2].path = (char *)harness_file("gone", tar.data, tar.len);
    tar.len = 0;
    tar_text(&tar, "d.cls", "3");
    files[3].path = (char *)harness_file("good", tar.data, tar.len);
    for (spec.shuffle = 0; spec.shuffle < 3; spec.shuffle += 2) {
        int64_t got[MOST];
        size_t n, bad = 0, good = 0;
        harness_file("gone", tar.data, tar.len);
        assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), 0);
        unlink(files[2].path);
        n = pass(ds, &params, got);
        assert_int_equal(n, ARRAY_SIZE(want));
        for (size_t i = 0; i < n; i++) {
            bad += got[i] == -1;
            good += got[i] > 0;
        }
        assert_int_equal(bad, 3);
        assert_int_equal(good, 3);
        if (spec.shuffle == 0)
            assert_memory_equal(got, want, sizeof want);
        /* skip() counts them too. */
        struct dataset_iter *it = must_iterate(ds, &params);
        assert_int_equal(pass_over(it, 6), 0);
        assert_int_equal(pass_over(it, 1), DATASET_END);
        it->ops->close(it);
        if (spec.shuffle == 0) {
            it = must_iterate(ds, &params);
            for (size_t i = 0, k = 0; i < n; i++) {
                int r = it->ops->next(it, &sample, &err);
                assert_int_equal(r < 0, want[i] < 0);
                if (r < 0) {
                    assert_string_equal(err.path, files[k].path);
                    assert_error_has(&err, says[k++]);
                }
                sample_clear(&sample);
            }
            it->ops->close(it);
        }
        dataset_close(ds);
    }
    sample_deinit(&sample);
    arena_deinit(&arena);
    tar_free(&tar);
}

TEST(test_refusals)
{
    static const struct {
        const char *data;
        size_t len;
        const char *want;
    } rows[] = {
        {"BZh9", 4, "c: is compressed by bzip2; unpack it, so that its members can be read..."},
        {"\xFD\x37zXZ\0", 6, "c: is compressed by xz..."},
        {"\x28\xb5\x2f\xfd", 4, "c: is compressed by zstd..."}, /* the last: it may be built in */
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows) - compression_is_built_in(COMPRESSION_ZSTD); i++) {
        harness_file("c", rows[i].data, rows[i].len);
        expect_dataset("{kind: tar, paths: c}", rows[i].want);
    }
    expect_dataset("{kind: tar, paths: '/nonexistent/{0..3}.tar'}",
                   "ENOENT /nonexistent/0.tar: ...");
    expect_dataset("{kind: tar, paths: '/nonexistent/*.tar'}", "/nonexistent/*.tar: ...");
    expect_dataset("{kind: tar, paths: .}", "EISDIR ...");
}

/* Each allocation fails once; nothing leaks, and every failure is told. */
TEST(test_memory)
{
    dataset_close(open_shards(100, false));
    expect_failures_of("{kind: tar, paths: 'shard-{0..6}.tar', divide: false, shuffle: 100}",
                       SHARDS);
}
