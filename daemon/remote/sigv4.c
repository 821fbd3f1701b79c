#include "daemon/remote/sigv4.h"

#include "daemon/remote/text.h"
#include "proto/common/library.h"

#include <ctype.h>
#include <time.h>

enum { SIGV4_HASH = 32 }; /* bytes */

#ifndef CRYPTO_FILES
#define CRYPTO_FILES "libcrypto.so.3", "libcrypto.so.1.1"
#endif

bool sigv4_crypto_find(struct sigv4_crypto *ret)
{
    static const char *const files[] = {CRYPTO_FILES, NULL};
    struct sigv4_crypto found = {0};
    const struct library_function functions[] = {
        {"SHA256", &found.sha256},
        {"HMAC", &found.hmac},
        {"EVP_sha256", &found.type_sha256},
    };

    if (!library_find(files, functions, ARRAY_SIZE(functions)))
        return false;
    *ret = found;
    return true;
}

void sigv4_time(int64_t now, char ret[SIGV4_TIME_MAX])
{
    time_t seconds = (time_t)now;
    struct tm tm = {0};

    (void)gmtime_r(&seconds, &tm);
    (void)strftime(ret, SIGV4_TIME_MAX, "%Y%m%dT%H%M%SZ", &tm);
}

/* ---- the canonical request ------------------------------------------------------------------ */

/* One line, or one parameter: compared by its name, and of equal names by `order`. */
struct sigv4_line {
    char *name, *value; /* owned; NULL: out of memory */
    uint32_t order;
};

static void sigv4_lines_free(struct sigv4_line *lines, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        text_wipe(&lines[i].name);
        text_wipe(&lines[i].value);
    }
}

static int sigv4_compare_headers(const void *a, const void *b)
{
    const struct sigv4_line *x = a, *y = b;
    int c = strcmp(x->name, y->name);

    return c ? c : x->order < y->order ? -1 : x->order > y->order;
}

static int sigv4_compare_query(const void *a, const void *b)
{
    const struct sigv4_line *x = a, *y = b;
    int c = strcmp(x->name, y->name);

    return c ? c : strcmp(x->value, y->value);
}

/* Without spaces around it, and with one where there are several in it. */
static char *sigv4_trim(const char *value)
{
    struct text text = {0};

    while (*value == ' ' || *value == '\t')
        value++;
    for (; *value; value++) {
        bool is_space = *value == ' ' || *value == '\t';

        if (!is_space)
            text_add_bytes(&text, value, 1);
        else if (value[1] && value[1] != ' ' && value[1] != '\t')
            text_add(&text, " ");
    }
    return text_take(&text);
}

static char *sigv4_encode(const char *bytes)
{
    struct text text = {0};

    text_encode(&text, bytes, false);
    return text_take(&text);
}

/* False: out of memory; what is there is freed. */
static bool sigv4_make_lines(const struct sigv4_pair *pairs, uint32_t n, bool are_headers,
                             struct sigv4_line *ret)
{
    bool is_lost = false;

    for (uint32_t i = 0; i < n; i++) {
        ret[i] = (struct sigv4_line){.order = i};
        ret[i].name =
            are_headers ? text_copy(pairs[i].name, &is_lost) : sigv4_encode(pairs[i].name);
        ret[i].value = are_headers ? sigv4_trim(pairs[i].value) : sigv4_encode(pairs[i].value);
        is_lost |= !ret[i].name || !ret[i].value;
        for (char *at = ret[i].name; are_headers && at && *at; at++)
            *at = (char)tolower((uint8_t)*at);
    }
    if (is_lost)
        sigv4_lines_free(ret, n);
    else
        qsort(ret, n, sizeof *ret, are_headers ? sigv4_compare_headers : sigv4_compare_query);
    return !is_lost;
}

static void sigv4_add_query(struct text *text, const struct sigv4_line *lines, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        text_add(text, i ? "&" : "");
        text_add(text, lines[i].name);
        text_add(text, "=");
        text_add(text, lines[i].value);
    }
}

/* Of several of one name the values stand in one line, in the order they are sent. */
static void sigv4_add_headers(struct text *text, const struct sigv4_line *lines, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        bool is_next = i > 0 && strcmp(lines[i].name, lines[i - 1].name) == 0;

        if (!is_next) {
            text_add(text, i ? "\n" : "");
            text_add(text, lines[i].name);
        }
        text_add(text, is_next ? "," : ":");
        text_add(text, lines[i].value);
    }
    text_add(text, "\n");
}

static void sigv4_add_names(struct text *text, const struct sigv4_line *lines, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && strcmp(lines[i].name, lines[i - 1].name) == 0)
            continue;
        text_add(text, i ? ";" : "");
        text_add(text, lines[i].name);
    }
}

/* With the names of the signed headers, if `names` is not NULL. */
static char *sigv4_write_canonical(const struct sigv4_request *request, struct text *names)
{
    struct sigv4_line query[SIGV4_PAIRS_MAX], headers[SIGV4_PAIRS_MAX];
    struct text text = {0};

    if (!sigv4_make_lines(request->query, request->n_query, false, query))
        return NULL;
    if (!sigv4_make_lines(request->headers, request->n_headers, true, headers)) {
        sigv4_lines_free(query, request->n_query);
        return NULL;
    }
    text_add(&text, request->method);
    text_add(&text, "\n");
    text_encode(&text, request->path, true);
    text_add(&text, "\n");
    sigv4_add_query(&text, query, request->n_query);
    text_add(&text, "\n");
    sigv4_add_headers(&text, headers, request->n_headers);
    text_add(&text, "\n");
    sigv4_add_names(&text, headers, request->n_headers);
    if (names)
        sigv4_add_names(names, headers, request->n_headers);
    text_add(&text, "\n");
    text_add(&text, request->payload);
    sigv4_lines_free(query, request->n_query);
    sigv4_lines_free(headers, request->n_headers);
    return text_take(&text);
}

char *sigv4_canonical(const struct sigv4_request *request)
{
    return sigv4_write_canonical(request, NULL);
}

/* ---- the signature -------------------------------------------------------------------------- */

static void sigv4_hex(const uint8_t *bytes, char ret[2 * SIGV4_HASH + 1])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < SIGV4_HASH; i++) {
        ret[2 * i] = digits[bytes[i] >> 4];
        ret[2 * i + 1] = digits[bytes[i] & 15];
    }
    ret[2 * SIGV4_HASH] = '\0';
}

static bool sigv4_hmac(const struct sigv4_crypto *crypto, const uint8_t *key, size_t key_len,
                       const char *text, uint8_t ret[SIGV4_HASH])
{
    uint8_t hash[SIGV4_HASH];
    unsigned n = 0;
    bool done = crypto->hmac(crypto->type_sha256(), key, (int)key_len, (const uint8_t *)text,
                             strlen(text), hash, &n) &&
                n == sizeof hash;

    if (done)
        memcpy(ret, hash, sizeof hash);
    explicit_bzero(hash, sizeof hash);
    return done;
}

/* The key of a day, a region and a service. */
static bool sigv4_key(const struct sigv4_signer *signer, const char *day, uint8_t ret[SIGV4_HASH])
{
    const char *const steps[] = {signer->region, signer->service, "aws4_request"};
    struct text secret = {0};

    text_add(&secret, "AWS4");
    text_add(&secret, signer->secret_key);
    bool done = !secret.is_lost &&
                sigv4_hmac(signer->crypto, secret.bytes.data, secret.bytes.len, day, ret);
    for (size_t i = 0; i < ARRAY_SIZE(steps) && done; i++)
        done = sigv4_hmac(signer->crypto, ret, SIGV4_HASH, steps[i], ret);
    text_deinit(&secret);
    return done;
}

/* In hexadecimal, of the text that is signed: the time, the scope and the request's hash. */
static bool sigv4_sign(const char *canonical, const struct sigv4_signer *signer, const char *time,
                       const char *scope, char ret[2 * SIGV4_HASH + 1])
{
    uint8_t hash[SIGV4_HASH], key[SIGV4_HASH];
    char hex[2 * SIGV4_HASH + 1], day[9];
    struct text text = {0};

    if (!signer->crypto->sha256((const uint8_t *)canonical, strlen(canonical), hash))
        return false;
    sigv4_hex(hash, hex);
    text_add(&text, "AWS4-HMAC-SHA256\n");
    text_add(&text, time);
    text_add(&text, "\n");
    text_add(&text, scope);
    text_add(&text, "\n");
    text_add(&text, hex);
    memcpy(day, time, sizeof day - 1);
    day[sizeof day - 1] = '\0';
    _cleanup_free_ char *signed_text = text_take(&text);
    bool done = signed_text && sigv4_key(signer, day, key) &&
                sigv4_hmac(signer->crypto, key, sizeof key, signed_text, hash);
    if (done)
        sigv4_hex(hash, ret);
    explicit_bzero(key, sizeof key);
    return done;
}

char *sigv4_authorization(const struct sigv4_request *request, const struct sigv4_signer *signer)
{
    char time[SIGV4_TIME_MAX], signature[2 * SIGV4_HASH + 1];
    struct text scope_text = {0}, names = {0}, text = {0};
    char *canonical = sigv4_write_canonical(request, &names);

    sigv4_time(signer->now, time);
    text_print(&scope_text, "%.8s/", time);
    text_add(&scope_text, signer->region);
    text_add(&scope_text, "/");
    text_add(&scope_text, signer->service);
    text_add(&scope_text, "/aws4_request");
    _cleanup_free_ char *scope = text_take(&scope_text), *signed_names = text_take(&names);
    bool done =
        canonical && scope && signed_names && sigv4_sign(canonical, signer, time, scope, signature);
    text_wipe(&canonical); /* a session token is in it */
    if (!done)
        return NULL;
    text_add(&text, "AWS4-HMAC-SHA256 Credential=");
    text_add(&text, signer->access_key);
    text_add(&text, "/");
    text_add(&text, scope);
    text_add(&text, ", SignedHeaders=");
    text_add(&text, signed_names);
    text_add(&text, ", Signature=");
    text_add(&text, signature);
    return text_take(&text);
}
