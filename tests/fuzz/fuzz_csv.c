/*
 * Comma-separated values of any bytes; the first byte is the separator. Rows lie one behind the
 * other and end where cell by cell they do; the columns are read or refused; and each cell is a
 * number of each type or is none.
 */
#include "daemon/data/kinds/csv/csv_columns.h"
#include "proto/dtype.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>

enum { LARGEST = 1 << 16 };

static void check_cell(const struct csv_cell *cell)
{
    _cleanup_free_ uint8_t *copy = calloc(1, cell->len + 1);
    uint8_t number[8];

    FUZZ_ASSERT(copy && csv_cell_copy(cell, copy) <= cell->len);
    enum csv_sort sort = csv_cell_sort(cell);
    FUZZ_ASSERT(csv_sort_join(sort, CSV_EMPTY) == sort && csv_sort_join(sort, sort) == sort);
    for (uint32_t dtype = DL_DTYPE_BOOL; dtype <= DL_DTYPE_FLOAT64; dtype++) {
        if (!csv_has_dtype(dtype))
            continue;
        int r = csv_cell_number(cell, dtype, number);
        FUZZ_ASSERT(r == 0 || r == -ENODATA || r == -EINVAL || r == -ERANGE);
        FUZZ_ASSERT((r == -ENODATA) == (sort == CSV_EMPTY));
        FUZZ_ASSERT(dtype != DL_DTYPE_INT64 || (sort == CSV_INT) == (r == 0));
    }
}

/* Returns where the row ends by its cells. */
static const uint8_t *check_row(const uint8_t *at, const uint8_t *end, uint8_t separator)
{
    struct csv_cell cell = {.last = false};

    while (at && !cell.last) {
        const uint8_t *begin = at;
        at = csv_cell_read(begin, end, separator, &cell);
        if (!at)
            break;
        FUZZ_ASSERT(at >= begin && at <= end && cell.text >= begin && cell.text + cell.len <= at);
        check_cell(&cell);
    }
    return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct value none = {.type = VALUE_NULL};
    struct csv_columns columns = {0};
    struct dl_error err = {0};

    if (size < 1 || size > LARGEST || memchr("\"\r\n", data[0], 3))
        return 0;
    const uint8_t *at = data + 1, *end = data + size;
    int r = csv_columns_read(at, end, data[0], true, "fuzz", &columns, &err);
    FUZZ_ASSERT(r == 0 || (r == -err.code && err.message[0]));
    while (at && at < end) {
        const uint8_t *next = csv_row_end(at, end, data[0]);
        FUZZ_ASSERT(!next || next > at);
        FUZZ_ASSERT(check_row(at, end, data[0]) == next);
        csv_columns_judge(&columns, at, end, data[0]);
        at = next;
    }
    FUZZ_ASSERT(csv_columns_decide(&columns, &none, &none, "dataset", &err) == 0);
    csv_columns_deinit(&columns);
    return 0;
}
