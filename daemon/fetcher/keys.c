#include "daemon/fetcher/keys.h"

#include "daemon/base/memory.h"
#include "daemon/cluster/store/http.h"
#include "daemon/remote/text.h"
#include "proto/common/clock.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

enum {
    KEYS_LEAD = 15 * 60,   /* so long before the end others are asked for, as AWS's tools do, */
    KEYS_LAST = 60,        /* and so long before it they are used no more; all in seconds */
    KEYS_AGAIN = 10,       /* after a failure, or after a server has refused new ones */
    KEYS_ABSENT = 60 * 60, /* that there is no metadata service does not change often */
    STS_MS = 30 * 1000,
    NEAR_MS = 5 * 1000,  /* services of this machine */
    FIRST_MS = 1 * 1000, /* to be there at all */
};

/* What environment and files say. */
struct said {
    int code; /* 0, or `err` says what is wrong */
    struct dl_error err;
    struct remote_profile profile;
    struct remote_settings settings;
    struct remote_issuer issuer;
};

struct keys {
    struct keys_options o;
    struct http *http; /* owned */
    struct said said;
    uint64_t number;
    /* Issued ones: */
    struct remote_issued issued;
    struct keys_times times;
    int64_t again; /* not before that; the last time failed: */
    int code;
    struct dl_error err;
    /* Being asked for: */
    struct http_call *call; /* owned; NULL: none is */
    enum remote_issuer_step step;
    char *secret, *role; /* owned */
};

/* ---- environment and files ------------------------------------------------------------------ */

static void said_deinit(struct said *said)
{
    remote_profile_deinit(&said->profile);
    remote_settings_deinit(&said->settings);
    remote_issuer_deinit(&said->issuer);
}

static void said_read(const struct keys_options *o, struct said *ret)
{
    *ret = (struct said){0};
    ret->code = remote_profile_read(o->get, NULL, &ret->profile, &ret->err);
    if (ret->code == 0)
        ret->code = remote_settings_from(o->get, NULL, &ret->profile, &ret->settings, &ret->err);
    if (ret->code == 0)
        ret->code = remote_token_read(o->get, NULL, &ret->settings, &ret->err);
    if (ret->code == 0)
        ret->code = remote_issuer_choose(o->get, NULL, &ret->profile, &ret->settings, &ret->issuer,
                                         &ret->err);
}

static bool keys_same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool said_same_settings(const struct said *a, const struct said *b)
{
    const struct remote_settings *x = &a->settings, *y = &b->settings;

    return a->code == b->code && keys_same(a->err.message, b->err.message) &&
           keys_same(x->endpoint, y->endpoint) && keys_same(x->region, y->region) &&
           keys_same(x->gs_endpoint, y->gs_endpoint) && keys_same(x->hf_endpoint, y->hf_endpoint) &&
           keys_same(x->hf_token, y->hf_token) &&
           keys_same(a->profile.identity_file, b->profile.identity_file);
}

static bool said_same_keys(const struct said *a, const struct said *b)
{
    const struct remote_credentials *x = &a->profile.credentials, *y = &b->profile.credentials;
    const struct remote_issuer *i = &a->issuer, *k = &b->issuer;

    return keys_same(x->access_key, y->access_key) && keys_same(x->secret_key, y->secret_key) &&
           keys_same(x->session_token, y->session_token) && i->kind == k->kind &&
           keys_same(i->url, k->url) && keys_same(i->role, k->role) &&
           keys_same(i->session, k->session);
}

bool keys_look(struct keys *keys)
{
    struct said said;

    said_read(&keys->o, &said);
    bool same = said_same_settings(&keys->said, &said);
    if (same && !said_same_keys(&keys->said, &said)) {
        struct said former = keys->said;

        keys->said = said;
        said = former;
        keys->number++;
        remote_credentials_deinit(&keys->issued.credentials);
        keys->issued = (struct remote_issued){0};
        keys->times = (struct keys_times){0};
        keys->again = 0;
        keys->call = http_cancel(keys->call);
    }
    said_deinit(&said);
    return !same;
}

/* ---- issued ones ---------------------------------------------------------------------------- */

struct keys_times keys_times_of(int64_t now, int64_t until, uint32_t chance)
{
    int64_t life = until > now ? until - now : 0;

    if (until == INT64_MAX)
        return (struct keys_times){INT64_MAX, INT64_MAX};
    /* Not all machines of a cluster at once. */
    int64_t lead = life / 2 < KEYS_LEAD ? life / 2 : KEYS_LEAD;
    int64_t last = life / 10 < KEYS_LAST ? life / 10 : KEYS_LAST;
    int64_t renew = until - lead + chance % (lead / 4 + 1);
    /* A service that gives old ones only is not asked all the time. */
    return (struct keys_times){.renew = life > 0 ? renew : now + 1,
                               .end = life > 0 ? until - last : now + 1};
}

static uint32_t keys_chance(void)
{
    uint32_t chance = 0;

    if (getrandom(&chance, sizeof chance, GRND_NONBLOCK) < 0)
        chance = (uint32_t)clock_ns();
    return chance;
}

static void keys_end_asking(struct keys *keys)
{
    text_wipe(&keys->secret);
    text_wipe(&keys->role);
    keys->o.changed(keys->o.owner);
}

static void keys_have(struct keys *keys, struct remote_issued *issued)
{
    remote_credentials_deinit(&keys->issued.credentials);
    keys->issued = *issued;
    keys->times = keys_times_of(time(NULL), issued->until, keys_chance());
    keys->code = 0;
    keys->number++;
    keys_end_asking(keys);
}

static void keys_fail(struct keys *keys, int code, const struct dl_error *err)
{
    keys->code = code;
    keys->err = *err;
    keys->again = time(NULL) + KEYS_AGAIN / 2 + keys_chance() % KEYS_AGAIN;
    keys_end_asking(keys);
}

static void keys_ask(struct keys *keys);

/* Where there is no metadata service, or it has no role for this machine: anonymous. */
static bool keys_are_absent(const struct keys *keys, int status)
{
    return keys->said.issuer.kind == ISSUER_INSTANCE &&
           ((keys->step == ISSUER_SESSION && status != 200) ||
            (keys->step == ISSUER_ROLE && status == 404));
}

static void keys_on_answer(void *owner, const struct http_answer *answer)
{
    struct keys *keys = owner;
    const struct remote_issuer *issuer = &keys->said.issuer;
    struct remote_issued issued = {.until = time(NULL) + KEYS_ABSENT};
    struct dl_error err = {0};
    int r = 0;

    keys->call = NULL;
    if (keys_are_absent(keys, answer->status)) {
        keys_have(keys, &issued);
        return;
    }
    if (answer->status == 0)
        r = dl_error_set(&err, EIO, issuer->url, "there are no keys, as %s cannot be asked: %s",
                         issuer->url, answer->why);
    else if (keys->step == ISSUER_KEYS || answer->status != 200)
        r = remote_issuer_take(issuer, answer->status, answer->body, &issued, &err);
    else
        r = remote_issuer_line(answer->body,
                               keys->step == ISSUER_SESSION ? &keys->secret : &keys->role, &err);
    if (r < 0) {
        keys_fail(keys, r, &err);
    } else if (keys->step == ISSUER_KEYS) {
        keys_have(keys, &issued);
    } else {
        keys->step++;
        keys_ask(keys);
    }
}

static int keys_send(struct keys *keys, struct dl_error *err)
{
    const struct remote_issuer *issuer = &keys->said.issuer;
    struct remote_issuer_request request = {0};
    uint64_t ms = issuer->kind == ISSUER_WEB_IDENTITY ? STS_MS
                  : keys->step == ISSUER_SESSION      ? FIRST_MS
                                                      : NEAR_MS;
    int r = remote_issuer_ask(issuer, keys->step, keys->secret ? keys->secret : issuer->token,
                              keys->role, &request, err);

    if (r < 0)
        return r;
    const struct http_request http = {.url = request.url,
                                      .method = request.method,
                                      .body = request.body,
                                      .type = "application/x-www-form-urlencoded",
                                      .headers = request.headers,
                                      .n_headers = request.n_headers,
                                      .timeout_ns = ms * 1000000,
                                      .done = keys_on_answer,
                                      .owner = keys};
    r = http_send(keys->http, &http, &keys->call);
    remote_issuer_request_deinit(&request);
    return r < 0 ? dl_error_set(err, -r, issuer->url, "libcurl cannot ask %s for keys", issuer->url)
                 : 0;
}

static void keys_ask(struct keys *keys)
{
    struct dl_error err = {0};
    int r = keys_send(keys, &err);

    if (r < 0)
        keys_fail(keys, r, &err);
}

/* Not from keys_ask(), which calls `changed`. */
static int keys_begin(struct keys *keys)
{
    const struct remote_issuer *issuer = &keys->said.issuer;
    int r = 0;

    keys->step = issuer->kind == ISSUER_INSTANCE ? ISSUER_SESSION : ISSUER_KEYS;
    if (issuer->token_file)
        r = remote_secret_read(issuer->token_file, &keys->secret, &keys->err);
    if (r == 0)
        r = keys_send(keys, &keys->err);
    if (r == 0)
        return 0;
    text_wipe(&keys->secret);
    keys->code = r;
    keys->again = time(NULL) + KEYS_AGAIN;
    return r;
}

static const struct remote_credentials keys_anonymous;

int keys_take(struct keys *keys, bool is_google, const struct remote_credentials **ret,
              struct dl_error *err)
{
    bool is_issued = keys->said.issuer.kind != ISSUER_NONE;
    int64_t now = time(NULL);

    *ret = is_issued ? &keys->issued.credentials : &keys->said.profile.credentials;
    if (is_google && is_issued) /* AWS's keys are nothing to Google */
        *ret = &keys_anonymous;
    if (!is_issued || is_google)
        return 0;
    bool serves = now < keys->times.end;
    bool wanted = now >= keys->times.renew && now >= keys->again && !keys->call;
    if (wanted && keys_begin(keys) == 0 && !serves)
        return 1;
    if (serves)
        return 0;
    if (keys->call)
        return 1;
    *err = keys->err;
    return keys->code;
}

uint64_t keys_number(const struct keys *keys)
{
    return keys->number;
}

bool keys_renew(struct keys *keys, uint64_t number)
{
    int64_t now = time(NULL);

    if (number != keys->number)
        return true;
    if (keys->said.issuer.kind == ISSUER_NONE) {
        (void)keys_look(keys);
        return number != keys->number;
    }
    if (keys->call)
        return true;
    if (now < keys->again || !remote_credentials_are_there(&keys->issued.credentials))
        return false;
    keys->times = (struct keys_times){0};
    return keys_begin(keys) == 0;
}

/* ---- the whole ------------------------------------------------------------------------------ */

int keys_check(const struct keys *keys, struct dl_error *err)
{
    if (keys->said.code < 0 && err)
        *err = keys->said.err;
    return keys->said.code;
}

const struct remote_settings *keys_settings(const struct keys *keys)
{
    return &keys->said.settings;
}

const char *keys_identity_file(const struct keys *keys)
{
    return keys->said.profile.identity_file;
}

int keys_new(const struct keys_options *options, struct keys **ret, struct dl_error *err)
{
    const struct http_options http = {
        .loop = options->loop, .owner = "remote files", .ca = options->ca};
    struct keys *keys = must_alloc(sizeof *keys);
    int r = http_new(&http, &keys->http, err);

    keys->o = *options;
    if (r < 0) {
        free(keys);
        return r;
    }
    said_read(options, &keys->said);
    *ret = keys;
    return 0;
}

struct keys *keys_free(struct keys *keys)
{
    if (!keys)
        return NULL;
    keys->call = http_cancel(keys->call);
    http_free(keys->http);
    text_wipe(&keys->secret);
    text_wipe(&keys->role);
    remote_credentials_deinit(&keys->issued.credentials);
    said_deinit(&keys->said);
    free(keys);
    return NULL;
}
