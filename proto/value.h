/*
 * A value tree: what YAML, JSON and msgpack have in common. Loader specs, the configuration and
 * the views of `dlctl` are values. Pure; bounded by DL_MAX_VALUE_DEPTH and DL_MAX_VALUE_NODES.
 */
#ifndef DL_VALUE_H
#define DL_VALUE_H

#include "proto/common/bytes.h"
#include "proto/common/error.h"
#include "proto/limits.h"

enum value_type {
    VALUE_NULL,
    VALUE_BOOL,
    VALUE_INT,  /* int64 */
    VALUE_UINT, /* only above INT64_MAX */
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_ARRAY,
    VALUE_MAP, /* keys are strings, unique, in the order they came */
};

struct value {
    enum value_type type;
    bool boolean;
    int64_t integer;
    uint64_t uinteger;
    double number;
    char *string;        /* owned; NUL-terminated, holds no other NUL */
    char *key;           /* owned; this value's key when its parent is a map, else NULL */
    struct value *items; /* owned array of `count` children */
    uint32_t count;
    uint32_t cap;
    uint32_t line; /* in the source text, from 1; 0 = unknown */
};

void value_deinit(struct value *v); /* frees all below; zeroes v */

/* Replaces what `to` (initialised) holds by what `from` holds, and zeroes `from`. A value belongs
 * to its place in a map, so `to` keeps its own key. */
void value_move(struct value *from, struct value *to);

/* Looks up a key in a map; NULL when absent, or `v` is NULL or not a map. */
const struct value *value_get(const struct value *v, const char *key);

/* Any kind of number; NAN if `v` is NULL or not a number. */
double value_real(const struct value *v);
/* Of an integer from 0 on; else 0, as for NULL. */
uint64_t value_count(const struct value *v);

/* "an integer", "a string", ... for messages. */
const char *value_type_name(const struct value *v);

/*
 * Builders. All return 0 or -ENOMEM; `map` setters replace an existing key. value_set/value_push
 * give a pointer to the new null child, valid until the next one is added. A null value becomes the
 * map or array that it is used as. value_make_string and value_copy replace what an initialised
 * value holds, and leave it its key.
 */
int _nodiscard_ value_set(struct value *map, const char *key, struct value **ret);
void value_unset(struct value *map, const char *key); /* does nothing if the key is absent */
int _nodiscard_ value_push(struct value *array, struct value **ret);
int _nodiscard_ value_set_int(struct value *map, const char *key, int64_t i);
int _nodiscard_ value_set_uint(struct value *map, const char *key, uint64_t u);
int _nodiscard_ value_set_bool(struct value *map, const char *key, bool b);
int _nodiscard_ value_set_float(struct value *map, const char *key, double d);
int _nodiscard_ value_set_string(struct value *map, const char *key, const char *s);
void value_make_uint(struct value *v, uint64_t u); /* `v` is null */
int _nodiscard_ value_make_string(struct value *v, const char *s);
int _nodiscard_ value_copy(const struct value *from, struct value *to);

/*
 * For parsers: value_append() adds a null child without looking for an earlier one of that key
 * (`len` bytes, without NUL; may be NULL when 0); when the map is complete, value_duplicate()
 * returns the first child whose key occurred before, or NULL, in O(n log n).
 */
int _nodiscard_ value_append(struct value *map, const char *key, size_t len, struct value **ret);
int _nodiscard_ value_duplicate(const struct value *map, const struct value **ret);

/* Memory that it takes. */
uint64_t value_bytes(const struct value *v);

bool value_equal(const struct value *a, const struct value *b); /* maps: in any key order */

/*
 * Walks msgpack bytes without allocating: 0 when they hold exactly one value (*ret_len bytes, when
 * ret_len is NULL the value must fill `len`) within the depth and node limits; else -EBADMSG, or
 * -EMSGSIZE past a limit. Every byte that msgpack-c sees passed this first.
 */
int _nodiscard_ value_scan(const uint8_t *data, size_t len, size_t *ret_len);

/*
 * msgpack → value (scanned inside). -EBADMSG with `err` for extension and bin types, keys that are
 * not strings or occur twice, and text that is not UTF-8 or holds a NUL; -EMSGSIZE past a limit;
 * -ENOMEM.
 */
int _nodiscard_ value_unpack(const uint8_t *data, size_t len, struct value *ret,
                             struct dl_error *err);

/*
 * value → msgpack, appended. Map keys keep their order. -ENOMEM, or -EMSGSIZE for a tree that
 * value_scan() would refuse; `out` is then as it was.
 */
int _nodiscard_ value_pack(const struct value *v, struct dl_buffer *out);

#endif
