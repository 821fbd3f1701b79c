/* What was given out of a mixture. See mix_tally.h. */
#include "daemon/plan/mix_tally.h"

#include "proto/common/bisect.h"
#include "proto/spec.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

/* ---- what there is to count ------------------------------------------------------------------ */

/* The schedule of an inner mixture, whose steps are those of the outermost one. 0 or an errno of
 * mix_timeline_init(). */
static int mix_ruler_set_steps(struct mix_node *node, const struct spec_dataset *mix)
{
    const struct plan_mix inner = plan_mix_of(mix);

    if (mix->n_points == 1)
        return 0;
    node->steps = calloc(1, sizeof *node->steps);
    return node->steps ? mix_timeline_init(node->steps, &inner.schedule, NULL) : -ENOMEM;
}

/* Adds a child and, if it is a mixture, its own children (else NULL). */
static int mix_ruler_add(struct mix_ruler *ruler, const struct spec_dataset *child,
                         const struct mix_node *as)
{
    uint32_t node = ruler->n_nodes++;
    double sum = 0;

    ruler->nodes[node] = *as;
    if (!child || child->kind != DATASET_MIX) {
        ruler->leaves[ruler->n_leaves++] = node;
        return 0;
    }
    for (uint32_t i = 0; i < child->n_datasets; i++)
        sum += child->points[0].weights[i];
    int r = mix_ruler_set_steps(&ruler->nodes[node], child);
    for (uint32_t i = 0; r == 0 && i < child->n_datasets; i++)
        r = mix_ruler_add(ruler, &child->datasets[i],
                          &(struct mix_node){.parent = node,
                                             .child = i,
                                             .weight = child->points[0].weights[i] / sum});
    return r;
}

static int mix_ruler_set_nodes(struct mix_ruler *ruler, const struct plan_mix *mix)
{
    uint32_t n = mix->schedule.n, nodes = n;
    int r = 0;

    for (uint32_t i = 0; mix->children && i < n; i++)
        nodes += spec_mixture_nodes(&mix->children[i]) - 1;
    assert(nodes > 0);
    ruler->nodes = calloc(nodes, sizeof *ruler->nodes);
    ruler->leaves = calloc(nodes, sizeof *ruler->leaves);
    ruler->tops = calloc(n, sizeof *ruler->tops);
    if (!ruler->nodes || !ruler->leaves || !ruler->tops)
        return -ENOMEM;
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        ruler->tops[i] = ruler->n_nodes;
        r = mix_ruler_add(ruler, mix->children ? &mix->children[i] : NULL,
                          &(struct mix_node){.parent = MIX_NODE_NONE, .child = i});
    }
    return r;
}

static int mix_ruler_set_ends(struct mix_ruler *ruler, const struct plan_mix *mix)
{
    uint64_t end = 0;

    if (!mix->sizes)
        return 0;
    ruler->ends = calloc(ruler->n_leaves, sizeof *ruler->ends);
    if (!ruler->ends)
        return -ENOMEM;
    for (uint32_t i = 0; i < ruler->n_leaves; i++) {
        if (add_overflows(end, mix->sizes[i], &end))
            return -EINVAL;
        ruler->ends[i] = end;
    }
    return 0;
}

int mix_ruler_init(struct mix_ruler *ruler, const struct plan_params *params)
{
    const struct plan_mix *mix = &params->mix;
    bool by_tokens = params->tokens.tokens > 0;

    *ruler = (struct mix_ruler){.by = mix->by,
                                .length = mix->stop == MIX_STOP_NEVER ? mix->length : 0,
                                .lengths = by_tokens ? params->tokens.lengths : NULL,
                                .limit = by_tokens ? plan_tokens_limit(&params->tokens) : 0,
                                .truncate = params->tokens.truncate};
    if (!plan_is_mix(params))
        return -EINVAL;
    int r = mix_timeline_init(&ruler->timeline, &mix->schedule, mix->changes);

    if (r == 0)
        r = mix_ruler_set_nodes(ruler, mix);
    if (r == 0)
        r = mix_ruler_set_ends(ruler, mix);
    if (r < 0)
        mix_ruler_deinit(ruler);
    return r;
}

void mix_ruler_deinit(struct mix_ruler *ruler)
{
    mix_timeline_deinit(&ruler->timeline);
    for (uint32_t i = 0; i < ruler->n_nodes; i++)
        if (ruler->nodes[i].steps) {
            mix_timeline_deinit(ruler->nodes[i].steps);
            free(ruler->nodes[i].steps);
        }
    free(ruler->nodes);
    free(ruler->leaves);
    free(ruler->tops);
    free(ruler->ends);
    *ruler = (struct mix_ruler){.by = 0};
}

/* ---- counting -------------------------------------------------------------------------------- */

/* The leaf that holds the sample; n_leaves if it is out of range. */
static uint32_t mix_ruler_leaf(const struct mix_ruler *ruler, uint64_t index)
{
    return (uint32_t)bisect_ends(ruler->ends, ruler->n_leaves, index);
}

static uint32_t mix_ruler_tokens(const struct mix_ruler *ruler, uint64_t index)
{
    uint32_t length = ruler->lengths ? ruler->lengths[index] : 0;

    if (length <= ruler->limit)
        return length;
    return ruler->truncate ? ruler->limit : 0;
}

/* The weights at the batch, of the outermost mixture or of an inner one. */
static struct mix_spot mix_ruler_spot(const struct mix_ruler *ruler,
                                      const struct mix_timeline *timeline,
                                      const struct mix_batch *batch)
{
    uint64_t position;

    if (ruler->length == 0) { /* epochs have an order each */
        position = min_u64(batch->position, MIX_POSITIONS - 1);
        return timeline == &ruler->timeline ? mix_timeline_spot_of(timeline, batch->epoch, position)
                                            : mix_timeline_spot(timeline, position);
    }
    if (mul_overflows(batch->epoch, ruler->length, &position) ||
        add_overflows(position, batch->position, &position))
        position = MIX_POSITIONS;
    return mix_timeline_spot(timeline, min_u64(position, MIX_POSITIONS - 1));
}

static double mix_ruler_weight(const struct mix_ruler *ruler, const struct mix_timeline *timeline,
                               const struct mix_batch *batch, uint32_t child)
{
    struct mix_spot spot = mix_ruler_spot(ruler, timeline, batch);

    return ldexp((double)mix_spot_weight(&spot, child), -MIX_UNIT_BITS);
}

static void mix_tally_want(const struct mix_ruler *ruler, const struct mix_batch *batch,
                           double amount, struct mix_tally *tallies)
{
    for (uint32_t i = 0; i < ruler->timeline.n; i++)
        tallies[ruler->tops[i]].wanted +=
            amount * mix_ruler_weight(ruler, &ruler->timeline, batch, i);
    for (uint32_t i = 0; i < ruler->n_nodes; i++) {
        const struct mix_node *node = &ruler->nodes[i];

        if (node->parent != MIX_NODE_NONE && !ruler->nodes[node->parent].steps)
            tallies[i].wanted = node->weight * (double)tallies[node->parent].samples;
    }
}

/* Where an inner mixture has a schedule: what its children want of `sign` times the samples that it
 * has so far, by its weights at the batch. */
static void mix_tally_want_by_steps(const struct mix_ruler *ruler, const struct mix_batch *batch,
                                    double sign, struct mix_tally *tallies)
{
    for (uint32_t i = 0; i < ruler->n_nodes; i++) {
        const struct mix_node *node = &ruler->nodes[i];

        if (node->parent == MIX_NODE_NONE || !ruler->nodes[node->parent].steps)
            continue;
        tallies[i].wanted +=
            sign * (double)tallies[node->parent].samples *
            mix_ruler_weight(ruler, ruler->nodes[node->parent].steps, batch, node->child);
    }
}

/* One sample's length, or 0; and whether it is any dataset's. */
static bool mix_tally_one(const struct mix_ruler *ruler, const struct mix_batch *batch, uint32_t i,
                          struct mix_tally *tallies, uint32_t *ret_length)
{
    uint32_t leaf;

    /* Once, since another process may write there. */
    *ret_length = 0;
    if (batch->origins) {
        leaf = __atomic_load_n(&batch->origins[i], __ATOMIC_RELAXED);
    } else {
        uint64_t index = __atomic_load_n(&batch->indices[i], __ATOMIC_RELAXED);

        leaf = ruler->ends ? mix_ruler_leaf(ruler, index) : ruler->n_leaves;
        if (leaf < ruler->n_leaves)
            *ret_length = mix_ruler_tokens(ruler, index);
    }
    if (leaf >= ruler->n_leaves)
        return false;
    for (uint32_t node = ruler->leaves[leaf]; node != MIX_NODE_NONE;
         node = ruler->nodes[node].parent) {
        tallies[node].samples++;
        tallies[node].tokens += *ret_length;
    }
    return true;
}

void mix_tally_add(const struct mix_ruler *ruler, const struct mix_batch *batch,
                   struct mix_tally *tallies)
{
    uint64_t samples = 0, tokens = 0;
    uint32_t length;

    mix_tally_want_by_steps(ruler, batch, -1, tallies);
    for (uint32_t i = 0; i < batch->n; i++) {
        samples += mix_tally_one(ruler, batch, i, tallies, &length);
        tokens += length;
    }
    mix_tally_want_by_steps(ruler, batch, 1, tallies);
    mix_tally_want(ruler, batch, (double)(ruler->by == MIX_BY_TOKENS ? tokens : samples), tallies);
}

void mix_tally_merge(struct mix_tally *tallies, const struct mix_tally *more, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        tallies[i].wanted += more[i].wanted;
        tallies[i].samples += more[i].samples;
        tallies[i].tokens += more[i].tokens;
    }
}

static double mix_tally_part(double part, double sum)
{
    return sum > 0 ? part / sum : 0;
}

double mix_tally_wanted(const struct mix_tally *child, const struct mix_tally *sum)
{
    return mix_tally_part(child->wanted, sum->wanted);
}

double mix_tally_share(const struct mix_tally *child, const struct mix_tally *sum)
{
    return mix_tally_part((double)child->samples, (double)sum->samples);
}

double mix_tally_token_share(const struct mix_tally *child, const struct mix_tally *sum)
{
    return mix_tally_part((double)child->tokens, (double)sum->tokens);
}
