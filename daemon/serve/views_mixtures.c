/* The view `mixtures`: what each dataset of a mixture has had of what a rank was given. */
#include "daemon/serve/views_private.h"

#include "daemon/serve/base/memory.h"
#include "daemon/serve/registry.h"

static void views_mixtures_add_child(struct row *row, const struct loader *l,
                                     const struct mix_tally *tallies, uint32_t n, uint32_t i)
{
    const struct dl_spec *spec = loader_spec(l);
    const struct mix_tally *child = &tallies[i], sum = mix_tally_sum(tallies, n);
    bool tokens = spec->batch.tokens > 0;

    row_uint(row, "child", i);
    row_string(row, "dataset", spec_dataset_label(&spec->dataset.datasets[i]));
    row_string(row, "by", spec->dataset.by == MIX_BY_TOKENS ? "tokens" : "samples");
    row_real(row, "wanted", mix_tally_wanted(child, &sum));
    row_real(row, "share", mix_tally_share(child, &sum));
    row_uint(row, "samples", child->samples);
    if (tokens)
        row_real(row, "token_share", mix_tally_token_share(child, &sum));
    else
        row_null(row, "token_share");
    row_uint_if(row, "tokens", tokens, child->tokens);
    row_real(row, "due", child->wanted);
}

static void views_mixtures_add(struct row *row, const struct loader *l,
                               const struct mix_tally *tallies, uint32_t n)
{
    if (loader_spec(l)->dataset.kind != DATASET_MIX) {
        row_null(row, "mixture");
        return;
    }
    struct value *children = row_list(row, "mixture");
    for (uint32_t i = 0; i < n && row->r == 0; i++) {
        struct row inner = row_push(children);

        views_mixtures_add_child(&inner, l, tallies, n, i);
        row->r = inner.r;
    }
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

static int views_mixtures_add_stream(const struct loader *l, const struct stream *s,
                                     struct value *rows)
{
    for (uint32_t i = 0; i < s->n_mixture; i++) {
        struct row row = row_push(rows);

        row_string(&row, "loader", views_name(l));
        row_uint(&row, "uid", loader_uid(l));
        row_string(&row, "job", s->params.job);
        row_uint(&row, "epoch", s->params.epoch);
        row_uint(&row, "rank", s->params.rank);
        row_uint(&row, "world", s->params.world);
        views_mixtures_add_child(&row, l, s->mixture, s->n_mixture, i);
        if (row.r < 0)
            return row.r;
    }
    return 0;
}

int view_mixtures(const struct daemon *d, struct value *ret)
{
    ret->type = VALUE_ARRAY;
    for (struct registered *e = d->loaders; e; e = registered_next(e)) {
        const struct loader *l = registered_loader(e);

        for (const struct stream *s = loader_core(l)->streams; s; s = s->next) {
            int r = views_mixtures_add_stream(l, s, ret);
            if (r < 0)
                return r;
        }
    }
    return 0;
}
