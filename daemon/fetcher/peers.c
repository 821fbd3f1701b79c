#include "daemon/fetcher/peers_private.h"

#include "daemon/base/memory.h"

#include <errno.h>
#include <stdio.h>

enum {
    PEERS_AWAY_MS = 1000,           /* a node that failed is not asked; twice as long each time, */
    PEERS_AWAY_MOST_MS = 30 * 1000, /* up to this */
};

/* ---- nodes ---------------------------------------------------------------------------------- */

struct peer *peers_find(const struct peers *peers, uint64_t id)
{
    for (uint32_t i = 0; i < peers->placement.n; i++)
        if (peers->list[i].id == id)
            return &peers->list[i];
    return NULL;
}

static void peers_tell(const struct peers *peers)
{
    remote_tally_write(peers->tally, REMOTE_PEERS,
                       peers->placement.n > 0 ? peers->placement.n - 1 : 0);
}

void peer_note_failed(struct peers *peers, struct peer *peer, const char *why)
{
    remote_tally_add(peers->tally, REMOTE_PEERS_FAILED, 1);
    if (peer->away_until > uv_now(peers->loop))
        return;
    if (peer->away_ms == 0)
        fprintf(stderr,
                "dloaderd: the node at %s gives no blocks: %s; the store is asked meanwhile\n",
                peer->card.address, why);
    peer->away_ms = peer->away_ms ? min_u64(2 * peer->away_ms, PEERS_AWAY_MOST_MS) : PEERS_AWAY_MS;
    peer->away_until = uv_now(peers->loop) + peer->away_ms;
}

bool peer_is_away(const struct peers *peers, const struct peer *peer)
{
    return peer->away_until > uv_now(peers->loop);
}

bool peers_is_self(const struct peers *peers, uint64_t id)
{
    return peers->placement.n > 0 && peers->list[peers->placement.self].id == id;
}

bool peers_leave_to_other(const struct peers *peers, const struct object *object, uint64_t block)
{
    uint32_t point = placement_point(object->where, block), owner;

    if (!peers)
        return false;
    owner = placement_owner(&peers->placement, point);
    return owner != PLACEMENT_NONE && owner != peers->placement.self;
}

bool peers_have_promised(const struct peers *peers, const struct object *object, uint64_t block)
{
    return peers && promises_have(peers->promises, object->where, block);
}

/* ---- the list ------------------------------------------------------------------------------- */

struct peers_list {
    uint64_t self;      /* id */
    struct peer *peers; /* owned */
    uint32_t n;
};

static bool peers_read_id(const char *text, uint64_t *ret)
{
    char *end;

    *ret = strtoull(text, &end, 16);
    return end == text + 16;
}

/* A line; one of another user's, or that is none, is left out. */
static void peers_read_line(const char *line, size_t len, struct peers_list *list)
{
    struct peer peer = {0};

    if (len == 21 && strncmp(line, "self ", 5) == 0) {
        (void)!peers_read_id(line + 5, &list->self);
        return;
    }
    if (len < 23 || strncmp(line, "node ", 5) != 0 || !peers_read_id(line + 5, &peer.id) ||
        !peer_card_read((struct dl_span){(const uint8_t *)line + 22, len - 22}, &peer.card) ||
        peer.card.uid != geteuid() || list->n == PLACEMENT_NODES_MAX)
        return;
    list->peers = must_have(realloc(list->peers, (list->n + 1) * sizeof *list->peers));
    list->peers[list->n++] = peer;
}

/* What is known of those that stay. */
static void peers_take_over(const struct peers *peers, struct peers_list *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const struct peer *before = peers_find(peers, list->peers[i].id);

        if (!before || strcmp(before->card.address, list->peers[i].card.address) != 0)
            continue;
        list->peers[i].away_ms = before->away_ms;
        list->peers[i].away_until = before->away_until;
    }
}

static void peers_place(struct peers *peers, const struct peers_list *list)
{
    _cleanup_free_ struct placement_node *nodes = must_alloc((list->n + 1) * sizeof *nodes);
    uint32_t self = PLACEMENT_NONE;

    for (uint32_t i = 0; i < list->n; i++) {
        nodes[i] =
            (struct placement_node){.id = list->peers[i].id, .room = list->peers[i].card.room};
        if (list->peers[i].id == list->self)
            self = i;
    }
    if (placement_set(&peers->placement, nodes, self == PLACEMENT_NONE ? 0 : list->n, self) < 0)
        (void)must_have(NULL);
    peer_server_set_token(peers->server,
                          self == PLACEMENT_NONE ? "" : list->peers[self].card.token);
    kept_set_placement(peers->kept, &peers->placement);
}

void peers_set_list(struct peers *peers, struct dl_span text)
{
    _cleanup_free_ char *copy = must_have(span_dup(text));
    struct peers_list list = {0};

    for (const char *line = copy; *line;) {
        size_t len = strcspn(line, "\n");

        peers_read_line(line, len, &list);
        line += len + (line[len] == '\n');
    }
    peers_take_over(peers, &list);
    peers_place(peers, &list);
    free(peers->list);
    peers->list = list.peers;
    peers_tell(peers);
}

/* ---- the whole ------------------------------------------------------------------------------ */

int peers_new(uv_loop_t *loop, struct kept *kept, struct remote_tally *tally, struct peers **ret,
              struct dl_error *err)
{
    struct http_options options = {.loop = loop, .owner = "remote.peers", .kept = PEERS_KEPT};
    struct peers *peers = must_alloc(sizeof *peers);
    int r = 0;

    if (!sigv4_crypto_find(&peers->crypto))
        r = dl_error_set(err, EINVAL, "remote.peers", SIGV4_NO_CRYPTO);
    if (r == 0)
        r = http_new(&options, &peers->http, err);
    if (r < 0) {
        free(peers);
        return r;
    }
    peers->loop = loop;
    peers->kept = kept;
    peers->tally = tally;
    peers->placement.self = PLACEMENT_NONE;
    (void)uv_timer_init(loop, &peers->later);
    uv_unref((uv_handle_t *)&peers->later);
    peers->promises = promises_new(loop);
    peers->server = peer_server_new(loop, kept, peers->promises, &peers->crypto, tally);
    *ret = peers;
    return 0;
}

void peers_listen(struct peers *peers, int fd)
{
    peer_server_listen(peers->server, fd);
}

static void peers_on_closed(uv_handle_t *handle)
{
    struct peers *peers = container_of((uv_timer_t *)handle, struct peers, later);

    placement_deinit(&peers->placement);
    free(peers->list);
    free(peers);
}

struct peers *peers_free(struct peers *peers)
{
    if (!peers)
        return NULL;
    while (peers->running)
        peer_call_free(peers->running);
    while (peers->waiting)
        peer_call_free(peers->waiting);
    while (peers->here)
        peer_call_free(peers->here);
    peers->server = peer_server_free(peers->server);
    peers->promises = promises_free(peers->promises);
    peers->http = http_free(peers->http);
    kept_set_placement(peers->kept, NULL);
    uv_close((uv_handle_t *)&peers->later, peers_on_closed);
    return NULL;
}
