/* The keyed generator: NumPy's words (image_pil.py asks for more of them), and what is made of
 * them. */
#include "daemon/data/base/rng.h"
#include "tests/lib/harness.h"

/* numpy.random.Philox(key=[seed, epoch], counter=[0, 0, index, 0]).random_raw(6) of NumPy 1.24 */
TEST(test_words)
{
    static const struct {
        uint64_t seed, epoch, index, words[6];
    } table[] = {
        {0,
         0,
         0,
         {0x02f4ba6408e4d89b, 0x3dd62b0b9ca8c5b2, 0x1c8667a55d902e79, 0x907d7a052fd5b4dc,
          0x809bf322883987c3, 0x471128b9e807f7dd}},
        {42,
         3,
         123456789,
         {0x0dd20128b25377b3, 0x9b47b8dc8bc4e498, 0x04046e96a61b95ec, 0x2a73348cb00ca9f0,
          0x0d297fc53dc8cf3e, 0x8406a59ed35a0dfc}},
        {UINT64_MAX,
         UINT64_MAX,
         UINT64_MAX,
         {0xadb17747bb4b6ede, 0x72c71d8b8dc2cf5f, 0x23a0619e0413333e, 0x49b49de9e5c1548a,
          0x1e8fada70cf9f602, 0x660ca2f2661f0b83}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        struct rng rng;
        rng_init(&rng, table[i].seed, table[i].epoch, table[i].index);
        for (size_t k = 0; k < ARRAY_SIZE(table[i].words); k++)
            assert_true(rng_u64(&rng) == table[i].words[k]);
    }
}

/* Each part of the key counts, and none can be taken for another. */
TEST(test_keys_differ)
{
    struct rng rng;
    uint64_t first[4];

    for (uint64_t i = 0; i < ARRAY_SIZE(first); i++) {
        rng_init(&rng, i == 1, i == 2, i == 3);
        first[i] = rng_u64(&rng);
        for (uint64_t j = 0; j < i; j++)
            assert_true(first[i] != first[j]);
    }
}

TEST(test_ranges)
{
    enum { DRAWS = 30000, SIDES = 6 };
    unsigned counts[SIDES] = {0};
    double sum = 0;
    struct rng rng;

    rng_init(&rng, 1, 2, 3);
    for (int i = 0; i < DRAWS; i++) {
        double u = rng_uniform(&rng);
        assert_true(u >= 0 && u < 1);
        sum += u;
        uint64_t side = rng_below(&rng, SIDES);
        assert_true(side < SIDES);
        counts[side]++;
    }
    /* Five standard deviations. */
    assert_true(sum / DRAWS > 0.4916 && sum / DRAWS < 0.5084);
    for (int i = 0; i < SIDES; i++)
        assert_in_range(counts[i], DRAWS / SIDES - 325, DRAWS / SIDES + 325);
    assert_true(rng_below(&rng, 1) == 0);
}
