/* Sessions, views and loaders: see ask.h. */
#include "client/dlctl/ask.h"

#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "proto/pages.h"
#include <jansson.h>

int ask_connect(const struct options *o, struct dl_client **ret)
{
    return dl_client_connect(ret, o->socket, "dlctl " DLOADER_VERSION);
}

void ask_end(struct dl_client **client)
{
    *client = dl_client_close(*client);
}

int ask_view(struct dl_client *client, const char *view, struct value *ret)
{
    const void *data;
    size_t len;
    int r = dl_client_query(client, view, &data, &len);

    return r < 0 ? r : pages_unpack(data, len, ret, NULL);
}

static bool ask_is_of_loader(const struct value *row, const char *key, const char *name,
                             const struct value *uid)
{
    const struct value *loader = value_get(row, key), *user = value_get(row, "uid");

    if (!loader || loader->type != VALUE_STRING || strcmp(loader->string, name) != 0)
        return false;
    return !uid || !user || value_equal(user, uid);
}

void ask_keep_loader(struct value *view, const char *key, const char *name, const struct value *uid)
{
    uint32_t n = 0;

    for (uint32_t i = 0; view->type == VALUE_ARRAY && i < view->count; i++) {
        struct value *row = &view->items[i];

        if (!ask_is_of_loader(row, key, name, uid))
            continue;
        if (n < i)
            value_move(row, &view->items[n]);
        n++;
    }
    while (view->type == VALUE_ARRAY && view->count > n)
        value_deinit(&view->items[--view->count]);
}

int ask_show(const struct options *o, struct dl_client *client, int r, struct dl_span answer,
             void (*print)(const struct value *view))
{
    _cleanup_(value_deinit) struct value view = {0};

    if (r == 0)
        r = value_unpack(answer.data, answer.len, &view, NULL);
    if (r < 0)
        return report_client(o, client, r);
    if (o->json)
        return report_json(o, render_json(&view));
    print(&view);
    return STATUS_DONE;
}

static bool ask_ends_in(const char *text, const char *tail)
{
    size_t len = strlen(text), n = strlen(tail);

    return len > n && strcmp(text + len - n, tail) == 0;
}

bool operand_is_file(const char *operand)
{
    return strchr(operand, '/') || access(operand, F_OK) == 0 || ask_ends_in(operand, ".yaml") ||
           ask_ends_in(operand, ".yml") || ask_ends_in(operand, ".json");
}

int open_name(struct dl_client *client, const char *name, struct dl_loader **ret)
{
    json_t *json = json_string(name);
    _cleanup_free_ char *text = json ? json_dumps(json, JSON_ENCODE_ANY) : NULL;
    const char *said = text ? text : name;

    json_decref(json);
    return dl_loader_open(client, said, strlen(said), NULL, ret);
}

int open_operand(struct dl_client *client, const char *operand, struct dl_loader **ret)
{
    if (operand_is_file(operand))
        return dl_loader_open_file(client, operand, ret);
    return open_name(client, operand, ret);
}
