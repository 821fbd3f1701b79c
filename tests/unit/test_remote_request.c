/* Requests as they are sent, and which of their lines stay with their host. */
#include "tests/lib/harness.h"

#include "daemon/remote/request.h"
#include "tests/unit/remote_case.h"

#include <errno.h>
#include <stdio.h>

enum { NOW = 1369353600 }; /* 2013-05-24, of Amazon's examples */

static struct sigv4_crypto crypto;
static bool has_crypto;

static const char *const minio[] = {"AWS_ENDPOINT_URL=http://minio:9000", "HF_TOKEN=hf_secret",
                                    NULL};

/* Of Amazon's documentation; as if a user had them. */
static char access_key[] = "AKIAIOSFODNN7EXAMPLE",
            secret_key[] = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", token[] = "SESSION";
static const struct remote_credentials keys = {access_key, secret_key, NULL};
static const struct remote_credentials session = {access_key, secret_key, token};

/* "GET URL" and the lines, those of n_own behind "own: ", the signature cut off. */
static void check(const struct remote_request *request, const char *expected)
{
    char got[2048];
    int n = snprintf(got, sizeof got, "%s %s\n", request->method, request->url);

    for (uint32_t i = 0; i < request->n_headers; i++) {
        const char *line = request->headers[i], *signature = strstr(line, "Signature=");

        n +=
            snprintf(got + n, sizeof got - (size_t)n, "%s%.*s\n", i < request->n_own ? "own: " : "",
                     signature ? (int)(signature - line) + 10 : 1000, line);
    }
    if (strcmp(got, expected) != 0)
        fail_msg("%s\ninstead of\n%s", got, expected);
}

struct asked {
    const char *url;
    uint64_t first, last;
    const char *etag;
    const struct remote_credentials *keys;
    const char *expected;
};

static void check_bytes(const struct asked *row, const struct remote_settings *settings)
{
    struct remote_place place = place_of(row->url, settings);
    const struct remote_asker asker = {settings, row->keys, has_crypto ? &crypto : NULL, NOW};
    struct remote_request request;
    struct dl_error err = {0};

    if (remote_request_bytes(&place, &asker, row->first, row->last, row->etag, &request, &err) < 0)
        fail_msg("%s: %s", row->url, err.message);
    check(&request, row->expected);
    remote_request_deinit(&request);
    remote_place_deinit(&place);
}

#define HASH "own: x-amz-content-sha256: " SIGV4_EMPTY "\nown: x-amz-date: 20130524T000000Z\n"
#define SIGNED(names)                                                                          \
    "own: Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/" \
    "s3/aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date" names                \
    ", Signature=\n" HASH

TEST(test_bytes)
{
    static const struct asked rows[] = {
        {"s3://b/a b+%/\u00fc?#//..", 0, 9, NULL, NULL,
         "GET http://minio:9000/b/a%20b%2B%25/%C3%BC%3F%23//..\nRange: bytes=0-9\n"},
        {"s3://b/k", 10, UINT64_MAX, "\"e\"", NULL,
         "GET http://minio:9000/b/k\nown: If-Match: \"e\"\nRange: bytes=10-\n"},
        {"s3://b/k", 0, UINT64_MAX, "", NULL, "GET http://minio:9000/b/k\n"},
        {"s3://b/k/", 0, 0, "W/\"e\"", NULL, "GET http://minio:9000/b/k/\nRange: bytes=0-0\n"},
        {"https://h/a%20b?x=1", 5, 6, "\"e\"", &keys,
         "GET https://h/a%20b?x=1\nown: If-Match: \"e\"\nRange: bytes=5-6\n"},
        {"https://h", 0, UINT64_MAX, NULL, NULL, "GET https://h/\n"},
        {"hf://datasets/o/n@refs/pr/1/a b/c", 1, 2, "\"e\"", &keys,
         "GET https://huggingface.co/datasets/o/n/resolve/refs%2Fpr%2F1/a%20b/c\n"
         "own: Authorization: Bearer hf_secret\nRange: bytes=1-2\n"},
        {"hf://o/n/a", 0, UINT64_MAX, NULL, NULL,
         "GET https://huggingface.co/o/n/resolve/main/a\nown: Authorization: Bearer hf_secret\n"},
    };
    static const struct asked is_signed[] = {
        {"s3://b/k", 0, 9, "\"e\"", &keys,
         "GET http://minio:9000/b/k\n" SIGNED("") "own: If-Match: \"e\"\nRange: bytes=0-9\n"},
        {"s3://b/k", 0, UINT64_MAX, NULL, &session,
         "GET http://minio:9000/b/k\n" SIGNED(
             ";x-amz-security-token") "own: x-amz-security-token: SESSION\n"},
    };
    struct remote_settings settings = settings_of(minio);

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        check_bytes(&rows[i], &settings);
    for (size_t i = 0; i < ARRAY_SIZE(is_signed) && has_crypto; i++)
        check_bytes(&is_signed[i], &settings);
    remote_settings_deinit(&settings);
}

/* Keys as long as they come, each of whose bytes is three in the URL. */
TEST(test_long)
{
    enum { LONGEST = 1024 };
    struct remote_settings settings = settings_of(minio);
    const struct remote_asker asker = {.settings = &settings, .now = NOW};
    char url[LONGEST + 16] = "s3://b/", *end;
    struct remote_request request;

    memset(url + 7, '%', LONGEST);
    struct remote_place place = place_of(url, &settings);
    assert_int_equal(remote_request_bytes(&place, &asker, 0, UINT64_MAX, NULL, &request, NULL), 0);
    assert_int_equal(strlen(request.url), strlen("http://minio:9000/b/") + 3 * LONGEST);
    end = request.url + strlen("http://minio:9000/b/");
    for (size_t i = 0; i < LONGEST; i++)
        assert_memory_equal(end + 3 * i, "%25", 3);
    end[0] = '\0';
    assert_string_equal(request.url, "http://minio:9000/b/");
    end[0] = '%';
    remote_request_deinit(&request);
    remote_place_deinit(&place);
    remote_settings_deinit(&settings);
}

TEST(test_lists)
{
    static const struct {
        const char *url;
        struct remote_page page;
        const char *expected;
    } rows[] = {
        {"s3://b", {0}, "GET http://minio:9000/b/?delimiter=%2F&list-type=2\n"},
        {"s3://b/a b/c",
         {.most = 2, .next = "1/+="},
         "GET http://minio:9000/b/?continuation-token=1%2F%2B%3D&delimiter=%2F&list-type=2&"
         "max-keys=2&prefix=a%20b%2Fc\n"},
        {"s3://b/a/", {.is_deep = true}, "GET http://minio:9000/b/?list-type=2&prefix=a%2F\n"},
        {"hf://datasets/o/n",
         {0},
         "GET https://huggingface.co/api/datasets/o/n/tree/main?recursive=false\nown: "
         "Authorization: Bearer hf_secret\n"},
        {"hf://o/n@v/a b/c",
         {.is_deep = true, .most = 7, .next = "x="},
         "GET https://huggingface.co/api/models/o/n/tree/v/a%20b?recursive=true&limit=7&cursor=x%3D"
         "\nown: Authorization: Bearer hf_secret\n"},
    };
    struct remote_settings settings = settings_of(minio);
    const struct remote_asker asker = {.settings = &settings, .now = NOW};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct remote_place place = place_of(rows[i].url, &settings);
        struct remote_request request;

        assert_int_equal(remote_request_list(&place, &asker, &rows[i].page, &request, NULL), 0);
        check(&request, rows[i].expected);
        remote_request_deinit(&request);
        remote_place_deinit(&place);
    }
    remote_settings_deinit(&settings);
}

/* What is signed is what is sent: the bucket's name in the host, the path without it, and a list's
 * query; by Amazon's example of a list, but for list-type, which is newer than that. */
TEST(test_signature)
{
    static const char *const aws[] = {NULL};
    static const struct sigv4_pair headers[] = {
        {"host", "examplebucket.s3.us-east-1.amazonaws.com"},
        {"x-amz-content-sha256", SIGV4_EMPTY},
        {"x-amz-date", "20130524T000000Z"}};
    static const struct sigv4_pair query[] = {
        {"list-type", "2"}, {"max-keys", "2"}, {"prefix", "J"}, {"delimiter", "/"}};
    const struct sigv4_request list = {"GET", "/", query, headers, 4, 3, SIGV4_EMPTY};
    const struct sigv4_request object = {"GET", "/J/a b", NULL, headers, 0, 3, SIGV4_EMPTY};
    const struct sigv4_signer signer = {&crypto, access_key, secret_key, "us-east-1", "s3", NOW};
    struct remote_settings settings = settings_of(aws);
    struct remote_asker asker = {&settings, &keys, &crypto, NOW};
    struct remote_place folder = place_of("s3://examplebucket/J", &settings);
    struct remote_place file = place_of("s3://examplebucket/J/a b", &settings);
    struct remote_page page = {.most = 2};
    struct remote_request request;
    struct dl_error err;

    if (has_crypto) {
        char *expected = sigv4_authorization(&list, &signer);

        assert_int_equal(remote_request_list(&folder, &asker, &page, &request, NULL), 0);
        assert_string_equal(request.headers[0] + strlen("Authorization: "), expected);
        remote_request_deinit(&request);
        free(expected);
        expected = sigv4_authorization(&object, &signer);
        assert_int_equal(remote_request_bytes(&file, &asker, 3, 4, "\"e\"", &request, NULL), 0);
        assert_string_equal(request.headers[0] + strlen("Authorization: "), expected);
        remote_request_deinit(&request);
        free(expected);
    }
    asker.crypto = NULL;
    assert_int_equal(remote_request_bytes(&file, &asker, 0, UINT64_MAX, NULL, &request, &err),
                     -ENOPKG);
    assert_non_null(strstr(err.message, "libcrypto.so.3"));
    assert_null(request.url);
    remote_place_deinit(&folder);
    remote_place_deinit(&file);
    remote_settings_deinit(&settings);
}

TEST(test_none)
{
    static const struct {
        const char *url;
        uint64_t first, last;
        const char *etag, *words;
    } rows[] = {
        {"s3://b", 0, 1, NULL, "names a bucket"},
        {"hf://o/n", 0, 1, NULL, "names a folder"},
        {"hf://o/n/a/", 0, 1, NULL, "names a folder"},
        {"s3://b/k", 2, 1, NULL, "the last precedes"},
        {"s3://b/k", 0, 1, "\"a\r\nX: y\"", "control character"},
    };
    struct remote_settings settings = settings_of(minio);
    const struct remote_asker asker = {.settings = &settings, .now = NOW};
    const struct remote_page page = {0};
    struct remote_request request;
    struct remote_place place;
    struct dl_error err = {0};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        place = place_of(rows[i].url, &settings);
        assert_int_equal(remote_request_bytes(&place, &asker, rows[i].first, rows[i].last,
                                              rows[i].etag, &request, &err),
                         -EINVAL);
        assert_string_equal(err.path, rows[i].url);
        assert_non_null(strstr(err.message, rows[i].words));
        assert_null(request.url);
        remote_place_deinit(&place);
    }
    place = place_of("https://h/a/", &settings);
    assert_int_equal(remote_request_list(&place, &asker, &page, &request, &err), -ENOTSUP);
    assert_non_null(strstr(err.message, "{000..127}"));
    remote_place_deinit(&place);
    remote_settings_deinit(&settings);
}

BEFORE_TESTS
{
    has_crypto = sigv4_crypto_find(&crypto);
}
