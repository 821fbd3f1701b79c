/* The one part of remote/ that opens files: AWS's two, for remote_profile_from(). */
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
    _cleanup_(file_closep)
    FILE *file = fopen(path, "re");

    if (!file && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    if (!file)
        return dl_error_set(err, errno, path, "cannot open it: %s; it may have keys of s3://",
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

/* By the variable, else below $HOME; NULL: neither is set. *ret_lost: out of memory. */
static char *file_path(remote_getenv get, void *of, const char *variable, const char *below_home,
                       bool *ret_lost)
{
    struct text text = {0};
    const char *value = get(variable, of);

    if (value && *value)
        return text_copy(value, ret_lost);
    value = get("HOME", of);
    if (!value || !*value)
        return NULL;
    text_add(&text, value);
    text_add(&text, below_home);
    char *path = text_take(&text);
    *ret_lost |= !path;
    return path;
}

int remote_profile_read(remote_getenv get, void *of, struct remote_profile *ret,
                        struct dl_error *err)
{
    bool is_lost = false;
    _cleanup_(file_text_deinit)
    struct file_text keys = {0};
    _cleanup_(file_text_deinit)
    struct file_text config = {0};
    _cleanup_free_ char *keys_path =
        file_path(get, of, "AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials", &is_lost);
    _cleanup_free_ char *config_path =
        file_path(get, of, "AWS_CONFIG_FILE", "/.aws/config", &is_lost);

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
