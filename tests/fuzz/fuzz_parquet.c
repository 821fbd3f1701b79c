/*
 * Parquet files of any bytes. The first byte chooses: a file, all of whose columns are decoded, and
 * whose first rows become samples; or,
 * from 128 on, one page of a kind of values by itself, which needs no file around it; or, from 192
 * on, a compressed page. What comes out is as large as was said, and is read from end to end.
 */
#include "daemon/data/kinds/kinds.h"
#include "daemon/data/kinds/parquet/chunk.h"
#include "daemon/data/kinds/parquet/codec.h"
#include "daemon/data/kinds/parquet/filter.h"
#include "tests/fuzz/fuzz.h"
#include "tests/lib/lengths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { LARGEST = 1 << 18, VALUES = 257, ROOM = 4096, ROWS = 16, MANY = 1 << 20 };

static volatile uint8_t sink;

static void read_all(const uint8_t *data, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        sink ^= data[i];
}

/* What the decimal numbers of the columns of the corpus become. */
static struct value type_items[] = {
    {.type = VALUE_STRING, .key = (char *)"a", .string = (char *)"float64"},
    {.type = VALUE_STRING, .key = (char *)"b", .string = (char *)"int64"},
    {.type = VALUE_STRING, .key = (char *)"c", .string = (char *)"float64"},
    {.type = VALUE_STRING, .key = (char *)"s", .string = (char *)"float64"},
    {.type = VALUE_STRING, .key = (char *)"x", .string = (char *)"int64"},
};
static const struct value types = {
    .type = VALUE_MAP, .items = type_items, .count = ARRAY_SIZE(type_items)};

static void check_values(const struct parquet_column *column, const struct parquet_values *values,
                         uint64_t rows)
{
    uint64_t n = rows;

    if (values->fixed)
        read_all(values->fixed, values->n * column->bytes);
    for (uint64_t i = 0; values->slices && i < values->n; i++)
        read_all(values->slices[i].data, values->slices[i].bytes);
    if (values->defs)
        read_all(values->defs, values->n);
    FUZZ_ASSERT(values->n_lists == column->max_rep);
    for (uint32_t depth = 0; depth < values->n_lists; depth++) {
        const struct parquet_lists *lists = &values->lists[depth];
        FUZZ_ASSERT(lists->n == n && lists->offsets[0] == 0);
        for (uint64_t i = 0; i < n; i++)
            FUZZ_ASSERT(lists->offsets[i] <= lists->offsets[i + 1]);
        if (lists->defs)
            read_all(lists->defs, n);
        n = lists->offsets[n];
    }
    FUZZ_ASSERT(values->n == n);
}

static void check_chunk(const struct parquet_place *place, const struct parquet_column *column,
                        const struct parquet_chunk *chunk)
{
    struct parquet_values values = {0};
    struct parquet_bounds bounds;
    struct dl_error err = {0};

    if (place->rows > MANY || chunk->values > MANY)
        return; /* believed or not, it would take its time */
    if (parquet_filter_bounds(column, chunk, &bounds) && bounds.is_text)
        read_all(bounds.first.data, bounds.first.bytes);
    int r = parquet_chunk_decode(place, column, chunk, &values, &err);
    FUZZ_ASSERT(r == 0 || (r == -err.code && strstr(err.message, "row group ")));
    if (r == 0)
        check_values(column, &values, place->rows);
    parquet_values_deinit(&values);
}

/* Each page by itself, by the chunk's index. */
static void check_pages(const struct parquet_place *group, const struct parquet_column *column,
                        const struct parquet_chunk *chunk)
{
    struct parquet_pages pages;
    struct parquet_shared shared = {0};
    struct parquet_place place = *group;

    if (group->rows == 0 || group->rows > MANY)
        return;
    int r = parquet_pages_read(group->data, chunk, group->rows, &pages);
    FUZZ_ASSERT(r == 0 || r == -ENOMEM);
    for (uint32_t i = 0; i < pages.n; i++) {
        const struct parquet_page_place *page = &pages.places[i];
        struct parquet_values values = {0};
        struct dl_error err = {0};
        FUZZ_ASSERT(parquet_pages_find(&pages, page->first) == i);
        place.rows = parquet_pages_end(&pages, i, group->rows) - page->first;
        r = parquet_chunk_decode_page(&place, column, chunk, page, &shared, &values, &err);
        FUZZ_ASSERT(r == 0 || (r == -err.code && strstr(err.message, "row group ")));
        if (r == 0)
            check_values(column, &values, place.rows);
        parquet_values_deinit(&values);
    }
    parquet_shared_deinit(&shared);
    parquet_pages_deinit(&pages);
}

/* Whether no chunk claims more values than it is worth to wait for. */
static bool check_groups(const uint8_t *data, uint64_t size, struct parquet_footer *footer,
                         const struct parquet_schema *schema)
{
    uint32_t leaves[64], n = 0;
    struct dl_error err = {0};
    bool few = schema->n <= ARRAY_SIZE(leaves);

    while (n < schema->n && n < 64) {
        leaves[n] = schema->columns[n].leaf;
        n++;
    }
    int r = parquet_footer_groups(footer, leaves, n, size, "fuzz", &err);
    FUZZ_ASSERT(r == 0 || (r == -err.code && err.message[0]));
    for (uint32_t g = 0; r == 0 && g < footer->n_groups; g++) {
        const struct parquet_place place = {
            .path = "fuzz", .data = data, .group = g, .rows = footer->groups[g].rows};
        for (uint32_t c = 0; c < n; c++) {
            const struct parquet_chunk *chunk = &footer->chunks[(uint64_t)g * n + c];
            few = few && place.rows <= MANY && chunk->values <= MANY;
            if (!schema->columns[c].refused) {
                check_chunk(&place, &schema->columns[c], chunk);
                check_pages(&place, &schema->columns[c], chunk);
            }
        }
    }
    return few && r == 0;
}

/* ---- samples -------------------------------------------------------------------------------- */

static void check_sample(struct dataset *ds, uint64_t index)
{
    static const struct sample_key key;
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};
    uint32_t length;
    uint64_t bad;
    int r = dataset_get(ds, &key, index, &sample, &err);

    FUZZ_ASSERT(r == 0 || (r == -err.code && err.message[0]));
    for (uint32_t i = 0; r == 0 && i < sample.tree.count; i++)
        if (sample.data[i])
            read_all(sample.data[i], sample.tree.nodes[i].nbytes);
    if (r == 0 && ds->ops->lengths &&
        LENGTHS(ds->ops->lengths, ds, NULL, index, 1, &length, &bad, &err) == 0)
        for (uint32_t i = 0; i < sample.tree.count; i++)
            if (sample.tree.nodes[i].kind == TREE_TENSOR && sample.tree.nodes[i].ndim > 0) {
                FUZZ_ASSERT(sample.tree.nodes[i].shape[0] == length);
                break;
            }
    sample_deinit(&sample);
    arena_deinit(&arena);
}

/* The file's first rows, with nulls filled, or refused; and decoded by pages, if it has an index.
 */
static void check_samples(const uint8_t *data, uint64_t size)
{
    static const struct data_env env;
    char path[] = "/tmp/fuzz-parquet-XXXXXX";
    struct spec_file file = {.path = path};
    struct spec_dataset spec = {.kind = DATASET_PARQUET, .files = &file, .n_files = 1};
    int fd = mkostemp(path, O_CLOEXEC);

    FUZZ_ASSERT(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    close(fd);
    for (int way = 0; way < 4; way++) {
        struct dl_error err = {0};
        struct dataset *ds = NULL;
        spec.types = way == 3 ? types : (struct value){.type = VALUE_NULL};
        spec.cache = way == 2 ? 1 : 1 << 20;
        spec.nulls = (struct value){.type = way == 1 ? VALUE_NULL : VALUE_INT, .integer = 1};
        int r = parquet_open(&spec, "dataset", &env, &ds, &err);
        FUZZ_ASSERT(r == 0 || (r == -err.code && err.message[0]));
        for (uint64_t i = 0; ds && i < min_u64(ds->length, ROWS); i++)
            check_sample(ds, i);
        dataset_close(ds);
    }
    unlink(path);
}

static void check_file(const uint8_t *data, uint64_t size)
{
    struct parquet_footer footer = {0};
    struct parquet_schema schema = {0};
    struct dl_error err = {0};

    int r = parquet_footer_open(data, size, "fuzz", &footer, &err);
    if (r == 0)
        r = parquet_schema_make(&footer, "fuzz", &schema, &err);
    if (r == 0)
        r = parquet_schema_set_types(&schema, &types, NULL, &err);
    FUZZ_ASSERT(r == 0 || (r == -err.code && err.message[0]));
    for (uint32_t i = 0; i < schema.n; i++)
        FUZZ_ASSERT(schema.columns[i].path[0] &&
                    parquet_schema_find(&schema, schema.columns[i].path));
    if (r == 0 && check_groups(data, size, &footer, &schema))
        check_samples(data, size);
    parquet_schema_deinit(&schema);
    parquet_footer_deinit(&footer);
}

/* Encoding, width and number of values from the first bytes. */
static void check_encoding(const uint8_t *data, uint64_t size)
{
    static const uint32_t widths[] = {0, 1, 4, 8, 12, 3};
    uint32_t dictionary_fixed[8] = {0};
    struct parquet_slice slices[VALUES], few[8] = {{.data = (const uint8_t *)"x", .bytes = 1}};
    uint8_t fixed[VALUES * 12], levels[VALUES];
    struct parquet_joined joined = {.most = 1 << 20};
    struct parquet_dictionary dictionary = {.n = 1, .slices = few};

    if (size < 4)
        return;
    struct parquet_encoded e = {.encoding = data[0] % 10,
                                .width = widths[data[1] % ARRAY_SIZE(widths)],
                                .n = data[2] + (data[3] & 1),
                                .at = data + 4,
                                .end = data + size,
                                .boolean = widths[data[1] % ARRAY_SIZE(widths)] == 1,
                                .dictionary = data[3] & 2 ? &dictionary : NULL};
    if (e.width)
        dictionary = (struct parquet_dictionary){.n = 2, .fixed = (uint8_t *)dictionary_fixed};
    int r = e.width ? parquet_decode_fixed(&e, &joined, fixed)
                    : parquet_decode_slices(&e, &joined, slices);
    for (uint64_t i = 0; r == 0 && !e.width && i < e.n; i++)
        read_all(slices[i].data, slices[i].bytes);
    if (r == 0 && e.width)
        read_all(fixed, e.n * e.width);
    free(joined.data);
    if (parquet_decode_levels(e.at, e.end, data[3] >> 4, e.n, levels))
        for (uint64_t i = 0; i < e.n; i++)
            FUZZ_ASSERT(levels[i] <= data[3] >> 4);
}

static void check_codec(const uint8_t *data, uint64_t size)
{
    uint8_t out[ROOM];

    if (size < 3)
        return;
    uint64_t room = ((uint64_t)data[1] << 8 | data[2]) % (ROOM + 1);
    int r = parquet_codec_unpack(data[0] % 9, data + 3, size - 3, out, room);
    FUZZ_ASSERT(r == 0 || r == -EINVAL || r == -ENOTSUP || r == -ENOMEM);
    if (r == 0)
        read_all(out, room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > LARGEST)
        return 0;
    /* Of its own size, so that a byte too far is seen. */
    _cleanup_free_ uint8_t *copy = malloc(max_u64(size - 1, 1));
    FUZZ_ASSERT(copy);
    memcpy(copy, data + 1, size - 1);
    if (data[0] >= 192)
        check_codec(copy, size - 1);
    else if (data[0] >= 128)
        check_encoding(copy, size - 1);
    else
        check_file(copy, size - 1);
    return 0;
}
