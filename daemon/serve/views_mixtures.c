/* The view `mixtures`: what each dataset of a mixture has had of what a rank was given. */
#include "daemon/serve/views_private.h"

#include <math.h>
#include <stdio.h>

#include "daemon/base/memory.h"
#include "daemon/serve/registry.h"

/* The rows of one mix: one for each dataset, followed by that dataset's own rows if it is a mix
 * itself. */
struct views_mix {
    const struct loader *loader;
    const struct stream *stream; /* for its own row; NULL: nested in another row */
    const struct mix_tally *tallies;
    uint32_t node; /* the next one of the ruler's */
    struct value *rows;
    int r;
};

enum { VIEWS_MIX_NAME = 64 }; /* "1.0.2", as deep as a spec can be */

static struct mix_tally views_mixtures_sum(const struct views_mix *mix,
                                           const struct spec_dataset *dataset)
{
    struct mix_tally sum = {0};
    uint32_t node = mix->node;

    for (uint32_t i = 0; i < dataset->n_datasets; i++) {
        mix_tally_merge(&sum, &mix->tallies[node], 1);
        node += spec_mixture_nodes(&dataset->datasets[i]);
    }
    return sum;
}

static void views_mixtures_add_child(struct row *row, const struct views_mix *mix,
                                     const struct spec_dataset *dataset, uint32_t i,
                                     const struct mix_tally *sum, const char *name)
{
    const struct mix_tally *child = &mix->tallies[mix->node];
    bool tokens = loader_spec(mix->loader)->batch.tokens > 0;

    row_string(row, "child", name);
    row_string(row, "dataset", spec_dataset_label(&dataset->datasets[i]));
    row_string(row, "by", dataset->by == MIX_BY_TOKENS ? "tokens" : "samples");
    row_real(row, "wanted", mix_tally_wanted(child, sum));
    row_real(row, "share", mix_tally_share(child, sum));
    row_uint(row, "samples", child->samples);
    row_real(row, "token_share", tokens ? mix_tally_token_share(child, sum) : NAN);
    row_uint_if(row, "tokens", tokens, child->tokens);
    row_real(row, "due", child->wanted);
}

static void views_mixtures_add_stream(struct row *row, const struct views_mix *mix)
{
    const struct stream *s = mix->stream;

    if (!s)
        return;
    row_string(row, "loader", views_name(mix->loader));
    row_uint(row, "uid", loader_uid(mix->loader));
    row_string(row, "job", s->params.job);
    row_uint(row, "epoch", s->params.epoch);
    row_uint(row, "rank", s->params.rank);
    row_uint(row, "world", s->params.world);
}

static void views_mixtures_walk(struct views_mix *mix, const struct spec_dataset *dataset,
                                const char *above)
{
    const struct mix_tally sum = views_mixtures_sum(mix, dataset);

    for (uint32_t i = 0; i < dataset->n_datasets && mix->r == 0; i++) {
        char name[VIEWS_MIX_NAME];
        struct row row = row_push(mix->rows);

        (void)snprintf(name, sizeof name, "%s%s%u", above, above[0] ? "." : "", i);
        views_mixtures_add_stream(&row, mix);
        views_mixtures_add_child(&row, mix, dataset, i, &sum, name);
        mix->r = row.r;
        mix->node++;
        if (dataset->datasets[i].kind == DATASET_MIX)
            views_mixtures_walk(mix, &dataset->datasets[i], name);
    }
}

/* Nothing where nothing was given yet. */
static int views_mixtures_list(const struct loader *l, const struct stream *s,
                               const struct mix_tally *tallies, uint32_t n, struct value *rows)
{
    struct views_mix mix = {.loader = l, .stream = s, .tallies = tallies, .rows = rows};

    if (n > 0)
        views_mixtures_walk(&mix, &loader_spec(l)->dataset, "");
    return mix.r;
}

static void views_mixtures_add(struct row *row, const struct loader *l,
                               const struct mix_tally *tallies, uint32_t n)
{
    if (loader_spec(l)->dataset.kind != DATASET_MIX) {
        row_null(row, "mixture");
        return;
    }
    struct value *children = row_list(row, "mixture");
    if (row->r == 0)
        row->r = views_mixtures_list(l, NULL, tallies, n, children);
}

void view_add_mixture(struct row *row, const struct loader *l, const struct stream *s)
{
    views_mixtures_add(row, l, s->mixture, s->n_mixture);
}

void view_add_whole_mixture(struct row *row, const struct loader *l)
{
    const struct core *core = loader_core(l);
    uint32_t n = core->n_mixture;
    const struct stream *s;

    for (s = core->streams; s; s = s->next)
        n = (uint32_t)max_u64(n, s->n_mixture);
    _cleanup_free_ struct mix_tally *sums = must_alloc(max_u64(n, 1) * sizeof *sums);
    mix_tally_merge(sums, core->mixture, core->n_mixture);
    for (s = core->streams; s; s = s->next)
        mix_tally_merge(sums, s->mixture, s->n_mixture);
    views_mixtures_add(row, l, sums, n);
}

int view_mixtures(const struct daemon *d, struct value *ret)
{
    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);

        for (const struct stream *s = loader_core(l)->streams; s; s = s->next) {
            int r = views_mixtures_list(l, s, s->mixture, s->n_mixture, ret);
            if (r < 0)
                return r;
        }
    }
    return 0;
}
