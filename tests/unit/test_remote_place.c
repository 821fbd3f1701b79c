/* URLs as places, what is none, and the environment's settings for them. */
#include "tests/lib/harness.h"

#include "tests/lib/row.h"
#include "tests/unit/remote_case.h"

#include <errno.h>

/* 63 letters, as many as a name of DNS may have. */
#define LONG "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk"

static const char *const plain[] = {NULL};
static const char *const minio[] = {"AWS_ENDPOINT_URL=http://minio:9000/", NULL};
static const char *const below[] = {"AWS_ENDPOINT_URL_S3=https://Host.Example:443/s3/api//", NULL};
static const char *const china[] = {"AWS_DEFAULT_REGION=cn-north-1", NULL};
static const char *const ohio[] = {"AWS_REGION=us-east-2", "AWS_DEFAULT_REGION=x", NULL};
static const char *const mirror[] = {"HF_ENDPOINT=https://hub.example/m", NULL};

TEST(test_is_url)
{
    static const char *const yes[] = {"s3://", "gs://b", "https://h/p", "http://h", "hf://x/y"};
    static const char *const no[] = {"",        "/data/s3://b", "s3:/b",   "S3://b", "file:///etc",
                                     "ftp://h", "https",        "s3s://b", "s3:",    "data/x.tar"};

    for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
        assert_true(remote_is_url(yes[i]));
    for (size_t i = 0; i < ARRAY_SIZE(no); i++)
        assert_false(remote_is_url(no[i]));
}

/* s3 and gs: which host, which path, and a key that is never touched. */
TEST(test_buckets)
{
    static const struct {
        const char *const *env;
        const char *url, *origin, *base, *key, *region;
    } rows[] = {
        {plain, "s3://bucket/a/b", "https://bucket.s3.us-east-1.amazonaws.com", "/", "a/b",
         "us-east-1"},
        {ohio, "s3://bucket/a", "https://bucket.s3.us-east-2.amazonaws.com", "/", "a", "us-east-2"},
        {china, "s3://bucket/a", "https://bucket.s3.cn-north-1.amazonaws.com.cn", "/", "a",
         "cn-north-1"},
        /* No certificate holds for a host with more dots, and no host has capitals or "_". */
        {plain, "s3://my.bucket/a", "https://s3.us-east-1.amazonaws.com", "/my.bucket/", "a",
         "us-east-1"},
        {plain, "s3://My_Bucket/a", "https://s3.us-east-1.amazonaws.com", "/My_Bucket/", "a",
         "us-east-1"},
        {plain, "s3://ab/a", "https://s3.us-east-1.amazonaws.com", "/ab/", "a", "us-east-1"},
        {plain, "s3://bucket-/a", "https://s3.us-east-1.amazonaws.com", "/bucket-/", "a",
         "us-east-1"},
        {plain, "s3://" LONG "/a", "https://" LONG ".s3.us-east-1.amazonaws.com", "/", "a",
         "us-east-1"},
        {plain, "s3://" LONG "x/a", "https://s3.us-east-1.amazonaws.com", "/" LONG "x/", "a",
         "us-east-1"},
        {plain, "s3://abc/a", "https://abc.s3.us-east-1.amazonaws.com", "/", "a", "us-east-1"},
        {minio, "s3://bucket/a", "http://minio:9000", "/bucket/", "a", "us-east-1"},
        {below, "s3://bucket/a", "https://host.example", "/s3/api/bucket/", "a", "us-east-1"},
        {minio, "gs://my_bucket/a", "https://storage.googleapis.com", "/my_bucket/", "a", "auto"},
        {plain, "s3://bucket", "https://bucket.s3.us-east-1.amazonaws.com", "/", "", "us-east-1"},
        {minio, "s3://bucket/", "http://minio:9000", "/bucket/", "", "us-east-1"},
        {minio, "s3://b//a///b/", "http://minio:9000", "/b/", "/a///b/", "us-east-1"},
        {minio, "s3://b/../a/./b", "http://minio:9000", "/b/", "../a/./b", "us-east-1"},
        {minio, "s3://b/a b=+*%41%?x#y@\u00fc\xff", "http://minio:9000", "/b/",
         "a b=+*%41%?x#y@\u00fc\xff", "us-east-1"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct remote_settings settings = settings_of(rows[i].env);
        struct remote_place place = place_of(rows[i].url, &settings);

        assert_int_equal(place.kind, REMOTE_S3);
        assert_string_equal(place.url, rows[i].url);
        assert_string_equal(place.origin, rows[i].origin);
        assert_string_equal(remote_place_host(&place), strstr(rows[i].origin, "//") + 2);
        assert_string_equal(place.base, rows[i].base);
        assert_string_equal(place.key, rows[i].key);
        assert_string_equal(place.region, rows[i].region);
        remote_place_deinit(&place);
        remote_settings_deinit(&settings);
    }
}

TEST(test_http)
{
    static const struct {
        const char *url, *origin, *key, *query;
    } rows[] = {
        {"https://Host.example/a/b.tar", "https://host.example", "a/b.tar", NULL},
        {"http://h:80/a", "http://h", "a", NULL},
        {"https://h:443/a", "https://h", "a", NULL},
        {"http://h:443/a", "http://h:443", "a", NULL},
        {"http://[::1]:8080/a", "http://[::1]:8080", "a", NULL},
        {"https://h", "https://h", "", NULL},
        {"https://h?x=1", "https://h", "", "x=1"},
        {"https://h/a?", "https://h", "a", ""},
        {"https://h/a?b=%41/..&c=d e", "https://h", "a", "b=%41/..&c=d%20e"},
        /* What is encoded stays so, and what has to be is. */
        {"https://h/a%20b/%2F c\u00fc{0}\"[x]", "https://h", "a%20b/%2F%20c%C3%BC%7B0%7D%22%5Bx%5D",
         NULL},
        {"https://h/100%/%zz%4", "https://h", "100%25/%25zz%254", NULL},
        {"https://h/a//b/...", "https://h", "a//b/...", NULL},
        {"https://h/@user/a:b", "https://h", "@user/a:b", NULL},
    };
    struct remote_settings settings = settings_of(plain);

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct remote_place place = place_of(rows[i].url, &settings);

        assert_int_equal(place.kind, REMOTE_HTTP);
        assert_string_equal(place.origin, rows[i].origin);
        assert_string_equal(place.base, "/");
        assert_string_equal(place.key, rows[i].key);
        assert_int_equal(!place.query, !rows[i].query);
        if (place.query)
            assert_string_equal(place.query, rows[i].query);
        remote_place_deinit(&place);
    }
    remote_settings_deinit(&settings);
}

TEST(test_hub)
{
    static const struct {
        const char *const *env;
        const char *url, *base, *repo, *api, *revision, *key;
    } rows[] = {
        {plain, "hf://datasets/o/n/a/b.parquet", "/", "datasets/o/n", "datasets/o/n", "main",
         "a/b.parquet"},
        {mirror, "hf://datasets/o/n@v1.0/a b%41", "/m/", "datasets/o/n", "datasets/o/n", "v1.0",
         "a b%41"},
        {plain, "hf://spaces/o/n/a", "/", "spaces/o/n", "spaces/o/n", "main", "a"},
        {plain, "hf://o/n/a", "/", "o/n", "models/o/n", "main", "a"},
        {plain, "hf://models/o-1/n_2.x/a", "/", "o-1/n_2.x", "models/o-1/n_2.x", "main", "a"},
        {plain, "hf://datasets/o/n", "/", "datasets/o/n", "datasets/o/n", "main", ""},
        {plain, "hf://datasets/o/n@abc", "/", "datasets/o/n", "datasets/o/n", "abc", ""},
        {plain, "hf://datasets/o/n@refs/convert/parquet/d/x", "/", "datasets/o/n", "datasets/o/n",
         "refs/convert/parquet", "d/x"},
        {plain, "hf://datasets/o/n@refs/pr/3", "/", "datasets/o/n", "datasets/o/n", "refs/pr/3",
         ""},
        {plain, "hf://datasets/o/n@my%2Fbranch/x@y", "/", "datasets/o/n", "datasets/o/n",
         "my/branch", "x@y"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct remote_settings settings = settings_of(rows[i].env);
        struct remote_place place = place_of(rows[i].url, &settings);

        assert_int_equal(place.kind, REMOTE_HF);
        assert_string_equal(place.base, rows[i].base);
        assert_string_equal(place.repo, rows[i].repo);
        assert_string_equal(place.api, rows[i].api);
        assert_string_equal(place.revision, rows[i].revision);
        assert_string_equal(place.key, rows[i].key);
        remote_place_deinit(&place);
        remote_settings_deinit(&settings);
    }
}

/* What is no place: said by whose URL, why, and what to write; a password is not said again. */
TEST(test_none)
{
    static const struct {
        const char *url, *path, *words;
    } rows[] = {
        {"/data/x", "/data/x", "begin with s3://"},
        {"s3://", "s3://", "no bucket"},
        {"s3:///key", "s3:///key", "no bucket"},
        {"s3://KEY:SECRET@bucket/a", "s3://*@bucket/a", "~/.aws/credentials"},
        {"s3://b%20c/a", "s3://b%20c/a", "other than letters"},
        {"s3://b:c/a", "s3://b:c/a", "other than letters"},
        {"s3://../a", "s3://../a", "no bucket has such a name"},
        {"s3://arn:aws:s3:us-east-1:1:accesspoint/x/k",
         "s3://arn:aws:s3:us-east-1:1:accesspoint/x/k", "alias"},
        {"https://", "https://", "no host"},
        {"https:///a", "https:///a", "no host"},
        {"https://user:SECRET@h/a", "https://*@h/a", "user or a password"},
        {"https://h@/a", "https://*@/a", "user or a password"},
        {"https://h:/a@b", "https://h:/a@b", NULL},
        {"https://h:0/a", "https://h:0/a", "1 to 65535"},
        {"https://h:65536/a", "https://h:65536/a", "1 to 65535"},
        {"https://h:8x/a", "https://h:8x/a", "1 to 65535"},
        {"https://h:000080/a", "https://h:000080/a", "1 to 65535"},
        {"https://h%41/a", "https://h%41/a", "no host's name"},
        {"https://h\\a", "https://h\\a", "no host's name"},
        {"https://b\u00fccher.example/a", "https://b\u00fccher.example/a", "xn--"},
        {"https://[::1/a", "https://[::1/a", "IPv6"},
        {"https://[x]/a", "https://[x]/a", "IPv6"},
        {"https://[]/a", "https://[]/a", "IPv6"},
        {"https://h/a#b", "https://h/a#b", "%23"},
        {"https://h/a/../b", "https://h/a/../b", "without it"},
        {"https://h/..", "https://h/..", "without it"},
        {"https://h/./b", "https://h/./b", "without it"},
        {"https://h/a/%2e%2E/b", "https://h/a/%2e%2E/b", "without it"},
        {"https://h/a/.%2e", "https://h/a/.%2e", "without it"},
        {"hf://", "hf://", "hf://datasets/OWNER/NAME"},
        {"hf://datasets/squad/a@b", "hf://datasets/squad/a@b", NULL},
        {"hf://datasets/squad", "hf://datasets/squad", "hf://datasets/OWNER/NAME"},
        {"hf://datasets/../n/a", "hf://datasets/../n/a", "hf://datasets/OWNER/NAME"},
        {"hf://datasets/o/n%20/a", "hf://datasets/o/n%20/a", "hf://datasets/OWNER/NAME"},
        {"hf://datasets/o/n@/a", "hf://datasets/o/n@/a", "revision"},
        {"hf://datasets/o/n@%/a", "hf://datasets/o/n@%/a", "revision"},
        {"hf://datasets/o/n@%2e%2e/a", "hf://datasets/o/n@%2e%2e/a", "revision"},
        {"hf://datasets/o/n@a%0Ab/a", "hf://datasets/o/n@a%0Ab/a", "revision"},
        {"hf://datasets/o/n/a/../b", "hf://datasets/o/n/a/../b", "without it"},
    };
    struct remote_settings settings = settings_of(plain);

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct remote_place place;
        struct dl_error err = {0};
        int r = remote_place_parse(rows[i].url, &settings, &place, &err);

        if (r != (rows[i].words ? -EINVAL : 0))
            fail_msg("%s: %d, %s", rows[i].url, r, err.message);
        if (r == 0) {
            remote_place_deinit(&place);
            continue;
        }
        assert_null(place.url);
        assert_null(place.origin);
        assert_string_equal(err.path, rows[i].path);
        if (!strstr(err.message, rows[i].words) || strstr(err.message, "SECRET"))
            fail_msg("%s: %s", rows[i].url, err.message);
    }
    remote_settings_deinit(&settings);
}

TEST(test_length)
{
    struct remote_settings settings = settings_of(plain);
    char url[REMOTE_URL_MAX + 2];
    struct remote_place place;
    struct dl_error err = {0};

    memset(url, 'a', sizeof url);
    memcpy(url, "s3://b/", 7);
    url[REMOTE_URL_MAX] = '\0';
    place = place_of(url, &settings);
    remote_place_deinit(&place);
    url[REMOTE_URL_MAX] = 'a';
    url[REMOTE_URL_MAX + 1] = '\0';
    assert_int_equal(remote_place_parse(url, &settings, &place, &err), -EINVAL);
    assert_non_null(strstr(err.message, "8192"));
    remote_settings_deinit(&settings);
}

/* Which variable counts, and which the profile has. */
TEST(test_settings)
{
    static char region[] = "eu-west-1", endpoint[] = "http://profile:1";
    const struct remote_profile profile = {.region = region, .endpoint = endpoint};
    static const struct {
        const char *env[4];
        bool has_profile;
        const char *endpoint, *region, *hub, *token, *google; /* NULL: the default */
    } rows[] = {
        ROW({NULL}, false, NULL, "us-east-1", NULL, NULL, NULL),
        ROW({NULL}, true, "http://profile:1", "eu-west-1", NULL, NULL, NULL),
        ROW({"AWS_ENDPOINT_URL=http://a", "AWS_ENDPOINT_URL_S3=http://b", "AWS_REGION="}, true,
            "http://b", "eu-west-1", NULL, NULL, NULL),
        ROW({"AWS_ENDPOINT_URL=http://a", "AWS_DEFAULT_REGION=r-1", "HF_TOKEN=hf_x"}, true,
            "http://a", "r-1", NULL, "hf_x", NULL),
        ROW({"HF_ENDPOINT=http://h:80/x/", "AWS_REGION=r-2", "AWS_DEFAULT_REGION=r-1"}, false, NULL,
            "r-2", "http://h/x", NULL, NULL),
        ROW({"CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE=https://g/", "AWS_ENDPOINT_URL=http://a"},
            false, "http://a", "us-east-1", NULL, NULL, "https://g"),
    };
    static const char *const bad[][2] = {
        {"AWS_ENDPOINT_URL=minio:9000", "AWS_ENDPOINT_URL: it begins neither"},
        {"AWS_ENDPOINT_URL_S3=http://u:SECRET@h", "AWS_ENDPOINT_URL_S3: it has a user"},
        {"AWS_ENDPOINT_URL=http://h/a b", "AWS_ENDPOINT_URL: its path"},
        {"AWS_ENDPOINT_URL=http://h/a/../b", "AWS_ENDPOINT_URL: its path"},
        {"AWS_ENDPOINT_URL=http://h/a?b", "AWS_ENDPOINT_URL: its path"},
        {"AWS_REGION=eu.evil.example/", "AWS_REGION: \"eu.evil.example/\" is no region"},
        {"HF_TOKEN=SECRET\nX: y", "HF_TOKEN: there is a control character"},
        {"HF_ENDPOINT=hub", "HF_ENDPOINT: it begins neither"},
        {"CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE=g",
         "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE: it begins neither"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct remote_settings s;
        struct dl_error err = {0};

        assert_int_equal(remote_settings_from(get_of_list, (void *)(uintptr_t)rows[i].env,
                                              rows[i].has_profile ? &profile : NULL, &s, &err),
                         0);
        assert_string_equal(s.endpoint ? s.endpoint : "", rows[i].endpoint ? rows[i].endpoint : "");
        assert_string_equal(s.region, rows[i].region);
        assert_string_equal(s.hf_endpoint, rows[i].hub ? rows[i].hub : "https://huggingface.co");
        assert_string_equal(s.gs_endpoint,
                            rows[i].google ? rows[i].google : "https://storage.googleapis.com");
        assert_string_equal(s.hf_token ? s.hf_token : "", rows[i].token ? rows[i].token : "");
        remote_settings_deinit(&s);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        const char *env[] = {bad[i][0], NULL};
        struct remote_settings s;
        struct dl_error err = {0};

        assert_int_equal(remote_settings_from(get_of_list, (void *)env, NULL, &s, &err), -EINVAL);
        if (strncmp(err.message, bad[i][1], strlen(bad[i][1])) != 0 ||
            strstr(err.message, "SECRET"))
            fail_msg("%s: %s", bad[i][0], err.message);
        assert_null(s.region);
    }
}
