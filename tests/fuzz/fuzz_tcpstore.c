/*
 * The TCPStore server's store with peers that send what the input says: any bytes in any pieces,
 * and requests that are well made, of both dialects; that read late, in part, or never; that go
 * amid anything. The bounds are small, so that all of them are met.
 *
 * After each event all books are counted anew. One peer is well-behaved: it is never broken but for
 * want of room, and a key of its own that only it writes always has what it last stored.
 *
 * Input: events of a byte and what they take: which peer (bits 0-1), what (bits 2-4), how much
 * (bits 5-7).
 */
#include "daemon/cluster/store/tcpstore.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/input.h"

enum { PEERS = 4, GOOD = PEERS - 1, PIECE = 4096 };

struct game {
    struct input input;
    struct tcpstore *store;
    struct tcpstore_peer *peers[PEERS];
    int64_t counted; /* by the good one */
};

/* In a block of exactly its size, so that ASan sees one byte too far. */
static int feed(struct tcpstore_peer *peer, const uint8_t *data, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);
    int r;

    if (!copy)
        abort();
    if (len > 0)
        memcpy(copy, data, len);
    r = tcpstore_peer_feed(peer, copy, len);
    free(copy);
    FUZZ_ASSERT((r < 0) == (tcpstore_peer_why(peer) != NULL));
    return r;
}

static void must(int r)
{
    if (r < 0)
        abort();
}

/* Few keys, so that peers meet. */
static void put_key(struct dl_buffer *out, uint8_t byte)
{
    static const char *const keys[] = {"", "a", "b", "n", "q", "bar", "init/", "a longer one"};

    must(tcpstore_put_span(out, span_str(keys[byte % ARRAY_SIZE(keys)])));
}

static void put_value(struct game *g, struct dl_buffer *out)
{
    static const uint8_t zeroes[2048];
    uint8_t byte = take(&g->input);

    if (byte < 64)
        must(tcpstore_put_span(out, span_str(byte % 2 ? "7" : "-1 and more")));
    else
        must(tcpstore_put_span(out, (struct dl_span){.data = zeroes, .len = (byte - 63U) * 8}));
}

/* A request that is well made, as the table of requests has it. */
static void put_request(struct game *g, enum tcpstore_dialect dialect, struct dl_buffer *out)
{
    static const char *const layouts[TCPSTORE_OPS] = {
#define OP(NAME, v1, v2, request, reply) [TCPSTORE_##NAME] = (request),
#include "daemon/cluster/store/tcpstore_ops.def"
#undef OP
    };
    enum tcpstore_op op = take(&g->input) % TCPSTORE_OPS;
    const char *field = layouts[op];
    uint64_t times = 1;

    if (tcpstore_op_byte(op, dialect) < 0)
        return;
    must(tcpstore_put_u8(out, (uint8_t)tcpstore_op_byte(op, dialect)));
    if (*field == '*') {
        times = take(&g->input) % 5;
        must(tcpstore_put_i64(out, (int64_t)times));
        field++;
    }
    for (; times > 0; times--) {
        for (const char *at = field; *at; at++) {
            if (*at == 'k')
                put_key(out, take(&g->input));
            else if (*at == 'v')
                put_value(g, out);
            else if (*at == 'i')
                must(tcpstore_put_i64(out, (int64_t)take(&g->input) - 2));
            else
                must(tcpstore_put_u32(out, TCPSTORE_MAGIC));
        }
    }
}

static void ask(struct game *g, struct tcpstore_peer *peer)
{
    _cleanup_(buffer_deinit) struct dl_buffer out = {0};
    enum tcpstore_dialect dialect = tcpstore_peer_dialect(peer);

    if (dialect == TCPSTORE_ANY) {
        dialect = take(&g->input) % 2 ? TCPSTORE_V1 : TCPSTORE_V2;
        if (dialect == TCPSTORE_V2)
            must(tcpstore_put_hello(&out, 1));
    }
    put_request(g, dialect, &out);
    (void)!feed(peer, out.data, out.len);
}

static void send_bytes(struct game *g, struct tcpstore_peer *peer, size_t n)
{
    const uint8_t *bytes = take_bytes(&g->input, n, &n);

    (void)!feed(peer, bytes, n);
}

/* Much of nothing: what halves of requests are made of. */
static void send_much(struct tcpstore_peer *peer)
{
    static const uint8_t zeroes[PIECE];

    (void)!feed(peer, zeroes, sizeof zeroes);
}

static void read_some(struct tcpstore_peer *peer, uint64_t n)
{
    struct dl_span out = tcpstore_peer_output(peer);

    (void)!tcpstore_peer_sent(peer, min_u64(n, out.len));
}

static void renew(struct game *g, uint8_t which)
{
    tcpstore_peer_free(g->peers[which]);
    g->peers[which] = tcpstore_peer_new(g->store, NULL);
    if (!g->peers[which])
        abort();
}

/* It counts with a key of its own, and reads what it is told. */
static void be_good(struct game *g)
{
    _cleanup_(buffer_deinit) struct dl_buffer out = {0};
    _cleanup_(buffer_deinit) struct dl_buffer expected = {0};
    struct tcpstore_peer *peer = g->peers[GOOD];
    struct dl_span told;

    must(tcpstore_put_u8(&out, (uint8_t)tcpstore_op_byte(TCPSTORE_ADD, TCPSTORE_V1)));
    must(tcpstore_put_span(&out, span_str("good")));
    must(tcpstore_put_i64(&out, 1));
    if (feed(peer, out.data, out.len) < 0) { /* no room */
        renew(g, GOOD);
        return;
    }
    g->counted++;
    must(tcpstore_put_i64(&expected, g->counted));
    told = tcpstore_peer_output(peer);
    FUZZ_ASSERT(told.len == expected.len && memcmp(told.data, expected.data, told.len) == 0);
    FUZZ_ASSERT(tcpstore_peer_sent(peer, told.len) == 0);
}

static void play(struct game *g)
{
    uint8_t event = take(&g->input), which = event & 3, much = event >> 5;
    struct tcpstore_peer *peer = g->peers[which], *touched;

    if (which == GOOD) {
        be_good(g);
    } else {
        switch (event >> 2 & 7) {
        case 0:
            send_bytes(g, peer, much + 1U);
            break;
        case 1:
            send_bytes(g, peer, 16U * (much + 1U));
            break;
        case 2:
            send_much(peer);
            break;
        case 3:
            read_some(peer, UINT64_C(1) << (2 * much));
            break;
        case 4:
            renew(g, which);
            break;
        default:
            ask(g, peer);
        }
    }
    tcpstore_check(g->store);
    while ((touched = tcpstore_next_touched(g->store)))
        FUZZ_ASSERT(tcpstore_peer_why(touched) || tcpstore_peer_output(touched).len > 0 ||
                    touched == g->peers[which] || touched == g->peers[GOOD]);
    for (uint8_t i = 0; i < PEERS; i++) {
        if (tcpstore_peer_why(g->peers[i]))
            renew(g, i);
    }
    tcpstore_check(g->store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    const struct tcpstore_limits limits = {
        .stored_bytes = 6000, .buffered_bytes = 32768, .output_bytes = 8192, .keys = 6};
    struct game g = {.input = {data, len}, .store = tcpstore_new(&limits, 1)};

    if (!g.store)
        abort();
    for (uint8_t i = 0; i < PEERS; i++)
        renew(&g, i);
    while (g.input.len > 0)
        play(&g);
    for (int i = 0; i < PEERS; i++)
        tcpstore_peer_free(g.peers[i]);
    tcpstore_free(g.store);
    return 0;
}
