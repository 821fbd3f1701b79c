#include "daemon/cluster/rendezvous/rendezvous_format.h"

#include "proto/common/bisect.h"

#include <errno.h>
#include <stdio.h>

bool rdzv_formats_meet(struct rdzv_formats *all, const struct rdzv_formats *one)
{
    struct rdzv_formats both = {.least = all->least > one->least ? all->least : one->least,
                                .greatest =
                                    all->greatest < one->greatest ? all->greatest : one->greatest};

    if (both.least > both.greatest)
        return false;
    *all = both;
    return true;
}

/* The card of that id, or NULL. Cards are by id. */
static const struct rdzv_card *rdzv_format_card(const struct rdzv_card *cards, uint32_t n,
                                                uint64_t id)
{
    uint64_t at = BISECT(0, n, i, cards[i].id < id);

    return at < n && cards[at].id == id ? &cards[at] : NULL;
}

struct rdzv_formats rdzv_formats_of(const struct rdzv_formats *own, const struct rdzv_state *state,
                                    const struct rdzv_card *cards, uint32_t n)
{
    struct rdzv_formats all = *own;

    for (uint32_t i = 0; state && i < state->n; i++) {
        const struct rdzv_card *card = rdzv_format_card(cards, n, state->nodes[i].id);

        if (card) /* all that are in have one in common */
            (void)!rdzv_formats_meet(&all, &card->formats);
    }
    return all;
}

uint32_t rdzv_format_choose(const struct rdzv_formats *own, uint32_t before,
                            const struct rdzv_state *state, const struct rdzv_card *cards,
                            uint32_t n)
{
    uint32_t format = rdzv_formats_of(own, state, cards, n).greatest;

    for (uint32_t i = 0; before && i < state->n; i++)
        if (!rdzv_format_card(cards, n, state->nodes[i].id))
            return format < before ? format : before;
    return format;
}

void rdzv_format_refusal(const struct rdzv_card *card, const struct rdzv_formats *formats,
                         struct dl_error *ret)
{
    char theirs[RDZV_FORMATS_TEXT_MAX], ours[RDZV_FORMATS_TEXT_MAX];

    rdzv_formats_text(&card->formats, theirs);
    rdzv_formats_text(formats, ours);
    dl_error_set(ret, EPROTONOSUPPORT, "rendezvous",
                 "node %s is not let in: its release knows %s of the state in the store, and the "
                 "nodes of this run know %s; run a release on it that knows the same, or choose "
                 "another rendezvous.id for it",
                 card->name, theirs, ours);
}

void rdzv_formats_text(const struct rdzv_formats *formats, char ret[static RDZV_FORMATS_TEXT_MAX])
{
    if (formats->least == formats->greatest)
        (void)snprintf(ret, RDZV_FORMATS_TEXT_MAX, "format %u", formats->least);
    else
        (void)snprintf(ret, RDZV_FORMATS_TEXT_MAX, "formats %u to %u", formats->least,
                       formats->greatest);
}
