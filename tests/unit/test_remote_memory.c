/* Memory runs out at each allocation in turn: -ENOMEM in words, nothing left behind, nothing half.
 */
#include "tests/lib/harness.h"

#include "daemon/remote/issuer.h"
#include "daemon/remote/listing.h"
#include "daemon/remote/request.h"
#include "tests/unit/fail_alloc.h"
#include "tests/unit/remote_case.h"

#include <errno.h>
#include <malloc.h>

static const char *const env[] = {
    "AWS_ENDPOINT_URL=http://h:9/x",    "HF_TOKEN=TOPSECRET1",          "AWS_ACCESS_KEY_ID=A",
    "AWS_SECRET_ACCESS_KEY=TOPSECRET2", "AWS_SESSION_TOKEN=TOPSECRET3", NULL};

static struct sigv4_crypto crypto;
static bool is_watched;       /* what is freed is looked at */
static unsigned freed, dirty; /* blocks since then; and those with a secret */

void __real_free(void *block);
void __wrap_free(void *block);
void __wrap_free(void *block)
{
    static const char secret[] = "TOPSECRET";

    if (is_watched && block) {
        freed++;
        dirty += memmem(block, malloc_usable_size(block), secret, sizeof secret - 1) != NULL;
    }
    __real_free(block);
}

/* One URL through all of it; 0, or the first error. */
static int run(const char *url, struct dl_error *err)
{
    static const char xml[] =
        "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>n"
        "</NextContinuationToken><Contents><Key>d/k</Key><Size>1</Size><ETag>e</ETag></Contents>"
        "<CommonPrefixes><Prefix>d/k/</Prefix></CommonPrefixes></ListBucketResult>";
    static const char json[] = "[{\"type\":\"file\",\"path\":\"d/k\",\"size\":1,\"oid\":\"e\"}]";
    static const char file[] = "[default]\nregion=r\nendpoint_url=http://e\n";
    void *of = (void *)(uintptr_t)env;
    struct remote_profile profile = {0};
    struct remote_settings settings = {0};
    struct remote_place place = {0};
    struct remote_request request = {0};
    struct remote_listing listing = {0};
    struct remote_headers headers;
    struct remote_page page = {.next = "n"};
    struct remote_asker asker = {&settings, &profile.credentials, &crypto, 1};

    remote_headers_init(&headers);
    int r = remote_profile_from(get_of_list, of, span_str(file), span_str(file), &profile, err);
    if (r == 0)
        r = remote_settings_from(get_of_list, of, &profile, &settings, err);
    if (r == 0)
        r = remote_place_parse(url, &settings, &place, err);
    if (r == 0)
        r = remote_request_bytes(&place, &asker, 1, 2, "\"e\"", &request, err);
    if (r == 0) {
        remote_request_deinit(&request);
        r = place.kind == REMOTE_HTTP ? 0
                                      : remote_request_list(&place, &asker, &page, &request, err);
    }
    if (r == 0 && place.kind != REMOTE_HTTP) {
        const char *body = place.kind == REMOTE_S3 ? xml : json;

        r = remote_listing_read(&place, span_str(body), &headers, &listing, err);
        assert_int_equal(listing.n, r < 0 ? 0 : place.kind == REMOTE_S3 ? 2 : 1);
    }
    assert_true(r == 0 || listing.next == NULL);
    remote_listing_deinit(&listing);
    remote_request_deinit(&request);
    remote_place_deinit(&place);
    remote_settings_deinit(&settings);
    remote_profile_deinit(&profile);
    return r;
}

static const char *const issuers[][5] = {
    {"AWS_WEB_IDENTITY_TOKEN_FILE=/t", "AWS_ROLE_ARN=r", NULL},
    {"AWS_CONTAINER_CREDENTIALS_FULL_URI=http://localhost/",
     "AWS_CONTAINER_AUTHORIZATION_TOKEN=TOPSECRET4", NULL},
    {NULL},
};

/* Keys that are issued, from who issues them to what it answers. */
static int run_issuer(const char *const *list, struct dl_error *err)
{
    static const char xml[] =
        "<A><Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>TOPSECRET5</SecretAccessKey>"
        "<SessionToken>TOPSECRET6</SessionToken></Credentials></A>";
    static const char json[] =
        "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"TOPSECRET5\",\"Token\":\"TOPSECRET6\"}";
    void *of = (void *)(uintptr_t)list;
    struct remote_profile profile = {0};
    struct remote_settings settings = {0};
    struct remote_issuer issuer = {0};
    struct remote_issuer_request request = {0};
    struct remote_issued issued = {0};
    int r = remote_profile_from(get_of_list, of, span_str(""), span_str(""), &profile, err);

    if (r == 0)
        r = remote_settings_from(get_of_list, of, &profile, &settings, err);
    if (r == 0)
        r = remote_issuer_choose(get_of_list, of, &profile, &settings, &issuer, err);
    if (r == 0)
        r = remote_issuer_ask(&issuer, ISSUER_KEYS, "TOPSECRET7", "role", &request, err);
    if (r == 0)
        r = remote_issuer_take(
            &issuer, 200, span_str(issuer.kind == ISSUER_WEB_IDENTITY ? xml : json), &issued, err);
    assert_int_equal(remote_credentials_are_there(&issued.credentials), r == 0);
    remote_credentials_deinit(&issued.credentials);
    remote_issuer_request_deinit(&request);
    remote_issuer_deinit(&issuer);
    remote_settings_deinit(&settings);
    remote_profile_deinit(&profile);
    return r;
}

TEST(test_issuers)
{
    for (size_t i = 0; i < ARRAY_SIZE(issuers); i++) {
        for (int k = 0;; k++) {
            struct dl_error err = {0};

            fail_in = k;
            int r = run_issuer(issuers[i], &err);
            bool ran_out = fail_in < 0;
            fail_in = -1;
            if (!ran_out) {
                assert_int_equal(r, 0);
                assert_true(k > 10);
                break;
            }
            /* Of JSON that cannot be read for that nobody can say why. */
            if (r == 0 || (r != -ENOMEM && r != -EBADMSG) || err.code != -r)
                fail_msg("issuer %zu, allocation %d: %d, %s", i, k, r, err.message);
        }
    }
}

TEST(test_each)
{
    static const char *const urls[] = {"s3://b/d/k", "gs://b/d/k", "https://h/d/k?q",
                                       "hf://datasets/o/n@a%2Fb/d/k"};

    (void)sigv4_crypto_find(&crypto);
    for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
        for (int k = 0;; k++) {
            struct dl_error err = {0};

            fail_in = k;
            int r = run(urls[i], &err);
            bool ran_out = fail_in < 0;
            fail_in = -1;
            if (!ran_out) {
                assert_true(r == 0 || (!crypto.sha256 && r == -ENOPKG));
                assert_true(k > 20);
                break;
            }
            if (r != -ENOMEM || err.code != ENOMEM)
                fail_msg("%s, allocation %d: %d, %s", urls[i], k, r, err.message);
        }
    }
}

TEST(test_secrets)
{
    static const char *const urls[] = {"s3://b/d/k", "hf://datasets/o/n/d/k"};
    struct dl_error err = {0};

    for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
        is_watched = true;
        int r = run(urls[i], &err);
        is_watched = false;
        assert_true(r == 0 || (!crypto.sha256 && r == -ENOPKG));
    }
    is_watched = true;
    int r = run_issuer(issuers[0], &err);
    is_watched = false;
    assert_int_equal(r, 0);
    assert_true(freed > 50);
    assert_int_equal(dirty, 0);
}
