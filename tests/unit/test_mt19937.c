/*
 * mt19937 against values of torch's CPU generator and of the C++ standard's mt19937.
 */
#include "daemon/plan/mt19937.h"

#include "tests/lib/harness.h"

#define LOW_63 (UINT64_MAX >> 1)

static const struct {
    uint64_t seed;
    uint32_t random[5];
    uint64_t random63; /* torch.empty((), dtype=torch.int64).random_() */
} vectors[] = {
    {0, {2357136044, 2546248239, 3071714933, 3626093760, 2588848963}, 900450186894289455},
    {1, {1791095845, 4282876139, 3093770124, 4005303368, 491263}, 7692698082559361259},
    {42, {1608637542, 3421126067, 4083286876, 787846414, 3143890026}, 6909045637428952499},
    {(UINT64_C(1) << 40) + 7,
     {327741615, 976413892, 3349725721, 1369975286, 1882953283},
     1407639518939636932},
    {UINT64_MAX, {419326371, 479346978, 3918654476, 2416749639, 3388880820}, 1800993050274709794},
};

TEST(test_vectors)
{
    for (size_t v = 0; v < ARRAY_SIZE(vectors); v++) {
        struct mt19937 mt;

        mt19937_init(&mt, vectors[v].seed);
        for (size_t i = 0; i < ARRAY_SIZE(vectors[v].random); i++)
            assert_int_equal(mt19937_next32(&mt), vectors[v].random[i]);
        mt19937_init(&mt, vectors[v].seed);
        assert_int_equal(mt19937_next64(&mt) & LOW_63, vectors[v].random63);
    }
}

TEST(test_seed_42)
{
    static const uint64_t random63[] = {6909045637428952499, 8314211556539077902,
                                        4279532810384561223};
    static const uint32_t below_10[] = {2, 7, 6, 4, 6};
    static const uint32_t below_28[] = {266460262, 199900595, 56755036, 250975502};
    static const uint32_t below_28_wide[] = {199900595, 250975502, 127521863, 147532820};
    static const double uniform[] = {0x1.dc66cbea3db30p-5, 0x1.01ae177aca870p-4};
    struct mt19937 mt, start;

    mt19937_init(&start, 42);
    mt = start;
    for (size_t i = 0; i < ARRAY_SIZE(random63); i++)
        assert_int_equal(mt19937_next64(&mt) & LOW_63, random63[i]);
    mt = start;
    for (size_t i = 0; i < ARRAY_SIZE(below_10); i++)
        assert_int_equal(mt19937_next32(&mt) % 10, below_10[i]);
    mt = start;
    for (size_t i = 0; i < ARRAY_SIZE(below_28); i++)
        assert_int_equal(mt19937_next32(&mt) % (1 << 28), below_28[i]);
    mt = start;
    for (size_t i = 0; i < ARRAY_SIZE(below_28_wide); i++)
        assert_int_equal(mt19937_next64(&mt) % (1 << 28), below_28_wide[i]);
    mt = start;
    for (size_t i = 0; i < ARRAY_SIZE(uniform); i++)
        assert_true((double)(mt19937_next64(&mt) & (UINT64_MAX >> 11)) * 0x1p-53 == uniform[i]);
}

/* [rand.predef] of the C++ standard: the 10000th output of the default seed. */
TEST(test_many_blocks)
{
    struct mt19937 mt;
    uint32_t last = 0;

    mt19937_init(&mt, 5489);
    for (int i = 0; i < 10000; i++)
        last = mt19937_next32(&mt);
    assert_int_equal(last, UINT32_C(4123659995));
}

TEST(test_low_32_bits_of_the_seed_count)
{
    struct mt19937 a, b;
    bool differ = false;

    mt19937_init(&a, 42);
    mt19937_init(&b, (UINT64_C(1) << 32) + 42);
    for (int i = 0; i < 2000; i++)
        assert_int_equal(mt19937_next32(&a), mt19937_next32(&b));
    mt19937_init(&b, 43);
    for (int i = 0; i < 4; i++)
        differ |= mt19937_next32(&a) != mt19937_next32(&b);
    assert_true(differ);
}

/* 64-bit draws at every offset in the block, so also across its end. */
TEST(test_halves)
{
    for (unsigned offset = 0; offset < MT19937_WORDS + 2; offset++) {
        struct mt19937 words, pairs;

        mt19937_init(&words, 7);
        for (unsigned i = 0; i < offset; i++)
            mt19937_next32(&words);
        pairs = words;
        for (int i = 0; i < 3; i++) {
            uint64_t high = mt19937_next32(&words), low = mt19937_next32(&words);

            assert_int_equal(mt19937_next64(&pairs), high << 32 | low);
        }
    }
}
