/* Bad samples: their list in a slot, whatever stands there, and how many of them there may be. */
#include "tests/unit/fail_alloc.h"
#include "tests/unit/spec_text.h"

#include "proto/shared/quarantine.h"
#include "proto/shared/words.h"
#include "proto/slot_fill.h"

#include <errno.h>

enum { SLOT_BYTES = 64 * 1024 };

static _Alignas(64) char slot[SLOT_BYTES];
static struct slot_header *const header = (void *)slot;

static void add(struct bad_list *list, uint64_t index)
{
    struct dl_error err;

    dl_error_set(&err, EBADMSG, "a.json", "line %llu is no JSON", (unsigned long long)index);
    assert_int_equal(bad_list_add(list, index, index + 1, &err), 0);
}

static struct bad_list list_of(uint64_t n)
{
    struct bad_list list = {0};

    for (uint64_t i = 0; i < n; i++)
        add(&list, i);
    return list;
}

/* ---- in the slot ---------------------------------------------------------------------------- */

TEST(test_what_is_put_is_read)
{
    static const uint32_t counts[] = {0, 1, 2, SLOT_BAD_MAX, SLOT_BAD_MAX + 1, 1000};

    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        struct bad_list list = list_of(counts[i]), got = {0};
        uint64_t used = 1000, need = 1024 + min_u64(counts[i], SLOT_BAD_MAX) * 512;
        memset(slot, 0xaa, sizeof slot);
        header->bad_off = header->bad_count = 0;
        assert_true(slot_put_bad(slot, SLOT_BYTES, &list, &used));
        assert_int_equal(used, counts[i] ? need : 1000);
        for (uint64_t at = 1000; counts[i] && at < 1024; at++)
            assert_int_equal(slot[at], 0);
        assert_int_equal((uint8_t)slot[used], 0xaa);
        assert_int_equal(slot_read_bad(slot, SLOT_BYTES, &got), 0);
        assert_int_equal(got.n, counts[i]);
        if (counts[i])
            assert_memory_equal(got.items, list.items, bad_list_listed(&list) * sizeof *got.items);
        used = 1000;
        if (counts[i]) {
            assert_string_equal(got.items[0].text, "a.json: line 0 is no JSON");
            assert_false(slot_put_bad(slot, need - 1, &list, &used));
            assert_int_equal(used, need);
        }
        bad_list_deinit(&list);
        bad_list_deinit(&got);
    }
}

TEST(test_what_makes_no_sense_is_refused)
{
    const struct {
        uint64_t off;
        uint32_t count, code;
        int r;
    } rows[] = {
        {256, 1, 5, 0},
        {256, 1, 4095, 0},
        {256, 1, 0, -EINVAL},
        {256, 1, 4096, -EINVAL},
        {256, 0, 5, -EINVAL},
        {0, 1, 5, -EINVAL},
        {128, 1, 5, -EINVAL}, /* over the header */
        {264, 1, 5, -EINVAL},
        {SLOT_BYTES - 512, 1, 5, 0},
        {SLOT_BYTES - 512, 2, 5, -EINVAL},
        {SLOT_BYTES - 448, 1, 5, -EINVAL},
        {UINT64_MAX - 63, 1, 5, -EINVAL},
        {SLOT_BYTES - 64 * 512, UINT32_MAX, 5, 0},
    };
    struct bad_list list = {0};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        memset(slot, 1, sizeof slot); /* texts without an end */
        header->bad_off = rows[i].off;
        header->bad_count = rows[i].count;
        for (uint64_t at = rows[i].off; at <= SLOT_BYTES - 512; at += 512)
            memcpy(slot + at + 8, &rows[i].code, 4);
        assert_int_equal(slot_read_bad(slot, SLOT_BYTES, &list), rows[i].r);
        if (rows[i].r < 0)
            continue;
        assert_int_equal(list.n, rows[i].count);
        assert_int_equal(strlen(list.items[0].text), SLOT_BAD_TEXT - 1);
        assert_int_equal(list.items[0].text[0], '?'); /* a control character */
    }
    bad_list_deinit(&list);
}

/* ---- the quarantine ------------------------------------------------------------------------- */

static const struct bad_place nowhere;

static enum bad_verdict admit(struct quarantine *q, uint32_t rank, uint64_t index)
{
    struct slot_bad bad = {.index = index, .code = EIO, .text = "x"};
    struct bad_place place = {.rank = rank, .world = 3};

    return quarantine_admit(q, &place, &bad, NULL);
}

TEST(test_each_sample_counts_once)
{
    struct quarantine q = {.limit = 4};

    assert_int_equal(admit(&q, 0, 7), BAD_NEW);
    assert_int_equal(admit(&q, 0, 7), BAD_KNOWN);
    assert_int_equal(admit(&q, 1, 7), BAD_NEW);
    assert_int_equal(admit(&q, 0, UINT64_MAX), BAD_NEW);
    assert_int_equal(admit(&q, 0, 0), BAD_NEW);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(admit(&q, 0, 1), BAD_ABOVE);
        assert_int_equal(admit(&q, 1, 7), BAD_KNOWN);
    }
    assert_int_equal(quarantine_count(&q), 4);
    assert_int_equal(q.n, 4);
    assert_true(q.samples[0].index == 0 && q.samples[1].index == 7 && q.samples[1].seen == 2);
    assert_true(q.samples[2].index == UINT64_MAX && q.samples[3].place.rank == 1);
    assert_int_equal(quarantine_admit_unlisted(&q, 1), BAD_ABOVE);
    quarantine_deinit(&q);
}

TEST(test_many_are_found_again)
{
    struct quarantine q = {.limit = 5000};

    for (int again = 0; again < 2; again++)
        for (uint64_t i = 0; i < 5000; i++)
            assert_int_equal(admit(&q, 0, i * 7919 % 5000), again ? BAD_KNOWN : BAD_NEW);
    assert_int_equal(admit(&q, 0, 5000), BAD_ABOVE);
    uint32_t told = 0;
    for (uint32_t i = 0; i < q.n; i++)
        told += q.samples[i].text != NULL;
    assert_int_equal(told, QUARANTINE_TOLD);
    quarantine_deinit(&q);
}

TEST(test_without_memory_it_counts_all_the_same)
{
    struct quarantine q = {.limit = 2};

    fail_in = 0;
    assert_int_equal(admit(&q, 0, 7), BAD_NEW);
    assert_int_equal(quarantine_count(&q), 1);
    assert_int_equal(q.n, 0);
    assert_int_equal(admit(&q, 0, 7), BAD_NEW);
    assert_int_equal(admit(&q, 0, 8), BAD_ABOVE);
    quarantine_deinit(&q);
}

static void name(void *owner, const struct bad_sample *sample)
{
    unsigned *named = owner;

    (*named)++;
    assert_string_equal(sample->text + strlen(sample->text) - 10, "is no JSON");
}

TEST(test_batches_are_taken_as_far_as_they_may)
{
    struct quarantine q = {.limit = 70};
    struct bad_list three = list_of(3), many = list_of(70), above = list_of(71), other = {0};
    struct dl_error err = {0};
    unsigned named = 0;

    assert_true(quarantine_take(&q, &nowhere, &three, name, &named, &err));
    assert_true(quarantine_take(&q, &nowhere, &many, name, &named, &err));
    assert_int_equal(named, SLOT_BAD_MAX);
    assert_int_equal(quarantine_count(&q), 70);
    /* The six that nobody names may be others. */
    assert_false(quarantine_take(&q, &nowhere, &many, name, &named, &err));
    assert_int_equal(err.code, EIO);
    assert_string_equal(err.message,
                        "6 samples of one batch: they are bad; workers.max_bad allows only 70 "
                        "bad samples: check them (dlctl quarantine), repair the data, or raise "
                        "it");
    add(&other, 99);
    assert_false(quarantine_take(&q, &nowhere, &other, name, &named, &err));
    assert_int_equal(err.code, EBADMSG);
    assert_memory_equal(err.message,
                        "sample 99: a.json: line 99 is no JSON; workers.max_bad "
                        "allows only",
                        53);
    assert_true(quarantine_take(&q, &nowhere, &three, name, &named, &err));
    assert_int_equal(named, SLOT_BAD_MAX);
    bad_list_deinit(&three);
    bad_list_deinit(&many);
    bad_list_deinit(&above);
    bad_list_deinit(&other);
    quarantine_deinit(&q);
}

TEST(test_words)
{
    struct quarantine q = {.limit = 5, .n = 2};
    struct bad_sample sample = {.index = 7, .text = (char *)(uintptr_t) "it is torn"};
    struct bad_list list = list_of(6);
    char text[1024];

    words_bad(&sample, &q, true, text, sizeof text);
    assert_string_equal(text, "sample 7 is bad, and left out: it is torn (2 of 5 that may be)");
    sample.place = (struct bad_place){.rank = 1, .world = 2, .worker = 3};
    sample.text = NULL;
    words_bad(&sample, &q, false, text, sizeof text);
    assert_string_equal(text,
                        "sample 7 of worker 3, rank 1 is bad, and replaced: one of many (2 of "
                        "5 that may be)");
    bad_list_words(&list, text, sizeof text);
    assert_string_equal(text, "sample 0: a.json: line 0 is no JSON; sample 1: a.json: line 1 is no "
                              "JSON; sample 2: a.json: line 2 is no JSON; sample 3: a.json: line 3 "
                              "is no JSON; 6 in all");
    bad_list_deinit(&list);
}

/* ---- the budget ----------------------------------------------------------------------------- */

TEST(test_how_many_there_may_be)
{
    const struct {
        const char *workers;
        uint64_t length, most;
        bool refused;
    } rows[] = {
        {"{}", 1000, 0, false},
        {"{on_error: skip}", 1000, 100, false},
        {"{on_error: skip}", UINT64_MAX, 100, false},
        {"{on_error: substitute, max_bad: 7}", 3, 7, false},
        {"{on_error: skip, max_bad: 1%}", 1000, 10, false},
        {"{on_error: skip, max_bad: 0.01}", 199, 1, false},
        {"{on_error: skip, max_bad: 1%}", 99, 0, false},
        {"{on_error: skip, max_bad: 99.9%}", 1ull << 40, 65536, false},
        {"{on_error: skip, max_bad: 1%}", UINT64_MAX, 0, true},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_free_ char *text = NULL;
        struct dl_spec spec = {0};
        struct dl_error err = {0};

        assert_true(asprintf(&text, "{dataset: {kind: range, length: 3}, workers: %s}",
                             rows[i].workers) >= 0);
        assert_int_equal(read_spec(text, "/base", &spec, &err), 0);
        assert_int_equal(spec_max_bad(&spec, rows[i].length), rows[i].most);
        assert_int_equal(spec_check_share(&spec, rows[i].length, &err),
                         rows[i].refused ? -EINVAL : 0);
        if (rows[i].refused)
            assert_string_equal(err.message,
                                "0.01 is a share of the dataset's samples, whose number is "
                                "unknown; write a number of samples, such as 100");
        spec_deinit(&spec);
    }
}

/* ---- of samples that are repeated ----------------------------------------------------------- */

TEST(test_what_is_left_of_the_last_ones)
{
    const struct {
        uint64_t n; /* bad, at positions 1 to n */
        uint32_t planned, tail, left;
    } rows[] = {
        {0, 8, 3, 3},    {4, 8, 3, 3},    {5, 8, 3, 2},     {6, 8, 3, 1},     {7, 8, 3, 0},
        {3, 8, 0, 0},    {2, 3, 3, 1},    {64, 99, 30, 30}, {69, 99, 30, 25}, /* 5 are not listed */
        {94, 99, 30, 0}, {97, 99, 30, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct bad_list list = list_of(rows[i].n);
        assert_int_equal(bad_list_left(&list, rows[i].planned, rows[i].tail), rows[i].left);
        bad_list_deinit(&list);
    }
}
