#include "daemon/cache/pictures_cache.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    UNIT = 64,            /* records begin at multiples of it */
    BYTES_A_PLACE = 1024, /* of the arena for each place in the index */
    PROBES = 128,         /* places that are looked at for one picture */
    TAG_BITS = 24,        /* of its hash, in its place; above them the record's unit */
    ARENA_VERSION = 2,    /* of this layout */
    PAGE = 4096,          /* or more: only to allocate with few calls */
};

#define ARENA_MAGIC UINT64_C(0x7069637475726573)

struct pictures_arena {
    uint64_t magic;
    uint64_t version;
    uint64_t bytes;
    uint64_t seed;
    uint64_t places; /* of the index, behind this header */
    uint64_t first;  /* where records begin */
    char before_tail[UNIT - 6 * sizeof(uint64_t) % UNIT];
    uint64_t tail; /* where the next record goes; may be above `bytes`, by who is refused */
    char before_counts[UNIT - sizeof(uint64_t)];
    uint64_t pictures;
    uint64_t hits;
    uint64_t misses;
    uint64_t seen;       /* pictures that were decoded, */
    uint64_t seen_bytes; /* and their records' bytes */
    char behind_counts[UNIT - 5 * sizeof(uint64_t) % UNIT];
    uint64_t index[]; /* 0: free; else unit << TAG_BITS | tag */
};

struct pictures_record {
    struct pictures_key key;
    uint32_t height;
    uint32_t width;
    char unused[UNIT - sizeof(struct pictures_key) - 2 * sizeof(uint32_t)];
    uint8_t pixels[];
};

static_assert(sizeof(struct pictures_record) == UNIT, "pixels begin at a unit of their own");
static_assert(sizeof(struct pictures_arena) % UNIT == 0, "so does the index");
static_assert(PICTURES_CACHE_MOST / UNIT < UINT64_C(1) << (64 - TAG_BITS), "a place has room");

static uint64_t pictures_get(const uint64_t *count)
{
    return __atomic_load_n(count, __ATOMIC_RELAXED);
}

/* ---- the arena ------------------------------------------------------------------------------ */

void pictures_arena_init(void *base, uint64_t bytes, uint64_t seed)
{
    struct pictures_arena *arena = base;
    uint64_t places = bytes / BYTES_A_PLACE;

    assert(bytes >= PICTURES_CACHE_LEAST && bytes <= PICTURES_CACHE_MOST);
    arena->magic = ARENA_MAGIC;
    arena->version = ARENA_VERSION;
    arena->bytes = bytes;
    arena->seed = seed;
    arena->places = places;
    arena->first = align_up(sizeof *arena + places * sizeof arena->index[0], UNIT);
    arena->tail = arena->first;
}

uint64_t pictures_arena_header(void)
{
    return sizeof(struct pictures_arena);
}

void pictures_arena_counts(const void *base, uint64_t bytes, struct pictures_counts *ret)
{
    const struct pictures_arena *arena = base;

    *ret = (struct pictures_counts){
        .used_bytes = min_u64(pictures_get(&arena->tail), bytes),
        .pictures = pictures_get(&arena->pictures),
        .hits = pictures_get(&arena->hits),
        .misses = pictures_get(&arena->misses),
    };
}

/* Whether it is what pictures_arena_init() makes of that many bytes: no number of it is trusted
 * later. */
static bool pictures_arena_is_sound(const struct pictures_arena *arena, uint64_t bytes)
{
    return arena->magic == ARENA_MAGIC && arena->version == ARENA_VERSION &&
           arena->bytes == bytes && arena->places == bytes / BYTES_A_PLACE &&
           arena->first == align_up(sizeof *arena + arena->places * sizeof arena->index[0], UNIT);
}

static uint64_t pictures_first(const struct pictures_cache *cache)
{
    return align_up(sizeof *cache->arena + cache->bytes / BYTES_A_PLACE * sizeof(uint64_t), UNIT);
}

int pictures_cache_open(struct pictures_cache *cache, int fd, uint64_t bytes)
{
    struct stat st;
    void *base = MAP_FAILED;
    int r = -EPROTO;

    *cache = (struct pictures_cache){0};
    if (fd < 0 || bytes < PICTURES_CACHE_LEAST || bytes > PICTURES_CACHE_MOST)
        goto refused;
    /* Shorter than it claims, it would kill its reader by SIGBUS. */
    if (fstat(fd, &st) < 0 || (uint64_t)st.st_size != bytes)
        goto refused;
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        r = -errno;
        goto refused;
    }
    if (!pictures_arena_is_sound(base, bytes))
        goto refused;
    *cache = (struct pictures_cache){.arena = base, .fd = fd, .bytes = bytes};
    return 0;

refused:
    if (base != MAP_FAILED)
        munmap(base, bytes);
    close_fdp(&fd);
    return r;
}

void pictures_cache_close(struct pictures_cache *cache)
{
    if (cache->arena) {
        munmap(cache->arena, cache->bytes);
        close_fdp(&cache->fd);
    }
    *cache = (struct pictures_cache){0};
}

/* ---- pictures ------------------------------------------------------------------------------- */

static int64_t pictures_ns(const struct timespec *at)
{
    return (int64_t)((uint64_t)at->tv_sec * 1000000000U + (uint64_t)at->tv_nsec);
}

void pictures_key_of(const struct stat *st, struct pictures_key *ret)
{
    *ret = (struct pictures_key){.dev = (uint64_t)st->st_dev,
                                 .ino = (uint64_t)st->st_ino,
                                 .bytes = (uint64_t)st->st_size,
                                 .modified_ns = pictures_ns(&st->st_mtim),
                                 .changed_ns = pictures_ns(&st->st_ctim)};
}

static XXH128_hash_t pictures_hash(const struct pictures_cache *cache,
                                   const struct pictures_key *key)
{
    return XXH3_128bits_withSeed(key, sizeof *key, cache->arena->seed);
}

static uint64_t pictures_tag(XXH128_hash_t hash)
{
    return hash.high64 & ((UINT64_C(1) << TAG_BITS) - 1);
}

static uint64_t pictures_depth(const struct pictures_key *key)
{
    return key->part == 0 ? PICTURES_CACHE_COLOURS : 1;
}

/* Bytes of a record; height and width of what was decoded: no overflow. */
static uint64_t pictures_record_bytes(const struct pictures_key *key, uint32_t height,
                                      uint32_t width)
{
    return align_up(UNIT + (uint64_t)height * width * pictures_depth(key), UNIT);
}

/* What the place in the index says lies in the arena, and is the picture. */
static bool pictures_cache_read(const struct pictures_cache *cache, uint64_t word,
                                const struct pictures_key *key, struct pictures_entry *ret)
{
    uint64_t at = (word >> TAG_BITS) * UNIT;
    struct pictures_record record;

    if (at < pictures_first(cache) || at > cache->bytes - UNIT)
        return false;
    const struct pictures_record *in = (const void *)((const uint8_t *)cache->arena + at);
    memcpy(&record, in, sizeof record);
    if (memcmp(&record.key, key, sizeof *key) != 0 || record.height == 0 || record.width == 0 ||
        (uint64_t)record.height * record.width > (cache->bytes - at - UNIT) / pictures_depth(key))
        return false;
    *ret = (struct pictures_entry){record.height, record.width, in->pixels};
    return true;
}

/*
 * Looks for the picture, up to a place that is free, whose number is *ret_free; `places`: all that
 * it may be in are taken.
 */
static bool pictures_look(const struct pictures_cache *cache, const struct pictures_key *key,
                          struct pictures_entry *ret, uint64_t *ret_free)
{
    XXH128_hash_t hash = pictures_hash(cache, key);
    uint64_t places = cache->bytes / BYTES_A_PLACE, tag = pictures_tag(hash);
    uint64_t mask = (UINT64_C(1) << TAG_BITS) - 1;

    *ret_free = places;
    for (uint64_t i = 0; i < PROBES; i++) {
        uint64_t place = (hash.low64 % places + i) % places;
        uint64_t word = __atomic_load_n(&cache->arena->index[place], __ATOMIC_ACQUIRE);
        if (word == 0) {
            *ret_free = place;
            return false;
        }
        if ((word & mask) == tag && pictures_cache_read(cache, word, key, ret))
            return true;
    }
    return false;
}

bool pictures_cache_look(const struct pictures_cache *cache, const struct pictures_key *key,
                         struct pictures_entry *ret)
{
    uint64_t place;

    return pictures_look(cache, key, ret, &place);
}

bool pictures_cache_find(const struct pictures_cache *cache, const struct pictures_key *key,
                         struct pictures_entry *ret)
{
    bool found = pictures_cache_look(cache, key, ret);

    (void)__atomic_fetch_add(found ? &cache->arena->hits : &cache->arena->misses, 1,
                             __ATOMIC_RELAXED);
    return found;
}

bool pictures_cache_wants(const struct pictures_cache *cache, const struct pictures_key *key,
                          uint32_t height, uint32_t width, uint64_t files)
{
    struct pictures_arena *arena = cache->arena;
    uint64_t bytes = pictures_record_bytes(key, height, width);
    uint64_t seen = __atomic_add_fetch(&arena->seen, 1, __ATOMIC_RELAXED);
    uint64_t all = __atomic_add_fetch(&arena->seen_bytes, bytes, __ATOMIC_RELAXED);
    double room = (double)(cache->bytes - pictures_first(cache));
    double share = room / ((double)all / (double)seen * (double)max_u64(files, 1));
    double drawn = (double)(pictures_hash(cache, key).high64 >> TAG_BITS) /
                   (double)(UINT64_C(1) << (64 - TAG_BITS));

    if (bytes > cache->bytes || pictures_get(&arena->tail) > cache->bytes - bytes)
        return false;
    return drawn < share;
}

/* A place at the end of the records; false, and nothing taken: no place is left. */
static bool pictures_take_place(const struct pictures_cache *cache, uint64_t bytes,
                                struct pictures_room *ret)
{
    uint64_t *tail = &cache->arena->tail;
    uint64_t at = __atomic_load_n(tail, __ATOMIC_RELAXED);

    do {
        if (at < pictures_first(cache) || at % UNIT != 0 || bytes > cache->bytes ||
            at > cache->bytes - bytes)
            return false;
        /* Acquire: the process that gave this room back has written to it for the last time. */
    } while (!__atomic_compare_exchange_n(tail, &at, at + bytes, true, __ATOMIC_ACQUIRE,
                                          __ATOMIC_RELAXED));
    *ret = (struct pictures_room){.place = at, .end = at + bytes};
    return true;
}

bool pictures_cache_take(const struct pictures_cache *cache, const struct pictures_key *key,
                         uint32_t height, uint32_t width, struct pictures_room *ret)
{
    if (!pictures_take_place(cache, pictures_record_bytes(key, height, width), ret))
        return false;
    uint64_t from = ret->place / PAGE * PAGE;
    /* Touched without it, a page that the system does not have would be SIGBUS. */
    if (fallocate(cache->fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(ret->end - from)) < 0) {
        pictures_cache_drop(cache, ret);
        return false;
    }
    struct pictures_record *record = (void *)((uint8_t *)cache->arena + ret->place);
    struct pictures_record head = {.key = *key, .height = height, .width = width};
    memcpy(record, &head, sizeof head);
    ret->pixels = record->pixels;
    return true;
}

void pictures_cache_drop(const struct pictures_cache *cache, const struct pictures_room *room)
{
    uint64_t end = room->end;

    /* Release: to the process that takes it next. */
    (void)__atomic_compare_exchange_n(&cache->arena->tail, &end, room->place, false,
                                      __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

bool pictures_cache_publish(const struct pictures_cache *cache, const struct pictures_room *room)
{
    const struct pictures_record *record =
        (const void *)((const uint8_t *)cache->arena + room->place);
    struct pictures_key key;
    memcpy(&key, &record->key, sizeof key);
    uint64_t word = room->place / UNIT << TAG_BITS | pictures_tag(pictures_hash(cache, &key));
    uint64_t places = cache->bytes / BYTES_A_PLACE, place;
    struct pictures_entry other;

    while (!pictures_look(cache, &key, &other, &place) && place < places) {
        uint64_t nothing = 0;
        if (__atomic_compare_exchange_n(&cache->arena->index[place], &nothing, word, false,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
            (void)__atomic_fetch_add(&cache->arena->pictures, 1, __ATOMIC_RELAXED);
            return true;
        }
    }
    pictures_cache_drop(cache, room);
    return false;
}
