/*
 * TFRecord files (tfrecord_file.h) as a map-style dataset: the records of the first file first.
 * Each file is mapped, and scanned once, by the first worker that opens it: 8 bytes of memory a
 * record, shared by all workers of a loader (tfrecord_index.h).
 *
 * A sample is a record's Example (tfrecord_example.h), a field for each feature, in the order of
 * their names, or of those of the spec's fields; or, with decode: false, {"record": bytes}.
 * Checksums are verified: those of the lengths when the file is opened, those of the data when a
 * sample is made.
 */
#include "daemon/data/kinds/kinds.h"

#include "daemon/data/files/globs.h"
#include "daemon/data/files/remote.h"
#include "daemon/data/files/shared_index.h"
#include "daemon/data/files/source.h"
#include "daemon/data/files/unpack.h"
#include "daemon/data/kinds/tfrecord/tfrecord_example.h"
#include "daemon/data/kinds/tfrecord/tfrecord_index.h"
#include "proto/common/bisect.h"

#include <errno.h>

struct tfrecord_part {
    struct source source; /* owned */
    struct tfrecord_view view;
    const uint64_t *offsets; /* in the index: where its records begin */
    uint64_t first;          /* sample: its first record */
};

struct tfrecord {
    struct dataset base;
    struct file_list list;       /* owned */
    struct tfrecord_part *parts; /* owned; list.n of them */
    struct shared_index index;   /* owned */
    struct fields fields;        /* owned */
    struct crc32c crc;
};

/* A record that is made into a sample. */
struct tfrecord_sample {
    const struct tfrecord *records;
    const struct tfrecord_part *part;
    uint64_t number; /* in the file */
    struct decoding decoding;
};

/* ---- samples -------------------------------------------------------------------------------- */

static int tfrecord_refuse(const struct tfrecord_sample *s, const char *feature,
                           const struct dl_error *why, struct dl_error *err)
{
    return dl_error_set(err, why->code, s->part->view.path, "its record %llu at byte %llu%s%s %s",
                        (ull)s->number, (ull)s->part->offsets[s->number],
                        feature ? ": its feature " : "", feature ? feature : "", why->message);
}

static int tfrecord_add(const struct tfrecord_sample *s, const struct example_feature *feature,
                        const char *name, struct sample *ret, struct dl_error *err)
{
    bool is_image = field_names_have(&s->records->fields.pictures, feature->name);
    struct dl_error why = {0};
    int r = example_add(feature, name, is_image ? &s->decoding : NULL, ret, &why);

    if (why.code)
        return tfrecord_refuse(s, feature->name, &why, err);
    return r < 0 ? sample_check(ret, err) : 0;
}

static int tfrecord_add_chosen(const struct tfrecord_sample *s, const struct example *example,
                               struct sample *ret, struct dl_error *err)
{
    const struct field_choice *choice = &s->records->fields.choice;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < choice->n; i++) {
        const struct spec_field *field = &choice->fields[i];
        const struct example_feature *feature = example_find(example, field->source);
        struct dl_error why = {.code = EINVAL, .message = "is not there; see dataset.fields"};
        r = feature ? tfrecord_add(s, feature, field->name, ret, err)
                    : tfrecord_refuse(s, field->source, &why, err);
    }
    return r;
}

static int tfrecord_make_example(const struct tfrecord_sample *s, const uint8_t *data,
                                 uint64_t bytes, struct sample *ret, struct dl_error *err)
{
    struct dl_error why = {0};
    struct example example;
    int r = example_parse(data, bytes, ret->arena, &example, &why);

    if (r < 0)
        return tfrecord_refuse(s, NULL, &why, err);
    sample_begin(ret, TREE_DICT, NULL);
    if (s->records->fields.choice.n > 0)
        r = tfrecord_add_chosen(s, &example, ret, err);
    for (uint32_t i = 0; r == 0 && s->records->fields.choice.n == 0 && i < example.n; i++)
        r = tfrecord_add(s, &example.features[i], example.features[i].name, ret, err);
    if (r < 0)
        return r;
    sample_end(ret);
    return sample_check(ret, err);
}

static int tfrecord_make_bytes(const uint8_t *data, uint64_t bytes, struct sample *ret,
                               struct dl_error *err)
{
    sample_begin(ret, TREE_DICT, NULL);
    sample_text(ret, TREE_BYTES, "record", data, bytes);
    sample_end(ret);
    return sample_check(ret, err);
}

static const struct tfrecord_part *tfrecord_part_of(const struct tfrecord *records, uint64_t index)
{
    return &records->parts[bisect_firsts(&records->parts[0].first, sizeof *records->parts,
                                         records->list.n, index)];
}

static int tfrecord_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                        struct sample *ret, struct dl_error *err)
{
    const struct tfrecord *records = container_of(ds, struct tfrecord, base);
    const uint8_t *data;
    uint64_t bytes;

    const struct tfrecord_part *part = tfrecord_part_of(records, index);
    uint64_t number = index - part->first;
    struct tfrecord_sample s = {
        .records = records,
        .part = part,
        .number = number,
        .decoding = {.fields = &records->fields, .key = key, .index = index}};
    int r = tfrecord_data(&part->view, part->offsets[number], number, &data, &bytes, err);
    if (r < 0)
        return r;
    return records->fields.decode ? tfrecord_make_example(&s, data, bytes, ret, err)
                                  : tfrecord_make_bytes(data, bytes, ret, err);
}

static void tfrecord_expect(struct dataset *ds, uint64_t index)
{
    const struct tfrecord *records = container_of(ds, struct tfrecord, base);
    const struct tfrecord_part *part = tfrecord_part_of(records, index);

    const uint8_t *at = part->view.data + part->offsets[index - part->first];

    __builtin_prefetch(at);
    remote_expect(at, REMOTE_UNTOLD_BYTES);
}

static size_t tfrecord_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    const struct tfrecord_part *part =
        tfrecord_part_of(container_of(ds, struct tfrecord, base), index);

    return dataset_put_name(part->view.path, "record", index - part->first, ret, room);
}

static void tfrecord_close(struct dataset *ds)
{
    struct tfrecord *records = container_of(ds, struct tfrecord, base);

    for (uint32_t i = 0; records->parts && i < records->list.n; i++)
        source_close(&records->parts[i].source);
    shared_index_deinit(&records->index);
    fields_close(&records->fields);
    file_list_deinit(&records->list);
    free(records->parts);
    free(records);
}

static const struct dataset_ops tfrecord_ops = {
    .get = tfrecord_get, .name = tfrecord_name, .expect = tfrecord_expect, .close = tfrecord_close};

/* ---- opening -------------------------------------------------------------------------------- */

static int tfrecord_open_part(struct tfrecord *records, uint32_t i, const struct data_env *env,
                              struct dl_error *err)
{
    struct tfrecord_part *part = &records->parts[i];
    const char *path = records->list.paths[i];
    int r = source_open(path, env, &part->source, err);

    if (r < 0)
        return r;
    enum compression by = compression_of(part->source.data, part->source.bytes);
    if (by == COMPRESSION_GZIP)
        return dl_error_set(err, EINVAL, path,
                            "is compressed by gzip, so its records cannot be read by number; "
                            "unpack it with gunzip");
    part->view = (struct tfrecord_view){
        .path = path, .data = part->source.data, .bytes = part->source.bytes, .crc = &records->crc};
    return 0;
}

/* By the index of another worker, if each file is as large as it was then. */
static bool tfrecord_find_index(struct tfrecord *records, const char *place,
                                const struct data_env *env)
{
    struct shared_index index;
    uint32_t n = records->list.n;

    if (!shared_index_find(env, place, SHARED_INDEX_TFRECORD, &index))
        return false;
    bool fits = tfrecord_index_is_sound(index.data, index.bytes, n);
    for (uint32_t i = 0; fits && i < n; i++)
        fits = tfrecord_index_files(index.data)[i].bytes == records->parts[i].view.bytes;
    if (fits)
        records->index = index;
    else
        shared_index_deinit(&index);
    return fits;
}

static int tfrecord_make_index(struct tfrecord *records, const char *place,
                               const struct data_env *env, struct dl_error *err)
{
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0};

    if (tfrecord_index_begin(&bytes, records->list.n) < 0)
        return dl_error_set(err, ENOMEM, place, "out of memory for the places of its records");
    for (uint32_t i = 0; i < records->list.n; i++) {
        int r = tfrecord_index_add(&bytes, i, &records->parts[i].view, err);
        if (r < 0)
            return r;
        data_tell(env, "files indexed", i + 1, records->list.n);
    }
    shared_index_make(env, place, SHARED_INDEX_TFRECORD, 0, &bytes, &records->index);
    return 0;
}

static int tfrecord_index_parts(struct tfrecord *records, const char *place,
                                const struct data_env *env, struct dl_error *err)
{
    int r = tfrecord_find_index(records, place, env)
                ? 0
                : tfrecord_make_index(records, place, env, err);

    if (r < 0)
        return r;
    const struct tfrecord_index_file *files = tfrecord_index_files(records->index.data);
    const uint64_t *offsets = tfrecord_index_offsets(records->index.data, records->list.n);
    for (uint32_t i = 0; i < records->list.n; i++) {
        records->parts[i].first = records->base.length;
        records->parts[i].offsets = offsets + records->base.length;
        records->base.length += files[i].records;
    }
    return 0;
}

int tfrecord_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                  struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct tfrecord *records = calloc(1, sizeof *records);
    int r;

    if (!records)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &records->base;
    ds->ops = &tfrecord_ops;
    crc32c_init(&records->crc);
    if ((r = fields_open(&records->fields, spec, true, place, err)) < 0 ||
        (r = file_list_make(spec, env, &records->list, err)) < 0)
        return r;
    records->parts = calloc(records->list.n, sizeof *records->parts);
    if (!records->parts)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    for (uint32_t i = 0; r == 0 && i < records->list.n; i++)
        r = tfrecord_open_part(records, i, env, err);
    if (r == 0)
        r = tfrecord_index_parts(records, place, env, err);
    if (r == 0)
        *ret = steal_ptr(ds);
    return r;
}
