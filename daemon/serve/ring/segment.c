#include "daemon/serve/ring/segment.h"

#include "daemon/base/memory.h"
#include "proto/common/sealed.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

uint64_t segment_bytes(uint32_t slots, uint64_t slot_bytes)
{
    return SEGMENT_HEADER_BYTES + slots * slot_bytes;
}

static int segment_make_memory(struct segment *segment)
{
    segment->fd = sealed_begin("dloader-segment");
    if (segment->fd < 0 || fchmod(segment->fd, 0400) < 0 ||
        ftruncate(segment->fd, (off_t)segment->bytes) < 0)
        return -errno;
    segment->base = mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
    if (segment->base == MAP_FAILED) {
        segment->base = NULL;
        return -errno;
    }
    *(struct segment_header *)(void *)segment->base =
        (struct segment_header){.magic = SEGMENT_MAGIC,
                                .version = SEGMENT_LAYOUT_VERSION,
                                .id = segment->id,
                                .bytes = segment->bytes,
                                .slot_bytes = segment->slot_bytes,
                                .slots = segment->slots.count};
    return 0;
}

int segment_new(uint32_t id, uint32_t worker, uint32_t slots, uint64_t slot_bytes, bool writable,
                struct segment **ret, struct dl_error *err)
{
    struct segment *segment = must_alloc(sizeof *segment);
    int r;

    assert(slots > 0 && slot_bytes % SLOT_ALIGN == 0);
    *segment = (struct segment){.id = id,
                                .worker = worker,
                                .fd = -1,
                                .bytes = segment_bytes(slots, slot_bytes),
                                .slot_bytes = slot_bytes,
                                .writable = writable};
    slot_table_init(&segment->slots, slots);
    r = segment_make_memory(segment);
    if (r < 0) {
        dl_error_set(err, -r, "memory", "cannot create a segment of %llu bytes: %s",
                     (ull)segment->bytes, strerror(-r));
        segment_free(segment);
        return r;
    }
    *ret = segment;
    return 0;
}

struct segment *segment_free(struct segment *segment)
{
    if (!segment)
        return NULL;
    if (segment->base)
        munmap(segment->base, segment->bytes);
    close_fdp(&segment->fd);
    slot_table_deinit(&segment->slots);
    free(segment);
    return NULL;
}

static int segment_open_again(const struct segment *segment, int mode)
{
    char path[64];

    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", segment->fd);
    int fd = open(path, mode | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/*
 * Clients get a descriptor that is open only for reading, in addition to the seal. The worker and
 * the daemon have mapped the segment by now, so the original descriptor is not needed. A writable
 * segment is opened again, too: the kernel keeps no count of a memfd's original descriptors
 * (segment_is_let_go()).
 */
static int segment_reopen(struct segment *segment)
{
    int fd;

    if (segment->writable && fchmod(segment->fd, 0600) < 0)
        return -errno;
    fd = segment_open_again(segment, segment->writable ? O_RDWR : O_RDONLY);
    if (fd < 0)
        return fd;
    close(segment->fd);
    segment->fd = fd;
    return segment->writable && fchmod(fd, 0400) < 0 ? -errno : 0;
}

int segment_leave(struct segment *segment)
{
    int fd = segment_open_again(segment, O_RDONLY);

    segment_free(segment);
    if (fd >= 0 && segment_is_let_go(fd))
        close_fdp(&fd);
    return fd < 0 ? -1 : fd;
}

/*
 * The kernel grants a write lease only if no one else has the file open (fcntl(2)); a mapping keeps
 * its file open.
 */
bool segment_is_let_go(int fd)
{
    if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
        return errno != EAGAIN;
    (void)fcntl(fd, F_SETLEASE, F_UNLCK);
    return true;
}

int segment_seal(struct segment *segment, struct dl_error *err)
{
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    struct stat st;

    if (!segment->writable)
        seals |= F_SEAL_FUTURE_WRITE;
    if (fcntl(segment->fd, F_ADD_SEALS, seals) < 0)
        return dl_error_set(err, errno, "memory",
                            "cannot seal a segment (Linux 5.1 or newer is needed): %s",
                            strerror(errno));
    /* From here on it is what it is. */
    if (fstat(segment->fd, &st) < 0)
        return dl_error_set(err, errno, "memory", "cannot look at a segment: %s", strerror(errno));
    if ((uint64_t)st.st_size != segment->bytes)
        return dl_error_set(err, EPROTO, "memory",
                            "a segment of %llu bytes has %lld: its worker changed it",
                            (ull)segment->bytes, (long long)st.st_size);
    int r = segment_reopen(segment);
    if (r < 0)
        return dl_error_set(err, -r, "memory", "cannot open a segment again, by /proc/self/fd: %s",
                            strerror(-r));
    segment->active = true;
    return 0;
}
