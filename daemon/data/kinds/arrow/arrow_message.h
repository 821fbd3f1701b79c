/*
 * The messages that Arrow IPC streams and files are made of: a size, metadata by FlatBuffers, and
 * a body. Numbers and layout are those of Arrow's format/Message.fbs and format/File.fbs.
 */
#ifndef DL_DATA_ARROW_MESSAGE_H
#define DL_DATA_ARROW_MESSAGE_H

#include "daemon/data/kinds/arrow/flat.h"
#include "proto/common/error.h"

/* The whole file or message. */
struct arrow_view {
    const char *path;    /* borrowed; for messages */
    const uint8_t *data; /* borrowed */
    uint64_t bytes;
};

/* The fields of a RecordBatch, and the bytes of one of its buffers: offset in the body, length. */
enum {
    RECORDS_LENGTH,
    RECORDS_NODES,
    RECORDS_BUFFERS,
    RECORDS_COMPRESSION,
    RECORDS_VARIADIC,
    RECORDS_BUFFER_BYTES = 16,
};

enum arrow_header { ARROW_SCHEMA = 1, ARROW_DICTIONARY, ARROW_RECORDS };

struct arrow_message {
    uint64_t at; /* in the view */
    uint64_t end;
    struct flat flat; /* the metadata, in the view */
    int64_t type;     /* enum arrow_header, or an unknown type */
    struct flat_table header;
    struct flat_vector pairs; /* of keys and values: arrow_pair() */
    bool is_version_4;        /* of Arrow before 1.0 */
    const uint8_t *body;
    uint64_t body_bytes;
};

#define ARROW_END 1 /* not an error: no message follows */

/* The message at byte `at`. 0; ARROW_END; or -EINVAL with `err`: damaged, or cut. */
int _nodiscard_ arrow_message_read(const struct arrow_view *view, uint64_t at,
                                   struct arrow_message *ret, struct dl_error *err);

/* The value of a key in a vector of KeyValue tables; or NULL. Not terminated. */
const char *arrow_pair(struct flat *flat, const struct flat_vector *pairs, const char *key,
                       uint32_t *ret_len);

/* -EINVAL with the defect of a batch, such as "has a buffer that lies outside of it". */
int _nodiscard_ arrow_batch_refuse(const struct arrow_view *view,
                                   const struct arrow_message *message, const char *why,
                                   struct dl_error *err);

/* Where a file, which unlike a stream begins and ends with a mark, has its messages. */
struct arrow_footer {
    struct flat flat;
    struct flat_table schema;
    struct flat_vector dictionaries; /* of blocks: arrow_block() */
    struct flat_vector records;
};

bool arrow_is_file(const struct arrow_view *view);
/* Of a file. -EINVAL with `err`. */
int _nodiscard_ arrow_footer_read(const struct arrow_view *view, struct arrow_footer *ret,
                                  struct dl_error *err);
/* Where the message of block `i` begins. */
uint64_t arrow_block(const struct flat_vector *blocks, uint32_t i);

#endif
