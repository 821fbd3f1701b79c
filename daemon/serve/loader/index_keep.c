#include "daemon/serve/loader/index_keep.h"

#include "daemon/cache/index_cache.h"
#include "daemon/serve/base/log.h"
#include "daemon/serve/base/memory.h"
#include "proto/common/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

/* One on its way. */
struct index_keep {
    struct crew_job job;
    struct index_cache_key key;
    int fd;      /* owned */
    char *dir;   /* owned */
    char *label; /* owned */
    struct dl_error err;
    int r;
};

static void index_keep_thread(struct crew_job *job)
{
    struct index_keep *keep = container_of(job, struct index_keep, job);
    uint64_t bytes;

    keep->r = sealed_size(keep->fd, &bytes);
    if (keep->r < 0) {
        (void)dl_error_set(&keep->err, -keep->r, keep->dir, "the index is in no sealed memory");
        return;
    }
    void *data = mmap(NULL, bytes, PROT_READ, MAP_SHARED, keep->fd, 0);
    if (data == MAP_FAILED) {
        keep->r = dl_error_set(&keep->err, errno, keep->dir, "the index cannot be mapped: %s",
                               strerror(errno));
        return;
    }
    keep->r = index_cache_store(keep->dir, &keep->key, (struct dl_span){data, bytes}, &keep->err);
    munmap(data, bytes);
}

static void index_keep_done(struct crew_job *job)
{
    struct index_keep *keep = container_of(job, struct index_keep, job);

    if (keep->r < 0)
        log_loader(LOG_WARNING, keep->label, keep->key.uid,
                   "%s: its files' index is not kept, and made anew when they are opened next: "
                   "%s: %s",
                   keep->label, keep->err.path, keep->err.message);
    close_fdp(&keep->fd);
    free(keep->dir);
    free(keep->label);
    free(keep);
}

void index_keep(const struct index_keep_for *whose, uint64_t key, int fd)
{
    int own = *whose->dir ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;

    if (own < 0)
        return;
    struct index_keep *keep = must_alloc(sizeof *keep);
    keep->key = (struct index_cache_key){.key = key, .uid = whose->uid};
    keep->fd = own;
    keep->dir = must_strdup(whose->dir);
    keep->label = must_strdup(whose->label);
    crew_start(whose->crew, whose->uid, &keep->job, index_keep_thread, index_keep_done);
}
