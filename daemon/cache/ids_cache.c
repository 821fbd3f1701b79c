#include "daemon/cache/ids_cache.h"

#include "proto/common/array.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    IDS_UNIT = 16,            /* records begin at multiples of it */
    IDS_BYTES_A_PLACE = 256,  /* of the arena for each place in the index */
    IDS_SET = 8,              /* places of the index that a text may have: one line of a cache */
    IDS_TAG_BITS = 24,        /* of its hash, in its place; above them the record's unit */
    IDS_RING_SHARE = 4,       /* of the room for records, a part is the ring */
    IDS_TRIES = 4,            /* to get room that does not lie across an end */
    IDS_STRETCH = 256 * 1024, /* allocated at once */
    IDS_ARENA_VERSION = 1,    /* of this layout */
};

#define IDS_ARENA_MAGIC UINT64_C(0x69647361)

struct ids_arena {
    uint64_t magic;
    uint64_t version;
    uint64_t bytes;
    char before_taken[64 - 3 * sizeof(uint64_t)];
    uint64_t taken; /* bytes of records, ever */
    char before_counts[64 - sizeof(uint64_t)];
    uint64_t texts;
    uint64_t hits;
    uint64_t misses;
    char behind_counts[64 - 3 * sizeof(uint64_t)];
    uint64_t index[]; /* 0: free; else unit << IDS_TAG_BITS | tag */
};

struct ids_record {
    struct ids_key key;
    uint64_t check; /* of the key, the two numbers below, and the ids */
    uint32_t n;
    uint32_t width; /* bytes of an id: 2 or 4 */
};

static_assert(sizeof(struct ids_arena) == 192, "the index begins at a line of its own");
static_assert(sizeof(struct ids_record) % IDS_UNIT == 0, "ids begin at a unit");
static_assert(IDS_CACHE_MOST / IDS_UNIT < UINT64_C(1) << (64 - IDS_TAG_BITS), "a place has room");

/* ---- the layout, which follows from the size: no number of the arena is trusted -------------- */

struct ids_room {
    uint64_t sets;  /* of the index */
    uint64_t first; /* where records begin */
    uint64_t ring;  /* where the ring does, up to the arena's end */
};

static struct ids_room ids_room_of(uint64_t bytes)
{
    uint64_t sets = bytes / IDS_BYTES_A_PLACE / IDS_SET;
    uint64_t first = sizeof(struct ids_arena) + sets * IDS_SET * sizeof(uint64_t);
    uint64_t ring = (bytes - first) / IDS_RING_SHARE / IDS_UNIT * IDS_UNIT;

    return (struct ids_room){.sets = sets, .first = first, .ring = bytes - ring};
}

static uint64_t ids_get(const uint64_t *count)
{
    return __atomic_load_n(count, __ATOMIC_RELAXED);
}

void ids_arena_init(void *base, uint64_t bytes)
{
    struct ids_arena *arena = base;

    assert(bytes >= IDS_CACHE_LEAST && bytes <= IDS_CACHE_MOST && bytes % IDS_UNIT == 0);
    arena->magic = IDS_ARENA_MAGIC;
    arena->version = IDS_ARENA_VERSION;
    arena->bytes = bytes;
}

uint64_t ids_arena_header(void)
{
    return sizeof(struct ids_arena);
}

void ids_arena_counts(const void *base, uint64_t bytes, struct ids_counts *ret)
{
    const struct ids_arena *arena = base;
    uint64_t first = ids_room_of(bytes).first, taken = ids_get(&arena->taken);

    *ret = (struct ids_counts){
        .used_bytes = first + min_u64(taken, bytes - first),
        .texts = ids_get(&arena->texts),
        .hits = ids_get(&arena->hits),
        .misses = ids_get(&arena->misses),
    };
}

/* ---- a process's view ------------------------------------------------------------------------ */

static bool ids_arena_is_sound(const struct ids_arena *arena, uint64_t bytes)
{
    return arena->magic == IDS_ARENA_MAGIC && arena->version == IDS_ARENA_VERSION &&
           arena->bytes == bytes;
}

int ids_cache_open(struct ids_cache *cache, int fd, uint64_t bytes)
{
    struct stat st;
    void *base = MAP_FAILED;
    int r = -EPROTO;

    *cache =
        (struct ids_cache){.allocated = calloc(bytes / IDS_STRETCH / 64 + 1, sizeof(uint64_t))};
    if (fd < 0 || bytes < IDS_CACHE_LEAST || bytes > IDS_CACHE_MOST || bytes % IDS_UNIT != 0)
        goto refused;
    /* Shorter than it claims, it would kill its reader by SIGBUS. */
    if (fstat(fd, &st) < 0 || (uint64_t)st.st_size != bytes)
        goto refused;
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED || !cache->allocated) {
        r = -ENOMEM;
        goto refused;
    }
    if (!ids_arena_is_sound(base, bytes))
        goto refused;
    cache->arena = base;
    cache->fd = fd;
    cache->bytes = bytes;
    return 0;

refused:
    if (base != MAP_FAILED)
        munmap(base, bytes);
    free(cache->allocated);
    *cache = (struct ids_cache){0};
    close_fdp(&fd);
    return r;
}

void ids_cache_close(struct ids_cache *cache)
{
    if (cache->arena) {
        munmap(cache->arena, cache->bytes);
        close_fdp(&cache->fd);
    }
    free(cache->allocated);
    free(cache->ids);
    *cache = (struct ids_cache){0};
}

struct ids_key ids_key_of(uint64_t maker, const void *text, size_t n)
{
    XXH128_hash_t hash = XXH3_128bits_withSeed(text, n, maker);

    return (struct ids_key){hash.low64, hash.high64};
}

/* The places that a text may have in the index. */
static uint64_t *ids_set_of(const struct ids_cache *cache, const struct ids_key *key)
{
    return &cache->arena->index[key->low % ids_room_of(cache->bytes).sets * IDS_SET];
}

static uint64_t ids_tag(const struct ids_key *key)
{
    return key->high & ((UINT64_C(1) << IDS_TAG_BITS) - 1);
}

static uint64_t ids_check(const struct ids_record *head, const void *ids)
{
    uint64_t seed = head->key.low ^ head->key.high ^ ((uint64_t)head->width << 32 | head->n);

    return XXH3_64bits_withSeed(ids, (uint64_t)head->n * head->width, seed);
}

/* ---- finding --------------------------------------------------------------------------------- */

/* Ids of two bytes lie in the first half: the last ones first, none is overwritten unread. */
static void ids_widen(uint32_t *ids, size_t n)
{
    uint16_t narrow;

    for (size_t i = n; i-- > 0;) {
        memcpy(&narrow, (const char *)ids + i * sizeof narrow, sizeof narrow);
        ids[i] = narrow;
    }
}

/* The record that lies at `at` is that text's, and whole: its ids are copied. */
static bool ids_cache_read(struct ids_cache *cache, const struct ids_key *key, uint64_t at,
                           size_t *ret_n)
{
    const char *base = (const char *)cache->arena;
    struct ids_record head;

    if (at < ids_room_of(cache->bytes).first || at > cache->bytes - sizeof head)
        return false;
    memcpy(&head, base + at, sizeof head);
    uint64_t rest = cache->bytes - at - sizeof head, bytes = (uint64_t)head.n * head.width;
    if (head.key.low != key->low || head.key.high != key->high ||
        (head.width != sizeof(uint16_t) && head.width != sizeof(uint32_t)) || bytes > rest ||
        !array_reserve(cache->ids, cache->ids_room, max_u64(head.n, 1)))
        return false;
    memcpy(cache->ids, base + at + sizeof head, bytes);
    if (ids_check(&head, cache->ids) != head.check)
        return false;
    if (head.width == sizeof(uint16_t))
        ids_widen(cache->ids, head.n);
    *ret_n = head.n;
    return true;
}

bool ids_cache_find(struct ids_cache *cache, const struct ids_key *key, const uint32_t **ret,
                    size_t *ret_n)
{
    const uint64_t *set = ids_set_of(cache, key);
    uint64_t mask = (UINT64_C(1) << IDS_TAG_BITS) - 1;

    for (size_t i = 0; i < IDS_SET; i++) {
        uint64_t word = ids_get(&set[i]);

        if (word != 0 && (word & mask) == ids_tag(key) &&
            ids_cache_read(cache, key, (word >> IDS_TAG_BITS) * IDS_UNIT, ret_n)) {
            *ret = cache->ids;
            (void)__atomic_fetch_add(&cache->arena->hits, 1, __ATOMIC_RELAXED);
            return true;
        }
    }
    (void)__atomic_fetch_add(&cache->arena->misses, 1, __ATOMIC_RELAXED);
    return false;
}

/* ---- keeping --------------------------------------------------------------------------------- */

/* A place for a record; false: there was none, in a few tries. */
static bool ids_take(const struct ids_cache *cache, uint64_t bytes, uint64_t *ret)
{
    const struct ids_room room = ids_room_of(cache->bytes);
    uint64_t stays = room.ring - room.first, ring = cache->bytes - room.ring;

    for (int i = 0; i < IDS_TRIES && bytes <= ring / 2; i++) {
        uint64_t taken = __atomic_fetch_add(&cache->arena->taken, bytes, __ATOMIC_RELAXED);

        if (taken % IDS_UNIT != 0) /* another process wrote nonsense */
            return false;
        *ret = taken < stays ? room.first + taken : room.ring + (taken - stays) % ring;
        if (*ret + bytes <= (taken < stays ? room.ring : cache->bytes))
            return true;
    }
    return false;
}

/* Touched without it, a page that the system does not have would be SIGBUS. */
static bool ids_allocate(struct ids_cache *cache, uint64_t from, uint64_t end)
{
    for (uint64_t i = from / IDS_STRETCH; i <= (end - 1) / IDS_STRETCH; i++) {
        uint64_t bit = UINT64_C(1) << i % 64, at = i * IDS_STRETCH;

        if (cache->allocated[i / 64] & bit)
            continue;
        if (fallocate(cache->fd, FALLOC_FL_KEEP_SIZE, (off_t)at,
                      (off_t)min_u64(IDS_STRETCH, cache->bytes - at)) < 0)
            return false;
        cache->allocated[i / 64] |= bit;
    }
    return true;
}

/* A free place, or the oldest of the ring; IDS_SET: all are of records that stay. */
static size_t ids_choose(const struct ids_cache *cache, const uint64_t *set, uint64_t at)
{
    uint64_t ring = ids_room_of(cache->bytes).ring, turn = cache->bytes - ring, oldest = 0;
    size_t place = IDS_SET;

    for (size_t i = 0; i < IDS_SET; i++) {
        uint64_t word = ids_get(&set[i]), other = (word >> IDS_TAG_BITS) * IDS_UNIT;

        if (word == 0)
            return i;
        uint64_t age = other < ring ? 0 : (at + turn - other) % turn + 1;
        if (age > oldest) {
            oldest = age;
            place = i;
        }
    }
    return place;
}

static void ids_publish(const struct ids_cache *cache, const struct ids_key *key, uint64_t at)
{
    uint64_t *set = ids_set_of(cache, key);
    size_t place = ids_choose(cache, set, at);

    if (place == IDS_SET)
        return;
    /* Relaxed: whether a record is whole its checksum says. Of two who choose one place, one text
     * is not found. */
    __atomic_store_n(&set[place], at / IDS_UNIT << IDS_TAG_BITS | ids_tag(key), __ATOMIC_RELAXED);
    (void)__atomic_fetch_add(&cache->arena->texts, 1, __ATOMIC_RELAXED);
}

static uint32_t ids_width(const uint32_t *ids, size_t n)
{
    uint32_t all = 0;

    for (size_t i = 0; i < n; i++)
        all |= ids[i];
    return all > UINT16_MAX ? sizeof(uint32_t) : sizeof(uint16_t);
}

static void ids_write(char *out, const uint32_t *ids, size_t n, uint32_t width)
{
    if (width == sizeof *ids) {
        memcpy(out, ids, n * sizeof *ids);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t narrow = (uint16_t)ids[i];

        memcpy(out + i * sizeof narrow, &narrow, sizeof narrow);
    }
}

void ids_cache_put(struct ids_cache *cache, const struct ids_key *key, const uint32_t *ids,
                   size_t n)
{
    struct ids_record head = {.key = *key, .n = (uint32_t)n, .width = ids_width(ids, n)};
    uint64_t bytes, at;

    if (n > UINT32_MAX)
        return;
    assert(n == 0 || ids != cache->ids);
    bytes = align_up(sizeof head + n * head.width, IDS_UNIT);
    if (!array_reserve(cache->ids, cache->ids_room, max_u64(n, 1)) ||
        !ids_take(cache, bytes, &at) || !ids_allocate(cache, at, at + bytes))
        return;
    /* The checksum is of these, not of what lies there: a writer that the kernel kept waiting for a
     * whole turn of the ring shares the place with another one. */
    ids_write((char *)cache->ids, ids, n, head.width);
    head.check = ids_check(&head, cache->ids);
    char *out = (char *)cache->arena + at;
    memcpy(out + sizeof head, cache->ids, n * head.width);
    memcpy(out, &head, sizeof head);
    ids_publish(cache, key, at);
}
