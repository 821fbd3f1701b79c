/*
 * A template, a NUL and its variables as JSON. It is refused with a word, or the text is UTF-8 and
 * the places that it tells are in it, in their order; twice rendered it is the same.
 */
#include "daemon/data/decode/jinja/jinja.h"
#include "proto/common/utf8.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>

enum { LARGEST = 1 << 14 };

static void check(const struct jinja_render *made)
{
    FUZZ_ASSERT(made->text.n == 0 || utf8_valid(made->text.data, made->text.n));
    for (size_t i = 0; i < made->generation.n; i++)
        FUZZ_ASSERT(made->generation.list[i].from <= made->generation.list[i].to &&
                    made->generation.list[i].to <= made->text.n);
    for (size_t i = 0; i < made->items.n; i++)
        FUZZ_ASSERT(made->items.list[i].from < made->items.list[i].to &&
                    made->items.list[i].to <= made->text.n &&
                    made->items.list[i].item < json_array_size(made->watch));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, 0, size);
    struct jinja *jinja = NULL;
    char why[JINJA_WHY_MAX] = "";
    json_t *variables = NULL;

    if (size > LARGEST || !end)
        return 0;
    int r = jinja_parse((const char *)data, (size_t)(end - data), &jinja, why);
    FUZZ_ASSERT(r == 0 || (r == -EINVAL && why[0]));
    if (r == 0)
        variables = json_loadb((const char *)end + 1, size - (size_t)(end - data) - 1,
                               JSON_ALLOW_NUL, NULL);
    if (json_is_object(variables)) {
        struct jinja_render made = {.variables = variables,
                                    .watch = json_object_get(variables, "messages"),
                                    .date = "2026-11-29"};
        struct jinja_render again = made;
        r = jinja_render(jinja, &made, why);
        FUZZ_ASSERT(r == 0 || r == -E2BIG || r == -ELOOP || (r == -EINVAL && why[0]));
        if (r == 0)
            check(&made);
        FUZZ_ASSERT(jinja_render(jinja, &again, why) == r);
        FUZZ_ASSERT(r < 0 || (again.text.n == made.text.n &&
                              (made.text.n == 0 ||
                               memcmp(again.text.data, made.text.data, made.text.n) == 0)));
        jinja_render_deinit(&made);
        jinja_render_deinit(&again);
    }
    json_decref(variables);
    jinja_free(jinja);
    return 0;
}
