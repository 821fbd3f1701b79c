#include "daemon/data/kinds/parquet/chunk.h"

#include "daemon/data/files/unpack.h"
#include "daemon/data/kinds/parquet/chunk_pages.h"
#include "daemon/data/kinds/parquet/codec.h"

#include <errno.h>
#include <stdio.h>

enum { PAGE_RATIO = 1024, VALUES_RATIO = 8192 };

struct parquet_buffer {
    struct parquet_buffer *next;
    uint8_t data[];
};

static void chunk_free_buffers(struct parquet_buffer *buffer)
{
    struct parquet_buffer *next;

    for (; buffer; buffer = next) {
        next = buffer->next;
        free(buffer);
    }
}

void parquet_shared_deinit(struct parquet_shared *shared)
{
    free(shared->dictionary.fixed);
    free(shared->dictionary.slices);
    chunk_free_buffers(shared->buffers);
    *shared = (struct parquet_shared){0};
}

void parquet_values_deinit(struct parquet_values *values)
{
    chunk_free_buffers(values->buffers);
    free(values->fixed);
    free(values->slices);
    free(values->defs);
    for (uint32_t i = 0; i < values->n_lists; i++) {
        free(values->lists[i].offsets);
        free(values->lists[i].defs);
    }
    free(values->lists);
    *values = (struct parquet_values){0};
}

/* ---- errors --------------------------------------------------------------------------------- */

int chunk_refuse(const struct chunk_decoding *d, int code, const char *what)
{
    return dl_error_set(d->err, code, d->place->path, "row group %u: its column %s %s",
                        d->place->group, d->column->path, what);
}

int chunk_damaged(const struct chunk_decoding *d, const char *what)
{
    char text[160];

    snprintf(text, sizeof text, "is damaged in its page %u: %s", d->page, what);
    return chunk_refuse(d, EINVAL, text);
}

int chunk_no_memory(const struct chunk_decoding *d)
{
    return chunk_refuse(d, ENOMEM, "needs more memory than there is");
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Kept with the values. */
uint8_t *chunk_keep(struct chunk_decoding *d, uint64_t bytes)
{
    struct parquet_buffer *buffer = malloc(sizeof *buffer + bytes);

    if (!buffer)
        return NULL;
    buffer->next = d->values.buffers;
    d->values.buffers = buffer;
    d->values.bytes += bytes;
    return buffer->data;
}

/* Memory for a page, used again for the next one. */
uint8_t *chunk_scratch(struct chunk_scratch *scratch, uint64_t bytes)
{
    if (bytes > scratch->room || !scratch->data) {
        free(scratch->data);
        scratch->room = max_u64(bytes, 4096);
        scratch->data = malloc(scratch->room);
        if (!scratch->data)
            scratch->room = 0;
    }
    return scratch->data;
}

/* Of lists as many as there are rows; the lists in them are added page by page. */
static int chunk_make_lists(struct chunk_decoding *d)
{
    struct parquet_values *values = &d->values;
    uint32_t n = d->column->max_rep;

    if (n == 0)
        return 0;
    values->lists = calloc(n, sizeof *values->lists);
    if (!values->lists)
        return chunk_no_memory(d);
    values->n_lists = n;
    for (uint32_t i = 0; i < n; i++) {
        int r = chunk_reserve_lists(d, &values->lists[i], i == 0 ? d->place->rows : 0);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Bytes that its values may take. */
static uint64_t chunk_most(const struct chunk_decoding *d)
{
    return PARQUET_VALUES_ALLOWED + VALUES_RATIO * min_u64(d->chunk->bytes, UINT64_MAX >> 16);
}

static int chunk_refuse_size(const struct chunk_decoding *d)
{
    return chunk_refuse(d, EFBIG,
                        "claims more values than its bytes in the file can hold; if it really has "
                        "them, write smaller row groups");
}

int chunk_reserve_values(struct chunk_decoding *d, uint64_t n)
{
    const struct parquet_column *c = d->column;
    bool number = c->sort == PARQUET_NUMBER;
    uint64_t width = number ? c->bytes : sizeof(struct parquet_slice), room, bytes;
    void *values = number ? (void *)d->values.fixed : d->values.slices;
    uint8_t *defs = d->values.defs;

    if (n <= d->room)
        return 0;
    if (mul_overflows(n, width + 1, &bytes) || (d->room > 0 && bytes > chunk_most(d)))
        return chunk_refuse_size(d);
    room = d->room > 0 ? max_u64(n, 2 * d->room) : n;
    values = realloc(values, room * width);
    if (!values)
        return chunk_no_memory(d);
    if (number)
        d->values.fixed = values;
    else
        d->values.slices = values;
    defs = defs ? realloc(defs, room) : NULL;
    if (d->values.defs && !defs)
        return chunk_no_memory(d);
    if (defs)
        memset(defs + d->room, c->max_def, room - d->room);
    d->values.defs = defs;
    d->values.bytes += (room - d->room) * (width + (defs != NULL));
    d->room = room;
    return 0;
}

/* All that the chunk says it has, at once: whether it may have that much is looked at first. */
static int chunk_make_room(struct chunk_decoding *d)
{
    const struct parquet_column *c = d->column;
    uint64_t width = c->sort == PARQUET_NUMBER ? c->bytes : sizeof(struct parquet_slice);
    uint64_t n = d->chunk->values, bytes;
    /* Lists in lists may each have a list for each value. */
    uint64_t each = width + (c->max_rep > 1 ? (uint64_t)CHUNK_LIST_BYTES * (c->max_rep - 1) : 0);

    if (c->max_rep == 0 && n != d->place->rows)
        return chunk_refuse(d, EINVAL,
                            "has unequal numbers of values and rows; the file is damaged");
    if (mul_overflows(max_u64(n, d->place->rows), each, &bytes) || bytes > chunk_most(d))
        return chunk_refuse_size(d);
    int r = chunk_reserve_values(d, max_u64(n, 1));
    return r < 0 ? r : chunk_make_lists(d);
}

/* ---- pages ---------------------------------------------------------------------------------- */

/* A page's compression. One of version 2 may claim not to be compressed, which is accepted if its
 * writer is known to be right and its sizes agree. */
static uint32_t chunk_codec(const struct chunk_decoding *d, const struct parquet_page *page)
{
    bool plain = !page->is_packed && !d->chunk->packs_all && page->bytes == page->packed_bytes;

    return plain ? PARQUET_PLAIN : d->chunk->codec;
}

/*
 * The bytes of a page behind its first `plain` ones, unpacked. Where slices may point into them
 * they stay; as they are in the file, they are mapped anyhow.
 */
static int chunk_unpack(struct chunk_decoding *d, const struct parquet_page *page, uint32_t plain,
                        const uint8_t **ret, uint64_t *ret_bytes)
{
    uint32_t codec = chunk_codec(d, page);
    char text[96];

    if (plain > page->packed_bytes || plain > page->bytes)
        return chunk_damaged(d, "its levels are longer than it is");
    uint64_t packed = page->packed_bytes - plain, bytes = page->bytes - plain;
    *ret = page->body + plain;
    *ret_bytes = packed;
    if (codec == PARQUET_PLAIN)
        return 0;
    if (!parquet_codec_is_built_in(codec)) {
        snprintf(text, sizeof text, "is compressed by %s, which this build cannot unpack",
                 parquet_codec_name(codec));
        return chunk_refuse(d, ENOTSUP, text);
    }
    if (bytes > PARQUET_ALLOWED + PAGE_RATIO * packed)
        return chunk_damaged(d, "it claims to unpack to more than its compressed bytes can hold");
    *ret_bytes = bytes;
    if (bytes == 0) /* of all nulls there may be nothing at all */
        return 0;
    uint8_t *out =
        d->column->width == 0 ? chunk_keep(d, bytes) : chunk_scratch(&d->unpacked, bytes);
    *ret = out;
    int r = out ? parquet_codec_unpack(codec, page->body + plain, packed, out, bytes) : -ENOMEM;
    if (r == -ENOMEM)
        return chunk_no_memory(d);
    return r < 0 ? chunk_damaged(d, "it cannot be unpacked") : 0;
}

/* What parquet_decode_…() returned. */
static int chunk_tell(const struct chunk_decoding *d, int r, uint32_t encoding)
{
    char text[80];

    if (r == -ENOMEM)
        return chunk_no_memory(d);
    if (r == -EFBIG)
        return chunk_damaged(d, "its values share implausibly many bytes");
    if (r == -ENOTSUP) {
        snprintf(text, sizeof text, "has the encoding %u, which such values cannot have", encoding);
        return chunk_refuse(d, ENOTSUP, text);
    }
    return r < 0 ? chunk_damaged(d, "its values are not what its encoding says") : 0;
}

/* Values of fixed width at `fixed`, which is NULL for others, or places at `slices`. */
int chunk_decode(struct chunk_decoding *d, const struct parquet_encoded *e, uint8_t *fixed,
                 struct parquet_slice *slices)
{
    struct parquet_joined joined = {.most =
                                        PARQUET_ALLOWED + PAGE_RATIO * (uint64_t)(e->end - e->at)};
    int r = 0;

    if (e->n > 0)
        r = fixed ? parquet_decode_fixed(e, &joined, fixed)
                  : parquet_decode_slices(e, &joined, slices);
    if (r == 0 && joined.data && slices) {
        /* They point there: the buffer is moved whole to where it stays. */
        uint8_t *kept = chunk_keep(d, joined.bytes);
        if (kept && joined.bytes > 0)
            memcpy(kept, joined.data, joined.bytes);
        for (uint64_t i = 0; kept && i < e->n; i++)
            slices[i].data = kept + (slices[i].data - joined.data);
        r = kept ? 0 : -ENOMEM;
    }
    free(joined.data);
    return chunk_tell(d, r, e->encoding);
}

static int chunk_take_dictionary(struct chunk_decoding *d, const struct parquet_page *page)
{
    const struct parquet_column *c = d->column;
    struct parquet_encoded e = {.encoding = ENCODING_PLAIN, .n = page->values, .width = c->width};
    uint64_t bytes, each = c->width ? c->width : 4;
    int r = chunk_unpack(d, page, 0, &e.at, &bytes);

    if (r < 0)
        return r;
    e.end = e.at + bytes;
    if (d->dictionary.fixed || d->dictionary.slices || c->type == PARQUET_BOOLEAN ||
        (page->encoding != ENCODING_PLAIN && page->encoding != ENCODING_PLAIN_DICTIONARY))
        return chunk_damaged(d, "it is not a dictionary");
    if (page->values > bytes / each)
        return chunk_damaged(d, "its dictionary has more values than bytes");
    d->dictionary.n = page->values;
    if (c->width)
        d->dictionary.fixed = malloc(max_u64(e.n * c->width, 1));
    else
        d->dictionary.slices = malloc(max_u64(e.n, 1) * sizeof *d->dictionary.slices);
    if (!d->dictionary.fixed && !d->dictionary.slices)
        return chunk_no_memory(d);
    return chunk_decode(d, &e, d->dictionary.fixed, d->dictionary.slices);
}

/* Levels of the older pages lie in front of the values, each behind its length. */
static int chunk_take_levels(struct chunk_decoding *d, struct parquet_encoded *e, uint32_t n,
                             uint32_t encoding, uint8_t most, uint8_t *ret)
{
    uint32_t bytes;

    if (encoding != ENCODING_RLE)
        return chunk_refuse(d, ENOTSUP,
                            "has levels in an obsolete encoding; "
                            "write the file again");
    if (e->end - e->at < 4)
        return chunk_damaged(d, "it has no levels");
    memcpy(&bytes, e->at, sizeof bytes);
    e->at += 4;
    if (bytes > (uint64_t)(e->end - e->at) ||
        !parquet_decode_levels(e->at, e->at + bytes, most, n, ret))
        return chunk_damaged(d, "its levels are not what they should be");
    e->at += bytes;
    return 0;
}

static int chunk_take_all_levels(struct chunk_decoding *d, const struct parquet_page *page,
                                 struct parquet_encoded *e, struct chunk_levels *levels)
{
    const struct parquet_column *c = d->column;
    const uint8_t *def = page->body + page->rep_bytes;
    int r = 0;

    if (page->sort == PAGE_DATA_2) {
        bool good = (!levels->rep ||
                     parquet_decode_levels(page->body, def, c->max_rep, levels->n, levels->rep)) &&
                    (!levels->def || parquet_decode_levels(def, def + page->def_bytes, c->max_def,
                                                           levels->n, levels->def));
        return good ? 0 : chunk_damaged(d, "its levels are not what they should be");
    }
    if (levels->rep)
        r = chunk_take_levels(d, e, levels->n, page->rep_encoding, c->max_rep, levels->rep);
    if (r == 0 && levels->def)
        r = chunk_take_levels(d, e, levels->n, page->def_encoding, c->max_def, levels->def);
    return r;
}

static int chunk_take_data(struct chunk_decoding *d, const struct parquet_page *page)
{
    const struct parquet_column *c = d->column;
    bool second = page->sort == PAGE_DATA_2;
    struct parquet_encoded e = {.encoding = page->encoding,
                                .width = c->width,
                                .boolean = c->type == PARQUET_BOOLEAN,
                                .dictionary = d->dictionary.n ? &d->dictionary : NULL};
    struct chunk_levels levels = {.n = page->values};
    uint64_t bytes, plain = second ? (uint64_t)page->rep_bytes + page->def_bytes : 0;

    if (page->values > d->chunk->values - d->done)
        return chunk_damaged(d, "it has more values than the column");
    if (plain > page->packed_bytes)
        return chunk_damaged(d, "its levels are longer than it is");
    int r = chunk_unpack(d, page, (uint32_t)plain, &e.at, &bytes);
    if (r < 0)
        return r;
    e.end = e.at + bytes;
    uint8_t *room = chunk_scratch(&d->levels, 2 * (uint64_t)page->values);
    if (!room)
        return chunk_no_memory(d);
    levels.rep = c->max_rep ? room : NULL;
    levels.def = c->max_def ? room + page->values : NULL;
    r = chunk_take_all_levels(d, page, &e, &levels);
    if (r < 0)
        return r;
    d->done += page->values;
    return chunk_put(d, &levels, &e);
}

/* ---- the chunk ------------------------------------------------------------------------------ */

static int chunk_take_page(struct chunk_decoding *d, const uint8_t **at, const uint8_t *end)
{
    struct parquet_page page;

    if (!parquet_page_next(at, end, &page))
        return chunk_damaged(d, "it has no header, or is truncated");
    if (page.has_crc && crc32_of(page.body, page.packed_bytes) != page.crc)
        return chunk_damaged(d, "its bytes do not have the checksum (CRC-32) that it says");
    if (page.sort == PAGE_DICTIONARY)
        return chunk_take_dictionary(d, &page);
    if (page.sort == PAGE_DATA || page.sort == PAGE_DATA_2)
        return chunk_take_data(d, &page);
    return 0;
}

/* Lists of a fixed size must have it, even if null. */
static int chunk_check_sizes(const struct chunk_decoding *d)
{
    for (uint32_t depth = 0; depth < d->values.n_lists; depth++) {
        const struct parquet_lists *lists = &d->values.lists[depth];
        uint64_t size = d->column->sizes[depth];
        for (uint64_t i = 0; size > 0 && i <= lists->n; i++)
            if (lists->offsets[i] != size * i)
                return chunk_refuse(d, EINVAL,
                                    "has lists of another size than its Arrow schema says; the "
                                    "file is damaged");
    }
    return 0;
}

static int chunk_take_pages(struct chunk_decoding *d)
{
    const uint8_t *at = d->place->data + d->chunk->first, *end = at + d->chunk->bytes;
    int r = chunk_make_room(d);

    for (; r == 0 && at < end && d->done < d->chunk->values; d->page++)
        r = chunk_take_page(d, &at, end);
    if (r < 0)
        return r;
    if (d->done < d->chunk->values || (d->column->max_rep > 0 && d->rows < d->place->rows))
        return chunk_refuse(d, EINVAL, "ends before its last value; the file is damaged");
    return chunk_check_sizes(d);
}

static int chunk_finish(struct chunk_decoding *d, int r, struct parquet_values *ret)
{
    free(d->dictionary.fixed);
    free(d->dictionary.slices);
    free(d->unpacked.data);
    free(d->levels.data);
    free(d->raw.data);
    if (r < 0)
        parquet_values_deinit(&d->values);
    else
        *ret = d->values;
    return r;
}

static int chunk_check_type(const struct chunk_decoding *d)
{
    if (d->chunk->type == (uint32_t)d->column->type)
        return 0;
    return chunk_refuse(d, EINVAL, "has another type than the schema says; the file is damaged");
}

int parquet_chunk_decode(const struct parquet_place *place, const struct parquet_column *column,
                         const struct parquet_chunk *chunk, struct parquet_values *ret,
                         struct dl_error *err)
{
    struct chunk_decoding d = {.place = place, .column = column, .chunk = chunk, .err = err};
    int r = chunk_check_type(&d);

    if (r == 0)
        r = chunk_take_pages(&d);
    return chunk_finish(&d, r, ret);
}

/* ---- a page of it --------------------------------------------------------------------------- */

/* The dictionary that the chunk begins with, up to its first page of data at the latest. */
static int chunk_share_dictionary(const struct chunk_decoding *source, const uint8_t *end,
                                  struct parquet_shared *shared)
{
    const uint8_t *at = source->place->data + source->chunk->first;
    struct chunk_decoding d = *source;
    struct parquet_values none = {0};
    struct parquet_page page;
    int r = 0;

    if (!parquet_page_next(&at, end, &page) || page.sort != PAGE_DICTIONARY)
        return chunk_damaged(source, "its chunk does not begin with a dictionary");
    at = source->place->data + source->chunk->first;
    d.values = none;
    r = chunk_take_page(&d, &at, end);
    if (r == 0) {
        uint64_t each = d.column->width ? d.column->width : sizeof(struct parquet_slice);
        *shared = (struct parquet_shared){.dictionary = d.dictionary,
                                          .buffers = d.values.buffers,
                                          .bytes = d.values.bytes + d.dictionary.n * each};
        d.dictionary = (struct parquet_dictionary){0};
        d.values = none;
    }
    r = chunk_finish(&d, r, &none);
    return r;
}

/* The page at `at`, with the dictionary if `encoding` needs it. */
static int chunk_take_one(struct chunk_decoding *d, uint32_t encoding, const uint8_t *at,
                          const uint8_t *end, struct parquet_shared *shared)
{
    bool needs = encoding == ENCODING_RLE_DICTIONARY || encoding == ENCODING_PLAIN_DICTIONARY;
    int r = chunk_make_room(d);

    if (r == 0 && needs && !shared->dictionary.fixed && !shared->dictionary.slices)
        r = chunk_share_dictionary(d, at, shared);
    if (r < 0)
        return r;
    d->dictionary = shared->dictionary; /* borrowed */
    r = chunk_take_page(d, &at, end);
    d->dictionary = (struct parquet_dictionary){0};
    if (r < 0)
        return r;
    if (d->done < d->chunk->values || (d->column->max_rep > 0 && d->rows < d->place->rows))
        return chunk_damaged(d, "it does not have the rows that the page index says");
    return chunk_check_sizes(d);
}

int parquet_chunk_decode_page(const struct parquet_place *place,
                              const struct parquet_column *column,
                              const struct parquet_chunk *chunk,
                              const struct parquet_page_place *page, struct parquet_shared *shared,
                              struct parquet_values *ret, struct dl_error *err)
{
    const uint8_t *at = place->data + page->at, *end = at + page->bytes, *head = at;
    struct parquet_chunk one = *chunk;
    struct chunk_decoding d = {.place = place, .column = column, .chunk = &one, .err = err};
    struct parquet_page found;
    int r = chunk_check_type(&d);

    d.values.first = page->first;
    d.page = page->number;
    if (r == 0 && (!parquet_page_next(&head, end, &found) ||
                   (found.sort != PAGE_DATA && found.sort != PAGE_DATA_2)))
        r = chunk_refuse(&d, EINVAL, "has no page where its page index says; the file is damaged");
    if (r == 0) {
        one.values = found.values;
        r = chunk_take_one(&d, found.encoding, at, end, shared);
    }
    return chunk_finish(&d, r, ret);
}
