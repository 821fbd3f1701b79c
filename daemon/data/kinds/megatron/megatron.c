/*
 * Datasets that Megatron-LM's preprocess_data.py wrote: a .bin file of tokens, and its .idx file
 * (megatron_index.h). Two views of the same tokens:
 *
 *   documents   Sample d is document d: {"tokens": [its length]}.
 *   samples     Sample i is the sequence_length tokens from i · sequence_length on of all documents
 *               one after another, and those one further on: {"tokens": [L], "labels": [L]}. As
 *               GPTDataset cuts them where its documents are not shuffled: the loader's sampler
 *               shuffles samples instead. Nothing is made or kept for that, however many there are.
 *
 * Both files are mapped; of the index, what a sample needs is read with it. Tokens are widened to
 * int64 on their way to the batch unless the spec says otherwise.
 */
#include "daemon/data/kinds/kinds.h"

#include "daemon/data/collate/lengths.h"
#include "daemon/data/files/remote.h"
#include "daemon/data/files/source.h"
#include "daemon/data/kinds/arrays/widen.h"
#include "daemon/data/kinds/megatron/megatron_index.h"

#include <errno.h>
#include <stdio.h>

enum { PREFIX_ROOM = DL_BOUND_PATH_BYTES + 5 }; /* with an extension */

struct megatron {
    struct dataset base;
    struct source bin; /* owned */
    struct source idx; /* owned */
    struct megatron_index index;
    char *idx_path; /* owned */
    uint64_t sequence_length;
    bool widen;
};

/* ---- documents ------------------------------------------------------------------------------ */

static int megatron_find(const struct megatron *megatron, uint64_t d, uint64_t *ret_offset,
                         uint64_t *ret_tokens, struct dl_error *err)
{
    return megatron_index_find(&megatron->index, d, megatron->bin.bytes, megatron->idx_path,
                               ret_offset, ret_tokens, err);
}

static int megatron_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                        struct sample *ret, struct dl_error *err)
{
    const struct megatron *megatron = container_of(ds, struct megatron, base);
    uint32_t dtype = megatron->widen ? DL_DTYPE_INT64 : megatron->index.dtype;
    uint64_t offset, n;
    int r;

    r = megatron_find(megatron, index, &offset, &n, err);
    if (r < 0)
        return r;
    const void *tokens = megatron->bin.data + offset;
    sample_begin(ret, TREE_DICT, NULL);
    if (megatron->widen) {
        int64_t *wide = sample_alloc(ret, n * sizeof *wide);
        if (wide)
            widen_tokens(megatron->index.dtype, tokens, wide, n);
        tokens = wide;
    }
    sample_tensor(ret, "tokens", dtype, 1, &n, tokens);
    sample_end(ret);
    return sample_check(ret, err);
}

static int megatron_lengths(struct dataset *ds, struct lengths_wanted *w, struct dl_error *err)
{
    const struct megatron *megatron = container_of(ds, struct megatron, base);
    uint64_t offset, tokens;
    int r = 0;

    if (w->leaf && strcmp(w->leaf, "tokens") != 0)
        return -ENOTSUP;
    for (size_t i = 0; r == 0 && i < w->n; i++) {
        w->bad = w->first + i;
        r = megatron_find(megatron, w->first + i, &offset, &tokens, err);
        if (r == 0 && tokens >= LENGTH_UNKNOWN)
            r = dl_error_set(err, EOVERFLOW, megatron->idx_path,
                             "its document %llu has %llu tokens; a sample has fewer than 2^32 - 1",
                             (ull)w->bad, (ull)tokens);
        w->ret[i] = (uint32_t)tokens;
    }
    return r;
}

/* ---- samples -------------------------------------------------------------------------------- */

static const uint8_t *megatron_window(const struct megatron *megatron, uint64_t index)
{
    return megatron->bin.data + index * megatron->sequence_length * megatron->index.token_bytes;
}

static void megatron_expect(struct dataset *ds, uint64_t index)
{
    const struct megatron *megatron = container_of(ds, struct megatron, base);
    const uint8_t *window = megatron_window(megatron, index);

    for (unsigned line = 0; line < WIDEN_AHEAD_LINES; line++)
        __builtin_prefetch((const void *)((uintptr_t)window + line * CACHE_LINE));
    remote_expect(window, megatron->sequence_length * megatron->index.token_bytes);
}

static void megatron_copy(const struct megatron *megatron, const uint8_t *from, void *to)
{
    if (megatron->widen)
        widen_tokens(megatron->index.dtype, from, to, megatron->sequence_length);
    else
        memcpy(to, from, megatron->sequence_length * megatron->index.token_bytes);
}

static int megatron_read_rows(struct dataset *ds, const struct sample_key *key,
                              const uint64_t *indices, size_t n, void *const *dst, size_t *ret_bad,
                              struct dl_error *err)
{
    const struct megatron *megatron = container_of(ds, struct megatron, base);
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
                megatron_expect(ds, next);
        }
        const uint8_t *window = megatron_window(megatron, index);
        megatron_copy(megatron, window, (char *)dst[0] + i * out_bytes);
        megatron_copy(megatron, window + megatron->index.token_bytes,
                      (char *)dst[1] + i * out_bytes);
    }
    return 0;
}

/* ---- opening -------------------------------------------------------------------------------- */

static size_t megatron_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    const struct megatron *megatron = container_of(ds, struct megatron, base);
    uint64_t sequence = megatron->sequence_length;

    return dataset_put_name(megatron->idx_path, sequence > 0 ? "token" : "document",
                            sequence > 0 ? index * sequence : index, ret, room);
}

static void megatron_close(struct dataset *ds)
{
    struct megatron *megatron = container_of(ds, struct megatron, base);

    source_close(&megatron->bin);
    source_close(&megatron->idx);
    tree_deinit(&ds->schema);
    free(megatron->idx_path);
    free(megatron);
}

static const struct dataset_ops documents_ops = {.get = megatron_get,
                                                 .lengths = megatron_lengths,
                                                 .name = megatron_name,
                                                 .close = megatron_close};
static const struct dataset_ops samples_ops = {.read_rows = megatron_read_rows,
                                               .name = megatron_name,
                                               .expect = megatron_expect,
                                               .close = megatron_close};

/* "corpus" and the extension, of "corpus", "corpus.bin" or "corpus.idx". */
static void megatron_path(const struct spec_dataset *spec, const char *extension,
                          char ret[static PREFIX_ROOM])
{
    const char *path = spec->files[0].path;
    size_t len = strlen(path);

    if (len > 4 && (strcmp(path + len - 4, ".bin") == 0 || strcmp(path + len - 4, ".idx") == 0))
        len -= 4;
    snprintf(ret, PREFIX_ROOM, "%.*s%s", (int)len, path, extension);
}

int megatron_list_files(const struct spec_dataset *spec, const struct data_env *env,
                        struct file_list *ret, struct dl_error *err)
{
    char path[PREFIX_ROOM];
    int r;

    megatron_path(spec, ".idx", path);
    r = file_list_add(ret, path, err);
    if (r < 0)
        return r;
    megatron_path(spec, ".bin", path);
    return file_list_add(ret, path, err);
}

static int megatron_open_files(struct megatron *megatron, const struct spec_dataset *spec,
                               const struct data_env *env, struct dl_error *err)
{
    char path[PREFIX_ROOM];
    int r;

    megatron_path(spec, ".bin", path);
    r = source_open(path, env, &megatron->bin, err);
    if (r < 0)
        return r;
    megatron_path(spec, ".idx", path);
    r = source_open(path, env, &megatron->idx, err);
    if (r < 0)
        return r;
    megatron->idx_path = strdup(path);
    if (!megatron->idx_path)
        return dl_error_set(err, ENOMEM, path, "out of memory");
    return megatron_index_parse(megatron->idx.data, megatron->idx.bytes, path, megatron->bin.bytes,
                                &megatron->index, err);
}

static int megatron_describe_samples(struct megatron *megatron, const char *place,
                                     struct dl_error *err)
{
    struct tree *schema = &megatron->base.schema;
    uint32_t dtype = megatron->widen ? DL_DTYPE_INT64 : megatron->index.dtype;
    const uint64_t *shape = &megatron->sequence_length;
    int r;

    megatron->base.n_leaves = 2;
    if ((r = tree_add(schema, TREE_DICT, NULL, 2)) == 0 &&
        (r = tree_add_tensor(schema, "tokens", dtype, 1, shape)) == 0)
        r = tree_add_tensor(schema, "labels", dtype, 1, shape);
    return r == 0
               ? 0
               : dl_error_set(err, -r, place, "its samples cannot be described: %s", strerror(-r));
}

int megatron_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                  struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct megatron *megatron;
    bool samples = spec->view == MEGATRON_SAMPLES;
    int r;

    if (spec->n_files != 1 ||
        (samples && (spec->sequence_length == 0 || spec->sequence_length > DL_MAX_SEGMENT_BYTES)))
        return dl_error_set(err, EINVAL, place, "is not one file of tokens and how to cut it");
    megatron = calloc(1, sizeof *megatron);
    if (!megatron)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &megatron->base;
    ds->ops = samples ? &samples_ops : &documents_ops;
    megatron->widen = spec->widen != WIDEN_NONE;
    megatron->sequence_length = spec->sequence_length;
    r = megatron_open_files(megatron, spec, env, err);
    if (r < 0)
        return r;
    if (samples) {
        uint64_t tokens = megatron->bin.bytes / megatron->index.token_bytes;
        ds->length = tokens > 0 ? (tokens - 1) / spec->sequence_length : 0;
        r = megatron_describe_samples(megatron, place, err);
    } else {
        ds->length = megatron->index.documents;
    }
    if (r == 0)
        *ret = steal_ptr(ds);
    return r;
}
