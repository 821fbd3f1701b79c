/* `dlctl mix`: new weights of a mixture that is being read. */
#include "client/dlctl/ask.h"
#include "client/dlctl/options.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"

#include <errno.h>
#include <stdio.h>

/* "DATASET=WEIGHT", in two: the name may have a '=' in it. `ret->dataset` is owned by *ret_name. */
static int mix_read_weight(const char *text, char **ret_name, struct dl_mix_weight *ret,
                           struct dl_error *err)
{
    const char *equals = strrchr(text, '=');
    char *end = NULL;

    if (!equals || equals == text || !equals[1])
        return dl_error_set(
            err, EINVAL, text,
            "is not DATASET=WEIGHT, with a dataset's number or name, such as 0=0.5");
    ret->weight = strtod(equals + 1, &end);
    if (*end)
        return dl_error_set(err, EINVAL, text, "'%s' is not a number", equals + 1);
    *ret_name = strndup(text, (size_t)(equals - text));
    if (!*ret_name)
        return dl_error_set(err, ENOMEM, "", "out of memory");
    ret->dataset = *ret_name;
    return 0;
}

struct mix_words {
    char **names;                  /* owned, with all in it */
    struct dl_mix_weight *weights; /* owned */
    size_t n;
};

static void mix_words_deinit(struct mix_words *words)
{
    for (size_t i = 0; words->names && i < words->n; i++)
        free(words->names[i]);
    free(words->names);
    free(words->weights);
}

static int mix_read_words(const struct options *o, struct mix_words *ret, struct dl_error *err)
{
    int r = 0;

    ret->n = (size_t)o->n_more;
    ret->names = calloc(ret->n, sizeof *ret->names);
    ret->weights = calloc(ret->n, sizeof *ret->weights);
    if (!ret->names || !ret->weights)
        return dl_error_set(err, ENOMEM, "", "out of memory");
    for (size_t i = 0; r == 0 && i < ret->n; i++)
        r = mix_read_weight(o->more[i], &ret->names[i], &ret->weights[i], err);
    return r;
}

static void mix_print_text(const struct value *view)
{
    const struct value *weights = value_get(view, "weights"), *loader = value_get(view, "loader");

    printf("%s: from step %llu of epoch %llu on\n",
           loader && loader->type == VALUE_STRING ? loader->string : "",
           (ull)value_count(value_get(view, "step")), (ull)value_count(value_get(view, "epoch")));
    for (uint32_t i = 0; weights && i < weights->count; i++) {
        const struct value *row = &weights->items[i], *name = value_get(row, "dataset");

        printf("%-6u %-8g %s\n", i, value_real(value_get(row, "weight")),
               name && name->type == VALUE_STRING ? name->string : "");
    }
}

int verb_mix(const struct options *o)
{
    _cleanup_(ask_end) struct dl_client *client = NULL;
    _cleanup_(mix_words_deinit) struct mix_words words = {0};
    struct dl_error err = {0};
    const void *data = NULL;
    size_t len = 0;

    if (mix_read_words(o, &words, &err) < 0) {
        report_error(o, &err);
        return STATUS_USAGE;
    }
    int r = ask_connect(o, &client);
    if (r == 0)
        r = dl_client_mix(client, o->operand, words.weights, words.n, o->at_epoch, o->at, &data,
                          &len);
    return ask_show(o, client, r, (struct dl_span){data, len}, mix_print_text);
}
