/* Which samples a loader knows to be slow. */
#include "tests/lib/harness.h"

#include "daemon/serve/core/slow_list.h"

static void add(struct slow_list *list, uint64_t index, uint64_t ns)
{
    slow_list_add(list, &(struct slow_sample){.index = index, .ns = ns});
}

static void test_order(void **state)
{
    static const struct {
        uint64_t index, ns;
    } comes[] = {{1, 50}, {2, 70}, {3, 60}, {1, 40}, {2, 80}, {1, 75}};
    static const struct {
        uint64_t index, ns, seen;
    } want[] = {{2, 80, 2}, {1, 75, 3}, {3, 60, 1}};
    struct slow_list list = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(comes); i++)
        add(&list, comes[i].index, comes[i].ns);
    assert_int_equal(list.n, ARRAY_SIZE(want));
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        assert_int_equal(list.rows[i].what.index, want[i].index);
        assert_int_equal(list.rows[i].what.ns, want[i].ns);
        assert_int_equal(list.rows[i].seen, want[i].seen);
    }
}

static void test_full(void **state)
{
    struct slow_list list = {0};

    (void)state;
    for (uint64_t i = 0; i < 1000; i++)
        add(&list, i, 1 + i * 7919 % 1000);
    assert_int_equal(list.n, SLOW_LISTED);
    for (uint32_t i = 0; i < list.n; i++)
        assert_int_equal(list.rows[i].what.ns, 1000 - i);
    add(&list, 2000, 1000 - SLOW_LISTED); /* no slower than the last one */
    assert_int_equal(list.rows[SLOW_LISTED - 1].what.ns, 1001 - SLOW_LISTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_full),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
