/* Memory that runs out on the way from a look to the screen. */
#include "tests/unit/fail_alloc.h"
#include "tests/unit/top_case.h"

#include <errno.h>

static const struct top_texts TEXTS = {
    "{version: 1, state: running, pid: 1}",
    "[{name: a, verdict: 'idle: no trainer reads'}, {name: b}]",
    "[{loader: a, job: j, rank: 0, world: 1, step: 1, steps: 2, state: running}]",
    "[{loader: a, worker: 0, pid: 3, samples: 'samples 1, 2'}]",
    "[{loader: a, free: 1}]",
};

static int model_again(const struct top_model *model)
{
    struct value views[TOP_VIEWS] = {0};
    struct top_model *again = NULL;
    int r;

    for (size_t i = 0; i < TOP_VIEWS; i++) {
        int kept = fail_in;

        fail_in = -1;
        assert_int_equal(value_copy(&model->views[i], &views[i]), 0);
        fail_in = kept;
    }
    r = top_model_make(views, 2, model, &again);
    for (size_t i = 0; i < TOP_VIEWS; i++)
        value_deinit(&views[i]);
    assert_true(r < 0 ? !again : again != NULL);
    top_model_free(again);
    return r;
}

static int value_again(const struct top_model *model)
{
    struct value value = {0};
    int r = top_model_value(model, NULL, &value);

    value_deinit(&value);
    return r;
}

static int layout_again(const struct top_model *model)
{
    const struct top_state s = {0};
    struct top_screen screen = {.width = 80, .height = 24, .keys = true};
    int r = top_layout(model, &s, NULL, &screen);

    top_screen_deinit(&screen);
    return r;
}

TEST(test_memory)
{
    int (*const all[])(const struct top_model *) = {model_again, value_again, layout_again};
    struct top_model *model = top_case_model(&TEXTS, 1, NULL);

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        int failed = 0, r;

        for (;; failed++) {
            fail_in = failed;
            r = all[i](model);
            if (fail_in >= 0) /* all that it asked for, it got */
                break;
            assert_int_equal(r, -ENOMEM);
        }
        fail_in = -1;
        assert_int_equal(r, 0);
        assert_true(failed >= 4);
    }
    top_model_free(model);
}
