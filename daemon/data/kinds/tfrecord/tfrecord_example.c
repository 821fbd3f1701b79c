#include "daemon/data/kinds/tfrecord/tfrecord_example.h"

#include <errno.h>

/* ---- the wire format ------------------------------------------------------------------------ */

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct wire { /* a message that is being read */
    const uint8_t *at;
    const uint8_t *end;
};

struct wire_field {
    uint64_t number;
    unsigned type;
    uint64_t value;      /* varint */
    const uint8_t *data; /* bytes, fixed */
    uint64_t bytes;
};

static bool wire_varint(struct wire *wire, uint64_t *ret)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && wire->at < wire->end; shift += 7) {
        uint8_t byte = *wire->at++;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) {
            *ret = value;
            return true;
        }
    }
    return false;
}

static bool wire_take(struct wire *wire, uint64_t bytes, struct wire_field *ret)
{
    if (bytes > (uint64_t)(wire->end - wire->at))
        return false;
    ret->data = wire->at;
    ret->bytes = bytes;
    wire->at += bytes;
    return true;
}

/* 1 and the next field, 0 at the end, -EINVAL. */
static int wire_next(struct wire *wire, struct wire_field *ret)
{
    uint64_t tag, bytes;
    bool good = false;

    if (wire->at == wire->end)
        return 0;
    if (!wire_varint(wire, &tag))
        return -EINVAL;
    *ret = (struct wire_field){.number = tag >> 3, .type = tag & 7};
    switch (ret->type) {
    case WIRE_VARINT:
        good = wire_varint(wire, &ret->value);
        break;
    case WIRE_FIXED64:
        good = wire_take(wire, 8, ret);
        break;
    case WIRE_BYTES:
        good = wire_varint(wire, &bytes) && wire_take(wire, bytes, ret);
        break;
    case WIRE_FIXED32:
        good = wire_take(wire, 4, ret);
        break;
    default: /* groups, which are obsolete */
        break;
    }
    return good && ret->number > 0 ? 1 : -EINVAL;
}

static struct wire wire_of(const struct wire_field *field)
{
    return (struct wire){field->data, field->data + field->bytes};
}

/* The message's field `number`, the last one if repeated: 1, 0 if it is missing, -EINVAL. */
static int wire_find(struct wire wire, uint64_t number, struct wire_field *ret)
{
    struct wire_field field;
    int r, found = 0;

    while ((r = wire_next(&wire, &field)) > 0) {
        if (field.number == number && field.type == WIRE_BYTES) {
            *ret = field;
            found = 1;
        }
    }
    return r < 0 ? r : found;
}

/* ---- features ------------------------------------------------------------------------------- */

static int example_refuse(struct dl_error *err)
{
    return dl_error_set(err, EINVAL, "",
                        "is not an Example; take the records as they are with decode: false");
}

/* Feature: its kind and list. */
static int example_read_kind(struct wire wire, struct example_feature *ret)
{
    struct wire_field field;
    int r;

    while ((r = wire_next(&wire, &field)) > 0) {
        if (field.number < FEATURE_BYTES || field.number > FEATURE_INTS)
            continue;
        if (field.type != WIRE_BYTES)
            return -EINVAL;
        ret->kind = (enum feature_kind)field.number;
        ret->list = field.data;
        ret->list_bytes = field.bytes;
    }
    return r;
}

/* An entry of the map. */
static int example_read_feature(const struct wire_field *entry, struct arena *arena,
                                struct example_feature *ret)
{
    struct wire_field name = {0}, feature = {0};
    int r = wire_find(wire_of(entry), 1, &name);

    *ret = (struct example_feature){0};
    if (r < 0 || (r = wire_find(wire_of(entry), 2, &feature)) <= 0)
        return r;
    if ((r = example_read_kind(wire_of(&feature), ret)) < 0)
        return r;
    if (name.bytes > 0 && memchr(name.data, '\0', name.bytes))
        return -EINVAL;
    char *text = arena_alloc(arena, name.bytes + 1);
    if (!text)
        return -ENOMEM;
    if (name.bytes > 0)
        memcpy(text, name.data, name.bytes);
    text[name.bytes] = '\0';
    ret->name = text;
    return 0;
}

static int example_compare(const void *a, const void *b)
{
    const struct example_feature *left = a, *right = b;

    return strcmp(left->name, right->name);
}

/* How many features there are at most: entries of all Features. */
static int example_count(struct wire wire, uint64_t *ret)
{
    struct wire_field field, entry;
    int r, inner = 0;

    *ret = 0;
    while ((r = wire_next(&wire, &field)) > 0) {
        if (field.number != 1)
            return -EPROTO; /* SequenceExample has its lists there */
        if (field.type != WIRE_BYTES)
            return -EINVAL;
        struct wire features = wire_of(&field);
        while ((inner = wire_next(&features, &entry)) > 0)
            (*ret)++;
        if (inner < 0)
            return inner;
    }
    return r;
}

static int example_read_all(struct wire wire, struct arena *arena, struct example *ret)
{
    struct wire_field field, entry;
    int r, inner;

    while ((r = wire_next(&wire, &field)) > 0) {
        struct wire features = wire_of(&field);
        while ((inner = wire_next(&features, &entry)) > 0) {
            if (entry.number != 1 || entry.type != WIRE_BYTES)
                continue;
            inner = example_read_feature(&entry, arena, &ret->features[ret->n]);
            if (inner < 0)
                return inner;
            ret->n += ret->features[ret->n].kind != FEATURE_NONE;
        }
        if (inner < 0)
            return inner;
    }
    return r;
}

int example_parse(const uint8_t *data, uint64_t bytes, struct arena *arena, struct example *ret,
                  struct dl_error *err)
{
    struct wire wire = {data, data + bytes};
    uint64_t n;
    int r = example_count(wire, &n);

    *ret = (struct example){0};
    if (r == -EPROTO)
        return dl_error_set(err, EINVAL, "",
                            "is a SequenceExample, or not an Example; take the records as they are "
                            "with decode: false");
    if (r < 0)
        return example_refuse(err);
    if (n > DL_BOUND_TREE_NODES)
        return dl_error_set(err, E2BIG, "", "has %llu features; at most %llu can be read", (ull)n,
                            (ull)DL_BOUND_TREE_NODES);
    ret->features = arena_alloc(arena, max_u64(n, 1) * sizeof *ret->features);
    r = ret->features ? example_read_all(wire, arena, ret) : -ENOMEM;
    if (r == -ENOMEM)
        return dl_error_set(err, ENOMEM, "", "ran out of memory");
    if (r < 0)
        return example_refuse(err);
    /* The writer's order is a hash table's, different in each process. */
    qsort(ret->features, ret->n, sizeof *ret->features, example_compare);
    for (uint32_t i = 1; i < ret->n; i++)
        if (strcmp(ret->features[i - 1].name, ret->features[i].name) == 0)
            return dl_error_set(err, EINVAL, "", "has the feature %s twice", ret->features[i].name);
    return 0;
}

const struct example_feature *example_find(const struct example *example, const char *name)
{
    struct example_feature key = {.name = name};

    return example->n == 0 ? NULL
                           : bsearch(&key, example->features, example->n, sizeof *example->features,
                                     example_compare);
}

/* ---- values --------------------------------------------------------------------------------- */

static int example_damaged(struct dl_error *err)
{
    return dl_error_set(err, EINVAL, "", "is a list that is damaged");
}

/* A list of bytes has an entry for each value: counts them, and keeps the last. */
static int example_count_bytes(struct wire wire, uint64_t *ret_n, struct wire_field *ret)
{
    struct wire_field field;
    int r;

    *ret_n = 0;
    while ((r = wire_next(&wire, &field)) > 0) {
        if (field.number != 1 || field.type != WIRE_BYTES)
            return -EINVAL;
        *ret = field;
        (*ret_n)++;
    }
    return r;
}

static int example_add_bytes(const struct example_feature *feature, const char *name,
                             const struct decoding *image, struct sample *ret, struct dl_error *err)
{
    struct wire wire = {feature->list, feature->list + feature->list_bytes};
    struct wire_field value = {.data = feature->list};
    uint64_t n;

    if (example_count_bytes(wire, &n, &value) < 0)
        return example_damaged(err);
    if (image && n != 1)
        return dl_error_set(err, EINVAL, "", "has %llu values, but an image is one value", (ull)n);
    const struct field field = {image ? FIELD_IMAGE : FIELD_BYTES, name, value.data, value.bytes};
    if (n == 1)
        return field_add(&field, image, ret, err);
    sample_begin(ret, TREE_LIST, name);
    while (wire_next(&wire, &value) > 0)
        sample_text(ret, TREE_BYTES, NULL, value.data, value.bytes);
    return sample_end(ret);
}

/* Numbers of a list, packed and single ones in any order: counts them. */
static int example_count_floats(struct wire wire, uint64_t *ret, const uint8_t **ret_only)
{
    struct wire_field field;
    unsigned fields = 0;
    int r;

    *ret = 0;
    while ((r = wire_next(&wire, &field)) > 0) {
        if (field.number != 1 || (field.type != WIRE_FIXED32 && field.type != WIRE_BYTES) ||
            field.bytes % 4 != 0)
            return -EINVAL;
        *ret += field.bytes / 4;
        *ret_only = fields++ == 0 ? field.data : NULL;
    }
    return r;
}

static int example_add_floats(const struct example_feature *feature, const char *name,
                              struct sample *ret, struct dl_error *err)
{
    struct wire wire = {feature->list, feature->list + feature->list_bytes};
    const uint8_t *only = feature->list;
    struct wire_field field;
    uint64_t n;

    if (example_count_floats(wire, &n, &only) < 0)
        return example_damaged(err);
    if (only)
        return sample_tensor(ret, name, DL_DTYPE_FLOAT32, 1, &n, only);
    uint8_t *values = sample_alloc(ret, n * 4), *at = values;
    while (values && wire_next(&wire, &field) > 0) {
        memcpy(at, field.data, field.bytes);
        at += field.bytes;
    }
    return sample_tensor(ret, name, DL_DTYPE_FLOAT32, 1, &n, values);
}

static int example_count_ints(struct wire wire, uint64_t *ret)
{
    struct wire_field field;
    int r;

    *ret = 0;
    while ((r = wire_next(&wire, &field)) > 0) {
        if (field.number != 1 || (field.type != WIRE_VARINT && field.type != WIRE_BYTES))
            return -EINVAL;
        *ret += field.type == WIRE_VARINT;
        for (uint64_t i = 0; i < field.bytes; i++)
            *ret += field.data[i] < 0x80; /* a number's last byte */
    }
    return r;
}

/* There is room for them: they were counted by their last bytes. */
static bool example_read_ints(struct wire wire, int64_t *to)
{
    struct wire_field field;
    uint64_t value;

    while (wire_next(&wire, &field) > 0) {
        if (field.type == WIRE_VARINT) {
            *to++ = (int64_t)field.value;
            continue;
        }
        struct wire packed = wire_of(&field);
        while (packed.at < packed.end) {
            if (!wire_varint(&packed, &value))
                return false;
            *to++ = (int64_t)value;
        }
    }
    return true;
}

static int example_add_ints(const struct example_feature *feature, const char *name,
                            struct sample *ret, struct dl_error *err)
{
    struct wire wire = {feature->list, feature->list + feature->list_bytes};
    uint64_t n;

    if (example_count_ints(wire, &n) < 0)
        return example_damaged(err);
    int64_t *values = sample_alloc(ret, n * sizeof *values);
    if (values && !example_read_ints(wire, values))
        return example_damaged(err);
    return sample_tensor(ret, name, DL_DTYPE_INT64, 1, &n, values);
}

int example_add(const struct example_feature *feature, const char *name,
                const struct decoding *image, struct sample *ret, struct dl_error *err)
{
    if (image && feature->kind != FEATURE_BYTES)
        return dl_error_set(err, EINVAL, "", "is a list of numbers, not an image");
    switch (feature->kind) {
    case FEATURE_FLOATS:
        return example_add_floats(feature, name, ret, err);
    case FEATURE_INTS:
        return example_add_ints(feature, name, ret, err);
    case FEATURE_BYTES:
    case FEATURE_NONE:
        break;
    }
    return example_add_bytes(feature, name, image, ret, err);
}
