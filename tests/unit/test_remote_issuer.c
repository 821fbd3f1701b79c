/* Who is asked for keys, what for, and what is made of the answers; and when others are asked for.
 */
#include "tests/lib/harness.h"

#include "daemon/fetcher/keys.h"
#include "tests/lib/row.h"
#include "tests/unit/remote_case.h"

#include <errno.h>
#include <stdio.h>

#define ROLE     "arn:aws:iam::1:role/r"
#define IDENTITY "AWS_WEB_IDENTITY_TOKEN_FILE=/t", "AWS_ROLE_ARN=" ROLE

static int choose(const char *const *env, const char *config, struct remote_issuer *ret,
                  struct dl_error *err)
{
    void *of = (void *)(uintptr_t)env;
    struct remote_profile profile = {0};
    struct remote_settings settings = {0};
    int r =
        remote_profile_from(get_of_list, of, (struct dl_span){0}, span_str(config), &profile, err);

    *ret = (struct remote_issuer){0};
    if (r == 0)
        r = remote_settings_from(get_of_list, of, &profile, &settings, err);
    if (r == 0)
        r = remote_issuer_choose(get_of_list, of, &profile, &settings, ret, err);
    remote_settings_deinit(&settings);
    remote_profile_deinit(&profile);
    return r;
}

static bool same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static const struct {
    const char *env[6], *config;
    enum remote_issuer_kind kind;
    const char *url, *role, *session, *token_file, *token;
} chosen[] = {
    ROW({NULL}, "", ISSUER_INSTANCE, "http://169.254.169.254"),
    ROW({"AWS_EC2_METADATA_DISABLED=true"}, "", ISSUER_NONE),
    ROW({"AWS_EC2_METADATA_DISABLED=TRUE"}, "", ISSUER_NONE),
    ROW({"AWS_EC2_METADATA_DISABLED=false"}, "", ISSUER_INSTANCE, "http://169.254.169.254"),
    ROW({"AWS_EC2_METADATA_DISABLED="}, "", ISSUER_INSTANCE, "http://169.254.169.254"),
    ROW({"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE=IPv6"}, "", ISSUER_INSTANCE,
        "http://[fd00:ec2::254]"),
    ROW({"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE=IPv4"}, "", ISSUER_INSTANCE,
        "http://169.254.169.254"),
    ROW({"AWS_EC2_METADATA_SERVICE_ENDPOINT=http://h:1//"}, "", ISSUER_INSTANCE, "http://h:1"),
    ROW({"AWS_ACCESS_KEY_ID=A", "AWS_SECRET_ACCESS_KEY=S", IDENTITY}, "", ISSUER_NONE),
    ROW({IDENTITY}, "", ISSUER_WEB_IDENTITY, "https://sts.us-east-1.amazonaws.com", ROLE,
        "dloaderd", "/t"),
    ROW({IDENTITY, "AWS_ROLE_SESSION_NAME=s", "AWS_REGION=cn-north-1"}, "", ISSUER_WEB_IDENTITY,
        "https://sts.cn-north-1.amazonaws.com.cn", ROLE, "s", "/t"),
    ROW({IDENTITY, "AWS_ENDPOINT_URL=http://m:9"}, "", ISSUER_WEB_IDENTITY, "http://m:9", ROLE,
        "dloaderd", "/t"),
    ROW({IDENTITY, "AWS_ENDPOINT_URL=http://m:9", "AWS_ENDPOINT_URL_STS=http://s/p"}, "",
        ISSUER_WEB_IDENTITY, "http://s/p", ROLE, "dloaderd", "/t"),
    /* The environment's before the profile's, and either part of either. */
    ROW({NULL},
        "[default]\nrole_arn = r\nweb_identity_token_file = /p\nrole_session_name = n\nregion=x",
        ISSUER_WEB_IDENTITY, "https://sts.x.amazonaws.com", "r", "n", "/p"),
    ROW({IDENTITY}, "[default]\nrole_arn = r\nweb_identity_token_file = /p\n", ISSUER_WEB_IDENTITY,
        "https://sts.us-east-1.amazonaws.com", ROLE, "dloaderd", "/t"),
    ROW({IDENTITY}, "[default]\naws_access_key_id=A\naws_secret_access_key=S\n",
        ISSUER_WEB_IDENTITY, "https://sts.us-east-1.amazonaws.com", ROLE, "dloaderd", "/t"),
    ROW({IDENTITY, "AWS_REGION=cnx-1", "AWS_ROLE_SESSION_NAME="}, "", ISSUER_WEB_IDENTITY,
        "https://sts.cnx-1.amazonaws.com", ROLE, "dloaderd", "/t"),
    ROW({"AWS_WEB_IDENTITY_TOKEN_FILE=", "AWS_ROLE_ARN="}, "", ISSUER_INSTANCE,
        "http://169.254.169.254"),
    ROW({"AWS_WEB_IDENTITY_TOKEN_FILE=", "AWS_ROLE_ARN="},
        "[default]\nrole_arn = r\nweb_identity_token_file = /p\n", ISSUER_WEB_IDENTITY,
        "https://sts.us-east-1.amazonaws.com", "r", "dloaderd", "/p"),
    ROW({"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=/v2/x"},
        "[default]\naws_access_key_id=A\naws_secret_access_key=S\n", ISSUER_NONE),
    ROW({"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=/v2/x"}, "", ISSUER_CONTAINER,
        "http://169.254.170.2/v2/x"),
    ROW({"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=/v2/x",
         "AWS_CONTAINER_CREDENTIALS_FULL_URI=http://localhost/y"},
        "", ISSUER_CONTAINER, "http://169.254.170.2/v2/x"),
    ROW({"AWS_CONTAINER_CREDENTIALS_FULL_URI=http://[fd00:ec2::23]/v1/c",
         "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=/f", "AWS_CONTAINER_AUTHORIZATION_TOKEN=T"},
        "", ISSUER_CONTAINER, "http://[fd00:ec2::23]/v1/c", .token_file = "/f"),
    ROW({"AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1:80?x",
         "AWS_CONTAINER_AUTHORIZATION_TOKEN=T"},
        "", ISSUER_CONTAINER, "http://127.0.0.1:80?x", .token = "T"),
    ROW({"AWS_CONTAINER_CREDENTIALS_FULL_URI=https://far.example/"}, "", ISSUER_CONTAINER,
        "https://far.example/"),
};

TEST(test_chosen)
{
    for (size_t i = 0; i < ARRAY_SIZE(chosen); i++) {
        struct remote_issuer issuer;
        struct dl_error err = {0};

        if (choose(chosen[i].env, chosen[i].config, &issuer, &err) < 0)
            fail_msg("row %zu: %s", i, err.message);
        if (issuer.kind != chosen[i].kind || !same(issuer.url, chosen[i].url) ||
            !same(issuer.role, chosen[i].role) || !same(issuer.session, chosen[i].session) ||
            !same(issuer.token_file, chosen[i].token_file) || !same(issuer.token, chosen[i].token))
            fail_msg("row %zu: %d, %s, %s, %s, %s, %s", i, issuer.kind, issuer.url, issuer.role,
                     issuer.session, issuer.token_file, issuer.token);
        remote_issuer_deinit(&issuer);
    }
}

TEST(test_not_chosen)
{
    static const struct {
        const char *env[6], *config;
        int r;
        const char *words;
    } rows[] = {
        ROW({"AWS_EC2_METADATA_SERVICE_ENDPOINT=h"}, "", -EINVAL,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT"),
        ROW({IDENTITY, "AWS_ENDPOINT_URL_STS=ftp://h"}, "", -EINVAL, "AWS_ENDPOINT_URL_STS"),
        ROW({"AWS_WEB_IDENTITY_TOKEN_FILE=/t"}, "", -EINVAL, "set AWS_ROLE_ARN"),
        ROW({NULL}, "[default]\nweb_identity_token_file=/t\n", -EINVAL, "role_arn of the profile"),
        ROW({IDENTITY}, "[default]\nrole_arn = r\nsource_profile = x\n", -ENOTSUP, "by role_arn"),
        ROW({"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=x"}, "", -EINVAL, "it is no path"),
        ROW({"AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1.evil.example/"}, "", -EACCES,
            "https"),
        ROW({"AWS_CONTAINER_CREDENTIALS_FULL_URI=http://192.168.0.1/"}, "", -EACCES, "in clear"),
        ROW({"AWS_CONTAINER_CREDENTIALS_FULL_URI=http://169.254.170.24/"}, "", -EACCES, "in clear"),
        ROW({"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=/x\r\ny"}, "", -EINVAL, "it is no path"),
        ROW({"AWS_CONTAINER_CREDENTIALS_FULL_URI=http://localhost/\n"}, "", -EINVAL,
            "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        ROW({"AWS_CONTAINER_CREDENTIALS_FULL_URI=x"}, "", -EINVAL, "FULL_URI"),
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct remote_issuer issuer;
        struct dl_error err = {0};
        int r = choose(rows[i].env, rows[i].config, &issuer, &err);

        if (r != rows[i].r || err.code != -r || !strstr(err.message, rows[i].words))
            fail_msg("row %zu: %d, %s", i, r, err.message);
        assert_null(issuer.url);
        assert_null(issuer.token_file);
    }
}

/* ---- questions ------------------------------------------------------------------------------ */

static void expect_request(const struct remote_issuer *issuer, enum remote_issuer_step step,
                           const char *secret, const char *role, const char *const want[4])
{
    struct remote_issuer_request request;
    struct dl_error err = {0};

    assert_int_equal(remote_issuer_ask(issuer, step, secret, role, &request, &err), 0);
    assert_string_equal(request.method, want[0]);
    assert_string_equal(request.url, want[1]);
    assert_int_equal(request.n_headers, want[2] != NULL);
    if (want[2])
        assert_string_equal(request.headers[0], want[2]);
    if (!same(request.body, want[3]))
        fail_msg("%s", request.body);
    remote_issuer_request_deinit(&request);
    assert_null(request.url);
    assert_int_equal(request.n_headers, 0);
}

TEST(test_asked)
{
    const struct remote_issuer instance = {.kind = ISSUER_INSTANCE, .url = (char *)"http://i"};
    const struct remote_issuer container = {.kind = ISSUER_CONTAINER, .url = (char *)"http://c/x"};
    const struct remote_issuer sts = {.kind = ISSUER_WEB_IDENTITY,
                                      .url = (char *)"https://s",
                                      .role = (char *)ROLE,
                                      .session = (char *)"a b"};
    struct remote_issuer_request request;
    struct dl_error err = {0};

    expect_request(&instance, ISSUER_SESSION, NULL, NULL,
                   (const char *[4]){"PUT", "http://i/latest/api/token",
                                     "X-aws-ec2-metadata-token-ttl-seconds: 21600"});
    expect_request(&instance, ISSUER_ROLE, "T", NULL,
                   (const char *[4]){"GET", "http://i/latest/meta-data/iam/security-credentials/",
                                     "X-aws-ec2-metadata-token: T"});
    expect_request(&instance, ISSUER_KEYS, "T", "../r",
                   (const char *[4]){"GET",
                                     "http://i/latest/meta-data/iam/security-credentials/..%2Fr",
                                     "X-aws-ec2-metadata-token: T"});
    expect_request(&container, ISSUER_KEYS, "T", NULL,
                   (const char *[4]){"GET", "http://c/x", "Authorization: T"});
    expect_request(&container, ISSUER_KEYS, NULL, NULL, (const char *[4]){"GET", "http://c/x"});
    expect_request(&sts, ISSUER_KEYS, "t&=+", NULL,
                   (const char *[4]){"POST", "https://s", NULL,
                                     "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn="
                                     "arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=a%20b"
                                     "&WebIdentityToken=t%26%3D%2B"});
    assert_int_equal(
        remote_issuer_ask(&container, ISSUER_KEYS, "SECRET\r\nX: y", NULL, &request, &err),
        -EINVAL);
    assert_null(strstr(err.message, "SECRET"));
    assert_null(request.url);
}

/* ---- answers -------------------------------------------------------------------------------- */

#define RESULT(text)                                                             \
    "<AssumeRoleWithWebIdentityResponse xmlns='https://sts.amazonaws.com/doc/'>" \
    "<AssumeRoleWithWebIdentityResult>" text                                     \
    "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"

TEST(test_taken)
{
    static const struct {
        enum remote_issuer_kind kind;
        int status;
        const char *body;
        int r;
        const char *access, *secret, *token;
        int64_t until;
        const char *words;
    } rows[] = {
        {ISSUER_INSTANCE, 200,
         "{\"Code\":\"Success\",\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\",\"Token\":\"T\","
         "\"Expiration\":\"1970-01-01T00:01:40Z\"}",
         0, "A", "S", "T", 100},
        {ISSUER_CONTAINER, 200, "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\"}", 0, "A", "S",
         NULL, INT64_MAX},
        {ISSUER_WEB_IDENTITY, 200,
         RESULT("<Credentials><AccessKeyId>A</AccessKeyId><SecretAccessKey>S&amp;</SecretAccessKey>"
                "<SessionToken>T</SessionToken><Expiration>1970-01-01T00:00:07.5Z</Expiration>"
                "</Credentials><Other><AccessKeyId>B</AccessKeyId></Other>"),
         0, "A", "S&", "T", 7},
        {ISSUER_WEB_IDENTITY, 200,
         RESULT("<Credentials><AccessKeyId><![CDATA[A]]></AccessKeyId><SecretAccessKey>S"
                "</SecretAccessKey></Credentials>"),
         0, "A", "S", NULL, INT64_MAX},
        {ISSUER_INSTANCE, 200, "{\"Code\":\"Failed\",\"Message\":\"No.\",\"AccessKeyId\":\"A\"}",
         -EACCES, .words = "status 200, Failed: No."},
        {ISSUER_CONTAINER, 403, "{\"code\":\"NotYou\",\"message\":\"m\"}", -EACCES,
         .words =
             "the container's service of keys at http://i gives no keys: status 403, NotYou: m"},
        {ISSUER_CONTAINER, 500, "", -EACCES, .words = "gives no keys: status 500"},
        {ISSUER_CONTAINER, 404, "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\"}", -EACCES,
         .words = "status 404"},
        {ISSUER_WEB_IDENTITY, 400,
         "<ErrorResponse><Error><Code>ExpiredTokenException</Code><Message>Old.</Message></Error>"
         "</ErrorResponse>",
         -EACCES,
         .words = "STS at http://i gives no keys: status 400, ExpiredTokenException: Old."},
        {ISSUER_INSTANCE, 200, "", -EBADMSG, .words = "what are no keys"},
        {ISSUER_INSTANCE, 200, "[]", -EBADMSG, .words = "the instance's metadata service"},
        {ISSUER_INSTANCE, 200, "{\"AccessKeyId\":\"A\"}", -EBADMSG, .words = "what are no keys"},
        {ISSUER_INSTANCE, 200, "{\"SecretAccessKey\":\"S\"}", -EBADMSG, .words = "what are no"},
        {ISSUER_INSTANCE, 200, "{\"AccessKeyId\":\"A\\n\",\"SecretAccessKey\":\"S\"}", -EBADMSG,
         .words = "what are no keys"},
        {ISSUER_INSTANCE, 200, "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\\r\"}", -EBADMSG,
         .words = "what are no keys"},
        {ISSUER_INSTANCE, 200,
         "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\",\"Token\":\"T\\n\"}", -EBADMSG,
         .words = "what are no keys"},
        {ISSUER_INSTANCE, 200,
         "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\",\"Expiration\":\"soon\"}", -EBADMSG,
         .words = "what are no keys"},
        {ISSUER_INSTANCE, 200, "{\"AccessKeyId\":1,\"SecretAccessKey\":2}", -EBADMSG,
         .words = "what are no keys"},
        {ISSUER_WEB_IDENTITY, 200, "<Credentials><AccessKeyId>A", -EBADMSG, .words = "no keys"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct remote_issuer issuer = {.kind = rows[i].kind, .url = (char *)"http://i"};
        struct remote_issued issued;
        struct dl_error err = {0};
        int r = remote_issuer_take(&issuer, rows[i].status, span_str(rows[i].body), &issued, &err);
        const struct remote_credentials *keys = &issued.credentials;

        if (r != rows[i].r || !same(keys->access_key, rows[i].access) ||
            !same(keys->secret_key, rows[i].secret) || !same(keys->session_token, rows[i].token) ||
            (r < 0 && !strstr(err.message, rows[i].words)))
            fail_msg("row %zu: %d, %s", i, r, err.message);
        if (r == 0)
            assert_int_equal(issued.until, rows[i].until);
        remote_credentials_deinit(&issued.credentials);
    }
}

TEST(test_large)
{
    const struct remote_issuer issuer = {.kind = ISSUER_INSTANCE, .url = (char *)"http://i"};
    size_t len = (64 << 10) + 1;
    char *body = malloc(len + 1);
    struct remote_issued issued;
    struct dl_error err = {0};
    int n = snprintf(body, len, "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"S\"}");

    memset(body + n, ' ', len - (size_t)n);
    struct dl_span all = {(uint8_t *)body, len}, most = {(uint8_t *)body, len - 1};
    assert_int_equal(remote_issuer_take(&issuer, 200, all, &issued, &err), -EBADMSG);
    assert_non_null(strstr(err.message, "more than keys"));
    assert_int_equal(remote_issuer_take(&issuer, 200, most, &issued, &err), 0);
    remote_credentials_deinit(&issued.credentials);
    free(body);
}

TEST(test_lines)
{
    static const struct {
        const char *body;
        size_t len;
        const char *line; /* NULL: it is refused */
    } rows[] = {
        {"a", 1, "a"}, {"a b\r\nc\n", 7, "a b"}, {"a\n", 2, "a"},   {"\n", 1, NULL},
        {"", 0, NULL}, {"a\tb", 3, NULL},        {"a\0b", 3, NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_error err = {0};
        char *line;
        int r = remote_issuer_line((struct dl_span){(const uint8_t *)rows[i].body, rows[i].len},
                                   &line, &err);

        if (r != (rows[i].line ? 0 : -EBADMSG) || !same(line, rows[i].line))
            fail_msg("row %zu: %d, %s", i, r, line);
        free(line);
    }
    char *large = calloc(1, REMOTE_SECRET_BYTES + 2), *line;
    struct dl_error err = {0};
    memset(large, 'x', REMOTE_SECRET_BYTES + 1);
    assert_int_equal(remote_issuer_line(span_str(large), &line, &err), -EBADMSG);
    large[REMOTE_SECRET_BYTES] = '\0';
    assert_int_equal(remote_issuer_line(span_str(large), &line, &err), 0);
    free(line);
    free(large);
}

/* ---- files and times ------------------------------------------------------------------------ */

TEST(test_secrets)
{
    const char *good = harness_file("identity", " a.b.c\n", 7);
    char *secret;
    struct dl_error err = {0};

    assert_int_equal(remote_secret_read(good, &secret, &err), 0);
    assert_string_equal(secret, "a.b.c");
    free(secret);
    assert_int_equal(remote_secret_read(harness_file("identity", " \n", 2), &secret, &err),
                     -EINVAL);
    assert_non_null(strstr(err.message, "it is empty"));
    assert_null(secret);
    assert_int_equal(remote_secret_read(harness_file("identity", "a\nb", 3), &secret, &err),
                     -EINVAL);
    assert_null(secret);
    assert_int_equal(remote_secret_read("/nonexistent/token", &secret, &err), -ENOENT);
    assert_non_null(strstr(err.message, "/nonexistent/token"));
    assert_null(secret);
}

struct listed {
    char text[512];
};

static void list_file(void *arg, const char *path)
{
    struct listed *listed = arg;
    size_t at = strlen(listed->text);

    snprintf(listed->text + at, sizeof listed->text - at, "%s ", path);
}

TEST(test_files)
{
    static const struct {
        const char *env[6], *files;
    } rows[] = {
        {{NULL}, ""},
        {{"HOME=/h"}, "/h/.aws/credentials /h/.aws/config /h/.cache/huggingface/token "},
        {{"HOME=/h", "AWS_CONFIG_FILE=/c", "HF_TOKEN_PATH=/t", "AWS_WEB_IDENTITY_TOKEN_FILE=/w",
          "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=/a"},
         "/h/.aws/credentials /c /t /w /a "},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct listed listed = {""};

        remote_each_file(get_of_list, (void *)(uintptr_t)rows[i].env, list_file, &listed);
        assert_string_equal(listed.text, rows[i].files);
    }
}

TEST(test_times)
{
    static const struct {
        int64_t now, until;
        uint32_t chance;
        int64_t renew, end;
    } rows[] = {
        {1000, INT64_MAX, 7, INT64_MAX, INT64_MAX},
        /* 15 minutes before the end, or up to a quarter of that later; and a minute before it. */
        {0, 21600, 0, 20700, 21540},
        {0, 21600, 225, 20925, 21540},
        {0, 21600, 226, 20700, 21540},
        {0, 1800, 0, 900, 1740},
        /* What lasts less long: at half of that, and a tenth before its end. */
        {0, 1798, 0, 899, 1738},
        {100, 700, 0, 400, 640},
        {100, 160, 7, 137, 154},
        {100, 160, 8, 130, 154},
        {100, 102, 5, 101, 102},
        /* What has ended is kept for a second. */
        {100, 101, 0, 101, 101},
        {100, 100, 0, 101, 101},
        {100, 5, 3, 101, 101},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct keys_times times = keys_times_of(rows[i].now, rows[i].until, rows[i].chance);

        if (times.renew != rows[i].renew || times.end != rows[i].end)
            fail_msg("row %zu: %lld, %lld", i, (long long)times.renew, (long long)times.end);
    }
}
