/* The .npy header parser on any bytes; what it accepts must be consistent and readable. */
#include "daemon/data/kinds/arrays/array.h"
#include "tests/fuzz/fuzz.h"

/* The table over the fuzzer's own memory: every row must lie in it. */
static void read_rows(const struct array_header *header, const uint8_t *data, size_t size)
{
    struct source source = {.data = data, .bytes = size};
    struct array array;

    array_init(&array, header, &source, data + header->data_off);
    /* Without rows the size of one is unbounded; with them it is at most that of the file. */
    _cleanup_free_ uint8_t *row = malloc(array.count > 0 ? array.row_bytes + 1 : 1);
    for (uint64_t i = 0; i < array.count && i < 1000; i++) {
        uint64_t last = array.count - 1 - i;
        FUZZ_ASSERT(array_read_rows(&array, &last, 1, row) == 1);
    }
    FUZZ_ASSERT(array_read_rows(&array, &array.count, 1, row) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct array_header header;
    struct dl_error err = {0};
    int r = npy_parse(data, size, "fuzz", &header, &err);

    FUZZ_ASSERT(r == -err.code);
    if (r < 0) {
        FUZZ_ASSERT(err.message[0]);
        return 0;
    }
    FUZZ_ASSERT(header.ndim >= 1 && header.ndim <= TREE_DIMS);
    FUZZ_ASSERT(header.data_off <= size && header.data_bytes <= INT64_MAX);
    FUZZ_ASSERT(dtype_bytes(header.dtype) > 0);
    if (array_header_fits(&header, size, "fuzz", &err) == 0)
        read_rows(&header, data, size);
    return 0;
}
