/*
 * Ids of texts in shared memory: what is found is what was put, however full it is, and whatever
 * other processes write there.
 */
#include "daemon/cache/ids_cache.h"
#include "tests/lib/harness.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, SMALL = IDS_CACHE_LEAST, MOST_IDS = 400 };

static int make_arena(uint64_t bytes)
{
    int fd = memfd_create("test-ids", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(base != MAP_FAILED);
    ids_arena_init(base, bytes);
    munmap(base, bytes);
    return fd;
}

static void open_arena(struct ids_cache *cache, uint64_t bytes)
{
    assert_int_equal(ids_cache_open(cache, make_arena(bytes), bytes), 0);
}

static struct ids_counts counts_of(const struct ids_cache *cache)
{
    struct ids_counts counts;

    ids_arena_counts(cache->arena, cache->bytes, &counts);
    return counts;
}

/* The ids of text `number`; every third has some above 65,535. */
static size_t ids_of(uint32_t number, uint32_t ids[static MOST_IDS])
{
    size_t n = number * 7 % MOST_IDS;

    for (size_t i = 0; i < n; i++)
        ids[i] = number * 31 % 1000 + (uint32_t)i + (number % 3 == 0 && i % 5 == 4 ? 1 << 17 : 0);
    return n;
}

static struct ids_key key_of(uint32_t number)
{
    return ids_key_of(5, &number, sizeof number);
}

static void put(struct ids_cache *cache, uint32_t number)
{
    uint32_t ids[MOST_IDS];
    struct ids_key key = key_of(number);
    size_t n = ids_of(number, ids);

    ids_cache_put(cache, &key, ids, n);
}

/* What is found is always right. */
static bool has(struct ids_cache *cache, uint32_t number)
{
    uint32_t want[MOST_IDS];
    const uint32_t *ids;
    struct ids_key key = key_of(number);
    size_t n, n_want = ids_of(number, want);

    if (!ids_cache_find(cache, &key, &ids, &n))
        return false;
    assert_int_equal(n, n_want);
    assert_memory_equal(ids, want, n * sizeof *ids);
    return true;
}

TEST(test_what_was_put_is_found)
{
    struct ids_cache cache;

    open_arena(&cache, MIB);
    for (uint32_t i = 0; i < 500; i++) {
        assert_false(has(&cache, i));
        put(&cache, i);
        assert_true(has(&cache, i));
    }
    for (uint32_t i = 0; i < 500; i++)
        assert_true(has(&cache, i));
    struct ids_counts counts = counts_of(&cache);
    assert_int_equal(counts.texts, 500);
    assert_int_equal(counts.hits, 1000);
    assert_int_equal(counts.misses, 500);
    assert_in_range(counts.used_bytes, MIB / 4, MIB);
    ids_cache_close(&cache);
}

/* What makes the ids is part of the key. */
TEST(test_another_tokenizer)
{
    uint32_t number = 3;
    struct ids_key a = ids_key_of(5, &number, sizeof number),
                   b = ids_key_of(6, &number, sizeof number);

    assert_true(a.low != b.low && a.high != b.high);
}

/* Most of a full arena stays, however much goes through; of the rest, what came last is there. */
TEST(test_a_full_arena)
{
    enum { STAY = 800, MANY = 40000, LATELY = 100 }; /* a record has some 560 bytes */
    struct ids_cache cache;
    unsigned stayed = 0, lately = 0, looked = 0;

    open_arena(&cache, MIB);
    for (uint32_t i = 0; i < MANY; i++) {
        put(&cache, i);
        for (uint32_t k = i - LATELY; i % 997 == 996 && k < i; k++, looked++)
            lately += has(&cache, k);
    }
    for (uint32_t i = 0; i < STAY; i++)
        stayed += has(&cache, i);
    assert_int_equal(counts_of(&cache).used_bytes, MIB);
    assert_in_range(stayed, STAY * 99 / 100, STAY);
    assert_in_range(lately, looked * 99 / 100, looked);
    ids_cache_close(&cache);
}

/* A text of more ids than half the ring is left out; others still get in. */
TEST(test_what_is_too_large)
{
    enum { LARGE = SMALL / 4 };
    static uint32_t ids[LARGE];
    struct ids_key key = key_of(1);
    const uint32_t *found;
    struct ids_cache cache;
    size_t n;

    open_arena(&cache, SMALL);
    ids_cache_put(&cache, &key, ids, LARGE);
    assert_false(ids_cache_find(&cache, &key, &found, &n));
    put(&cache, 2);
    assert_true(has(&cache, 2));
    ids_cache_close(&cache);
}

/* Several processes fill it at once, and each finds what others have put. */
TEST(test_processes)
{
    enum { PROCESSES = 4, EACH = 2000 };
    int fd = make_arena(MIB);

    for (int p = 0; p < PROCESSES; p++) {
        if (fork() > 0)
            continue;
        struct ids_cache cache;
        assert_int_equal(ids_cache_open(&cache, dup(fd), MIB), 0);
        for (uint32_t i = 0; i < EACH; i++)
            if (!has(&cache, i))
                put(&cache, i);
        _exit(0);
    }
    for (int p = 0; p < PROCESSES; p++) {
        int status;

        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    struct ids_cache cache;
    assert_int_equal(ids_cache_open(&cache, fd, MIB), 0);
    for (uint32_t i = EACH - 20; i < EACH; i++)
        assert_true(has(&cache, i));
    ids_cache_close(&cache);
}

/* Whatever stands in it, nothing wrong is found, and nothing outside is read. */
TEST(test_nonsense)
{
    struct ids_cache cache;
    uint64_t seed = 9;

    open_arena(&cache, SMALL);
    for (uint32_t round = 0; round < 300; round++) {
        uint8_t *bytes = (uint8_t *)cache.arena;

        for (uint32_t i = 0; i < 40; i++)
            put(&cache, round * 40 + i);
        for (uint32_t i = 0; i < 2000;
             i++) { /* behind the magic number, the version and the size */
            seed = seed * UINT64_C(6364136223846793005) + 1;
            bytes[24 + (seed >> 33) % (SMALL - 24)] = (uint8_t)(seed >> 20);
        }
        for (uint32_t i = 0; i < 40; i++)
            (void)has(&cache, round * 40 + i);
    }
    ids_cache_close(&cache);
}

TEST(test_refusals)
{
    struct ids_cache cache;
    static const uint64_t sizes[] = {0, SMALL - 16, SMALL + 8, 2 * SMALL, IDS_CACHE_MOST + 16};

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        assert_int_equal(ids_cache_open(&cache, make_arena(SMALL), sizes[i]), -EPROTO);
        assert_null(cache.arena);
        ids_cache_close(&cache);
    }
    int fd = memfd_create("test-ids", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, SMALL), 0);
    assert_int_equal(ids_cache_open(&cache, fd, SMALL), -EPROTO);
    assert_int_equal(ids_cache_open(&cache, -1, SMALL), -EPROTO);
}
