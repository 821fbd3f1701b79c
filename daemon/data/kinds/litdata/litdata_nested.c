#include "daemon/data/kinds/litdata/litdata_nested.h"

#include "daemon/data/field/json_field.h"

#include <errno.h>

enum {
    NESTED_JSON,
    NESTED_TEXTS,
    NESTED_BOOLS = 4,
    NESTED_DICT,
    NESTED_RECORDS,
    NESTED_SCALARS,
    NESTED_TEXT_FROM = 0x20, /* no tag is greater: JSON */
    RECORD_NULL = 0x10,      /* and then the others, in the order of below */
    RECORD_BOOL = 0x14,
};
/* Scalars, in the order of their tags. */
enum nested_scalar { SCALAR_TEXT, SCALAR_INT, SCALAR_FLOAT, SCALAR_BOOL, SCALAR_NULL };

/* The rest of the input. */
struct litdata_nested {
    const uint8_t *at;
    uint64_t left;
    struct sample *ret;
    struct dl_error *err;
};

static int litdata_nested_refuse(const struct litdata_nested *n)
{
    return dl_error_set(n->err, EINVAL, "", "is nested in a way that is damaged, or not known");
}

/* The next `bytes` bytes; NULL beyond the end. */
static const uint8_t *litdata_nested_take(struct litdata_nested *n, uint64_t bytes)
{
    const uint8_t *at = n->at;

    if (bytes > n->left)
        return NULL;
    n->at += bytes;
    n->left -= bytes;
    return at;
}

static bool litdata_nested_count(struct litdata_nested *n, uint32_t *ret)
{
    const uint8_t *at = litdata_nested_take(n, sizeof *ret);

    if (!at)
        return false;
    memcpy(ret, at, sizeof *ret);
    *ret = le32toh(*ret);
    return true;
}

/* A text as a key, which ends with a NUL. */
static bool litdata_nested_key(struct litdata_nested *n, char ret[static DL_BOUND_NAME_BYTES + 1])
{
    uint32_t len;
    const uint8_t *text = litdata_nested_count(n, &len) ? litdata_nested_take(n, len) : NULL;

    if (!text || len > DL_BOUND_NAME_BYTES || memchr(text, '\0', len))
        return false;
    memcpy(ret, text, len);
    ret[len] = '\0';
    return true;
}

static int litdata_nested_add_text(struct litdata_nested *n, const char *key)
{
    uint32_t len;
    const uint8_t *text = litdata_nested_count(n, &len) ? litdata_nested_take(n, len) : NULL;

    if (!text)
        return litdata_nested_refuse(n);
    int r = sample_text(n->ret, TREE_STRING, key, text, len);
    return r == -EILSEQ ? dl_error_set(n->err, EILSEQ, "", "has a text that is not UTF-8") : r;
}

static int litdata_nested_add_scalar(struct litdata_nested *n, uint32_t scalar, const char *key)
{
    const uint8_t *at;

    switch (scalar) {
    case SCALAR_TEXT:
        return litdata_nested_add_text(n, key);
    case SCALAR_INT:
    case SCALAR_FLOAT:
        at = litdata_nested_take(n, 8);
        if (!at)
            return litdata_nested_refuse(n);
        return sample_tensor(n->ret, key, scalar == SCALAR_INT ? DL_DTYPE_INT64 : DL_DTYPE_FLOAT64,
                             0, NULL, at);
    case SCALAR_BOOL:
        at = litdata_nested_take(n, 1);
        return at ? sample_bool(n->ret, key, *at != 0) : litdata_nested_refuse(n);
    case SCALAR_NULL:
        return dl_error_set(n->err, EINVAL, "",
                            "has a null, which a batch cannot hold; leave the key out, or take the "
                            "bytes with decode: false");
    default:
        return litdata_nested_refuse(n);
    }
}

static int litdata_nested_add_list(struct litdata_nested *n, uint32_t scalar, const char *key)
{
    uint32_t count;

    if (!litdata_nested_count(n, &count))
        return litdata_nested_refuse(n);
    int r = sample_begin(n->ret, TREE_LIST, key);
    for (uint32_t i = 0; r == 0 && i < count; i++)
        r = litdata_nested_add_scalar(n, scalar, NULL);
    return r < 0 ? r : sample_end(n->ret);
}

static int litdata_nested_add_value(struct litdata_nested *n, const char *key);

static int litdata_nested_add_dict(struct litdata_nested *n, const char *key)
{
    char name[DL_BOUND_NAME_BYTES + 1];
    uint32_t count;

    if (!litdata_nested_count(n, &count))
        return litdata_nested_refuse(n);
    int r = sample_begin(n->ret, TREE_DICT, key);
    for (uint32_t i = 0; r == 0 && i < count; i++)
        r = litdata_nested_key(n, name) ? litdata_nested_add_value(n, name)
                                        : litdata_nested_refuse(n);
    return r < 0 ? r : sample_end(n->ret);
}

/* One dict, with the keys in `keys`. */
static int litdata_nested_add_record(struct litdata_nested *n, struct litdata_nested keys,
                                     uint32_t count)
{
    char name[DL_BOUND_NAME_BYTES + 1];
    int r = sample_begin(n->ret, TREE_DICT, NULL);

    for (uint32_t i = 0; r == 0 && i < count; i++) {
        const uint8_t *tag = litdata_nested_take(n, 1);
        if (!tag || *tag < RECORD_NULL || *tag > RECORD_BOOL || !litdata_nested_key(&keys, name))
            return litdata_nested_refuse(n);
        uint32_t scalar = *tag == RECORD_NULL ? SCALAR_NULL : *tag - RECORD_NULL - 1U;
        r = litdata_nested_add_scalar(n, scalar, name);
    }
    return r < 0 ? r : sample_end(n->ret);
}

static int litdata_nested_add_records(struct litdata_nested *n, const char *key)
{
    char name[DL_BOUND_NAME_BYTES + 1];
    uint32_t count, columns;

    if (!litdata_nested_count(n, &count) || !litdata_nested_count(n, &columns))
        return litdata_nested_refuse(n);
    struct litdata_nested keys = *n;
    for (uint32_t i = 0; i < columns; i++)
        if (!litdata_nested_key(n, name))
            return litdata_nested_refuse(n);
    int r = sample_begin(n->ret, TREE_LIST, key);
    for (uint32_t i = 0; r == 0 && i < count; i++)
        r = litdata_nested_add_record(n, keys, columns);
    return r < 0 ? r : sample_end(n->ret);
}

static int litdata_nested_add_json(struct litdata_nested *n, const char *key)
{
    uint32_t len;
    const uint8_t *text = litdata_nested_count(n, &len) ? litdata_nested_take(n, len) : NULL;

    return text ? json_field_add(text, len, key, n->ret, n->err) : litdata_nested_refuse(n);
}

/* As deep as a sample may be: then sample_begin() refuses. */
static int litdata_nested_add_value(struct litdata_nested *n, const char *key)
{
    const uint8_t *tag = litdata_nested_take(n, 1);

    if (!tag)
        return litdata_nested_refuse(n);
    switch (*tag) {
    case NESTED_JSON:
        return litdata_nested_add_json(n, key);
    case NESTED_DICT:
        return litdata_nested_add_dict(n, key);
    case NESTED_RECORDS:
        return litdata_nested_add_records(n, key);
    default:
        break;
    }
    if (*tag >= NESTED_TEXTS && *tag <= NESTED_BOOLS)
        return litdata_nested_add_list(n, *tag - NESTED_TEXTS, key);
    return litdata_nested_add_scalar(n, *tag - (uint32_t)NESTED_SCALARS, key);
}

int litdata_nested_add(const uint8_t *data, uint64_t bytes, const char *name, struct sample *ret,
                       struct dl_error *err)
{
    struct litdata_nested n = {.at = data, .left = bytes, .ret = ret, .err = err};

    if (bytes == 0 || *data > NESTED_TEXT_FROM)
        return json_field_add(data, bytes, name, ret, err);
    int r = litdata_nested_add_value(&n, name);
    return r == 0 && n.left > 0 ? litdata_nested_refuse(&n) : r;
}
