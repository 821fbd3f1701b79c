/*
 * IDX files of any bytes. Gzip ones are unpacked. Plain ones are parsed, and packed by us and
 * unpacked again: both ways must agree on whether the file is good and on what is in it.
 */
#include "daemon/data/kinds/arrays/array.h"
#include "tests/fuzz/fuzz.h"

static size_t pack(const uint8_t *data, size_t size, uint8_t *out, size_t room)
{
    z_stream z = {
        .next_in = (Bytef *)data, .avail_in = (uInt)size, .next_out = out, .avail_out = (uInt)room};
    int r = deflateInit2(&z, 1, Z_DEFLATED, 9 + 16, 1, Z_DEFAULT_STRATEGY);

    FUZZ_ASSERT(r == Z_OK);
    r = deflate(&z, Z_FINISH);
    FUZZ_ASSERT(r == Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

static void compare(const struct array_header *header, const struct array *array,
                    const uint8_t *data)
{
    const uint8_t *file = data + header->data_off;
    size_t element = dtype_bytes(header->dtype);

    FUZZ_ASSERT(array->count == header->shape[0] && array->dtype == header->dtype);
    FUZZ_ASSERT(array->source.bytes == header->data_bytes);
    for (uint64_t i = 0; i < header->data_bytes; i++)
        FUZZ_ASSERT(array->rows[i] == file[i / element * element + (element - 1 - i % element)]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t packed[1 << 17];
    struct array_header header;
    struct array array = {0};
    struct dl_error err = {0};
    bool plain;
    int r;

    if (size > sizeof packed / 2)
        return 0;
    if (source_is_gzip(&(struct source){.data = data, .bytes = size})) {
        r = idx_unpack(data, size, "fuzz", &array, &err);
        FUZZ_ASSERT(r == -err.code);
        array_deinit(&array);
        return 0;
    }
    r = idx_parse(data, size, "fuzz", &header, &err);
    FUZZ_ASSERT(r == -err.code);
    plain = r == 0 && array_header_fits(&header, size, "fuzz", &err) == 0;
    r = idx_unpack(packed, pack(data, size, packed, sizeof packed), "fuzz", &array, &err);
    FUZZ_ASSERT((r == 0) == plain);
    if (plain)
        compare(&header, &array, data);
    array_deinit(&array);
    return 0;
}
