/* What an answer that is not the one that was asked for says: the second half of answer.h. */
#include "daemon/remote/answer.h"

#include "daemon/remote/text.h"
#include "daemon/remote/xml.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* ---- bytes ---------------------------------------------------------------------------------- */

static int bytes_changed(const struct remote_place *place, const char *what, struct dl_error *err)
{
    return dl_error_set(err, ESTALE, place->url,
                        "it has changed since it was first looked at: it has another %s; a dataset "
                        "must not change while it is read: open it anew",
                        what);
}

/* Of Content-Range: the range that was asked for, up to the object's end. */
static int bytes_check_part(const struct remote_place *place, const struct remote_headers *headers,
                            const struct remote_range *asked, uint64_t *ret_len,
                            struct dl_error *err)
{
    uint64_t total = headers->total, last = asked->last;
    char length[32] = "";

    if (headers->first == REMOTE_UNKNOWN)
        return dl_error_set(err, EBADMSG, place->url,
                            "the server at %s answers with status 206 and does not say which bytes "
                            "it gives (Content-Range); a proxy on the way may be broken",
                            place->origin);
    if (total != REMOTE_UNKNOWN && last >= total)
        last = total - 1; /* not 0: the range is not empty */
    if (headers->length != REMOTE_UNKNOWN)
        (void)snprintf(length, sizeof length, ", as %" PRIu64 " bytes", headers->length);
    if (headers->first != asked->first || headers->last != last ||
        (headers->length != REMOTE_UNKNOWN && headers->length - 1 != last - headers->first))
        return dl_error_set(err, EBADMSG, place->url,
                            "of bytes %" PRIu64 " to %" PRIu64 " the server at %s gives %" PRIu64
                            " to %" PRIu64 "%s; a proxy on the way may be broken",
                            asked->first, asked->last, place->origin, headers->first, headers->last,
                            length);
    *ret_len = last - asked->first + 1;
    return 0;
}

/* Of 200: all, if that is what was asked for, or no more than that. */
static int bytes_check_whole(const struct remote_place *place, const struct remote_headers *headers,
                             const struct remote_range *asked, uint64_t *ret_len,
                             struct dl_error *err)
{
    bool is_short = headers->length != REMOTE_UNKNOWN &&
                    (headers->length == 0 || headers->length - 1 <= asked->last);

    if (asked->first > 0 || (asked->last != UINT64_MAX && !is_short))
        return dl_error_set(err, ENOTSUP, place->url,
                            "the server at %s gives the whole object where a part was asked for; "
                            "only servers with ranges (Accept-Ranges: bytes) can be read in parts",
                            place->origin);
    *ret_len = headers->length;
    return 0;
}

int remote_bytes_check(const struct remote_place *place, const struct remote_headers *headers,
                       const struct remote_range *asked, uint64_t *ret_len, struct dl_error *err)
{
    const char *etag = remote_headers_etag(headers);
    /* rclone's server gives parts with status 200. Where there is a range it says what comes. */
    bool is_part = headers->status == 206 || headers->first != REMOTE_UNKNOWN;
    uint64_t total = is_part ? headers->total : headers->length;

    if (headers->status == 412)
        return bytes_changed(place, "etag", err);
    if (headers->status != 200 && headers->status != 206)
        return dl_error_set(err, EIO, place->url, "the server at %s answers with status %d",
                            place->origin, headers->status);
    if (headers->is_coded)
        return dl_error_set(err, ENOTSUP, place->url,
                            "the server at %s gives it with a Content-Encoding, so that parts of "
                            "it are no parts of the object; store it without one",
                            place->origin);
    if (asked->total != REMOTE_UNKNOWN && total != REMOTE_UNKNOWN && asked->total != total)
        return bytes_changed(place, "size", err);
    if (asked->etag && *asked->etag && *etag && strcmp(asked->etag, etag) != 0)
        return bytes_changed(place, "etag", err);
    return is_part ? bytes_check_part(place, headers, asked, ret_len, err)
                   : bytes_check_whole(place, headers, asked, ret_len, err);
}

/* ---- S3's error document -------------------------------------------------------------------- */

static void error_take(const char *value, char *ret, size_t size)
{
    (void)snprintf(ret, size, "%s", value);
}

static void error_close(const struct xml *xml, struct text *value, struct remote_error *ret)
{
    _cleanup_free_ char *text = text_take(value);

    if (!text || xml->depth != 2)
        return;
    if (xml_is(xml, 2, "Code"))
        error_take(text, ret->code, sizeof ret->code);
    else if (xml_is(xml, 2, "Message"))
        error_take(text, ret->message, sizeof ret->message);
    else if (xml_is(xml, 2, "Region"))
        error_take(text, ret->region, sizeof ret->region);
}

bool remote_error_read(struct dl_span body, struct remote_error *ret)
{
    struct dl_span piece = {0};
    struct text value = {0};
    enum xml_event event;
    struct xml xml;
    bool is_raw, is_error = true;

    *ret = (struct remote_error){0};
    if (body.len > REMOTE_ERROR_BYTES)
        body.len = REMOTE_ERROR_BYTES;
    xml_init(&xml, body);
    do {
        event = xml_next(&xml, &piece, &is_raw);
        if (event == XML_OPEN) {
            text_deinit(&value);
            is_error = is_error && xml_is(&xml, 1, "Error");
        } else if (event == XML_TEXT && is_raw) {
            text_add_bytes(&value, piece.data, piece.len);
        } else if (event == XML_TEXT) {
            (void)xml_decode(&value, piece);
        } else if (event == XML_CLOSE) {
            error_close(&xml, &value, ret);
        }
    } while (is_error && event != XML_DONE && event != XML_BAD);
    text_deinit(&value);
    return is_error && *ret->code;
}

/* ---- words ---------------------------------------------------------------------------------- */

/* By the server's code, else by the status. */
static const struct {
    const char *code;
    int status, error;
    const char *remedy;
} refusal_rows[] = {
    {"NoSuchBucket", 0, ENOENT,
     "there is no such bucket; look at its name, and at AWS_ENDPOINT_URL"},
    {"NoSuchKey", 0, ENOENT, "there is no such object; look at its name"},
    {"InvalidAccessKeyId", 0, EACCES,
     "the access key is not known there; look at AWS_ACCESS_KEY_ID or AWS_PROFILE, and at "
     "AWS_ENDPOINT_URL"},
    {"SignatureDoesNotMatch", 0, EACCES,
     "the secret key is not that of the access key, or a proxy changes requests; look at "
     "AWS_SECRET_ACCESS_KEY"},
    {"RequestTimeTooSkewed", 0, EACCES,
     "this machine's clock and the server's differ by more than 15 minutes; set it"},
    {"ExpiredToken", 0, EACCES, "the session of these keys is over; get new ones"},
    {"InvalidToken", 0, EACCES, "AWS_SESSION_TOKEN is not that of these keys; get new ones"},
    {"PreconditionFailed", 0, ESTALE, "it has changed since it was first looked at; open it anew"},
    {"InvalidRange", 0, ESTALE, "it is shorter than when it was first looked at; open it anew"},
    {"SlowDown", 0, EAGAIN, "the server asks for fewer requests"},
    {"RequestTimeout", 0, EAGAIN, "the server has waited too long"},
    {"InternalError", 0, EAGAIN, "the server has a fault"},
    {"ServiceUnavailable", 0, EAGAIN, "the server cannot serve now"},
    {NULL, 404, ENOENT, "there is no such object; look at its name"},
    {NULL, 410, ENOENT, "there is no such object any more"},
    {NULL, 401, EACCES, NULL},
    {NULL, 403, EACCES, NULL},
    {NULL, 412, ESTALE, "it has changed since it was first looked at; open it anew"},
    {NULL, 416, ESTALE, "it is shorter than when it was first looked at; open it anew"},
    {NULL, 408, EAGAIN, "the server has waited too long"},
    {NULL, 425, EAGAIN, "the server asks to try again"},
    {NULL, 429, EAGAIN, "the server asks for fewer requests"},
    {NULL, 500, EAGAIN, "the server has a fault"},
    {NULL, 502, EAGAIN, "the server behind it has a fault"},
    {NULL, 503, EAGAIN, "the server cannot serve now"},
    {NULL, 504, EAGAIN, "the server behind it has not answered"},
};

static const char *refusal_of_rights(const struct remote_place *place, bool is_signed)
{
    if (place->kind == REMOTE_HTTP)
        return "the server gives it to nobody without a name, and https:// has none here";
    if (place->kind == REMOTE_HF)
        return is_signed ? "the token in HF_TOKEN may not read it; for a gated repository accept "
                           "its terms on its page"
                         : "it is private or gated, or there is none of the name; set HF_TOKEN";
    return is_signed ? "the keys that signed this may not read it; look at AWS_PROFILE, "
                       "AWS_ACCESS_KEY_ID and the bucket's policy"
                     : "it was asked for without keys; set AWS_ACCESS_KEY_ID and "
                       "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE";
}

/* The bucket is in another region than the one that was signed for. */
static bool refusal_is_of_region(const struct remote_place *place,
                                 const struct remote_headers *headers,
                                 const struct remote_error *said, const char **ret_region)
{
    *ret_region = *said->region ? said->region : headers->region;
    if (place->kind != REMOTE_S3)
        return false;
    if (**ret_region && strcmp(*ret_region, place->region) != 0)
        return true;
    *ret_region = "";
    return headers->status == 301 || headers->status == 307 ||
           strcmp(said->code, "AuthorizationHeaderMalformed") == 0;
}

/* "status 404, NoSuchKey: The specified key does not exist." */
static void refusal_words(const struct remote_headers *headers, const struct remote_error *said,
                          char *ret, size_t size)
{
    const char *words = *said->message ? said->message : headers->words;

    (void)snprintf(ret, size, "status %d%s%s%s%s", headers->status, *said->code ? ", " : "",
                   said->code, *words ? ": " : "", words);
}

int remote_refusal(const struct remote_place *place, const struct remote_headers *headers,
                   struct dl_span body, bool is_signed, struct dl_error *err)
{
    struct remote_error said;
    char words[sizeof said.message + sizeof said.code + 32];
    const char *region;

    (void)remote_error_read(body, &said);
    refusal_words(headers, &said, words, sizeof words);
    if (refusal_is_of_region(place, headers, &said, &region))
        return dl_error_set(err, EREMOTE, place->url,
                            "%s answers with %s: the bucket is in another region than %s; set "
                            "AWS_REGION%s%s",
                            place->origin, words, place->region, *region ? " to " : "", region);
    for (size_t i = 0; i < ARRAY_SIZE(refusal_rows); i++) {
        const char *code = refusal_rows[i].code, *remedy = refusal_rows[i].remedy;

        if (code ? strcmp(code, said.code) != 0 : refusal_rows[i].status != headers->status)
            continue;
        if (!remedy)
            remedy = refusal_of_rights(place, is_signed);
        return dl_error_set(err, refusal_rows[i].error, place->url, "%s answers with %s: %s",
                            place->origin, words, remedy);
    }
    return dl_error_set(err, EIO, place->url, "%s answers with %s", place->origin, words);
}
