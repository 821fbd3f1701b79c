/*
 * Batches of a dataset some of whose samples are bad: as workers.on_error has it, the same image
 * whatever was in the slot before.
 */
#include "tests/unit/data_files.h"

#include "daemon/data/fetch.h"
#include "proto/slot_bad.h"

#include <errno.h>

enum { SLOT_BYTES = 256 * 1024, LENGTH = 40, MOST = 20 };

static _Alignas(64) char slot_a[SLOT_BYTES], slot_b[SLOT_BYTES];

/* Line i is "x…x", i of them, and no JSON in lines 3, 5, 6 and from 20 to 37. */
static bool is_bad(uint64_t i)
{
    return i == 3 || i == 5 || i == 6 || (i >= 20 && i <= 37);
}

static struct fetcher *open_lines(enum on_error on_error, uint64_t batch_size)
{
    static struct spec_file file;
    struct dl_spec spec = {.dataset = {.kind = DATASET_TEXT,
                                       .files = &file,
                                       .n_files = 1,
                                       .format = TEXT_JSON,
                                       .field = (char *)(uintptr_t) "text",
                                       .tokenizer = TOKENIZER_BYTES},
                           .batch_size = batch_size,
                           .collate = {.kind = COLLATE_NONE},
                           .on_error = on_error};
    char text[LENGTH * 80] = "";
    struct fetcher *f = NULL;
    struct dl_error err = {0};

    for (int i = 0; i < LENGTH; i++) {
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "{\"text\": \"%.*s\"%s\n", i % 30,
                 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", is_bad((uint64_t)i) ? "" : "}");
    }
    file.path = (char *)(uintptr_t)harness_text("lines.jsonl", text);
    if (fetcher_new(&spec, &anywhere, &f, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    assert_int_equal(fetcher_length(f), LENGTH);
    return f;
}

static int fill(struct fetcher *f, char *slot, int garbage, const uint64_t *indices, uint32_t n,
                uint64_t *ret_used, struct dl_error *err)
{
    memset(slot, garbage, SLOT_BYTES);
    assert_true(slot_prepare(slot, SLOT_BYTES,
                             &(struct slot_task){.indices = indices, .samples = n, .step = 11}));
    return fetcher_fill(f, slot, SLOT_BYTES, ret_used, err);
}

struct row {
    uint32_t n;
    uint64_t indices[MOST];
    uint32_t n_skipped;
    uint64_t skipped[MOST];     /* what is left */
    uint64_t substituted[MOST]; /* n of them */
    uint32_t n_bad, n_bad_further;
    uint64_t bad[MOST]; /* with skip */
};

static const struct row rows[] = {
    {3, {0, 1, 2}, 3, {0, 1, 2}, {0, 1, 2}, 0, 0, {0}},
    {3, {2, 3, 4}, 2, {2, 4}, {2, 4, 4}, 1, 1, {3}},
    {4, {5, 1, 6, 5}, 1, {1}, {7, 1, 7, 7}, 3, 5, {5, 6, 5}},
    {2, {38, 39}, 2, {38, 39}, {38, 39}, 0, 0, {0}},
    {2, {37, 0}, 1, {0}, {38, 0}, 1, 1, {37}},
    {2, {22, 8}, 1, {8}, {38, 8}, 1, 16, {22}},
};

static void check(const struct row *row, enum on_error on_error)
{
    const struct slot_header *header = (const void *)slot_a;
    bool skips = on_error == ON_ERROR_SKIP;
    struct fetcher *f = open_lines(on_error, MOST);
    const uint64_t *want = skips ? row->skipped : row->substituted;
    uint32_t n = skips ? row->n_skipped : row->n;
    struct bad_list bad = {0};
    struct dl_error err = {0};
    uint64_t used = 0, again = 0;

    assert_int_equal(fill(f, slot_a, 0xaa, row->indices, row->n, &used, &err), 0);
    assert_int_equal(fill(f, slot_b, 0x55, row->indices, row->n, &again, &err), 0);
    assert_int_equal(used, again);
    assert_memory_equal(slot_a, slot_b, used);
    assert_int_equal(header->used, used);
    assert_int_equal(header->samples, n);
    assert_memory_equal(slot_a + header->indices_off, want, n * sizeof *want);
    assert_int_equal(slot_read_bad(slot_a, SLOT_BYTES, &bad), 0);
    assert_int_equal(bad.n, skips ? row->n_bad : row->n_bad_further);
    for (uint32_t i = 0; skips && i < bad.n; i++) {
        assert_int_equal(bad.items[i].index, row->bad[i]);
        assert_int_equal(row->indices[bad.items[i].position], row->bad[i]);
        assert_non_null(strstr(bad.items[i].text, "lines.jsonl"));
    }
    /* Behind the header and the list, the same as a batch of just these. */
    struct fetcher *plain = open_lines(ON_ERROR_RAISE, MOST);
    assert_int_equal(fill(plain, slot_b, 0x55, want, n, &again, &err), 0);
    assert_memory_equal(slot_a + SLOT_HEADER_BYTES, slot_b + SLOT_HEADER_BYTES,
                        again - SLOT_HEADER_BYTES);
    if (bad.n > 0) /* one byte too few for the list */
        assert_int_equal(used, align_up(again, 64) + bad.n * sizeof(struct slot_bad));
    bad_list_deinit(&bad);
    fetcher_free(f);
    fetcher_free(plain);
}

TEST(test_skip_and_substitute)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        check(&rows[i], ON_ERROR_SKIP);
        check(&rows[i], ON_ERROR_SUBSTITUTE);
    }
}

TEST(test_a_slot_without_room_for_the_list)
{
    struct fetcher *f = open_lines(ON_ERROR_SKIP, MOST);
    struct dl_error err = {0};
    uint64_t used = 0, need = 0;

    assert_int_equal(fill(f, slot_a, 0xaa, rows[1].indices, 3, &used, &err), 0);
    for (uint64_t room = used - 520; room <= used; room++) {
        assert_true(slot_prepare(
            slot_b, room,
            &(struct slot_task){.indices = rows[1].indices, .samples = 3, .step = 11}));
        int r = fetcher_fill(f, slot_b, room, &need, &err);
        assert_int_equal(r, room < used ? -ENOBUFS : 0);
        assert_true(need <= used && (need == used || room < used - 512));
    }
    fetcher_free(f);
}

TEST(test_what_remains_an_error)
{
    const struct {
        enum on_error on_error;
        uint32_t n;
        uint64_t indices[3], bad;
        const char *words;
    } cases[] = {
        {ON_ERROR_RAISE, 2, {3, 0}, 3, "lines.jsonl"},
        {ON_ERROR_SKIP, 3, {3, 5, 3}, 3, "no sample is left in this batch: all are"},
        /* Sixteen further ones are tried, and 21 to 37 are bad. */
        {ON_ERROR_SUBSTITUTE, 2, {0, 20}, 20, "no sample is left in this batch"},
        /* Who asks for it is at fault. */
        {ON_ERROR_SKIP, 2, {0, 40}, 40, "sample 40 is beyond the dataset's 40 samples"},
        {ON_ERROR_SUBSTITUTE, 2, {0, 40}, 40, "sample 40 is beyond the dataset's 40 samples"},
    };
    const struct slot_header *header = (const void *)slot_a;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fetcher *f = open_lines(cases[i].on_error, MOST);
        struct dl_error err = {0};
        uint64_t used = 0;
        assert_true(fill(f, slot_a, 0xaa, cases[i].indices, cases[i].n, &used, &err) < 0);
        if (!strstr(slot_a + header->error_off, cases[i].words))
            fail_msg("%zu: %s", i, slot_a + header->error_off);
        assert_int_equal(header->error_index, cases[i].bad);
        assert_int_equal(header->bad_count, 0);
        /* What was asked for stands there, for who names it. */
        assert_memory_equal(slot_a + header->indices_off, cases[i].indices, cases[i].n * 8);
        fetcher_free(f);
    }
}
