#include "daemon/remote/peer_wire.h"

#include "daemon/remote/text.h"
#include "proto/remote_wire.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <strings.h>

enum { PEER_HASH = 32, PEER_DIGITS = 20 };

static const char PEER_HEX[] = "0123456789abcdef";

/* ---- proofs --------------------------------------------------------------------------------- */

static void peer_hex(const uint8_t *bytes, char ret[PEER_PROOF_MAX])
{
    for (size_t i = 0; i < PEER_HASH; i++)
        snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

void peer_sum(const struct sigv4_crypto *crypto, struct dl_span body, char ret[PEER_PROOF_MAX])
{
    uint8_t hash[PEER_HASH] = {0};

    (void)crypto->sha256(body.data ? body.data : (const uint8_t *)"", body.len, hash);
    peer_hex(hash, ret);
}

void peer_prove(const struct sigv4_crypto *crypto, const char *token, const char *a, const char *b,
                char ret[PEER_PROOF_MAX])
{
    uint8_t hash[PEER_HASH] = {0};
    struct text text = {0};
    unsigned len = 0;

    text_add(&text, a);
    text_add(&text, " ");
    text_add(&text, b);
    if (!text.is_lost)
        (void)crypto->hmac(crypto->type_sha256(), token, (int)strlen(token), text.bytes.data,
                           text.bytes.len, hash, &len);
    ret[0] = '\0'; /* the same as none */
    if (len == PEER_HASH)
        peer_hex(hash, ret);
    text_deinit(&text);
}

bool peer_proofs_same(const char *a, const char *b)
{
    size_t len = strlen(a);
    unsigned differ = 0;

    if (len != PEER_PROOF_MAX - 1 || strlen(b) != len)
        return false;
    for (size_t i = 0; i < len; i++)
        differ |= (uint8_t)(a[i] ^ b[i]);
    return differ == 0;
}

/* ---- words ---------------------------------------------------------------------------------- */

/* The next one of a text that ends at `end`; what ends it is stepped over. */
static struct dl_span peer_word(const char **at, const char *end, char mark)
{
    const char *begin = *at, *stop = memchr(begin, mark, (size_t)(end - begin));

    *at = stop ? stop + 1 : end;
    return (struct dl_span){(const uint8_t *)begin, (size_t)((stop ? stop : end) - begin)};
}

static bool peer_number(struct dl_span word, uint64_t *ret)
{
    uint64_t n = 0;

    if (word.len == 0 || word.len > PEER_DIGITS)
        return false;
    for (size_t i = 0; i < word.len; i++) {
        if (!isdigit(word.data[i]) || mul_overflows(n, 10, &n) ||
            add_overflows(n, (uint64_t)(word.data[i] - '0'), &n))
            return false;
    }
    *ret = n;
    return true;
}

/* "-": not known. */
static bool peer_time(struct dl_span word, int64_t *ret)
{
    uint64_t n;

    *ret = -1;
    if (word.len == 1 && *word.data == '-')
        return true;
    if (!peer_number(word, &n) || n > INT64_MAX)
        return false;
    *ret = (int64_t)n;
    return true;
}

static bool peer_hex_text(struct dl_span word, char *ret, size_t size)
{
    if (word.len != size - 1)
        return false;
    for (size_t i = 0; i < word.len; i++)
        if (!memchr(PEER_HEX, word.data[i], sizeof PEER_HEX - 1))
            return false;
    memcpy(ret, word.data, word.len);
    ret[word.len] = '\0';
    return true;
}

/* Percent-encoded; "-": none. */
static bool peer_etag(struct dl_span word, char ret[REMOTE_ETAG_MAX])
{
    char text[3 * REMOTE_ETAG_MAX];
    size_t len = word.len;

    ret[0] = '\0';
    if (word.len == 1 && *word.data == '-')
        return true;
    if (word.len == 0 || word.len >= sizeof text)
        return false;
    memcpy(text, word.data, len);
    if (!text_decode(text, &len, false) || len >= REMOTE_ETAG_MAX)
        return false;
    memcpy(ret, text, len);
    ret[len] = '\0';
    /* A zero byte would end it earlier, and "-" is written for none. */
    return len > 0 && strlen(ret) == len && strcmp(ret, "-") != 0 && text_is_plain(ret);
}

static void peer_add_object(struct text *text, uint64_t bytes, int64_t modified, const char *etag,
                            char mark)
{
    text_print(text, "%" PRIu64 "%c", bytes, mark);
    if (modified >= 0)
        text_print(text, "%" PRIi64, modified);
    else
        text_add(text, "-");
    text_print(text, "%c", mark);
    if (*etag)
        text_encode(text, etag, false);
    else
        text_add(text, "-");
}

/* ---- requests ------------------------------------------------------------------------------- */

uint64_t peer_ask_bytes(const struct peer_ask *ask)
{
    return min_u64(ask->bytes - ask->first * REMOTE_BLOCK_BYTES, ask->n * REMOTE_BLOCK_BYTES);
}

char *peer_target(const struct peer_ask *ask)
{
    struct text text = {0};

    text_print(&text, "/blocks/1/%" PRIu64 "/%" PRIu64 "/", ask->first, ask->n);
    peer_add_object(&text, ask->bytes, ask->modified, ask->etag, '/');
    text_add(&text, "/");
    text_encode(&text, ask->where, false);
    if (text.bytes.len < PEER_TARGET_MAX)
        return text_take(&text);
    text_deinit(&text);
    return NULL;
}

/* They are of one group, and of the object. */
static bool peer_blocks_are_good(const struct peer_ask *ask)
{
    if (ask->n == 0 || ask->n > PEER_BLOCKS_MAX ||
        ask->first > UINT64_MAX / REMOTE_BLOCK_BYTES - PEER_BLOCKS_MAX ||
        ask->first / PEER_BLOCKS_MAX != (ask->first + ask->n - 1) / PEER_BLOCKS_MAX)
        return false;
    if (ask->bytes == 0)
        return !peer_brings(ask->method) && !*ask->etag;
    return *ask->etag && ask->bytes <= INT64_MAX &&
           (ask->first + ask->n - 1) * REMOTE_BLOCK_BYTES < ask->bytes;
}

static int peer_where(struct dl_span word, char **ret)
{
    char *text = word.len > 0 ? span_dup(word) : NULL;
    size_t len = word.len;

    if (word.len == 0)
        return -EBADMSG;
    if (!text)
        return -ENOMEM;
    if (!text_decode(text, &len, false) || len == 0 || len >= PEER_WHERE_MAX) {
        free(text);
        return -EBADMSG;
    }
    text[len] = '\0';
    *ret = text;
    return 0;
}

static int peer_target_read(const char *target, struct peer_ask *ret)
{
    static const char begin[] = "/blocks/1/";
    const char *at = target + strlen(begin), *end = target + strlen(target);

    if (strncmp(target, begin, strlen(begin)) != 0 || end - target >= PEER_TARGET_MAX)
        return -EBADMSG;
    if (!peer_number(peer_word(&at, end, '/'), &ret->first) ||
        !peer_number(peer_word(&at, end, '/'), &ret->n) ||
        !peer_number(peer_word(&at, end, '/'), &ret->bytes) ||
        !peer_time(peer_word(&at, end, '/'), &ret->modified) ||
        !peer_etag(peer_word(&at, end, '/'), ret->etag) || !peer_blocks_are_good(ret))
        return -EBADMSG;
    return peer_where((struct dl_span){(const uint8_t *)at, (size_t)(end - at)}, &ret->where);
}

/* The next line, ended by a NUL in the place of its end; NULL: there is none. */
static char *peer_line(char **at)
{
    char *line = *at, *end = strstr(line, "\r\n");

    if (!end)
        return NULL;
    *end = '\0';
    *at = end + 2;
    return line;
}

/* The value of a header of that name; NULL: it is another. */
static const char *peer_header(const char *line, const char *name)
{
    size_t len = strlen(name);

    if (strncasecmp(line, name, len) != 0 || line[len] != ':')
        return NULL;
    line += len + 1;
    return line + strspn(line, " \t");
}

static bool peer_header_read(const char *line, struct peer_request *ret)
{
    const char *value;

    if ((value = peer_header(line, "Content-Length")))
        return peer_number(span_str(value), &ret->length);
    if (peer_header(line, "Transfer-Encoding"))
        return false;
    if ((value = peer_header(line, "Dloader-Sum")))
        return peer_hex_text(span_str(value), ret->sum, sizeof ret->sum);
    if ((value = peer_header(line, "Authorization")))
        return strncmp(value, "Peer ", 5) == 0 &&
               peer_hex_text(span_str(value + 5), ret->proof, sizeof ret->proof);
    return strchr(line, ':') != NULL;
}

const char *peer_method_name(enum peer_method method)
{
    static const char *const names[] = {"GET", "PUT", "DELETE", "POST", "LOOK"};

    return names[method];
}

static bool peer_method_read(const char *word, enum peer_method *ret)
{
    for (*ret = PEER_GET; *ret <= PEER_LOOK; ++*ret)
        if (strcmp(word, peer_method_name(*ret)) == 0)
            return true;
    return false;
}

/* "GET TARGET HTTP/1.1" */
static bool peer_first_line(char *line, struct peer_request *ret)
{
    char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;

    if (!version || strcmp(version + 1, "HTTP/1.1") != 0)
        return false;
    *target++ = *version = '\0';
    ret->target = target;
    return peer_method_read(line, &ret->ask.method);
}

int peer_request_read(char *head, struct peer_request *ret)
{
    char *at = head, *line = peer_line(&at);

    *ret = (struct peer_request){0};
    if (!line || !peer_first_line(line, ret))
        return -EBADMSG;
    while ((line = peer_line(&at)) && *line)
        if (!peer_header_read(line, ret))
            return -EBADMSG;
    if (!line)
        return -EBADMSG;
    int r = peer_target_read(ret->target, &ret->ask);
    if (r < 0)
        return r;
    bool puts = peer_brings(ret->ask.method);
    if (ret->length == (puts ? peer_ask_bytes(&ret->ask) : 0) && !*ret->sum == !puts)
        return 0;
    free(steal_ptr(ret->ask.where));
    return -EBADMSG;
}

/* ---- answers -------------------------------------------------------------------------------- */

void peer_answer_write(const struct peer_answer *answer, char ret[static PEER_LINE_MAX])
{
    struct text text = {0};

    text_print(&text, "%" PRIu64 " %d ", answer->n, answer->wanted);
    peer_add_object(&text, answer->bytes, answer->modified, answer->etag, ' ');
    _cleanup_free_ char *line = text_take(&text);
    snprintf(ret, PEER_LINE_MAX, "%s", line ? line : "");
}

bool peer_answer_read(struct dl_span line, struct peer_answer *ret)
{
    const char *at = (const char *)line.data, *end = at + line.len;
    uint64_t wanted;

    *ret = (struct peer_answer){0};
    if (line.len == 0 || line.len >= PEER_LINE_MAX ||
        !peer_number(peer_word(&at, end, ' '), &ret->n) || ret->n > PEER_BLOCKS_MAX ||
        !peer_number(peer_word(&at, end, ' '), &wanted) || wanted > 1)
        return false;
    ret->wanted = wanted == 1;
    return peer_number(peer_word(&at, end, ' '), &ret->bytes) &&
           peer_time(peer_word(&at, end, ' '), &ret->modified) &&
           peer_etag(peer_word(&at, end, ' '), ret->etag) &&
           peer_hex_text(peer_word(&at, end, ' '), ret->proof, sizeof ret->proof) && at == end &&
           end[-1] != ' ';
}

/* ---- what is proven ------------------------------------------------------------------------- */

void peer_prove_ask(const struct sigv4_crypto *crypto, const char *token, enum peer_method method,
                    const char *target, const char *sum, char ret[PEER_PROOF_MAX])
{
    struct text text = {0};

    text_print(&text, "%s %s", peer_method_name(method), target);
    _cleanup_free_ char *asked = text_take(&text);
    ret[0] = '\0';
    if (asked)
        peer_prove(crypto, token, asked, sum, ret);
}

void peer_prove_answer(const struct sigv4_crypto *crypto, const char *token, const char *asked,
                       const struct peer_answer *answer, struct dl_span body,
                       char ret[PEER_PROOF_MAX])
{
    char line[PEER_LINE_MAX], sum[PEER_PROOF_MAX], text[PEER_LINE_MAX + PEER_PROOF_MAX];

    peer_answer_write(answer, line);
    peer_sum(crypto, body, sum);
    (void)snprintf(text, sizeof text, "%s %s", line, sum);
    peer_prove(crypto, token, asked, text, ret);
}
