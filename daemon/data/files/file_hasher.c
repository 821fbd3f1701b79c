#include "daemon/data/files/file_hasher.h"

#include "daemon/data/files/source.h"
#include "proto/common/fd_io.h"
#include "proto/remote_wire.h"

#include <errno.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { EDGE_BYTES = 4096 };

void file_hasher_begin(struct file_hasher *hasher, const struct data_env *env)
{
    *hasher = (struct file_hasher){.hash = XXH3_createState(), .env = env};
    if (!hasher->hash || XXH3_64bits_reset(hasher->hash) != XXH_OK)
        hasher->r = -ENOMEM;
}

uint64_t file_hasher_end(struct file_hasher *hasher)
{
    uint64_t hash = hasher->r == 0 ? max_u64(XXH3_64bits_digest(hasher->hash), 1) : 0;

    XXH3_freeState(hasher->hash);
    hasher->hash = NULL;
    return hash;
}

void file_hasher_add(struct file_hasher *hasher, const void *data, uint64_t bytes)
{
    if (hasher->r < 0)
        return;
    if (XXH3_64bits_update(hasher->hash, &bytes, sizeof bytes) != XXH_OK ||
        (bytes > 0 && XXH3_64bits_update(hasher->hash, data, bytes) != XXH_OK))
        hasher->r = -EIO;
}

void file_hasher_add_number(struct file_hasher *hasher, uint64_t number)
{
    file_hasher_add(hasher, &number, sizeof number);
}

static void file_hasher_add_edge(struct file_hasher *hasher, int fd, uint64_t begin, uint64_t bytes)
{
    uint8_t edge[EDGE_BYTES];

    if (hasher->r < 0)
        return;
    int64_t got = fd_pread_all(fd, edge, bytes, begin);
    if (got == (int64_t)bytes)
        file_hasher_add(hasher, edge, bytes);
    else /* it became shorter, so its hash would match no file */
        hasher->r = got < 0 ? (int)got : -EIO;
}

static int file_hasher_add_edges(struct file_hasher *hasher, const char *path, struct stat *ret_st)
{
    _cleanup_fd_ int fd = -1;
    uint64_t bytes = 0;

    hasher->r = source_open_file(path, hasher->env, &fd, &bytes, NULL);
    if (hasher->r == 0 && fstat(fd, ret_st) < 0)
        hasher->r = -errno;
    if (hasher->r < 0)
        return hasher->r;
    bytes = (uint64_t)ret_st->st_size;
    file_hasher_add_number(hasher, bytes);
    uint64_t edge = min_u64(bytes, EDGE_BYTES);
    file_hasher_add_edge(hasher, fd, 0, edge);
    file_hasher_add_edge(hasher, fd, bytes - edge, edge);
    return hasher->r;
}

/* The same of a file that another machine has. */
static int file_hasher_add_served(struct file_hasher *hasher, const char *path, struct stat *ret_st)
{
    struct source source = {0};

    hasher->r = source_open_known(path, hasher->env, &source, ret_st, NULL);
    if (hasher->r < 0)
        return hasher->r;
    uint64_t edge = min_u64(source.bytes, EDGE_BYTES);
    file_hasher_add_number(hasher, source.bytes);
    file_hasher_add(hasher, source.data, edge);
    file_hasher_add(hasher, source.data + source.bytes - edge, edge);
    source_close(&source);
    return hasher->r;
}

static int file_hasher_add_remote(struct file_hasher *hasher, const char *url, struct stat *ret_st)
{
    hasher->r = source_stat(url, true, hasher->env, ret_st);
    if (hasher->r < 0)
        return hasher->r;
    file_hasher_add_number(hasher, (uint64_t)ret_st->st_size);
    file_hasher_add_number(hasher, ret_st->st_ino);
    return hasher->r;
}

int file_hasher_add_file(struct file_hasher *hasher, const char *path, struct stat *ret_st)
{
    if (hasher->r < 0)
        return hasher->r;
    int (*add)(struct file_hasher * hasher, const char *path, struct stat *ret_st) =
        remote_is_url(path)                                  ? file_hasher_add_remote
        : hasher->env && source_is_remote(path, hasher->env) ? file_hasher_add_served
                                                             : file_hasher_add_edges;
    int r = add(hasher, path, ret_st);
    if (r == 0)
        data_tell(hasher->env, "files compared with the cache's", ++hasher->files, UINT64_MAX);
    return r;
}

uint64_t file_hasher_join(uint64_t before, uint64_t next)
{
    struct file_hasher hasher;

    file_hasher_begin(&hasher, NULL);
    file_hasher_add_number(&hasher, before);
    file_hasher_add_number(&hasher, next);
    return file_hasher_end(&hasher);
}
