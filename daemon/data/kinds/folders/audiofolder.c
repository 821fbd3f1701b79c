/*
 * Sounds in a folder for each class: sample i is {"audio": float32 or int16 [frames], or [frames,
 * channels]; "sample_rate": int64, its frames a second; "label": int64, the number of its class}.
 *
 * With one channel and a length all samples have one shape and are made directly in the batch.
 * Files are read, not mapped: one that is truncated meanwhile is an error of its sample.
 */
#include "daemon/data/kinds/kinds.h"

#include "daemon/data/collate/lengths.h"
#include "daemon/data/decode/audio/audio.h"
#include "daemon/data/decode/audio/audio_files.h"
#include "daemon/data/files/source.h"

#include <errno.h>

static const char *const audiofolder_endings[] = {".wav",  ".flac", ".ogg", ".oga",
                                                  ".opus", ".mp3",  NULL};
const struct class_files audio_files = {.endings = audiofolder_endings,
                                        .what = "sound",
                                        .found = "sounds found",
                                        .ends =
                                            "sounds end in .wav, .flac, .ogg, .oga, .opus or .mp3"};

struct audiofolder {
    struct dataset base;
    struct class_list list;         /* owned */
    struct audio_decoder *decoder;  /* owned */
    const struct data_env *env;     /* borrowed */
    uint64_t audio_bytes;           /* of a result, if they are alike */
    char path[DL_BOUND_PATH_BYTES]; /* of the file that is open */
};

/* A file, opened with the reader's rights. */
struct audiofolder_file {
    struct audio_source source;
    int fd; /* owned */
    int64_t label;
};

/* ---- one sound ------------------------------------------------------------------------------ */

static void audiofolder_close_file(struct audiofolder_file *file)
{
    close_fdp(&file->fd);
}

static int audiofolder_open_file(struct audiofolder *folder, uint64_t index,
                                 struct audiofolder_file *ret, struct dl_error *err)
{
    int r = class_list_path(&folder->list, index, folder->path, &ret->label, err);

    if (r < 0)
        return r;
    r = source_open_file(folder->path, folder->env, &ret->fd, &ret->source.bytes, err);
    ret->source.fd = ret->fd;
    ret->source.path = folder->path;
    return r;
}

/* Decodes sample `index`; the result is in the decoder. */
static int audiofolder_decode(struct audiofolder *folder, const struct sample_key *key,
                              uint64_t index, struct audio_shape *ret, int64_t *ret_label,
                              struct dl_error *err)
{
    _cleanup_(audiofolder_close_file) struct audiofolder_file file = {.fd = -1};
    struct rng rng;
    int r;

    if ((r = audiofolder_open_file(folder, index, &file, err)) < 0)
        return r;
    *ret_label = file.label;
    rng_init(&rng, key->seed, key->epoch, key->base + index);
    return audio_open(folder->decoder, &file.source, &rng, ret, err);
}

/* ---- the dataset ---------------------------------------------------------------------------- */

static int audiofolder_read_row(struct dataset *ds, const struct sample_key *key, uint64_t index,
                                void *const *dst, size_t i, struct dl_error *err)
{
    struct audiofolder *folder = container_of(ds, struct audiofolder, base);
    struct audio_shape shape;
    int64_t label = 0, rate;
    int r = audiofolder_decode(folder, key, index, &shape, &label, err);

    if (r < 0)
        return r;
    rate = shape.rate;
    audio_read(folder->decoder, (char *)dst[0] + i * folder->audio_bytes);
    memcpy((char *)dst[1] + i * sizeof rate, &rate, sizeof rate);
    memcpy((char *)dst[2] + i * sizeof label, &label, sizeof label);
    return 0;
}

static int audiofolder_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                           struct sample *ret, struct dl_error *err)
{
    struct audiofolder *folder = container_of(ds, struct audiofolder, base);
    struct audio_shape shape;
    uint64_t dimensions[2];
    uint32_t ndim;
    int64_t label = 0;
    int r = audiofolder_decode(folder, key, index, &shape, &label, err);

    if (r < 0)
        return r;
    void *numbers = sample_alloc(ret, audio_bytes(folder->decoder, &shape));
    if (!numbers)
        return sample_check(ret, err);
    audio_read(folder->decoder, numbers);
    audio_dimensions(folder->decoder, &shape, &ndim, dimensions);
    sample_begin(ret, TREE_DICT, NULL);
    sample_tensor(ret, "audio", audio_dtype(folder->decoder), ndim, dimensions, numbers);
    sample_int(ret, "sample_rate", shape.rate);
    sample_int(ret, "label", label);
    sample_end(ret);
    return sample_check(ret, err);
}

/* By the headers: nothing is decoded. */
static int audiofolder_length(struct audiofolder *folder, uint64_t index, uint32_t *ret,
                              struct dl_error *err)
{
    _cleanup_(audiofolder_close_file) struct audiofolder_file file = {.fd = -1};
    struct audio_shape shape;
    int r;

    if ((r = audiofolder_open_file(folder, index, &file, err)) < 0 ||
        (r = audio_look(folder->decoder, &file.source, &shape, err)) < 0)
        return r;
    *ret = LENGTH_UNKNOWN;
    if (shape.frames < LENGTH_UNKNOWN)
        *ret = (uint32_t)shape.frames;
    return 0;
}

static int audiofolder_lengths(struct dataset *ds, struct lengths_wanted *w, struct dl_error *err)
{
    struct audiofolder *folder = container_of(ds, struct audiofolder, base);

    if (w->leaf && strcmp(w->leaf, "audio") != 0)
        return -ENOTSUP;
    for (size_t i = 0; i < w->n; i++) {
        int r = audiofolder_length(folder, w->first + i, &w->ret[i], err);
        if (r < 0) {
            w->bad = w->first + i;
            return r;
        }
    }
    return 0;
}

static size_t audiofolder_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    const struct audiofolder *folder = container_of(ds, struct audiofolder, base);
    size_t len;

    class_list_get(&folder->list, index, ret, room, &len);
    return len;
}

static void audiofolder_close(struct dataset *ds)
{
    struct audiofolder *folder = container_of(ds, struct audiofolder, base);

    class_list_deinit(&folder->list);
    audio_decoder_free(folder->decoder);
    tree_deinit(&ds->schema);
    free(folder);
}

static void audiofolder_expect(struct dataset *ds, uint64_t index)
{
    const struct audiofolder *folder = container_of(ds, struct audiofolder, base);

    class_list_expect(&folder->list, index, folder->env);
}

static const struct dataset_ops audiofolder_fixed_ops = {.read_row = audiofolder_read_row,
                                                         .name = audiofolder_name,
                                                         .expect = audiofolder_expect,
                                                         .close = audiofolder_close};
static const struct dataset_ops audiofolder_varying_ops = {.get = audiofolder_get,
                                                           .lengths = audiofolder_lengths,
                                                           .name = audiofolder_name,
                                                           .expect = audiofolder_expect,
                                                           .close = audiofolder_close};

/* ---- opening -------------------------------------------------------------------------------- */

static int audiofolder_describe(struct audiofolder *folder, const struct audio_shape *shape)
{
    struct tree *schema = &folder->base.schema;
    uint64_t dimensions[2];
    uint32_t ndim;
    int r;

    audio_dimensions(folder->decoder, shape, &ndim, dimensions);
    folder->audio_bytes = audio_bytes(folder->decoder, shape);
    folder->base.n_leaves = 3;
    if ((r = tree_add(schema, TREE_DICT, NULL, 3)) == 0 &&
        (r = tree_add_tensor(schema, "audio", audio_dtype(folder->decoder), ndim, dimensions)) ==
            0 &&
        (r = tree_add_tensor(schema, "sample_rate", DL_DTYPE_INT64, 0, NULL)) == 0)
        r = tree_add_tensor(schema, "label", DL_DTYPE_INT64, 0, NULL);
    return r;
}

int audiofolder_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                     struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct audio_shape shape;
    int r;

    if (spec->n_files != 1 || !spec->files[0].path)
        return dl_error_set(err, EINVAL, place, "is not one folder of sounds");
    struct audiofolder *folder = calloc(1, sizeof *folder);
    if (!folder)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &folder->base;
    ds->ops = &audiofolder_varying_ops;
    folder->env = env;
    if ((r = audio_decoder_new(spec, place, &folder->decoder, err)) < 0 ||
        (r = class_list_open(spec->files[0].path, &audio_files, place, env, &folder->list, err)) <
            0)
        return r;
    ds->length = folder->list.n;
    ds->content = class_list_fingerprint(&folder->list);
    if (audio_is_fixed(folder->decoder, &shape)) {
        ds->ops = &audiofolder_fixed_ops;
        r = audiofolder_describe(folder, &shape);
    }
    if (r < 0)
        return dl_error_set(err, -r, place, "its samples cannot be described: %s", strerror(-r));
    *ret = steal_ptr(ds);
    return 0;
}
