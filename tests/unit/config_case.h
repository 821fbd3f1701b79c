/* What the tests of the daemon's configuration share: a file of that text, and what it says. */
#ifndef DL_TEST_CONFIG_CASE_H
#define DL_TEST_CONFIG_CASE_H

#include "tests/lib/harness.h"

#include "daemon/base/config.h"

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

#endif
