/*
 * Decoded pictures, and row groups of numbers, in memory that several processes share, so that each
 * is decoded once. What is said of pictures here is true of row groups: these are pictures of rows
 * × bytes, one byte a pixel.
 *
 * An arena is one memfd: a header, an index, and records one behind another. It is written by
 * workers of one user and by nobody else. Nothing in it is ever moved or freed: what is in it stays
 * until the arena goes (pinned), so readers need no lock, and there is no order of reads for which
 * it is of no use.
 *
 * A record is a file's identity, the size of its picture and the pixels. A process that has decoded
 * a picture takes room at the arena's end, writes the record, and then puts its place into the
 * index by one compare-and-swap (release): a record that is found is whole, and that of a writer
 * who died is never found. Its room is lost, at most one picture's for each death. Of two who
 * decode the same picture at a time one loses, and gives its room back if it is still the last
 * (release): the process that takes it next (acquire) writes after that one has.
 *
 * Which pictures get in is drawn by a keyed hash of their identity, as many as the arena has room
 * for of all the files of the folder, by the mean size of what was decoded so far: half the arena
 * serves half the reads, in whatever order they come.
 *
 * A file that was written to or replaced has another identity, and is not found.
 *
 * Other processes write here meanwhile: what is read from it is read once and checked. The daemon
 * makes arenas and reads counts; functions may block on the kernel. A struct pictures_cache is of
 * one thread.
 */
#ifndef DL_PICTURES_CACHE_H
#define DL_PICTURES_CACHE_H

#include "proto/common/error.h"

#include <sys/stat.h>

/* Smaller ones have no room for one photograph; larger ones than the second nobody has. */
#define PICTURES_CACHE_LEAST (UINT64_C(1) << 20)
#define PICTURES_CACHE_MOST  (UINT64_C(1) << 42)

/* Bytes a pixel of pictures: R, G, B; rows without gaps. Of row groups it is one. */
enum { PICTURES_CACHE_COLOURS = 3 };

struct pictures_arena; /* the mapped memory */

/* A process's view of an arena. All zero: no arena. */
struct pictures_cache {
    struct pictures_arena *arena; /* owned mapping; NULL: none */
    int fd;                       /* owned, for allocating pages before they are touched */
    uint64_t bytes;
};

/* Which contents of which file; what stat() says. */
struct pictures_key {
    uint64_t dev;
    uint64_t ino;
    uint64_t bytes;
    int64_t modified_ns;
    int64_t changed_ns;
    uint64_t
        part; /* 0: the file is a picture; else which of its row groups, as what it is decoded */
};

struct pictures_entry {
    uint32_t height;
    uint32_t width;
    const uint8_t *pixels; /* in the arena, as long as it is mapped */
};

/* Room that was taken for a picture, and is not in the index. */
struct pictures_room {
    uint64_t place; /* of its record in the arena; bytes */
    uint64_t end;
    uint8_t *pixels; /* to be written: height · width · 3 bytes */
};

struct pictures_counts {
    uint64_t used_bytes; /* of the arena's size: index and records */
    uint64_t pictures;   /* in the index */
    uint64_t hits;       /* reads that were served */
    uint64_t misses;     /* and that were not */
};

/* Writes the header of an arena into `base`, the zeroed memory of `bytes`, within the two limits
 * above. `seed` is the key of the draw. */
void pictures_arena_init(void *base, uint64_t bytes, uint64_t seed);
/* What is in it, by what its writers say: at most its size. */
void pictures_arena_counts(const void *base, uint64_t bytes, struct pictures_counts *ret);
/* Bytes of the header alone: to map for the counts. */
uint64_t pictures_arena_header(void);

/* Maps the arena in `fd`, which is taken, also on failure. -EPROTO: it is none of `bytes`;
 * -ENOMEM, ... */
int _nodiscard_ pictures_cache_open(struct pictures_cache *cache, int fd, uint64_t bytes);
void pictures_cache_close(struct pictures_cache *cache); /* zeroes it; a zeroed one is fine */

void pictures_key_of(const struct stat *st, struct pictures_key *ret);

/* Counts a hit, or a miss. */
bool _nodiscard_ pictures_cache_find(const struct pictures_cache *cache,
                                     const struct pictures_key *key, struct pictures_entry *ret);
/* The same, and counts nothing. */
bool _nodiscard_ pictures_cache_look(const struct pictures_cache *cache,
                                     const struct pictures_key *key, struct pictures_entry *ret);

/*
 * A picture of height × width was not found. Whether it is one of those that are kept, of a folder
 * of `files`, and there is room for it by now; counts its size for the mean.
 */
bool _nodiscard_ pictures_cache_wants(const struct pictures_cache *cache,
                                      const struct pictures_key *key, uint32_t height,
                                      uint32_t width, uint64_t files);

/* Takes room for it. False: the arena is full, or the system has no memory; nothing is taken. */
bool _nodiscard_ pictures_cache_take(const struct pictures_cache *cache,
                                     const struct pictures_key *key, uint32_t height,
                                     uint32_t width, struct pictures_room *ret);
/* Its pixels are written: all find it from now on. False: somebody was faster, or the index has no
 * place for it; the room may be another's by then. */
bool pictures_cache_publish(const struct pictures_cache *cache, const struct pictures_room *room);
/* It is not to be kept. */
void pictures_cache_drop(const struct pictures_cache *cache, const struct pictures_room *room);

#endif
