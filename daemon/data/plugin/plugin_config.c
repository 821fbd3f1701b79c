/* What a spec has under `config`, as the JSON text that its plug-in reads. */
#include "daemon/data/plugin/plugin_private.h"

#include "proto/common/utf8.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

/* The value being written, and where it stands in the spec. */
struct writing {
    char place[DL_ERROR_PATH_MAX];
    struct dl_error *err;
};

static int plugin_config_write_value(struct writing *w, const struct value *v, json_t **ret);

static int plugin_config_refuse(const struct writing *w, const char *text)
{
    return dl_error_set(w->err, EINVAL, w->place, "%s", text);
}

static int plugin_config_out_of_memory(const struct writing *w)
{
    return dl_error_set(w->err, ENOMEM, w->place, "out of memory");
}

static int plugin_config_write_text(struct writing *w, const char *text, json_t **ret)
{
    if (!utf8_text((const uint8_t *)text, strlen(text)))
        return plugin_config_refuse(w, "is not UTF-8, which text in JSON must be");
    *ret = json_string(text);
    return *ret ? 0 : plugin_config_out_of_memory(w);
}

static int plugin_config_write_children(struct writing *w, const struct value *v, json_t **ret)
{
    bool map = v->type == VALUE_MAP;
    size_t len = strlen(w->place);
    json_auto_t *json = map ? json_object() : json_array();

    if (!json)
        return plugin_config_out_of_memory(w);
    for (uint32_t i = 0; i < v->count; i++) {
        json_t *child = NULL;
        if (map)
            snprintf(w->place + len, sizeof w->place - len, ".%s", v->items[i].key);
        else
            snprintf(w->place + len, sizeof w->place - len, ".%u", i);
        int r = plugin_config_write_value(w, &v->items[i], &child);
        if (r < 0)
            return r;
        r = map ? json_object_set_new(json, v->items[i].key, child)
                : json_array_append_new(json, child);
        if (r < 0)
            return plugin_config_out_of_memory(w);
        w->place[len] = '\0';
    }
    *ret = steal_ptr(json);
    return 0;
}

static int plugin_config_write_value(struct writing *w, const struct value *v, json_t **ret)
{
    switch (v->type) {
    case VALUE_NULL:
        *ret = json_null();
        return 0;
    case VALUE_BOOL:
        *ret = json_boolean(v->boolean);
        return 0;
    case VALUE_INT:
        *ret = json_integer(v->integer);
        return *ret ? 0 : plugin_config_out_of_memory(w);
    case VALUE_UINT:
        return plugin_config_refuse(
            w, "is above 9223372036854775807, the largest number in JSON here; write it in "
               "quotes");
    case VALUE_FLOAT:
        if (!isfinite(v->number))
            return plugin_config_refuse(
                w, "is not a finite number, as JSON requires; write it in quotes");
        *ret = json_real(v->number);
        return *ret ? 0 : plugin_config_out_of_memory(w);
    case VALUE_STRING:
        return plugin_config_write_text(w, v->string, ret);
    case VALUE_ARRAY:
    case VALUE_MAP:
        return plugin_config_write_children(w, v, ret);
    }
    return plugin_config_refuse(w, "is not a value");
}

int plugin_config_text(const struct value *config, const char *place, char **ret,
                       struct dl_error *err)
{
    struct writing w = {.err = err};
    json_auto_t *json = NULL;

    snprintf(w.place, sizeof w.place, "%s", place);
    int r = plugin_config_write_value(&w, config, &json);
    if (r < 0)
        return r;
    *ret = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);
    return *ret ? 0 : plugin_config_out_of_memory(&w);
}
