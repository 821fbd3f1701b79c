/* Mappings built by a chain of setters: of all kinds, and when memory runs out in the middle. */
#include "daemon/base/row.h"
#include "tests/lib/harness.h"
#include "tests/unit/fail_alloc.h"

#include <errno.h>
#include <math.h>

static int build(struct value *ret)
{
    struct row row = row_begin(ret);

    row_uint(&row, "n", 7);
    row_string(&row, "text", "a");
    row_string(&row, "none", NULL);
    row_uint_if(&row, "is", true, 0);
    row_uint_if(&row, "is_not", false, 3);
    row_seconds(&row, "s", 1500000000);
    struct row inner = row_under(&row, "inner");
    row_real(&inner, "half", 0.5);
    row.r = inner.r;
    struct value *list = row_list(&row, "list");
    for (uint64_t i = 0; i < 3 && row.r == 0; i++) {
        struct row item = row_push(list);
        row_uint(&item, "i", i);
        row.r = item.r;
    }
    return row.r;
}

TEST(test_all_kinds)
{
    struct value v = {0};

    assert_int_equal(build(&v), 0);
    assert_int_equal(v.type, VALUE_MAP);
    assert_int_equal(v.count, 8);
    assert_int_equal(value_count(value_get(&v, "n")), 7);
    assert_string_equal(value_get(&v, "text")->string, "a");
    assert_int_equal(value_get(&v, "none")->type, VALUE_NULL);
    assert_int_equal(value_get(&v, "is")->type, value_get(&v, "n")->type);
    assert_int_equal(value_get(&v, "is_not")->type, VALUE_NULL);
    assert_true(fabs(value_real(value_get(&v, "s")) - 1.5) < 1e-9);
    assert_true(fabs(value_real(value_get(value_get(&v, "inner"), "half")) - 0.5) < 1e-9);
    const struct value *list = value_get(&v, "list");
    assert_int_equal(list->type, VALUE_ARRAY);
    assert_int_equal(list->count, 3);
    assert_int_equal(value_count(value_get(&list->items[2], "i")), 2);
    value_deinit(&v);
}

/* Whichever allocation fails: it is said at the end, and nothing breaks before. */
TEST(test_no_memory)
{
    int failures = 0, r = -ENOMEM;

    for (int k = 0; r < 0; k++) {
        struct value v = {0};

        fail_in = k;
        r = build(&v);
        failures += r == -ENOMEM;
        assert_true(r == 0 || r == -ENOMEM);
        fail_in = -1;
        value_deinit(&v);
    }
    assert_true(failures > 10);
}
