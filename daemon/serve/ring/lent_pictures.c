#include "daemon/serve/ring/lent_pictures.h"

#include "daemon/base/memory.h"
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

int lent_pictures_find(struct lent_pictures *lent, const char *root, uint64_t bytes, uint64_t most,
                       uint64_t *ret_bytes)
{
    struct lent_arena *arena;
    uint64_t taken = 0;

    for (uint32_t i = 0; i < lent->n; i++) {
        arena = &lent->arenas[i];
        *ret_bytes = arena->bytes;
        if (strcmp(arena->root, root) == 0)
            return arena->fd;
        taken += arena->bytes;
    }
    if (bytes < PICTURES_CACHE_LEAST || bytes > PICTURES_CACHE_MOST)
        return -EINVAL;
    if (lent->n == LENT_ARENAS || bytes > most - min_u64(taken, most))
        return -EDQUOT;
    int fd = pictures_memory(root, bytes, false);
    if (fd < 0)
        return fd;
    lent->arenas[lent->n++] = (struct lent_arena){must_strdup(root), bytes, fd};
    *ret_bytes = bytes;
    return fd;
}

void lent_pictures_deinit(struct lent_pictures *lent)
{
    while (lent->n > 0)
        lent_drop(lent, 0);
}
