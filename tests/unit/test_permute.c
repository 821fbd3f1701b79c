/*
 * The two permutations: torch's against torch's values, the native one against its fixed values and
 * against the statistics of a true shuffle. Every seed is fixed, so every run sees the same
 * numbers.
 */
#include "daemon/plan/permute.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "daemon/plan/mt19937.h"
#include "tests/lib/harness.h"
#include "tests/lib/row.h"

/* ---- torch ---- */

static struct permute_torch *torch_new(uint64_t length, uint64_t seed, uint64_t inside_out_from)
{
    struct permute_torch *perm = NULL;

    assert_int_equal(permute_torch_new(length, length, seed, inside_out_from, &perm), 0);
    return perm;
}

TEST(test_torch_vectors)
{
    static const struct {
        uint64_t seed;
        uint64_t randperm[10];
    } vectors[] = {
        {0, {4, 1, 7, 5, 3, 9, 0, 8, 6, 2}},
        {1, {5, 6, 1, 2, 0, 8, 9, 3, 7, 4}},
        {42, {2, 6, 1, 8, 4, 5, 0, 9, 3, 7}},
        {(UINT64_C(1) << 40) + 7, {5, 0, 3, 4, 1, 7, 9, 6, 8, 2}},
        {UINT64_MAX, {1, 4, 6, 2, 0, 5, 8, 7, 9, 3}},
    };

    for (size_t v = 0; v < ARRAY_SIZE(vectors); v++) {
        struct permute_torch *perm = torch_new(10, vectors[v].seed, PERMUTE_TORCH_INSIDE_OUT_FROM);

        permute_torch_extend(perm, 10);
        for (uint64_t i = 0; i < 10; i++)
            assert_int_equal(permute_torch_at(perm, i), vectors[v].randperm[i]);
        permute_torch_free(perm);
    }
}

TEST(test_torch_prefix)
{
    static const struct {
        uint64_t length, seed, first[5];
        size_t count;
    } vectors[] = {
        {1000, 0, {44, 37, 675, 775, 947}, 5},
        /* torch 1.13, which has no inside-out algorithm; here it shows that the start of a long
         * epoch is cheap. */
        {214748364, 7, {112993251, 117420441, 128500293}, 3},
    };

    for (size_t v = 0; v < ARRAY_SIZE(vectors); v++) {
        struct permute_torch *perm = torch_new(vectors[v].length, vectors[v].seed, UINT32_MAX);

        permute_torch_extend(perm, 1);
        permute_torch_extend(perm, vectors[v].count);
        for (size_t i = 0; i < vectors[v].count; i++)
            assert_int_equal(permute_torch_at(perm, i), vectors[v].first[i]);
        permute_torch_free(perm);
    }
}

static void naive_forward(uint64_t *p, uint64_t length, uint64_t seed)
{
    struct mt19937 mt;

    mt19937_init(&mt, seed);
    for (uint64_t i = 0; i < length; i++)
        p[i] = i;
    for (uint64_t i = 0; i + 1 < length; i++) {
        uint64_t j = i + mt19937_next32(&mt) % (length - i), kept = p[i];

        p[i] = p[j];
        p[j] = kept;
    }
}

static void naive_inside_out(uint64_t *p, uint64_t length, uint64_t seed)
{
    struct mt19937 mt;

    mt19937_init(&mt, seed);
    for (uint64_t i = 0; i < length; i++) {
        uint64_t j = mt19937_next64(&mt) % (i + 1);

        p[i] = i;
        p[i] = p[j];
        p[j] = i;
    }
}

static const uint64_t lengths[] = {0, 1, 2, 3, 63, 64, 65, 127, 128, 129, 1000, 5000, 1200000};

TEST(test_torch_all_lengths)
{
    for (size_t v = 0; v < ARRAY_SIZE(lengths); v++) {
        uint64_t n = lengths[v];
        uint64_t *expected = calloc(n + 1, sizeof *expected);

        assert_non_null(expected);
        for (int inside_out = 0; inside_out < 2; inside_out++) {
            struct permute_torch *perm = torch_new(n, n + 3, inside_out ? 0 : UINT32_MAX);

            (inside_out ? naive_inside_out : naive_forward)(expected, n, n + 3);
            permute_torch_extend(perm, n);
            for (uint64_t i = 0; i < n; i++)
                assert_int_equal(permute_torch_at(perm, i), expected[i]);
            permute_torch_free(perm);
        }
        free(expected);
    }
}

/* However the shuffle is cut into pieces, it is the same; elements that are known stay. */
TEST(test_torch_piecewise)
{
    enum { N = 700 };
    uint64_t expected[N];

    naive_forward(expected, N, 9);
    for (uint64_t piece = 1; piece <= N; piece += piece < 140 ? 1 : 97) {
        struct permute_torch *perm = torch_new(N, 9, UINT32_MAX);

        for (uint64_t end = 0;; end = min_u64(end + piece, N)) {
            permute_torch_extend(perm, end);
            assert_int_equal(permute_torch_missing(perm, end), 0);
            for (uint64_t i = 0; i < end; i += 1 + i / 50)
                assert_int_equal(permute_torch_at(perm, i), expected[i]);
            if (end == N)
                break;
        }
        permute_torch_free(perm);
    }
}

TEST(test_torch_missing)
{
    struct permute_torch *perm = torch_new(1000, 0, PERMUTE_TORCH_INSIDE_OUT_FROM);

    assert_int_equal(permute_torch_missing(perm, 0), 0);
    assert_int_equal(permute_torch_missing(perm, 1), 1);
    assert_int_equal(permute_torch_missing(perm, 1000), 1000);
    permute_torch_extend(perm, 100);
    uint64_t missing = permute_torch_missing(perm, 1000);
    assert_in_range(missing, 1, 900);
    permute_torch_extend(perm, 50); /* known: no change */
    assert_int_equal(permute_torch_missing(perm, 1000), missing);
    permute_torch_extend(perm, 1000);
    assert_int_equal(permute_torch_missing(perm, 1000), 0);
    permute_torch_free(perm);

    perm = torch_new(1000, 0, 1000);
    assert_int_equal(permute_torch_missing(perm, 1), 1000);
    permute_torch_extend(perm, 1);
    assert_int_equal(permute_torch_missing(perm, 1000), 0);
    permute_torch_free(perm);
}

TEST(test_torch_too_large)
{
    static const uint64_t too_large[] = {UINT64_MAX >> 1, UINT64_C(1) << 61, UINT64_C(1) << 60,
                                         UINT64_C(1) << 50};

    for (size_t v = 0; v < ARRAY_SIZE(too_large); v++) {
        struct permute_torch *perm = NULL;

        assert_int_equal(
            permute_torch_new(too_large[v], too_large[v], 0, PERMUTE_TORCH_INSIDE_OUT_FROM, &perm),
            -ENOMEM);
        assert_null(perm);
    }
    assert_null(permute_torch_free(NULL));
}

/* ---- native: values ---- */

/* From a separate implementation; a change here would reorder everyone's epochs. */
TEST(test_native_vectors)
{
    static const struct {
        uint64_t length, seed, epoch, first[10], last;
    } vectors[] = {
        ROW(10, 0, 0, {3, 2, 5, 0, 6, 4, 9, 7, 8, 1}, 1),
        ROW(10, 0, 1, {7, 9, 8, 6, 2, 3, 5, 1, 4, 0}, 0),
        ROW(10, 1, 0, {0, 7, 9, 1, 4, 8, 5, 3, 2, 6}, 6),
        ROW(60000, 42, 0, {21754, 31706, 30875, 10902, 49882, 59878, 49801, 3662, 29331, 10332},
            57249),
        ROW(1000000, UINT64_MAX, 3,
            {294100, 346323, 365984, 489959, 551748, 247830, 40903, 614419, 928283, 395887},
            660868),
        ROW(1000000000000, 7, UINT64_C(1) << 40,
            {139320446485, 333430784700, 664405447731, 789879564970, 793947790599, 157356276237,
             356533012696, 261384952751, 657183460099, 908401935721},
            83525373690),
        ROW(UINT64_MAX >> 1, 42, UINT64_MAX,
            {2977976575892010483, 2741058696290202485, 7743905234636154871, 9006980680414824654,
             5640597557659085963, 2904802592571580904, 6425636181088130319, 6682229361372141281,
             3455865145253443131, 2009281130832844922},
            6203646322843723525),
    };

    for (size_t v = 0; v < ARRAY_SIZE(vectors); v++) {
        struct permute_native perm;

        permute_native_init(&perm, vectors[v].length, vectors[v].seed, vectors[v].epoch, 0);
        for (uint64_t i = 0; i < 10; i++)
            assert_int_equal(permute_native_at(&perm, i), vectors[v].first[i]);
        assert_int_equal(permute_native_at(&perm, vectors[v].length - 1), vectors[v].last);
    }
}

static void check_bijection(uint64_t length, uint64_t seed)
{
    struct permute_native perm;
    _cleanup_free_ bool *seen = calloc(length, sizeof *seen);

    assert_non_null(seen);
    permute_native_init(&perm, length, seed, 1, 0);
    for (uint64_t i = 0; i < length; i++) {
        uint64_t value = permute_native_at(&perm, i);

        assert_true(value < length);
        assert_false(seen[value]);
        seen[value] = true;
    }
}

TEST(test_native_is_a_bijection)
{
    static const uint64_t large[] = {511,  512,   513,   1000,  4095,   4096,   4097,
                                     9999, 65535, 65536, 65537, 131071, 131073, 300000};

    for (uint64_t length = 1; length <= 300; length++)
        for (uint64_t seed = 0; seed < 5; seed++)
            check_bijection(length, seed);
    for (size_t v = 0; v < ARRAY_SIZE(large); v++)
        check_bijection(large[v], v);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Too long to walk through: no value twice among some thousands, all in range, all over it. */
TEST(test_native_huge)
{
    static const uint64_t huge[] = {UINT64_C(1) << 32,       (UINT64_C(1) << 32) + 1,
                                    UINT64_C(1000000000000), (UINT64_C(1) << 62) - 1,
                                    UINT64_C(1) << 62,       (UINT64_C(1) << 62) + 1,
                                    UINT64_MAX >> 1};
    enum { N = 4096 };
    static uint64_t values[N];

    for (size_t v = 0; v < ARRAY_SIZE(huge); v++) {
        struct permute_native perm;
        double sum = 0;

        permute_native_init(&perm, huge[v], v, 0, 0);
        for (uint64_t i = 0; i < N; i++) {
            values[i] = permute_native_at(&perm, i < N / 2 ? i : huge[v] - N + i);
            assert_true(values[i] < huge[v]);
            sum += (double)values[i] / (double)huge[v];
        }
        assert_true(fabs(sum - N / 2.0) < 4 * sqrt(N / 12.0));
        qsort(values, N, sizeof *values, compare_u64);
        for (uint64_t i = 1; i < N; i++)
            assert_true(values[i - 1] < values[i]);
    }
}

/* Side by side they come to what each comes to by itself. */
TEST(test_native_many)
{
    for (uint64_t length = 1; length < 3000; length += 1 + length / 7) {
        struct permute_native perm;
        uint64_t values[40];

        permute_native_init(&perm, length, 11, length, 2);
        for (size_t n = 0; n <= ARRAY_SIZE(values); n++) {
            for (size_t i = 0; i < n; i++)
                values[i] = (7 * i + n) % length;
            permute_native_many(&perm, values, n);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(values[i], permute_native_at(&perm, (7 * i + n) % length));
        }
    }
}

/* ---- native: statistics ---- */

/* A chi-square sum as a standard normal deviate (Wilson and Hilferty). */
static double deviate(double chi_square, double freedom)
{
    double spread = 2 / (9 * freedom);

    return (cbrt(chi_square / freedom) - (1 - spread)) / sqrt(spread);
}

static double flatness(const uint32_t *counts, size_t cells, double total, double freedom)
{
    double expected = total / (double)cells, sum = 0;

    for (size_t i = 0; i < cells; i++)
        sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    return deviate(sum, freedom);
}

/* The number of a permutation among all of its length. */
static size_t rank_of(const uint64_t *values, size_t length)
{
    size_t rank = 0;

    for (size_t i = 0; i < length; i++) {
        size_t smaller = 0;

        for (size_t j = i + 1; j < length; j++)
            smaller += values[j] < values[i];
        rank = rank * (length - i) + smaller;
    }
    return rank;
}

/* Over many seeds each of the n! orders comes equally often. */
TEST(test_native_small_orders)
{
    static uint32_t counts[40320];
    size_t cells = 1;

    for (size_t n = 2; n <= 8; n++) {
        cells *= n;
        uint64_t seeds = cells * 8 < 40000 ? 40000 : cells * 8;

        memset(counts, 0, sizeof counts);
        for (uint64_t seed = 0; seed < seeds; seed++) {
            struct permute_native perm;
            uint64_t values[8];

            permute_native_init(&perm, n, seed, 3, 0);
            for (uint64_t i = 0; i < n; i++)
                values[i] = permute_native_at(&perm, i);
            counts[rank_of(values, n)]++;
        }
        double z = flatness(counts, cells, (double)seeds, (double)cells - 1);
        if (fabs(z) >= 4)
            fail_msg("n = %zu: z = %.2f", n, z);
    }
}

/* Over many seeds, where two elements go together, in the domain with the fewest hash values. */
TEST(test_native_small_pairs)
{
    enum { N = 64, SEEDS = 200000 };
    static const uint64_t apart[] = {1, 8, 32};
    static uint32_t counts[N * N];

    for (size_t v = 0; v < ARRAY_SIZE(apart); v++) {
        size_t cells = 0;

        memset(counts, 0, sizeof counts);
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            struct permute_native perm;

            permute_native_init(&perm, N, seed, 1, 0);
            uint64_t a = permute_native_at(&perm, 3), b = permute_native_at(&perm, 3 + apart[v]);
            assert_true(a != b);
            counts[a * (N - 1) + b - (b > a)]++;
        }
        cells = N * (N - 1);
        double z = flatness(counts, cells, SEEDS, (double)cells - 1);
        if (fabs(z) >= 4)
            fail_msg("%d elements, %d apart: z = %.2f", N, (int)apart[v], z);
    }
}

enum { GRID = 16, CELLS = GRID * GRID };

/* Where in the order against where in the dataset. Rows and columns of the grid are fixed. */
static double position_value(const uint64_t *p, uint64_t n)
{
    static uint32_t counts[CELLS];

    memset(counts, 0, sizeof counts);
    for (uint64_t i = 0; i < n; i++)
        counts[i * GRID / n * GRID + p[i] * GRID / n]++;
    return flatness(counts, CELLS, (double)n, (GRID - 1) * (GRID - 1));
}

static double adjacent_differences(const uint64_t *p, uint64_t n)
{
    static uint32_t counts[CELLS];

    memset(counts, 0, sizeof counts);
    for (uint64_t i = 0; i + 1 < n; i++)
        counts[(p[i + 1] + n - p[i]) % n * (CELLS / 2) / n]++;
    return flatness(counts, CELLS / 2, (double)n - 1, CELLS / 2 - 1);
}

/* Autocorrelation at all power-of-two lags, as one sum of squares. */
static double serial_correlation(const uint64_t *p, uint64_t n)
{
    double mean = ((double)n - 1) / 2, variance = (double)n * (double)n / 12, squares = 0;
    unsigned lags = 0;

    for (uint64_t lag = 1; lag < n / 2; lag *= 2, lags++) {
        double sum = 0;

        for (uint64_t i = 0; i < n; i++)
            sum += ((double)p[i] - mean) * ((double)p[i + lag < n ? i + lag : i + lag - n] - mean);
        sum = (sum / (variance * (double)n) + 1 / (double)n) * sqrt((double)n);
        squares += sum * sum;
    }
    return deviate(squares, lags);
}

static double ascents(const uint64_t *p, uint64_t n)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i + 1 < n; i++)
        count += p[i + 1] > p[i];
    return ((double)count - ((double)n - 1) / 2) / sqrt(((double)n + 1) / 12);
}

static const struct {
    const char *name;
    double (*z)(const uint64_t *p, uint64_t n);
} statistics[] = {
    {"position against value", position_value},
    {"adjacent differences", adjacent_differences},
    {"serial correlation", serial_correlation},
    {"ascents", ascents},
};

static void fill_native(uint64_t *p, uint64_t n, uint64_t seed, uint64_t epoch)
{
    struct permute_native perm;

    permute_native_init(&perm, n, seed, epoch, 0);
    for (uint64_t i = 0; i < n; i++)
        p[i] = permute_native_at(&perm, i);
}

/* Each statistic on single epochs, and summed over seeds, where a small lasting bias would grow. */
TEST(test_native_statistics)
{
    static const struct {
        uint64_t length;
        unsigned seeds;
    } cases[] = {{4000, 100}, {4096, 100}, {65537, 8}, {1000000, 1}};
    _cleanup_free_ uint64_t *p = calloc(1000000, sizeof *p);

    assert_non_null(p);
    for (size_t c = 0; c < ARRAY_SIZE(cases); c++) {
        double sums[ARRAY_SIZE(statistics)] = {0};

        for (unsigned seed = 0; seed < cases[c].seeds; seed++) {
            fill_native(p, cases[c].length, seed, 0);
            for (size_t s = 0; s < ARRAY_SIZE(statistics); s++) {
                double z = statistics[s].z(p, cases[c].length);

                sums[s] += z;
                if (fabs(z) >= 4.5)
                    fail_msg("%s, n = %d, seed %u: z = %.2f", statistics[s].name,
                             (int)cases[c].length, seed, z);
            }
        }
        for (size_t s = 0; s < ARRAY_SIZE(statistics); s++)
            if (fabs(sums[s] / sqrt(cases[c].seeds)) >= 4)
                fail_msg("%s, n = %d, all seeds: z = %.2f", statistics[s].name,
                         (int)cases[c].length, sums[s] / sqrt(cases[c].seeds));
    }
}

/* The value at each position in one order against that in another, as a permutation's grid. */
static double between(const uint64_t *a, const uint64_t *b, uint64_t n)
{
    static uint32_t counts[CELLS];

    memset(counts, 0, sizeof counts);
    for (uint64_t i = 0; i < n; i++)
        counts[a[i] * GRID / n * GRID + b[i] * GRID / n]++;
    return flatness(counts, CELLS, (double)n, (GRID - 1) * (GRID - 1));
}

TEST(test_native_orders_are_independent)
{
    enum { N = 65536 };
    static uint64_t a[N + 1], b[N + 1];

    fill_native(a, N, 42, 7);
    fill_native(b, N, 42, 8);
    assert_true(fabs(between(a, b, N)) < 4);
    fill_native(b, N, 43, 7);
    assert_true(fabs(between(a, b, N)) < 4);
    fill_native(b, N, 43, 6); /* the same sum of seed and epoch */
    assert_true(fabs(between(a, b, N)) < 4);
    fill_native(b, N, 42 + (UINT64_C(1) << 32), 7);
    assert_true(fabs(between(a, b, N)) < 4);
    fill_native(b, N + 1, 42, 7);
    for (size_t i = 0; i < N; i++)
        b[i] = min_u64(b[i], N - 1);
    assert_true(fabs(between(a, b, N)) < 4);
    assert_true(between(a, a, N) > 100);
}

/* The statistics can tell: orders that are not shuffles fail those that should see it. */
TEST(test_statistics_see_bad_orders)
{
    enum { N = 65537 };
    static uint64_t p[N];

    for (uint64_t i = 0; i < N; i++)
        p[i] = i;
    for (size_t s = 0; s < ARRAY_SIZE(statistics); s++)
        assert_true(fabs(statistics[s].z(p, N)) > 10);
    for (uint64_t i = 0; i < N; i++)
        p[i] = i * 25033 % N; /* affine: a lattice */
    assert_true(adjacent_differences(p, N) > 10);
    fill_native(p, N, 1, 1);
    for (uint64_t i = 0; i + 1 < N; i += 2) /* neighbours in order, as a shuffle buffer has them */
        if (p[i] > p[i + 1]) {
            uint64_t kept = p[i];

            p[i] = p[i + 1];
            p[i + 1] = kept;
        }
    assert_true(fabs(ascents(p, N)) > 10);
    assert_true(fabs(adjacent_differences(p, N)) > 10);
}
