/* What the states, heads, cards and pages of a rendezvous are made of: msgpack's numbers, texts and
 * arrays. What is read is a stranger's: each number is looked at. Pure. */
#ifndef DL_RENDEZVOUS_BYTES_H
#define DL_RENDEZVOUS_BYTES_H

#include "proto/codec.h"
#include "proto/scan.h"

/* These append. */
void rdzv_bytes_put_uint(struct dl_buffer *out, uint64_t n);
void rdzv_bytes_put_uints(struct dl_buffer *out, const uint64_t *numbers, size_t n);
void rdzv_bytes_put_array(struct dl_buffer *out, uint32_t n);
void rdzv_bytes_put_text(struct dl_buffer *out, const char *text);
/* The head of `len` bytes. */
void rdzv_bytes_put_bin(struct dl_buffer *out, uint32_t len);

struct rdzv_reader {
    const uint8_t *at;
    size_t left;
    bool bad;
};

/* These make it bad where something else is there, and from then on return zeros. */
struct token rdzv_bytes_take(struct rdzv_reader *in, enum token_type type);
/* The head of an array with at least this many fields: a later release may have added some at the
 * end. Returns how many. */
uint64_t rdzv_bytes_take_fields(struct rdzv_reader *in, uint64_t known);
uint64_t rdzv_bytes_take_uint(struct rdzv_reader *in, uint64_t least, uint64_t most);
/* Fits, and can be shown: texts of other nodes come into logs and onto terminals. */
void rdzv_bytes_take_text(struct rdzv_reader *in, char *ret, size_t size);
/* Steps over `n` values of any kind. */
void rdzv_bytes_skip(struct rdzv_reader *in, uint64_t values);

#endif
