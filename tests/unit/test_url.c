/* What of URLs is not shown, by table; and of errors, which all errors go through. */
#include "tests/lib/harness.h"

#include "proto/common/error.h"
#include "proto/common/url.h"
#include "tests/lib/splitmix.h"

static const struct {
    const char *text, *want; /* NULL: the same */
} rows[] = {
    {"", NULL},
    {"://", NULL},
    {"/data/a?b@c", NULL},
    {"https://h/a/b.tar", NULL},
    {"https://h/a?", NULL},
    {"https://h/a@b?", NULL},
    {"https://h/a?X-Amz-Signature=0123&X-Amz-Credential=AKID%2F2", "https://h/a?*"},
    {"HTTP://h?a", "HTTP://h?*"},
    {"https://h/a?sig=1#part", "https://h/a?*"},
    {"https://h/a?next=https://u:p@i/b?c", "https://h/a?*"},
    {"https://user:pass@h:80/a@b?c=d", "https://*@h:80/a@b?*"},
    {"https://a@b@h/", "https://*@h/"},
    {"https://@h/", NULL},
    {"https://user:pass@h?a@b", "https://*@h?*"},
    {"x+https://u@h/a?b", "x+https://*@h/a?b"},
    /* Of keys of a bucket these signs are a part, and so they are of a revision. */
    {"s3://bucket/a?b@c", NULL},
    {"s3://AKID:SECRET@bucket/a?b", "s3://*@bucket/a?b"},
    {"gs://key@bucket/a", "gs://*@bucket/a"},
    {"hf://gpt2@main/a?b", NULL},
    {"hf://datasets/o/n@v1/a", NULL},
    {"hf://u:p@datasets/o/n", "hf://*@datasets/o/n"},
    /* In sentences, lists, YAML and JSON. */
    {"https://h/a.npy?s=1: status 404", "https://h/a.npy?*: status 404"},
    {"of https://h/a?s=1 and https://i/b?s=2, both", "of https://h/a?* and https://i/b?*, both"},
    {"(https://h/a?s=1).", "(https://h/a?*)."},
    {"{\"paths\":[\"https://u:p@h/a?s=1\",\"https://h/b?s=2\"],\"x\":\"?y\"}",
     "{\"paths\":[\"https://*@h/a?*\",\"https://h/b?*\"],\"x\":\"?y\"}"},
    {"paths: https://h/a?s=1\nx: 'https://h/b?s=2'\n",
     "paths: https://h/a?*\nx: 'https://h/b?*'\n"},
    {"<https://h/a?s>?t", "<https://h/a?*>?t"},
    {"is it https://h/?:", NULL},
};

TEST(test_rows)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_free_ char *text = strdup(rows[i].text);

        assert_non_null(text);
        url_hide_secrets(text);
        assert_string_equal(text, rows[i].want ? rows[i].want : rows[i].text);
        url_hide_secrets(text); /* nothing is left to hide */
        assert_string_equal(text, rows[i].want ? rows[i].want : rows[i].text);
    }
}

/* Every error: where it is, and its words; also what was cut. */
TEST(test_errors)
{
    char url[2 * DL_ERROR_MESSAGE_MAX] = "https://user:SECRET@host/file?X-Amz-Signature=";
    struct dl_error err = {0};

    memset(url + strlen(url), 'S', sizeof url - strlen(url) - 1);
    (void)dl_error_set(&err, 5, url, "%s", url);
    assert_string_equal(err.path, "https://*@host/file?*");
    assert_string_equal(err.message, "https://*@host/file?*");
    (void)dl_error_set(&err, 5, err.path, "again %s", err.message);
    assert_string_equal(err.path, "https://*@host/file?*");
    assert_string_equal(err.message, "again https://*@host/file?*");
}

/* Whatever follows a query: no text becomes longer, the query is gone, and nothing is left to hide.
 */
TEST(test_random)
{
    static const char *const pieces[] = {"https://", "s3://", "hf://", "://", "SECRET", "@", "?",
                                         ":",        "/",     "#",     "\"",  " ",      ".", "\n"};
    uint64_t random = 7;

    for (int round = 0; round < 100000; round++) {
        char text[256] = "https://h/?SECRET", again[256];

        for (uint64_t n = next_random(&random) % 16; n > 0; n--)
            strcat(text, pieces[next_random(&random) % ARRAY_SIZE(pieces)]);
        size_t len = strlen(text);
        url_hide_secrets(text);
        assert_true(strlen(text) <= len);
        assert_memory_equal(text, "https://h/?*", 12);
        memcpy(again, text, sizeof text);
        url_hide_secrets(again);
        assert_string_equal(again, text);
    }
}
