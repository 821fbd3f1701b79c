/* Reader of IDX files, plain or gzip. The format is the one of the MNIST files. */
#include "daemon/data/kinds/arrays/array.h"
#include "proto/common/load.h"

#include <errno.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are swapped at open");

enum {
    IDX_MAGIC_BYTES = 4,
    IDX_HEADER_MAX = IDX_MAGIC_BYTES + 4 * TREE_DIMS,
};

static const struct {
    uint8_t code;
    uint8_t dtype;
} idx_types[] = {
    {0x08, DL_DTYPE_UINT8}, {0x09, DL_DTYPE_INT8},    {0x0b, DL_DTYPE_INT16},
    {0x0c, DL_DTYPE_INT32}, {0x0d, DL_DTYPE_FLOAT32}, {0x0e, DL_DTYPE_FLOAT64},
};

static uint32_t idx_dtype(uint8_t code)
{
    for (size_t i = 0; i < ARRAY_SIZE(idx_types); i++) {
        if (idx_types[i].code == code)
            return idx_types[i].dtype;
    }
    return 0;
}

/* The first four bytes: type and number of dimensions. */
static int idx_parse_magic(const uint8_t *data, uint64_t len, const char *path,
                           struct array_header *ret, struct dl_error *err)
{
    uint32_t dtype;

    if (len < IDX_MAGIC_BYTES)
        return dl_error_set(err, EINVAL, path,
                            "has %llu bytes, too few for an IDX header; it is truncated or not "
                            "an IDX file",
                            (ull)len);
    if (data[0] != 0 || data[1] != 0)
        return dl_error_set(err, EINVAL, path,
                            "starts with %02x %02x %02x %02x; an IDX file starts with 00 00, a "
                            "type and the number of dimensions",
                            data[0], data[1], data[2], data[3]);
    dtype = idx_dtype(data[2]);
    if (dtype == 0)
        return dl_error_set(err, EINVAL, path,
                            "its type byte is %02x; IDX has 08 (uint8), 09 (int8), 0b (int16), 0c "
                            "(int32), 0d (float32) and 0e (float64)",
                            data[2]);
    if (data[3] == 0 || data[3] > TREE_DIMS)
        return dl_error_set(err, EINVAL, path, "has %u dimensions; 1 to %u can be read", data[3],
                            (unsigned)TREE_DIMS);
    *ret = (struct array_header){
        .dtype = dtype,
        .ndim = data[3],
        .data_off = IDX_MAGIC_BYTES + 4 * (uint64_t)data[3],
    };
    return 0;
}

int idx_parse(const uint8_t *data, uint64_t len, const char *path, struct array_header *ret,
              struct dl_error *err)
{
    struct array_header header = {0};
    int r;

    r = idx_parse_magic(data, len, path, &header, err);
    if (r < 0)
        return r;
    if (len < header.data_off)
        return dl_error_set(err, EINVAL, path,
                            "has %llu bytes, but an IDX header of %u dimensions has %llu; it is "
                            "truncated",
                            (ull)len, header.ndim, (ull)header.data_off);
    for (uint32_t i = 0; i < header.ndim; i++)
        header.shape[i] = load_be32(data + IDX_MAGIC_BYTES + 4 * (size_t)i);
    r = array_header_measure(&header, path, err);
    if (r < 0)
        return r;
    *ret = header;
    return 0;
}

/* In place or from another buffer; elements of the big-endian file into the machine's order. */
static void idx_swap_elements(uint8_t *out, const uint8_t *in, uint64_t bytes, size_t element)
{
    for (uint64_t i = 0; i < bytes; i += element) {
        switch (element) {
        case 2: {
            uint16_t v;
            memcpy(&v, in + i, sizeof v);
            v = __builtin_bswap16(v);
            memcpy(out + i, &v, sizeof v);
            break;
        }
        case 4: {
            uint32_t v;
            memcpy(&v, in + i, sizeof v);
            v = __builtin_bswap32(v);
            memcpy(out + i, &v, sizeof v);
            break;
        }
        default: {
            uint64_t v;
            memcpy(&v, in + i, sizeof v);
            v = __builtin_bswap64(v);
            memcpy(out + i, &v, sizeof v);
        }
        }
    }
}

/* Refuses what the file cannot possibly unpack to, before memory is taken for it. */
static int idx_check_unpacked(const struct array_header *header, uint64_t packed, const char *path,
                              struct dl_error *err)
{
    char text[SHAPE_TEXT_MAX];

    if (header->data_bytes > gunzip_bound(packed))
        return dl_error_set(err, EINVAL, path,
                            "shape %s of %s is %llu bytes, more than %llu compressed bytes can "
                            "hold; it is truncated or its header is damaged",
                            shape_text(header->ndim, header->shape, text),
                            dtype_name(header->dtype), (ull)header->data_bytes, (ull)packed);
    if (header->data_bytes > DL_MAX_SEGMENT_BYTES)
        return dl_error_set(err, EFBIG, path,
                            "unpacks to %llu bytes, which each worker would hold in memory (at "
                            "most %llu); unpack it with gunzip, so that it is mapped instead",
                            (ull)header->data_bytes, (ull)DL_MAX_SEGMENT_BYTES);
    return 0;
}

static int idx_read_packed_header(struct gunzip *gz, struct array_header *ret, struct dl_error *err)
{
    uint8_t head[IDX_HEADER_MAX];
    struct array_header header = {0};
    int r;

    r = gunzip_read(gz, head, IDX_MAGIC_BYTES, err);
    if (r < 0)
        return r;
    r = idx_parse_magic(head, IDX_MAGIC_BYTES, gz->path, &header, err);
    if (r < 0)
        return r;
    r = gunzip_read(gz, head + IDX_MAGIC_BYTES, header.data_off - IDX_MAGIC_BYTES, err);
    if (r < 0)
        return r;
    return idx_parse(head, header.data_off, gz->path, ret, err);
}

int idx_unpack(const uint8_t *data, uint64_t len, const char *path, struct array *ret,
               struct dl_error *err)
{
    _cleanup_(gunzip_end) struct gunzip gz = {0};
    _cleanup_(source_close) struct source rows = {0};
    struct array_header header = {0};
    uint8_t *memory = NULL;
    int r;

    if ((r = gunzip_begin(&gz, data, len, path, err)) < 0 ||
        (r = idx_read_packed_header(&gz, &header, err)) < 0 ||
        (r = idx_check_unpacked(&header, len, path, err)) < 0 ||
        (r = source_alloc(header.data_bytes, path, &rows, &memory, err)) < 0 ||
        (r = gunzip_read(&gz, memory, header.data_bytes, err)) < 0 ||
        (r = gunzip_finish(&gz, err)) < 0)
        return r;
    if (dtype_bytes(header.dtype) > 1)
        idx_swap_elements(memory, memory, header.data_bytes, dtype_bytes(header.dtype));
    source_freeze(&rows);
    array_init(ret, &header, &rows, memory);
    return 0;
}

/* A plain file of one-byte elements stays mapped; others are swapped into memory. */
static int idx_open_plain(struct source *source, const char *path, struct array *ret,
                          struct dl_error *err)
{
    struct array_header header = {0};
    struct source rows = {0};
    uint8_t *memory = NULL;
    int r;

    if ((r = idx_parse(source->data, source->bytes, path, &header, err)) < 0 ||
        (r = array_header_fits(&header, source->bytes, path, err)) < 0)
        return r;
    if (dtype_bytes(header.dtype) == 1) {
        array_init(ret, &header, source, source->data + header.data_off);
        return 0;
    }
    r = source_alloc(header.data_bytes, path, &rows, &memory, err);
    if (r < 0)
        return r;
    idx_swap_elements(memory, source->data + header.data_off, header.data_bytes,
                      dtype_bytes(header.dtype));
    source_freeze(&rows);
    array_init(ret, &header, &rows, memory);
    return 0;
}

int array_open_idx(const char *path, const struct data_env *env, struct array *ret,
                   struct dl_error *err)
{
    _cleanup_(source_close) struct source source = {0};
    int r;

    r = source_open(path, env, &source, err);
    if (r < 0)
        return r;
    if (source.bytes == 0)
        return dl_error_set(err, EINVAL, path, "is empty; an IDX file needs a header");
    if (source_is_gzip(&source))
        return idx_unpack(source.data, source.bytes, path, ret, err);
    return idx_open_plain(&source, path, ret, err);
}
