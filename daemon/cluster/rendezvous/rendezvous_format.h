/*
 * In which format the state is written: in the greatest that all nodes know that are in it, as
 * their cards say, and who writes it. So nodes are upgraded one after the other: the first that
 * knows a new format writes the old one, and with the last old node the old format goes. If one
 * comes that knows older ones only, the state is written in an older one again, with that node in
 * it; until then it cannot read it, and waits. Pure.
 *
 * Who has no format in common with those who are there is not let in: they say so in their logs,
 * and the node fails, with the name of one of them.
 */
#ifndef DL_RENDEZVOUS_FORMAT_H
#define DL_RENDEZVOUS_FORMAT_H

#include "daemon/cluster/rendezvous/rendezvous_state.h"

/* What both know. False: nothing; `all` stays. */
bool _nodiscard_ rdzv_formats_meet(struct rdzv_formats *all, const struct rdzv_formats *one);

/* What `own` and all nodes of the state know whose cards are there; of no state: `own`. */
struct rdzv_formats rdzv_formats_of(const struct rdzv_formats *own, const struct rdzv_state *state,
                                    const struct rdzv_card *cards, uint32_t n);

/*
 * For the state that follows one of format `before` (0: of none): the greatest that `own` and the
 * cards of its nodes allow. It does not rise while the card of a node is missing.
 */
uint32_t rdzv_format_choose(const struct rdzv_formats *own, uint32_t before,
                            const struct rdzv_state *state, const struct rdzv_card *cards,
                            uint32_t n);

/* Why the node of that card is not let in where the others know `formats`: for their logs. */
void rdzv_format_refusal(const struct rdzv_card *card, const struct rdzv_formats *formats,
                         struct dl_error *ret);

/* "format 2", "formats 2 to 3" */
enum { RDZV_FORMATS_TEXT_MAX = 48 };
void rdzv_formats_text(const struct rdzv_formats *formats, char ret[static RDZV_FORMATS_TEXT_MAX]);

#endif
