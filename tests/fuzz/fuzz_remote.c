/*
 * What users write and what servers answer, of remote storage: URLs, headers, pages of lists,
 * errors, files of keys, and keys that are issued. Whatever the bytes are: they are refused with an
 * error in words, or what comes out is what the header promises; and what is sent is one line of
 * printable ASCII.
 *
 * Input: the first byte says how the rest is read; of pages a line of headers, and of files the
 * first file, ends at the first 0xFF.
 */
#include "tests/fuzz/fuzz.h"

#include "daemon/remote/issuer.h"
#include "daemon/remote/listing.h"
#include "daemon/remote/request.h"
#include "daemon/remote/text.h"

#include <errno.h>

/* The variables that the rest of an input has: NAME=VALUE, each with a NUL behind. */
struct environment {
    const char *text;
    size_t len;
};

static const char *get_of_text(const char *name, void *of)
{
    const struct environment *env = of;
    size_t n = strlen(name);

    for (size_t at = 0; at < env->len; at += strlen(env->text + at) + 1)
        if (strncmp(env->text + at, name, n) == 0 && env->text[at + n] == '=')
            return env->text + at + n + 1;
    return NULL;
}

static const char *get_of_case(const char *name, void *of)
{
    const unsigned *bits = of;

    if (strcmp(name, "AWS_ENDPOINT_URL") == 0)
        return *bits & 1 ? "http://h:9000/s3" : NULL;
    if (strcmp(name, "AWS_REGION") == 0)
        return *bits & 2 ? "cn-north-1" : NULL;
    return strcmp(name, "HF_TOKEN") == 0 ? "hf_token" : NULL;
}

static char *text_of(const uint8_t *data, size_t len)
{
    char *text = malloc(len + 1);

    FUZZ_ASSERT(text);
    if (len > 0)
        memcpy(text, data, len);
    text[len] = '\0';
    return text;
}

static void check_line(const char *line)
{
    for (; *line; line++)
        FUZZ_ASSERT((uint8_t)*line >= 0x20 && (uint8_t)*line < 0x7F);
}

/* A hash that is none, so that what is signed need not be. */
static unsigned char *no_sha256(const unsigned char *data, size_t len, unsigned char *ret)
{
    memset(ret, 7, 32);
    return ret;
}

static unsigned char *no_hmac(const void *type, const void *key, int key_len,
                              const unsigned char *data, size_t len, unsigned char *ret,
                              unsigned *ret_len)
{
    memset(ret, 9, 32);
    *ret_len = 32;
    return ret;
}

static const void *no_type(void)
{
    return NULL;
}

/* Decoded, the path of the URL is the base and the key again. */
static void check_s3(const struct remote_place *place, const char *url)
{
    char *path = strdup(url + strlen(place->origin)), *whole = NULL;
    struct text text = {0};
    size_t n = strlen(path);

    FUZZ_ASSERT(!strchr(path, '?'));
    FUZZ_ASSERT(text_decode(path, &n, false));
    path[n] = '\0';
    text_add(&text, place->base);
    text_add(&text, place->key);
    whole = text_take(&text);
    FUZZ_ASSERT(whole && strcmp(path, whole) == 0);
    free(whole);
    free(path);
}

static void check_request(const struct remote_place *place, struct remote_request *request, int r)
{
    if (r < 0) {
        FUZZ_ASSERT(!request->url && request->n_headers == 0);
        return;
    }
    FUZZ_ASSERT(request->n_own <= request->n_headers && request->n_headers <= REMOTE_HEADERS_MAX);
    FUZZ_ASSERT(strncmp(request->url, place->origin, strlen(place->origin)) == 0);
    FUZZ_ASSERT(request->url[strlen(place->origin)] == '/');
    FUZZ_ASSERT(!strpbrk(request->url, " #\"<>\\"));
    check_line(request->url);
    for (uint32_t i = 0; i < request->n_headers; i++)
        check_line(request->headers[i]);
    for (uint32_t i = request->n_own; i < request->n_headers; i++)
        FUZZ_ASSERT(strncmp(request->headers[i], "Range: ", 7) == 0);
}

static void read_url(const char *url, unsigned bits)
{
    static char key[] = "K", secret[] = "S", token[] = "T";
    static const struct sigv4_crypto crypto = {no_sha256, no_hmac, no_type};
    const struct remote_credentials keys = {key, secret, bits & 4 ? token : NULL};
    const struct remote_page page = {.next = bits & 8 ? url : NULL, .is_deep = bits & 16};
    struct remote_settings settings;
    struct remote_place place;
    struct remote_request request;
    struct dl_error err = {0};

    FUZZ_ASSERT(remote_settings_from(get_of_case, &bits, NULL, &settings, NULL) == 0);
    const struct remote_asker asker = {&settings, bits & 32 ? &keys : NULL, &crypto, 1};
    int r = remote_place_parse(url, &settings, &place, &err);
    if (r < 0) {
        FUZZ_ASSERT(err.code == -r && *err.message && !place.url);
    } else {
        FUZZ_ASSERT(remote_is_url(url) && strcmp(place.url, url) == 0);
        FUZZ_ASSERT(*remote_place_host(&place) && !strpbrk(remote_place_host(&place), "/@?# "));
        FUZZ_ASSERT(place.base[0] == '/' && place.base[strlen(place.base) - 1] == '/');
        r = remote_request_bytes(&place, &asker, 1, bits & 64 ? 9 : UINT64_MAX, NULL, &request,
                                 &err);
        check_request(&place, &request, r);
        if (r == 0 && place.kind == REMOTE_S3)
            check_s3(&place, request.url);
        remote_request_deinit(&request);
        check_request(&place, &request, remote_request_list(&place, &asker, &page, &request, &err));
        remote_request_deinit(&request);
    }
    remote_place_deinit(&place);
    remote_settings_deinit(&settings);
}

/* Lines of headers; what they say of bytes is what was asked for, or an error. */
static void read_headers(const uint8_t *data, size_t len, struct remote_headers *ret)
{
    remote_headers_init(ret);
    while (len > 0) {
        const uint8_t *end = memchr(data, '\n', len);
        size_t n = end ? (size_t)(end - data) + 1 : len;

        if (remote_headers_line(ret, (const char *)data, n, 1700000000) < 0)
            return;
        data += n;
        len -= n;
    }
    FUZZ_ASSERT(ret->first == REMOTE_UNKNOWN || ret->first <= ret->last);
    FUZZ_ASSERT(ret->first == REMOTE_UNKNOWN || ret->last < ret->total);
    FUZZ_ASSERT(strlen(ret->etag) < REMOTE_ETAG_MAX && strlen(ret->cursor) < REMOTE_CURSOR_MAX);
    FUZZ_ASSERT(ret->retry_after >= -1 && ret->modified >= -1);
    FUZZ_ASSERT(text_is_plain(ret->etag));
}

static void check_headers(const struct remote_place *place, const struct remote_headers *headers,
                          struct dl_span body)
{
    const struct remote_range asked = {3, 11, REMOTE_UNKNOWN, "\"e\""};
    struct dl_error err = {0};
    uint64_t n = 0;
    int r = remote_bytes_check(place, headers, &asked, &n, &err);

    FUZZ_ASSERT(r == 0 ? n >= 1 && n <= 9 : err.code == -r && *err.message);
    r = remote_refusal(place, headers, body, true, &err);
    FUZZ_ASSERT(r < 0 && err.code == -r && *err.message);
}

static void read_page(const char *url, const uint8_t *data, size_t len)
{
    const uint8_t *end = len > 0 ? memchr(data, 0xFF, len) : NULL;
    size_t n = end ? (size_t)(end - data) : 0;
    struct dl_span body =
        end ? (struct dl_span){end + 1, len - n - 1} : (struct dl_span){data, len};
    unsigned bits = 0;
    struct remote_headers headers;
    struct remote_settings settings;
    struct remote_listing page;
    struct remote_place place;
    struct dl_error err = {0};

    FUZZ_ASSERT(remote_settings_from(get_of_case, &bits, NULL, &settings, NULL) == 0);
    FUZZ_ASSERT(remote_place_parse(url, &settings, &place, NULL) == 0);
    read_headers(data, n, &headers);
    check_headers(&place, &headers, body);
    int r = remote_listing_read(&place, body, &headers, &page, &err);
    FUZZ_ASSERT(r == 0 || (err.code == -r && *err.message && !page.entries && !page.next));
    for (uint32_t i = 0; i < page.n; i++) {
        const struct remote_entry *entry = &page.entries[i];

        FUZZ_ASSERT(entry->name && (entry->is_directory || *entry->name));
        FUZZ_ASSERT(entry->size <= INT64_MAX && entry->modified >= -1);
        FUZZ_ASSERT(!entry->etag || text_is_plain(entry->etag));
    }
    FUZZ_ASSERT(!page.next || *page.next);
    remote_listing_deinit(&page);
    remote_place_deinit(&place);
    remote_settings_deinit(&settings);
}

static void read_keys(const uint8_t *data, size_t len, unsigned bits)
{
    const uint8_t *end = len > 0 ? memchr(data, 0xFF, len) : NULL;
    size_t n = end ? (size_t)(end - data) : len;
    struct environment env = {"AWS_PROFILE=p", bits & 1 ? sizeof "AWS_PROFILE=p" : 0};
    struct dl_span rest = {data + n + (end != NULL), len - n - (end != NULL)};
    struct remote_profile profile;
    struct remote_settings settings;
    struct dl_error err = {0};
    int r = remote_profile_from(get_of_text, &env, (struct dl_span){data, n}, rest, &profile, &err);

    FUZZ_ASSERT(r == 0 || (err.code == -r && *err.message));
    FUZZ_ASSERT(!profile.credentials.access_key == !profile.credentials.secret_key);
    FUZZ_ASSERT(r == 0 || (!profile.credentials.secret_key && !profile.region));
    if (r == 0 && remote_settings_from(get_of_text, &env, &profile, &settings, &err) == 0) {
        check_line(settings.region);
        if (settings.endpoint)
            check_line(settings.endpoint);
        remote_settings_deinit(&settings);
    }
    remote_profile_deinit(&profile);
}

static void read_variables(const uint8_t *data, size_t len)
{
    char *text = text_of(data, len);
    struct environment env = {text, len};
    struct remote_settings settings;
    struct dl_error err = {0};

    if (remote_settings_from(get_of_text, &env, NULL, &settings, &err) == 0)
        remote_settings_deinit(&settings);
    else
        FUZZ_ASSERT(*err.message && !settings.region);
    free(text);
}

/* A service's answer with keys: whole, or none. */
static void read_issued(const uint8_t *data, size_t len, unsigned bits)
{
    const struct remote_issuer issuer = {.kind = ISSUER_WEB_IDENTITY + bits % 3,
                                         .url = (char *)"http://h"};
    struct dl_span body = {data, len};
    struct remote_issued issued;
    struct dl_error err = {0};
    char *line;
    int r = remote_issuer_take(&issuer, bits & 8 ? 403 : 200, body, &issued, &err);
    const struct remote_credentials *keys = &issued.credentials;

    FUZZ_ASSERT(r == 0 || (err.code == -r && *err.message));
    FUZZ_ASSERT(r < 0 || (remote_credentials_are_there(keys) && !(bits & 8) && issued.until >= 0));
    FUZZ_ASSERT((r == 0) == (keys->access_key != NULL));
    FUZZ_ASSERT(r < 0 || (text_is_plain(keys->access_key) && text_is_plain(keys->secret_key)));
    FUZZ_ASSERT(!keys->session_token || text_is_plain(keys->session_token));
    remote_credentials_deinit(&issued.credentials);
    if (remote_issuer_line(body, &line, &err) == 0) {
        FUZZ_ASSERT(*line && text_is_plain(line));
        free(line);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 2)
        return 0;
    char *text = text_of(data + 2, len - 2);
    switch (data[0] % 7) {
    case 0:
        read_url(text, data[1]);
        break;
    case 1:
        read_page("s3://bucket/d/x", data + 2, len - 2);
        break;
    case 2:
        read_page("hf://datasets/o/n/d/x", data + 2, len - 2);
        break;
    case 3:
        read_page("https://h/a", data + 2, len - 2);
        break;
    case 4:
        read_keys(data + 2, len - 2, data[1]);
        break;
    case 5:
        read_variables(data + 2, len - 2);
        break;
    default:
        read_issued(data + 2, len - 2, data[1]);
    }
    free(text);
    return 0;
}
