/*
 * The reader's buffer is one block: [handed out | waiting | free]. Bytes move only to make room at
 * the end, and the block grows only as bytes arrive: a peer that announces a large frame must also
 * send it.
 */
#include "proto/frame.h"
#include "proto/common/load.h"

#include <assert.h>
#include <errno.h>

static void frame_check_invariants(const struct frame_reader *reader)
{
    assert(reader->begin <= reader->end && reader->end <= reader->cap);
    assert(reader->fd_count <= FRAME_FD_QUEUE);
}

void frame_reader_deinit(struct frame_reader *reader)
{
    frame_check_invariants(reader);
    for (uint32_t i = 0; i < reader->fd_count; i++)
        close(reader->fds[i]);
    free(reader->data);
    memset(reader, 0, sizeof *reader);
}

int frame_reader_reserve(struct frame_reader *reader, size_t want, uint8_t **ret_space,
                         size_t *ret_len)
{
    size_t waiting = reader->end - reader->begin;

    frame_check_invariants(reader);
    if (waiting >= FRAME_HEADER_BYTES + DL_MAX_FRAME_BYTES)
        return -ENOBUFS;
    if (want > SIZE_MAX / 4)
        return -ENOMEM;
    if (reader->cap - reader->end < want && reader->begin > 0) {
        memmove(reader->data, reader->data + reader->begin, waiting);
        reader->begin = 0;
        reader->end = waiting;
    }
    if (reader->cap - reader->end < want) {
        /* Doubling keeps a large frame from being copied at every read, up to the promised bound.
         */
        size_t bound = FRAME_HEADER_BYTES + DL_MAX_FRAME_BYTES + want;
        size_t cap = max_u64(waiting + want, min_u64(reader->cap * 2, bound));
        uint8_t *data = realloc(reader->data, cap);

        if (!data)
            return -ENOMEM;
        reader->data = data;
        reader->cap = cap;
    }
    *ret_space = reader->data + reader->end;
    *ret_len = reader->cap - reader->end;
    return 0;
}

void frame_reader_trim(struct frame_reader *reader)
{
    if (reader->begin < reader->end || reader->cap <= FRAME_KEEP_BYTES)
        return;
    free(reader->data);
    reader->data = NULL;
    reader->cap = reader->begin = reader->end = 0;
}

void frame_reader_commit(struct frame_reader *reader, size_t len)
{
    assert(len <= reader->cap - reader->end);
    reader->end += len;
}

int frame_reader_push_fd(struct frame_reader *reader, int fd)
{
    frame_check_invariants(reader);
    if (reader->fd_count == FRAME_FD_QUEUE) {
        close(fd);
        return -EMFILE;
    }
    reader->fds[reader->fd_count++] = fd;
    return 0;
}

int frame_reader_take_fd(struct frame_reader *reader)
{
    int fd;

    frame_check_invariants(reader);
    if (reader->fd_count == 0)
        return -1;
    fd = reader->fds[0];
    reader->fd_count--;
    memmove(reader->fds, reader->fds + 1, reader->fd_count * sizeof reader->fds[0]);
    return fd;
}

int frame_reader_next(struct frame_reader *reader, struct dl_span *ret)
{
    size_t waiting = reader->end - reader->begin;
    uint32_t len;

    frame_check_invariants(reader);
    if (waiting < FRAME_HEADER_BYTES)
        return 0;
    len = load_le32(reader->data + reader->begin);
    if (len == 0 || len > DL_MAX_FRAME_BYTES)
        return -EMSGSIZE;
    if (waiting - FRAME_HEADER_BYTES < len)
        return 0;
    *ret = (struct dl_span){reader->data + reader->begin + FRAME_HEADER_BYTES, len};
    reader->begin += FRAME_HEADER_BYTES + len;
    return 1;
}
