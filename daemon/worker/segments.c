#include "daemon/worker/segments.h"

#include "daemon/worker/forked.h"
#include "proto/segment_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

int segment_map(int fd, struct segment *segment, struct dl_error *err)
{
    if (posix_fallocate(fd, 0, (off_t)segment->bytes) != 0)
        return dl_error_set(err, ENOMEM, "memory.limit",
                            "the system has no %llu bytes of shared memory left for a segment; "
                            "lower memory.limit, workers.prefetch or batch.size",
                            (ull)segment->bytes);
    segment->base =
        mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (segment->base == MAP_FAILED) {
        int code = errno;
        return dl_error_set(err, code, "memory.limit", "cannot map a segment of %llu bytes: %s",
                            (ull)segment->bytes, strerror(code));
    }
    forked_keep(segment->base, segment->bytes);
    return 0;
}

int segments_add(struct segment **segments, uint32_t *n, const struct dl_msg_w_segment *msg, int fd,
                 struct dl_error *err)
{
    struct segment seg = {.id = (uint32_t)msg->id,
                          .slots = (uint32_t)msg->slots,
                          .slot_bytes = msg->slot_bytes,
                          .bytes = msg->bytes};
    struct segment *grown = realloc(*segments, (*n + 1) * sizeof *grown);

    if (!grown)
        return -ENOMEM;
    *segments = grown;
    int r = segment_map(fd, &seg, err);
    if (r == 0)
        grown[(*n)++] = seg;
    return r;
}

void segments_drop(struct segment *segments, uint32_t *n, uint64_t id)
{
    for (uint32_t i = 0; i < *n; i++) {
        if (segments[i].id != id)
            continue;
        munmap(segments[i].base, segments[i].bytes);
        segments[i] = segments[--*n];
        return;
    }
}

void *segments_find_slot(const struct segment *segments, uint32_t n, const struct queue_task *task,
                         uint64_t *ret_bytes)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct segment *segment = &segments[i];

        if (segment->id == task->segment && task->slot < segment->slots) {
            *ret_bytes = segment->slot_bytes;
            return (char *)segment->base + slot_offset(segment->slot_bytes, task->slot);
        }
    }
    return NULL;
}
