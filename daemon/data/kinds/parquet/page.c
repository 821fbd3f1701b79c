#include "daemon/data/kinds/parquet/page.h"

#include "daemon/data/kinds/parquet/thrift.h"

/* DataPageHeader and DictionaryPageHeader: the first two fields are the same. */
static void page_read_data(struct thrift *t, struct parquet_page *page)
{
    struct thrift_field field;
    int16_t saved = thrift_begin(t);

    while (thrift_next(t, &field)) {
        switch (field.id) {
        case 1:
            page->values = (uint32_t)thrift_int(t, &field);
            break;
        case 2:
            page->encoding = (uint32_t)thrift_int(t, &field);
            break;
        case 3: /* of a dictionary, whether it is sorted */
            page->def_encoding = (uint32_t)thrift_int(t, &field);
            break;
        case 4:
            page->rep_encoding = (uint32_t)thrift_int(t, &field);
            break;
        default:
            thrift_skip(t, &field);
        }
    }
    thrift_end(t, saved);
}

static void page_read_data_2(struct thrift *t, struct parquet_page *page)
{
    struct thrift_field field;
    int16_t saved = thrift_begin(t);

    while (thrift_next(t, &field)) {
        switch (field.id) {
        case 1:
            page->values = (uint32_t)thrift_int(t, &field);
            break;
        case 4:
            page->encoding = (uint32_t)thrift_int(t, &field);
            break;
        case 5:
            page->def_bytes = (uint32_t)thrift_int(t, &field);
            break;
        case 6:
            page->rep_bytes = (uint32_t)thrift_int(t, &field);
            break;
        case 7:
            page->is_packed = thrift_bool(t, &field);
            break;
        default:
            thrift_skip(t, &field);
        }
    }
    thrift_end(t, saved);
}

static void page_read_field(struct thrift *t, const struct thrift_field *field,
                            struct parquet_page *page)
{
    switch (field->id) {
    case 1:
        page->sort = (uint32_t)thrift_int(t, field);
        break;
    case 2:
        page->bytes = (uint32_t)thrift_int(t, field);
        break;
    case 3:
        page->packed_bytes = (uint32_t)thrift_int(t, field);
        break;
    case 4:
        page->crc = (uint32_t)thrift_int(t, field);
        page->has_crc = true;
        break;
    case 5:
    case 7:
        if (field->type == THRIFT_STRUCT)
            page_read_data(t, page);
        else
            thrift_skip(t, field);
        break;
    case 8:
        if (field->type == THRIFT_STRUCT)
            page_read_data_2(t, page);
        else
            thrift_skip(t, field);
        break;
    default:
        thrift_skip(t, field);
    }
}

bool parquet_page_next(const uint8_t **at, const uint8_t *end, struct parquet_page *ret)
{
    struct thrift t = thrift_of(*at, (uint64_t)(end - *at));
    struct parquet_page page = {.sort = UINT32_MAX, .is_packed = true};
    struct thrift_field field;

    while (thrift_next(&t, &field))
        page_read_field(&t, &field, &page);
    if (t.bad || page.bytes > INT32_MAX || page.values > INT32_MAX ||
        page.packed_bytes > (uint64_t)(end - t.at))
        return false;
    page.body = t.at;
    *at = t.at + page.packed_bytes;
    *ret = page;
    return true;
}
