/* What the tests of the daemon's configuration share: a file of that text, and what it says. */
#ifndef DL_TEST_CONFIG_CASE_H
#define DL_TEST_CONFIG_CASE_H

#include "tests/lib/harness.h"

#include "daemon/base/config.h"

#include <stdio.h>

static const char *write_text(const char *text)
{
    return harness_text("dloaderd.conf", text);
}

static struct config load(const char *text)
{
    struct config config = {0};
    struct dl_error err = {0};

    if (config_load(write_text(text), &config, &err) != 0)
        fail_msg("%s is refused: %s: %s", text, err.path, err.message);
    assert_int_equal(err.code, 0);
    return config;
}

/* It is refused at that line with that path and message, and nothing is returned. Line 0: what is
 * wrong is no line's. */
static inline void expect_refused(const char *text, int code, const char *where, uint32_t line,
                                  const char *message)
{
    const char *path = write_text(text);
    struct config config;
    struct config before;
    struct dl_error err = {0};
    char want[DL_ERROR_MESSAGE_MAX];

    memset(&config, 0x5A, sizeof config);
    before = config;
    if (line > 0)
        snprintf(want, sizeof want, "%s (line %u of %s)", message, line, path);
    else
        snprintf(want, sizeof want, "%s", message);
    assert_int_equal(config_load(path, &config, &err), -code);
    assert_int_equal(err.code, code);
    assert_string_equal(err.path, where);
    assert_string_equal(err.message, want);
    assert_memory_equal(&config, &before, sizeof config);
    assert_int_equal(config_load(path, &config, NULL), -code);
}

#endif
