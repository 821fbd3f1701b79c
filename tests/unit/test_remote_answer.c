/* Headers, whether they are those of what was asked for, and errors in words. */
#include "tests/lib/harness.h"

#include "daemon/remote/answer.h"
#include "daemon/remote/date.h"
#include "tests/lib/row.h"
#include "tests/unit/remote_case.h"

#include <errno.h>

enum { NOW = 1445412480 }; /* Wed, 21 Oct 2015 07:28:00 GMT */

#define UNKNOWN REMOTE_UNKNOWN

static const char *const no_env[] = {NULL};

/* The lines of a text; 0, or what the first wrong one gives. */
static int read_lines(struct remote_headers *ret, const char *text)
{
    remote_headers_init(ret);
    while (*text) {
        size_t n = strcspn(text, "\n");
        int r = remote_headers_line(ret, text, n, NOW);

        if (r < 0)
            return r;
        text += n + (text[n] == '\n');
    }
    return 0;
}

TEST(test_lines)
{
    struct remote_headers h;

    assert_int_equal(
        read_lines(&h, "HTTP/1.1 206 Partial Content\r\ncontent-LENGTH: 10\r\nContent-Range:bytes "
                       "5-14/100 \r\nETag: \"a b\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 "
                       "GMT\r\nRetry-After: 120\r\nx-amz-bucket-region: eu-west-1\r\nX-Unknown\r\n"
                       "\r\n"),
        0);
    assert_int_equal(h.status, 206);
    assert_int_equal(h.length, 10);
    assert_int_equal(h.first, 5);
    assert_int_equal(h.last, 14);
    assert_int_equal(h.total, 100);
    assert_string_equal(h.etag, "\"a b\"");
    assert_int_equal(h.modified, 784111777);
    assert_int_equal(h.retry_after, 120);
    assert_string_equal(h.region, "eu-west-1");
    assert_false(h.is_coded);
    assert_int_equal(remote_headers_size(&h), 100);

    /* Of a redirect stays what is said of the file, wherever its bytes lie. */
    assert_int_equal(read_lines(&h, "HTTP/1.1 302 Found\nX-Linked-Size: 7\nX-Linked-Etag: \"ff\"\n"
                                    "X-Repo-Commit: 0abc\nETag: \"x\"\nContent-Length: 99"),
                     0);
    assert_int_equal(remote_headers_size(&h), 7);
    assert_string_equal(remote_headers_etag(&h), "\"ff\"");
    assert_string_equal(h.commit, "0abc");
    assert_int_equal(remote_headers_line(&h, "HTTP/2 200", 10, NOW), 0);
    assert_int_equal(remote_headers_line(&h, "ETag: \"of the CDN\"", 18, NOW), 0);
    assert_int_equal(remote_headers_line(&h, "Content-Length: 4", 17, NOW), 0);
    assert_int_equal(h.status, 200);
    assert_int_equal(remote_headers_size(&h), 7);
    assert_string_equal(remote_headers_etag(&h), "\"ff\"");
    assert_string_equal(h.commit, "0abc");
    assert_int_equal(h.length, 4);
    assert_int_equal(remote_headers_line(&h, "HTTP/2 200", 10, NOW), 0);
    assert_int_equal(remote_headers_size(&h), UNKNOWN);
    assert_string_equal(remote_headers_etag(&h), "");
    assert_int_equal(remote_headers_line(&h, "Content-Length: 4", 17, NOW), 0);
    assert_int_equal(remote_headers_size(&h), 4);
    assert_int_equal(remote_headers_line(&h, "Content-Encoding: gzip", 22, NOW), 0);
    assert_int_equal(remote_headers_size(&h), UNKNOWN);
}

TEST(test_bad_lines)
{
    static const struct {
        const char *text;
        int r;
    } rows[] = {
        {"HTTP/1.1", -EBADMSG},
        {"HTTP/1.1 abc", -EBADMSG},
        {"HTTP/1.1 20", -EBADMSG},
        {"Content-Length: ", -EBADMSG},
        {"Content-Length: -1", -EBADMSG},
        {"Content-Length: 5, 5", -EBADMSG},
        {"Content-Length: 5\nContent-Length: 5", 0},
        {"Content-Length: 5\nContent-Length: 6", -EBADMSG},
        {"Content-Length: 9223372036854775807", 0},
        {"Content-Length: 9223372036854775808", -EBADMSG},
        {"Content-Length: 18446744073709551615", -EBADMSG},
        {"Content-Length: 99999999999999999999", -EBADMSG},
        {"X-Linked-Size: x", -EBADMSG},
        {"Content-Range: bytes 0-9/10", 0},
        {"Content-Range: bytes 0-9/*", 0},
        {"Content-Range: bytes */10", 0},
        {"Content-Range: bytes 0-9/9", -EBADMSG},
        {"Content-Range: bytes 9-0/10", -EBADMSG},
        {"Content-Range: bytes 0-9", -EBADMSG},
        {"Content-Range: bytes 0-/9", -EBADMSG},
        {"Content-Range: items 0-9/10", -EBADMSG},
        {"Content-Range: bytes 0-9/10x", -EBADMSG},
        {"Content-Range: bytes 0-9/10\nContent-Range: bytes 0-9/10", -EBADMSG},
        {": x", 0},
        {"Last-Modified: yesterday", 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct remote_headers h;

        if (read_lines(&h, rows[i].text) != rows[i].r)
            fail_msg("%s", rows[i].text);
    }
}

/* What counts as not said, and times. */
TEST(test_values)
{
    static const struct {
        const char *line;
        int64_t seconds;
    } rows[] = {
        {"Retry-After: 0", 0},
        {"Retry-After: 99999999999", INT32_MAX},
        {"Retry-After: -1", -1},
        {"Retry-After: soon", -1},
        {"Retry-After: 5 x", -1},
        {"Retry-After: Wed, 21 Oct 2015 07:28:30 GMT", 30},
        {"Retry-After: Wed, 21 Oct 2015 07:27:30 GMT", 0},
        {"Retry-After: Wed, 21 Oct 2015 07:28:30", -1},
        {"Retry-After: Wed, 21 anF 2015 07:28:30 GMT", -1},
        {"Retry-After: Wed, 21 Oct 2015 24:28:30 GMT", -1},
        {"Retry-After: Wed; 21 Oct 2015 07:28:30 GMT", -1},
        {"Retry-After: Wed, 21 Oct 2015 07-28:30 GMT", -1},
        {"Retry-After: Wed, 2x Oct 2015 07:28:30 GMT", -1},
        {"Retry-After: Wed, 00 Oct 2015 07:28:30 GMT", -1},
        {"Retry-After: We", -1},
        {"Retry-After: Thu, 31 Dec 2015 23:59:60 GMT", 6193920},
    };
    static const struct {
        const char *line, *cursor;
        bool has_next;
    } links[] = {
        {"Link: <https://h/a?cursor=a%2Bb+c&x=1>; rel=\"next\"", "a+b c", true},
        {"Link: <https://h/a?x=1&cursor=z>; rel=\"prev\", <https://h/a?cursor=y>; rel=next", "y",
         true},
        {"Link: </style.css>; rel=preload", "", false},
        {"Link: <https://h/a?xcursor=1>; rel=\"next\"", "", true},
        {"Link: <https://h/a?cursor=%0>; rel=\"next\"", "", true},
        {"Link: <https://h/a?cursor=1", "", false},
        {"Link: ", "", false},
    };
    char long_tag[REMOTE_ETAG_MAX + 16] = "ETag: ";
    struct remote_headers h;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(read_lines(&h, rows[i].line), 0);
        if (h.retry_after != rows[i].seconds)
            fail_msg("%s: %lld", rows[i].line, (long long)h.retry_after);
    }
    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        assert_int_equal(read_lines(&h, links[i].line), 0);
        assert_string_equal(h.cursor, links[i].cursor);
        assert_int_equal(h.has_next, links[i].has_next);
    }
    memset(long_tag + 6, 'x', REMOTE_ETAG_MAX - 1);
    assert_int_equal(read_lines(&h, long_tag), 0);
    assert_int_equal(strlen(h.etag), REMOTE_ETAG_MAX - 1);
    long_tag[6 + REMOTE_ETAG_MAX - 1] = 'x';
    assert_int_equal(read_lines(&h, long_tag), 0);
    assert_string_equal(h.etag, "");
    assert_int_equal(read_lines(&h, "ETag: a\001b"), 0);
    assert_string_equal(h.etag, "");
    assert_int_equal(date_of_iso(span_str("1970-01-01T00:00:00Z")), 0);
    assert_int_equal(date_of_iso(span_str("2009-10-12T17:50:30.123456Z")), 1255369830);
    assert_int_equal(date_of_iso(span_str("2009-13-12T17:50:30Z")), -1);
    assert_int_equal(date_of_iso(span_str("2009-10-12T17:50:30+02:00")), -1);
    assert_int_equal(date_of_iso(span_str("2009-10-12")), -1);
}

/* Bytes that were asked for, and answers that are others. */
static const struct {
    const char *lines;
    struct remote_range asked;
    int r;
    uint64_t len;
    const char *words;
} bytes_rows[] = {
    ROW("HTTP/1.1 206\nContent-Range: bytes 5-14/100\nContent-Length: 10", {5, 14, 100, NULL}, 0,
        10, NULL),
    {"HTTP/1.1 206\nContent-Range: bytes 5-14/100", {5, 14, UNKNOWN, "\"a\""}, 0, 10, NULL},
    {"HTTP/1.1 206\nContent-Range: bytes 5-14/*", {5, 14, UNKNOWN, NULL}, 0, 10, NULL},
    {"HTTP/1.1 206\nContent-Range: bytes 5-99/100", {5, UINT64_MAX, 100, NULL}, 0, 95, NULL},
    {"HTTP/1.1 206\nContent-Range: bytes 5-99/100", {5, 200, UNKNOWN, NULL}, 0, 95, NULL},
    {"HTTP/1.1 200\nContent-Length: 9", {0, UINT64_MAX, UNKNOWN, NULL}, 0, 9, NULL},
    {"HTTP/1.1 200", {0, UINT64_MAX, UNKNOWN, NULL}, 0, UNKNOWN, NULL},
    {"HTTP/1.1 200\nContent-Length: 0", {0, UINT64_MAX, UNKNOWN, NULL}, 0, 0, NULL},
    {"HTTP/1.1 200\nContent-Length: 9", {0, 8, UNKNOWN, NULL}, 0, 9, NULL},
    {"HTTP/1.1 200\nETag: \"a\"", {0, UINT64_MAX, UNKNOWN, "\"a\""}, 0, UNKNOWN, NULL},
    /* rclone's server. */
    ROW("HTTP/1.1 200\nContent-Range: bytes 5-14/100\nContent-Length: 10", {5, 14, 100, NULL}, 0,
        10, NULL),
    /* Others. */
    {"HTTP/1.1 200\nContent-Range: bytes 4-14/100", {5, 14, 100, NULL}, -EBADMSG, 0, "a proxy"},
    ROW("HTTP/1.1 200\nContent-Range: bytes 0-14/100", {0, UINT64_MAX, UNKNOWN, NULL}, -EBADMSG, 0,
        "a proxy"),
    {"HTTP/1.1 206", {5, 14, UNKNOWN, NULL}, -EBADMSG, 0, "does not say which"},
    {"HTTP/1.1 206\nContent-Range: bytes */100", {5, 14, 100, NULL}, -EBADMSG, 0, "does not say"},
    {"HTTP/1.1 206\nContent-Range: bytes 4-14/100", {5, 14, 100, NULL}, -EBADMSG, 0, "a proxy"},
    {"HTTP/1.1 206\nContent-Range: bytes 5-13/100", {5, 14, 100, NULL}, -EBADMSG, 0, "a proxy"},
    {"HTTP/1.1 206\nContent-Range: bytes 5-13/*", {5, 14, UNKNOWN, NULL}, -EBADMSG, 0, "a proxy"},
    ROW("HTTP/1.1 206\nContent-Range: bytes 5-14/100\nContent-Length: 9", {5, 14, 100, NULL},
        -EBADMSG, 0, "a proxy"),
    ROW("HTTP/1.1 206\nContent-Range: bytes 5-14/100\nContent-Length: 0", {5, 14, 100, NULL},
        -EBADMSG, 0, "a proxy"),
    {"HTTP/1.1 206\nContent-Range: bytes 5-14/100", {5, 14, 101, NULL}, -ESTALE, 0, "size"},
    ROW("HTTP/1.1 206\nContent-Range: bytes 5-14/100\nETag: \"b\"", {5, 14, 100, "\"a\""}, -ESTALE,
        0, "etag"),
    {"HTTP/1.1 200\nContent-Length: 9", {0, UINT64_MAX, 10, NULL}, -ESTALE, 0, "size"},
    {"HTTP/1.1 412", {0, 9, UNKNOWN, "\"a\""}, -ESTALE, 0, "etag"},
    {"HTTP/1.1 200\nContent-Length: 100", {5, 14, UNKNOWN, NULL}, -ENOTSUP, 0, "whole object"},
    {"HTTP/1.1 200\nContent-Length: 9", {0, 7, UNKNOWN, NULL}, -ENOTSUP, 0, "whole object"},
    {"HTTP/1.1 200", {0, 7, UNKNOWN, NULL}, -ENOTSUP, 0, "whole object"},
    ROW("HTTP/1.1 200\nContent-Encoding: gzip", {0, UINT64_MAX, UNKNOWN, NULL}, -ENOTSUP, 0,
        "Content-Encoding"),
    {"HTTP/1.1 200\nContent-Encoding: Identity", {0, UINT64_MAX, UNKNOWN, NULL}, 0, UNKNOWN, NULL},
    ROW("HTTP/1.1 200\nContent-Encoding: identity, gzip", {0, UINT64_MAX, UNKNOWN, NULL}, -ENOTSUP,
        0, "Content-Encoding"),
    {"HTTP/1.1 204", {0, UINT64_MAX, UNKNOWN, NULL}, -EIO, 0, "204"},
    {"HTTP/1.1 503", {0, UINT64_MAX, UNKNOWN, NULL}, -EIO, 0, "503"},
};

TEST(test_bytes)
{
    struct remote_settings settings = settings_of(no_env);
    struct remote_place place = place_of("s3://b/k", &settings);

    for (size_t i = 0; i < ARRAY_SIZE(bytes_rows); i++) {
        struct remote_headers h;
        struct dl_error err = {0};
        uint64_t len = 0;

        assert_int_equal(read_lines(&h, bytes_rows[i].lines), 0);
        int r = remote_bytes_check(&place, &h, &bytes_rows[i].asked, &len, &err);
        if (r != bytes_rows[i].r || len != bytes_rows[i].len)
            fail_msg("row %zu: %d, %s", i, r, err.message);
        if (r < 0 &&
            (!strstr(err.message, bytes_rows[i].words) || strcmp(err.path, "s3://b/k") != 0))
            fail_msg("row %zu: %s", i, err.message);
    }
    remote_place_deinit(&place);

    /* The bytes of a file of the Hub come from where it has another etag, or from the Hub. */
    struct remote_headers h;
    const struct remote_range asked = {0, UINT64_MAX, UNKNOWN, "\"a\""};
    uint64_t len;
    place = place_of("hf://o/n/a", &settings);
    assert_int_equal(
        read_lines(&h, "HTTP/1.1 302\nX-Linked-Etag: \"a\"\nHTTP/1.1 200\nETag: \"b\""), 0);
    assert_int_equal(remote_bytes_check(&place, &h, &asked, &len, NULL), 0);
    assert_int_equal(read_lines(&h, "HTTP/1.1 200\nETag: \"b\""), 0);
    assert_int_equal(remote_bytes_check(&place, &h, &asked, &len, NULL), -ESTALE);
    assert_int_equal(read_lines(&h, "HTTP/1.1 200\nX-Linked-Etag: \"b\""), 0);
    assert_int_equal(remote_bytes_check(&place, &h, &asked, &len, NULL), -ESTALE);
    remote_place_deinit(&place);
    remote_settings_deinit(&settings);
}

#define ERROR(code, more) \
    "<?xml version=\"1.0\"?><Error><Code>" code "</Code>" more "<RequestId>7</RequestId></Error>"

TEST(test_documents)
{
    static const struct {
        const char *body, *code, *message, *region;
    } rows[] = {
        {ERROR("NoSuchKey", "<Message>The key&apos;s gone</Message>"), "NoSuchKey",
         "The key's gone", ""},
        {ERROR("AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>"),
         "AuthorizationHeaderMalformed", "", "eu-west-1"},
        {ERROR("A", "<Detail><Code>B</Code></Detail>"), "A", "", ""},
        /* Cut off: what has come is said. */
        {"<Error><Code>SlowDown</Code><Message>Reduce", "SlowDown", "", ""},
        {"<html><Code>x</Code></html>", NULL, "", ""},
        {"<ListBucketResult><Code>x</Code></ListBucketResult>", NULL, "", ""},
        {"<Error/>", NULL, "", ""},
        {"", NULL, "", ""},
        {"upstream", NULL, "", ""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct remote_error said;

        assert_int_equal(remote_error_read(span_str(rows[i].body), &said), rows[i].code != NULL);
        if (!rows[i].code)
            continue;
        assert_string_equal(said.code, rows[i].code);
        assert_string_equal(said.message, rows[i].message);
        assert_string_equal(said.region, rows[i].region);
    }
}

static const struct {
    const char *url, *lines, *body;
    bool is_signed;
    int r;
    const char *words[2];
} refusal_rows[] = {
    ROW("s3://b/k", "HTTP/1.1 404", ERROR("NoSuchKey", "<Message>no key</Message>"), true, -ENOENT,
        {"status 404, NoSuchKey: no key: ", "no such object"}),
    ROW("s3://b/k", "HTTP/1.1 404", ERROR("NoSuchBucket", ""), true, -ENOENT,
        {"status 404, NoSuchBucket: ", "AWS_ENDPOINT_URL"}),
    ROW("s3://b/k", "HTTP/1.1 404", "", true, -ENOENT, {"status 404: ", "no such object"}),
    ROW("s3://b/k", "HTTP/1.1 403", "", false, -EACCES, {"403", "without keys"}),
    ROW("s3://b/k", "HTTP/1.1 403", ERROR("AccessDenied", ""), true, -EACCES,
        {"AccessDenied", "keys that signed this"}),
    ROW("s3://b/k", "HTTP/1.1 403", ERROR("SignatureDoesNotMatch", ""), true, -EACCES,
        {"SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"}),
    ROW("s3://b/k", "HTTP/1.1 403", ERROR("RequestTimeTooSkewed", ""), true, -EACCES,
        {"RequestTimeTooSkewed", "15 minutes"}),
    ROW("s3://b/k", "HTTP/1.1 400", ERROR("ExpiredToken", ""), true, -EACCES,
        {"ExpiredToken", "get new ones"}),
    ROW("s3://b/k", "HTTP/1.1 400", ERROR("RequestTimeout", ""), true, -EAGAIN,
        {"RequestTimeout", "waited"}),
    ROW("s3://b/k", "HTTP/1.1 503", ERROR("SlowDown", ""), true, -EAGAIN,
        {"SlowDown", "fewer requests"}),
    ROW("s3://b/k", "HTTP/1.1 500", "", true, -EAGAIN, {"status 500", "fault"}),
    ROW("s3://b/k", "HTTP/1.1 429", "", true, -EAGAIN, {"status 429", "fewer"}),
    ROW("s3://b/k", "HTTP/1.1 416", ERROR("InvalidRange", ""), true, -ESTALE,
        {"InvalidRange", "shorter"}),
    ROW("s3://b/k", "HTTP/1.1 412", "", true, -ESTALE, {"status 412", "changed"}),
    ROW("s3://b/k", "HTTP/1.1 301\nx-amz-bucket-region: eu-west-1", "", true, -EREMOTE,
        {"status 301", "set AWS_REGION to eu-west-1"}),
    ROW("s3://b/k", "HTTP/1.1 307", "", true, -EREMOTE, {"status 307", "set AWS_REGION"}),
    ROW("s3://b/k", "HTTP/1.1 301", "", true, -EREMOTE,
        {"another region than us-east-1", "set AWS_REGION"}),
    ROW("s3://b/k", "HTTP/1.1 400",
        ERROR("AuthorizationHeaderMalformed", "<Region>eu-west-2</Region>"), true, -EREMOTE,
        {"AuthorizationHeaderMalformed", "to eu-west-2"}),
    ROW("s3://b/k", "HTTP/1.1 403\nx-amz-bucket-region: us-east-1", "", true, -EACCES,
        {"403", "policy"}),
    ROW("s3://b/k", "HTTP/1.1 418", "", true, -EIO, {"status 418", ""}),
    ROW("https://h/a", "HTTP/1.1 301", "", false, -EIO, {"status 301", ""}),
    ROW("https://h/a", "HTTP/1.1 403", "<html>no</html>", false, -EACCES,
        {"https://h answers with status 403", "nobody without a name"}),
    ROW("hf://datasets/o/n/a", "HTTP/1.1 401\nX-Error-Message: Invalid username or password.", "",
        false, -EACCES, {"status 401: Invalid username", "HF_TOKEN"}),
    ROW("hf://datasets/o/n/a", "HTTP/1.1 403", "", true, -EACCES, {"403", "gated"}),
};

TEST(test_refusals)
{
    struct remote_settings settings = settings_of(no_env);

    for (size_t i = 0; i < ARRAY_SIZE(refusal_rows); i++) {
        struct remote_place place = place_of(refusal_rows[i].url, &settings);
        struct remote_headers h;
        struct dl_error err = {0};

        assert_int_equal(read_lines(&h, refusal_rows[i].lines), 0);
        int r = remote_refusal(&place, &h, span_str(refusal_rows[i].body),
                               refusal_rows[i].is_signed, &err);
        if (r != refusal_rows[i].r || err.code != -r ||
            !strstr(err.message, refusal_rows[i].words[0]) ||
            !strstr(err.message, refusal_rows[i].words[1]) ||
            strcmp(err.path, refusal_rows[i].url) != 0)
            fail_msg("row %zu: %d, %s: %s", i, r, err.path, err.message);
        remote_place_deinit(&place);
    }
    remote_settings_deinit(&settings);
}
