/*
 * Frames on a byte stream: a 4-byte little-endian payload length, then the payload.
 *
 * frame_reader collects bytes and hands out whole payloads; it never allocates more than
 * DL_MAX_FRAME_BYTES plus one read. Descriptors that arrive are queued in order and taken by the
 * messages that declare them. Pure: bytes and numbers in, spans out (closing fds is its only call).
 */
#ifndef DL_FRAME_H
#define DL_FRAME_H

#include "proto/codec.h"

enum { FRAME_HEADER_BYTES = 4, FRAME_FD_QUEUE = 64, FRAME_KEEP_BYTES = 128 * 1024 };

struct frame_reader {
    uint8_t *data; /* owned */
    size_t cap;
    size_t begin;            /* first byte not yet handed out */
    size_t end;              /* first free byte */
    int fds[FRAME_FD_QUEUE]; /* owned */
    uint32_t fd_count;
};

void frame_reader_deinit(struct frame_reader *reader); /* closes queued fds */

/*
 * Room for at least `want` bytes at *ret_space (may invalidate spans handed out before).
 * Then frame_reader_commit() says how many arrived. Returns 0, -ENOMEM, or -ENOBUFS when at least
 * one whole frame of the largest size waits: call frame_reader_next() until it gives 0 first.
 */
int _nodiscard_ frame_reader_reserve(struct frame_reader *reader, size_t want, uint8_t **ret_space,
                                     size_t *ret_len);
/* What a large frame took is released, if nothing waits. Invalidates spans. */
void frame_reader_trim(struct frame_reader *reader);
void frame_reader_commit(struct frame_reader *reader, size_t len);

/* Consumes `fd`. Returns 0, or -EMFILE (and closes it) when too many wait unclaimed. */
int _nodiscard_ frame_reader_push_fd(struct frame_reader *reader, int fd);

/* The oldest queued descriptor (the caller owns it), or -1. */
int frame_reader_take_fd(struct frame_reader *reader);

/*
 * The next whole payload: 1 and *ret (valid until the next reserve), 0 when more bytes are needed,
 * -EMSGSIZE when the announced length is 0 or above DL_MAX_FRAME_BYTES.
 */
int _nodiscard_ frame_reader_next(struct frame_reader *reader, struct dl_span *ret);

#endif
