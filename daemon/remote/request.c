#include "daemon/remote/request.h"

#include "daemon/remote/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

void remote_request_deinit(struct remote_request *request)
{
    for (uint32_t i = 0; i < request->n_headers; i++)
        text_wipe(&request->headers[i]);
    free(request->url);
    *request = (struct remote_request){0};
}

/* What all three have while they are made. */
struct making {
    const struct remote_place *place;
    const struct remote_asker *asker;
    const struct sigv4_pair *query; /* of s3 and gs, which sign it */
    uint32_t n_query;
    struct remote_request *to;
    bool is_lost;
};

/* "Name: value"; the value is never cut. */
static void making_add(struct making *making, const char *name, const char *value)
{
    struct remote_request *to = making->to;
    struct text text = {0};

    text_add(&text, name);
    text_add(&text, ": ");
    text_add(&text, value);
    char *line = text_take(&text);
    making->is_lost |= !line;
    if (line)
        to->headers[to->n_headers++] = line;
}

static void making_take_url(struct making *making, struct text *url)
{
    making->to->url = text_take(url);
    making->is_lost |= !making->to->url;
}

static int making_end(struct making *making, struct dl_error *err)
{
    if (!making->is_lost)
        return 0;
    remote_request_deinit(making->to);
    return dl_error_set(err, ENOMEM, making->place->url, "out of memory");
}

/* ---- s3 and gs ------------------------------------------------------------------------------ */

static bool making_is_signed(const struct making *making)
{
    return making->place->kind == REMOTE_S3 &&
           remote_credentials_are_there(making->asker->credentials);
}

static char *making_authorization(const struct making *making, const char *path, const char *time)
{
    const struct remote_asker *asker = making->asker;
    const struct remote_credentials *keys = asker->credentials;
    const struct sigv4_pair headers[] = {
        {"host", remote_place_host(making->place)},
        {"x-amz-content-sha256", SIGV4_EMPTY},
        {"x-amz-date", time},
        {"x-amz-security-token", keys->session_token},
    };
    const struct sigv4_request request = {
        .method = making->to->method,
        .path = path,
        .query = making->query,
        .n_query = making->n_query,
        .headers = headers,
        .n_headers = ARRAY_SIZE(headers) - !keys->session_token,
        .payload = SIGV4_EMPTY,
    };
    const struct sigv4_signer signer = {
        .crypto = asker->crypto,
        .access_key = keys->access_key,
        .secret_key = keys->secret_key,
        .region = making->place->region,
        .service = "s3",
        .now = asker->now,
    };

    return sigv4_authorization(&request, &signer);
}

static void making_sign(struct making *making, const char *key)
{
    const char *token = making->asker->credentials->session_token;
    char time[SIGV4_TIME_MAX];
    struct text path = {0};

    sigv4_time(making->asker->now, time);
    text_add(&path, making->place->base);
    text_add(&path, key);
    _cleanup_free_ char *whole = text_take(&path);
    char *value = whole ? making_authorization(making, whole, time) : NULL;
    making->is_lost |= !value;
    if (value)
        making_add(making, "Authorization", value);
    text_wipe(&value);
    making_add(making, "x-amz-content-sha256", SIGV4_EMPTY);
    making_add(making, "x-amz-date", time);
    if (token)
        making_add(making, "x-amz-security-token", token);
}

/* The URL of a key, the list being that of "", and the headers that sign it. */
static void making_s3(struct making *making, const char *key)
{
    struct text url = {0};

    text_add(&url, making->place->origin);
    text_add(&url, making->place->base);
    text_encode(&url, key, true);
    for (uint32_t i = 0; i < making->n_query; i++) {
        text_add(&url, i ? "&" : "?");
        text_encode(&url, making->query[i].name, false);
        text_add(&url, "=");
        text_encode(&url, making->query[i].value, false);
    }
    making_take_url(making, &url);
    if (making_is_signed(making))
        making_sign(making, key);
}

/* ---- http and hf ---------------------------------------------------------------------------- */

static void making_http(struct making *making)
{
    const struct remote_place *place = making->place;
    struct text url = {0};

    text_add(&url, place->origin);
    text_add(&url, place->base);
    text_add(&url, place->key);
    if (place->query) {
        text_add(&url, "?");
        text_add(&url, place->query);
    }
    making_take_url(making, &url);
}

/* …/resolve/REVISION/PATH of a file, …/tree/REVISION/PATH?… of a list. */
static void making_hf(struct making *making, const char *api, const char *repo, const char *verb,
                      const char *path, const char *query)
{
    const struct remote_place *place = making->place;
    const char *token = making->asker->settings->hf_token;
    struct text url = {0};

    text_add(&url, place->origin);
    text_add(&url, place->base);
    text_add(&url, api);
    text_add(&url, repo);
    text_add(&url, verb);
    text_encode(&url, place->revision, false);
    if (*path) {
        text_add(&url, "/");
        text_encode(&url, path, true);
    }
    text_add(&url, query);
    making_take_url(making, &url);
    if (token) {
        char *value = NULL;
        struct text text = {0};

        text_add(&text, "Bearer ");
        text_add(&text, token);
        value = text_take(&text);
        making->is_lost |= !value;
        if (value)
            making_add(making, "Authorization", value);
        text_wipe(&value);
    }
}

/* ---- all ------------------------------------------------------------------------------------ */

static int making_check(const struct making *making, struct dl_error *err)
{
    if (making_is_signed(making) && !making->asker->crypto)
        return dl_error_set(err, ENOPKG, making->place->url, SIGV4_NO_CRYPTO);
    return 0;
}

static void making_object(struct making *making)
{
    const struct remote_place *place = making->place;

    if (place->kind == REMOTE_S3)
        making_s3(making, place->key);
    else if (place->kind == REMOTE_HTTP)
        making_http(making);
    else
        making_hf(making, "", place->repo, "/resolve/", place->key, "");
}

/* A key that is empty, or a folder of a repository, is none of an object. A key of s3 may end with
 * a slash, and http decides itself what it gives for one. */
static int place_check_object(const struct remote_place *place, struct dl_error *err)
{
    size_t n = strlen(place->key);

    if (place->kind == REMOTE_HTTP ||
        (n > 0 && (place->kind == REMOTE_S3 || place->key[n - 1] != '/')))
        return 0;
    return dl_error_set(err, EINVAL, place->url,
                        place->kind == REMOTE_S3
                            ? "it names a bucket, and no object in it; write its key behind it"
                            : "it names a folder of a repository, and no file; write its path "
                              "behind it");
}

int remote_request_bytes(const struct remote_place *place, const struct remote_asker *asker,
                         uint64_t first, uint64_t last, const char *etag,
                         struct remote_request *ret, struct dl_error *err)
{
    struct making making = {.place = place, .asker = asker, .to = ret};
    char range[64];

    *ret = (struct remote_request){.method = "GET"};
    int r = place_check_object(place, err);
    if (r == 0)
        r = making_check(&making, err);
    if (r == 0 && first > last)
        r = dl_error_set(err, EINVAL, place->url,
                         "bytes %" PRIu64 " to %" PRIu64 " are none: the last precedes the first",
                         first, last);
    if (r == 0 && etag && !text_is_plain(etag))
        r = dl_error_set(err, EINVAL, place->url, "its etag has a control character");
    if (r < 0)
        return r;
    making_object(&making);
    if (etag && *etag && strncmp(etag, "W/", 2) != 0 && place->kind != REMOTE_HF)
        making_add(&making, "If-Match", etag);
    ret->n_own = ret->n_headers;
    if (last != UINT64_MAX)
        (void)snprintf(range, sizeof range, "bytes=%" PRIu64 "-%" PRIu64, first, last);
    else
        (void)snprintf(range, sizeof range, "bytes=%" PRIu64 "-", first);
    if (first > 0 || last != UINT64_MAX)
        making_add(&making, "Range", range);
    return making_end(&making, err);
}

static void making_s3_list(struct making *making, const struct remote_page *page)
{
    struct sigv4_pair query[5];
    uint32_t n = 0;
    char most[16];

    /* In the order of a canonical query, in which a URL may as well be sent. */
    if (page->next)
        query[n++] = (struct sigv4_pair){"continuation-token", page->next};
    if (!page->is_deep)
        query[n++] = (struct sigv4_pair){"delimiter", "/"};
    query[n++] = (struct sigv4_pair){"list-type", "2"};
    (void)snprintf(most, sizeof most, "%" PRIu32, page->most);
    if (page->most > 0)
        query[n++] = (struct sigv4_pair){"max-keys", most};
    if (*making->place->key)
        query[n++] = (struct sigv4_pair){"prefix", making->place->key};
    making->query = query;
    making->n_query = n;
    making_s3(making, "");
    making->query = NULL;
}

static void making_hf_list(struct making *making, const struct remote_page *page)
{
    const char *key = making->place->key, *slash = strrchr(key, '/');
    struct text query = {0};

    text_add(&query, page->is_deep ? "?recursive=true" : "?recursive=false");
    if (page->most > 0)
        text_print(&query, "&limit=%" PRIu32, page->most);
    if (page->next) {
        text_add(&query, "&cursor=");
        text_encode(&query, page->next, false);
    }
    _cleanup_free_ char *asked = text_take(&query);
    struct dl_span folder = {(const uint8_t *)key, slash ? (size_t)(slash - key) : 0};
    _cleanup_free_ char *path = span_dup(folder);
    making->is_lost |= !asked || !path;
    if (!making->is_lost)
        making_hf(making, "api/", making->place->api, "/tree/", path, asked);
}

int remote_request_list(const struct remote_place *place, const struct remote_asker *asker,
                        const struct remote_page *page, struct remote_request *ret,
                        struct dl_error *err)
{
    struct making making = {.place = place, .asker = asker, .to = ret};

    *ret = (struct remote_request){.method = "GET"};
    if (place->kind == REMOTE_HTTP)
        return dl_error_set(err, ENOTSUP, place->url,
                            "web servers have no lists of what they hold; name each file, as in "
                            "https://host/shard-{000..127}.tar");
    int r = making_check(&making, err);
    if (r < 0)
        return r;
    if (place->kind == REMOTE_S3)
        making_s3_list(&making, page);
    else
        making_hf_list(&making, page);
    ret->n_own = ret->n_headers;
    return making_end(&making, err);
}
