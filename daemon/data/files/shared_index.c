#include "daemon/data/files/shared_index.h"

#include "daemon/data/base/dataset.h"
#include "proto/common/sealed.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

void shared_index_deinit(struct shared_index *index)
{
    if (index->mapped)
        munmap((void *)index->data, index->bytes);
    else
        free((void *)index->data);
    *index = (struct shared_index){0};
}

static int shared_index_map(int fd, struct shared_index *ret)
{
    uint64_t bytes;
    int r = sealed_size(fd, &bytes);

    if (r < 0)
        return r;
    const void *data = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return -errno;
    *ret = (struct shared_index){.data = data, .bytes = bytes, .mapped = true};
    return 0;
}

/* ---- those that were given ------------------------------------------------------------------ */

int shared_indexes_add(struct shared_indexes *indexes, struct dl_span place, uint32_t form, int fd)
{
    struct shared_index_given one = {.place = span_dup(place), .form = form, .fd = fd};
    struct shared_index_given *grown =
        one.place ? reallocarray(indexes->given, indexes->n + 1, sizeof *grown) : NULL;

    if (!grown) {
        free(one.place);
        close_fdp(&one.fd);
        return -ENOMEM;
    }
    indexes->given = grown;
    indexes->given[indexes->n++] = one;
    return 0;
}

void shared_indexes_deinit(struct shared_indexes *indexes)
{
    for (uint32_t i = 0; i < indexes->n; i++) {
        free(indexes->given[i].place);
        close_fdp(&indexes->given[i].fd);
    }
    free(indexes->given);
    *indexes = (struct shared_indexes){0};
}

bool shared_index_find(const struct data_env *env, const char *place, enum shared_index_form form,
                       struct shared_index *ret)
{
    const struct shared_indexes *indexes = env ? env->indexes : NULL;

    for (uint32_t i = 0; indexes && i < indexes->n; i++) {
        const struct shared_index_given *given = &indexes->given[i];
        if (given->form == form && strcmp(given->place, place) == 0)
            return shared_index_map(given->fd, ret) == 0;
    }
    return false;
}

/* ---- those that are made -------------------------------------------------------------------- */

/* For this worker itself, which may want it once more. */
static void shared_index_remember(struct shared_indexes *indexes, const char *place,
                                  enum shared_index_form form, int fd)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);

    if (own >= 0)
        (void)!shared_indexes_add(indexes, span_str(place), form, own);
}

static int shared_index_share(struct shared_indexes *indexes, const char *place,
                              enum shared_index_form form, uint64_t key,
                              const struct dl_buffer *bytes, struct shared_index *ret)
{
    _cleanup_fd_ int fd = sealed_new("dloader-index", bytes->data, bytes->len);
    struct shared_index index = {0};

    if (fd < 0)
        return fd;
    int r = shared_index_map(fd, &index);
    if (r < 0)
        return r;
    if ((r = indexes->offer(indexes->owner, place, form, key, fd)) < 0) {
        shared_index_deinit(&index);
        return r;
    }
    shared_index_remember(indexes, place, form, fd);
    *ret = index;
    return 0;
}

void shared_index_make(const struct data_env *env, const char *place, enum shared_index_form form,
                       uint64_t key, struct dl_buffer *bytes, struct shared_index *ret)
{
    struct shared_indexes *indexes = env ? env->indexes : NULL;

    assert(bytes->len > 0);
    if (indexes && shared_index_share(indexes, place, form, key, bytes, ret) == 0) {
        buffer_deinit(bytes);
        return;
    }
    /* What it has room for besides was never touched. */
    *ret = (struct shared_index){.data = bytes->data, .bytes = bytes->len};
    *bytes = (struct dl_buffer){0};
}
