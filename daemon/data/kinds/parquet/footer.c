#include "daemon/data/kinds/parquet/footer.h"

#include <errno.h>

enum {
    TAIL = 8, /* the footer's length and the magic number */
    /* What one of a list has at least: its fields that must be there. */
    ELEMENT_LEAST = 4,
    GROUP_LEAST = 6,
    CHUNK_LEAST = 12,
    PAIR_LEAST = 3,
};

/* A footer on the way: its schema, or its row groups. */
struct footer_reading {
    struct parquet_footer *footer;
    bool groups;            /* the row groups; else all that is not, */
    const uint32_t *leaves; /* with these of their columns: ascending; n_leaves of them */
    uint32_t n_leaves;
    uint64_t file_bytes;
    bool encrypted;
    const char *path;
    struct dl_error *err;
};

void parquet_footer_deinit(struct parquet_footer *footer)
{
    free(footer->elements);
    free(footer->groups);
    free(footer->chunks);
    *footer = (struct parquet_footer){0};
}

static int footer_damaged(const char *path, const char *what, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, path, "its footer %s; the file is damaged", what);
}

/* ---- the schema ----------------------------------------------------------------------------- */

/* The older way to say it; 0..21 in the order of ConvertedType. */
static void footer_set_converted(struct parquet_element *e, int64_t converted)
{
    static const uint8_t logical[] = {
        PARQUET_STRING,  PARQUET_MAP,     PARQUET_MAP,     PARQUET_LIST,    PARQUET_STRING,
        PARQUET_DECIMAL, PARQUET_OTHER,   PARQUET_OTHER,   PARQUET_OTHER,   PARQUET_OTHER,
        PARQUET_OTHER,   PARQUET_INTEGER, PARQUET_INTEGER, PARQUET_INTEGER, PARQUET_INTEGER,
        PARQUET_INTEGER, PARQUET_INTEGER, PARQUET_INTEGER, PARQUET_INTEGER, PARQUET_STRING,
        PARQUET_OTHER,   PARQUET_OTHER,
    };

    if (converted < 0 || converted >= (int64_t)ARRAY_SIZE(logical) || e->logical)
        return;
    e->logical = logical[converted];
    if (e->logical != PARQUET_INTEGER)
        return;
    e->bits = (uint8_t)(8 << ((converted - 11) & 3));
    e->has_sign = converted >= 15;
}

/* An element, and what of it is judged when all of it is there. */
struct footer_element {
    struct parquet_element is;
    int64_t type, converted;
};
#define ELEMENT(sort, member) THRIFT_AT(THRIFT_TO_##sort, struct footer_element, member)

static const struct thrift_row footer_integer_rows[] = {
    [1] = ELEMENT(INT, is.bits), [2] = ELEMENT(BOOL, is.has_sign)};
static const struct thrift_row footer_decimal_rows[] = {[1] = ELEMENT(INT, is.scale)};

/* The newer form: a union, whose only field is the type. */
static void footer_read_logical(struct thrift *t, const struct thrift_field *at, void *ret)
{
    static const uint8_t logical[] = {
        [1] = PARQUET_STRING,   [2] = PARQUET_MAP,     [3] = PARQUET_LIST,   [4] = PARQUET_STRING,
        [5] = PARQUET_DECIMAL,  [6] = PARQUET_OTHER,   [7] = PARQUET_OTHER,  [8] = PARQUET_OTHER,
        [10] = PARQUET_INTEGER, [12] = PARQUET_STRING, [13] = PARQUET_OTHER, [14] = PARQUET_OTHER,
        [15] = PARQUET_HALF,
    };
    struct footer_element *e = ret;
    struct thrift_field field;

    if (at->type != THRIFT_STRUCT) {
        thrift_skip(t, at);
        return;
    }
    int16_t saved = thrift_begin(t);
    while (thrift_next(t, &field)) {
        if ((size_t)field.id < ARRAY_SIZE(logical) && logical[field.id])
            e->is.logical = logical[field.id];
        if (e->is.logical == PARQUET_INTEGER && field.type == THRIFT_STRUCT)
            thrift_read(t, footer_integer_rows, ARRAY_SIZE(footer_integer_rows), e);
        else if (e->is.logical == PARQUET_DECIMAL && field.type == THRIFT_STRUCT)
            thrift_read(t, footer_decimal_rows, ARRAY_SIZE(footer_decimal_rows), e);
        else
            thrift_skip(t, &field);
    }
    thrift_end(t, saved);
}

static void footer_read_element(struct thrift *t, struct parquet_element *ret)
{
    static const struct thrift_row rows[] = {
        [1] = ELEMENT(INT, type),
        [2] = ELEMENT(INT, is.type_length),
        [3] = ELEMENT(INT, is.repetition),
        [4] = ELEMENT(TEXT, is.name),
        [5] = ELEMENT(INT, is.children),
        [6] = ELEMENT(INT, converted),
        [7] = ELEMENT(INT, is.scale), /* as the newer way says it again */
        [10] = THRIFT_FIELD_BY(footer_read_logical),
    };
    struct footer_element e = {.type = PARQUET_GROUP, .converted = -1};

    thrift_read(t, rows, ARRAY_SIZE(rows), &e);
    footer_set_converted(&e.is, e.converted);
    /* An element with children is a group, whatever its type. A group without children has no type
     * either. */
    e.is.type = e.is.children > 0 ? PARQUET_GROUP : (uint32_t)e.type;
    if (e.type < 0 || e.type > PARQUET_GROUP || e.is.repetition > PARQUET_REPEATED ||
        e.is.type_length > INT32_MAX)
        t->bad = true;
    *ret = e.is;
}

static int footer_read_schema(const struct footer_reading *rd, struct thrift *t,
                              const struct thrift_field *field)
{
    struct parquet_footer *footer = rd->footer;
    uint32_t n = thrift_structs(t, field, ELEMENT_LEAST);

    if (footer->elements || n == 0) {
        t->bad = true;
        return 0;
    }
    footer->elements = calloc(n, sizeof *footer->elements);
    if (!footer->elements)
        return dl_error_set(rd->err, ENOMEM, rd->path, "out of memory for its schema");
    footer->n_elements = n;
    for (uint32_t i = 0; i < n && !t->bad; i++)
        footer_read_element(t, &footer->elements[i]);
    return 0;
}

/* ---- row groups ----------------------------------------------------------------------------- */

/* A ColumnChunk, with its ColumnMetaData and Statistics. */
struct footer_chunk {
    struct parquet_chunk is;
    uint64_t dictionary;
    bool elsewhere; /* encrypted, or in another file */
};
#define CHUNK(sort, member) THRIFT_AT(THRIFT_TO_##sort, struct footer_chunk, member)

static void footer_note_elsewhere(struct thrift *t, const struct thrift_field *field, void *ret)
{
    ((struct footer_chunk *)ret)->elsewhere = true;
    thrift_skip(t, field);
}

static struct footer_chunk footer_read_chunk(struct thrift *t, bool packs_all)
{
    static const struct thrift_row statistics[] = {
        /* 1 and 2: their order was never specified */
        [5] = CHUNK(TEXT, is.greatest),
        [6] = CHUNK(TEXT, is.least),
    };
    static const struct thrift_row column[] = {
        [1] = CHUNK(INT, is.type),     [4] = CHUNK(INT, is.codec),
        [5] = CHUNK(INT, is.values),   [6] = CHUNK(INT, is.unpacked),
        [7] = CHUNK(INT, is.bytes),    [9] = CHUNK(INT, is.first),
        [11] = CHUNK(INT, dictionary), [12] = THRIFT_STRUCT_BY(statistics),
    };
    static const struct thrift_row rows[] = {
        [1] = THRIFT_FIELD_BY(footer_note_elsewhere),
        [3] = THRIFT_STRUCT_BY(column),
        [4] = CHUNK(INT, is.index),
        [5] = CHUNK(INT, is.index_bytes),
        [8] = THRIFT_FIELD_BY(footer_note_elsewhere),
        [9] = THRIFT_FIELD_BY(footer_note_elsewhere),
    };
    struct footer_chunk chunk = {.is.packs_all = packs_all};

    thrift_read(t, rows, ARRAY_SIZE(rows), &chunk);
    /* The dictionary comes first; old writers wrote 0 if it was missing. */
    if (chunk.dictionary > 0 && chunk.dictionary < chunk.is.first)
        chunk.is.first = chunk.dictionary;
    return chunk;
}

static int footer_check_chunk(const struct footer_reading *rd, uint32_t group, uint32_t leaf,
                              const struct footer_chunk *read)
{
    const struct parquet_chunk *chunk = &read->is;
    uint64_t end;

    if (read->elsewhere)
        return dl_error_set(rd->err, EINVAL, rd->path,
                            "row group %u: its column %u is encrypted or in another file, where it "
                            "cannot be read",
                            group, leaf);
    if (chunk->values <= INT64_MAX && !add_overflows(chunk->first, chunk->bytes, &end) &&
        end <= rd->file_bytes)
        return 0;
    return dl_error_set(
        rd->err, EINVAL, rd->path,
        "row group %u: its column %u, of %llu bytes from byte %llu on, is not in the "
        "file's %llu bytes; the file is damaged",
        group, leaf, (ull)chunk->bytes, (ull)chunk->first, (ull)rd->file_bytes);
}

/* The chunks of one group; the requested ones are kept. */
static int footer_read_chunks(struct footer_reading *rd, struct thrift *t,
                              const struct thrift_field *field, uint32_t group)
{
    struct parquet_chunk *chunks = rd->footer->chunks + (uint64_t)group * rd->n_leaves;
    uint32_t n = thrift_structs(t, field, CHUNK_LEAST), wanted = 0;
    int r = 0;

    for (uint32_t i = 0; i < n && !t->bad && r == 0; i++) {
        struct footer_chunk chunk = footer_read_chunk(t, rd->footer->packs_all);
        if (wanted == rd->n_leaves || rd->leaves[wanted] != i || t->bad)
            continue;
        r = footer_check_chunk(rd, group, i, &chunk);
        /* Which it can be read without. */
        if (chunk.is.index > rd->file_bytes ||
            chunk.is.index_bytes > rd->file_bytes - chunk.is.index)
            chunk.is.index_bytes = 0;
        chunks[wanted++] = chunk.is;
    }
    if (r == 0 && !t->bad && wanted < rd->n_leaves)
        t->bad = true;
    return r;
}

static int footer_read_group(struct footer_reading *rd, struct thrift *t, uint32_t group)
{
    struct thrift_field field;
    int16_t saved = thrift_begin(t);
    uint64_t rows = UINT64_MAX;
    bool columns = false;
    int r = 0;

    while (r == 0 && thrift_next(t, &field)) {
        if (field.id == 1 && !columns) {
            r = footer_read_chunks(rd, t, &field, group);
            columns = true;
        } else if (field.id == 3) {
            rows = (uint64_t)thrift_int(t, &field);
        } else {
            thrift_skip(t, &field);
        }
    }
    thrift_end(t, saved);
    if (!columns || rows > INT64_MAX)
        t->bad = true;
    rd->footer->groups[group].rows = rows;
    return r;
}

static int footer_read_groups(struct footer_reading *rd, struct thrift *t,
                              const struct thrift_field *field)
{
    struct parquet_footer *footer = rd->footer;
    uint32_t n = thrift_structs(t, field, GROUP_LEAST);
    int r = 0;

    if (footer->groups) {
        t->bad = true;
        return 0;
    }
    /* A group has at least CHUNK_LEAST bytes for each of the columns it must have. */
    if ((uint64_t)n * rd->n_leaves > footer->bytes / CHUNK_LEAST) {
        t->bad = true;
        return 0;
    }
    footer->groups = calloc(max_u64(n, 1), sizeof *footer->groups);
    footer->chunks = calloc(max_u64((uint64_t)n * rd->n_leaves, 1), sizeof *footer->chunks);
    if (!footer->groups || !footer->chunks)
        return dl_error_set(rd->err, ENOMEM, rd->path, "out of memory for its row groups");
    footer->n_groups = n;
    for (uint32_t i = 0; i < n && !t->bad && r == 0; i++)
        r = footer_read_group(rd, t, i);
    return r;
}

/* ---- the footer ----------------------------------------------------------------------------- */

/* parquet-cpp before 2.0, which is Arrow before 3.0: its pages of version 2 (ARROW-10353). */
static bool footer_packs_all(struct thrift_text writer)
{
    static const char name[] = "parquet-cpp version ";
    const size_t len = sizeof name - 1;

    return writer.bytes > len + 1 && memcmp(writer.data, name, len) == 0 &&
           (writer.data[len] == '0' || writer.data[len] == '1') && writer.data[len + 1] == '.';
}

/* Keys and values of the file's writer. */
static void footer_read_pairs(struct thrift *t, const struct thrift_field *at,
                              struct parquet_footer *footer)
{
    static const char name[] = "ARROW:schema";
    struct pair {
        struct thrift_text key, value;
    };
    static const struct thrift_row rows[] = {[1] = THRIFT_AT(THRIFT_TO_TEXT, struct pair, key),
                                             [2] = THRIFT_AT(THRIFT_TO_TEXT, struct pair, value)};
    uint32_t n = thrift_structs(t, at, PAIR_LEAST);

    for (uint32_t i = 0; i < n && !t->bad; i++) {
        struct pair pair = {0};
        thrift_read(t, rows, ARRAY_SIZE(rows), &pair);
        if (pair.key.bytes == strlen(name) && memcmp(pair.key.data, name, pair.key.bytes) == 0)
            footer->arrow = pair.value;
    }
}

static int footer_read_field(struct footer_reading *rd, struct thrift *t,
                             const struct thrift_field *field)
{
    rd->encrypted = rd->encrypted || field->id == 8;
    if (field->id == 2 && !rd->groups)
        return footer_read_schema(rd, t, field);
    if (field->id == 4 && rd->groups)
        return footer_read_groups(rd, t, field);
    if (field->id == 3 && !rd->groups)
        rd->footer->rows = (uint64_t)thrift_int(t, field);
    else if (field->id == 5 && !rd->groups)
        footer_read_pairs(t, field, rd->footer);
    else if (field->id == 6 && !rd->groups)
        rd->footer->packs_all = footer_packs_all(thrift_text(t, field));
    else
        thrift_skip(t, field);
    return 0;
}

/* `damaged`: the error for impossible values. */
static int footer_read(struct footer_reading *rd, const char *damaged)
{
    struct thrift t = thrift_of(rd->footer->data, rd->footer->bytes);
    struct thrift_field field;
    int r = 0;

    while (r == 0 && thrift_next(&t, &field))
        r = footer_read_field(rd, &t, &field);
    if (r < 0)
        return r;
    return t.bad ? footer_damaged(rd->path, damaged, rd->err) : 0;
}

static int footer_read_head(struct parquet_footer *footer, const char *path, struct dl_error *err)
{
    static const char damaged[] = "has no valid schema and number of rows";
    struct footer_reading rd = {.footer = footer, .path = path, .err = err};
    int r = footer_read(&rd, damaged);

    if (r < 0)
        return r;
    if (!footer->elements || footer->rows > INT64_MAX)
        return footer_damaged(path, damaged, err);
    if (rd.encrypted)
        return dl_error_set(err, EINVAL, path, "is encrypted, which cannot be read; decrypt it");
    return 0;
}

int parquet_footer_open(const uint8_t *data, uint64_t bytes, const char *path,
                        struct parquet_footer *ret, struct dl_error *err)
{
    struct parquet_footer footer = {0};
    uint32_t length;

    if (bytes < 4 + TAIL || memcmp(data, "PAR1", 4) != 0 ||
        memcmp(data + bytes - 4, "PAR1", 4) != 0) {
        bool encrypted = bytes >= 4 + TAIL && memcmp(data + bytes - 4, "PARE", 4) == 0;
        return dl_error_set(err, EINVAL, path, "is %s",
                            encrypted ? "encrypted, which cannot be read; decrypt it"
                                      : "not a Parquet file: it does not begin and end with PAR1; "
                                        "it may be truncated, or still being written");
    }
    memcpy(&length, data + bytes - TAIL, sizeof length);
    if (length > bytes - 4 - TAIL)
        return footer_damaged(path, "is longer than the file", err);
    footer.data = data + bytes - TAIL - length;
    footer.bytes = length;
    int r = footer_read_head(&footer, path, err);
    if (r < 0)
        parquet_footer_deinit(&footer);
    else
        *ret = footer;
    return r;
}

int parquet_footer_groups(struct parquet_footer *footer, const uint32_t *leaves, uint32_t n,
                          uint64_t bytes, const char *path, struct dl_error *err)
{
    struct footer_reading rd = {.footer = footer,
                                .groups = true,
                                .leaves = leaves,
                                .n_leaves = n,
                                .file_bytes = bytes,
                                .path = path,
                                .err = err};
    uint64_t rows = 0;
    int r = footer_read(&rd, "has invalid row groups");

    if (r < 0)
        return r;
    for (uint32_t i = 0; i < footer->n_groups; i++)
        if (add_overflows(rows, footer->groups[i].rows, &rows))
            return footer_damaged(path, "has more rows than can be counted", err);
    /* Some writers leave the sum to the reader. */
    if (rows != footer->rows && footer->rows > 0)
        return footer_damaged(path, "has another number of rows than its row groups", err);
    return 0;
}
