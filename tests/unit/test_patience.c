/* How long a store is given that is slow, and then quick again. */
#include "tests/lib/harness.h"

#include "daemon/cluster/store/patience.h"

enum { LATE = 0 };

TEST(test_patience)
{
    /* From 5 to 10: of each call how long it took, and what the next one is given. */
    static const struct {
        uint64_t took, next;
    } rows[] = {{3, 500}, {LATE, 1000}, {LATE, 1000}, {700, 1000}, {450, 900}, {450, 900}, {3, 784},
                {3, 686}, {300, 600},   {3, 525},     {3, 500},    {3, 500},   {400, 500}};
    struct patience patience = patience_of(500, 1000);

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (rows[i].took == LATE)
            patience_late(&patience);
        else
            patience_answered(&patience, rows[i].took);
        assert_int_equal(patience.now_ns, rows[i].next);
    }
    patience = patience_of(500, 0);
    patience_late(&patience);
    assert_int_equal(patience.now_ns, 500);
}
