/* A node that finds a state of a format that it does not know. */
#include "daemon/cluster/rendezvous/rendezvous_format.h"
#include "daemon/cluster/rendezvous/rendezvous_turn.h"
#include "daemon/cluster/rendezvous/rendezvous_watch.h"

#include <errno.h>

/* Those who are there have to see its card, and who fails is to be told of by them, too. */
enum { RDZV_UNREADABLE_POLLS = 2, RDZV_UNREADABLE_BEATS = 2 };

/* What this node cannot read it is not in: others took it out, and then wrote another format. */
static void rdzv_unreadable_is_out(struct rdzv *rdzv, struct rdzv_out *out)
{
    if (rdzv->in_round) {
        rdzv->in_round = rdzv->self.ready = false;
        rdzv->deadline = RDZV_NEVER; /* until the owner is ready */
        out->news = RDZV_EVICTED;
    }
    if (rdzv->present)
        rdzv->self.life++;
    rdzv->present = false;
}

void rdzv_unreadable_begin(struct rdzv *rdzv, const struct dl_error *error, struct rdzv_out *out)
{
    if (rdzv->want == RDZV_WANT_OUT) {
        out->error = rdzv->failure;
        rdzv_finish(rdzv, out, rdzv->failure.code ? RDZV_FAILED : RDZV_LEFT);
        return;
    }
    rdzv_unreadable_is_out(rdzv, out);
    rdzv->look_at = rdzv->clock;
    if (rdzv->unreadable.code == 0) {
        rdzv->unreadable_since = rdzv->clock;
        out->notice = *error;
    } else {
        rdzv->look_at += rdzv->set.poll_ns * 3 / 4 + rdzv_draw(rdzv) % rdzv->set.poll_ns;
    }
    rdzv->unreadable = *error;
    rdzv->read_at = RDZV_NEVER;
}

static void rdzv_unreadable_refused(struct rdzv *rdzv, const struct rdzv_card *by,
                                    struct rdzv_out *out)
{
    char theirs[RDZV_FORMATS_TEXT_MAX], ours[RDZV_FORMATS_TEXT_MAX];

    rdzv_formats_text(&by->formats, theirs);
    rdzv_formats_text(&rdzv->formats, ours);
    dl_error_set(&out->error, EPROTONOSUPPORT, "rendezvous",
                 "node %s of this run knows %s of the state in the store, and this release knows "
                 "%s; run releases on all nodes that know the same, or choose another "
                 "rendezvous.id",
                 by->name, theirs, ours);
    rdzv_finish(rdzv, out, RDZV_FAILED);
}

/* Of others who live: one who has no format in common with this node, else NULL; and whether there
 * is one who has. */
static const struct rdzv_card *rdzv_unreadable_judge(const struct rdzv *rdzv,
                                                     const struct rdzv_card *cards, uint32_t n,
                                                     bool *ret_fits)
{
    const struct rdzv_card *misfit = NULL;

    *ret_fits = false;
    for (uint32_t i = 0; i < n; i++) {
        const struct rdzv_peer *peer = rdzv_peer(rdzv, cards[i].id);
        struct rdzv_formats both = rdzv->formats;

        if (cards[i].id == rdzv->self.id || !cards[i].in || !peer || !rdzv_is_alive(peer))
            continue;
        if (rdzv_formats_meet(&both, &cards[i].formats))
            *ret_fits = true;
        else
            misfit = &cards[i];
    }
    return misfit;
}

void rdzv_unreadable_looked(struct rdzv *rdzv, const struct rdzv_card *cards, uint32_t n,
                            struct rdzv_out *out)
{
    uint64_t waited = rdzv->clock - rdzv->unreadable_since;
    bool fits, others = n > (rdzv_peer(rdzv, rdzv->self.id) ? 1U : 0U);
    const struct rdzv_card *misfit = rdzv_unreadable_judge(rdzv, cards, n, &fits);

    if (misfit && waited >= RDZV_UNREADABLE_POLLS * rdzv->set.poll_ns) {
        rdzv_unreadable_refused(rdzv, misfit, out);
    } else if (!misfit && !fits &&
               (!others || waited >= RDZV_UNREADABLE_BEATS * rdzv->set.beat_ns)) {
        out->error = rdzv->unreadable; /* nobody is there who could write another */
        rdzv_finish(rdzv, out, RDZV_FAILED);
    } else {
        rdzv->read_at = rdzv->clock;
    }
}
