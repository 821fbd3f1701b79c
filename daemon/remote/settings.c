#include "daemon/remote/settings.h"

#include "daemon/remote/credentials.h"
#include "daemon/remote/text.h"
#include "daemon/remote/url.h"

#include <ctype.h>
#include <errno.h>

void remote_settings_deinit(struct remote_settings *settings)
{
    free(settings->endpoint);
    free(settings->region);
    free(settings->gs_endpoint);
    free(settings->hf_endpoint);
    text_wipe(&settings->hf_token);
    *settings = (struct remote_settings){0};
}

/* The first of the variables that is set, and its name; NULL: none is. */
static const char *settings_get(remote_getenv get, void *of, const char *const *names,
                                const char **ret_name)
{
    for (; *names; names++) {
        const char *value = get(*names, of);

        if (value && *value) {
            *ret_name = *names;
            return value;
        }
    }
    return NULL;
}

/* "https://HOST:PORT/PATH", without the slash at its end. Its path stands in signatures, before
 * encoding, so it may have nothing to encode. */
static int settings_take_endpoint(const char *name, const char *value, char **ret,
                                  struct dl_error *err)
{
    struct url_parts parts = {0};
    struct text text = {0};
    const char *wrong = url_split(value, &parts);

    if (!wrong && parts.rest[strspn(parts.rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwx"
                                                "yz0123456789-._~/")])
        wrong = "its path has a sign other than letters, digits and - . _ ~";
    if (!wrong && (strstr(parts.rest, "/../") || strstr(parts.rest, "/./")))
        wrong = "its path has a . or .. in it";
    if (!wrong) {
        size_t n = strlen(parts.rest);

        while (n > 0 && parts.rest[n - 1] == '/')
            n--;
        text_add(&text, parts.origin);
        text_add_bytes(&text, parts.rest, n);
        *ret = text_take(&text);
    }
    free(parts.origin);
    if (wrong && *wrong)
        return dl_error_set(err, EINVAL, name, "%s: %s; an endpoint is as https://host:9000", name,
                            wrong);
    return *ret ? 0 : dl_error_set(err, ENOMEM, name, "out of memory");
}

static int settings_take_region(const char *name, const char *value, char **ret,
                                struct dl_error *err)
{
    size_t n = 0;
    bool is_lost = false;

    while (isalnum((uint8_t)value[n]) || value[n] == '-' || value[n] == '_')
        n++;
    if (value[n] || n > 63)
        return dl_error_set(err, EINVAL, name,
                            "%s: \"%.64s\" is no region; one has letters, digits and -, such as "
                            "eu-central-1",
                            name, value);
    *ret = text_copy(value, &is_lost);
    return is_lost ? dl_error_set(err, ENOMEM, name, "out of memory") : 0;
}

static int settings_take_token(const char *value, char **ret, struct dl_error *err)
{
    bool is_lost = false;

    if (!text_is_plain(value))
        return dl_error_set(err, EINVAL, "HF_TOKEN",
                            "HF_TOKEN: there is a control character in it, such as the end of a "
                            "line; set it to the token alone");
    *ret = text_copy(value, &is_lost);
    return is_lost ? dl_error_set(err, ENOMEM, "HF_TOKEN", "out of memory") : 0;
}

typedef int (*settings_take)(const char *, const char *, char **, struct dl_error *);

/* By the variables, else the profile's, else the default. */
static int settings_one(remote_getenv get, void *of, const char *const *names,
                        const char *of_profile, const char *otherwise, settings_take take,
                        char **ret, struct dl_error *err)
{
    const char *name = names[0];
    const char *value = settings_get(get, of, names, &name);

    if (!value && of_profile) {
        name = "the profile";
        value = of_profile;
    }
    value = value ? value : otherwise;
    return value ? take(name, value, ret, err) : 0;
}

int remote_settings_from(remote_getenv get, void *of, const struct remote_profile *profile,
                         struct remote_settings *ret, struct dl_error *err)
{
    static const char *const endpoint[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", NULL};
    static const char *const region[] = {"AWS_REGION", "AWS_DEFAULT_REGION", NULL};
    static const char *const hub[] = {"HF_ENDPOINT", NULL}, *const token[] = {"HF_TOKEN", NULL};
    static const char *const google[] = {"CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", NULL};
    const char *name;

    *ret = (struct remote_settings){0};
    int r = settings_one(get, of, endpoint, profile ? profile->endpoint : NULL, NULL,
                         settings_take_endpoint, &ret->endpoint, err);
    if (r == 0)
        r = settings_one(get, of, region, profile ? profile->region : NULL, "us-east-1",
                         settings_take_region, &ret->region, err);
    if (r == 0)
        r = settings_one(get, of, google, NULL, "https://storage.googleapis.com",
                         settings_take_endpoint, &ret->gs_endpoint, err);
    if (r == 0)
        r = settings_one(get, of, hub, NULL, "https://huggingface.co", settings_take_endpoint,
                         &ret->hf_endpoint, err);
    const char *secret = settings_get(get, of, token, &name);
    if (r == 0 && secret)
        r = settings_take_token(secret, &ret->hf_token, err);
    if (r < 0)
        remote_settings_deinit(ret);
    return r;
}
