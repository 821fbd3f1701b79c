/*
 * Windows over a mapped flat file of token ids: sample i is the `sequence_length` tokens from
 * i·stride on (input) and those one further on (target). A raw file, or a .npy of one dimension.
 *
 * Tokens are read where they lie, at any alignment, and by default widened to int64, as embedding
 * layers want them, on their way to the batch.
 */
#include "daemon/data/base/place.h"
#include "daemon/data/files/remote.h"
#include "daemon/data/kinds/arrays/array.h"
#include "daemon/data/kinds/arrays/widen.h"
#include "daemon/data/kinds/kinds.h"

#include <errno.h>

struct tokens {
    struct dataset base;
    struct source source; /* owned */
    char *path;           /* owned */
    const uint8_t *first; /* borrowed from source: the first token */
    uint64_t sequence_length;
    uint64_t sequence_bytes; /* as stored */
    uint64_t stride_bytes;
    uint32_t dtype;
    uint32_t token_bytes;
    bool widen;
};

static void copy_tokens(const struct tokens *tokens, const uint8_t *from, void *to)
{
    if (tokens->widen)
        widen_tokens(tokens->dtype, from, to, tokens->sequence_length);
    else
        memcpy(to, from, tokens->sequence_bytes);
}

/* ---- the dataset ---------------------------------------------------------------------------- */

static void tokens_expect(struct dataset *ds, uint64_t index)
{
    const struct tokens *tokens = container_of(ds, struct tokens, base);
    const uint8_t *window = tokens->first + index * tokens->stride_bytes;

    for (unsigned line = 0; line < WIDEN_AHEAD_LINES; line++)
        __builtin_prefetch((const void *)((uintptr_t)window + line * CACHE_LINE));
    remote_expect(window, tokens->sequence_bytes);
}

static int tokens_read_rows(struct dataset *ds, const struct sample_key *key,
                            const uint64_t *indices, size_t n, void *const *dst, size_t *ret_bad,
                            struct dl_error *err)
{
    const struct tokens *tokens = container_of(ds, struct tokens, base);
    uint64_t out_bytes = ds->schema.nodes[1].nbytes;

    for (size_t i = 0; i < n; i++) {
        /* Once: another process may write to the slot these lie in. */
        uint64_t index = __atomic_load_n(&indices[i], __ATOMIC_RELAXED);
        if (index >= ds->length) {
            *ret_bad = i;
            return dataset_refuse_index(ds, index, err);
        }
        if (i + 1 < n) {
            uint64_t next = __atomic_load_n(&indices[i + 1], __ATOMIC_RELAXED);
            if (next < ds->length)
                tokens_expect(ds, next);
        }
        const uint8_t *window = tokens->first + index * tokens->stride_bytes;
        copy_tokens(tokens, window, (char *)dst[0] + i * out_bytes);
        copy_tokens(tokens, window + tokens->token_bytes, (char *)dst[1] + i * out_bytes);
    }
    return 0;
}

static size_t tokens_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    const struct tokens *tokens = container_of(ds, struct tokens, base);

    return dataset_put_name(tokens->path, "token",
                            index * (tokens->stride_bytes / tokens->token_bytes), ret, room);
}

static void tokens_close(struct dataset *ds)
{
    struct tokens *tokens = container_of(ds, struct tokens, base);

    source_close(&tokens->source);
    tree_deinit(&ds->schema);
    free(tokens->path);
    free(tokens);
}

static const struct dataset_ops tokens_ops = {.read_rows = tokens_read_rows,
                                              .name = tokens_name,
                                              .expect = tokens_expect,
                                              .close = tokens_close};

/* ---- opening -------------------------------------------------------------------------------- */

static int tokens_check_npy(const struct spec_dataset *spec, const struct array_header *header,
                            struct dl_error *err)
{
    const char *path = spec->files[0].path;
    char text[SHAPE_TEXT_MAX];

    if (header->ndim != 1)
        return dl_error_set(err, EINVAL, path,
                            "has the shape %s; tokens must be one row: save array.ravel()",
                            shape_text(header->ndim, header->shape, text));
    if (header->order.swapped)
        return dl_error_set(err, EINVAL, path,
                            "is of big-endian tokens, which are not used in place; convert it "
                            "once: numpy.save(NEW, numpy.load(OLD).astype('<%s'))",
                            dtype_numpy(header->dtype));
    if (!spec_token_dtype(header->dtype))
        return dl_error_set(err, EINVAL, path,
                            "holds %s; tokens are uint16, uint32, int32 or int64: convert it with "
                            "array.astype",
                            dtype_name(header->dtype));
    if (spec->dtype && spec->dtype != header->dtype)
        return dl_error_set(err, EINVAL, path,
                            "holds %s, but the spec's dtype is %s; leave dtype out: the file "
                            "has its own",
                            dtype_name(header->dtype), dtype_name(spec->dtype));
    return 0;
}

/* Sets dtype and the first token; *ret_count tokens follow from there. */
static int tokens_find_tokens(struct tokens *tokens, const struct spec_dataset *spec,
                              const char *place, uint64_t *ret_count, struct dl_error *err)
{
    const char *path = spec->files[0].path;
    const struct source *source = &tokens->source;
    struct array_header header = {0};
    char key[DL_ERROR_PATH_MAX];
    int r;

    if (npy_is(source->data, source->bytes)) {
        if ((r = npy_parse(source->data, source->bytes, path, &header, err)) < 0 ||
            (r = tokens_check_npy(spec, &header, err)) < 0 ||
            (r = array_header_fits(&header, source->bytes, path, err)) < 0)
            return r;
        tokens->dtype = header.dtype;
    } else if (!spec->dtype) {
        place_key(key, place, "dtype");
        return dl_error_set(err, EINVAL, key,
                            "missing; %s is not a .npy file, so give one of uint16, uint32, "
                            "int32, int64",
                            path);
    } else {
        tokens->dtype = spec->dtype;
    }
    tokens->token_bytes = (uint32_t)dtype_bytes(tokens->dtype);
    tokens->first = source->data + header.data_off;
    if ((source->bytes - header.data_off) % tokens->token_bytes != 0)
        return dl_error_set(err, EINVAL, path,
                            "has %llu bytes, which are not a whole number of %s tokens; check "
                            "dtype, or write the file again",
                            (ull)source->bytes, dtype_name(tokens->dtype));
    *ret_count = (source->bytes - header.data_off) / tokens->token_bytes;
    return 0;
}

/* Windows that have all of their tokens, the target's last one included. */
static uint64_t tokens_count_windows(const struct spec_dataset *spec, uint64_t count)
{
    if (count <= spec->sequence_length)
        return 0;
    return (count - spec->sequence_length - 1) / spec->stride + 1;
}

static int tokens_describe(struct tokens *tokens)
{
    struct tree *schema = &tokens->base.schema;
    uint32_t dtype = tokens->widen ? DL_DTYPE_INT64 : tokens->dtype;
    int r;

    tokens->base.n_leaves = 2;
    if ((r = tree_add(schema, TREE_DICT, NULL, 2)) == 0 &&
        (r = tree_add_tensor(schema, "input", dtype, 1, &tokens->sequence_length)) == 0)
        r = tree_add_tensor(schema, "target", dtype, 1, &tokens->sequence_length);
    return r;
}

int tokens_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct tokens *tokens;
    uint64_t count = 0;
    int r;

    if (spec->n_files != 1 || !spec->sequence_length || !spec->stride ||
        spec->sequence_length > DL_MAX_SEGMENT_BYTES)
        return dl_error_set(err, EINVAL, place, "is not one file of tokens and how to cut it");
    tokens = calloc(1, sizeof *tokens);
    if (!tokens)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &tokens->base;
    ds->ops = &tokens_ops;
    tokens->path = strdup(spec->files[0].path);
    if (!tokens->path)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    if ((r = source_open(spec->files[0].path, env, &tokens->source, err)) < 0 ||
        (r = tokens_find_tokens(tokens, spec, place, &count, err)) < 0)
        return r;
    tokens->widen = spec->widen != WIDEN_NONE;
    tokens->sequence_length = spec->sequence_length;
    tokens->sequence_bytes = spec->sequence_length * tokens->token_bytes;
    ds->length = tokens_count_windows(spec, count);
    /* One window needs no stride; further ones lie in the file, so that theirs cannot overflow. */
    tokens->stride_bytes = ds->length > 1 ? spec->stride * tokens->token_bytes : 0;
    r = tokens_describe(tokens);
    if (r < 0)
        return dl_error_set(err, -r, place, "its samples cannot be described: %s", strerror(-r));
    *ret = steal_ptr(ds);
    return 0;
}
