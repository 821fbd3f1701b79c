/*
 * Leaf by leaf to arrays: see archive.h. Nothing of a batch may be lost in them, so what NumPy's
 * own types would change goes as plain bytes: text that ends in NUL, which NumPy strips.
 */
#include "client/dlctl/batch/archive.h"

#include "client/dlctl/batch/leaves.h"
#include "client/dlctl/batch/npz.h"
#include "client/dlctl/render.h"
#include "proto/dtype.h"
#include "proto/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* Strings of very different lengths would take far more as an array of equally long ones. */
enum { STRINGS_MAX = 64 << 20 };

struct archive {
    struct dl_batch *batch;
    struct npz *npz;
    json_t *tree; /* of the leaves so far */
    uint32_t leaves;
    struct dl_error *err;
};

static int no_memory(struct archive *a)
{
    return dl_error_set(a->err, ENOMEM, "", "%s", strerror(ENOMEM));
}

/* ---- names ---------------------------------------------------------------------------------- */

/* What an archive may call a member: it has to be text, for libzip without control characters. */
static bool is_printed(const char *name)
{
    for (const char *at = name; *at; at++)
        if ((uint8_t)*at < 0x20 || *at == 0x7F)
            return false;
    return utf8_valid((const uint8_t *)name, strlen(name));
}

/* Not another's, nor what NumPy would take for another: it looks a name up with .npy and without.
 */
static bool is_free(struct archive *a, const char *name, const char *tail)
{
    char whole[NPZ_NAME_MAX];
    int n = snprintf(whole, sizeof whole, "%s%s", name, tail);

    return n > 0 && (size_t)n < sizeof whole && is_printed(whole) && strncmp(whole, "__", 2) != 0 &&
           !(n >= 4 && strcmp(whole + n - 4, ".npy") == 0) && !npz_has(a->npz, whole);
}

/* The leaf's path, if it is a name for its arrays; else as numpy.savez() names what has none. */
static void choose_name(struct archive *a, const char *path, bool pairs, char ret[NPZ_NAME_MAX])
{
    uint32_t n = a->leaves - 1;

    (void)snprintf(ret, NPZ_NAME_MAX, "%s", strlen(path) < NPZ_NAME_MAX ? path : "");
    while (!is_free(a, ret, "") || (pairs && !is_free(a, ret, ".offsets")))
        (void)snprintf(ret, NPZ_NAME_MAX, "arr_%" PRIu32, n++);
}

/* ---- what is said of a leaf ----------------------------------------------------------------- */

/* A new one in the tree, borrowed; NULL when out of memory. */
static json_t *describe(struct archive *a, const char *path, enum dl_node_kind kind)
{
    json_t *about =
        json_pack("{s:o, s:s}", "path", render_json_text(path), "kind", leaves_kind_name(kind));

    if (json_array_append_new(a->tree, about) < 0)
        return NULL;
    a->leaves++;
    return about;
}

static int add_array(struct archive *a, json_t *about, const char *key, const char *name,
                     const struct npz_array *array)
{
    if (json_object_set_new(about, key, render_json_text(name)) < 0) {
        free(array->owned);
        return no_memory(a);
    }
    return npz_add(a->npz, name, array, a->err);
}

/* ---- tensors -------------------------------------------------------------------------------- */

static int add_tensor(struct archive *a, const char *path, const struct dl_tensor *t)
{
    const char *type = dtype_numpy(t->dtype);
    struct npz_array array = {.ndim = t->ndim, .data = t->data, .nbytes = t->nbytes};
    json_t *about = describe(a, path, DL_NODE_TENSOR);
    char name[NPZ_NAME_MAX];

    (void)snprintf(array.type, sizeof array.type, "%s", *type ? type : "u2"); /* bfloat16's bits */
    memcpy(array.shape, t->shape, t->ndim * sizeof *t->shape);
    if (!about || json_object_set_new(about, "dtype", json_string(dl_type_name(t->dtype))) < 0)
        return no_memory(a);
    choose_name(a, path, false, name);
    return add_array(a, about, "array", name, &array);
}

/* ---- text ----------------------------------------------------------------------------------- */

struct strings {
    uint32_t at; /* the node */
    uint64_t count;
    bool is_list;
    uint64_t nbytes;  /* of all */
    uint64_t longest; /* characters */
    bool plain;       /* an array of NumPy's strings holds them as they are */
};

static int measure(struct archive *a, struct strings *s)
{
    for (uint64_t i = 0; i < s->count; i++) {
        const char *text;
        uint64_t chars = 0;
        size_t len;
        int r = dl_batch_node_text(a->batch, s->at, i, &text, &len);

        if (r < 0)
            return dl_error_set(a->err, -r, "", "a string of the batch leads out of it");
        s->nbytes += len;
        s->plain &= (len == 0 || text[len - 1] != '\0') && utf8_valid((const uint8_t *)text, len);
        for (size_t at = 0; at < len; at++)
            chars += ((uint8_t)text[at] & 0xC0) != 0x80;
        s->longest = max_u64(s->longest, chars);
    }
    return 0;
}

/* Each string in a row of its own, filled up with NULs. The workers may still change the text: what
 * is written here ends where the row does. */
static int add_strings(struct archive *a, json_t *about, const char *name, const struct strings *s)
{
    uint64_t width = max_u64(s->longest, 1);
    uint32_t *rows = calloc(max_u64(s->count, 1), width * sizeof *rows);
    struct npz_array array = {.ndim = s->is_list,
                              .shape = {s->count},
                              .data = rows,
                              .nbytes = s->count * width * sizeof *rows,
                              .owned = rows};

    if (!rows)
        return no_memory(a);
    for (uint64_t i = 0; i < s->count; i++) {
        uint64_t to = i * width, end = to + width;
        const char *text;
        size_t len, n;

        if (dl_batch_node_text(a->batch, s->at, i, &text, &len) < 0)
            len = 0;
        for (size_t at = 0; at < len && to < end; at += n) {
            n = utf8_char((const uint8_t *)text + at, len - at);
            if (n == 0)
                break;
            rows[to++] = utf8_decode((const uint8_t *)text + at, n);
        }
    }
    (void)snprintf(array.type, sizeof array.type, "U%" PRIu64, width);
    return add_array(a, about, "array", name, &array);
}

/* All of them one behind the other, and of a list where each begins and the last one ends. */
static int add_bytes(struct archive *a, json_t *about, const char *name, const struct strings *s)
{
    char *bytes = calloc(max_u64(s->nbytes, 1), 1), offsets_name[NPZ_NAME_MAX];
    int64_t *offsets = calloc(s->count + 1, sizeof *offsets);
    struct npz_array all = {
        .type = "u1", .ndim = 1, .shape = {s->nbytes}, .data = bytes, .nbytes = s->nbytes};
    struct npz_array ends = {.type = "i8", .ndim = 1, .shape = {s->count + 1}, .data = offsets};
    uint64_t end = 0;

    all.owned = bytes;
    ends.owned = offsets;
    ends.nbytes = (s->count + 1) * sizeof *offsets;
    if (!bytes || !offsets) {
        free(bytes);
        free(offsets);
        return no_memory(a);
    }
    for (uint64_t i = 0; i < s->count; i++) {
        const char *text = "";
        size_t len = 0;

        if (dl_batch_node_text(a->batch, s->at, i, &text, &len) < 0)
            len = 0;
        len = min_u64(len, s->nbytes - end);
        memcpy(bytes + end, text, len);
        end += len;
        offsets[i + 1] = (int64_t)end;
    }
    int r = add_array(a, about, "array", name, &all);
    if (r < 0 || !s->is_list) {
        free(offsets);
        return r;
    }
    (void)snprintf(offsets_name, sizeof offsets_name, "%.*s.offsets", NPZ_NAME_MAX - 16, name);
    return add_array(a, about, "offsets", offsets_name, &ends);
}

static int add_text(struct archive *a, const char *path, const struct dl_node *node, uint32_t at)
{
    struct strings s = {.at = at,
                        .count = node->count,
                        .is_list = node->is_list,
                        .plain = node->kind == DL_NODE_STRING};
    json_t *about = describe(a, path, node->kind);
    char name[NPZ_NAME_MAX];
    uint64_t room;

    if (!about)
        return no_memory(a);
    int r = measure(a, &s);
    if (r < 0)
        return r;
    if (mul_overflows(max_u64(s.longest, 1) * sizeof(uint32_t), s.count, &room) ||
        room > STRINGS_MAX)
        s.plain = false;
    choose_name(a, path, !s.plain && s.is_list, name);
    return s.plain ? add_strings(a, about, name, &s) : add_bytes(a, about, name, &s);
}

/* The bytes of the pickle alone: nothing is unpickled, here or by numpy.load(). */
static int add_object(struct archive *a, const char *path, uint32_t at)
{
    struct strings s = {.at = at + 1, .count = 1};
    json_t *about = describe(a, path, DL_NODE_OBJECT);
    _cleanup_free_ char *as = NULL;
    char name[NPZ_NAME_MAX];

    if (!about)
        return no_memory(a);
    if (asprintf(&as, "%s%spickle", path, *path ? "." : "") < 0) {
        as = NULL; /* asprintf leaves it undefined */
        return no_memory(a);
    }
    int r = measure(a, &s);
    if (r < 0)
        return r;
    choose_name(a, as, false, name);
    return add_bytes(a, about, name, &s);
}

static int add_leaf(void *data, const char *path, const struct dl_node *node, uint32_t at)
{
    struct archive *a = data;

    switch (node->kind) {
    case DL_NODE_TENSOR:
        return add_tensor(a, path, &node->tensor);
    case DL_NODE_STRING:
    case DL_NODE_BYTES:
        return add_text(a, path, node, at);
    case DL_NODE_OBJECT:
        return add_object(a, path, at);
    case DL_NODE_DICT:
    case DL_NODE_LIST:
    case DL_NODE_TUPLE:
        return describe(a, path, node->kind) ? 0 : no_memory(a);
    }
    return 0;
}

/* ---- beside the tree ------------------------------------------------------------------------ */

static int add_samples(struct archive *a)
{
    size_t n = 0, n_lengths = 0;
    const uint64_t *indices = dl_batch_indices(a->batch, &n);
    struct npz_array array = {
        .type = "i8", .ndim = 1, .shape = {n}, .data = indices, .nbytes = n * sizeof *indices};
    const uint32_t *lengths;
    uint64_t padded;
    int r = npz_add(a->npz, "__indices__", &array, a->err);

    if (r < 0 || dl_batch_lengths(a->batch, &lengths, &n_lengths, &padded) < 0)
        return r;
    array = (struct npz_array){.type = "u4",
                               .ndim = 1,
                               .shape = {n_lengths},
                               .data = lengths,
                               .nbytes = n_lengths * sizeof *lengths};
    return npz_add(a->npz, "__lengths__", &array, a->err);
}

/* One string, as ASCII: each character is a number of the array. */
static int add_about(struct archive *a, const json_t *about)
{
    _cleanup_free_ char *text = json_dumps(about, JSON_COMPACT | JSON_ENSURE_ASCII);
    size_t len = text ? strlen(text) : 0;
    uint32_t *row = malloc(max_u64(len, 1) * sizeof *row);
    struct npz_array array = {.data = row, .nbytes = len * sizeof *row, .owned = row};

    if (!text || !row) {
        free(row);
        return no_memory(a);
    }
    for (size_t i = 0; i < len; i++)
        row[i] = (uint8_t)text[i];
    (void)snprintf(array.type, sizeof array.type, "U%zu", len);
    return npz_add(a->npz, "__batch__", &array, a->err);
}

int archive_write(struct dl_batch *batch, const char *path, json_t *about, struct dl_error *err)
{
    struct archive a = {.batch = batch, .tree = json_array(), .err = err};
    int r;

    if (json_object_set_new(about, "tree", a.tree) < 0) /* which is about's from here on */
        return no_memory(&a);
    r = npz_begin(path, &a.npz, err);
    if (r < 0)
        return r;
    *err = (struct dl_error){0};
    r = leaves_walk(batch, add_leaf, &a);
    if (r < 0 && err->code == 0)
        dl_error_set(err, -r, path, "%s", strerror(-r));
    if (r == 0)
        r = add_samples(&a);
    if (r == 0)
        r = add_about(&a, about);
    if (r < 0) {
        npz_discard(a.npz);
        return r;
    }
    return npz_end(a.npz, err);
}
