/*
 * The TCPStore client (daemon/cluster/store/tcpstore_client.h) at stores that do what the input
 * says: answer well, in any pieces, late or not at all, say anything else, hang up, or are not
 * there. Each request is answered once, never from inside a call, and within its time; what a store
 * that only ever answered well says is what was asked for, and not the answer to another request.
 *
 * Only the network and the clock are not real: a socket is one end of a pair, whose other end is
 * the store's; names are looked up and time passes when the input says so.
 *
 * Input: the dialect that is asked for, then events of a letter and a number, see play(); any other
 * byte counts as a letter, too.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/input.h"

#include "daemon/cluster/store/tcpstore_client.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

enum { REQUESTS = 256, TURNS = 3, LONG_MS = 200000, MANY_KEYS = 42 };

static const char events[] = "aaAswwWrhtdcf";

enum answer_then { THEN_NOTHING, THEN_ASK, THEN_FREE, THENS };

struct request {
    uint32_t number;
    enum tcpstore_op op;
    uint64_t times;
    enum answer_then then;
    bool asked; /* and not answered */
};

struct game {
    struct input input;
    uv_loop_t loop;
    uint64_t now_ms;
    struct tcpstore_client *client; /* NULL: freed */
    struct request requests[REQUESTS];
    uint32_t n;
    bool inside; /* a call of the client's, from inside which nobody is answered */

    uv_timer_t *timer; /* the client's */
    uint64_t due_ms;
    uv_getaddrinfo_t *lookup; /* not answered yet */
    uv_getaddrinfo_cb looked_up;
    bool lookup_cancelled;

    /* The store, as the latest connection has it. */
    int fd;      /* owned; -1: none */
    bool fair;   /* it has only answered, and well */
    bool refuse; /* connections */
    enum tcpstore_dialect dialect;
    struct dl_buffer in;  /* of requests */
    struct dl_buffer out; /* not sent yet */
};

/* The one that is played, for what stands in for the system. */
static struct game *playing;

static void must(int r)
{
    if (r < 0)
        abort();
}

/* ---- in place of the system ----------------------------------------------------------------- */

static void hang_up(struct game *g)
{
    close_fdp(&g->fd);
    g->in.len = g->out.len = 0;
    g->dialect = TCPSTORE_ANY;
}

int __wrap_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol)
{
    int ends[2];

    (void)domain, (void)protocol;
    FUZZ_ASSERT(socketpair(AF_UNIX, type, 0, ends) == 0);
    hang_up(playing);
    playing->fair = true;
    playing->fd = ends[1];
    return ends[0];
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t len)
{
    (void)fd, (void)address, (void)len;
    errno = playing->refuse ? ECONNREFUSED : EINPROGRESS;
    return -1;
}

uint64_t __wrap_uv_now(const uv_loop_t *loop);
uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return playing->now_ms;
}

uint64_t __wrap_uv_hrtime(void);
uint64_t __wrap_uv_hrtime(void)
{
    return playing->now_ms * 1000000;
}

int __real_uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat);
int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat);
int __wrap_uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat)
{
    playing->timer = timer;
    playing->due_ms = playing->now_ms + timeout;
    return __real_uv_timer_start(timer, cb, timeout > 0 ? UINT32_MAX : 0, repeat);
}

int __wrap_uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *req, uv_getaddrinfo_cb cb,
                          const char *node, const char *service, const struct addrinfo *hints);
int __wrap_uv_getaddrinfo(uv_loop_t *loop, uv_getaddrinfo_t *req, uv_getaddrinfo_cb cb,
                          const char *node, const char *service, const struct addrinfo *hints)
{
    (void)loop, (void)node, (void)service, (void)hints;
    FUZZ_ASSERT(!playing->lookup);
    playing->lookup = req;
    playing->looked_up = cb;
    playing->lookup_cancelled = false;
    return 0;
}

int __wrap_uv_cancel(uv_req_t *req);
int __wrap_uv_cancel(uv_req_t *req)
{
    FUZZ_ASSERT(req == (uv_req_t *)playing->lookup);
    playing->lookup_cancelled = true;
    return 0;
}

/* With three addresses, or none. */
static void look_up(struct game *g, bool known)
{
    const struct addrinfo numbers = {.ai_family = AF_INET, .ai_flags = AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    uv_getaddrinfo_t *lookup = steal_ptr(g->lookup);

    if (!lookup)
        return;
    known = known && !g->lookup_cancelled;
    if (known)
        FUZZ_ASSERT(getaddrinfo("127.0.0.1", "1", &numbers, &found) == 0);
    g->looked_up(lookup, known ? 0 : g->lookup_cancelled ? UV_ECANCELED : UV_EAI_NONAME, found);
}

static void pass(struct game *g, uint64_t ms)
{
    g->now_ms += ms;
    if (g->client && g->timer && uv_is_active((uv_handle_t *)g->timer) && g->due_ms <= g->now_ms)
        __real_uv_timer_start(g->timer, g->timer->timer_cb, 0, 0);
}

static void run(struct game *g)
{
    for (int i = 0; i < TURNS; i++) {
        if (g->lookup && g->lookup_cancelled)
            look_up(g, false);
        uv_run(&g->loop, UV_RUN_NOWAIT);
    }
}

/* ---- who asks ------------------------------------------------------------------------------- */

static const struct {
    const char *request, *reply;
} layouts[TCPSTORE_OPS] = {
#define OP(NAME, v1, v2, request, reply) [TCPSTORE_##NAME] = {request, reply},
#include "daemon/cluster/store/tcpstore_ops.def"
#undef OP
};

static void name_key(char key[16], uint32_t number)
{
    (void)snprintf(key, 16, "k%u", number);
}

static void ask(struct game *g, uint8_t how);

static void drop_client(struct game *g)
{
    g->client = tcpstore_client_free(g->client);
    for (uint32_t i = 0; i < g->n; i++)
        g->requests[i].asked = false;
}

static void check_value(const struct game *g, const struct request *request, struct dl_span is)
{
    char key[16];

    name_key(key, request->number);
    if (g->fair)
        FUZZ_ASSERT(is.len == strlen(key) && memcmp(is.data, key, is.len) == 0);
    for (size_t i = 0; i < is.len; i++) {
        volatile uint8_t byte = is.data[i];
        (void)byte;
    }
}

/* All of it can be read, and of a store that answers well it is the right one. */
static void check_answer(const struct game *g, const struct request *request,
                         struct tcpstore_fields fields)
{
    const char *reply = layouts[request->op].reply;
    int64_t number, right = request->op == TCPSTORE_COUNT_KEYS ? MANY_KEYS : request->number;

    if (*reply == 'v') {
        check_value(g, request, tcpstore_take_span(&fields));
    } else if (*reply == '+') {
        for (uint64_t i = 0; i < request->times; i++)
            check_value(g, request, tcpstore_take_span(&fields));
    } else if (*reply == 'i' || *reply == '?' || *reply == '*') {
        number = tcpstore_take_i64(&fields);
        FUZZ_ASSERT(!g->fair || number == right);
        if (*reply == '?' && number > 0)
            check_value(g, request, tcpstore_take_span(&fields));
        for (; *reply == '*' && number > 0; number--)
            check_value(g, request, tcpstore_take_span(&fields));
    } else if (*reply == 'b') {
        FUZZ_ASSERT(!g->fair || fields.at[0] == TCPSTORE_READY);
    } else if (*reply == 'u') {
        uint32_t echo = tcpstore_take_u32(&fields);
        FUZZ_ASSERT(!g->fair || echo == request->number);
    }
}

static void on_answer(void *owner, const struct tcpstore_answer *answer)
{
    struct request *request = owner;
    struct game *g = playing;

    FUZZ_ASSERT(!g->inside && g->client && request->asked);
    request->asked = false;
    if (answer->status < 0)
        FUZZ_ASSERT(answer->error && answer->error->code == -answer->status &&
                    *answer->error->message && strcmp(answer->error->path, "store:29400") == 0);
    else
        check_answer(g, request, answer->fields);
    if (request->then == THEN_ASK)
        ask(g, (uint8_t)(request->op + 1));
    else if (request->then == THEN_FREE)
        drop_client(g);
}

static bool is_for_users(enum tcpstore_op op)
{
    return op != TCPSTORE_VALIDATE && op != TCPSTORE_CANCEL_WAIT && op != TCPSTORE_WATCH;
}

/* Bits 5-6 say what its answer leads to, bit 7 that it has little time. LIST_KEYS has as many keys
 * as its number: few. */
static void ask(struct game *g, uint8_t how)
{
    struct request *request = &g->requests[g->n];
    struct dl_span keys[3], values[3];
    char key[16];

    if (!g->client || g->n == REQUESTS)
        return;
    *request = (struct request){.number = ++g->n,
                                .op = (how & 31) % TCPSTORE_OPS,
                                .times = 1,
                                .then = (how >> 5 & 3) % THENS};
    if (!is_for_users(request->op))
        return;
    name_key(key, request->number);
    keys[0] = keys[1] = keys[2] = span_str(key);
    values[0] = values[1] = values[2] = span_str("value");
    if (*layouts[request->op].request == '*')
        request->times = request->number % 4;
    const struct tcpstore_question question = {.op = request->op,
                                               .keys = keys,
                                               .values = values,
                                               .times = request->times,
                                               .number = request->number,
                                               .timeout_ms = how & 128 ? 100 : 0};
    bool inside = g->inside;
    request->asked = true;
    g->inside = true;
    FUZZ_ASSERT(tcpstore_client_ask(g->client, &question, on_answer, request) == 0);
    g->inside = inside;
}

static void begin_client(struct game *g, enum tcpstore_dialect dialect)
{
    const struct tcpstore_client_options options = {
        .loop = &g->loop, .host = "store", .port = 29400, .dialect = dialect, .timeout_ms = 5000};

    g->timer = NULL;
    g->client = tcpstore_client_new(&options);
    FUZZ_ASSERT(g->client && strcmp(tcpstore_client_endpoint(g->client), "store:29400") == 0);
}

/* ---- the store ------------------------------------------------------------------------------ */

static void hear(struct game *g)
{
    uint8_t bytes[4096];
    ssize_t n;

    while (g->fd >= 0 && (n = recv(g->fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        must(buffer_append(&g->in, bytes, (size_t)n));
}

/* As many bytes of what is to be said as that. */
static void say(struct game *g, size_t n)
{
    ssize_t sent;

    if (g->fd < 0)
        return;
    sent = send(g->fd, g->out.data, min_u64(n, g->out.len), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0)
        return;
    g->out.len -= (size_t)sent;
    memmove(g->out.data, g->out.data + sent, g->out.len);
}

/* A good answer: by the key that it asked for, or the number that it gave. */
static void answer(struct game *g, const struct tcpstore_request *request)
{
    struct tcpstore_fields fields = request->fields;
    const char *layout = layouts[request->op].request, *reply = layouts[request->op].reply;
    struct dl_span key = {0};
    char text[16] = "k0";
    uint32_t number = 0;

    if (*layout == 'u')
        number = tcpstore_take_u32(&fields);
    if ((*layout == 'k' || *layout == '*') && request->count > 0) {
        key = tcpstore_take_span(&fields);
        FUZZ_ASSERT(key.len < sizeof text);
        memcpy(text, key.data, key.len);
        text[key.len] = '\0';
        number = (uint32_t)strtoul(text + 1, NULL, 10);
    }
    if (*reply == 'v')
        must(tcpstore_put_span(&g->out, key));
    for (uint64_t i = 0; *reply == '+' && i < request->count; i++)
        must(tcpstore_put_span(&g->out, key));
    if (*reply == 'i' || *reply == '?')
        must(tcpstore_put_i64(&g->out, request->op == TCPSTORE_COUNT_KEYS ? MANY_KEYS : number));
    if (*reply == '?' && number > 0)
        must(tcpstore_put_span(&g->out, key));
    if (*reply == '*') { /* keys that nobody can know: what follows is not fair */
        must(tcpstore_put_i64(&g->out, 1));
        must(tcpstore_put_span(&g->out, span_str("some")));
        g->fair = false;
    }
    if (*reply == 'b')
        must(tcpstore_put_u8(&g->out, request->op == TCPSTORE_CANCEL_WAIT));
    if (*reply == 'u')
        must(tcpstore_put_u32(&g->out, number));
}

/* To all that was asked; `holds`: but to waits. */
static void serve(struct game *g, bool holds)
{
    struct tcpstore_request request;
    struct tcpstore_scan scan = {0};

    hear(g);
    if (g->dialect == TCPSTORE_ANY && tcpstore_sniff(g->in.data, g->in.len, &g->dialect) <= 0)
        return;
    /* What a client sends is well made, in any dialect. */
    while (g->in.len > 0) {
        int r = tcpstore_scan_request(&scan, g->dialect, g->in.data, g->in.len, &request);

        FUZZ_ASSERT(r >= 0);
        if (r == 0)
            return;
        bool waits = request.op == TCPSTORE_WAIT || request.op == TCPSTORE_BARRIER;
        if (!(holds && waits))
            answer(g, &request);
        g->in.len -= request.bytes;
        memmove(g->in.data, g->in.data + request.bytes, g->in.len);
    }
}

static void say_anything(struct game *g, size_t n)
{
    const uint8_t *bytes = take_bytes(&g->input, n, &n);

    g->fair = false;
    say(g, SIZE_MAX);
    if (g->fd >= 0 && n > 0)
        (void)!send(g->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* ---- the game ------------------------------------------------------------------------------- */

static void play(struct game *g)
{
    static const uint16_t times_ms[] = {1, 50, 100, 1000, 3000, 5000, 10000, 60000};
    uint8_t letter = take(&g->input), number = take(&g->input);

    if (!strchr(events, letter) || !letter)
        letter = (uint8_t)events[letter % (sizeof events - 1)];
    switch (letter) {
    case 'a':
        ask(g, number);
        break;
    case 'A': /* in a hurry, and something follows */
        ask(g, number | 0xA0);
        break;
    case 's':
    case 'w': /* answers whole */
        serve(g, number & 1);
        say(g, letter == 'w' ? SIZE_MAX : number);
        break;
    case 'W': /* goes on with what it had begun to say */
        say(g, number);
        break;
    case 'r':
        say_anything(g, number);
        break;
    case 'h':
        hang_up(g);
        break;
    case 't':
        pass(g, times_ms[number % ARRAY_SIZE(times_ms)]);
        break;
    case 'd':
        look_up(g, !(number & 1));
        break;
    case 'c':
        g->refuse = number & 1;
        break;
    default:
        if (g->client && number & 1)
            drop_client(g);
        else if (!g->client && !g->lookup)
            begin_client(g, number / 2 % 3);
    }
    run(g);
}

/* Whatever the store did, who asked is answered when the time is over. */
static void finish(struct game *g)
{
    for (int i = 0; i < 8 && g->client; i++) {
        pass(g, LONG_MS);
        run(g);
    }
    for (uint32_t i = 0; i < g->n; i++)
        FUZZ_ASSERT(!g->requests[i].asked);
    g->client = tcpstore_client_free(g->client);
    run(g);
    look_up(g, false);
    uv_run(&g->loop, UV_RUN_DEFAULT);
    FUZZ_ASSERT(uv_loop_close(&g->loop) == 0);
    hang_up(g);
    buffer_deinit(&g->in);
    buffer_deinit(&g->out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct game game;

    game = (struct game){.input = {data, len}, .fd = -1, .fair = true};
    playing = &game;
    FUZZ_ASSERT(uv_loop_init(&game.loop) == 0);
    begin_client(&game, take(&game.input) % 3);
    while (game.input.len > 0)
        play(&game);
    finish(&game);
    return 0;
}
