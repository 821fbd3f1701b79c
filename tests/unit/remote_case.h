/* A user's environment for tests of remote/: NAME=VALUE, ending with NULL. */
#ifndef DL_TEST_REMOTE_CASE_H
#define DL_TEST_REMOTE_CASE_H

#include "daemon/remote/credentials.h"
#include "daemon/remote/place.h"

static const char *_unused_ get_of_list(const char *name, void *of)
{
    size_t n = strlen(name);

    for (const char *const *list = of; *list; list++)
        if (strncmp(*list, name, n) == 0 && (*list)[n] == '=')
            return *list + n + 1;
    return NULL;
}

static struct remote_settings _unused_ settings_of(const char *const *list)
{
    struct remote_settings settings;
    struct dl_error err = {0};

    if (remote_settings_from(get_of_list, (void *)(uintptr_t)list, NULL, &settings, &err) < 0)
        fail_msg("settings: %s", err.message);
    return settings;
}

static struct remote_place _unused_ place_of(const char *url,
                                             const struct remote_settings *settings)
{
    struct remote_place place;
    struct dl_error err = {0};

    if (remote_place_parse(url, settings, &place, &err) < 0)
        fail_msg("%s: %s", url, err.message);
    return place;
}

#endif
