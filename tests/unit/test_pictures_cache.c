/* Decoded pictures in shared memory: what is found is whole, even if processes die, and however
 * full it is.
 */
#include "daemon/cache/pictures_cache.h"
#include "tests/lib/harness.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static int make_arena(uint64_t bytes, uint64_t seed)
{
    int fd = memfd_create("test-pictures", MFD_CLOEXEC);
    void *base;

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(base != MAP_FAILED);
    pictures_arena_init(base, bytes, seed);
    munmap(base, bytes);
    return fd;
}

static void open_arena(struct pictures_cache *cache, uint64_t bytes)
{
    assert_int_equal(pictures_cache_open(cache, make_arena(bytes, 7), bytes), 0);
}

static struct pictures_key key_of(uint64_t number)
{
    return (struct pictures_key){.dev = 3, .ino = number, .bytes = 1000, .modified_ns = 5};
}

static void fill(uint8_t *pixels, size_t n, uint64_t number)
{
    for (size_t i = 0; i < n; i++)
        pixels[i] = (uint8_t)(number * 31 + i);
}

/* False: there is no room. */
static bool put(const struct pictures_cache *cache, uint64_t number, uint32_t height,
                uint32_t width)
{
    struct pictures_key key = key_of(number);
    struct pictures_room room;

    if (!pictures_cache_take(cache, &key, height, width, &room))
        return false;
    fill(room.pixels, (size_t)height * width * 3, number);
    return pictures_cache_publish(cache, &room);
}

static bool has(const struct pictures_cache *cache, uint64_t number, uint32_t height,
                uint32_t width)
{
    struct pictures_key key = key_of(number);
    struct pictures_entry entry;
    size_t n = (size_t)height * width * 3;

    if (!pictures_cache_find(cache, &key, &entry))
        return false;
    uint8_t *want = malloc(n);
    assert_non_null(want);
    fill(want, n, number);
    assert_int_equal(entry.height, height);
    assert_int_equal(entry.width, width);
    assert_memory_equal(entry.pixels, want, n);
    free(want);
    return true;
}

static struct pictures_counts counts_of(const struct pictures_cache *cache)
{
    struct pictures_counts counts;

    pictures_arena_counts(cache->arena, cache->bytes, &counts);
    return counts;
}

TEST(test_put_and_found)
{
    struct pictures_cache cache;

    open_arena(&cache, MIB);
    assert_false(has(&cache, 1, 10, 20));
    assert_true(put(&cache, 1, 10, 20));
    assert_true(put(&cache, 2, 33, 17));
    assert_true(has(&cache, 1, 10, 20));
    assert_true(has(&cache, 2, 33, 17));
    assert_false(has(&cache, 3, 10, 20));
    assert_int_equal(counts_of(&cache).pictures, 2);
    assert_int_equal(counts_of(&cache).hits, 2);
    assert_int_equal(counts_of(&cache).misses, 2);
    pictures_cache_close(&cache);
    pictures_cache_close(&cache);
}

/* Each part of what stat() says. */
TEST(test_a_file_that_changed_is_another)
{
    struct pictures_key keys[] = {key_of(1), key_of(1), key_of(1), key_of(1), key_of(1)};
    struct pictures_cache cache;
    struct pictures_entry entry;

    keys[0].dev++;
    keys[1].ino++;
    keys[2].bytes++;
    keys[3].modified_ns++;
    keys[4].changed_ns++;
    open_arena(&cache, MIB);
    assert_true(put(&cache, 1, 10, 20));
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        assert_false(pictures_cache_find(&cache, &keys[i], &entry));
    pictures_cache_close(&cache);
}

TEST(test_of_two_who_put_one_the_first_wins)
{
    struct pictures_cache cache;
    struct pictures_room one, other;
    struct pictures_key key = key_of(1);

    open_arena(&cache, MIB);
    assert_true(pictures_cache_take(&cache, &key, 10, 20, &one));
    uint64_t used = counts_of(&cache).used_bytes;
    assert_true(pictures_cache_take(&cache, &key, 10, 20, &other));
    fill(one.pixels, 600, 1);
    fill(other.pixels, 600, 1);
    assert_true(pictures_cache_publish(&cache, &one));
    assert_false(pictures_cache_publish(&cache, &other));
    assert_int_equal(counts_of(&cache).used_bytes, used); /* it gave its room back */
    assert_int_equal(counts_of(&cache).pictures, 1);
    assert_true(has(&cache, 1, 10, 20));
    pictures_cache_close(&cache);
}

/* In another process, between take() and publish(). */
TEST(test_a_writer_who_dies)
{
    struct pictures_cache cache;
    struct pictures_key key = key_of(1);
    int status;

    open_arena(&cache, MIB);
    pid_t pid = fork();
    if (pid == 0) {
        struct pictures_room room;
        if (pictures_cache_take(&cache, &key, 100, 100, &room))
            memset(room.pixels, 0xee, 10000);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(counts_of(&cache).used_bytes > 30000); /* its room is lost */
    assert_false(has(&cache, 1, 100, 100));
    assert_true(put(&cache, 1, 100, 100));
    assert_true(has(&cache, 1, 100, 100));
    pictures_cache_close(&cache);
}

TEST(test_full)
{
    struct pictures_cache cache;
    uint64_t n = 0;

    open_arena(&cache, MIB);
    while (put(&cache, n, 100, 100))
        n++;
    assert_true(n >= 33 && n <= 34); /* of 30064 bytes each, beside an index of 8 KiB */
    assert_false(put(&cache, n, 100, 100));
    assert_true(put(&cache, n, 1, 1)); /* one that fits, still */
    assert_false(put(&cache, n + 1, UINT32_MAX, UINT32_MAX / 3));
    for (uint64_t i = 0; i < n; i++)
        assert_true(has(&cache, i, 100, 100));
    assert_true(counts_of(&cache).used_bytes <= MIB);
    pictures_cache_close(&cache);
}

/* More pictures than the index has places: what does not get in is refused, and the rest is found.
 */
TEST(test_a_full_index)
{
    struct pictures_cache cache;
    uint64_t in = 0;

    open_arena(&cache, MIB);
    for (uint64_t i = 0; i < 4096; i++)
        in += put(&cache, i, 1, 1);
    assert_int_equal(counts_of(&cache).pictures, in);
    assert_true(in <= 1024 && in > 900);
    uint64_t found = 0;
    for (uint64_t i = 0; i < 4096; i++)
        found += has(&cache, i, 1, 1);
    assert_int_equal(found, in);
    pictures_cache_close(&cache);
}

/* Of a folder that is twice the arena half is kept, evenly in any order; of a small one all is. */
TEST(test_the_draw)
{
    static const struct {
        uint64_t files;
        double least, most;
    } rows[] = {{32, 1, 1}, {330, 0.08, 0.12}, {3300, 0.008, 0.012}, {66, 0.4, 0.6}};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct pictures_cache cache;
        uint64_t wanted = 0, first_half = 0, n = 20000;

        open_arena(&cache, MIB);
        for (uint64_t k = 0; k < n; k++) {
            struct pictures_key key = key_of(k);
            bool wants = pictures_cache_wants(&cache, &key, 100, 100, rows[i].files);
            wanted += wants;
            first_half += wants && k < n / 2;
        }
        double share = (double)wanted / (double)n;
        assert_true(share >= rows[i].least && share <= rows[i].most);
        double even = (double)first_half / (double)wanted;
        assert_true(even > 0.4 && even < 0.6);
        pictures_cache_close(&cache);
    }
}

/* Other workers write here: numbers that cannot be are no reason to read or write beside it. */
TEST(test_hostile_memory)
{
    uint64_t draw = 88172645463325252U;

    for (unsigned round = 0; round < 200; round++) {
        struct pictures_cache cache;
        int fd = make_arena(MIB, 7), copy = dup(fd);

        assert_int_equal(pictures_cache_open(&cache, fd, MIB), 0);
        assert_true(put(&cache, 1, 10, 20));
        uint64_t *words = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, copy, 0);
        assert_true(words != MAP_FAILED);
        for (size_t i = 0; i < MIB / sizeof *words; i++) {
            draw ^= draw << 13, draw ^= draw >> 7, draw ^= draw << 17;
            if (round % 2 == 0 || draw % 7 == 0)
                words[i] = round % 4 < 2 ? draw : draw >> 40;
        }
        for (uint64_t k = 0; k < 50; k++) {
            struct pictures_key key = key_of(k);
            struct pictures_entry entry;
            if (pictures_cache_find(&cache, &key, &entry))
                assert_true(entry.pixels + (uint64_t)entry.height * entry.width * 3 <=
                            (const uint8_t *)cache.arena + MIB);
            (void)!pictures_cache_wants(&cache, &key, 10, 20, 100);
            (void)put(&cache, k, 10, 20);
        }
        munmap(words, MIB);
        close(copy);
        pictures_cache_close(&cache);
    }
}

TEST(test_what_is_no_arena)
{
    struct pictures_cache cache;
    int empty = memfd_create("test-pictures", MFD_CLOEXEC);

    assert_int_equal(ftruncate(empty, MIB), 0);
    assert_int_equal(pictures_cache_open(&cache, empty, MIB), -EPROTO);
    assert_int_equal(pictures_cache_open(&cache, make_arena(MIB, 7), 2 * MIB), -EPROTO);
    assert_int_equal(pictures_cache_open(&cache, make_arena(MIB, 7), 64), -EPROTO);
    assert_int_equal(pictures_cache_open(&cache, -1, MIB), -EPROTO);
    assert_null(cache.arena);
}
