/* Requests to other nodes, how many run at once, and what proves them and their answers. */
#include "daemon/fetcher/peers_private.h"

#include "daemon/base/memory.h"

#include <stdio.h>

#include <utlist.h>

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

void peer_call_stay(struct peer_call *call)
{
    peer_call_move(call, &call->peers->here);
}

void peer_call_rest(struct peer_call *call)
{
    peer_call_move(call, NULL);
}

struct peer_call *peer_call_new(struct peers *peers, const struct peer_ask *ask)
{
    struct peer_call *call = must_alloc(sizeof *call);

    call->peers = peers;
    call->ask = *ask;
    call->ask.where = must_strdup(ask->where);
    return call;
}

void peer_call_free(struct peer_call *call)
{
    http_cancel(call->call);
    promise_wait_cancel(call->wait);
    kept_cancel(call->task);
    peer_call_move(call, NULL);
    call->peers->bringing -= call->bringing;
    free(call->ask.where);
    free(call->target);
    free(call->url);
    free(call->data);
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

/* ---- answers -------------------------------------------------------------------------------- */

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

/* What an earlier release does not know is no failure. */
static const char *peer_call_fault(const struct peer_call *call, const struct http_answer *http)
{
    enum peer_method method = call->ask.method;

    if (method == PEER_DELETE || (http->status == 400 && method != PEER_GET))
        return NULL;
    if (http->status == 0)
        return http->why;
    if (http->status == 403)
        return "it does not take this node's proof";
    if (!call->answered || (http->status != 200 && http->status != 404))
        return "it answers in a way that is none";
    return peer_call_is_proven(call, http->body) ? NULL : "its answer is not proven to be its own";
}

static void peer_call_on_done(void *owner, const struct http_answer *http)
{
    struct peer_call *call = owner;
    struct peers *peers = call->peers;
    struct peer *peer = peers_find(peers, call->id);
    const char *fault = peer_call_fault(call, http);
    bool good = !fault && (http->status == 200 || http->status == 404);

    call->call = NULL;
    peer_call_rest(call);
    if (peer && fault)
        peer_note_failed(peers, peer, fault);
    else if (peer && good)
        peer->away_ms = peer->away_until = 0;
    call->take(call, good ? http->status : 0, http->body);
    peers_run(peers);
}

/* ---- requests ------------------------------------------------------------------------------- */

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
    if (peer_brings(call->ask.method)) {
        request.body = (const char *)call->left.data;
        request.body_bytes = peer_ask_bytes(&call->ask);
        request.type = "application/octet-stream";
        request.headers = headers;
        request.n_headers = 1;
    }
    return http_send(call->peers->http, &request, &call->call) == 0;
}

/* One whose node has failed meanwhile asks the next. */
void peers_run(struct peers *peers)
{
    while (peers->waiting && peers->n_running < PEERS_AT_ONCE) {
        struct peer_call *call = peers->waiting;
        const struct peer *peer = peers_find(peers, call->id);

        peer_call_move(call, &peers->running);
        if (peer && !peer_is_away(peers, peer) && peer_call_send(call))
            continue;
        peer_call_rest(call);
        call->take(call, 0, (struct dl_span){0});
    }
}

/* False: it is too long to be asked. */
static bool peer_call_address(struct peer_call *call, const struct peer *peer)
{
    const struct sigv4_crypto *crypto = &call->peers->crypto;

    free(steal_ptr(call->target));
    free(steal_ptr(call->url));
    call->id = peer->id;
    call->answered = false;
    call->sum[0] = '\0';
    if (peer_brings(call->ask.method))
        peer_sum(crypto, (struct dl_span){call->left.data, peer_ask_bytes(&call->ask)}, call->sum);
    memcpy(call->token, peer->card.token, sizeof call->token);
    call->target = peer_target(&call->ask);
    if (!call->target || strlen(call->ask.where) >= PEER_WHERE_MAX)
        return false;
    if (asprintf(&call->url, "http://%s%s", peer->card.address, call->target) < 0)
        call->url = must_have(NULL);
    peer_prove_ask(crypto, call->token, call->ask.method, call->target, call->sum, call->proof);
    return true;
}

bool peer_call_begin(struct peer_call *call, uint64_t id)
{
    struct peers *peers = call->peers;
    const struct peer *peer = peers_find(peers, id);
    bool now = peers->n_running < PEERS_AT_ONCE;

    if (!peer || peer_is_away(peers, peer) || !peer_call_address(call, peer))
        return false;
    peer_call_move(call, now ? &peers->running : &peers->waiting);
    if (!now || peer_call_send(call))
        return true;
    peer_call_rest(call);
    return false;
}
