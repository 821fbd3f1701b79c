#include "daemon/remote/place.h"

#include "daemon/remote/text.h"
#include "daemon/remote/url.h"

#include <ctype.h>
#include <errno.h>

static const struct {
    const char *scheme;
    enum remote_kind kind;
} place_schemes[] = {
    {"s3://", REMOTE_S3},     {"gs://", REMOTE_S3}, {"https://", REMOTE_HTTP},
    {"http://", REMOTE_HTTP}, {"hf://", REMOTE_HF},
};

/* The row; -1: it is no URL. */
static int place_scheme(const char *path)
{
    for (size_t i = 0; i < ARRAY_SIZE(place_schemes); i++)
        if (strncmp(path, place_schemes[i].scheme, strlen(place_schemes[i].scheme)) == 0)
            return (int)i;
    return -1;
}

void remote_place_deinit(struct remote_place *place)
{
    char **texts[] = {&place->url,    &place->origin, &place->base, &place->key,     &place->query,
                      &place->region, &place->repo,   &place->api,  &place->revision};

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        free(*texts[i]);
    *place = (struct remote_place){0};
}

const char *remote_place_host(const struct remote_place *place)
{
    return strstr(place->origin, "://") + 3;
}

/* Endpoints are as settings.c leaves them: an origin and a path without a slash at its end. */
static void place_at_endpoint(struct remote_place *place, const char *endpoint, struct text *base,
                              bool *is_lost)
{
    const char *host = strstr(endpoint, "://") + 3;
    struct text origin = {0};

    text_add_bytes(&origin, endpoint, (size_t)(host - endpoint) + strcspn(host, "/"));
    text_add(base, host + strcspn(host, "/"));
    place->origin = text_take(&origin);
    *is_lost |= !place->origin;
}

/* ---- s3 and gs ------------------------------------------------------------------------------ */

static const char *place_check_bucket(const char *bucket, size_t n)
{
    if (n == 0)
        return "it names no bucket; write s3://BUCKET/KEY";
    if (memchr(bucket, '@', n))
        return "its bucket has an @; keys stand in the environment or in ~/.aws/credentials, never "
               "in a URL";
    if (n > 5 && memcmp(bucket, "arn:", 4) == 0)
        return "names of access points (arn:…) are not read; write the access point's alias in the "
               "bucket's place";
    for (size_t i = 0; i < n; i++)
        if (!isalnum((uint8_t)bucket[i]) && !strchr("-._", bucket[i]))
            return "its bucket has a sign other than letters, digits and - . _";
    if (n > 255 || bucket[0] == '.')
        return "no bucket has such a name";
    return NULL;
}

/* A name of DNS without dots, for which the server's certificate holds. */
static bool place_can_be_host(const char *bucket, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!islower((uint8_t)bucket[i]) && !isdigit((uint8_t)bucket[i]) && bucket[i] != '-')
            return false;
    return n >= 3 && n <= 63 && bucket[0] != '-' && bucket[n - 1] != '-';
}

static void place_at_aws(struct remote_place *place, const char *bucket, size_t n,
                         struct text *base, bool *is_lost)
{
    const char *region = place->region ? place->region : "";
    const char *domain = strncmp(region, "cn-", 3) == 0 ? "amazonaws.com.cn" : "amazonaws.com";
    struct text origin = {0};

    text_add(&origin, "https://");
    if (place_can_be_host(bucket, n)) {
        text_add_bytes(&origin, bucket, n);
        text_add(&origin, ".");
    } else {
        text_add(base, "/");
        text_add_bytes(base, bucket, n);
    }
    text_print(&origin, "s3.%s.%s", region, domain);
    place->origin = text_take(&origin);
    *is_lost |= !place->origin;
}

static const char *place_parse_s3(const char *rest, const struct remote_settings *settings,
                                  bool is_google, struct remote_place *place, bool *is_lost)
{
    size_t n = strcspn(rest, "/");
    const char *endpoint = is_google ? settings->gs_endpoint : settings->endpoint;
    const char *wrong = place_check_bucket(rest, n);
    struct text base = {0};

    if (wrong)
        return wrong;
    place->region = text_copy(is_google ? "auto" : settings->region, is_lost);
    if (endpoint) {
        place_at_endpoint(place, endpoint, &base, is_lost);
        text_add(&base, "/");
        text_add_bytes(&base, rest, n);
    } else {
        place_at_aws(place, rest, n, &base, is_lost);
    }
    text_add(&base, "/");
    place->base = text_take(&base);
    place->key = text_copy(rest[n] ? rest + n + 1 : "", is_lost);
    *is_lost |= !place->base;
    return NULL;
}

/* ---- http ----------------------------------------------------------------------------------- */

/* Whether a part of the path is "." or "..", where `decoded` with %2e for a dot. */
static bool place_has_dots(const char *path, bool decoded)
{
    while (*path) {
        size_t n = strcspn(path, "/"), dots = 0, at = 0;

        for (; at < n; dots++) {
            if (path[at] == '.')
                at++;
            else if (decoded && at + 3 <= n && strncasecmp(path + at, "%2e", 3) == 0)
                at += 3;
            else
                break;
        }
        if (n > 0 && at == n && dots <= 2)
            return true;
        path += n + (path[n] == '/');
    }
    return false;
}

static const char PLACE_DOTS[] = "its path has a part . or .., which servers read in different "
                                 "ways; write the path without it";

static const char *place_parse_http(const char *url, struct remote_place *place, bool *is_lost)
{
    struct url_parts parts = {0};
    const char *wrong = url_split(url, &parts);
    struct text key = {0}, query = {0};

    if (wrong) {
        *is_lost |= !*wrong;
        return wrong;
    }
    place->origin = parts.origin;
    if (strchr(parts.rest, '#'))
        return "it has a #, behind which no server sees anything; write %23 where it is a part of "
               "the name";
    size_t n = strcspn(parts.rest, "?");
    const char *path = parts.rest + (n > 0);
    text_encode_lenient(&key, path, n > 0 ? n - 1 : 0);
    if (parts.rest[n])
        text_encode_lenient(&query, parts.rest + n + 1, strlen(parts.rest + n + 1));
    place->base = text_copy("/", is_lost);
    place->key = text_take(&key);
    if (parts.rest[n])
        place->query = text_take(&query);
    *is_lost |= !place->key || (parts.rest[n] && !place->query);
    return place->key && place_has_dots(place->key, true) ? PLACE_DOTS : NULL;
}

/* ---- hf ------------------------------------------------------------------------------------- */

static const char PLACE_HF[] = "a file of the Hub is hf://datasets/OWNER/NAME/PATH, with "
                               "@REVISION behind NAME for another than main";

/* Bytes of a part of a repository's name: up to "/" or "@". */
static size_t place_name(const char *at)
{
    size_t n = 0;

    while (isalnum((uint8_t)at[n]) || (at[n] && strchr("-._", at[n])))
        n++;
    return at[0] == '.' ? 0 : n;
}

/* Behind "@": up to the slash of the path, but refs/convert/NAME and refs/pr/NUMBER are whole. */
static size_t place_revision(const char *at)
{
    size_t parts = strncmp(at, "refs/convert/", 13) == 0 || strncmp(at, "refs/pr/", 8) == 0 ? 3 : 1;
    size_t n = 0;

    for (; parts > 0; parts--)
        n += strcspn(at + n, "/") + (parts > 1);
    return n;
}

static const char *place_take_revision(const char *at, size_t n, struct remote_place *place,
                                       bool *is_lost)
{
    struct dl_span span = {(const uint8_t *)at, n};
    char *text = place->revision = span_dup(span);

    *is_lost |= !text;
    if (!text)
        return NULL;
    if (!text_decode(text, &n, false) || n == 0)
        return "the revision behind @ is empty, or has a % that begins no %XX";
    text[n] = '\0';
    return text_is_plain(text) && !place_has_dots(text, false)
               ? NULL
               : "the revision behind @ has a control character, or a part . or ..";
}

static const char *place_parse_hf(const char *rest, const struct remote_settings *settings,
                                  struct remote_place *place, bool *is_lost)
{
    static const char *const types[] = {"datasets/", "spaces/", "models/"};
    const char *type = "models/", *wrong = NULL;
    struct text repo = {0}, api = {0}, base = {0};

    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        if (strncmp(rest, types[i], strlen(types[i])) == 0) {
            type = types[i];
            rest += strlen(types[i]);
            break;
        }
    }
    size_t owner = place_name(rest);
    size_t name = owner > 0 && rest[owner] == '/' ? place_name(rest + owner + 1) : 0;
    const char *end = rest + owner + 1 + name;
    if (name == 0 || (*end && *end != '/' && *end != '@'))
        return PLACE_HF;

    text_add(&api, type);
    text_add_bytes(&api, rest, (size_t)(end - rest));
    text_add(&repo, type[0] == 'm' ? "" : type);
    text_add_bytes(&repo, rest, (size_t)(end - rest));
    place_at_endpoint(place, settings->hf_endpoint, &base, is_lost);
    text_add(&base, "/");
    place->api = text_take(&api);
    place->repo = text_take(&repo);
    place->base = text_take(&base);
    *is_lost |= !place->api || !place->repo || !place->base;
    if (*end == '@') {
        size_t n = place_revision(end + 1);

        wrong = place_take_revision(end + 1, n, place, is_lost);
        end += 1 + n;
    } else {
        place->revision = text_copy("main", is_lost);
    }
    place->key = text_copy(*end ? end + 1 : "", is_lost);
    if (!wrong && place->key && place_has_dots(place->key, false))
        return PLACE_DOTS;
    return wrong;
}

/* ---- all ------------------------------------------------------------------------------------ */

int remote_place_parse(const char *url, const struct remote_settings *settings,
                       struct remote_place *ret, struct dl_error *err)
{
    int scheme = place_scheme(url);
    bool is_lost = false;
    const char *wrong = NULL;

    *ret = (struct remote_place){0};
    if (scheme < 0)
        return dl_error_set(err, EINVAL, url,
                            "it is no URL that is read: these begin with s3://, gs://, https://, "
                            "http:// or hf://");
    const char *rest = url + strlen(place_schemes[scheme].scheme);
    ret->kind = place_schemes[scheme].kind;
    if (strlen(url) > REMOTE_URL_MAX)
        wrong = "it is longer than 8192 bytes";
    else if (ret->kind == REMOTE_S3)
        wrong = place_parse_s3(rest, settings, url[0] == 'g', ret, &is_lost);
    else if (ret->kind == REMOTE_HTTP)
        wrong = place_parse_http(url, ret, &is_lost);
    else
        wrong = place_parse_hf(rest, settings, ret, &is_lost);
    ret->url = text_copy(url, &is_lost);
    if (!wrong && !is_lost)
        return 0;
    int r = is_lost ? dl_error_set(err, ENOMEM, url, "out of memory")
                    : dl_error_set(err, EINVAL, url, "%s", wrong);
    remote_place_deinit(ret);
    return r;
}
