#include "daemon/remote/credentials.h"

#include "daemon/remote/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>

void remote_credentials_deinit(struct remote_credentials *credentials)
{
    text_wipe(&credentials->access_key);
    text_wipe(&credentials->secret_key);
    text_wipe(&credentials->session_token);
}

bool remote_credentials_are_there(const struct remote_credentials *credentials)
{
    return credentials && credentials->access_key && credentials->secret_key;
}

void remote_profile_deinit(struct remote_profile *profile)
{
    remote_credentials_deinit(&profile->credentials);
    free(profile->region);
    free(profile->endpoint);
    free(profile->identity_file);
    free(profile->role);
    free(profile->session);
    *profile = (struct remote_profile){0};
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* A file as AWS's: sections in brackets, NAME = VALUE below them, comments from # or ; on, and
 * lines that are indented further than the name before them, which belong to that one's value. */
struct ini {
    struct dl_span text; /* borrowed: what is left */
    size_t indent;       /* of the last name; SIZE_MAX: none in this section */
};

/* What one line says: a section, or a name of it. */
struct ini_line {
    bool is_section;
    struct dl_span name, value;
};

static bool ini_is_property(struct ini *ini, struct dl_span line, size_t indent,
                            struct ini_line *ret)
{
    const uint8_t *equals = memchr(line.data, '=', line.len);

    if (!equals || (ini->indent != SIZE_MAX && indent > ini->indent))
        return false;
    size_t n = (size_t)(equals - line.data);
    ini->indent = indent;
    *ret = (struct ini_line){
        .name = text_trim((struct dl_span){line.data, n}),
        .value = text_trim((struct dl_span){equals + 1, line.len - n - 1}),
    };
    return true;
}

static bool ini_is_section(struct ini *ini, struct dl_span line, struct ini_line *ret)
{
    const uint8_t *close = line.data[0] == '[' ? memchr(line.data, ']', line.len) : NULL;

    if (!close)
        return false;
    ini->indent = SIZE_MAX;
    *ret = (struct ini_line){
        .is_section = true,
        .name = text_trim((struct dl_span){line.data + 1, (size_t)(close - line.data) - 1}),
    };
    return true;
}

/* The next line that says something; false: the text is at its end. */
static bool ini_next(struct ini *ini, struct ini_line *ret)
{
    while (ini->text.len > 0) {
        const uint8_t *end = memchr(ini->text.data, '\n', ini->text.len);
        struct dl_span raw = {ini->text.data, end ? (size_t)(end - ini->text.data) : ini->text.len};
        size_t used = raw.len + (end != NULL);

        ini->text.data += used;
        ini->text.len -= used;
        struct dl_span line = text_trim(raw);
        if (line.len == 0 || line.data[0] == '#' || line.data[0] == ';')
            continue;
        if (ini_is_section(ini, line, ret) ||
            ini_is_property(ini, line, (size_t)(line.data - raw.data), ret))
            return true;
    }
    return false;
}

static bool ini_is(struct dl_span span, const char *text)
{
    return span.len == strlen(text) && memcmp(span.data, text, span.len) == 0;
}

/* ---- profiles ------------------------------------------------------------------------------- */

/* What a file says of a profile. */
struct profile_said {
    struct remote_profile profile;
    const char *other; /* static: the key that says its keys come in another way; NULL: none */
    bool is_there;
    bool is_lost;
};

/* "[NAME]" in either file, "[profile NAME]" in the config file, where the name may be quoted. */
static bool profile_is_section(struct dl_span section, const char *name, bool is_config)
{
    static const char word[] = "profile";
    size_t n = sizeof word - 1;

    if (ini_is(section, name) && (!is_config || strcmp(name, "default") == 0))
        return true;
    if (!is_config || section.len <= n || memcmp(section.data, word, n) != 0 ||
        !isspace(section.data[n]))
        return false;
    struct dl_span rest = text_trim((struct dl_span){section.data + n, section.len - n});
    if (rest.len >= 2 && strchr("\"'", rest.data[0]) && rest.data[rest.len - 1] == rest.data[0])
        rest = (struct dl_span){rest.data + 1, rest.len - 2};
    return ini_is(rest, name);
}

static void profile_take(struct profile_said *said, const struct ini_line *line)
{
    static const char *const others[] = {"role_arn",      "sso_session",
                                         "sso_start_url", "web_identity_token_file",
                                         "login_session", "credential_process"};
    struct remote_profile *profile = &said->profile;
    const struct {
        const char *name;
        char **to;
    } rows[] = {
        {"aws_access_key_id", &profile->credentials.access_key},
        {"aws_secret_access_key", &profile->credentials.secret_key},
        {"aws_session_token", &profile->credentials.session_token},
        {"region", &profile->region},
        {"endpoint_url", &profile->endpoint},
        {"web_identity_token_file", &profile->identity_file},
        {"role_arn", &profile->role},
        {"role_session_name", &profile->session},
    };

    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (ini_is(line->name, others[i]) && !said->other)
            said->other = others[i];
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (!ini_is(line->name, rows[i].name) || line->value.len == 0)
            continue;
        text_wipe(rows[i].to);
        *rows[i].to = span_dup(line->value);
        said->is_lost |= !*rows[i].to;
    }
}

static void profile_read(struct dl_span text, const char *name, bool is_config,
                         struct profile_said *ret)
{
    struct ini ini = {.text = text, .indent = SIZE_MAX};
    struct ini_line line;
    bool is_ours = false;

    *ret = (struct profile_said){0};
    while (ini_next(&ini, &line)) {
        if (line.is_section)
            is_ours = profile_is_section(line.name, name, is_config);
        else if (is_ours)
            profile_take(ret, &line);
        ret->is_there |= is_ours;
    }
}

/* Both, or none; and nothing that ends a line of a header. `names` are those of key and secret. */
static int credentials_check(const struct remote_credentials *c, const char *const names[2],
                             const char *where, struct dl_error *err)
{
    const char *texts[] = {c->access_key, c->secret_key, c->session_token};

    if (!c->access_key != !c->secret_key) {
        bool has_key = c->access_key != NULL;

        return dl_error_set(err, EINVAL, where,
                            "%s: %s is set, and %s is not; a request is signed by both: set both, "
                            "or neither, for public data",
                            where, names[!has_key], names[has_key]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        if (texts[i] && !text_is_plain(texts[i]))
            return dl_error_set(err, EINVAL, where,
                                "%s: there is a control character in %s, such as the end of a "
                                "line; set it anew",
                                where, i < 2 ? names[i] : "the session token");
    return 0;
}

static int credentials_of_environment(remote_getenv get, void *of, struct remote_credentials *ret,
                                      struct dl_error *err)
{
    static const char *const names[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN"};
    char **to[] = {&ret->access_key, &ret->secret_key, &ret->session_token};
    bool is_lost = false;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const char *value = get(names[i], of);

        if (value && *value)
            *to[i] = text_copy(value, &is_lost);
    }
    if (is_lost)
        return dl_error_set(err, ENOMEM, names[0], "out of memory");
    return credentials_check(ret, names, "the environment", err);
}

/* The keys of a file, whole; those that need another way are refused. */
static int profile_check(const struct profile_said *said, const char *name, struct dl_error *err)
{
    static const char *const names[] = {"aws_access_key_id", "aws_secret_access_key"};
    bool has_keys = remote_credentials_are_there(&said->profile.credentials);
    char where[96];

    (void)snprintf(where, sizeof where, "profile \"%.64s\"", name);
    if (said->other && (!has_keys || strcmp(said->other, "credential_process") != 0))
        return dl_error_set(
            err, ENOTSUP, where,
            "%s: it gets its keys by %s, which is not done here; put them into the "
            "environment: eval \"$(aws configure export-credentials --profile %.64s "
            "--format env)\"",
            where, said->other, name);
    return credentials_check(&said->profile.credentials, names, where, err);
}

static void profile_move(char **to, char **from)
{
    if (!*to)
        *to = steal_ptr(*from);
}

/* Of the environment, else of the profile. A profile's role that is another's to take is refused
 * below, whatever the environment has. */
static int profile_choose_identity(remote_getenv get, void *of, struct profile_said said[2],
                                   struct remote_profile *ret, struct dl_error *err)
{
    static const char *const names[] = {"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN",
                                        "AWS_ROLE_SESSION_NAME"};
    char **to[] = {&ret->identity_file, &ret->role, &ret->session};
    bool is_lost = false, is_others = false;

    for (size_t i = 0; i < 2; i++)
        is_others |= said[i].profile.role && !said[0].profile.identity_file &&
                     !said[1].profile.identity_file;
    if (remote_credentials_are_there(&ret->credentials) || is_others)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const char *value = get(names[i], of);

        if (value && *value)
            *to[i] = text_copy(value, &is_lost);
    }
    for (size_t i = 0; i < 2; i++) {
        profile_move(&ret->identity_file, &said[i].profile.identity_file);
        profile_move(&ret->role, &said[i].profile.role);
        profile_move(&ret->session, &said[i].profile.session);
    }
    if (is_lost)
        return dl_error_set(err, ENOMEM, names[0], "out of memory");
    if (ret->identity_file && !ret->role)
        return dl_error_set(err, EINVAL, names[0],
                            "there is a file with an identity's token, and no role for it; set "
                            "AWS_ROLE_ARN, or role_arn of the profile");
    return 0;
}

/* Keys of the environment, else of the credentials file, else of the config file: never of two. */
static int profile_choose(const char *name, struct profile_said said[2], struct remote_profile *ret,
                          struct dl_error *err)
{
    for (size_t i = 0; i < 2; i++) {
        struct remote_credentials *from = &said[i].profile.credentials;

        if (!remote_credentials_are_there(&ret->credentials) && !ret->identity_file) {
            int r = profile_check(&said[i], name, err);

            if (r < 0)
                return r;
            if (remote_credentials_are_there(from)) {
                ret->credentials = *from;
                *from = (struct remote_credentials){0};
            }
        }
        profile_move(&ret->region, &said[i].profile.region);
        profile_move(&ret->endpoint, &said[i].profile.endpoint);
    }
    return 0;
}

int remote_profile_from(remote_getenv get, void *of, struct dl_span credentials,
                        struct dl_span config, struct remote_profile *ret, struct dl_error *err)
{
    bool is_lost = false;
    struct profile_said said[2] = {0};

    *ret = (struct remote_profile){0};
    const char *asked = get("AWS_PROFILE", of);
    bool is_named = asked && *asked;
    char *name = text_copy(is_named ? asked : "default", &is_lost);
    int r = is_lost ? dl_error_set(err, ENOMEM, "AWS_PROFILE", "out of memory")
                    : credentials_of_environment(get, of, &ret->credentials, err);
    if (r == 0) {
        profile_read(credentials, name, false, &said[0]);
        profile_read(config, name, true, &said[1]);
        if (said[0].is_lost || said[1].is_lost)
            r = dl_error_set(err, ENOMEM, name, "out of memory");
        else if (is_named && !said[0].is_there && !said[1].is_there)
            r = dl_error_set(err, ENOENT, name,
                             "AWS_PROFILE: neither ~/.aws/credentials nor ~/.aws/config has a "
                             "profile \"%.64s\"; write one, or unset AWS_PROFILE",
                             name);
        else
            r = profile_choose_identity(get, of, said, ret, err);
        if (r == 0)
            r = profile_choose(name, said, ret, err);
        remote_profile_deinit(&said[0].profile);
        remote_profile_deinit(&said[1].profile);
    }
    if (r < 0)
        remote_profile_deinit(ret);
    free(name);
    return r;
}
