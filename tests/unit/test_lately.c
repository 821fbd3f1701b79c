/* The last ten minutes: what is told late, what is told at once, and what is too long ago. */
#include "tests/lib/harness.h"

#include "daemon/serve/core/lately.h"

#define S ((uint64_t)1000000000)

/* Where all tests begin: in the middle of a bin, long after the clock began. */
#define BEGIN (1000005 * S)
#define BIN   (BEGIN / LATELY_BIN_NS)

/* Within what a bin can tell. */
static void check_bin(const struct lately_line *line, uint64_t bin, uint64_t read, uint64_t waited)
{
    uint64_t got_read = 0, got_waited = 0;

    assert_int_equal(lately_line_at(line, bin, &got_read, &got_waited), read > 0);
    assert_in_range(got_read + S / 1000, read, read + S / 500);
    assert_in_range(got_waited + S / 1000, waited, waited + S / 500);
}

TEST(test_adding)
{
    static const struct {
        uint64_t from, to, waited; /* seconds from BEGIN */
        struct {
            uint64_t read, waited;
        } bins[4]; /* from BIN on */
    } rows[] = {
        {0, 5, 0, {{5, 0}}},
        {0, 5, 2, {{5, 2}}},
        {0, 4, 4, {{4, 4}}},
        {1, 1, 3, {{0, 0}}},                             /* no time at all */
        {0, 15, 0, {{5, 0}, {10, 0}}},                   /* up to where a bin ends */
        {0, 30, 15, {{5, 2}, {10, 5}, {10, 5}, {5, 2}}}, /* evenly; 2.5 of the first */
        {0, 25, 100, {{5, 5}, {10, 10}, {10, 10}}},      /* more than there was time */
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct lately_line line = {0};

        lately_line_add(&line, BEGIN + rows[i].from * S, BEGIN + rows[i].to * S,
                        rows[i].waited * S);
        for (size_t bin = 0; bin < 4; bin++) {
            uint64_t read = 0, waited = 0;

            assert_int_equal(lately_line_at(&line, BIN + bin, &read, &waited),
                             rows[i].bins[bin].read > 0);
            assert_in_range((read + S / 100) / S, rows[i].bins[bin].read, rows[i].bins[bin].read);
            assert_in_range((waited + S / 100) / S, rows[i].bins[bin].waited,
                            rows[i].bins[bin].waited);
        }
        assert_false(lately_line_at(&line, BIN - 1, &(uint64_t){0}, &(uint64_t){0}));
        assert_false(lately_line_at(&line, BIN + 4, &(uint64_t){0}, &(uint64_t){0}));
    }
}

/* Sums of small waits do not get lost, nor do they grow. */
TEST(test_small_waits)
{
    struct lately_line line = {0};

    for (uint64_t ms = 0; ms < 5000; ms += 10)
        lately_line_add(&line, BEGIN + ms * 1000000, BEGIN + (ms + 10) * 1000000, 4 * 1000000);
    check_bin(&line, BIN, 5 * S, 2 * S);
}

/* A wait that is told when it is over was in the bins before. */
TEST(test_told_late)
{
    struct lately_line line = {0};

    lately_line_add(&line, BEGIN, BEGIN + 5 * S, S);
    lately_line_add(&line, BEGIN + 5 * S, BEGIN + 15 * S, 0);
    lately_line_add(&line, BEGIN + 15 * S, BEGIN + 25 * S, 23 * S);
    check_bin(&line, BIN + 2, 10 * S, 10 * S);
    check_bin(&line, BIN + 1, 10 * S, 10 * S);
    check_bin(&line, BIN, 5 * S, 4 * S);
    /* More than ever was there fills all. */
    lately_line_add(&line, BEGIN + 25 * S, BEGIN + 26 * S, 1000 * S);
    check_bin(&line, BIN, 5 * S, 5 * S);
    check_bin(&line, BIN + 3, S, S);
}

TEST(test_long_ago)
{
    struct lately_line line = {0};
    uint64_t later = BEGIN + 10 * LATELY_BINS * LATELY_BIN_NS;

    lately_line_add(&line, BEGIN, BEGIN + 5 * S, S);
    lately_line_add(&line, BEGIN + 100 * S, BEGIN + 101 * S, S);
    check_bin(&line, BIN, 5 * S, S);
    assert_false(lately_line_at(&line, BIN + 5, &(uint64_t){0}, &(uint64_t){0}));
    check_bin(&line, BIN + 10, S, S);
    /* One look over more than a line has. */
    lately_line_add(&line, BEGIN + 101 * S, later, (later - BEGIN - 101 * S) / 2);
    for (uint64_t bin = later / LATELY_BIN_NS - LATELY_BINS + 1; bin < later / LATELY_BIN_NS; bin++)
        check_bin(&line, bin, 10 * S, 5 * S);
    assert_false(lately_line_at(&line, BIN + 10, &(uint64_t){0}, &(uint64_t){0}));
}

/* Looks at a rank that gets nothing, and then says so. */
TEST(test_looks)
{
    struct lately_line line = {0};
    struct lately_mark mark = {0};
    struct lately_look look = {.begun_ns = BEGIN, .now = BEGIN + 5 * S, .empty = true};

    lately_line_look(&line, &mark, &look);
    check_bin(&line, BIN, 5 * S, 5 * S); /* presumed */
    look.now += 10 * S;
    lately_line_look(&line, &mark, &look);
    check_bin(&line, BIN + 1, 10 * S, 10 * S);
    /* It is told now: nothing is counted twice. */
    look.now += 10 * S;
    look.waited_ns = 17 * S;
    look.delivered = 3;
    look.empty = false;
    lately_line_look(&line, &mark, &look);
    check_bin(&line, BIN + 2, 10 * S, 2 * S);
    /* At the same time there is nothing new, and nothing is lost. */
    look.waited_ns += S;
    lately_line_look(&line, &mark, &look);
    look.now += 10 * S;
    lately_line_look(&line, &mark, &look);
    check_bin(&line, BIN + 3, 10 * S, S);
    /* Who was given something meanwhile and has nothing any more is not known to wait. */
    look.now += 10 * S;
    look.delivered++;
    look.empty = true;
    lately_line_look(&line, &mark, &look);
    check_bin(&line, BIN + 4, 10 * S, 0);
}

TEST(test_totals)
{
    struct lately_totals totals = {0};
    uint64_t batches = 0, bytes = 0, all = 0;

    assert_false(lately_totals_at(&totals, BIN, &batches, &bytes));
    lately_totals_look(&totals, BEGIN, 7, 70); /* whenever those came */
    assert_true(lately_totals_at(&totals, BIN, &batches, &bytes));
    assert_int_equal(batches, 7);
    lately_totals_look(&totals, BEGIN + 20 * S, 7 + 41, 70 + 400);
    for (uint64_t bin = BIN; bin <= BIN + 2; bin++) {
        assert_true(lately_totals_at(&totals, bin, &batches, &bytes));
        all += batches;
    }
    assert_int_equal(all, 48);
    assert_int_equal(batches, 11); /* the last one has the rest */
    assert_int_equal(bytes, 100);
    /* After a day there is an even line. */
    lately_totals_look(&totals, BEGIN + 86420 * S, 48 + 86400, 470);
    assert_true(lately_totals_at(&totals, BIN + 8641, &batches, &bytes));
    assert_in_range(batches, 9, 11);
    assert_false(lately_totals_at(&totals, BIN + 2, &batches, &bytes));
}

static struct lately_key key_of(const char *job, const void *owner, uint64_t rank)
{
    struct lately_key key;

    memset(&key, 0, sizeof key);
    strcpy(key.job, job);
    key.owner = owner;
    key.rank = rank;
    key.world = 8;
    return key;
}

TEST(test_book)
{
    struct lately_book book = {0};
    const struct stream *first = (const void *)&book, *second = (const void *)state;
    struct lately_key key = key_of("job", NULL, 1), other = key_of("", &key, 1);

    struct lately_rank *rank = lately_book_join(&book, &key, first, BEGIN);
    assert_non_null(rank);
    assert_ptr_not_equal(lately_book_join(&book, &other, first, BEGIN), rank);
    /* The next epoch begins before the one before has ended. */
    assert_ptr_equal(lately_book_join(&book, &key, second, BEGIN), rank);
    lately_rank_leave(rank, first);
    assert_ptr_equal(rank->stream, second);
    lately_rank_leave(rank, second);
    lately_rank_leave(NULL, second);
    /* A loader that is read is kept; one that is not, for an hour. */
    lately_book_tidy(&book, BEGIN + LATELY_KEEP_NS);
    assert_int_equal(HASH_COUNT(book.ranks), 2);
    lately_book_tidy(&book, BEGIN + LATELY_KEEP_NS + 1);
    assert_int_equal(HASH_COUNT(book.ranks), 1);
    assert_ptr_equal(lately_book_join(&book, &other, NULL, BEGIN + LATELY_KEEP_NS)->stream, NULL);
    lately_book_deinit(&book);
    assert_null(book.ranks);
}

TEST(test_so_many)
{
    struct lately_book book = {0};
    struct lately_key key = key_of("", &book, 0);

    for (key.rank = 0; key.rank < LATELY_RANKS; key.rank++) {
        const struct stream *stream = key.rank < 2 ? NULL : (const void *)&book;
        assert_non_null(lately_book_join(&book, &key, stream, BEGIN + key.rank));
    }
    for (; key.rank < LATELY_RANKS + 2; key.rank++) /* the two whom nobody goes on with give way */
        assert_non_null(lately_book_join(&book, &key, (const void *)&book, BEGIN));
    assert_int_equal(book.ranks->key.rank, 2);
    assert_null(lately_book_join(&book, &key, (const void *)&book, BEGIN));
    assert_int_equal(HASH_COUNT(book.ranks), LATELY_RANKS);
    lately_book_deinit(&book);
}

TEST(test_who_pays)
{
    struct config_limits limits = {.overhead = 2 * sizeof(struct lately_rank) + 1};
    struct quota *quota = quota_new(&limits);
    struct quota_account *account = quota_account(quota, 1000);
    struct lately_book book = {.account = account};
    struct lately_key key = key_of("", &book, 0);

    for (key.rank = 0; key.rank < 4; key.rank++)
        assert_int_equal(!!lately_book_join(&book, &key, NULL, BEGIN), key.rank < 2);
    assert_int_equal(quota_in_use(account, QUOTA_OVERHEAD), 2 * sizeof(struct lately_rank));
    assert_int_equal(quota_refused(account), 0); /* nobody asked for it */
    lately_book_deinit(&book);
    assert_int_equal(quota_in_use(account, QUOTA_OVERHEAD), 0);
    quota_free(quota);
}
