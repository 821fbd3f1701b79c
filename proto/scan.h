/*
 * One msgpack head at a time, without allocation: the bounded reader under value_scan() and the
 * message decoder. A token describes what starts here and how much belongs to it; nothing beyond
 * the given bytes is trusted. Internal to proto/. Pure.
 */
#ifndef DL_SCAN_H
#define DL_SCAN_H

#include "proto/value.h"

enum token_type {
    TOKEN_SCALAR, /* nil, boolean, float, negative integer: complete in its head */
    TOKEN_UINT,   /* `n` is its value */
    TOKEN_STR,    /* `n` bytes follow the head; as TOKEN_BIN and TOKEN_EXT */
    TOKEN_BIN,
    TOKEN_EXT,
    TOKEN_ARRAY, /* `n` values follow */
    TOKEN_MAP,   /* `n` pairs of values follow */
};

struct token {
    enum token_type type;
    uint64_t n;
    size_t head;   /* bytes of the head itself, 1..9 */
    uint64_t body; /* bytes after the head that belong to it; 0 unless STR, BIN, EXT */
};

/* 0, or -EBADMSG when the head or the body is cut off, or the first byte is the unused 0xC1. */
int _nodiscard_ token_read(const uint8_t *data, size_t len, struct token *ret);

#endif
