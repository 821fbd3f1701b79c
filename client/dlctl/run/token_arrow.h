/*
 * Documents of tokens as an Arrow IPC stream (format/Message.fbs, Schema.fbs): one column `tokens`,
 * of lists of int32. A record batch is its head, the tokens of its documents, and where each
 * begins, both padded to 8 bytes. So tokens are written before it is known how many there are, and
 * the head again then. Pure.
 */
#ifndef DLCTL_TOKEN_ARROW_H
#define DLCTL_TOKEN_ARROW_H

#include <stdint.h>

enum { TOKEN_ARROW_SCHEMA = 200, TOKEN_ARROW_HEAD = 192, TOKEN_ARROW_END = 8 };

/* Bytes that a stream begins and ends with. */
const void *token_arrow_schema(void);
const void *token_arrow_end(void);

void token_arrow_head(uint64_t documents, uint64_t tokens, uint8_t ret[static TOKEN_ARROW_HEAD]);

/* Of int32, with their padding. */
static inline uint64_t token_arrow_bytes(uint64_t n)
{
    return (n + n % 2) * sizeof(int32_t);
}

#endif
