/* Keys of the environment and of AWS's two files; what is refused, and that no secret is said. */
#include "tests/lib/harness.h"

#include "tests/lib/row.h"
#include "tests/unit/remote_case.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#define KEYS "aws_access_key_id = AK\naws_secret_access_key=SECRET/+=\n"

struct profile_case {
    const char *env[6];
    const char *credentials, *config;
    const char *access, *secret, *token, *region, *endpoint; /* NULL: none */
};

static void expect(const char *got, const char *expected, size_t row, const char *what)
{
    if (!got != !expected || (got && strcmp(got, expected) != 0))
        fail_msg("row %zu: %s is %s instead of %s", row, what, got, expected);
}

static const struct profile_case found[] = {
    ROW({NULL}, "", ""),
    ROW({"AWS_ACCESS_KEY_ID=A", "AWS_SECRET_ACCESS_KEY=SECRET"}, "", "", "A", "SECRET"),
    ROW({"AWS_ACCESS_KEY_ID=A", "AWS_SECRET_ACCESS_KEY=SECRET", "AWS_SESSION_TOKEN=T"},
        "[default]\n" KEYS, "[default]\nregion=r\n", "A", "SECRET", "T", "r"),
    ROW({"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY="}, "[default]\n" KEYS, "", "AK",
        "SECRET/+="),
    ROW({NULL}, "[default]\n" KEYS "aws_session_token = T T\n", "", "AK", "SECRET/+=", "T T"),
    ROW({NULL}, "[other]\n" KEYS, "[profile other]\nregion=x\n"),
    ROW({"AWS_PROFILE=other"}, "[default]\naws_access_key_id=no\n[other]\n" KEYS,
        "[other]\nregion=no\n[profile other]\nregion = x\nendpoint_url = http://h:1\n", "AK",
        "SECRET/+=", NULL, "x", "http://h:1"),
    ROW({"AWS_PROFILE=a b"}, "[a b]\n" KEYS, "[profile \"a b\"]\nregion=x", "AK", "SECRET/+=", NULL,
        "x"),
    ROW({NULL}, "", "[profile default]\nregion=p\n", NULL, NULL, NULL, "p"),
    ROW({NULL}, "", "[default]\n" KEYS, "AK", "SECRET/+="),
    ROW({NULL}, "[default]\n" KEYS, "[default]\naws_access_key_id=B\naws_secret_access_key=C\n",
        "AK", "SECRET/+="),
    ROW({"AWS_PROFILE=x"}, "", "[profile]\nregion=a\n[profilex]\nregion=b\n[profile\tx]\nregion=c",
        NULL, NULL, NULL, "c"),
    /* The form: ends of lines, comments, indented lines. */
    ROW({NULL},
        "# c\r\n\r\n[default]\r\n; c\r\n  aws_access_key_id=AK\r\n  aws_secret_access_key = "
        "S#;\r\n",
        "", "AK", "S#;"),
    ROW({NULL}, "", "[default]\ns3 =\n  endpoint_url = http://no\n  region = no\nregion = yes\n",
        NULL, NULL, NULL, "yes"),
    ROW({NULL}, "[default]\n" KEYS "credential_process = x\n", "", "AK", "SECRET/+="),
    ROW({NULL}, "[a]\nregion=no\n[default]\n  region=yes\n    region=no\n", "", NULL, NULL, NULL,
        "yes"),
    ROW({NULL}, "[default]\nregion=a\nregion=b\nregion=\n", "", NULL, NULL, NULL, "b"),
    /* A comment says nothing, not even how far its lines are indented. */
    ROW({NULL}, "", "[default]\n#x=1\n  region=yes\n", NULL, NULL, NULL, "yes"),
    ROW({NULL}, "", "[default]\n; x = 1\n  region=yes\n", NULL, NULL, NULL, "yes"),
    ROW({NULL}, "", "[default]\n\n  region=yes\n", NULL, NULL, NULL, "yes"),
    ROW({"AWS_PROFILE="}, "[default]\n" KEYS, "", "AK", "SECRET/+="),
    ROW({NULL}, "aws_access_key_id=A\n=\n[\n[]\n]\nx\n[default", "=", NULL),
};

TEST(test_found)
{
    for (size_t i = 0; i < ARRAY_SIZE(found); i++) {
        struct remote_profile p;
        struct dl_error err = {0};

        if (remote_profile_from(get_of_list, (void *)(uintptr_t)found[i].env,
                                span_str(found[i].credentials), span_str(found[i].config), &p,
                                &err) < 0)
            fail_msg("row %zu: %s", i, err.message);
        expect(p.credentials.access_key, found[i].access, i, "the access key");
        expect(p.credentials.secret_key, found[i].secret, i, "the secret key");
        expect(p.credentials.session_token, found[i].token, i, "the token");
        expect(p.region, found[i].region, i, "the region");
        expect(p.endpoint, found[i].endpoint, i, "the endpoint");
        assert_int_equal(remote_credentials_are_there(&p.credentials), found[i].access != NULL);
        remote_profile_deinit(&p);
    }
    assert_false(remote_credentials_are_there(NULL));
    assert_false(
        remote_credentials_are_there(&(struct remote_credentials){.access_key = (char *)"A"}));
    assert_false(
        remote_credentials_are_there(&(struct remote_credentials){.secret_key = (char *)"S"}));
}

TEST(test_refused)
{
    static const struct {
        const char *env[4], *credentials, *config;
        int r;
        const char *words;
    } rows[] = {
        ROW({"AWS_ACCESS_KEY_ID=A"}, "", "", -EINVAL,
            "AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not"),
        ROW({"AWS_SECRET_ACCESS_KEY=SECRET"}, "[default]\n" KEYS, "", -EINVAL,
            "AWS_SECRET_ACCESS_KEY is set, and AWS_ACCESS_KEY_ID is not"),
        ROW({NULL}, "[default]\naws_secret_access_key=SECRET\n", "", -EINVAL,
            "profile \"default\": aws_secret_access_key is set, and aws_access_key_id is not"),
        ROW({"AWS_ACCESS_KEY_ID=A", "AWS_SECRET_ACCESS_KEY=SECRET\r"}, "", "", -EINVAL,
            "control character in AWS_SECRET_ACCESS_KEY"),
        ROW({"AWS_ACCESS_KEY_ID=A", "AWS_SECRET_ACCESS_KEY=SECRET", "AWS_SESSION_TOKEN=SECRET\n"},
            "", "", -EINVAL, "control character in the session token"),
        ROW({"AWS_PROFILE=x"}, "[default]\n" KEYS, "[x]\nregion=r\n", -ENOENT,
            "has a profile \"x\""),
        ROW({"AWS_PROFILE=x"}, "", "[profilex]\nregion=r\n", -ENOENT, "has a profile \"x\""),
        ROW({"AWS_PROFILE=x"}, "", "[profile \"xy]\nregion=r\n", -ENOENT, "has a profile \"x\""),
        ROW({"AWS_PROFILE=x"}, "", "[profile yxy]\nregion=r\n", -ENOENT, "has a profile \"x\""),
        ROW({NULL}, "", "[default]\nrole_arn = SECRET\nsource_profile = a\n", -ENOTSUP,
            "by role_arn"),
        ROW({NULL}, "[default]\n" KEYS "role_arn = x", "", -ENOTSUP, "by role_arn"),
        ROW({"AWS_PROFILE=x"}, "", "[profile x]\nsso_session = s\n", -ENOTSUP,
            "export-credentials --profile x"),
        ROW({NULL}, "", "[default]\ncredential_process = x\n", -ENOTSUP, "by credential_process"),
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct remote_profile p;
        struct dl_error err = {0};
        int r =
            remote_profile_from(get_of_list, (void *)(uintptr_t)rows[i].env,
                                span_str(rows[i].credentials), span_str(rows[i].config), &p, &err);

        if (r != rows[i].r || !strstr(err.message, rows[i].words) ||
            strstr(err.message, "SECRET/") || strstr(err.message, "=SECRET"))
            fail_msg("row %zu: %d, %s", i, r, err.message);
        assert_null(p.credentials.secret_key);
        assert_null(p.region);
    }
}

/* Which files, and what cannot be read. */
TEST(test_files)
{
    char dir[256], home[300], keys[300], config[300];
    struct remote_profile p;
    struct dl_error err = {0};

    (void)snprintf(dir, sizeof dir, "%s/.aws", harness_tmpdir());
    assert_int_equal(mkdir(dir, 0700), 0);
    (void)harness_text(".aws/credentials", "[default]\n" KEYS);
    (void)harness_file(".aws/config", "[default]\nregion=r\n", 19);
    (void)snprintf(
        keys, sizeof keys, "AWS_SHARED_CREDENTIALS_FILE=%s",
        harness_file("keys", "[default]\naws_access_key_id=B\naws_secret_access_key=C", 53));
    (void)snprintf(home, sizeof home, "HOME=%s", harness_tmpdir());
    (void)snprintf(config, sizeof config, "AWS_CONFIG_FILE=%s/nothing", harness_tmpdir());

    const char *of_home[] = {home, NULL}, *named[] = {home, keys, config, NULL}, *none[] = {NULL};
    assert_int_equal(remote_profile_read(get_of_list, (void *)of_home, &p, &err), 0);
    assert_string_equal(p.credentials.access_key, "AK");
    assert_string_equal(p.region, "r");
    remote_profile_deinit(&p);
    assert_int_equal(remote_profile_read(get_of_list, (void *)named, &p, &err), 0);
    assert_string_equal(p.credentials.access_key, "B");
    assert_null(p.region);
    remote_profile_deinit(&p);
    assert_int_equal(remote_profile_read(get_of_list, (void *)none, &p, &err), 0);
    assert_false(remote_credentials_are_there(&p.credentials));

    (void)snprintf(config, sizeof config, "AWS_CONFIG_FILE=%s", harness_tmpdir());
    assert_int_equal(remote_profile_read(get_of_list, (void *)named, &p, &err), -EISDIR);
    assert_string_equal(err.path, harness_tmpdir());

    char *large = calloc(1, REMOTE_PROFILE_BYTES + 1);
    assert_non_null(large);
    (void)snprintf(config, sizeof config, "AWS_CONFIG_FILE=%s",
                   harness_file("large", large, REMOTE_PROFILE_BYTES));
    assert_int_equal(remote_profile_read(get_of_list, (void *)named, &p, &err), 0);
    remote_profile_deinit(&p);
    (void)harness_file("large", large, REMOTE_PROFILE_BYTES + 1);
    assert_int_equal(remote_profile_read(get_of_list, (void *)named, &p, &err), -EFBIG);
    free(large);
}

/* The Hub's token: of the first place that is named, and not where there is one already. */
TEST(test_token)
{
    static const struct {
        const char *variable, *below, *text;
        int r;
        const char *token; /* NULL: none */
    } rows[] = {
        {"HF_TOKEN_PATH", "/token", " hf_a \n", 0, "hf_a"},
        {"HF_HOME", "", "hf_b", 0, "hf_b"},
        {"HF_HOME", "/nothing", "hf_b", 0, NULL},
        {"HF_HOME", "", "\n \n", 0, NULL},
        {"HF_HOME", "", "", 0, NULL},
        {"HF_HOME", "", "SECRET\nx", -EINVAL, NULL},
        {"HF_HOME", "", "SECRET\0x", -EINVAL, NULL},
    };
    char variable[300], home[300];
    struct dl_error err = {0};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct remote_settings settings = {0};
        size_t len = i == ARRAY_SIZE(rows) - 1 ? 8 : strlen(rows[i].text);

        (void)harness_file("token", rows[i].text, len);
        (void)snprintf(variable, sizeof variable, "%s=%s%s", rows[i].variable, harness_tmpdir(),
                       rows[i].below);
        const char *env[] = {"HOME=/nonexistent", variable, NULL};
        assert_int_equal(remote_token_read(get_of_list, (void *)env, &settings, &err), rows[i].r);
        expect(settings.hf_token, rows[i].token, i, "the token");
        assert_null(strstr(err.message, "SECRET"));
        remote_settings_deinit(&settings);
    }
    (void)snprintf(home, sizeof home, "%s/.cache", harness_tmpdir());
    assert_int_equal(mkdir(home, 0700), 0);
    (void)snprintf(home, sizeof home, "%s/.cache/huggingface", harness_tmpdir());
    assert_int_equal(mkdir(home, 0700), 0);
    (void)harness_file(".cache/huggingface/token", "hf_c", 4);
    (void)snprintf(home, sizeof home, "HOME=%s", harness_tmpdir());
    (void)snprintf(variable, sizeof variable, "XDG_CACHE_HOME=%s/.cache", harness_tmpdir());
    const char *envs[][2] = {{home, NULL}, {variable, NULL}};
    for (size_t i = 0; i < ARRAY_SIZE(envs); i++) {
        struct remote_settings settings = {0};

        assert_int_equal(remote_token_read(get_of_list, envs[i], &settings, &err), 0);
        expect(settings.hf_token, "hf_c", i, "the token");
        (void)harness_file(".cache/huggingface/token", "hf_c", 4);
        settings.hf_token[3] = 'd';
        assert_int_equal(remote_token_read(get_of_list, envs[i], &settings, &err), 0);
        expect(settings.hf_token, "hf_d", i, "the token");
        remote_settings_deinit(&settings);
    }
}
