/* Packed rows, and samples held against what is planned of them. */
#include "tests/unit/collate_case.h"

/* Keys of `how` that the plan knows: lengths, rows, cut. */
static void read_planned(const char *how, struct planned *ret)
{
    static uint32_t lists[2 * CASE_SAMPLES];
    _cleanup_(value_deinit) struct value v = {0};
    const struct value *list;
    char text[512];

    snprintf(text, sizeof text, "{%s}", how);
    must_parse(text, &v);
    *ret = (struct planned){.lengths = lists, .in_row = lists + CASE_SAMPLES};
    list = value_get(&v, "lengths");
    for (uint32_t i = 0; list && i < list->count; i++)
        lists[i] = (uint32_t)list->items[i].integer;
    if ((list = value_get(&v, "rows"))) {
        ret->rows = list->count;
        for (uint32_t i = 0; i < list->count; i++)
            lists[CASE_SAMPLES + i] = (uint32_t)list->items[i].integer;
    }
    if ((list = value_get(&v, "cut")))
        ret->cut = (uint32_t)list->integer;
}

/* Fits the samples, and measures the batch. */
static int make(const char *how, struct collate *c, struct case_samples *s,
                struct batch_layout *ret, size_t *ret_bad, struct dl_error *err)
{
    static struct planned planned; /* borrowed until the batch is written */

    read_planned(how, &planned);
    *ret_bad = 99;
    int r = collate_fit(c, s->samples, case_numbers, s->n, &planned, ret_bad, err);
    if (r < 0)
        return r;
    *ret_bad = 99;
    return collate_measure(c, s->samples, case_numbers, s->n, &planned, CASE_BEGIN, ret, ret_bad,
                           err);
}

static const struct collate_case good[] = {
    /* Two rows; a number is stacked. */
    {"kind: pack, length: 4, value: 9, lengths: [2, 1, 3], rows: [2, 1]",
     "[{x: {$tensor: [uint8, [2], 1]}, y: 5}, {x: {$tensor: [uint8, [1], 3]}, y: 6}, {x: {$tensor: "
     "[uint8, [3], 5]}, y: 7}]",
     "{segment_ids:int32(2, 4)[1 1 2 0 1 1 1 0] position_ids:int32(2, 4)[0 1 0 0 0 1 2 0] "
     "cu_seqlens:int32(6,)[0 2 3 4 7 8] max_seqlen:int32 3 x:uint8(2, 4)[1 8 3 9 5 12 19 9] "
     "y:int64(3,)[5 6 7]}"},
    /* No padding: no piece of it. */
    {"kind: pack, length: 2, lengths: [2, 1, 1], rows: [1, 2]",
     "[{x: {$tensor: [uint8, [2], 1]}}, {x: {$tensor: [uint8, [1], 3]}}, {x: {$tensor: [uint8, "
     "[1], 5]}}]",
     "{segment_ids:int32(2, 2)[1 1 1 2] position_ids:int32(2, 2)[0 1 0 0] cu_seqlens:int32(4,)[0 2 "
     "3 4] max_seqlen:int32 2 x:uint8(2, 2)[1 8 3 5]}"},
    /* The bare leaf; the padding is the longest piece. */
    {"kind: pack, length: 4, lengths: [1], rows: [1]", "[{$tensor: [uint8, [1], 7]}]",
     "{values:uint8(1, 4)[7 0 0 0] segment_ids:int32(1, 4)[1 0 0 0] position_ids:int32(1, 4)[0 0 0 "
     "0] cu_seqlens:int32(3,)[0 1 4] max_seqlen:int32 3}"},
    /* In a list: a dict in its place; what is packed beside it needs none. */
    {"kind: pack, length: 2, lengths: [2], rows: [1]",
     "[{$tuple: [5, {$tensor: [uint8, [2], 7]}, {$tensor: [uint8, [2], 1]}]}]",
     "[int64(1,)[5] {values:uint8(1, 2)[7 14] segment_ids:int32(1, 2)[1 1] position_ids:int32(1, "
     "2)[0 1] cu_seqlens:int32(2,)[0 2] max_seqlen:int32 2} uint8(1, 2)[1 8]]"},
    /* length_of in a dict of a dict; further dimensions; fields, and what is not in them. */
    {"kind: pack, length: 2, fields: [a.b, c], length_of: a.b, lengths: [1, 2], rows: [1, 1]",
     "[{d: {$tensor: [uint8, [1], 9]}, a: {z: a, b: {$tensor: [uint8, [1], 1]}}, c: {$tensor: "
     "[uint8, [1, 2], 1]}}, {d: {$tensor: [uint8, [1], 8]}, a: {z: bc, b: {$tensor: [uint8, [2], "
     "2]}}, c: {$tensor: [uint8, [2, 2], 2]}}]",
     "{d:uint8(2, 1)[9 8] a:{segment_ids:int32(2, 2)[1 0 1 1] position_ids:int32(2, 2)[0 0 0 1] "
     "cu_seqlens:int32(4,)[0 1 2 4] max_seqlen:int32 2 z:texts[\"a\" \"bc\"] b:uint8(2, 2)[1 0 2 "
     "9]} c:uint8(2, 2, 2)[1 8 0 0 2 9 16 23]}"},
    /* Cut: all leaves of that length, or those that are packed. */
    {"kind: pack, length: 4, lengths: [2, 2], rows: [2], cut: 2",
     "[{x: {$tensor: [uint8, [5], 1]}, y: {$tensor: [uint8, [5], 2]}}, {x: {$tensor: [uint8, [2], "
     "3]}, y: {$tensor: [uint8, [2], 4]}}]",
     "{segment_ids:int32(1, 4)[1 1 2 2] position_ids:int32(1, 4)[0 1 0 1] cu_seqlens:int32(3,)[0 2 "
     "4] max_seqlen:int32 2 x:uint8(1, 4)[1 8 3 10] y:uint8(1, 4)[2 9 4 11]}"},
    {"kind: pad, lengths: [2], cut: 2",
     "[{x: {$tensor: [uint8, [3, 2], 1]}, y: {$tensor: [uint8, [4], 2]}}]",
     "{x:uint8(1, 2, 2)[1 8 15 22] x_lengths:int64(1,)[2] x_mask:bool(1, 2)[true true] y:uint8(1, "
     "4)[2 9 16 23] y_lengths:int64(1,)[4] y_mask:bool(1, 4)[true true true true]}"},
    {"kind: pad, fields: [x], lengths: [2], cut: 2",
     "[{x: {$tensor: [uint8, [3], 1]}, y: {$tensor: [uint8, [3], 2]}}]",
     "{x:uint8(1, 2)[1 8] x_lengths:int64(1,)[2] x_mask:bool(1, 2)[true true] y:uint8(1, 3)[2 9 "
     "16]}"},
    {"kind: none, lengths: [1, 3], cut: 3",
     "[{x: {$tensor: [uint8, [1], 1]}}, {x: {$tensor: [uint8, [4], 2]}}]",
     "[{x:uint8(1,)[1]} {x:uint8(3,)[2 9 16]}]"},
    {"kind: none, length_of: y, lengths: [1], cut: 1",
     "[{x: {$tensor: [uint8, [2], 1]}, y: {$tensor: [uint8, [3], 1]}, z: {$tensor: [uint8, [3], "
     "1]}}]",
     "[{x:uint8(2,)[1 8] y:uint8(1,)[1] z:uint8(1,)[1]}]"},
};

static const struct collate_case bad[] = {
    {"kind: pad, lengths: [2, 2]", "[{$tensor: [uint8, [2], 1]}, {$tensor: [uint8, [3], 1]}]",
     "1: dataset: sample 11 has 3 tokens, and had 2 when lengths were taken; the data has "
     "changed: open the loader again"},
    {"kind: none, lengths: [2], cut: 3", "[{$tensor: [uint8, [3], 1]}]",
     "0: dataset: sample 10 has 3 tokens, and had 2 when lengths were taken; the data has "
     "changed: open the loader again"},
    {"kind: none, lengths: [3], cut: 3", "[{$tensor: [uint8, [2], 1]}]",
     "0: dataset: sample 10 has 2 tokens, and had at least 3 when lengths were taken; the data "
     "has changed: open the loader again"},
    {"kind: none, lengths: [3]", "[{a: 5}]",
     "0: dataset: sample 10 has no leaf with a dimension, and had one when lengths were taken; "
     "the data has changed: open the loader again"},
    {"kind: none, lengths: [3], length_of: a", "[{a: 5, b: {$tensor: [uint8, [3], 1]}}]",
     "0: batch.length_of: sample 10 has no a with a dimension, and had one when lengths were "
     "taken; the data has changed: open the loader again"},
    {"kind: pack, length: 2, lengths: [2]", "[{$tensor: [uint8, [2], 1]}]",
     "18446744073709551615: collate: no rows are planned for this batch; packing needs "
     "batch.tokens"},
    {"kind: pack, length: 3, lengths: [2, 2], rows: [2]",
     "[{$tensor: [uint8, [2], 1]}, {$tensor: [uint8, [2], 1]}]",
     "18446744073709551615: collate: 4 tokens are planned for a row of 3"},
    {"kind: pack, length: 2147483647, lengths: [2, 2], rows: [1, 1]",
     "[{$tensor: [uint8, [2], 1]}, {$tensor: [uint8, [2], 1]}]",
     "18446744073709551615: collate: 2 rows of 2147483647 have more tokens than int32 counts; "
     "choose fewer batch.tokens"},
    {"kind: pack, length: 4, lengths: [2, 2], rows: [2]",
     "[{a: {$tensor: [uint8, [2], 1]}, b: {$tensor: [uint8, [2], 1]}}, "
     "{a: {$tensor: [uint8, [2], 1]}, b: {$tensor: [uint8, [1], 1]}}]",
     "1: collate: sample 11 has 2 tokens, but 1 elements at b; packed leaves need one length: "
     "name the leaves to pack in collate.fields"},
    {"kind: pack, length: 4, fields: [a], lengths: [1, 2], rows: [2]",
     "[{a: {$tensor: [uint8, [1], 1]}, b: {$tensor: [uint8, [1], 1]}}, "
     "{a: {$tensor: [uint8, [2], 1]}, b: {$tensor: [uint8, [2], 1]}}]",
     "1: collate: sample 11 has [2], sample 10 has [1], at b; name it in collate.fields to have it "
     "packed"},
    {"kind: pack, length: 4, lengths: [1, 1], rows: [2]",
     "[{$tensor: [uint8, [1, 2], 1]}, {$tensor: [uint8, [1, 3], 1]}]",
     "1: collate: sample 11 has [1, 3], sample 10 has [1, 2]; only the first dimension is packed"},
    {"kind: pack, length: 4, fields: [b], lengths: [1], rows: [1]",
     "[{a: {$tensor: [uint8, [1], 1]}}]",
     "0: collate.fields.0: sample 10 has no b; it can be packed at a"},
    {"kind: pack, length: 4, fields: [b], lengths: [1], rows: [1]",
     "[{a: {$tensor: [uint8, [1], 1]}, b: 5}]",
     "0: collate.fields.0: b is int64 [] in sample 10, and has no dimension to pack; the sample "
     "can "
     "be packed at a"},
    {"kind: pack, length: 4, lengths: [1], rows: [1]",
     "[{a: {$tensor: [uint8, [1], 1]}, position_ids: 5}]",
     "0: collate: the samples have a field position_ids, which packing would add; rename it"},
    {"kind: pack, length: 4, value: -1, lengths: [1], rows: [1]",
     "[{a: {$tensor: [uint8, [1], 1]}}]",
     "0: collate.value: -1 is not a value of uint8, at a; choose another value, or name the fields "
     "to pad in "
     "collate.fields"},
};

TEST(test_good)
{
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct collate *c = must_collate(good[i].how);
        struct case_samples s = {0};
        struct batch_layout layout;
        struct dl_error err = {0};
        size_t at;

        build_samples(&s, good[i].samples);
        /* Twice: what is cut already fits. */
        for (int k = 0; k < 2; k++) {
            if (make(good[i].how, c, &s, &layout, &at, &err) < 0)
                fail_msg("{%s}: %zu: %s: %s", good[i].how, at, err.path, err.message);
            check_image(&good[i], c, &layout);
        }
        free_samples(&s);
        collate_free(c);
    }
}

TEST(test_bad)
{
    char text[DL_ERROR_MESSAGE_MAX + DL_ERROR_PATH_MAX + 32];

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct collate *c = must_collate(bad[i].how);
        struct case_samples s = {0};
        struct batch_layout layout;
        struct dl_error err = {0};
        size_t at;

        build_samples(&s, bad[i].samples);
        if (make(bad[i].how, c, &s, &layout, &at, &err) == 0)
            fail_msg("{%s} %s: was taken", bad[i].how, bad[i].samples);
        snprintf(text, sizeof text, "%zu: %s: %s", at, err.path, err.message);
        assert_string_equal(text, bad[i].expect);
        free_samples(&s);
        collate_free(c);
    }
}

TEST(test_specs)
{
    static const struct {
        const char *how, *path, *text;
    } rows[] = {
        {"kind: pack", "collate.length",
         "0 is not a valid length of a row; write one from 1 to "
         "2147483647"},
        {"kind: pack, length: 2147483648", "collate.length",
         "2147483648 is not a valid length of a row; write one from 1 to 2147483647"},
        {"kind: pad, to: bucket, interval: 9223372036854775807, multiple_of: 9223372036854775806",
         "collate.multiple_of",
         "9223372036854775806 and batch.interval 9223372036854775807 have no common multiple "
         "within the limits; choose a smaller one"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct collate *c = NULL;
        struct dl_error err = {0};
        assert_int_equal(open_collate(rows[i].how, &c, &err), -EINVAL);
        assert_error(&err, EINVAL, rows[i].path, rows[i].text);
        assert_null(c);
    }
}

/* ---- packed, and taken apart again ----------------------------------------------------------- */

static uint64_t draw(uint64_t *state, uint64_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % n;
}

enum { MANY = 60, TOKEN = 6 /* bytes: int16 [3] */ };

struct many {
    struct arena arena;
    struct sample samples[MANY];
    uint64_t numbers[MANY];
    uint32_t lists[2 * MANY];
    struct planned planned;
    size_t n;
};

static void draw_many(struct many *m, uint64_t length, uint64_t *state)
{
    uint64_t left = 0;

    *m = (struct many){.n = 1 + draw(state, MANY)};
    m->planned = (struct planned){.lengths = m->lists, .in_row = m->lists + m->n};
    for (size_t i = 0; i < m->n; i++) {
        uint64_t tokens = 1 + draw(state, length);
        uint64_t shape[] = {tokens, 3};
        if (tokens > left || draw(state, 5) == 0) {
            m->planned.rows++;
            left = length;
        }
        left -= tokens;
        m->lists[i] = (uint32_t)tokens;
        m->lists[m->n + m->planned.rows - 1]++;
        m->samples[i].arena = &m->arena;
        uint8_t *data = sample_alloc(&m->samples[i], tokens * TOKEN);
        assert_non_null(data);
        for (uint64_t b = 0; b < tokens * TOKEN; b++)
            data[b] = (uint8_t)draw(state, 256);
        sample_begin(&m->samples[i], TREE_DICT, NULL);
        sample_int(&m->samples[i], "n", (int64_t)i);
        sample_tensor(&m->samples[i], "t", DL_DTYPE_INT16, 2, shape, data);
        assert_int_equal(sample_end(&m->samples[i]), 0);
    }
}

/* By cu_seqlens: each piece is a sample, in order, or padding; all else says the same. */
static void take_apart(const struct many *m, uint64_t length, const uint8_t *slot,
                       const struct tree_node *tree)
{
    const int32_t *segments = (const void *)(slot + tree[1].offset);
    const int32_t *positions = (const void *)(slot + tree[2].offset);
    const int32_t *bounds = (const void *)(slot + tree[3].offset);
    int32_t longest = *(const int32_t *)(const void *)(slot + tree[4].offset), most = 0;
    const uint8_t *values = slot + tree[6].offset;
    size_t sample = 0;

    assert_int_equal(tree[6].shape[0], m->planned.rows);
    assert_int_equal(tree[6].shape[1], length);
    assert_int_equal(bounds[0], 0);
    assert_int_equal(bounds[tree[3].shape[0] - 1], m->planned.rows * length);
    for (uint64_t k = 0; k + 1 < tree[3].shape[0]; k++) {
        int32_t begin = bounds[k], end = bounds[k + 1], id = segments[begin];
        bool padding = id == 0;
        assert_true(begin < end && (uint64_t)begin / length == (uint64_t)(end - 1) / length);
        most = end - begin > most ? end - begin : most;
        for (int32_t i = begin; i < end; i++) {
            assert_int_equal(segments[i], id);
            assert_int_equal(positions[i], padding ? 0 : i - begin);
        }
        if (padding) {
            for (int32_t b = begin * TOKEN; b < end * TOKEN; b += 2)
                assert_memory_equal(values + b, "\xf9\xff", 2); /* -7 */
            assert_int_equal((uint64_t)end % length, 0);
            continue;
        }
        assert_int_equal(id, (uint64_t)begin % length ? segments[begin - 1] + 1 : 1);
        assert_int_equal(end - begin, m->planned.lengths[sample]);
        assert_memory_equal(values + begin * TOKEN, m->samples[sample].data[2],
                            (size_t)(end - begin) * TOKEN);
        sample++;
    }
    assert_int_equal(sample, m->n);
    assert_int_equal(longest, most);
}

TEST(test_taken_apart)
{
    static _Alignas(4096) uint8_t slot[1 << 17];
    uint64_t random = 5;

    for (int turn = 0; turn < 300; turn++) {
        uint64_t length = 1 + draw(&random, 40);
        struct dl_spec spec = {.batch_size = 1,
                               .batch.tokens = 1 << 20,
                               .collate = {.kind = COLLATE_PACK, .length = length, .value = -7}};
        struct collate *c = NULL;
        struct batch_layout layout;
        struct dl_error err = {0};
        struct many m;
        size_t at;

        draw_many(&m, length, &random);
        assert_int_equal(collate_new(&spec, &anywhere, &c, &err), 0);
        assert_int_equal(collate_fit(c, m.samples, m.numbers, m.n, &m.planned, &at, &err), 0);
        if (collate_measure(c, m.samples, m.numbers, m.n, &m.planned, 128, &layout, &at, &err) < 0)
            fail_msg("%s: %s", err.path, err.message);
        assert_in_range(layout.used, 128, sizeof slot);
        memset(slot, 0xa5, sizeof slot);
        collate_write(c, slot);
        assert_int_equal(tree_check(slot + layout.tree_off, layout.tree_len, layout.tree_count,
                                    layout.used, &err),
                         0);
        take_apart(&m, length, slot, (const void *)(slot + layout.tree_off));
        collate_free(c);
        for (size_t i = 0; i < m.n; i++)
            sample_deinit(&m.samples[i]);
        arena_deinit(&m.arena);
    }
}
