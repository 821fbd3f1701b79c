#include "daemon/serve/ring/lent_pictures.h"

#include "daemon/base/memory.h"
#include "daemon/cache/ids_cache.h"
#include "daemon/cache/pictures_cache.h"
#include "daemon/serve/ring/pictures.h"

#include <errno.h>
#include <fcntl.h>

static void lent_drop(struct lent_pictures *lent, uint32_t i)
{
    free(lent->arenas[i].root);
    close_fdp(&lent->arenas[i].fd);
    lent->arenas[i] = lent->arenas[--lent->n];
}

void lent_pictures_tidy(struct lent_pictures *lent)
{
    for (uint32_t i = lent->n; i-- > 0;) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};

        if (fcntl(lent->arenas[i].fd, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK)
            lent_drop(lent, i);
    }
}

static bool lent_is_size(bool ids, uint64_t bytes)
{
    return ids ? bytes > 0 && ids_cache_bytes(bytes) == bytes
               : bytes >= PICTURES_CACHE_LEAST && bytes <= PICTURES_CACHE_MOST;
}

int lent_pictures_find(struct lent_pictures *lent, const char *root, bool ids, uint64_t most,
                       uint64_t *bytes)
{
    struct lent_arena *arena;
    uint64_t taken = 0;

    for (uint32_t i = 0; i < lent->n; i++) {
        arena = &lent->arenas[i];
        taken += arena->bytes;
        if (arena->ids != ids || strcmp(arena->root, root) != 0)
            continue;
        *bytes = arena->bytes;
        return arena->fd;
    }
    if (!lent_is_size(ids, *bytes))
        return -EINVAL;
    if (lent->n == LENT_ARENAS || *bytes > most - min_u64(taken, most))
        return -EDQUOT;
    int fd = pictures_memory(root, *bytes, ids);
    if (fd < 0)
        return fd;
    lent->arenas[lent->n++] = (struct lent_arena){must_strdup(root), ids, *bytes, fd};
    return fd;
}

void lent_pictures_deinit(struct lent_pictures *lent)
{
    while (lent->n > 0)
        lent_drop(lent, 0);
}
