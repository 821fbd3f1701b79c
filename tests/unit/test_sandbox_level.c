/* Which workers are closed in how far, and what is said of it. */
#include "daemon/serve/pool/sandbox.h"
#include "tests/lib/harness.h"

#include <stdio.h>

TEST(test_levels)
{
    static const struct {
        enum config_sandbox configured;
        bool python, private, foreign;
        enum sandbox_level level;
    } cases[] = {
        {CONFIG_SANDBOX_DEFAULT, false, false, false, SANDBOX_FULL},
        {CONFIG_SANDBOX_DEFAULT, false, true, false, SANDBOX_FULL},
        {CONFIG_SANDBOX_DEFAULT, true, false, false, SANDBOX_LIGHT},
        {CONFIG_SANDBOX_DEFAULT, true, true, false, SANDBOX_OFF},
        {CONFIG_SANDBOX_STRICT, false, false, false, SANDBOX_FULL},
        {CONFIG_SANDBOX_STRICT, true, false, false, SANDBOX_FULL},
        {CONFIG_SANDBOX_STRICT, true, true, false, SANDBOX_FULL},
        {CONFIG_SANDBOX_OFF, false, false, false, SANDBOX_OFF},
        {CONFIG_SANDBOX_OFF, true, false, false, SANDBOX_OFF},
        {CONFIG_SANDBOX_OFF, false, true, false, SANDBOX_OFF},
        /* what another user has named, of the site's */
        {CONFIG_SANDBOX_DEFAULT, true, false, true, SANDBOX_FULL},
        {CONFIG_SANDBOX_DEFAULT, false, false, true, SANDBOX_FULL},
        {CONFIG_SANDBOX_STRICT, true, false, true, SANDBOX_FULL},
        {CONFIG_SANDBOX_OFF, true, false, true, SANDBOX_OFF},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct config config = {.sandbox = cases[i].configured};
        assert_int_equal(
            sandbox_choose(&config, cases[i].python, cases[i].private, cases[i].foreign),
            cases[i].level);
    }
}

TEST(test_words)
{
    static const struct {
        uint32_t parts;
        const char *words;
    } cases[] = {
        {0, "off"},
        {SANDBOX_CALLS, "calls"},
        {SANDBOX_FILES, "files"},
        {SANDBOX_CALLS | SANDBOX_SIGNALS, "calls, signals"},
        {SANDBOX_CALLS | SANDBOX_FILES | SANDBOX_NETWORK | SANDBOX_SIGNALS,
         "calls, files, network, signals"},
    };
    char words[SANDBOX_WORDS];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        sandbox_describe(cases[i].parts, words);
        assert_string_equal(words, cases[i].words);
    }
}

/* `said`: a part of it; NULL: all that was asked for holds. */
TEST(test_complaints)
{
    static const struct {
        enum sandbox_level level;
        uint32_t parts;
        const char *said;
    } cases[] = {
        {SANDBOX_OFF, 0, NULL},
        {SANDBOX_LIGHT, SANDBOX_CALLS, NULL},
        {SANDBOX_LIGHT, 0, "workers can make any system call"},
        {SANDBOX_FULL, SANDBOX_CALLS | SANDBOX_FILES, NULL},
        {SANDBOX_FULL, SANDBOX_CALLS, "workers can read everything that the daemon can"},
        {SANDBOX_FULL, SANDBOX_FILES, "workers can make any system call"},
        {SANDBOX_FULL, 0, "workers are not confined"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *text = sandbox_complaint(cases[i].level, cases[i].parts);
        if (!cases[i].said)
            assert_null(text);
        else if (!text || !strstr(text, cases[i].said))
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, text ? text : "", cases[i].said);
    }
}
