#include "daemon/serve/environment.h"

#include <stdio.h>

static const char *const passed[] = {"LANG",          "TZ",           "ASAN_OPTIONS",
                                     "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS"};

static char *setting(const char *name, const char *value)
{
    size_t len = strlen(name) + strlen(value) + 2;
    char *text = must_alloc(len);

    snprintf(text, len, "%s=%s", name, value);
    return text;
}

static char *join(const struct config_dirs *dirs)
{
    size_t len = sizeof "PYTHONPATH=";

    for (uint32_t i = 0; i < dirs->n; i++)
        len += strlen(dirs->paths[i]) + 1;
    char *text = must_alloc(len);
    size_t at = (size_t)snprintf(text, len, "PYTHONPATH=");
    for (uint32_t i = 0; i < dirs->n; i++)
        at += (size_t)snprintf(text + at, len - at, "%s%s", i ? ":" : "", dirs->paths[i]);
    return text;
}

char **environment_new(const struct config_dirs *python_path)
{
    char **environment = must_alloc((ARRAY_SIZE(passed) + 4) * sizeof *environment);
    const char *preload = python_path ? getenv("DLOADER_PRELOAD") : NULL;
    size_t n = 0;

    environment[n++] = must_strdup("PATH=/usr/bin:/bin");
    for (size_t i = 0; i < ARRAY_SIZE(passed); i++) {
        const char *value = getenv(passed[i]);
        if (value)
            environment[n++] = setting(passed[i], value);
    }
    if (preload)
        environment[n++] = setting("DLOADER_PRELOAD", preload);
    if (python_path && python_path->n > 0)
        environment[n++] = join(python_path);
    return environment;
}

char **environment_free(char **environment)
{
    for (char **setting = environment; setting && *setting; setting++)
        free(*setting);
    free(environment);
    return NULL;
}
