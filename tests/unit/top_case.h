/* Models for tests, from views in YAML. */
#ifndef TOP_CASE_H
#define TOP_CASE_H

#include "tests/lib/harness.h"

#include "client/dlctl/top/top.h"
#include "proto/yaml.h"

#define ROW(model, kind, i) (&(model)->rows[TOP_##kind].list[i])

/* Texts of views, in their order; NULL is null. */
struct top_texts {
    const char *status, *loaders, *epochs, *workers, *ring;
};

static inline struct top_model *top_case_model(const struct top_texts *texts, double at_s,
                                               const struct top_model *before)
{
    const char *const documents[TOP_VIEWS] = {texts->status, texts->loaders, texts->epochs,
                                              texts->workers, texts->ring};
    struct value views[TOP_VIEWS] = {0};
    struct top_model *model = NULL;
    struct dl_error err = {0};

    for (size_t i = 0; i < TOP_VIEWS; i++) {
        if (documents[i] && yaml_parse(documents[i], strlen(documents[i]), "", &views[i], &err) < 0)
            fail_msg("view %zu: %s", i, err.message);
    }
    assert_int_equal(top_model_make(views, at_s, before, &model), 0);
    for (size_t i = 0; i < TOP_VIEWS; i++)
        assert_int_equal(views[i].type, VALUE_NULL); /* taken over */
    return model;
}

#endif
