/*
 * Values as msgpack bytes and back. The one place where msgpack-c decodes what a peer sent: the
 * bytes have passed value_scan() by then, so that its allocations are bounded by theirs.
 */
#include "proto/common/utf8.h"
#include "proto/value.h"

#include <errno.h>
#include <msgpack.h>

static int value_msgpack_from_object(const msgpack_object *object, struct value *ret,
                                     struct dl_error *err);

static int value_msgpack_check_text(const msgpack_object_str *str, const char *what,
                                    struct dl_error *err)
{
    if (!utf8_text((const uint8_t *)str->ptr, str->size))
        return dl_error_set(err, EBADMSG, "", "a %s is not UTF-8 text without NUL", what);
    return 0;
}

static int value_msgpack_from_string(const msgpack_object_str *str, struct value *ret,
                                     struct dl_error *err)
{
    int r = value_msgpack_check_text(str, "string", err);
    if (r < 0)
        return r;
    ret->type = VALUE_STRING;
    ret->string = strndup(str->size ? str->ptr : "", str->size); /* ptr is NULL when empty */
    return ret->string ? 0 : -ENOMEM;
}

static int value_msgpack_from_array(const msgpack_object_array *array, struct value *ret,
                                    struct dl_error *err)
{
    ret->type = VALUE_ARRAY;
    for (uint32_t i = 0; i < array->size; i++) {
        struct value *child;
        int r = value_push(ret, &child);
        if (r == 0)
            r = value_msgpack_from_object(&array->ptr[i], child, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int value_msgpack_from_map(const msgpack_object_map *map, struct value *ret,
                                  struct dl_error *err)
{
    ret->type = VALUE_MAP;
    for (uint32_t i = 0; i < map->size; i++) {
        const msgpack_object_kv *pair = &map->ptr[i];
        struct value *child;

        if (pair->key.type != MSGPACK_OBJECT_STR)
            return dl_error_set(err, EBADMSG, "", "a map has a key that is not a string");
        int r = value_msgpack_check_text(&pair->key.via.str, "key", err);
        if (r == 0)
            r = value_append(ret, pair->key.via.str.ptr, pair->key.via.str.size, &child);
        if (r == 0)
            r = value_msgpack_from_object(&pair->val, child, err);
        if (r < 0)
            return r;
    }
    const struct value *twice;
    int r = value_duplicate(ret, &twice);
    if (r == 0 && twice)
        r = dl_error_set(err, EBADMSG, "", "a map has the key \"%.100s\" twice", twice->key);
    return r;
}

/* `ret` is a null value; on failure it is left half-built for the caller to deinit. */
static int value_msgpack_from_object(const msgpack_object *object, struct value *ret,
                                     struct dl_error *err)
{
    switch (object->type) {
    case MSGPACK_OBJECT_NIL:
        return 0;
    case MSGPACK_OBJECT_BOOLEAN:
        ret->type = VALUE_BOOL;
        ret->boolean = object->via.boolean;
        return 0;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        ret->type = object->via.u64 > INT64_MAX ? VALUE_UINT : VALUE_INT;
        if (ret->type == VALUE_UINT)
            ret->uinteger = object->via.u64;
        else
            ret->integer = (int64_t)object->via.u64;
        return 0;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        ret->type = VALUE_INT;
        ret->integer = object->via.i64;
        return 0;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        ret->type = VALUE_FLOAT;
        ret->number = object->via.f64;
        return 0;
    case MSGPACK_OBJECT_STR:
        return value_msgpack_from_string(&object->via.str, ret, err);
    case MSGPACK_OBJECT_ARRAY:
        return value_msgpack_from_array(&object->via.array, ret, err);
    case MSGPACK_OBJECT_MAP:
        return value_msgpack_from_map(&object->via.map, ret, err);
    case MSGPACK_OBJECT_BIN:
        return dl_error_set(err, EBADMSG, "", "a value holds bytes (msgpack bin); write text");
    case MSGPACK_OBJECT_EXT:
        break;
    }
    return dl_error_set(err, EBADMSG, "", "a value holds a msgpack extension type");
}

int value_unpack(const uint8_t *data, size_t len, struct value *ret, struct dl_error *err)
{
    _cleanup_(value_deinit) struct value made = {0};
    _cleanup_(msgpack_unpacked_destroy) msgpack_unpacked unpacked;
    size_t at = 0;

    msgpack_unpacked_init(&unpacked);
    int r = value_scan(data, len, NULL);
    if (r == -EMSGSIZE)
        return dl_error_set(err, EMSGSIZE, "",
                            "a value has more than %llu elements or %llu levels of nesting",
                            (ull)DL_MAX_VALUE_NODES, (ull)DL_MAX_VALUE_DEPTH);
    if (r < 0)
        return dl_error_set(err, EBADMSG, "", "the bytes are not exactly one msgpack value");

    switch (msgpack_unpack_next(&unpacked, (const char *)data, len, &at)) {
    case MSGPACK_UNPACK_SUCCESS:
        break;
    case MSGPACK_UNPACK_NOMEM_ERROR:
        return dl_error_set(err, ENOMEM, "", "out of memory for a value of %zu bytes", len);
    default:
        return dl_error_set(err, EBADMSG, "", "the bytes are not exactly one msgpack value");
    }
    r = value_msgpack_from_object(&unpacked.data, &made, err);
    if (r == -ENOMEM)
        return dl_error_set(err, ENOMEM, "", "out of memory for a value of %zu bytes", len);
    if (r < 0)
        return r;
    *ret = made;
    made = (struct value){0};
    return 0;
}

/* What value_scan() counts at the other end: every value, a map's keys among them. */
struct packing {
    msgpack_packer packer;
    uint64_t budget;
};

static int value_msgpack_append_bytes(void *data, const char *bytes, size_t len)
{
    return buffer_append(data, bytes, len);
}

static int value_msgpack_string(struct packing *p, const char *s)
{
    size_t len = strlen(s);
    int r = msgpack_pack_str(&p->packer, len);
    return r < 0 ? r : msgpack_pack_str_body(&p->packer, s, len);
}

static int value_msgpack_pack(struct packing *p, const struct value *v, uint32_t depth);

static int value_msgpack_container(struct packing *p, const struct value *v, uint32_t depth)
{
    bool map = v->type == VALUE_MAP;
    uint64_t children = (uint64_t)v->count * (map ? 2 : 1);

    if (depth == DL_MAX_VALUE_DEPTH || children > p->budget)
        return -EMSGSIZE;
    p->budget -= children;
    int r = map ? msgpack_pack_map(&p->packer, v->count) : msgpack_pack_array(&p->packer, v->count);
    for (uint32_t i = 0; r == 0 && i < v->count; i++) {
        if (map)
            r = value_msgpack_string(p, v->items[i].key);
        if (r == 0)
            r = value_msgpack_pack(p, &v->items[i], depth + 1);
    }
    return r;
}

static int value_msgpack_pack(struct packing *p, const struct value *v, uint32_t depth)
{
    switch (v->type) {
    case VALUE_NULL:
        return msgpack_pack_nil(&p->packer);
    case VALUE_BOOL:
        return v->boolean ? msgpack_pack_true(&p->packer) : msgpack_pack_false(&p->packer);
    case VALUE_INT:
        return msgpack_pack_int64(&p->packer, v->integer);
    case VALUE_UINT:
        return msgpack_pack_uint64(&p->packer, v->uinteger);
    case VALUE_FLOAT:
        return msgpack_pack_double(&p->packer, v->number);
    case VALUE_STRING:
        return value_msgpack_string(p, v->string);
    case VALUE_ARRAY:
    case VALUE_MAP:
        return value_msgpack_container(p, v, depth);
    }
    return -EINVAL;
}

int value_pack(const struct value *v, struct dl_buffer *out)
{
    struct packing p = {.budget = DL_MAX_VALUE_NODES - 1};
    size_t before = out->len;

    msgpack_packer_init(&p.packer, out, value_msgpack_append_bytes);
    int r = value_msgpack_pack(&p, v, 0);
    if (r < 0)
        out->len = before;
    return r;
}
