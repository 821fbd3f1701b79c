#include "daemon/data/kinds/hdf5/hdf5_head.h"

#include <errno.h>

enum { MESSAGES_MAX = 1 << 16, BLOCKS_MAX = 1 << 8, ADDRESS = 8 };

static const uint8_t hdf5_signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1A, '\n'};

int hdf5_refuse(const struct hdf5_view *view, const char *what, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, view->path, "is damaged: %s", what);
}

/* ---- the superblock ------------------------------------------------------------------------- */

/* Where a superblock of the version has the sizes, the file's base and end, and its root's header.
 */
struct hdf5_super {
    uint8_t bytes, offsets, lengths, base, end, root;
};

static bool hdf5_begins(const struct hdf5_view *view, uint64_t at)
{
    const uint8_t *first = hdf5_bytes(view, at, sizeof hdf5_signature);

    return first && memcmp(first, hdf5_signature, sizeof hdf5_signature) == 0;
}

void hdf5_skip_user_block(struct hdf5_view *view)
{
    enum { BLOCK_MIN = 512 };
    uint64_t at = 0;

    while (!hdf5_begins(view, at)) {
        at = at == 0 ? BLOCK_MIN : 2 * at;
        if (at >= view->bytes)
            return;
    }
    view->data += at;
    view->bytes -= at;
    view->base = at;
}

int hdf5_find_root(const struct hdf5_view *view, uint64_t *ret, struct dl_error *err)
{
    static const struct hdf5_super versions[] = {{96, 13, 14, 24, 40, 64},
                                                 {100, 13, 14, 28, 44, 68},
                                                 {48, 9, 10, 12, 28, 36},
                                                 {48, 9, 10, 12, 28, 36}};
    const uint8_t *first = hdf5_bytes(view, 0, sizeof hdf5_signature + 1);

    if (!first || !hdf5_begins(view, 0))
        return dl_error_set(err, EINVAL, view->path, "is not an HDF5 file");
    if (first[8] >= ARRAY_SIZE(versions))
        return dl_error_set(err, ENOTSUP, view->path,
                            "has a superblock of version %u; 0 to 3 are supported", first[8]);
    const struct hdf5_super *super = &versions[first[8]];
    if (!hdf5_bytes(view, 0, super->bytes))
        return hdf5_refuse(view, "it ends in its superblock", err);
    if (first[super->offsets] != ADDRESS || first[super->lengths] != ADDRESS ||
        hdf5_number(first + super->base, ADDRESS) != view->base)
        return dl_error_set(err, ENOTSUP, view->path,
                            "has addresses of %u bytes, or addresses that are counted from "
                            "elsewhere than its beginning; copy it with h5repack",
                            first[super->offsets]);
    uint64_t end = hdf5_number(first + super->end, ADDRESS), there = view->base + view->bytes;
    if (end > there)
        return dl_error_set(
            err, EINVAL, view->path,
            "should have %llu bytes, but has %llu; it is truncated, or was not closed", (ull)end,
            (ull)there);
    *ret = hdf5_number(first + super->root, ADDRESS);
    return 0;
}

/* ---- object headers ------------------------------------------------------------------------- */

/* A walk through the blocks of a header, which lead to each other. */
struct hdf5_walk {
    const struct hdf5_view *view;
    hdf5_message_fn fn;
    void *owner;
    bool is_new;       /* version 2 */
    bool has_order;    /* its messages have numbers */
    unsigned messages; /* so far */
    unsigned blocks;
};

static int hdf5_walk_block(struct hdf5_walk *walk, const uint8_t *data, uint64_t bytes,
                           struct dl_error *err);

/* Another block of the header. */
static int hdf5_continue(struct hdf5_walk *walk, const struct hdf5_message *message,
                         struct dl_error *err)
{
    enum { SIGNATURE = 4, SUM = 4 };

    if (message->bytes < 16 || walk->blocks++ == BLOCKS_MAX)
        return hdf5_refuse(walk->view, "a header does not end", err);
    uint64_t n = hdf5_number(message->data + 8, 8);
    const uint8_t *data = hdf5_bytes(walk->view, hdf5_number(message->data, 8), n);
    if (!data || (walk->is_new && (n < SIGNATURE + SUM || memcmp(data, "OCHK", 4) != 0)))
        return hdf5_refuse(walk->view, "a header continues outside it", err);
    return walk->is_new ? hdf5_walk_block(walk, data + SIGNATURE, n - SIGNATURE - SUM, err)
                        : hdf5_walk_block(walk, data, n, err);
}

/* Reads the message at `data`, with `bytes` left, of which it uses *ret_used. */
static int hdf5_read_message(struct hdf5_walk *walk, const uint8_t *data, uint64_t bytes,
                             uint64_t *ret_used, struct dl_error *err)
{
    unsigned type_bytes = walk->is_new ? 1 : 2;
    unsigned head = walk->is_new ? (walk->has_order ? 6 : 4) : 8;

    if (bytes < head) { /* a gap */
        *ret_used = bytes;
        return 0;
    }
    struct hdf5_message message = {.type = (enum hdf5_message_type)hdf5_number(data, type_bytes),
                                   .is_shared = data[type_bytes + 2] & 2,
                                   .data = data + head,
                                   .bytes = hdf5_number(data + type_bytes, 2)};
    if (message.bytes > bytes - head || walk->messages++ == MESSAGES_MAX)
        return hdf5_refuse(walk->view, "a message of a header is longer than it", err);
    *ret_used = head + message.bytes;
    return message.type == HDF5_CONTINUATION ? hdf5_continue(walk, &message, err)
                                             : walk->fn(walk->owner, &message, err);
}

static int hdf5_walk_block(struct hdf5_walk *walk, const uint8_t *data, uint64_t bytes,
                           struct dl_error *err)
{
    int r = 0;

    for (uint64_t at = 0, used = 0; r == 0 && at < bytes; at += used)
        r = hdf5_read_message(walk, data + at, bytes - at, &used, err);
    return r;
}

/* [OHDR] [version 2] [flags] [times: 16] [phases: 4] [size: 1, 2, 4 or 8] */
static int hdf5_walk_new(struct hdf5_walk *walk, const uint8_t *head, uint64_t at,
                         struct dl_error *err)
{
    uint8_t flags = head[5];
    unsigned size_bytes = 1U << (flags & 3);
    uint64_t before = 6 + (flags & 0x20 ? 16 : 0) + (flags & 0x10 ? 4 : 0);
    const uint8_t *size = hdf5_bytes(walk->view, at + before, size_bytes);

    walk->is_new = true;
    walk->has_order = flags & 4;
    uint64_t n = size ? hdf5_number(size, size_bytes) : 0;
    const uint8_t *data = size ? hdf5_bytes(walk->view, at + before + size_bytes, n) : NULL;
    return data ? hdf5_walk_block(walk, data, n, err)
                : hdf5_refuse(walk->view, "a header is not in it", err);
}

int hdf5_walk_messages(const struct hdf5_view *view, uint64_t at, hdf5_message_fn fn, void *owner,
                       struct dl_error *err)
{
    enum { HEAD = 16 };
    struct hdf5_walk walk = {.view = view, .fn = fn, .owner = owner};
    const uint8_t *head = hdf5_bytes(view, at, HEAD);

    if (!head)
        return hdf5_refuse(view, "a header is not in it", err);
    if (memcmp(head, "OHDR\2", 5) == 0)
        return hdf5_walk_new(&walk, head, at, err);
    uint64_t n = hdf5_number(head + 8, 4);
    const uint8_t *data = hdf5_bytes(view, at + HEAD, n);
    if (head[0] != 1 || !data)
        return hdf5_refuse(view, "a header is not in it, or of an unknown version", err);
    return hdf5_walk_block(&walk, data, n, err);
}
