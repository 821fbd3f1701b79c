#include "daemon/cluster/store/etcd_json.h"

#include "daemon/base/memory.h"
#include "proto/common/base64.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

/* ---- base64 --------------------------------------------------------------------------------- */

static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static char *etcd_json_to_base64(const uint8_t *data, size_t len)
{
    char *text = must_alloc((len + 2) / 3 * 4 + 1), *at = text;

    for (size_t i = 0; i < len; i += 3) {
        size_t left = len - i;
        uint32_t bits = (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
                        (left > 2 ? data[i + 2] : 0);

        *at++ = DIGITS[bits >> 18];
        *at++ = DIGITS[bits >> 12 & 63];
        *at++ = left > 1 ? DIGITS[bits >> 6 & 63] : '=';
        *at++ = left > 2 ? DIGITS[bits & 63] : '=';
    }
    *at = 0;
    return text;
}

static int etcd_json_from_base64(const char *text, size_t len, struct dl_buffer *ret)
{
    uint8_t *bytes = must_alloc(BASE64_BYTES(len) + 1);
    ssize_t n = base64_decode(text, len, bytes);

    if (n > 0)
        must_append(ret, bytes, (size_t)n);
    free(bytes);
    return n < 0 ? -EBADMSG : 0;
}

/* ---- requests ------------------------------------------------------------------------------- */

/* Consumes `json`, which may be NULL. */
static char *etcd_json_dump(json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;

    json_decref(json);
    return text;
}

static char *etcd_json_key_of(const char *key)
{
    return etcd_json_to_base64((const uint8_t *)key, strlen(key));
}

/* Numbers as etcd says them, too: not all JSON has 64 bits. */
static const char *etcd_json_number(uint64_t n, char buf[static 24])
{
    (void)snprintf(buf, 24, "%" PRIu64, n);
    return buf;
}

char *etcd_range_body(const char *key)
{
    _cleanup_free_ char *k = etcd_json_key_of(key);

    return etcd_json_dump(json_pack("{ss}", "key", k));
}

static json_t *etcd_json_put(const char *key, struct dl_span data, uint64_t lease)
{
    _cleanup_free_ char *k = etcd_json_key_of(key),
                        *value = etcd_json_to_base64(data.data, data.len);
    char id[24];

    return json_pack("{s{ssssss}}", "requestPut", "key", k, "value", value, "lease",
                     etcd_json_number(lease, id));
}

static json_t *etcd_json_range(const char *key)
{
    _cleanup_free_ char *k = etcd_json_key_of(key);

    return json_pack("{s{ss}}", "requestRange", "key", k);
}

char *etcd_txn_body(const char *key, uint64_t revision, struct dl_span data, uint64_t lease,
                    const struct backend_note *note)
{
    _cleanup_free_ char *k = etcd_json_key_of(key);
    json_t *puts = json_pack("[o]", etcd_json_put(key, data, lease));
    char rev[24];

    for (; note; note = note->next)
        (void)json_array_append_new(puts, etcd_json_put(note->key, note->data, lease));
    /* Of a key that is not there the revision is 0. */
    return etcd_json_dump(json_pack("{s[{ssssssss}]soso}", "compare", "key", k, "target", "MOD",
                                    "result", "EQUAL", "mod_revision",
                                    etcd_json_number(revision, rev), "success", puts, "failure",
                                    json_pack("[o]", etcd_json_range(key))));
}

/* Without anything to compare a transaction succeeds. */
char *etcd_put_body(const char *key, struct dl_span data, uint64_t lease, const char *ask)
{
    json_t *all = json_pack("[o]", etcd_json_put(key, data, lease));

    if (ask)
        (void)json_array_append_new(all, etcd_json_range(ask));
    return etcd_json_dump(json_pack("{so}", "success", all));
}

/* Up to the first key that does not begin so: the prefix with its last byte counted up. */
char *etcd_list_body(const char *prefix, const char *ask)
{
    _cleanup_free_ char *end = must_strdup(prefix), *from = etcd_json_key_of(prefix);

    end[strlen(end) - 1]++;
    _cleanup_free_ char *to = etcd_json_key_of(end);
    json_t *all = json_pack("[{s{ssss}}]", "requestRange", "key", from, "range_end", to);

    if (ask)
        (void)json_array_append_new(all, etcd_json_range(ask));
    return etcd_json_dump(json_pack("{so}", "success", all));
}

char *etcd_drop_body(const char *key)
{
    return etcd_range_body(key);
}

char *etcd_compact_body(uint64_t revision)
{
    char buf[24];

    return etcd_json_dump(json_pack("{ss}", "revision", etcd_json_number(revision, buf)));
}

char *etcd_watch_body(const char *key)
{
    _cleanup_free_ char *k = etcd_json_key_of(key);

    return etcd_json_dump(json_pack("{s{sssb}}", "create_request", "key", k, "progress_notify", 1));
}

char *etcd_grant_body(uint64_t lease, uint64_t seconds)
{
    char id[24], ttl[24];

    return etcd_json_dump(json_pack("{ssss}", "ID", etcd_json_number(lease, id), "TTL",
                                    etcd_json_number(seconds, ttl)));
}

char *etcd_keepalive_body(uint64_t lease)
{
    char buf[24];

    return etcd_json_dump(json_pack("{ss}", "ID", etcd_json_number(lease, buf)));
}

char *etcd_user_body(const char *user, const char *password)
{
    return etcd_json_dump(json_pack("{ssss}", "name", user, "password", password));
}

/* ---- answers -------------------------------------------------------------------------------- */

static json_t *etcd_json_load(struct dl_span body)
{
    json_t *json = body.len > 0 ? json_loadb((const char *)body.data, body.len, 0, NULL) : NULL;

    if (json && !json_is_object(json)) {
        json_decref(json);
        return NULL;
    }
    return json;
}

/* A number, in either way; false: it is there and is none. Absent is 0. */
static bool etcd_json_get_number(const json_t *object, const char *key, uint64_t *ret)
{
    const json_t *json = json_object_get(object, key);
    char *end = NULL;

    *ret = 0;
    if (!json)
        return true;
    if (json_is_integer(json) && json_integer_value(json) >= 0) {
        *ret = (uint64_t)json_integer_value(json);
        return true;
    }
    const char *text = json_string_value(json);
    if (!text || *text < '0' || *text > '9')
        return false;
    errno = 0;
    *ret = strtoull(text, &end, 10);
    return errno == 0 && *end == 0;
}

static int etcd_json_read_kv(const json_t *kv, struct etcd_kv *ret)
{
    const json_t *value = json_object_get(kv, "value");

    if (!etcd_json_get_number(kv, "mod_revision", &ret->revision) || ret->revision == 0 ||
        !etcd_json_get_number(kv, "create_revision", &ret->created) ||
        (value && !json_is_string(value)))
        return -EBADMSG;
    return value ? etcd_json_from_base64(json_string_value(value), json_string_length(value),
                                         &ret->data)
                 : 0;
}

/* The one value of a range's answer, or none. */
static int etcd_json_read_kvs(const json_t *range, struct etcd_kv *ret)
{
    const json_t *kvs = json_object_get(range, "kvs");

    if (!kvs || (json_is_array(kvs) && json_array_size(kvs) == 0))
        return 0;
    return etcd_json_read_kv(json_array_get(kvs, 0), ret);
}

static bool etcd_json_has_header(const json_t *json)
{
    return json_is_object(json_object_get(json, "header"));
}

int etcd_read_range(struct dl_span body, struct etcd_kv *ret)
{
    json_auto_t *json = etcd_json_load(body);

    *ret = (struct etcd_kv){0};
    int r = etcd_json_has_header(json) ? etcd_json_read_kvs(json, ret) : -EBADMSG;
    if (r < 0)
        buffer_deinit(&ret->data);
    return r;
}

int etcd_read_txn(struct dl_span body, struct etcd_kv *ret)
{
    json_auto_t *json = etcd_json_load(body);
    const json_t *header = json_object_get(json, "header");

    *ret = (struct etcd_kv){.won = json_is_true(json_object_get(json, "succeeded"))};
    if (!etcd_json_has_header(json))
        return -EBADMSG;
    if (ret->won)
        return etcd_json_get_number(header, "revision", &ret->written) && ret->written > 0
                   ? 0
                   : -EBADMSG;
    const json_t *first = json_array_get(json_object_get(json, "responses"), 0);
    const json_t *range = json_object_get(first, "response_range");
    int r = json_is_object(range) ? etcd_json_read_kvs(range, ret) : -EBADMSG;
    if (r < 0)
        buffer_deinit(&ret->data);
    return r;
}

/* The answer to the range at that place of a transaction, of which there may be none. */
static int etcd_json_read_range_at(const json_t *json, size_t at, struct etcd_kv *ret)
{
    const json_t *response = json_array_get(json_object_get(json, "responses"), at);
    const json_t *range = json_object_get(response, "response_range");

    *ret = (struct etcd_kv){0};
    return range ? etcd_json_read_kvs(range, ret) : 0;
}

static bool etcd_json_is_done(const json_t *json)
{
    return etcd_json_has_header(json) && json_is_true(json_object_get(json, "succeeded"));
}

int etcd_read_put(struct dl_span body, struct etcd_kv *ret)
{
    json_auto_t *json = etcd_json_load(body);

    *ret = (struct etcd_kv){0};
    int r = etcd_json_is_done(json) ? etcd_json_read_range_at(json, 1, ret) : -EBADMSG;
    if (r < 0)
        buffer_deinit(&ret->data);
    return r;
}

void etcd_list_deinit(struct etcd_list *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        free((char *)list->items[i].name);
        free((uint8_t *)list->items[i].data.data);
    }
    free(list->items);
    *list = (struct etcd_list){0};
}

static int etcd_json_add_item(const json_t *json, size_t prefix_len, struct etcd_list *list)
{
    const json_t *key = json_object_get(json, "key");
    _cleanup_(buffer_deinit) struct dl_buffer name = {0};
    struct etcd_kv kv = {0};

    if (!json_is_string(key) ||
        etcd_json_from_base64(json_string_value(key), json_string_length(key), &name) < 0 ||
        name.len < prefix_len || etcd_json_read_kv(json, &kv) < 0) {
        buffer_deinit(&kv.data);
        return -EBADMSG;
    }
    must_append(&name, "", 1);
    list->items[list->n++] =
        (struct backend_item){.name = must_strdup((const char *)name.data + prefix_len),
                              .data = {kv.data.data, kv.data.len}};
    return 0;
}

int etcd_read_list(struct dl_span body, size_t prefix_len, struct etcd_list *ret,
                   struct etcd_kv *ret_ask)
{
    json_auto_t *json = etcd_json_load(body);
    const json_t *first = json_array_get(json_object_get(json, "responses"), 0);
    const json_t *kvs = json_object_get(json_object_get(first, "response_range"), "kvs");
    size_t n = json_array_size(kvs);
    int r = etcd_json_is_done(json) && n <= UINT32_MAX ? 0 : -EBADMSG;

    *ret = (struct etcd_list){0};
    *ret_ask = (struct etcd_kv){0};
    if (r == 0 &&
        !etcd_json_get_number(json_object_get(json, "header"), "revision", &ret->revision))
        r = -EBADMSG;
    if (r == 0)
        ret->items = must_alloc(max_u64(n, 1) * sizeof *ret->items);
    for (size_t i = 0; i < n && r == 0; i++)
        r = etcd_json_add_item(json_array_get(kvs, i), prefix_len, ret);
    if (r == 0)
        r = etcd_json_read_range_at(json, 1, ret_ask);
    if (r < 0) {
        etcd_list_deinit(ret);
        buffer_deinit(&ret_ask->data);
    }
    return r;
}

int etcd_read_grant(struct dl_span body)
{
    json_auto_t *json = etcd_json_load(body);
    uint64_t lease;

    return etcd_json_get_number(json, "ID", &lease) && lease > 0 ? 0 : -EBADMSG;
}

int etcd_read_keepalive(struct dl_span body, bool *ret_alive)
{
    json_auto_t *json = etcd_json_load(body);
    const json_t *result = json_object_get(json, "result");
    uint64_t ttl;

    if (!json_is_object(result) || !etcd_json_get_number(result, "TTL", &ttl))
        return -EBADMSG;
    *ret_alive = ttl > 0;
    return 0;
}

int etcd_read_user(struct dl_span body, char **ret_token)
{
    json_auto_t *json = etcd_json_load(body);
    const char *token = json_string_value(json_object_get(json, "token"));

    if (!token || !*token)
        return -EBADMSG;
    *ret_token = must_strdup(token);
    return 0;
}

int etcd_read_watch(struct dl_span line, bool *ret_goes_on, struct dl_buffer *ret)
{
    json_auto_t *json = etcd_json_load(line);
    const json_t *result = json_object_get(json, "result");
    const json_t *events = json_object_get(result, "events");
    const json_t *latest = json_array_get(events, json_array_size(events) - 1);
    const json_t *value = json_object_get(json_object_get(latest, "kv"), "value");

    if (!json)
        return -EBADMSG;
    ret->len = 0;
    if (json_is_string(value) &&
        etcd_json_from_base64(json_string_value(value), json_string_length(value), ret) < 0)
        ret->len = 0;
    *ret_goes_on = json_is_object(result) && !json_is_true(json_object_get(result, "canceled"));
    return 0;
}

/* Of a stream it is one level deeper, and its number has another name. */
int etcd_read_error(struct dl_span body, char *text, size_t size)
{
    json_auto_t *json = etcd_json_load(body);
    const json_t *inner = json_object_get(json, "error");
    const json_t *from = json_is_object(inner) ? inner : json;
    const char *message = json_string_value(json_object_get(from, "message"));
    uint64_t code;

    if (!message)
        message = json_string_value(inner);
    if (!message)
        return -1;
    if (!json_object_get(from, "code") && json_object_get(from, "grpc_code"))
        (void)etcd_json_get_number(from, "grpc_code", &code);
    else if (!etcd_json_get_number(from, "code", &code))
        code = 0;
    (void)snprintf(text, size, "%s", message);
    return code <= 1000 ? (int)code : -1;
}
