#include "daemon/base/environment.h"

#include "daemon/base/memory.h"
#include "proto/codec.h"

#include <errno.h>
#include <stdio.h>

static const char *const environment_passed[] = {"LANG",          "TZ",           "ASAN_OPTIONS",
                                                 "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS"};

static char *environment_setting(const char *name, const char *value)
{
    size_t len = strlen(name) + strlen(value) + 2;
    char *text = must_alloc(len);

    snprintf(text, len, "%s=%s", name, value);
    return text;
}

static char *environment_join(const struct config_dirs *dirs)
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
    char **environment = must_alloc((ARRAY_SIZE(environment_passed) + 5) * sizeof *environment);
    const char *preload = python_path ? getenv("DLOADER_PRELOAD") : NULL;
    char version[16];
    size_t n = 0;

    snprintf(version, sizeof version, "%d", DL_WORKER_VERSION);
    environment[n++] = must_strdup("PATH=/usr/bin:/bin");
    environment[n++] = environment_setting(DL_WORKER_VERSION_VARIABLE, version);
    for (size_t i = 0; i < ARRAY_SIZE(environment_passed); i++) {
        const char *value = getenv(environment_passed[i]);
        if (value)
            environment[n++] = environment_setting(environment_passed[i], value);
    }
    if (preload)
        environment[n++] = environment_setting("DLOADER_PRELOAD", preload);
    if (python_path && python_path->n > 0)
        environment[n++] = environment_join(python_path);
    return environment;
}

char **environment_free(char **environment)
{
    for (char **setting = environment; setting && *setting; setting++)
        free(*setting);
    free(environment);
    return NULL;
}

/* Of letters, digits and these marks; not empty, and no longer than names are. */
static bool environment_is_made_of(const char *text, const char *marks)
{
    size_t len = strlen(text);

    for (size_t i = 0; i < len; i++)
        if (!(text[i] >= 'a' && text[i] <= 'z') && !(text[i] >= 'A' && text[i] <= 'Z') &&
            !(text[i] >= '0' && text[i] <= '9') && !strchr(marks, text[i]))
            return false;
    return len > 0 && len <= DL_MAX_NAME_BYTES;
}

/* An IPv6 address is bare there, and in brackets in an endpoint. */
static int environment_take_address(char **ret, const char *address, struct dl_error *err)
{
    bool bare = strchr(address, ':') != strrchr(address, ':') && address[0] != '[';
    size_t len = strlen(address) + 3;

    if (!environment_is_made_of(address, ".-_:%[]"))
        return dl_error_set(err, EINVAL, "rendezvous.endpoint",
                            "is missing, and $MASTER_ADDR, \"%.64s\", is not an address", address);
    free(*ret);
    *ret = must_alloc(len);
    (void)snprintf(*ret, len, "%s%s%s", bare ? "[" : "", address, bare ? "]" : "");
    return 0;
}

static int environment_take_id(char **ret, const char *id, struct dl_error *err)
{
    if (!environment_is_made_of(id, "!\"#$%&'()*+,-.:;<=>?@[\\]^_`{|}~"))
        return dl_error_set(err, EINVAL, "rendezvous.id",
                            "is missing, and $TORCHELASTIC_RUN_ID, \"%.64s\", cannot replace "
                            "it: an id has up to %llu letters, digits and marks other than /",
                            id, (ull)DL_MAX_NAME_BYTES);
    free(*ret);
    *ret = must_strdup(id);
    return 0;
}

int environment_complete(struct config_rendezvous *rendezvous, struct dl_error *err)
{
    const char *address = getenv("MASTER_ADDR"), *id = getenv("TORCHELASTIC_RUN_ID");
    int r = 0;

    if (rendezvous->backend == CONFIG_BACKEND_NONE)
        return 0;
    if (!*rendezvous->endpoint && address)
        r = environment_take_address(&rendezvous->endpoint, address, err);
    if (r == 0 && !*rendezvous->id && id && strcmp(id, "none") != 0)
        r = environment_take_id(&rendezvous->id, id, err);
    return r;
}
