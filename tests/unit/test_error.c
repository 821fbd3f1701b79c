/* What comes out of dl_error_set() whatever goes in: cut, clean, one line. */
#include "tests/lib/harness.h"

#include "proto/common/error.h"
#include "proto/common/utf8.h"
#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

TEST(test_plain)
{
    struct dl_error err;

    assert_int_equal(dl_error_set(&err, EINVAL, "batch.size", "%d is not positive", -3), -EINVAL);
    assert_int_equal(err.code, EINVAL);
    assert_string_equal(err.path, "batch.size");
    assert_string_equal(err.message, "-3 is not positive");
    assert_int_equal(dl_error_set(NULL, ENOENT, "x", "y"), -ENOENT);
    assert_int_equal(dl_error_set(&err, ENOENT, NULL, "%s", ""), -ENOENT);
    assert_string_equal(err.path, "");
    assert_string_equal(err.message, "");
}

/* A code as a peer may send it must not turn a failure into success. */
TEST(test_codes)
{
    struct dl_error err;

    assert_int_equal(dl_error_set(&err, 0, "", "x"), -EIO);
    assert_int_equal(err.code, EIO);
    assert_int_equal(dl_error_set(NULL, -5, "", "x"), -EIO);
}

/* Whose limit of open files is reached is told, once; by dl_error_set(), as all errors come by it.
 */
TEST(test_limits)
{
    struct dl_error err, again;
    struct rlimit limit;
    char want[256];

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    snprintf(want, sizeof want,
             "no more; RLIMIT_NOFILE of process %d is %llu: raise it by ulimit -n, or by "
             "LimitNOFILE= in its unit",
             (int)getpid(), (unsigned long long)limit.rlim_cur);
    assert_int_equal(dl_error_set(&err, EMFILE, "a", "no more"), -EMFILE);
    assert_string_equal(err.message, want);
    assert_int_equal(dl_error_set(&again, EMFILE, "b", "%s", err.message), -EMFILE);
    assert_string_equal(again.message, want);
    dl_error_set(&err, ENFILE, "", "none left");
    assert_string_equal(err.message,
                        "none left; the system has reached fs.file-max: raise it by sysctl");
    dl_error_set(&again, ENFILE, "", "%s", err.message);
    assert_string_equal(again.message, err.message);
}

TEST(test_clean)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"a\nb\tc\x1B[0m\x7F", "a?b?c?[0m?"},
        {"caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", "caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"},
        {"\xC2\x9B"
         "1m",
         "?"
         "?1m"},
        {"\xC2\xA0", "\xC2\xA0"},
        {"\xFF\xC3(\xED\xA0\x80", "?"
                                  "?(??"
                                  "?"},
        {"cut\xE2\x82", "cut?"
                        "?"},
    };
    struct dl_error err;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        dl_error_set(&err, EIO, cases[i].in, "%s", cases[i].in);
        assert_string_equal(err.path, cases[i].out);
        assert_string_equal(err.message, cases[i].out);
    }
}

/* Every length around the limits, with a character of each width across the cut. */
TEST(test_cut)
{
    static const char *const tails[] = {"x", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
    static const size_t sizes[] = {DL_ERROR_PATH_MAX, DL_ERROR_MESSAGE_MAX};
    char text[DL_ERROR_MESSAGE_MAX + 64];
    struct dl_error err;

    for (size_t s = 0; s < ARRAY_SIZE(sizes); s++)
        for (size_t t = 0; t < ARRAY_SIZE(tails); t++)
            for (size_t lead = sizes[s] - 8; lead < sizes[s] + 8; lead++) {
                size_t width = strlen(tails[t]), fit = lead;
                const char *got = s == 0 ? err.path : err.message;

                memset(text, 'a', lead);
                strcpy(text + lead, tails[t]);
                strcat(text, tails[t]);
                dl_error_set(&err, EIO, text, "%s", text);
                while (fit <= lead + width && fit + width < sizes[s])
                    fit += width;
                fit = min_u64(fit, sizes[s] - 1);
                assert_int_equal(strlen(got), fit);
                assert_true(utf8_text((const uint8_t *)got, strlen(got)));
                assert_memory_equal(got, text, fit);
            }
}

TEST(test_own_texts_as_arguments)
{
    struct dl_error err;

    dl_error_set(&err, EIO, "file", "cannot read");
    dl_error_set(&err, EIO, err.path, "%s: %s", err.path, err.message);
    assert_string_equal(err.path, "file");
    assert_string_equal(err.message, "file: cannot read");
    dl_error_set(&err, EIO, err.message, "%s", err.path);
    assert_string_equal(err.path, "file: cannot read");
    assert_string_equal(err.message, "file");
}
