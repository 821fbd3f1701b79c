/*
 * Segments as clients meet them: nothing that a client can do with its descriptor changes a byte
 * or the size, and what worker and daemon had mapped before the seal goes on working.
 */
#include "tests/lib/abort.h"

#include "daemon/serve/ring/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020
#endif

enum { SLOTS = 3, SLOT_BYTES = 8192, BYTES = SEGMENT_HEADER_BYTES + SLOTS * SLOT_BYTES };

static struct segment *new_segment(bool writable)
{
    struct segment *segment = NULL;
    struct dl_error err = {0};

    assert_int_equal(segment_new(7, 2, SLOTS, SLOT_BYTES, writable, &segment, &err), 0);
    assert_int_equal(err.code, 0);
    assert_non_null(segment);
    return segment;
}

static struct segment *sealed_segment(bool writable)
{
    struct segment *segment = new_segment(writable);
    struct dl_error err = {0};

    assert_int_equal(segment_seal(segment, &err), 0);
    assert_true(segment->active);
    return segment;
}

TEST(test_sizes)
{
    assert_int_equal(segment_bytes(0, 4096), 4096);
    assert_int_equal(segment_bytes(1, 4096), 8192);
    assert_int_equal(segment_bytes(SLOTS, SLOT_BYTES), BYTES);
    assert_int_equal(segment_bytes(65536, 1 << 20), 4096 + ((uint64_t)1 << 36));
}

TEST(test_what_a_new_segment_is)
{
    struct segment *segment = new_segment(false);
    const struct segment_header *header = (const void *)segment->base;
    struct stat st;

    assert_int_equal(segment->id, 7);
    assert_int_equal(segment->worker, 2);
    assert_int_equal(segment->bytes, BYTES);
    assert_int_equal(segment->slot_bytes, SLOT_BYTES);
    assert_false(segment->active);
    assert_false(segment->writable);
    assert_int_equal(segment->slots.count, SLOTS);
    assert_int_equal(segment->slots.in_state[SLOT_FREE], SLOTS);

    assert_int_equal(header->magic, SEGMENT_MAGIC);
    assert_int_equal(header->version, SEGMENT_LAYOUT_VERSION);
    assert_int_equal(header->id, 7);
    assert_int_equal(header->bytes, BYTES);
    assert_int_equal(header->slot_bytes, SLOT_BYTES);
    assert_int_equal(header->slots, SLOTS);
    assert_int_equal(header->reserved, 0);
    for (size_t i = sizeof *header; i < SEGMENT_HEADER_BYTES; i++)
        assert_int_equal(segment->base[i], 0);

    assert_int_equal(fstat(segment->fd, &st), 0);
    assert_int_equal(st.st_size, BYTES);
    assert_int_equal(st.st_mode & 07777, 0400); /* other users cannot reopen it */
    assert_true(fcntl(segment->fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(fcntl(segment->fd, F_GET_SEALS) & ~F_SEAL_EXEC, 0);
    for (uint32_t i = 0; i < SLOTS; i++)
        assert_ptr_equal(segment_slot(segment, i), segment->base + 4096 + i * SLOT_BYTES);
    assert_null(segment_free(segment));
}

TEST(test_seals)
{
    for (int writable = 0; writable < 2; writable++) {
        struct segment *segment = sealed_segment(writable);
        int want = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | (writable ? 0 : F_SEAL_FUTURE_WRITE);

        assert_int_equal(segment->writable, writable);
        assert_int_equal(fcntl(segment->fd, F_GET_SEALS) & ~F_SEAL_EXEC, want);
        segment_free(segment);
    }
}

static void *map(int fd, int protection)
{
    return mmap(NULL, BYTES, protection, MAP_SHARED, fd, 0);
}

/* As root and as the owner; both may reopen it for writing through /proc. */
static int reopen(int fd)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    (void)fchmod(fd, 0600);
    return open(path, O_RDWR | O_CLOEXEC);
}

static void expect_size_is_fixed(int fd)
{
    struct stat st;
    /* Of one that is for reading only the seals are not even asked. */
    bool read_only = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY;

    assert_int_equal(ftruncate(fd, BYTES - 1), -1);
    assert_int_equal(errno, read_only ? EINVAL : EPERM);
    assert_int_equal(ftruncate(fd, BYTES + 1), -1);
    assert_int_equal(errno, read_only ? EINVAL : EPERM);
    assert_int_equal(fallocate(fd, 0, 0, BYTES + 4096), -1);
    assert_int_equal(errno, read_only ? EBADF : EPERM);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, BYTES);
}

TEST(test_clients_cannot_write)
{
    struct segment *segment = sealed_segment(false);
    _cleanup_fd_ int again = reopen(segment->fd);
    /* What a client gets is for reading only; what its owner makes of that is sealed. */
    const struct {
        int fd, mapping, writing;
    } rows[] = {{segment->fd, EACCES, EBADF}, {again, EPERM, EPERM}};

    assert_true(again >= 0);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        int fd = rows[i].fd;

        assert_ptr_equal(map(fd, PROT_READ | PROT_WRITE), MAP_FAILED);
        assert_int_equal(errno, rows[i].mapping);
        assert_int_equal(pwrite(fd, "x", 1, 4096), -1);
        assert_int_equal(errno, rows[i].writing);
        assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096), -1);
        assert_int_equal(errno, rows[i].writing);
        char *view = map(fd, PROT_READ);
        assert_ptr_not_equal(view, MAP_FAILED);
        assert_int_equal(mprotect(view, BYTES, PROT_READ | PROT_WRITE), -1);
        assert_int_equal(errno, EACCES);
        assert_memory_equal(view, segment->base, SEGMENT_HEADER_BYTES);
        munmap(view, BYTES);
        expect_size_is_fixed(fd);
    }
    segment_free(segment);
}

TEST(test_earlier_maps_go_on_writing)
{
    struct segment *segment = new_segment(false);
    struct dl_error err = {0};
    char *worker = map(segment->fd, PROT_READ | PROT_WRITE);

    assert_ptr_not_equal(worker, MAP_FAILED);
    assert_int_equal(segment_seal(segment, &err), 0);
    char *client = map(segment->fd, PROT_READ);
    assert_ptr_not_equal(client, MAP_FAILED);
    for (uint32_t i = 0; i < SLOTS; i++) {
        char *slot = segment_slot(segment, i);

        memset(worker + slot_offset(SLOT_BYTES, i), 'a' + (int)i, SLOT_BYTES);
        assert_int_equal(slot[0], 'a' + (int)i);
        slot[1] = 'd'; /* the daemon puts the next task there */
        assert_int_equal(client[slot_offset(SLOT_BYTES, i)], 'a' + (int)i);
        assert_int_equal(client[slot_offset(SLOT_BYTES, i) + 1], 'd');
        assert_int_equal(client[slot_offset(SLOT_BYTES, i) + SLOT_BYTES - 1], 'a' + (int)i);
    }
    assert_int_equal(((struct segment_header *)(void *)client)->magic, SEGMENT_MAGIC);
    munmap(client, BYTES);
    munmap(worker, BYTES);
    segment_free(segment);
}

TEST(test_writable_by_the_clients_wish)
{
    struct segment *segment = sealed_segment(true);
    char *view = map(segment->fd, PROT_READ | PROT_WRITE);

    assert_ptr_not_equal(view, MAP_FAILED);
    view[SEGMENT_HEADER_BYTES] = 'x';
    assert_int_equal(*(char *)segment_slot(segment, 0), 'x');
    munmap(view, BYTES);
    expect_size_is_fixed(segment->fd);
    segment_free(segment);
}

/* Until it is sealed a worker can write its size as well as its bytes. */
TEST(test_a_size_that_was_changed)
{
    static const off_t sizes[] = {0, BYTES - 4096, BYTES + 4096};

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct segment *segment = NULL;
        struct dl_error err = {0};
        char text[128];

        assert_int_equal(segment_new(1, 0, SLOTS, SLOT_BYTES, false, &segment, &err), 0);
        assert_int_equal(ftruncate(segment->fd, sizes[i]), 0);
        assert_int_equal(segment_seal(segment, &err), -EPROTO);
        assert_false(segment->active);
        snprintf(text, sizeof text, "a segment of %llu bytes has %lld: its worker changed it",
                 (unsigned long long)BYTES, (long long)sizes[i]);
        assert_string_equal(err.message, text);
        segment_free(segment);
    }
}

TEST(test_sealing_twice_fails)
{
    struct segment *segment = sealed_segment(false);
    struct dl_error err = {0};

    segment->active = false;
    assert_int_equal(segment_seal(segment, &err), -EPERM);
    assert_false(segment->active);
    assert_int_equal(err.code, EPERM);
    assert_string_equal(err.path, "memory");
    assert_string_equal(err.message, "cannot seal a segment (Linux 5.1 or newer is needed): "
                                     "Operation not permitted");
    segment_free(segment);
}

TEST(test_impossible_sizes)
{
    static const uint64_t slot_bytes[] = {(uint64_t)1 << 62, (uint64_t)1 << 56};
    int before = harness_count_fds();

    for (size_t i = 0; i < ARRAY_SIZE(slot_bytes); i++) {
        struct segment *segment = NULL;
        struct dl_error err = {0};
        char size[32];
        int r = segment_new(1, 0, 1, slot_bytes[i], false, &segment, &err);

        assert_true(r < 0);
        assert_null(segment);
        assert_int_equal(err.code, -r);
        assert_string_equal(err.path, "memory");
        snprintf(size, sizeof size, " %llu bytes: ", (unsigned long long)slot_bytes[i] + 4096);
        assert_non_null(strstr(err.message, "cannot create a segment of"));
        assert_non_null(strstr(err.message, size));
        assert_int_equal(harness_count_fds(), before);
    }
}

static void without_slots(void *arg)
{
    struct segment *segment;

    (void)!segment_new(1, 0, *(const uint32_t *)arg, 4096, false, &segment, NULL);
}

static void off_the_page(void *arg)
{
    struct segment *segment;

    (void)!segment_new(1, 0, 1, *(const uint32_t *)arg, false, &segment, NULL);
}

TEST(test_shapes_that_are_bugs_abort)
{
    assert_true(call_aborts(without_slots, &(uint32_t){0}));
    assert_true(call_aborts(off_the_page, &(uint32_t){4095}));
    assert_true(call_aborts(off_the_page, &(uint32_t){4097}));
    assert_false(call_aborts(off_the_page, &(uint32_t){4096}));
    assert_null(segment_free(NULL));
}
