#include "daemon/data/base/arena.h"

#include <errno.h>

enum { ARENA_ALIGN = 64, ARENA_LEAST = 64 * 1024 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t bytes; /* behind this header */
    _Alignas(ARENA_ALIGN) char data[];
};

struct arena_hold {
    struct arena_hold *next;
    void (*release)(void *what);
    void *what;
};

static struct arena_chunk *arena_chunk_new(size_t bytes)
{
    if (bytes > PTRDIFF_MAX - 2 * ARENA_ALIGN) /* no object is larger; the sum below fits */
        return NULL;
    struct arena_chunk *chunk =
        aligned_alloc(ARENA_ALIGN, align_up(sizeof *chunk + bytes, ARENA_ALIGN));
    if (chunk)
        chunk->bytes = bytes;
    return chunk;
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    struct arena_chunk *chunk = arena->chunks;
    size_t begin = align_up(arena->used, ARENA_ALIGN);

    if (!chunk || begin > chunk->bytes || bytes > chunk->bytes - begin) {
        /* Twice the one before, so that a batch is made of few. */
        size_t room = max_u64(chunk ? 2 * chunk->bytes : ARENA_LEAST, bytes);
        struct arena_chunk *fresh = arena_chunk_new(room);
        if (!fresh && room > bytes)
            fresh = arena_chunk_new(bytes);
        if (!fresh)
            return NULL;
        fresh->next = chunk;
        arena->chunks = chunk = fresh;
        begin = 0;
    }
    arena->used = begin + bytes;
    return chunk->data + begin;
}

int arena_hold(struct arena *arena, void (*release)(void *what), void *what)
{
    struct arena_hold *hold = arena_alloc(arena, sizeof *hold);

    if (!hold) {
        release(what);
        return -ENOMEM;
    }
    *hold = (struct arena_hold){.next = arena->holds, .release = release, .what = what};
    arena->holds = hold;
    return 0;
}

void arena_clear(struct arena *arena)
{
    struct arena_chunk *chunk;

    for (struct arena_hold *hold = arena->holds; hold; hold = hold->next)
        hold->release(hold->what);
    arena->holds = NULL;
    while (arena->chunks && (chunk = arena->chunks->next)) {
        arena->chunks->next = chunk->next;
        free(chunk);
    }
    arena->used = 0;
}

void arena_deinit(struct arena *arena)
{
    arena_clear(arena);
    free(arena->chunks);
    *arena = (struct arena){0};
}
