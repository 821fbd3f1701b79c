/* Lengths of a plug-in's samples: whom they are asked of, and what is said of wrong ones. */
#include "daemon/data/collate/lengths.h"
#include "tests/lib/lengths.h"
#include "tests/unit/fail_alloc.h"
#include "tests/unit/plugins.h"

#include <errno.h>

enum { ROOM = 3000 };

/* bad_plugin.c's lengths() says ten times what is true: index + 1. */
TEST(test_who_is_asked)
{
    static const struct {
        const char *table;
        const char *mode;
        const char *leaf;
        uint32_t times;
        uint64_t first;
        size_t n;
    } rows[] = {
        {"map, lengths", "tokens", NULL, 10, 0, 10},
        {"map, lengths", "tokens", NULL, 10, 9, 1},
        {"map, lengths", "tokens", NULL, 10, 4, 0},
        {"map, lengths", "tokens", "tokens", 1, 0, 10},
        {"map, lengths", "tokens: unknown", NULL, 1, 2, 8},
        {"map", "tokens", NULL, 1, 0, 10},
        {"map, lengths", "tokens of 3000", NULL, 10, 0, 3000},
        {"map, lengths", "tokens of 3000", NULL, 10, 17, 2048},
    };
    static uint32_t got[ROOM + 1];
    struct data_env env = plugin_env();

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dataset *ds = must_open(rows[i].table, rows[i].mode, &env);
        struct dl_error err = {0};
        uint64_t bad = 77;
        got[rows[i].n] = 77;
        if (LENGTHS(dataset_lengths, ds, rows[i].leaf, rows[i].first, rows[i].n, got, &bad, &err) <
            0)
            fail_msg("%s: %s", err.path, err.message);
        for (size_t k = 0; k < rows[i].n; k++)
            assert_int_equal(got[k], rows[i].times * (rows[i].first + k + 1));
        assert_int_equal(got[rows[i].n], 77);
        dataset_close(ds);
    }
}

TEST(test_refusals)
{
    static const struct {
        const char *mode;
        const char *leaf;
        int code;
        uint64_t bad;
        const char *message; /* NULL: it is no fault */
    } rows[] = {
        {"tokens: fails", NULL, EIO, UINT64_MAX, "lengths(): the table of lengths is broken"},
        {"tokens: fails", "tokens", 0, UINT64_MAX, NULL},
        {"tokens: silent", NULL, ENOENT, UINT64_MAX,
         "lengths(): it failed with -2 (No such file or directory) without a message"},
        {"tokens: positive", NULL, EPROTO, UINT64_MAX,
         "lengths(): it returned 3 instead of 0 or a negative errno"},
        {"tokens: unwritten", NULL, 0, UINT64_MAX, NULL},
        {"tokens: empty", NULL, 0, UINT64_MAX, NULL},
        {"tokens: huge", NULL, EOVERFLOW, 5,
         "lengths(): sample 5 has 4294967297 tokens; a sample has fewer than 2^32 - 1"},
        {"tokens: sentinel", NULL, EOVERFLOW, 5,
         "lengths(): sample 5 has 4294967295 tokens; a sample has fewer than 2^32 - 1"},
    };
    struct data_env env = plugin_env();
    uint32_t got[9];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dataset *ds = must_open("map, lengths", rows[i].mode, &env);
        struct dl_error err = {0};
        uint64_t bad = 77;
        int r = LENGTHS(dataset_lengths, ds, rows[i].leaf, 1, 9, got, &bad, &err);
        assert_int_equal(r, -rows[i].code);
        assert_int_equal(bad, rows[i].bad);
        if (rows[i].message)
            assert_error(&err, rows[i].code, rows[i].code == EINVAL ? "dataset" : bad_plugin(),
                         rows[i].message);
        dataset_close(ds);
    }
}
