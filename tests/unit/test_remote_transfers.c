/* Which requests are sent, and when: with an http.h and a keys.h of the test's own, whose calls end
 * when it says so. */
#include "tests/lib/uv_threads.h"

#include "daemon/cluster/store/http.h"
#include "daemon/fetcher/depth.h"
#include "daemon/fetcher/hedge.h"
#include "daemon/fetcher/keys.h"
#include "daemon/fetcher/transfers.h"
#include "tests/unit/remote_case.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <utlist.h>

enum { AT_ONCE = DEPTH_REQUESTS };

/* ---- what is sent --------------------------------------------------------------------------- */

struct http_call {
    struct http_request request;
    char *url;     /* owned, both */
    char *headers; /* "Name: value|…" */
    struct http_call *prev, *next;
};

static struct http_call *calls;

int http_new(const struct http_options *options, struct http **ret, struct dl_error *err)
{
    (void)options, (void)err;
    *ret = (struct http *)&calls; /* any */
    return 0;
}

struct http *http_free(struct http *http)
{
    (void)http;
    return NULL;
}

int http_send(struct http *http, const struct http_request *request, struct http_call **ret)
{
    struct http_call *call = calloc(1, sizeof *call);

    (void)http;
    call->request = *request;
    call->url = strdup(request->url);
    call->headers = calloc(1, 1024);
    for (uint32_t i = 0; i < request->n_headers; i++)
        sprintf(call->headers + strlen(call->headers), "%s|", request->headers[i]);
    DL_APPEND(calls, call);
    *ret = call;
    return 0;
}

struct http_call *http_cancel(struct http_call *call)
{
    if (call) {
        DL_DELETE(calls, call);
        free(call->url);
        free(call->headers);
        free(call);
    }
    return NULL;
}

int keys_new(const struct keys_options *options, struct keys **ret, struct dl_error *err)
{
    (void)options, (void)err;
    *ret = NULL;
    return 0;
}

struct keys *keys_free(struct keys *keys)
{
    return keys;
}

int keys_check(const struct keys *keys, struct dl_error *err)
{
    (void)keys, (void)err;
    return 0;
}

static struct remote_settings settings;

const struct remote_settings *keys_settings(const struct keys *keys)
{
    (void)keys;
    return &settings;
}

const char *keys_identity_file(const struct keys *keys)
{
    (void)keys;
    return NULL;
}

int keys_take(struct keys *keys, bool is_google, const struct remote_credentials **ret,
              struct dl_error *err)
{
    (void)keys, (void)is_google, (void)ret, (void)err;
    return 0;
}

uint64_t keys_number(const struct keys *keys)
{
    (void)keys;
    return 0;
}

bool keys_renew(struct keys *keys, uint64_t number)
{
    (void)keys, (void)number;
    return false;
}

bool keys_look(struct keys *keys)
{
    (void)keys;
    return false;
}

/* ---- a case --------------------------------------------------------------------------------- */

struct sim {
    uv_loop_t loop;
    struct remote_tally tally;
    struct transfers *transfers;
    struct remote_place a, b; /* of two hosts */
    struct transfer *begun[2 * AT_ONCE];
    size_t n, done;
    char body[16]; /* of the answer that came last, and its code */
    int code;
};

static void run_loop(struct sim *sim)
{
    for (int i = 0; i < 3; i++)
        (void)uv_run(&sim->loop, UV_RUN_NOWAIT);
}

static void begin(struct sim *sim)
{
    static const char *const env[] = {NULL};
    struct dl_error err = {0};

    *sim = (struct sim){0};
    settings = settings_of(env);
    sim->a = place_of("http://a.example/x", &settings);
    sim->b = place_of("http://b.example/x", &settings);
    assert_int_equal(uv_loop_init(&sim->loop), 0);
    assert_int_equal(transfers_new(&sim->loop, &sim->tally, NULL, &sim->transfers, &err), 0);
}

static void end(struct sim *sim)
{
    for (size_t i = 0; i < sim->n; i++)
        transfer_cancel(sim->begun[i]);
    transfers_free(sim->transfers);
    run_loop(sim);
    assert_null(calls);
    assert_int_equal(uv_loop_close(&sim->loop), 0);
    remote_place_deinit(&sim->a);
    remote_place_deinit(&sim->b);
    remote_settings_deinit(&settings);
}

/* ---- asking and answering ------------------------------------------------------------------- */

struct asked {
    struct sim *sim;
    size_t i;
};

static struct asked asked[2 * AT_ONCE];

static void on_done(void *owner, const struct transfer_result *result)
{
    struct asked *of = owner;

    of->sim->code = result->code;
    if (result->code == 0)
        snprintf(of->sim->body, sizeof of->sim->body, "%.*s", (int)result->body.len,
                 (const char *)result->body.data);
    of->sim->begun[of->i] = NULL;
    of->sim->done++;
}

static void ask(struct sim *sim, const struct remote_place *place, size_t n)
{
    for (; n > 0; n--, sim->n++) {
        asked[sim->n] = (struct asked){sim, sim->n};
        sim->begun[sim->n] =
            transfers_begin(sim->transfers, &(struct transfer_order){.place = place,
                                                                     .last = 9,
                                                                     .total = 10,
                                                                     .etag = "",
                                                                     .unless = "",
                                                                     .done = on_done,
                                                                     .owner = &asked[sim->n]});
    }
    run_loop(sim);
}

static size_t under_way(const char *host)
{
    const struct http_call *call;
    size_t n = 0;

    DL_FOREACH (calls, call)
        n += strstr(call->url, host) != NULL;
    return n;
}

static void give_header(const struct http_request *request, const char *line)
{
    request->header(request->owner, (struct dl_span){(const uint8_t *)line, strlen(line)});
}

/* That request's; a body that breaks off is of an answer without a status, as http.h says. */
static void answer_by(struct http_call *call, int status, const char *headers, const char *etag,
                      const char *body, bool breaks_off)
{
    struct http_request request = call->request;
    char line[64];

    http_cancel(call);
    snprintf(line, sizeof line, "HTTP/1.1 %d x\r\n", status);
    give_header(&request, line);
    give_header(&request, headers);
    snprintf(line, sizeof line, "ETag: %s\r\n", etag);
    if (*etag)
        give_header(&request, line);
    request.done(request.owner,
                 &(struct http_answer){.status = breaks_off ? 0 : status,
                                       .why = "it broke off",
                                       .body = {(const uint8_t *)body, strlen(body)}});
}

/* The request that was sent first. */
static void answer(int status, const char *headers)
{
    answer_by(calls, status, headers, "", "0123456789", false);
}

static uint64_t told(const struct sim *sim, enum remote_count count)
{
    transfers_tell(sim->transfers);
    return remote_tally_read(&sim->tally, count);
}

/* ---- cases ---------------------------------------------------------------------------------- */

/* What waits for room goes when there is some: because another one is answered, or is cancelled. */
TEST(test_room)
{
    struct sim sim;

    begin(&sim);
    ask(&sim, &sim.a, AT_ONCE + 2);
    assert_int_equal(under_way("a."), AT_ONCE);
    answer(206, "Content-Range: bytes 0-9/10\r\n");
    assert_int_equal(sim.done, 1);
    assert_int_equal(under_way("a."), AT_ONCE);
    assert_int_equal(told(&sim, REMOTE_WAITING), 1);
    sim.begun[5] = transfer_cancel(sim.begun[5]);
    run_loop(&sim);
    assert_int_equal(under_way("a."), AT_ONCE);
    assert_int_equal(told(&sim, REMOTE_WAITING), 0);
    end(&sim);
}

/* A host that refuses is sent fewer; what others are sent is not. */
TEST(test_slowed)
{
    struct sim sim;

    begin(&sim);
    ask(&sim, &sim.a, 80);
    for (int i = 0; i < 80; i++)
        answer(503, "");
    assert_int_equal(told(&sim, REMOTE_THROTTLED), 80);
    assert_int_equal(told(&sim, REMOTE_SLOWED_HOSTS), 1);
    assert_int_equal(told(&sim, REMOTE_SLOWED_AT_ONCE), 40);
    assert_int_equal(told(&sim, REMOTE_HELD_BACK), 0);
    ask(&sim, &sim.a, 50);
    ask(&sim, &sim.b, 20);
    assert_int_equal(under_way("a."), 40);
    assert_int_equal(under_way("b."), 20);
    assert_true(told(&sim, REMOTE_HELD_BACK) >= 10); /* and some of the 80 by now */
    end(&sim);
}

/* A host that names a time is sent nothing before, whatever it is asked for; and no other one
 * waits. */
TEST(test_closed)
{
    struct sim sim;

    begin(&sim);
    ask(&sim, &sim.a, 1);
    answer(429, "Retry-After: 30\r\n");
    ask(&sim, &sim.a, 10);
    assert_int_equal(under_way("a."), 0);
    assert_int_equal(told(&sim, REMOTE_HELD_BACK), 10);
    assert_int_equal(told(&sim, REMOTE_SLOWED_HOSTS), 1);
    assert_int_equal(told(&sim, REMOTE_SLOWED_AT_ONCE), 0);
    ask(&sim, &sim.b, 10);
    assert_int_equal(under_way("b."), 10);
    end(&sim);
}

/* It is sent what waits when its time has come. */
TEST(test_opens)
{
    struct sim sim;

    begin(&sim);
    ask(&sim, &sim.a, 1);
    answer(503, "Retry-After: 1\r\n");
    ask(&sim, &sim.a, 10);
    assert_int_equal(under_way("a."), 0);
    while (under_way("a.") < 11) /* the deadline of the test ends it */
        (void)uv_run(&sim.loop, UV_RUN_ONCE);
    assert_int_equal(told(&sim, REMOTE_SLOWED_HOSTS), 0);
    end(&sim);
}

/* ---- a body that breaks off ------------------------------------------------------------------ */

enum { BREAKS_OFF = -1 };

/* An answer, and what is asked for after it: "": nothing more. */
struct part {
    int status; /* BREAKS_OFF: as 206 */
    const char *range, *etag, *body;
    const char *then_range, *then_match;
};

static bool is_asked(const char *name, const char *value)
{
    char line[64];

    snprintf(line, sizeof line, "%s: %s|", name, value);
    return *value ? strstr(calls->headers, line) != NULL : strstr(calls->headers, name) == NULL;
}

static void play_part(struct sim *sim, const struct part *part)
{
    char header[64];
    bool breaks_off = part->status == BREAKS_OFF;

    snprintf(header, sizeof header, "Content-Range: bytes %s/10\r\n", part->range);
    answer_by(calls, breaks_off ? 206 : part->status, *part->range ? header : "X: x\r\n",
              part->etag, part->body, breaks_off);
    if (!*part->then_range)
        return;
    while (!calls) /* the deadline of the test ends it */
        (void)uv_run(&sim->loop, UV_RUN_ONCE);
    assert_true(is_asked("Range", part->then_range));
    assert_true(is_asked("If-Match", part->then_match));
}

/* Only what is missing is asked for again, of the same object; all of it where that is not known,
 * or where there is another one by now. */
TEST(test_broken_off)
{
    static const struct {
        struct part parts[3];
        int code;
    } rows[] = {
        {{{BREAKS_OFF, "0-9", "\"e\"", "0123", "bytes=4-9", "\"e\""},
          {206, "4-9", "\"e\"", "456789", "", ""}},
         0},
        {{{BREAKS_OFF, "0-9", "\"e\"", "0123", "bytes=4-9", "\"e\""},
          {BREAKS_OFF, "4-9", "\"e\"", "456", "bytes=7-9", "\"e\""},
          {206, "7-9", "\"e\"", "789", "", ""}},
         0},
        /* Nothing of it came. */
        {{{BREAKS_OFF, "0-9", "\"e\"", "", "bytes=0-9", ""},
          {206, "0-9", "\"e\"", "0123456789", "", ""}},
         0},
        {{{BREAKS_OFF, "0-9", "\"e\"", "0123", "bytes=4-9", "\"e\""},
          {BREAKS_OFF, "", "", "", "bytes=4-9", "\"e\""},
          {206, "4-9", "\"e\"", "456789", "", ""}},
         0},
        /* Nobody says that the rest would be the same object's. */
        {{{BREAKS_OFF, "0-9", "", "abcd", "bytes=0-9", ""}, {206, "0-9", "", "0123456789", "", ""}},
         0},
        /* The server may not give ranges. */
        {{{BREAKS_OFF, "", "\"e\"", "abcd", "bytes=0-9", ""},
          {206, "0-9", "\"e\"", "0123456789", "", ""}},
         0},
        /* Other bytes than were asked for, or more. */
        {{{BREAKS_OFF, "1-9", "\"e\"", "abcd", "bytes=0-9", ""},
          {206, "0-9", "\"e\"", "0123456789", "", ""}},
         0},
        {{{BREAKS_OFF, "0-9", "\"e\"", "abcdefghijklm", "bytes=0-9", ""},
          {206, "0-9", "\"e\"", "0123456789", "", ""}},
         0},
        /* Another object. */
        {{{BREAKS_OFF, "0-9", "\"e\"", "abcd", "bytes=4-9", "\"e\""},
          {412, "", "", "", "bytes=0-9", ""},
          {206, "0-9", "\"f\"", "0123456789", "", ""}},
         0},
        {{{BREAKS_OFF, "0-9", "\"e\"", "abcd", "bytes=4-9", "\"e\""},
          {206, "4-9", "\"f\"", "efghij", "bytes=0-9", ""},
          {206, "0-9", "\"f\"", "0123456789", "", ""}},
         0},
        {{{BREAKS_OFF, "0-9", "\"e\"", "abcd", "bytes=4-9", "\"e\""},
          {404, "", "", "", "bytes=0-9", ""},
          {404, "", "", "", "", ""}},
         -ENOENT},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct sim sim;

        begin(&sim);
        ask(&sim, &sim.a, 1);
        for (size_t n = 0; n < 3 && rows[i].parts[n].status; n++) {
            assert_int_equal(sim.done, 0);
            play_part(&sim, &rows[i].parts[n]);
        }
        assert_int_equal(sim.done, 1);
        assert_int_equal(sim.code, rows[i].code);
        if (rows[i].code == 0)
            assert_string_equal(sim.body, "0123456789");
        end(&sim);
    }
}

/* Of two requests for the same, what the first one brought does not become part of what the second
 * one brings; if both break off, what is more is kept. */
TEST(test_broken_off_of_two)
{
    static const struct part first = {BREAKS_OFF, "0-9", "\"e\"", "abcd", "", ""};
    static const struct part seconds[] = {
        {206, "0-9", "\"f\"", "0123456789", "", ""},
        {BREAKS_OFF, "0-9", "\"f\"", "ABC", "bytes=4-9", "\"e\""},
        {BREAKS_OFF, "0-9", "\"f\"", "ABCDE", "bytes=5-9", "\"f\""},
    };
    static const char *const bodies[] = {"0123456789", "abcd456789", "ABCDE56789"};

    for (size_t i = 0; i < ARRAY_SIZE(seconds); i++) {
        struct sim sim;

        begin(&sim);
        ask(&sim, &sim.a, HEDGE_LEAST + 1);
        for (size_t n = 0; n < HEDGE_LEAST; n++)
            answer(206, "Content-Range: bytes 0-9/10\r\n");
        transfer_hurry(sim.begun[HEDGE_LEAST]);
        while (!calls->next) /* the deadline of the test ends it */
            (void)uv_run(&sim.loop, UV_RUN_ONCE);
        play_part(&sim, &first);
        play_part(&sim, &seconds[i]);
        if (calls)
            answer_by(calls, 206,
                      i == 1 ? "Content-Range: bytes 4-9/10\r\n"
                             : "Content-Range: bytes 5-9/10\r\n",
                      i == 1 ? "\"e\"" : "\"f\"", &"0123456789"[i + 3], false);
        assert_int_equal(sim.done, HEDGE_LEAST + 1);
        assert_string_equal(sim.body, bodies[i]);
        end(&sim);
    }
}
