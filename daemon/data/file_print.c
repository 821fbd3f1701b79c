#include "daemon/data/file_print.h"

#include "daemon/data/source.h"

#include <errno.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { EDGE_BYTES = 4096 };

void file_print_begin(struct file_print *print, const struct data_env *env)
{
    *print = (struct file_print){.hash = XXH3_createState(), .env = env};
    if (!print->hash || XXH3_64bits_reset(print->hash) != XXH_OK)
        print->r = -ENOMEM;
}

uint64_t file_print_end(struct file_print *print)
{
    uint64_t hash = print->r == 0 ? max_u64(XXH3_64bits_digest(print->hash), 1) : 0;

    XXH3_freeState(print->hash);
    print->hash = NULL;
    return hash;
}

void file_print_add(struct file_print *print, const void *data, uint64_t bytes)
{
    if (print->r < 0)
        return;
    if (XXH3_64bits_update(print->hash, &bytes, sizeof bytes) != XXH_OK ||
        (bytes > 0 && XXH3_64bits_update(print->hash, data, bytes) != XXH_OK))
        print->r = -EIO;
}

void file_print_number(struct file_print *print, uint64_t number)
{
    file_print_add(print, &number, sizeof number);
}

static void add_edge(struct file_print *print, int fd, uint64_t begin, uint64_t bytes)
{
    uint8_t edge[EDGE_BYTES];
    uint64_t done = 0;

    while (done < bytes && print->r == 0) {
        ssize_t got = pread(fd, edge + done, bytes - done, (off_t)(begin + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) /* it became shorter: whatever is hashed now is of no use */
            print->r = got < 0 ? -errno : -EIO;
        else
            done += (uint64_t)got;
    }
    file_print_add(print, edge, done);
}

int file_print_file(struct file_print *print, const char *path)
{
    _cleanup_fd_ int fd = -1;
    struct stat st = {0};
    uint64_t bytes = 0;

    if (print->r < 0)
        return print->r;
    print->r = source_open_file(path, print->env, &fd, &bytes, NULL);
    if (print->r == 0 && fstat(fd, &st) < 0)
        print->r = -errno;
    if (print->r < 0)
        return print->r;
    bytes = (uint64_t)st.st_size;
    file_print_number(print, bytes);
    uint64_t edge = min_u64(bytes, EDGE_BYTES);
    add_edge(print, fd, 0, edge);
    add_edge(print, fd, bytes - edge, edge);
    return print->r < 0 ? print->r : steal_fd(&fd);
}
