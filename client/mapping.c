/* Checking and mapping of segments: mapping.h. */
#include "client/mapping.h"

#include "proto/limits.h"
#include "proto/position.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

static int mapping_refuse(struct dl_error *err, uint32_t id, const char *why, uint64_t got,
                          uint64_t want)
{
    return dl_error_set(err, EPROTO, "", "segment %u: %s: %llu where %llu is due", id, why,
                        (ull)got, (ull)want);
}

static int mapping_check_file(int fd, uint32_t id, uint64_t bytes, struct dl_error *err)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    if (seals < 0)
        return dl_error_set(err, EPROTO, "", "segment %u: not a memfd", id);
    if ((seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW))
        return mapping_refuse(err, id, "not sealed against shrinking and growing, seals",
                              (uint64_t)seals, F_SEAL_SHRINK | F_SEAL_GROW);
    if (fstat(fd, &st) < 0)
        return dl_error_set(err, EPROTO, "", "segment %u: fstat: %s", id, strerror(errno));
    if (st.st_size < 0 || (uint64_t)st.st_size != bytes)
        return mapping_refuse(err, id, "size in bytes", (uint64_t)st.st_size, bytes);
    if (bytes < SEGMENT_HEADER_BYTES + SLOT_ALIGN || bytes > DL_MAX_SEGMENT_BYTES)
        return mapping_refuse(err, id, "size in bytes", bytes, SEGMENT_HEADER_BYTES + SLOT_ALIGN);
    return 0;
}

static int mapping_check_header(const struct segment_header *header, uint32_t id, uint64_t bytes,
                                struct dl_error *err)
{
    uint64_t slots_bytes;

    if (header->magic != SEGMENT_MAGIC)
        return mapping_refuse(err, id, "magic number", header->magic, SEGMENT_MAGIC);
    if (header->version != SEGMENT_LAYOUT_VERSION)
        return mapping_refuse(err, id, "layout version", header->version, SEGMENT_LAYOUT_VERSION);
    if (header->id != id)
        return mapping_refuse(err, id, "id in its header", header->id, id);
    if (header->bytes != bytes)
        return mapping_refuse(err, id, "size in its header", header->bytes, bytes);
    if (header->slots == 0 || header->slots > DL_MAX_SEGMENT_SLOTS)
        return mapping_refuse(err, id, "slots", header->slots, DL_MAX_SEGMENT_SLOTS);
    if (header->slot_bytes == 0 || header->slot_bytes % SLOT_ALIGN != 0)
        return mapping_refuse(err, id, "bytes a slot", header->slot_bytes, SLOT_ALIGN);
    if (mul_overflows(header->slot_bytes, header->slots, &slots_bytes) ||
        slots_bytes > bytes - SEGMENT_HEADER_BYTES)
        return mapping_refuse(err, id, "bytes a slot", header->slot_bytes,
                              (bytes - SEGMENT_HEADER_BYTES) / header->slots);
    return 0;
}

int mapping_new(int fd, uint32_t id, uint64_t bytes, bool writable, struct mapping **ret,
                struct dl_error *err)
{
    int prot = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    struct segment_header header;
    struct mapping *mapping;
    int r = mapping_check_file(fd, id, bytes, err);

    if (r < 0)
        return r;
    mapping = calloc(1, sizeof *mapping);
    if (!mapping)
        return dl_error_set(err, ENOMEM, "", "no memory to map segment %u", id);
    mapping->base = mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
    if (mapping->base == MAP_FAILED) {
        r = dl_error_set(err, errno == ENOMEM ? ENOMEM : EPROTO, "",
                         "segment %u of %llu bytes cannot be mapped: %s", id, (ull)bytes,
                         strerror(errno));
        free(mapping);
        return r;
    }
    atomic_init(&mapping->refs, 1);
    mapping->id = id;
    mapping->bytes = bytes;
    mapping->writable = writable;
    memcpy(&header, mapping->base, sizeof header);
    r = mapping_check_header(&header, id, bytes, err);
    if (r < 0) {
        mapping_unref(mapping);
        return r;
    }
    mapping->slot_bytes = header.slot_bytes;
    mapping->slots = header.slots;
    *ret = mapping;
    return 0;
}

struct mapping *mapping_new_private(uint64_t bytes)
{
    struct mapping *mapping = calloc(1, sizeof *mapping);

    if (!mapping)
        return NULL;
    bytes = align_up(bytes, SLOT_ALIGN);
    mapping->base = aligned_alloc(SLOT_ALIGN, bytes);
    if (!mapping->base) {
        free(mapping);
        return NULL;
    }
    atomic_init(&mapping->refs, 1);
    mapping->bytes = mapping->slot_bytes = bytes;
    mapping->slots = 1;
    mapping->writable = mapping->is_private = true;
    return mapping;
}

struct mapping *mapping_ref(struct mapping *mapping)
{
    /* Relaxed: the caller holds a reference, so nothing can be freed meanwhile. */
    unsigned before = atomic_fetch_add_explicit(&mapping->refs, 1, memory_order_relaxed);

    assert(before > 0);
    return mapping;
}

struct mapping *mapping_unref(struct mapping *mapping)
{
    if (!mapping)
        return NULL;
    /* Release: our reads come before; acquire: the last one sees all others' done. */
    if (atomic_fetch_sub_explicit(&mapping->refs, 1, memory_order_acq_rel) == 1) {
        if (mapping->pin)
            pin_unregister(mapping->pin, mapping->base);
        pin_unref(mapping->pin);
        if (mapping->is_private)
            free(mapping->base);
        else
            munmap(mapping->base, mapping->bytes);
        free(mapping);
    }
    return NULL;
}

int mapping_pin(struct mapping *mapping, struct pin *pin, struct dl_error *err)
{
    int r = 0;

    if (!mapping->pin) {
        r = pin_register(pin, mapping->base, mapping->bytes, mapping->writable, err);
        if (r == 0)
            mapping->pin = pin_ref(pin);
    }
    return r;
}

const uint8_t *mapping_slot(const struct mapping *mapping, const struct dl_descriptor *descriptor)
{
    uint64_t from;

    if (descriptor->offset < SEGMENT_HEADER_BYTES || descriptor->bytes < SLOT_HEADER_BYTES ||
        descriptor->bytes > mapping->slot_bytes)
        return NULL;
    from = descriptor->offset - SEGMENT_HEADER_BYTES;
    if (from % mapping->slot_bytes != 0 || from / mapping->slot_bytes >= mapping->slots)
        return NULL;
    return mapping->base + descriptor->offset;
}

/* ---- what a rank of the cluster shares with its daemon ---- */

static bool mapping_is_position(int fd, uint64_t bytes)
{
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    return seals >= 0 && (seals & wanted) == wanted && bytes == POSITION_BYTES &&
           fstat(fd, &st) == 0 && st.st_size == POSITION_BYTES;
}

int mapping_position(int fd, uint64_t bytes, struct rank_position **ret)
{
    void *memory;

    if (!mapping_is_position(fd, bytes))
        return -EPROTO;
    memory = mmap(NULL, POSITION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return -ENOMEM;
    *ret = memory;
    return 0;
}

void mapping_drop_position(struct rank_position *position)
{
    if (position)
        munmap(position, POSITION_BYTES);
}
