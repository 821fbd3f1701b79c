/* Reader of raw fixed-size records: no header, the spec says what they are. */
#include "daemon/data/kinds/arrays/array.h"

#include <errno.h>

/* Bytes of one record, refused when it says nothing about how many there are. */
static int records_record_bytes(const struct spec_dataset *spec, uint64_t *ret,
                                struct dl_error *err)
{
    char text[SHAPE_TEXT_MAX];

    if (spec->n_files != 1 || spec->ndim > TREE_DIMS || dtype_bytes(spec->dtype) == 0)
        return dl_error_set(err, EINVAL, "dataset",
                            "records need one path, a dtype and a shape of at most %u dimensions",
                            (unsigned)TREE_DIMS);
    if (!tensor_bytes(spec->dtype, spec->ndim, spec->shape, ret))
        return dl_error_set(err, EINVAL, "dataset.shape", "%s of %s is more than 2^63 bytes",
                            shape_text(spec->ndim, spec->shape, text), dtype_name(spec->dtype));
    if (*ret == 0)
        return dl_error_set(err, EINVAL, "dataset.shape",
                            "%s makes records of 0 bytes; each dimension must be at least 1",
                            shape_text(spec->ndim, spec->shape, text));
    return 0;
}

static int records_count_records(const struct spec_dataset *spec, uint64_t record, uint64_t bytes,
                                 uint64_t *ret, struct dl_error *err)
{
    const char *path = spec->files[0].path;
    char text[SHAPE_TEXT_MAX];
    uint64_t data;

    if (spec->offset > bytes)
        return dl_error_set(err, EINVAL, path,
                            "has %llu bytes, but dataset.offset is %llu; it must lie in the file",
                            (ull)bytes, (ull)spec->offset);
    data = bytes - spec->offset;
    if (data % record != 0)
        return dl_error_set(err, EINVAL, path,
                            "%llu bytes are %llu records of %llu bytes (%s of shape %s) with %llu "
                            "bytes left over; check dataset.dtype, shape and offset",
                            (ull)data, (ull)(data / record), (ull)record, dtype_name(spec->dtype),
                            shape_text(spec->ndim, spec->shape, text), (ull)(data % record));
    *ret = data / record;
    return 0;
}

int array_open_records(const struct spec_dataset *spec, const struct data_env *env,
                       struct array *ret, struct dl_error *err)
{
    _cleanup_(source_close) struct source source = {0};
    uint64_t record = 0, count = 0;
    int r;

    if ((r = records_record_bytes(spec, &record, err)) < 0 ||
        (r = source_open(spec->files[0].path, env, &source, err)) < 0 ||
        (r = records_count_records(spec, record, source.bytes, &count, err)) < 0)
        return r;
    *ret = (struct array){
        .source = source,
        .rows = source.data + spec->offset,
        .count = count,
        .row_bytes = record,
        .dtype = spec->dtype,
        .ndim = spec->ndim,
    };
    memcpy(ret->shape, spec->shape, spec->ndim * sizeof *spec->shape);
    source = (struct source){0};
    return 0;
}
