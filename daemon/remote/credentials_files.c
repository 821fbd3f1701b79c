/* The one part of remote/ that opens files: AWS's two, and the one with the Hub's token. */
#include "daemon/remote/credentials.h"

#include "daemon/remote/text.h"

#include <errno.h>
#include <stdio.h>

struct file_text {
    uint8_t *data; /* owned; secret */
    size_t len;
};

static void file_text_deinit(struct file_text *text)
{
    if (text->data)
        explicit_bzero(text->data, text->len);
    free(text->data);
    *text = (struct file_text){0};
}

static void file_closep(FILE **file)
{
    if (*file)
        (void)fclose(*file);
}

/* Empty where it is not there. */
static int file_text_read(const char *path, struct file_text *ret, struct dl_error *err)
{
    _cleanup_(file_closep) FILE *file = fopen(path, "re");

    if (!file && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (!file)
        return dl_error_set(err, errno, path,
                            "cannot open it: %s; it may have keys of remote storage",
                            strerror(errno));
    (void)setvbuf(file, NULL, _IONBF, 0); /* no copy of a secret in a buffer of stdio's */
    ret->data = malloc(REMOTE_PROFILE_BYTES + 1);
    if (!ret->data)
        return dl_error_set(err, ENOMEM, path, "out of memory");
    ret->len = fread(ret->data, 1, REMOTE_PROFILE_BYTES + 1, file);
    if (ferror(file))
        return dl_error_set(err, errno ? errno : EIO, path, "cannot read it: %s",
                            strerror(errno ? errno : EIO));
    if (ret->len > REMOTE_PROFILE_BYTES)
        return dl_error_set(err, EFBIG, path, "it is larger than 1 MiB, as no file of keys is");
    return 0;
}

struct file_place {
    const char *variable, *below;
};

static const struct file_place keys_places[] = {
    {"AWS_SHARED_CREDENTIALS_FILE", ""}, {"HOME", "/.aws/credentials"}, {NULL, NULL}};
static const struct file_place config_places[] = {
    {"AWS_CONFIG_FILE", ""}, {"HOME", "/.aws/config"}, {NULL, NULL}};
static const struct file_place token_places[] = {{"HF_TOKEN_PATH", ""},
                                                 {"HF_HOME", "/token"},
                                                 {"XDG_CACHE_HOME", "/huggingface/token"},
                                                 {"HOME", "/.cache/huggingface/token"},
                                                 {NULL, NULL}};
static const struct file_place identity_places[] = {{"AWS_WEB_IDENTITY_TOKEN_FILE", ""},
                                                    {NULL, NULL}};
static const struct file_place container_places[] = {{"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", ""},
                                                     {NULL, NULL}};

/* The value of the first variable that is set, and what stands below it; NULL: none is set. */
static char *file_path(remote_getenv get, void *of, const struct file_place *places, bool *ret_lost)
{
    for (; places->variable; places++) {
        const char *value = get(places->variable, of);
        struct text text = {0};

        if (!value || !*value)
            continue;
        text_add(&text, value);
        text_add(&text, places->below);
        char *path = text_take(&text);
        *ret_lost |= !path;
        return path;
    }
    return NULL;
}

int remote_profile_read(remote_getenv get, void *of, struct remote_profile *ret,
                        struct dl_error *err)
{
    bool is_lost = false;
    _cleanup_(file_text_deinit) struct file_text keys = {0};
    _cleanup_(file_text_deinit) struct file_text config = {0};
    _cleanup_free_ char *keys_path = file_path(get, of, keys_places, &is_lost);
    _cleanup_free_ char *config_path = file_path(get, of, config_places, &is_lost);

    *ret = (struct remote_profile){0};
    int r = is_lost ? dl_error_set(err, ENOMEM, "", "out of memory") : 0;
    if (r == 0 && keys_path)
        r = file_text_read(keys_path, &keys, err);
    if (r == 0 && config_path)
        r = file_text_read(config_path, &config, err);
    if (r < 0)
        return r;
    return remote_profile_from(get, of, (struct dl_span){keys.data, keys.len},
                               (struct dl_span){config.data, config.len}, ret, err);
}

/* The token is all of the file, but for spaces and ends of lines around it. */
static int token_take(const char *path, const struct file_text *file, const char *remedy,
                      char **ret, struct dl_error *err)
{
    const struct dl_span said = text_trim((struct dl_span){file->data, file->len});

    if (said.len == 0)
        return 0;
    char *token = span_dup(said);
    if (!token)
        return dl_error_set(err, ENOMEM, path, "out of memory");
    if (!text_is_plain(token) || strlen(token) != said.len) {
        text_wipe(&token);
        return dl_error_set(err, EINVAL, path, "it holds more than a token%s", remedy);
    }
    *ret = token;
    return 0;
}

int remote_token_read(remote_getenv get, void *of, struct remote_settings *settings,
                      struct dl_error *err)
{
    bool is_lost = false;
    _cleanup_(file_text_deinit) struct file_text file = {0};

    if (settings->hf_token)
        return 0;
    _cleanup_free_ char *path = file_path(get, of, token_places, &is_lost);
    if (is_lost)
        return dl_error_set(err, ENOMEM, "", "out of memory");
    int r = path ? file_text_read(path, &file, err) : 0;
    return r < 0 ? r
                 : token_take(path, &file, " of the Hub; write it anew: hf auth login",
                              &settings->hf_token, err);
}

int remote_secret_read(const char *path, char **ret, struct dl_error *err)
{
    _cleanup_(file_text_deinit) struct file_text file = {0};
    int r = file_text_read(path, &file, err);

    *ret = NULL;
    if (r == 0 && !file.data)
        return dl_error_set(err, ENOENT, path,
                            "%s: there is no such file, which is to have a token", path);
    if (r == 0)
        r = token_take(path, &file, "; it is to have one in one line", ret, err);
    if (r == 0 && !*ret)
        return dl_error_set(err, EINVAL, path, "%s: it is empty, and is to have a token", path);
    return r;
}

void remote_each_file(remote_getenv get, void *of, void (*each)(void *arg, const char *path),
                      void *arg)
{
    static const struct file_place *const all[] = {keys_places, config_places, token_places,
                                                   identity_places, container_places};
    bool is_lost = false;

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        _cleanup_free_ char *path = file_path(get, of, all[i], &is_lost);

        if (path)
            each(arg, path);
    }
}
