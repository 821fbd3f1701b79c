#include "daemon/data/kinds/parquet/page.h"

#include "daemon/data/kinds/parquet/thrift.h"

#define PAGE(sort, member) THRIFT_AT(THRIFT_TO_##sort, struct parquet_page, member)

/* DataPageHeader and DictionaryPageHeader: the first two fields are the same. */
static const struct thrift_row page_data_rows[] = {
    [1] = PAGE(INT, values),
    [2] = PAGE(INT, encoding),
    [3] = PAGE(INT, def_encoding), /* of a dictionary, whether it is sorted */
    [4] = PAGE(INT, rep_encoding),
};

static const struct thrift_row page_data_2_rows[] = {
    [1] = PAGE(INT, values),    [4] = PAGE(INT, encoding),   [5] = PAGE(INT, def_bytes),
    [6] = PAGE(INT, rep_bytes), [7] = PAGE(BOOL, is_packed),
};

static void page_read_crc(struct thrift *t, const struct thrift_field *field, void *ret)
{
    struct parquet_page *page = ret;

    page->crc = (uint32_t)thrift_int(t, field);
    page->has_crc = true;
}

static const struct thrift_row page_rows[] = {
    [1] = PAGE(INT, sort),
    [2] = PAGE(INT, bytes),
    [3] = PAGE(INT, packed_bytes),
    [4] = THRIFT_FIELD_BY(page_read_crc),
    [5] = THRIFT_STRUCT_BY(page_data_rows),
    [7] = THRIFT_STRUCT_BY(page_data_rows),
    [8] = THRIFT_STRUCT_BY(page_data_2_rows),
};

bool parquet_page_next(const uint8_t **at, const uint8_t *end, struct parquet_page *ret)
{
    struct thrift t = thrift_of(*at, (uint64_t)(end - *at));
    struct parquet_page page = {.sort = UINT32_MAX, .is_packed = true};

    thrift_read(&t, page_rows, ARRAY_SIZE(page_rows), &page);
    if (t.bad || page.bytes > INT32_MAX || page.values > INT32_MAX ||
        page.packed_bytes > (uint64_t)(end - t.at))
        return false;
    page.body = t.at;
    *at = t.at + page.packed_bytes;
    *ret = page;
    return true;
}
