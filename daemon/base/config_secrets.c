/* Secrets that the configuration names files of, and what may not be set without one. */
#include "daemon/base/address.h"
#include "daemon/base/config_private.h"
#include "daemon/base/memory.h"

#include <errno.h>

/* The first line of a file that holds a secret: the caller's. `path` is the setting that names it.
 */
static int config_read_secret(const char *file, const char *what, const char *path, char **ret,
                              struct dl_error *err)
{
    _cleanup_free_ char *text = NULL;
    struct dl_error why = {0};
    size_t len;

    int r = config_read_text(file, what, &text, &len, &why);
    if (!text)
        return dl_error_set(err, -r, path, "%s: %s", file, why.message);
    if (strlen(text) < len || strcspn(text, "\r\n") == 0)
        return dl_error_set(err, EINVAL, path, "%s has no %s in its first line", file, what);
    text[strcspn(text, "\r\n")] = '\0';
    *ret = steal_ptr(text);
    return 0;
}

static int config_read_password(struct config_rendezvous *config, struct dl_error *err)
{
    static const char path[] = "rendezvous.password_file";
    char *password;

    if (!*config->password_file)
        return 0;
    if (*config->password)
        return dl_error_set(err, EINVAL, path, "%s beside rendezvous.password; remove one of them",
                            config->password_file);
    int r = config_read_secret(config->password_file, "password", path, &password, err);
    if (r < 0)
        return r;
    free(config->password);
    config->password = password;
    return 0;
}

/* Guessing it opens everything, so it must not be short; a token is sent in headers and URLs.
 * `path` is the setting, "": nothing is read. */
static int config_read_token(const char *file, const char *what, const char *path, char **ret,
                             struct dl_error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-._~+/=";

    if (!*file)
        return 0;
    int r = config_read_secret(file, what, path, ret, err);
    if (r < 0)
        return r;
    size_t len = strlen(*ret);
    if (len < CONFIG_TOKEN_MIN || len > CONFIG_TOKEN_MAX || (*ret)[strspn(*ret, letters)])
        return dl_error_set(err, EINVAL, path,
                            "the %s in %s is not %d to %d letters, digits and -._~+/= long; make "
                            "one with: openssl rand -hex 32",
                            what, file, CONFIG_TOKEN_MIN, CONFIG_TOKEN_MAX);
    return 0;
}

/* All three, or none; processes that are not in the daemon's directory read them. */
static int config_check_certificates(const struct config_helpers *config, struct dl_error *err)
{
    const struct {
        const char *path, *file;
    } files[] = {{"helpers.certificate", config->certificate},
                 {"helpers.key", config->key},
                 {"helpers.authority", config->authority}};

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        if (!*config->certificate && !*config->key && !*config->authority)
            return 0;
        if (files[i].file[0] != '/')
            return dl_error_set(err, EINVAL, files[i].path,
                                "\"%s\" is not the absolute path of a file; TLS needs all of "
                                "helpers.certificate, helpers.key and helpers.authority",
                                files[i].file);
        if (access(files[i].file, R_OK) < 0)
            return dl_error_set(err, errno, files[i].path, "%s cannot be read: %s", files[i].file,
                                strerror(errno));
    }
    return 0;
}

/* Who is not asked to prove itself could be anybody. */
static int config_check_helpers(const struct config_helpers *config, struct dl_error *err)
{
    int r = config_check_certificates(config, err);

    if (r < 0)
        return r;
    if (config->addresses.n == 0 || config->secret)
        return 0;
    return dl_error_set(err, EINVAL, "helpers.secret_file",
                        "is not set, and helpers and this daemon have to prove it to each other; "
                        "write the same secret on all machines, made with: openssl rand -hex 32");
}

/* Other machines must authenticate. */
static int config_check_metrics(const struct config_metrics *config, struct dl_error *err)
{
    union address address;

    if (!*config->listen || address_is_path(config->listen) || config->token ||
        address_parse(config->listen, &address) < 0 || address_is_local(&address))
        return 0;
    return dl_error_set(
        err, EINVAL, "metrics.listen",
        "\"%s\" is not a local address such as 127.0.0.1:9400 or [::1]:9400; other machines need a "
        "token: set metrics.token_file, or give them access through a proxy",
        config->listen);
}

int config_read_secrets(struct config *config, struct dl_error *err)
{
    int r = config_read_password(&config->rendezvous, err);

    if (r == 0)
        r = config_read_token(config->metrics.token_file, "token", "metrics.token_file",
                              &config->metrics.token, err);
    if (r == 0)
        r = config_read_token(config->helpers.secret_file, "secret", "helpers.secret_file",
                              &config->helpers.secret, err);
    if (r == 0)
        r = config_check_metrics(&config->metrics, err);
    return r < 0 ? r : config_check_helpers(&config->helpers, err);
}
