/*
 * The TCPStore client against our server, on one loop, in both dialects; and against what is no
 * store, comes late, goes, or says what nobody asked.
 */
#include "tests/lib/harness.h"
#include "tests/lib/uv_threads.h"

#include "daemon/cluster/store/tcpstore_client.h"
#include "daemon/cluster/store/tcpstore_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

enum { LONG_MS = 60000 };

struct heard {
    bool answered;
    int status;
    char text[DL_ERROR_MESSAGE_MAX];
    char path[DL_ERROR_PATH_MAX];
    uint8_t value[64];
    size_t len;
    int64_t number;
    enum tcpstore_op op;
    struct world *world;
    bool frees; /* the client, as soon as it is answered */
};

struct world {
    uv_loop_t loop;
    struct tcpstore_server *server;
    struct tcpstore_client *client;
    uint16_t port;
};

static void begin_server(struct world *w, uint16_t port)
{
    const struct tcpstore_server_options options = {
        .loop = &w->loop, .fd = -1, .host = "127.0.0.1", .port = port};
    struct dl_error err = {0};

    assert_int_equal(tcpstore_server_new(&options, &w->server, &err), 0);
    w->port = tcpstore_server_port(w->server);
}

static void begin_client(struct world *w, enum tcpstore_dialect dialect)
{
    const struct tcpstore_client_options options = {.loop = &w->loop,
                                                    .host = "127.0.0.1",
                                                    .port = w->port,
                                                    .dialect = dialect,
                                                    .timeout_ms = LONG_MS};

    w->client = tcpstore_client_new(&options);
    assert_non_null(w->client);
}

static struct world *begin(void)
{
    struct world *w = calloc(1, sizeof *w);

    assert_non_null(w);
    assert_int_equal(uv_loop_init(&w->loop), 0);
    return w;
}

static void end(struct world *w)
{
    tcpstore_client_free(w->client);
    tcpstore_server_free(w->server);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    free(w);
}

static void on_answer(void *owner, const struct tcpstore_answer *answer)
{
    struct heard *heard = owner;
    struct tcpstore_fields fields = answer->fields;

    assert_false(heard->answered);
    heard->answered = true;
    heard->status = answer->status;
    if (answer->status < 0) {
        assert_int_equal(answer->error->code, -answer->status);
        memcpy(heard->text, answer->error->message, sizeof heard->text);
        memcpy(heard->path, answer->error->path, sizeof heard->path);
    } else if (heard->op == TCPSTORE_GET || heard->op == TCPSTORE_COMPARE_SET) {
        struct dl_span span = tcpstore_take_span(&fields);
        heard->len = span.len;
        memcpy(heard->value, span.data, min_u64(span.len, sizeof heard->value));
    } else if (heard->op == TCPSTORE_CHECK || heard->op == TCPSTORE_WAIT) {
        heard->number = fields.at[0];
    } else if (fields.at) {
        heard->number = tcpstore_take_i64(&fields);
    }
    if (heard->frees)
        heard->world->client = tcpstore_client_free(heard->world->client);
}

static void ask(struct tcpstore_client *client, struct heard *heard, enum tcpstore_op op,
                const char *key, const char *value, const char *second, int64_t number,
                uint64_t timeout_ms)
{
    const struct dl_span keys[] = {span_str(key)};
    const struct dl_span values[] = {span_str(value), span_str(second)};
    const struct tcpstore_question question = {.op = op,
                                               .keys = keys,
                                               .values = values,
                                               .times = 1,
                                               .number = number,
                                               .timeout_ms = timeout_ms};

    heard->answered = false;
    heard->op = op;
    assert_int_equal(tcpstore_client_ask(client, &question, on_answer, heard), 0);
    assert_false(heard->answered); /* never from inside */
}

static void until(struct world *w, const struct heard *heard)
{
    while (!heard->answered)
        uv_run(&w->loop, UV_RUN_ONCE);
}

static int64_t number_of(struct world *w, enum tcpstore_op op, const char *key, int64_t number)
{
    struct heard heard = {0};

    ask(w->client, &heard, op, key, "", "", number, 0);
    until(w, &heard);
    assert_int_equal(heard.status, 0);
    return heard.number;
}

static void value_is(struct world *w, enum tcpstore_op op, const char *key, const char *value,
                     const char *second, const char *expected)
{
    struct heard heard = {0};

    ask(w->client, &heard, op, key, value, second, 0, 0);
    until(w, &heard);
    assert_int_equal(heard.status, 0);
    assert_int_equal(heard.len, strlen(expected));
    assert_memory_equal(heard.value, expected, heard.len);
}

static const enum tcpstore_dialect dialects[] = {TCPSTORE_ANY, TCPSTORE_V1, TCPSTORE_V2};

/* ---- a store that is well ------------------------------------------------------------------- */

TEST(test_what_is_asked_is_answered)
{
    for (size_t i = 0; i < ARRAY_SIZE(dialects); i++) {
        struct world *w = begin();
        struct heard heard = {0};

        begin_server(w, 0);
        begin_client(w, dialects[i]);
        assert_int_equal(tcpstore_client_dialect(w->client), TCPSTORE_ANY);
        ask(w->client, &heard, TCPSTORE_SET, "k", "v1", "", 0, 0);
        until(w, &heard);
        assert_int_equal(heard.status, 0);
        assert_int_equal(tcpstore_client_dialect(w->client),
                         dialects[i] == TCPSTORE_V1 ? TCPSTORE_V1 : TCPSTORE_V2);
        value_is(w, TCPSTORE_GET, "k", "", "", "v1");
        value_is(w, TCPSTORE_COMPARE_SET, "k", "v1", "v2", "v2");
        value_is(w, TCPSTORE_COMPARE_SET, "k", "v1", "v3", "v2");
        value_is(w, TCPSTORE_COMPARE_SET, "absent", "S", "S", "S");
        assert_int_equal(number_of(w, TCPSTORE_ADD, "n", -7), -7);
        assert_int_equal(number_of(w, TCPSTORE_CHECK, "absent", 0), 1);
        assert_int_equal(number_of(w, TCPSTORE_WAIT, "k", 0), 0);
        assert_int_equal(number_of(w, TCPSTORE_COUNT_KEYS, "", 0), 2);
        assert_int_equal(number_of(w, TCPSTORE_DELETE, "k", 0), 1);
        assert_int_equal(number_of(w, TCPSTORE_DELETE, "k", 0), 0);
        end(w);
    }
}

TEST(test_many_at_once_are_answered_in_order)
{
    struct world *w = begin();
    static struct heard heard[500];

    begin_server(w, 0);
    begin_client(w, TCPSTORE_ANY);
    memset(heard, 0, sizeof heard);
    for (size_t i = 0; i < ARRAY_SIZE(heard); i++)
        ask(w->client, &heard[i], TCPSTORE_ADD, "n", "", "", 1, 0);
    until(w, &heard[ARRAY_SIZE(heard) - 1]);
    for (size_t i = 0; i < ARRAY_SIZE(heard); i++)
        assert_int_equal(heard[i].number, (int64_t)i + 1);
    end(w);
}

TEST(test_a_wait_is_answered_when_another_sets)
{
    for (size_t i = 0; i < ARRAY_SIZE(dialects); i++) {
        struct world *w = begin();
        struct heard waited = {0}, behind = {0}, set = {0};
        struct tcpstore_client *other;

        begin_server(w, 0);
        begin_client(w, dialects[i]);
        other = w->client;
        begin_client(w, TCPSTORE_ANY);
        ask(w->client, &waited, TCPSTORE_WAIT, "late", "", "", 0, 0);
        ask(w->client, &behind, TCPSTORE_ADD, "n", "", "", 1, 0);
        while (tcpstore_server_count(w->server).waits == 0)
            uv_run(&w->loop, UV_RUN_ONCE);
        assert_false(waited.answered);
        ask(other, &set, TCPSTORE_SET, "late", "x", "", 0, 0);
        until(w, &behind);
        assert_true(waited.answered && set.answered);
        assert_int_equal(waited.status, 0);
        tcpstore_client_free(other);
        end(w);
    }
}

/* What comes after it gets its own answers, whatever becomes of the key. */
TEST(test_a_wait_that_times_out_shifts_nothing)
{
    for (size_t i = 0; i < ARRAY_SIZE(dialects); i++) {
        struct world *w = begin();

        begin_server(w, 0);
        begin_client(w, dialects[i]);
        /* Connecting may take longer than what is waited for below. */
        number_of(w, TCPSTORE_ADD, "connected", 0);
        for (int turn = 0; turn < 3; turn++) {
            struct heard waited = {0}, behind = {0};

            ask(w->client, &waited, TCPSTORE_WAIT, "never", "", "", 0, 30);
            ask(w->client, &behind, TCPSTORE_ADD, "n", "", "", 1, 0);
            until(w, &waited);
            assert_int_equal(waited.status, -ETIMEDOUT);
            assert_non_null(strstr(waited.text, "did not come within 0.0 s"));
            until(w, &behind);
            assert_int_equal(behind.status, 0);
            assert_int_equal(behind.number, turn + 1);
            assert_int_equal(number_of(w, TCPSTORE_ADD, "never", 1), 1);
            assert_int_equal(number_of(w, TCPSTORE_DELETE, "never", 0), 1);
            assert_int_equal(tcpstore_server_count(w->server).waits, 0);
        }
        end(w);
    }
}

TEST(test_what_the_dialect_has_not_is_said)
{
    struct world *w = begin();
    struct heard heard = {0};

    begin_server(w, 0);
    begin_client(w, TCPSTORE_V1);
    ask(w->client, &heard, TCPSTORE_APPEND, "k", "v", "", 0, 0);
    until(w, &heard);
    assert_int_equal(heard.status, -EOPNOTSUPP);
    assert_string_equal(heard.text, "the store there is of torch 1, which has no APPEND");
    assert_int_equal(number_of(w, TCPSTORE_ADD, "n", 1), 1);
    end(w);
}

TEST(test_what_no_store_takes_is_refused_at_once)
{
    struct world *w = begin();
    static char long_key[TCPSTORE_KEY_MAX + 2];
    const struct dl_span keys[] = {
        {.data = (const uint8_t *)long_key, .len = TCPSTORE_KEY_MAX + 1}};
    const struct tcpstore_question question = {.op = TCPSTORE_GET, .keys = keys, .times = 1};

    w->port = 1;
    begin_client(w, TCPSTORE_ANY);
    assert_int_equal(tcpstore_client_ask(w->client, &question, on_answer, NULL), -EINVAL);
    end(w);
}

/* ---- a store that is not, comes, and goes --------------------------------------------------- */

/* A port that nobody listens at yet. */
static uint16_t free_port(struct world *w)
{
    begin_server(w, 0);
    w->server = tcpstore_server_free(w->server);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    return w->port;
}

TEST(test_nobody_there)
{
    struct world *w = begin();
    struct heard heard = {0};
    char endpoint[32];

    free_port(w);
    begin_client(w, TCPSTORE_ANY);
    ask(w->client, &heard, TCPSTORE_ADD, "n", "", "", 1, 300);
    until(w, &heard);
    assert_int_equal(heard.status, -ETIMEDOUT);
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", (unsigned)w->port);
    assert_string_equal(heard.path, endpoint);
    assert_string_equal(tcpstore_client_endpoint(w->client), endpoint);
    assert_non_null(strstr(heard.text, "no TCPStore answered within 0.3 s"));
    assert_non_null(strstr(heard.text, "the last: Connection refused"));
    end(w);
}

TEST(test_a_store_that_comes_later)
{
    struct world *w = begin();
    struct heard early = {0}, later = {0};

    free_port(w);
    begin_client(w, TCPSTORE_ANY);
    ask(w->client, &later, TCPSTORE_ADD, "n", "", "", 1, 0);
    ask(w->client, &early, TCPSTORE_ADD, "n", "", "", 1, 200);
    until(w, &early);
    assert_int_equal(early.status, -ETIMEDOUT);
    begin_server(w, w->port);
    until(w, &later);
    assert_int_equal(later.status, 0);
    assert_int_equal(later.number, 1);
    end(w);
}

TEST(test_a_store_that_goes_and_comes_back)
{
    struct world *w = begin();
    struct heard waited = {0};

    begin_server(w, 0);
    begin_client(w, TCPSTORE_ANY);
    ask(w->client, &waited, TCPSTORE_WAIT, "never", "", "", 0, 0);
    while (tcpstore_server_count(w->server).waits == 0)
        uv_run(&w->loop, UV_RUN_ONCE);
    w->server = tcpstore_server_free(w->server);
    until(w, &waited);
    assert_int_equal(waited.status, -ECONNRESET);
    assert_string_equal(waited.text, "WAIT was sent, and then the connection was lost; it may "
                                     "or may not have been done");
    begin_server(w, w->port);
    assert_int_equal(number_of(w, TCPSTORE_ADD, "n", 1), 1);
    end(w);
}

/* At every moment of a connection's life, and from inside an answer. */
TEST(test_it_can_be_freed_at_any_time)
{
    for (int turns = 0; turns < 12; turns++) {
        struct world *w = begin();
        struct heard heard[3] = {0};

        begin_server(w, 0);
        begin_client(w, TCPSTORE_ANY);
        for (size_t i = 0; i < ARRAY_SIZE(heard); i++)
            ask(w->client, &heard[i], TCPSTORE_ADD, "n", "", "", 1, 0);
        for (int i = 0; i < turns; i++)
            uv_run(&w->loop, UV_RUN_NOWAIT);
        end(w);
    }
    for (int late = 0; late < 2; late++) {
        struct world *w = begin();
        struct heard heard[3] = {{.frees = true, .world = w}};

        if (late)
            free_port(w);
        else
            begin_server(w, 0);
        begin_client(w, TCPSTORE_ANY);
        for (size_t i = 0; i < ARRAY_SIZE(heard); i++)
            ask(w->client, &heard[i], TCPSTORE_ADD, "n", "", "", 1, late ? 100 : 0);
        until(w, &heard[0]);
        assert_null(w->client);
        assert_false(heard[1].answered || heard[2].answered);
        end(w);
    }
}

/* ---- what is no store ----------------------------------------------------------------------- */

/* Answers the first connection's bytes with what it is told, then hangs up or not. */
struct impostor {
    uv_poll_t listening;
    uv_poll_t talking;
    int fd, peer;
    const uint8_t *says;
    size_t len;
    bool echoes; /* the greeting's last four bytes first */
    bool hangs_up;
    bool open;
};

static void on_talk(uv_poll_t *poll, int status, int events)
{
    struct impostor *im = poll->data;
    uint8_t bytes[256];
    ssize_t n = recv(im->peer, bytes, sizeof bytes, MSG_DONTWAIT);

    (void)status, (void)events;
    if (n > 4 && im->echoes)
        (void)!send(im->peer, bytes + n - 4, 4, MSG_NOSIGNAL);
    else if (n > 0)
        (void)!send(im->peer, im->says, im->len, MSG_NOSIGNAL);
    if (n <= 0 || im->hangs_up) {
        uv_poll_stop(poll);
        (void)!shutdown(im->peer, SHUT_RDWR);
    }
    im->echoes = false;
}

static void on_caller(uv_poll_t *poll, int status, int events)
{
    struct impostor *im = poll->data;
    int fd = accept4(im->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    (void)status, (void)events;
    if (fd < 0)
        return;
    uv_poll_stop(poll); /* one is enough; others are not even greeted */
    im->peer = fd;
    im->open = true;
    assert_int_equal(uv_poll_init(poll->loop, &im->talking, fd), 0);
    im->talking.data = im;
    assert_int_equal(uv_poll_start(&im->talking, UV_READABLE, on_talk), 0);
}

static uint16_t begin_impostor(struct world *w, struct impostor *im)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;

    im->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(im->fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(im->fd, 8), 0);
    assert_int_equal(getsockname(im->fd, (struct sockaddr *)&address, &len), 0);
    assert_int_equal(uv_poll_init(&w->loop, &im->listening, im->fd), 0);
    im->listening.data = im;
    assert_int_equal(uv_poll_start(&im->listening, UV_READABLE, on_caller), 0);
    return ntohs(address.sin_port);
}

static void end_impostor(struct world *w, struct impostor *im)
{
    uv_close((uv_handle_t *)&im->listening, NULL);
    if (im->open)
        uv_close((uv_handle_t *)&im->talking, NULL);
    w->client = tcpstore_client_free(w->client);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    close_fdp(&im->fd);
    if (im->open)
        close_fdp(&im->peer);
}

TEST(test_what_is_no_store_is_told_as_such)
{
    static const struct {
        enum tcpstore_dialect dialect;
        bool echoes, hangs_up;
        const char *says;
        int code;
        const char *text;
    } rows[] = {
        {TCPSTORE_V2, false, false, "HTTP/1.1 400 Bad Request", ETIMEDOUT,
         "the server there is not a TCPStore, or not that of torch 2"},
        {TCPSTORE_V1, false, false, "HTTP/1.1 400 Bad Request", ETIMEDOUT,
         "the server there is not a TCPStore, or not that of torch 1"},
        {TCPSTORE_V2, false, true, "", ETIMEDOUT,
         "the server there closes connections of a client of torch 2"},
        {TCPSTORE_V2, false, false, "", ETIMEDOUT, "no answer yet"},
        {TCPSTORE_V2, true, false, "\xff\xff\xff\xff\xff\xff\xff\xff", EPROTO,
         "the store sent an answer that is not a TCPStore's"},
        {TCPSTORE_V2, true, false, "\1\0\0\0\0\0\0\0x more", EPROTO,
         "sent an answer without a request"},
        {TCPSTORE_V2, true, false, "", ETIMEDOUT, "GET was not answered within 0.4 s"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct world *w = begin();
        struct heard first = {0}, second = {0};
        struct impostor im = {.says = (const uint8_t *)rows[i].says,
                              .echoes = rows[i].echoes,
                              .hangs_up = rows[i].hangs_up};

        im.len = strlen(rows[i].says);
        if (rows[i].says[0] == '\1') /* a value, with its length */
            im.len = 14;
        w->port = begin_impostor(w, &im);
        begin_client(w, rows[i].dialect);
        ask(w->client, &first, TCPSTORE_GET, "k", "", "", 0, 400);
        until(w, &first);
        if (first.status == 0) { /* what follows it is nobody's */
            ask(w->client, &second, TCPSTORE_GET, "k", "", "", 0, 400);
            until(w, &second);
            assert_int_equal(second.status, -ETIMEDOUT);
            assert_non_null(strstr(second.text, rows[i].text));
        } else {
            assert_int_equal(first.status, -rows[i].code);
            assert_non_null(strstr(first.text, rows[i].text));
        }
        end_impostor(w, &im);
        end(w);
    }
}
