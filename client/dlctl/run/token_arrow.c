#include "client/dlctl/run/token_arrow.h"

#include <string.h>

/*
 * FlatBuffers by hand, little-endian, in words of 4 bytes. A table is behind the list of its
 * fields, which has, in 2 bytes each: the list's bytes, the table's, and where each field is in the
 * table, 0 for one that is absent. The table begins with how far the list is before it. A reference
 * is how far what it names is behind it.
 */
#define CONTINUES           UINT32_C(0xFFFFFFFF)
#define PAIR(first, second) ((uint32_t)(first) | (uint32_t)(second) << 16)
#define TEXT(a, b, c, d)    (PAIR((a) | (b) << 8, (c) | (d) << 8))

enum { VERSION_5 = 4, IS_SCHEMA = 1, IS_RECORD_BATCH = 3, INT = 2, LIST = 12 };

/* clang-format off */
static const uint32_t token_arrow_schema_words[TOKEN_ARROW_SCHEMA / 4] = {
    CONTINUES, TOKEN_ARROW_SCHEMA - 8,
    16,
    PAIR(10, 12), PAIR(8, 10), PAIR(4, 0),              /* version, header_type, header */
    12, 16, PAIR(VERSION_5, IS_SCHEMA),                 /* Message */
    PAIR(8, 8), PAIR(0, 4),                             /* endianness, fields */
    8, 4,                                               /* Schema */
    1, 20,                                              /* its fields */
    PAIR(16, 20), PAIR(4, 0), PAIR(16, 8), PAIR(0, 12), /* name, nullable, type_type, type,
                                                           dictionary, children */
    16, 16, 28, 28, LIST,                               /* Field */
    6, TEXT('t', 'o', 'k', 'e'), TEXT('n', 's', 0, 0),
    PAIR(4, 4),
    4,                                                  /* List */
    1, 20,                                              /* its children */
    PAIR(16, 20), PAIR(4, 0), PAIR(16, 8), PAIR(0, 12),
    16, 16, 32, 40, INT,                                /* Field */
    4, TEXT('i', 't', 'e', 'm'), 0,
    PAIR(8, 12), PAIR(4, 8),                            /* bitWidth, is_signed */
    8, 32, 1,                                           /* Int */
    0,                                                  /* its children */
    0,
};

static const uint32_t token_arrow_head_words[TOKEN_ARROW_HEAD / 4] = {
    CONTINUES, TOKEN_ARROW_HEAD - 8,
    16,
    PAIR(12, 24), PAIR(16, 18), PAIR(4, 8),             /* version, header_type, header, bodyLength */
    12, 32, 0, 0, PAIR(VERSION_5, IS_RECORD_BATCH), 0,  /* Message */
    PAIR(10, 20), PAIR(12, 4), PAIR(8, 0),              /* length, nodes, buffers */
    12, 20, 56, 0, 0,                                   /* RecordBatch */
    0, 2,                                               /* nodes: of lists, and of what is in them */
    0, 0, 0, 0, 0, 0, 0, 0,
    0, 4,                                               /* buffers: of each a validity, and values */
};
/* clang-format on */

/* Words of token_arrow_head_words that are filled in. */
enum { BODY = 8, LENGTH = 18, NODES = 22, BUFFERS = 32 };

static const uint32_t token_arrow_end_words[TOKEN_ARROW_END / 4] = {CONTINUES, 0};

const void *token_arrow_schema(void)
{
    return token_arrow_schema_words;
}

const void *token_arrow_end(void)
{
    return token_arrow_end_words;
}

static void token_arrow_put(uint8_t *ret, unsigned word, uint64_t value)
{
    memcpy(ret + 4 * word, &value, sizeof value);
}

void token_arrow_head(uint64_t documents, uint64_t tokens, uint8_t ret[static TOKEN_ARROW_HEAD])
{
    uint64_t starts = token_arrow_bytes(tokens);

    memcpy(ret, token_arrow_head_words, sizeof token_arrow_head_words);
    token_arrow_put(ret, BODY, starts + token_arrow_bytes(documents + 1));
    token_arrow_put(ret, LENGTH, documents);
    token_arrow_put(ret, NODES, documents);
    token_arrow_put(ret, NODES + 4, tokens);
    token_arrow_put(ret, BUFFERS + 4, starts);
    token_arrow_put(ret, BUFFERS + 6, (documents + 1) * sizeof(int32_t));
    token_arrow_put(ret, BUFFERS + 14, tokens * sizeof(int32_t));
}
