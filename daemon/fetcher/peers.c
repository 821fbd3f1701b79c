#include "daemon/fetcher/peers.h"

#include "daemon/base/memory.h"
#include "daemon/cluster/store/http.h"
#include "daemon/fetcher/peer_server.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include <utlist.h>

enum {
    PEERS_AT_ONCE = 64,             /* requests; others wait */
    PEERS_BRINGING_MOST = 64 << 20, /* bytes; what others lack beyond it they do not get */
    PEERS_AWAY_MS = 1000,           /* a node that failed is not asked; twice as long each time, */
    PEERS_AWAY_MOST_MS = 30 * 1000, /* up to this */
    PEERS_URL_MAX = PEER_TARGET_MAX + PEER_ADDRESS_MAX + 16,
};

struct peer {
    uint64_t id;
    struct peer_card card;
    uint64_t away_until, away_ms; /* of the loop; 0: it did not fail last time */
};

struct peers {
    uv_loop_t *loop;
    struct kept *kept; /* borrowed, both */
    struct remote_tally *tally;
    struct sigv4_crypto crypto;
    uv_timer_t later;  /* those that wait go on, from the loop */
    struct http *http; /* owned, and all that follow */
    struct promises *promises;
    struct peer_server *server;
    struct placement placement;
    struct peer *list; /* as in the placement */
    struct peer_call *running, *waiting;
    uint32_t n_running;
    uint64_t bringing; /* bytes */
};

/* One request, or a wait for what is promised to this node. */
struct peer_call {
    struct peers *peers;
    struct peer_call **in; /* the list that it is in; NULL: it waits for a promise */
    struct peer_call *prev, *next;
    uint64_t id; /* of the node; it may be gone from the list by now */
    struct peer_ask ask;
    char *target, *url; /* owned */
    char *body;         /* owned; NULL: none */
    char proof[PEER_PROOF_MAX], sum[PEER_PROOF_MAX];
    char token[PEER_TOKEN_MAX];
    struct http_call *call;
    struct promise_wait *wait;
    struct peer_answer answer;
    bool answered;
    peers_done *done; /* NULL: blocks were brought */
    void *owner;
};

static void peers_run(struct peers *peers);

/* ---- nodes ---------------------------------------------------------------------------------- */

static struct peer *peers_find(const struct peers *peers, uint64_t id)
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

static void peer_note_failed(struct peers *peers, struct peer *peer, const char *why)
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

static bool peer_is_away(const struct peers *peers, const struct peer *peer)
{
    return peer->away_until > uv_now(peers->loop);
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void peer_call_move(struct peer_call *call, struct peer_call **to)
{
    struct peers *peers = call->peers;

    if (call->in)
        DL_DELETE(*call->in, call);
    peers->n_running -= call->in == &peers->running;
    peers->n_running += to == &peers->running;
    call->in = to;
    if (to)
        DL_APPEND(*to, call);
}

static void peer_call_free(struct peer_call *call)
{
    struct peers *peers = call->peers;

    http_cancel(call->call);
    promise_wait_cancel(call->wait);
    peer_call_move(call, NULL);
    if (call->body)
        peers->bringing -= peer_ask_bytes(&call->ask);
    free(call->ask.where);
    free(call->target);
    free(call->url);
    free(call->body);
    free(call);
}

static void peers_on_later(uv_timer_t *timer)
{
    peers_run(container_of(timer, struct peers, later));
}

struct peer_call *peer_call_cancel(struct peer_call *call)
{
    struct peers *peers = call ? call->peers : NULL;

    if (!call)
        return NULL;
    peer_call_free(call);
    if (peers->waiting)
        uv_timer_start(&peers->later, peers_on_later, 0, 0);
    return NULL;
}

static void peer_call_end(struct peer_call *call, const struct peer_result *result)
{
    struct peers *peers = call->peers;

    if (call->done)
        call->done(call->owner, result);
    peer_call_free(call);
    peers_run(peers);
}

static void peer_call_end_in_vain(struct peer_call *call, const char *why)
{
    struct peer *peer = peers_find(call->peers, call->id);

    if (peer && why)
        peer_note_failed(call->peers, peer, why);
    peer_call_end(call, &(struct peer_result){.n = call->ask.n});
}

static void peer_call_on_header(void *owner, struct dl_span line)
{
    static const char name[] = "Dloader-Peer: ";
    struct peer_call *call = owner;
    size_t len = strlen(name);

    while (line.len > 0 && (line.data[line.len - 1] == '\n' || line.data[line.len - 1] == '\r'))
        line.len--;
    if (line.len > len && memcmp(line.data, name, len) == 0)
        call->answered =
            peer_answer_read((struct dl_span){line.data + len, line.len - len}, &call->answer);
}

/* It is that node's, of this request, and whole. */
static bool peer_call_is_proven(const struct peer_call *call, struct dl_span body)
{
    char proof[PEER_PROOF_MAX];

    peer_prove_answer(&call->peers->crypto, call->token, call->proof, &call->answer, body, proof);
    return peer_proofs_same(proof, call->answer.proof);
}

/* Of the object that was asked for, so many as it says. */
static bool peer_call_fits(const struct peer_call *call, struct dl_span body)
{
    const struct peer_answer *answer = &call->answer;
    struct peer_ask given = {.first = call->ask.first, .n = answer->n, .bytes = answer->bytes};

    if (answer->n == 0 || answer->n > call->ask.n || !*answer->etag || answer->bytes > INT64_MAX ||
        (given.first + given.n - 1) * REMOTE_BLOCK_BYTES >= given.bytes)
        return false;
    if (call->ask.bytes &&
        (call->ask.bytes != answer->bytes || strcmp(call->ask.etag, answer->etag) != 0))
        return false;
    return body.len == peer_ask_bytes(&given);
}

static void peer_call_take(struct peer_call *call, int status, struct dl_span body)
{
    const struct peer_answer *answer = &call->answer;
    struct peer_result result = {.n = min_u64(answer->n, call->ask.n),
                                 .wanted = answer->wanted,
                                 .bytes = answer->bytes,
                                 .etag = answer->etag,
                                 .modified = answer->modified};

    if (status == 200 && call->done && peer_call_fits(call, body)) {
        result.data = body;
        result.wanted = false;
    }
    result.again = status == 404 && answer->bytes == PEER_COMING;
    result.n = max_u64(result.n, 1);
    peer_call_end(call, &result);
}

static void peer_call_on_done(void *owner, const struct http_answer *http)
{
    struct peer_call *call = owner;
    struct peer *peer = peers_find(call->peers, call->id);

    call->call = NULL;
    if (call->ask.method == PEER_DELETE) /* whatever it says: an earlier release knows none */
        peer_call_end_in_vain(call, NULL);
    else if (http->status == 0)
        peer_call_end_in_vain(call, http->why);
    else if (http->status == 403)
        peer_call_end_in_vain(call, "it does not take this node's proof");
    else if (!call->answered || (http->status != 200 && http->status != 404))
        peer_call_end_in_vain(call, "it answers in a way that is none");
    else if (!peer_call_is_proven(call, http->body))
        peer_call_end_in_vain(call, "its answer is not proven to be its own");
    else {
        if (peer)
            peer->away_ms = peer->away_until = 0;
        peer_call_take(call, http->status, http->body);
    }
}

static bool peer_call_send(struct peer_call *call)
{
    char token[PEER_PROOF_MAX + 8], sum[PEER_PROOF_MAX + 16], *headers[] = {sum};
    struct http_request request = {.url = call->url,
                                   .method = peer_method_name(call->ask.method),
                                   .token = token,
                                   .timeout_ns = PEER_MS * UINT64_C(1000000),
                                   .header = peer_call_on_header,
                                   .done = peer_call_on_done,
                                   .owner = call};

    (void)snprintf(token, sizeof token, "Peer %s", call->proof);
    (void)snprintf(sum, sizeof sum, "Dloader-Sum: %s", call->sum);
    if (call->body) {
        request.body = call->body;
        request.body_bytes = peer_ask_bytes(&call->ask);
        request.type = "application/octet-stream";
        request.headers = headers;
        request.n_headers = 1;
    }
    return http_send(call->peers->http, &request, &call->call) == 0;
}

/* Those that have waited; one whose node has failed meanwhile ends. */
static void peers_run(struct peers *peers)
{
    while (peers->waiting && peers->n_running < PEERS_AT_ONCE) {
        struct peer_call *call = peers->waiting;
        const struct peer *peer = peers_find(peers, call->id);

        peer_call_move(call, &peers->running);
        if (!peer || peer_is_away(peers, peer) || !peer_call_send(call))
            peer_call_end_in_vain(call, NULL);
    }
}

/* ---- what is asked -------------------------------------------------------------------------- */

static struct peer_call *peer_call_new(struct peers *peers, const struct object *object,
                                       uint64_t first, uint64_t n)
{
    struct peer_call *call = must_alloc(sizeof *call);
    bool known = object->bytes != REMOTE_UNKNOWN;

    call->peers = peers;
    call->ask = (struct peer_ask){.first = first,
                                  .n = n,
                                  .bytes = known ? object->bytes : 0,
                                  .modified = known ? object->modified : -1,
                                  .where = must_strdup(object->where)};
    if (known)
        memcpy(call->ask.etag, object->etag, sizeof call->ask.etag);
    return call;
}

/* False: it is too long to be asked. */
static bool peer_call_address(struct peer_call *call, const struct peer *peer)
{
    call->id = peer->id;
    memcpy(call->token, peer->card.token, sizeof call->token);
    call->target = peer_target(&call->ask);
    if (!call->target || strlen(call->ask.where) >= PEER_WHERE_MAX)
        return false;
    if (asprintf(&call->url, "http://%s%s", peer->card.address, call->target) < 0)
        call->url = must_have(NULL);
    peer_prove_ask(&call->peers->crypto, call->token, call->ask.method, call->target, call->sum,
                   call->proof);
    return true;
}

/* False: it cannot be sent, and is gone. */
static bool peer_call_begin(struct peer_call *call, const struct peer *peer)
{
    struct peers *peers = call->peers;
    bool now = peers->n_running < PEERS_AT_ONCE;

    if (peer_call_address(call, peer)) {
        peer_call_move(call, now ? &peers->running : &peers->waiting);
        if (!now || peer_call_send(call))
            return true;
    }
    peer_call_free(call);
    return false;
}

/* The node that is to be asked for them; NULL: none, or it is this one. */
static struct peer *peers_owner(const struct peers *peers, const struct object *object,
                                uint64_t block, bool *ret_own)
{
    uint32_t owner = placement_owner(&peers->placement, placement_point(object->where, block));

    *ret_own = owner != PLACEMENT_NONE && owner == peers->placement.self;
    return owner == PLACEMENT_NONE || *ret_own ? NULL : &peers->list[owner];
}

bool peers_leave_to_other(const struct peers *peers, const struct object *object, uint64_t block)
{
    bool own;

    return peers && peers_owner(peers, object, block, &own) != NULL;
}

static void peer_call_on_promise_over(void *owner)
{
    struct peer_call *call = owner;

    call->wait = NULL;
    peer_call_end(call, &(struct peer_result){.n = call->ask.n, .again = true});
}

bool peers_have_promised(const struct peers *peers, const struct object *object, uint64_t block)
{
    return peers && promises_have(peers->promises, object->where, block);
}

/* This node's own: somebody else may be bringing them, all or none; else this node does. */
static struct peer_call *peers_ask_self(struct peers *peers, const struct object *object,
                                        uint64_t first, uint64_t n, peers_done *done, void *owner)
{
    if (!peers_have_promised(peers, object, first)) {
        promises_make(peers->promises, object->where, first, n, NULL);
        return NULL;
    }
    struct peer_call *call = peer_call_new(peers, object, first, n);
    call->done = done;
    call->owner = owner;
    call->wait =
        promises_wait(peers->promises, object->where, first, peer_call_on_promise_over, call);
    return call;
}

struct peer_call *peers_ask(struct peers *peers, const struct object *object, uint64_t first,
                            uint64_t n, peers_done *done, void *owner)
{
    bool is_known = object->bytes != REMOTE_UNKNOWN, own;

    if (!peers || peers->placement.n < 2 || object->replaced || (is_known && !*object->etag))
        return NULL;
    const struct peer *peer = peers_owner(peers, object, first, &own);
    if (own)
        return peers_ask_self(peers, object, first, n, done, owner);
    if (!peer || peer_is_away(peers, peer))
        return NULL;
    struct peer_call *call = peer_call_new(peers, object, first, n);
    call->done = done;
    call->owner = owner;
    return peer_call_begin(call, peer) ? call : NULL;
}

/* To whom they belong, which hears only once of each. NULL: to nobody who hears. */
static struct peer_call *peer_call_new_to_owner(struct peers *peers, const struct object *object,
                                                uint64_t first, uint64_t n, enum peer_method method,
                                                const struct peer **ret_peer)
{
    bool own;

    *ret_peer = peers ? peers_owner(peers, object, first, &own) : NULL;
    if (!*ret_peer || peer_is_away(peers, *ret_peer))
        return NULL;
    struct peer_call *call = peer_call_new(peers, object, first, n);
    call->ask.method = method;
    return call;
}

void peers_bring_not(struct peers *peers, const struct object *object, uint64_t first, uint64_t n)
{
    const struct peer *peer;
    struct peer_call *call = peer_call_new_to_owner(peers, object, first, n, PEER_DELETE, &peer);

    if (call)
        (void)!peer_call_begin(call, peer);
}

void peers_bring(struct peers *peers, const struct object *object, uint64_t first,
                 struct dl_span data)
{
    const struct peer *peer;
    uint64_t n = blocks_of(data.len);

    if (!*object->etag || object->replaced ||
        (peers && peers->bringing + data.len > PEERS_BRINGING_MOST)) {
        peers_bring_not(peers, object, first, n);
        return;
    }
    struct peer_call *call = peer_call_new_to_owner(peers, object, first, n, PEER_PUT, &peer);
    if (!call)
        return;
    peer_sum(&peers->crypto, data, call->sum);
    call->body = memcpy(must_have(malloc(data.len)), data.data, data.len);
    peers->bringing += data.len;
    (void)!peer_call_begin(call, peer);
}

void peers_came(struct peers *peers, const struct object *object, uint64_t first, uint64_t n)
{
    if (peers)
        promises_end(peers->promises, object->where, first, n);
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
    struct http_options options = {.loop = loop, .owner = "remote.peers", .kept = PEERS_AT_ONCE};
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
    peers->server = peer_server_free(peers->server);
    peers->promises = promises_free(peers->promises);
    peers->http = http_free(peers->http);
    kept_set_placement(peers->kept, NULL);
    uv_close((uv_handle_t *)&peers->later, peers_on_closed);
    return NULL;
}
