#include "daemon/remote/issuer.h"

#include "daemon/remote/date.h"
#include "daemon/remote/text.h"
#include "daemon/remote/url.h"
#include "daemon/remote/xml.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>

enum { ISSUER_ANSWER_BYTES = 64 << 10 };

void remote_issuer_deinit(struct remote_issuer *issuer)
{
    free(issuer->url);
    free(issuer->role);
    free(issuer->session);
    free(issuer->token_file);
    text_wipe(&issuer->token);
    *issuer = (struct remote_issuer){0};
}

void remote_issuer_request_deinit(struct remote_issuer_request *request)
{
    free(request->url);
    for (uint32_t i = 0; i < request->n_headers; i++)
        text_wipe(&request->headers[i]);
    text_wipe(&request->body);
    *request = (struct remote_issuer_request){0};
}

/* ---- which one ------------------------------------------------------------------------------ */

static const char *issuer_get(remote_getenv get, void *of, const char *name)
{
    const char *value = get(name, of);

    return value && *value ? value : NULL;
}

/* An origin and perhaps a path, of http or https; *ret is owned. */
static int issuer_take_url(const char *name, const char *value, char **ret, struct dl_error *err)
{
    struct url_parts parts = {0};
    const char *wrong = url_split(value, &parts);
    bool is_lost = false;

    free(parts.origin);
    if (!wrong && !text_is_plain(value))
        wrong = "there is a control character in it";
    if (wrong && *wrong)
        return dl_error_set(err, EINVAL, name, "%s: %s", name, wrong);
    if (!wrong)
        *ret = text_copy(value, &is_lost);
    return *ret ? 0 : dl_error_set(err, ENOMEM, name, "out of memory");
}

static int issuer_choose_sts(remote_getenv get, void *of, const struct remote_profile *profile,
                             const struct remote_settings *settings, struct remote_issuer *ret,
                             struct dl_error *err)
{
    static const char *const names[] = {"AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"};
    bool is_lost = false;
    struct text url = {0};

    ret->kind = ISSUER_WEB_IDENTITY;
    ret->role = text_copy(profile->role, &is_lost);
    ret->session = text_copy(profile->session ? profile->session : "dloaderd", &is_lost);
    ret->token_file = text_copy(profile->identity_file, &is_lost);
    for (size_t i = 0; i < ARRAY_SIZE(names) && !is_lost; i++) {
        const char *value = issuer_get(get, of, names[i]);

        if (value)
            return issuer_take_url(names[i], value, &ret->url, err);
    }
    text_print(&url, "https://sts.%s.amazonaws.com%s", settings->region,
               strncmp(settings->region, "cn-", 3) == 0 ? ".cn" : "");
    ret->url = text_take(&url);
    return ret->url && !is_lost ? 0 : dl_error_set(err, ENOMEM, names[0], "out of memory");
}

/* In clear keys come from this machine alone: from itself, or the addresses of ECS and EKS. */
static bool issuer_is_near(const char *url)
{
    static const char *const hosts[] = {"127.0.0.1",     "localhost",      "[::1]",
                                        "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};

    if (strncmp(url, "https:", 6) == 0)
        return true;
    const char *host = url + strlen("http://");
    for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
        size_t n = strlen(hosts[i]);

        if (strncmp(host, hosts[i], n) == 0 && (!host[n] || strchr(":/?", host[n])))
            return true;
    }
    return false;
}

static int issuer_choose_container(remote_getenv get, void *of, struct remote_issuer *ret,
                                   struct dl_error *err)
{
    static const char full[] = "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                      relative[] = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
    const char *path = issuer_get(get, of, relative), *url = issuer_get(get, of, full);
    const char *file = issuer_get(get, of, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *token = issuer_get(get, of, "AWS_CONTAINER_AUTHORIZATION_TOKEN");
    bool is_lost = false;
    struct text whole = {0};

    ret->kind = ISSUER_CONTAINER;
    ret->token_file = text_copy(file, &is_lost);
    ret->token = file ? NULL : text_copy(token, &is_lost);
    if (path && (*path != '/' || !text_is_plain(path)))
        return dl_error_set(err, EINVAL, relative, "%s: it is no path, which begins with /",
                            relative);
    if (path) {
        text_add(&whole, "http://169.254.170.2");
        text_add(&whole, path);
        ret->url = text_take(&whole);
        return ret->url && !is_lost ? 0 : dl_error_set(err, ENOMEM, relative, "out of memory");
    }
    int r = is_lost ? dl_error_set(err, ENOMEM, full, "out of memory")
                    : issuer_take_url(full, url, &ret->url, err);
    if (r == 0 && !issuer_is_near(ret->url))
        r = dl_error_set(err, EACCES, full,
                         "%s: keys would come in clear from another machine; use https", full);
    return r;
}

static int issuer_choose_instance(remote_getenv get, void *of, struct remote_issuer *ret,
                                  struct dl_error *err)
{
    static const char name[] = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
    const char *value = issuer_get(get, of, name);
    const char *mode = issuer_get(get, of, "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");

    ret->kind = ISSUER_INSTANCE;
    if (!value)
        value = mode && strcasecmp(mode, "ipv6") == 0 ? "http://[fd00:ec2::254]"
                                                      : "http://169.254.169.254";
    int r = issuer_take_url(name, value, &ret->url, err);
    for (size_t n = r == 0 ? strlen(ret->url) : 0; n > 0 && ret->url[n - 1] == '/'; n--)
        ret->url[n - 1] = '\0';
    return r;
}

int remote_issuer_choose(remote_getenv get, void *of, const struct remote_profile *profile,
                         const struct remote_settings *settings, struct remote_issuer *ret,
                         struct dl_error *err)
{
    const char *disabled = issuer_get(get, of, "AWS_EC2_METADATA_DISABLED");
    int r = 0;

    *ret = (struct remote_issuer){0};
    if (remote_credentials_are_there(&profile->credentials))
        return 0;
    if (profile->identity_file)
        r = issuer_choose_sts(get, of, profile, settings, ret, err);
    else if (issuer_get(get, of, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") ||
             issuer_get(get, of, "AWS_CONTAINER_CREDENTIALS_FULL_URI"))
        r = issuer_choose_container(get, of, ret, err);
    else if (!disabled || strcasecmp(disabled, "true") != 0)
        r = issuer_choose_instance(get, of, ret, err);
    if (r < 0)
        remote_issuer_deinit(ret);
    return r;
}

/* ---- what is asked -------------------------------------------------------------------------- */

static void issuer_add_header(struct remote_issuer_request *request, const char *name,
                              const char *value, bool *is_lost)
{
    struct text line = {0};

    text_add(&line, name);
    text_add(&line, ": ");
    text_add(&line, value);
    request->headers[request->n_headers] = text_take(&line);
    *is_lost |= !request->headers[request->n_headers];
    request->n_headers++;
}

static void issuer_ask_sts(const struct remote_issuer *issuer, const char *secret,
                           struct remote_issuer_request *ret, bool *is_lost)
{
    struct text body = {0};

    ret->method = "POST";
    ret->url = text_copy(issuer->url, is_lost);
    text_add(&body, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=");
    text_encode(&body, issuer->role, false);
    text_add(&body, "&RoleSessionName=");
    text_encode(&body, issuer->session, false);
    text_add(&body, "&WebIdentityToken=");
    text_encode(&body, secret ? secret : "", false);
    ret->body = text_take(&body);
    *is_lost |= !ret->body;
}

static void issuer_ask_instance(const struct remote_issuer *issuer, enum remote_issuer_step step,
                                const char *secret, const char *role,
                                struct remote_issuer_request *ret, bool *is_lost)
{
    struct text url = {0};

    text_add(&url, issuer->url);
    text_add(&url, step == ISSUER_SESSION ? "/latest/api/token"
                                          : "/latest/meta-data/iam/security-credentials/");
    if (step == ISSUER_KEYS)
        text_encode(&url, role ? role : "", false);
    ret->method = step == ISSUER_SESSION ? "PUT" : "GET";
    ret->url = text_take(&url);
    *is_lost |= !ret->url;
    if (step == ISSUER_SESSION)
        issuer_add_header(ret, "X-aws-ec2-metadata-token-ttl-seconds", "21600", is_lost);
    else
        issuer_add_header(ret, "X-aws-ec2-metadata-token", secret ? secret : "", is_lost);
}

int remote_issuer_ask(const struct remote_issuer *issuer, enum remote_issuer_step step,
                      const char *secret, const char *role, struct remote_issuer_request *ret,
                      struct dl_error *err)
{
    bool is_lost = false;

    *ret = (struct remote_issuer_request){0};
    if (secret && !text_is_plain(secret))
        return dl_error_set(err, EINVAL, issuer->url,
                            "the token for %s has a control character in it", issuer->url);
    if (issuer->kind == ISSUER_WEB_IDENTITY) {
        issuer_ask_sts(issuer, secret, ret, &is_lost);
    } else if (issuer->kind == ISSUER_CONTAINER) {
        ret->method = "GET";
        ret->url = text_copy(issuer->url, &is_lost);
        if (secret)
            issuer_add_header(ret, "Authorization", secret, &is_lost);
    } else {
        issuer_ask_instance(issuer, step, secret, role, ret, &is_lost);
    }
    if (!is_lost)
        return 0;
    remote_issuer_request_deinit(ret);
    return dl_error_set(err, ENOMEM, issuer->url, "out of memory");
}

/* ---- what it answers ------------------------------------------------------------------------ */

int remote_issuer_line(struct dl_span body, char **ret, struct dl_error *err)
{
    size_t len = 0;

    while (len < body.len && body.data[len] != '\n' && body.data[len] != '\r')
        len++;
    *ret =
        len > 0 && len <= REMOTE_SECRET_BYTES ? span_dup((struct dl_span){body.data, len}) : NULL;
    if (*ret && strlen(*ret) == len && text_is_plain(*ret))
        return 0;
    text_wipe(ret);
    return dl_error_set(err, EBADMSG, "", "the metadata service answers with no line of text");
}

/* Of either form; texts owned. */
struct issuer_said {
    char *access_key, *secret_key, *token, *until, *code, *message;
};

static void issuer_said_deinit(struct issuer_said *said)
{
    char **texts[] = {&said->access_key, &said->secret_key, &said->token,
                      &said->until,      &said->code,       &said->message};

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        text_wipe(texts[i]);
}

static void issuer_read_json(struct dl_span body, struct issuer_said *ret, bool *is_lost)
{
    json_t *json = body.len > 0 ? json_loadb((const char *)body.data, body.len, 0, NULL) : NULL;
    const struct {
        const char *name;
        char **to;
    } rows[] = {
        {"AccessKeyId", &ret->access_key},
        {"SecretAccessKey", &ret->secret_key},
        {"Token", &ret->token},
        {"Expiration", &ret->until},
        {"Code", &ret->code},
        {"Message", &ret->message},
        {"code", &ret->code},
        {"message", &ret->message},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *value = json_string_value(json_object_get(json, rows[i].name));

        if (value && !*rows[i].to)
            *rows[i].to = text_copy(value, is_lost);
    }
    json_decref(json);
}

static void issuer_close(const struct xml *xml, struct text *value, struct issuer_said *ret,
                         bool *is_lost)
{
    const struct {
        const char *parent, *name;
        char **to;
    } rows[] = {
        {"Credentials", "AccessKeyId", &ret->access_key},
        {"Credentials", "SecretAccessKey", &ret->secret_key},
        {"Credentials", "SessionToken", &ret->token},
        {"Credentials", "Expiration", &ret->until},
        {"Error", "Code", &ret->code},
        {"Error", "Message", &ret->message},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows) && xml->depth > 1; i++) {
        if (*rows[i].to || !xml_is(xml, xml->depth, rows[i].name) ||
            !xml_is(xml, xml->depth - 1, rows[i].parent))
            continue;
        *rows[i].to = text_take(value);
        *is_lost |= !*rows[i].to;
    }
    text_deinit(value);
}

static void issuer_read_xml(struct dl_span body, struct issuer_said *ret, bool *is_lost)
{
    struct dl_span piece = {0};
    struct text value = {0};
    enum xml_event event;
    struct xml xml;
    bool is_raw;

    xml_init(&xml, body);
    do {
        event = xml_next(&xml, &piece, &is_raw);
        if (event == XML_OPEN)
            text_deinit(&value);
        else if (event == XML_TEXT && is_raw)
            text_add_bytes(&value, piece.data, piece.len);
        else if (event == XML_TEXT)
            (void)xml_decode(&value, piece);
        else if (event == XML_CLOSE)
            issuer_close(&xml, &value, ret, is_lost);
    } while (event != XML_DONE && event != XML_BAD);
    text_deinit(&value);
}

static const char *issuer_name(const struct remote_issuer *issuer)
{
    static const char *const names[] = {[ISSUER_NONE] = "nobody",
                                        [ISSUER_WEB_IDENTITY] = "STS",
                                        [ISSUER_CONTAINER] = "the container's service of keys",
                                        [ISSUER_INSTANCE] = "the instance's metadata service"};

    return names[issuer->kind];
}

static int issuer_refuse(const struct remote_issuer *issuer, int status,
                         const struct issuer_said *said, struct dl_error *err)
{
    const char *code = said->code ? said->code : "", *words = said->message ? said->message : "";

    return dl_error_set(err, EACCES, issuer->url,
                        "%s at %s gives no keys: status %d%s%.64s%s%.256s", issuer_name(issuer),
                        issuer->url, status, *code ? ", " : "", code, *words ? ": " : "", words);
}

static int issuer_take_said(const struct remote_issuer *issuer, struct issuer_said *said,
                            struct remote_issued *ret, struct dl_error *err)
{
    const char *texts[] = {said->access_key, said->secret_key, said->token};
    bool is_whole = said->access_key && said->secret_key;

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        is_whole &= !texts[i] || text_is_plain(texts[i]);
    ret->until = said->until ? date_of_iso(span_str(said->until)) : INT64_MAX;
    if (!is_whole || ret->until < 0)
        return dl_error_set(err, EBADMSG, issuer->url, "%s at %s answers with what are no keys",
                            issuer_name(issuer), issuer->url);
    ret->credentials = (struct remote_credentials){.access_key = steal_ptr(said->access_key),
                                                   .secret_key = steal_ptr(said->secret_key),
                                                   .session_token = steal_ptr(said->token)};
    return 0;
}

int remote_issuer_take(const struct remote_issuer *issuer, int status, struct dl_span body,
                       struct remote_issued *ret, struct dl_error *err)
{
    struct issuer_said said = {0};
    bool is_lost = false;
    int r;

    *ret = (struct remote_issued){0};
    if (body.len > ISSUER_ANSWER_BYTES)
        return dl_error_set(err, EBADMSG, issuer->url, "%s answers with more than keys",
                            issuer->url);
    if (issuer->kind == ISSUER_WEB_IDENTITY)
        issuer_read_xml(body, &said, &is_lost);
    else
        issuer_read_json(body, &said, &is_lost);
    if (is_lost)
        r = dl_error_set(err, ENOMEM, issuer->url, "out of memory");
    else if (status != 200 || (said.code && strcmp(said.code, "Success") != 0))
        r = issuer_refuse(issuer, status, &said, err);
    else
        r = issuer_take_said(issuer, &said, ret, err);
    issuer_said_deinit(&said);
    return r;
}
