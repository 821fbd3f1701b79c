/*
 * Signatures beside those that Amazon publishes: the GET requests of its Signature Version 4 test
 * suite (github.com/awslabs/aws-c-auth, tests/aws-signing-test-suite/v4) and of "Authenticating
 * Requests: Using the Authorization Header" in the S3 API Reference. Of the suite are left out: its
 * normalised twins of paths with "." and "//", as S3 keeps these; header-value-multiline, as no
 * header has more than a line any more; and POST. Of its signatures those in headers are here.
 */
#include "tests/lib/harness.h"
#include "tests/lib/row.h"

#include "daemon/remote/sigv4.h"

#include <stdio.h>

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define OTHERS  "-._~0123456789" LETTERS
#define TOKEN   "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"
#define EMPTY                               \
    {                                       \
        "x-amz-content-sha256", SIGV4_EMPTY \
    }

static struct sigv4_crypto crypto;

struct vector {
    const char *name, *path;
    struct sigv4_pair query[4];   /* up to the first without a name */
    struct sigv4_pair headers[5]; /* besides host and date */
    const char *signature;
};

/* 2015-08-30 12:36:00, region us-east-1, service "service". */
static const struct vector suite[] = {
    ROW("get-vanilla", "/",
        .signature = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
    ROW("get-vanilla-empty-query-key", "/", {{"Param1", "value1"}},
        .signature = "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"),
    ROW("get-vanilla-query-order-key-case", "/", {{"Param2", "value2"}, {"Param1", "value1"}},
        .signature = "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
    ROW("get-vanilla-query-order-encoded", "/",
        {{"Param-3", "Value3"}, {"Param", "Value2"}, {"\u1234", "Value1"}},
        .signature = "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac"),
    ROW("get-vanilla-query-unreserved", "/", {{OTHERS, OTHERS}},
        .signature = "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"),
    ROW("get-vanilla-utf8-query", "/", {{"\u1234", "bar"}},
        .signature = "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"),
    ROW("get-vanilla-with-session-token", "/", .headers = {{"X-Amz-Security-Token", TOKEN}},
        .signature = "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"),
    ROW("get-header-key-duplicate", "/",
        .headers = {{"My-Header1", "value2"}, {"My-Header1", "value2"}, {"My-Header1", "value1"}},
        .signature = "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"),
    ROW("get-header-value-order", "/",
        .headers = {{"My-Header1", "value4"},
                    {"My-Header1", "value1"},
                    {"My-Header1", "value3"},
                    {"My-Header1", "value2"}},
        .signature = "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01"),
    ROW("get-header-value-trim", "/",
        .headers = {{"My-Header1", " value1"}, {"My-Header2", " \"a   b   c\""}},
        .signature = "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"),
    ROW("get-unreserved", "/" OTHERS,
        .signature = "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"),
    ROW("get-utf8", "/\u1234",
        .signature = "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"),
    ROW("get-space-unnormalized", "/example space/",
        .signature = "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"),
    ROW("get-relative-unnormalized", "/example/..",
        .signature = "eca7ead57bb5aa5c8e28007acd4ff04e1ff9a0ff3b237ec1554a184887ff9282"),
    ROW("get-relative-relative-unnormalized", "/example1/example2/../..",
        .signature = "dc33e0856fd4baca4d7aa2146c38958283844764f38c74252a333df5e613003b"),
    ROW("get-slash-dot-slash-unnormalized", "/./",
        .signature = "68714168e6557f8f2de0ef956fc24dc2593a4bd2961f8df51898d8a134695145"),
    ROW("get-slash-pointless-dot-unnormalized", "/./example",
        .signature = "beb03f223f7deae4146464f06e29eebbee9c8afbe15c290cf07aa8b119e14cff"),
    ROW("get-slash-unnormalized", "//",
        .signature = "c88bcd3d312d75078c0cd961d6deae3f4c754924b01669efcfcb439fd5e5b76e"),
    ROW("get-slashes-unnormalized", "//example//",
        .signature = "87cca117541a147f6df867677d98a7d80dff226d2bfca9e4ffa899665623c7e5"),
};

/* 2013-05-24 00:00:00, region us-east-1, service s3. */
static const struct vector s3[] = {
    ROW("GET Object, with a range", "/test.txt", .headers = {{"Range", "bytes=0-9"}, EMPTY},
        .signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
    ROW("GET Bucket Lifecycle", "/", {{"lifecycle", ""}}, {EMPTY},
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
    ROW("GET Bucket, with a prefix", "/", {{"prefix", "J"}, {"max-keys", "2"}}, {EMPTY},
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
};

static void check(const struct vector *vector, const struct sigv4_signer *signer, const char *host)
{
    struct sigv4_pair headers[8];
    char time[SIGV4_TIME_MAX];
    struct sigv4_request request = {.method = "GET",
                                    .path = vector->path,
                                    .query = vector->query,
                                    .headers = headers,
                                    .payload = SIGV4_EMPTY};

    sigv4_time(signer->now, time);
    for (; vector->headers[request.n_headers].name; request.n_headers++)
        headers[request.n_headers] = vector->headers[request.n_headers];
    headers[request.n_headers++] = (struct sigv4_pair){"X-Amz-Date", time};
    headers[request.n_headers++] = (struct sigv4_pair){"Host", host};
    while (request.n_query < 4 && vector->query[request.n_query].name)
        request.n_query++;
    char *value = sigv4_authorization(&request, signer);
    const char *signature = value ? strstr(value, "Signature=") : NULL;
    if (!signature || strcmp(signature + 10, vector->signature) != 0) {
        char *canonical = sigv4_canonical(&request);

        fail_msg("%s: %s of\n%s", vector->name, value, canonical);
    }
    free(value);
}

TEST(test_suite)
{
    const struct sigv4_signer signer = {.crypto = &crypto,
                                        .access_key = "AKIDEXAMPLE",
                                        .secret_key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                                        .region = "us-east-1",
                                        .service = "service",
                                        .now = 1440938160};

    for (size_t i = 0; i < ARRAY_SIZE(suite); i++)
        check(&suite[i], &signer, "example.amazonaws.com");
}

TEST(test_s3)
{
    const struct sigv4_signer signer = {.crypto = &crypto,
                                        .access_key = "AKIAIOSFODNN7EXAMPLE",
                                        .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                                        .region = "us-east-1",
                                        .service = "s3",
                                        .now = 1369353600};

    for (size_t i = 0; i < ARRAY_SIZE(s3); i++)
        check(&s3[i], &signer, "examplebucket.s3.amazonaws.com");
}

/* The whole value, and the canonical request that servers repeat in their errors. */
TEST(test_words)
{
    static const struct sigv4_pair headers[] = {{"x-amz-date", "20130524T000000Z"}, {"Host", "h"}},
                                   query[] = {{"b", "/ +"}, {"a", "2"}, {"a", "10"}};
    const struct sigv4_request request = {.method = "HEAD",
                                          .path = "/a b/%/+/~/*",
                                          .query = query,
                                          .n_query = 3,
                                          .headers = headers,
                                          .n_headers = 2,
                                          .payload = SIGV4_UNSIGNED};
    const struct sigv4_signer signer = {.crypto = &crypto,
                                        .access_key = "KEY",
                                        .secret_key = "SECRET",
                                        .region = "r-1",
                                        .service = "s3",
                                        .now = 1369353600};
    char *canonical = sigv4_canonical(&request), *value = sigv4_authorization(&request, &signer);

    assert_string_equal(canonical, "HEAD\n/a%20b/%25/%2B/~/%2A\na=10&a=2&b=%2F%20%2B\nhost:h\n"
                                   "x-amz-date:20130524T000000Z\n\nhost;x-amz-date\n"
                                   "UNSIGNED-PAYLOAD");
    assert_non_null(strstr(value, "AWS4-HMAC-SHA256 Credential=KEY/20130524/r-1/s3/aws4_request, "
                                  "SignedHeaders=host;x-amz-date, Signature="));
    assert_null(strstr(value, "SECRET"));
    free(canonical);
    free(value);
}

static unsigned char *no_hash(const unsigned char *data, size_t len, unsigned char *ret)
{
    return NULL;
}

static unsigned char *no_hmac(const void *type, const void *key, int key_len,
                              const unsigned char *data, size_t len, unsigned char *ret,
                              unsigned *ret_len)
{
    return NULL;
}

/* libcrypto may refuse, as where an administrator allows no SHA-256: there is no signature then. */
TEST(test_refused)
{
    struct sigv4_crypto broken[] = {crypto, crypto};
    const struct sigv4_request request = {.method = "GET", .path = "/", .payload = SIGV4_EMPTY};
    struct sigv4_signer signer = {
        .access_key = "K", .secret_key = "S", .region = "r", .service = "s3"};

    broken[0].sha256 = no_hash;
    broken[1].hmac = no_hmac;
    for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
        signer.crypto = &broken[i];
        assert_null(sigv4_authorization(&request, &signer));
    }
}

static unsigned hmac_calls, hmac_fails_at;
static bool hmac_is_short;

static unsigned char *some_hmac(const void *type, const void *key, int key_len,
                                const unsigned char *data, size_t len, unsigned char *ret,
                                unsigned *ret_len)
{
    bool now = hmac_calls++ == hmac_fails_at;

    if (now && !hmac_is_short)
        return NULL;
    unsigned char *made = crypto.hmac(type, key, key_len, data, len, ret, ret_len);
    *ret_len -= now;
    return made;
}

/* A key is made in four steps, and signs in a fifth: without any of them there is none. */
TEST(test_each_step)
{
    struct sigv4_crypto broken = crypto;
    const struct sigv4_request request = {.method = "GET", .path = "/", .payload = SIGV4_EMPTY};
    const struct sigv4_signer signer = {
        .crypto = &broken, .access_key = "K", .secret_key = "S", .region = "r", .service = "s3"};

    broken.hmac = some_hmac;
    for (int is_short = 0; is_short < 2; is_short++) {
        hmac_is_short = is_short;
        for (hmac_fails_at = 0; hmac_fails_at < 5; hmac_fails_at++) {
            hmac_calls = 0;
            assert_null(sigv4_authorization(&request, &signer));
            assert_int_equal(hmac_calls, hmac_fails_at + 1);
        }
        hmac_calls = 0;
        char *value = sigv4_authorization(&request, &signer);
        assert_non_null(value);
        assert_int_equal(hmac_calls, 5);
        free(value);
    }
}

/* Spaces and tabs: none around a value, and one where there are several in it. */
TEST(test_spaces)
{
    static const struct sigv4_pair headers[] = {{"A", "\t a"},
                                                {"B", "b\t "},
                                                {"C", "c\t \tc"},
                                                {"D", "d  d"},
                                                {"E", "e\te \t e"},
                                                {"F", "\t \t"},
                                                {"G", " "},
                                                {"H", ""},
                                                {"x-same", "2"},
                                                {"x-amz-date", "now"},
                                                {"X-Same", " 1\t\t1 "}};
    const struct sigv4_request request = {.method = "GET",
                                          .path = "/",
                                          .headers = headers,
                                          .n_headers = ARRAY_SIZE(headers),
                                          .payload = SIGV4_EMPTY};
    char *canonical = sigv4_canonical(&request);

    assert_string_equal(
        canonical,
        "GET\n/\n\na:a\nb:b\nc:c c\nd:d d\ne:e e e\nf:\ng:\nh:\n"
        "x-amz-date:now\nx-same:2,1 1\n\na;b;c;d;e;f;g;h;x-amz-date;x-same\n" SIGV4_EMPTY);
    free(canonical);
}

/* As many as there may be, in the order that they are in. */
TEST(test_most)
{
    struct sigv4_pair headers[SIGV4_PAIRS_MAX], query[SIGV4_PAIRS_MAX];
    char numbers[SIGV4_PAIRS_MAX][4], want[256] = "";
    const struct sigv4_request request = {.method = "GET",
                                          .path = "/",
                                          .headers = headers,
                                          .query = query,
                                          .n_headers = SIGV4_PAIRS_MAX,
                                          .n_query = SIGV4_PAIRS_MAX,
                                          .payload = SIGV4_EMPTY};

    for (int i = 0; i < SIGV4_PAIRS_MAX; i++) {
        snprintf(numbers[i], sizeof numbers[i], "%d", i);
        headers[i] = (struct sigv4_pair){"h", numbers[i]};
        query[i] = (struct sigv4_pair){"q", "v"};
        snprintf(want + strlen(want), sizeof want - strlen(want), "%s%d", i ? "," : "\nh:", i);
    }
    char *canonical = sigv4_canonical(&request);
    if (!strstr(canonical, want))
        fail_msg("%s", canonical);
    free(canonical);
}

/* Without libcrypto there is nothing to be tested. */

BEFORE_TESTS
{
    if (!sigv4_crypto_find(&crypto)) {
        printf("1..0 # SKIP no libcrypto\n");
        exit(0);
    }
}
