/*
 * Where other nodes' blocks of remote files are had: each node leaves its card (proto/peer_card.h)
 * in the store, and reads those of the nodes of its round. A card is this daemon's as long as it
 * lives; the nodes of a round that have none, as they ask for no blocks, are looked for more and
 * more rarely. While no round is complete the last list stays: who is gone does not answer, which
 * is a miss.
 */
#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/cluster/world/members_private.h"
#include "proto/peer_card.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

#define MS ((uint64_t)1000000)

enum { PEERS_TOLD_PAUSE_MS = 100, PEERS_TOLD_PAUSE_MOST_MS = 30 * 1000 };

struct peers_told {
    char card[PEER_CARD_MAX];
    bool busy;      /* the store is asked */
    bool said;      /* it has the card, since the round began */
    uint64_t next;  /* ns: it is asked again then, */
    uint64_t pause; /* ns: and after so long */
    char *list;     /* owned; as it was told last; NULL: it was not */
};

static void peers_told_prefix(const struct members *m, char ret[static BACKEND_KEY_MAX])
{
    (void)snprintf(ret, BACKEND_KEY_MAX, "peers/%s/", m->id);
}

/* A card's key, behind the prefix. */
static void peers_told_name(uint64_t id, char ret[static 17])
{
    (void)snprintf(ret, 17, "%016" PRIx64, id);
}

/* The same for the next daemon of that node, which has its disk. */
static uint64_t peers_told_node(const char *name)
{
    return XXH3_64bits(name, strlen(name));
}

static void peers_told_pause(struct peers_told *told)
{
    told->busy = false;
    told->next = uv_hrtime() + told->pause;
    told->pause = min_u64(2 * told->pause, PEERS_TOLD_PAUSE_MOST_MS * MS);
}

/* ---- the list ------------------------------------------------------------------------------- */

static const struct left_out_node *peers_told_find(const struct members *m, const char *name)
{
    char id[17];

    for (uint32_t i = 0; i < m->n_nodes; i++) {
        peers_told_name(m->shares[i].id, id);
        if (strcmp(id, name) == 0)
            return &m->shares[i];
    }
    return NULL;
}

/* Of a node that is in no round any more; the first node alone does it. */
static void peers_told_remove(const struct members *m, const char *name)
{
    char key[BACKEND_KEY_MAX], prefix[BACKEND_KEY_MAX];

    peers_told_prefix(m, prefix);
    if ((size_t)snprintf(key, sizeof key, "%s%s", prefix, name) < sizeof key && m->self == 0)
        backend_forget(m->backend, key);
}

static void peers_told_add_line(struct dl_buffer *out, const char *what, const char *name,
                                struct dl_span card)
{
    char line[64];

    (void)snprintf(line, sizeof line, "%s %016" PRIx64 "%s", what, peers_told_node(name),
                   card.len > 0 ? " " : "\n");
    must_append(out, line, strlen(line));
    if (card.len == 0)
        return;
    must_append(out, card.data, card.len);
    must_append(out, "\n", 1);
}

/* How many nodes of the round have one. */
static uint32_t peers_told_write(const struct members *m, const struct backend_answer *answer,
                                 struct dl_buffer *out)
{
    uint32_t n = 0;

    peers_told_add_line(out, "self", m->self_name, (struct dl_span){0});
    for (uint32_t i = 0; i < answer->n; i++) {
        const struct backend_item *item = &answer->items[i];
        const struct left_out_node *node = peers_told_find(m, item->name);
        struct peer_card card;

        if (!node) {
            peers_told_remove(m, item->name);
        } else if (peer_card_read(item->data, &card)) {
            peers_told_add_line(out, "node", node->name, item->data);
            n++;
        }
    }
    return n;
}

static void peers_told_on_listed(void *owner, const struct backend_answer *answer)
{
    struct members *m = owner;
    struct peers_told *told = m->peers_told;
    _cleanup_(buffer_deinit) struct dl_buffer text = {0};

    peers_told_pause(told);
    if (answer->status < 0 || m->ending || m->state != MEMBERS_IN)
        return;
    uint32_t n = peers_told_write(m, answer, &text);
    if (n >= m->n_nodes)
        told->next = uv_hrtime() + PEERS_TOLD_PAUSE_MOST_MS * MS;
    must_append(&text, "", 1);
    if (told->list && strcmp(told->list, (const char *)text.data) == 0)
        return;
    free(told->list);
    told->list = must_strdup((const char *)text.data);
    log_info("rendezvous %s: %u of %u nodes give each other blocks of remote files", m->id, n,
             m->n_nodes);
    m->events->peers(m->context, told->list);
}

static void peers_told_on_said(void *owner, const struct backend_answer *answer)
{
    struct members *m = owner;
    struct peers_told *told = m->peers_told;

    told->said = answer->status == 0;
    if (answer->status < 0) {
        peers_told_pause(told);
        return;
    }
    told->busy = false;
    told->next = 0;
    peers_told_tick(m, uv_hrtime());
}

static void peers_told_say(struct members *m)
{
    const struct peers_told *told = m->peers_told;
    char key[BACKEND_KEY_MAX], prefix[BACKEND_KEY_MAX], name[17];

    peers_told_prefix(m, prefix);
    peers_told_name(member_id(m->member), name);
    if ((size_t)snprintf(key, sizeof key, "%s%s", prefix, name) < sizeof key)
        backend_put(m->backend, key, span_str(told->card), NULL, peers_told_on_said, m);
}

void peers_told_tick(struct members *m, uint64_t now)
{
    struct peers_told *told = m->peers_told;
    char prefix[BACKEND_KEY_MAX];

    if (!told || told->busy || m->ending)
        return;
    if (m->placed)
        member_list(m->member);
    if (m->state != MEMBERS_IN || now < told->next)
        return;
    told->busy = true;
    peers_told_prefix(m, prefix);
    if (!told->said)
        peers_told_say(m);
    else
        backend_list(m->backend, prefix, NULL, peers_told_on_listed, m);
}

void peers_told_enter_round(struct members *m)
{
    struct peers_told *told = m->peers_told;

    if (!told)
        return;
    told->said = false;
    told->next = 0;
    told->pause = PEERS_TOLD_PAUSE_MS * MS;
    peers_told_tick(m, uv_hrtime());
}

/* ---- beginning and end ---------------------------------------------------------------------- */

void members_tell_peers(struct members *m, const struct peer_card *card)
{
    struct peers_told *told = must_alloc(sizeof *told);

    *told = (struct peers_told){.pause = PEERS_TOLD_PAUSE_MS * MS};
    peer_card_write(card, told->card);
    m->peers_told = told;
}

void peers_told_deinit(struct members *m)
{
    if (m->peers_told)
        free(m->peers_told->list);
    free(steal_ptr(m->peers_told));
}
