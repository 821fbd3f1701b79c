/*
 * The body of a message whose buffers are compressed, unpacked: by LZ4's frames or zstd, each
 * buffer separately, after its length in 8 bytes; Arrow's format/Message.fbs, BodyCompression.
 *
 * Memory is bounded by the file: 64 MiB, and 1024 times the bytes of the message; more counts as
 * damage. Pure but for memory.
 */
#ifndef DL_DATA_ARROW_BODY_H
#define DL_DATA_ARROW_BODY_H

#include "daemon/data/kinds/arrow/arrow_message.h"
#include "daemon/data/kinds/arrow/arrow_schema.h"

struct arrow_body {
    uint8_t *data;  /* owned; the buffers, and in front of them */
    uint8_t *from;  /* borrowed of data: where offsets are counted from */
    uint64_t bytes; /* behind `from` */
    uint32_t n;     /* buffers; their places are at the beginning of data, as in a message */
};

/* The table of a record batch in the message: in a dictionary's it is a part. */
struct flat_table arrow_body_records(struct arrow_message *message);
/* Whether the message is marked as compressed. */
bool arrow_body_is_packed(struct arrow_message *message);

/* Bytes that its body may unpack to. */
uint64_t arrow_body_most(const struct arrow_message *message);

/*
 * Unpacks the buffers of the fields that `schema` keeps; NULL: all. Other buffers become empty.
 * -EINVAL: damaged; -ENOTSUP: this build lacks zstd; -ENOMEM; with `err`.
 */
int _nodiscard_ arrow_body_unpack(const struct arrow_view *view, struct arrow_message *message,
                                  const struct arrow_schema *schema, struct arrow_body *ret,
                                  struct dl_error *err);
void arrow_body_deinit(struct arrow_body *body);

#endif
