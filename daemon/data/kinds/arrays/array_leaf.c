#include "daemon/data/kinds/arrays/array_leaf.h"

#include "daemon/data/kinds/arrays/array.h"
#include "daemon/data/kinds/arrays/npz.h"

#include <errno.h>

enum { NPZ_ARRAYS_MAX = 1024 };

static int array_leaf_no_memory(struct dl_error *err)
{
    return dl_error_set(err, ENOMEM, "", "ran out of memory");
}

/* Memory that stays as long as the sample's. NULL: out of memory. */
static uint8_t *array_leaf_alloc(struct sample *ret, uint64_t bytes)
{
    uint8_t *data = malloc(max_u64(bytes, 1));

    return data && arena_hold(ret->arena, free, data) == 0 ? data : NULL;
}

/* An array as a tensor: in place, or converted. */
static int array_leaf_add(const char *key, const struct array_header *header, const uint8_t *data,
                          struct sample *ret, struct dl_error *err)
{
    const struct stored stored = {.data = data,
                                  .dtype = header->dtype,
                                  .ndim = header->ndim,
                                  .shape = header->shape,
                                  .order = header->order};

    if (!stored_is_plain(header->order)) {
        uint8_t *ordered = array_leaf_alloc(ret, header->data_bytes);
        if (!ordered)
            return array_leaf_no_memory(err);
        stored_copy(&stored, ordered);
        data = ordered;
    }
    return sample_tensor(ret, key, header->dtype, header->ndim, header->shape, data);
}

int array_leaf_add_npy(const uint8_t *data, uint64_t bytes, const char *key, struct sample *ret,
                       struct dl_error *err)
{
    struct array_header header = {0};
    struct dl_error why = {0};
    int r;

    if ((r = npy_parse_value(data, bytes, "", &header, &why)) < 0 ||
        (r = array_header_fits(&header, bytes, "", &why)) < 0)
        return dl_error_set(err, -r, "", "cannot be read: it %s", why.message);
    return array_leaf_add(key, &header, data + header.data_off, ret, err);
}

/* ---- several arrays ------------------------------------------------------------------------- */

/* Its bytes, in place where they are stored. */
static int array_leaf_npz_bytes(const struct npz_member *member, struct sample *ret,
                                const uint8_t **ret_data, struct dl_error *err)
{
    if (!member->deflated) {
        *ret_data = member->packed;
        return npz_check(member, err);
    }
    if (member->bytes > ARRAY_UNPACKED_MAX)
        return dl_error_set(err, EFBIG, "", "has more bytes than the %d that it may have",
                            ARRAY_UNPACKED_MAX);
    uint8_t *data = array_leaf_alloc(ret, member->bytes);
    if (!data)
        return array_leaf_no_memory(err);
    *ret_data = data;
    return npz_unpack(member, data, err);
}

/* Among the leaves behind node `dict`. */
static bool array_leaf_has(const struct sample *sample, uint32_t dict, const char *key)
{
    size_t len = strlen(key);

    for (uint32_t i = dict + 1; i < sample->tree.count; i++) {
        const struct tree_node *node = &sample->tree.nodes[i];
        if (node->key_len == len && memcmp(sample->tree.keys + node->key_off, key, len) == 0)
            return true;
    }
    return false;
}

/* An array; other members are bytes. */
static int array_leaf_add_member(const struct npz_member *member, uint32_t dict, const char *key,
                                 struct sample *ret, struct dl_error *err)
{
    struct array_header header = {0};
    struct dl_error why = {0};
    const uint8_t *data = NULL;
    int r = array_leaf_npz_bytes(member, ret, &data, err);

    if (r < 0)
        return r;
    if (array_leaf_has(ret, dict, key))
        return dl_error_set(err, EINVAL, "", "has the array %s twice", key);
    if (!npy_is(data, member->bytes))
        return sample_text(ret, TREE_BYTES, key, data, member->bytes);
    if ((r = npy_parse_value(data, member->bytes, "", &header, &why)) < 0 ||
        (r = array_header_fits(&header, member->bytes, "", &why)) < 0)
        return dl_error_set(err, -r, "", "cannot be read: its array %s %s", key, why.message);
    return array_leaf_add(key, &header, data + header.data_off, ret, err);
}

static int array_leaf_add_all(struct npz npz, struct sample *ret, struct dl_error *err)
{
    uint32_t dict = ret->tree.count - 1;
    struct npz_member member;
    int r;

    while ((r = npz_next(&npz, &member, err)) == 0) {
        _cleanup_free_ char *key =
            span_dup((struct dl_span){(const uint8_t *)member.name, member.name_len});
        if (!key)
            return array_leaf_no_memory(err);
        if ((r = array_leaf_add_member(&member, dict, key, ret, err)) < 0)
            return r;
    }
    return r == NPZ_END ? 0 : r;
}

static int array_leaf_add_chosen(struct npz npz, const struct spec_field *field, struct sample *ret,
                                 struct dl_error *err)
{
    uint32_t dict = ret->tree.count - 1;
    size_t len = strlen(field->source);
    struct npz_member member;
    int r;

    while ((r = npz_next(&npz, &member, err)) == 0) {
        if (member.name_len == len && memcmp(member.name, field->source, len) == 0)
            return array_leaf_add_member(&member, dict, field->name, ret, err);
    }
    return r < 0 ? r
                 : dl_error_set(err, EINVAL, "", "has no array %s; see dataset.fields",
                                field->source);
}

int array_leaf_add_npz(const uint8_t *data, uint64_t bytes, const char *key,
                       const struct field_choice *choice, struct sample *ret, struct dl_error *err)
{
    struct npz npz;
    int r = npz_begin(&npz, data, bytes, err);

    if (r < 0)
        return r;
    if (npz.left > NPZ_ARRAYS_MAX)
        return dl_error_set(err, E2BIG, "", "has %u arrays, and may have %d; divide it", npz.left,
                            NPZ_ARRAYS_MAX);
    if ((r = sample_begin(ret, TREE_DICT, key)) < 0)
        return r;
    if (!choice || choice->n == 0)
        r = array_leaf_add_all(npz, ret, err);
    for (uint32_t i = 0; choice && r == 0 && i < choice->n; i++)
        r = array_leaf_add_chosen(npz, &choice->fields[i], ret, err);
    return r < 0 ? r : sample_end(ret);
}
