#include "daemon/data/decode/tokenizer/chat_file.h"

#include "daemon/data/files/source.h"

#include <errno.h>
#include <stdio.h>

/* Those of the largest vocabularies have some megabytes. */
enum { CHAT_FILE_BYTES_MAX = 32 << 20 };

struct chat_file {
    const struct spec_dataset *spec;
    const struct data_env *env;
    const char *text;
    size_t n;
    const json_t *variables;
};

static const char chat_file_config[] = "tokenizer_config.json";

static const char *chat_file_name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool chat_file_beside(const struct spec_dataset *spec, char ret[static DL_BOUND_PATH_BYTES])
{
    const char *name = spec->chat_template ? chat_file_name_of(spec->chat_template) : NULL;

    if (!name || strcmp(name, chat_file_config) == 0)
        return false;
    int n = snprintf(ret, DL_BOUND_PATH_BYTES, "%.*s%s", (int)(name - spec->chat_template),
                     spec->chat_template, chat_file_config);
    return n < DL_BOUND_PATH_BYTES;
}

static int chat_file_load(const char *path, const struct data_env *env, char **ret, size_t *ret_n,
                          struct dl_error *err)
{
    _cleanup_free_ char *data = NULL;
    _cleanup_fd_ int fd = -1;
    uint64_t bytes;
    int r = source_open_file(path, env, &fd, &bytes, err);

    if (r < 0)
        return r;
    if (bytes > CHAT_FILE_BYTES_MAX)
        return dl_error_set(err, EINVAL, path,
                            "has %llu bytes and is no chat template; name the chat_template.jinja "
                            "or tokenizer_config.json that save_pretrained() wrote",
                            (ull)bytes);
    data = malloc(bytes + 1);
    if (!data)
        return dl_error_set(err, ENOMEM, path, "out of memory for the chat template");
    if ((r = source_read_file(fd, path, (uint8_t *)data, bytes, &bytes, err)) < 0)
        return r;
    *ret = steal_ptr(data);
    *ret_n = bytes;
    return 0;
}

static int chat_file_load_json(const char *path, const struct data_env *env, json_t **ret,
                               struct dl_error *err)
{
    _cleanup_free_ char *data = NULL;
    json_error_t why;
    size_t n;
    int r = chat_file_load(path, env, &data, &n, err);

    if (r < 0)
        return r;
    *ret = json_loadb(data, n, JSON_ALLOW_NUL, &why);
    return *ret ? 0
                : dl_error_set(err, EINVAL, path,
                               "is not JSON (%s, line %d); save it again by "
                               "save_pretrained()",
                               why.text, why.line);
}

/* Of several templates, each with a name, the default one; that of tools if there are some. */
static const json_t *chat_file_choose(const json_t *config, bool tools)
{
    const json_t *given = json_object_get(config, "chat_template"), *found = NULL;
    const char *wanted[] = {"default", tools ? "tool_use" : "default"};

    if (json_is_string(given))
        return given;
    for (size_t k = 0; k < ARRAY_SIZE(wanted); k++)
        for (size_t i = 0; i < json_array_size(given); i++) {
            const json_t *one = json_array_get(given, i);
            const char *name = json_string_value(json_object_get(one, "name"));
            if (name && strcmp(name, wanted[k]) == 0)
                found = json_object_get(one, "template");
        }
    return json_is_string(found) ? found : NULL;
}

/* bos_token and its like: a text, or an object with one. */
static int chat_file_take_tokens(const json_t *config, json_t *variables)
{
    const char *key;
    json_t *value;
    int r = 0;

    json_object_foreach((json_t *)(uintptr_t)config, key, value)
    {
        size_t n = strlen(key);
        const json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
        if (r == 0 && n > 6 && strcmp(key + n - 6, "_token") == 0 && json_is_string(text))
            r = json_object_set_nocheck(variables, key, (json_t *)(uintptr_t)text);
    }
    return r;
}

static json_t *chat_file_value(const struct value *v)
{
    json_t *ret = v->type == VALUE_ARRAY ? json_array()
                  : v->type == VALUE_MAP ? json_object()
                                         : NULL;

    switch (v->type) {
    case VALUE_NULL:
        return json_null();
    case VALUE_BOOL:
        return json_boolean(v->boolean);
    case VALUE_INT:
        return json_integer(v->integer);
    case VALUE_UINT:
        return json_real((double)v->uinteger);
    case VALUE_FLOAT:
        return json_real(v->number);
    case VALUE_STRING:
        return json_string_nocheck(v->string);
    default:
        break;
    }
    for (uint32_t i = 0; ret && i < v->count; i++) {
        json_t *item = chat_file_value(&v->items[i]);
        int r = v->type == VALUE_ARRAY ? json_array_append_new(ret, item)
                                       : json_object_set_new_nocheck(ret, v->items[i].key, item);
        if (r < 0) {
            json_decref(ret);
            return NULL;
        }
    }
    return ret;
}

static int chat_file_take_args(const struct spec_dataset *spec, const char *place,
                               json_t *variables, struct dl_error *err)
{
    char where[DL_ERROR_PATH_MAX];
    json_t *args;

    if (spec->chat_args.type == VALUE_NULL)
        return 0;
    snprintf(where, sizeof where, "%s.chat_args", place);
    if (spec->chat_args.type != VALUE_MAP)
        return dl_error_set(err, EINVAL, where,
                            "is not a mapping of names to values, as in "
                            "{enable_thinking: false}");
    args = chat_file_value(&spec->chat_args);
    int r = args ? json_object_update(variables, args) : -1;
    json_decref(args);
    return r < 0 ? dl_error_set(err, ENOMEM, where, "out of memory") : 0;
}

/* Of these roles, with letters beyond ASCII. */
static json_t *chat_file_talk(const char *roles)
{
    static const char *const names[] = {['s'] = "system", ['u'] = "user", ['a'] = "assistant"};
    json_t *messages = json_array();

    for (; messages && *roles; roles++)
        if (json_array_append_new(messages, json_pack("{s:s,s:s}", "role", names[(int)*roles],
                                                      "content", "\xc3\x84 b")) < 0) {
            json_decref(messages);
            messages = NULL;
        }
    return messages;
}

/* Renders one: what a template asks of values shows only then. What it refuses itself is no matter
 * here. -ENOMEM; -EINVAL: C lacks what is in `why`. */
static int chat_file_try(const struct jinja *jinja, const json_t *variables, const char *roles,
                         char *why)
{
    json_t *all = json_copy((json_t *)(uintptr_t)variables);
    struct jinja_render render = {
        .variables = all, .date = json_string_value(json_object_get(variables, "strftime_now"))};
    int r = -ENOMEM;

    if (all && json_object_set_new(all, "messages", chat_file_talk(roles)) == 0 &&
        json_object_set_new(all, "tools", json_null()) == 0) {
        (void)json_object_del(all, "strftime_now");
        r = jinja_render(jinja, &render, why);
    }
    jinja_render_deinit(&render);
    json_decref(all);
    return r == -ENOMEM || (r == -EINVAL && jinja_lacks(why)) ? r : 0;
}

/* In C, as far as C knows what it uses: -EINVAL with `why`. */
static int chat_file_parse_native(const struct chat_file *file, struct jinja **ret, char *why)
{
    int r = file->spec->chat == CHAT_JINJA2 ? -EINVAL : jinja_parse(file->text, file->n, ret, why);

    if (r < 0 || ((r = chat_file_try(*ret, file->variables, "ua", why)) == 0 &&
                  (r = chat_file_try(*ret, file->variables, "sua", why)) == 0))
        return r;
    jinja_free(*ret);
    *ret = NULL;
    return r;
}

/* In C, or else by Python. ENOSYS: that could render it, maybe. */
static int chat_file_parse(const struct chat_file *file, struct jinja **ret, struct dl_error *err)
{
    char why[JINJA_WHY_MAX] = "chat: jinja2 asks for Python", words[JINJA_WHY_MAX] = "";
    const char *path = file->spec->chat_template;
    int r = chat_file_parse_native(file, ret, why);

    if (r == -EINVAL && file->env && file->env->open_template) {
        r = file->env->open_template(file->text, file->n, ret, words);
        if (r == -EINVAL)
            return dl_error_set(err, EINVAL, path,
                                "is no chat template that jinja2 renders: %s (not in C either: %s)",
                                words, why);
    }
    if (r == -ENOMEM)
        return dl_error_set(err, ENOMEM, path, "out of memory for the chat template");
    return r == 0 ? 0
                  : dl_error_set(err, ENOSYS, path,
                                 "is not a chat template that C renders: %s; a daemon of your own, "
                                 "with workers.count 1 or more, renders it by jinja2 in Python",
                                 why);
}

int chat_file_read(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                   struct jinja **ret, json_t **ret_variables, struct dl_error *err)
{
    const char *path = spec->chat_template, *name = chat_file_name_of(path);
    size_t len = strlen(name), n = 0;
    bool json = len > 5 && strcmp(name + len - 5, ".json") == 0;
    _cleanup_free_ char *text = NULL;
    char beside[DL_BOUND_PATH_BYTES];
    json_t *variables = json_object(), *config = NULL, *tokens = NULL;
    const json_t *chosen = NULL;
    struct dl_error absent = {0};
    int r = json ? chat_file_load_json(path, env, &config, err)
                 : chat_file_load(path, env, &text, &n, err);

    if (r == 0 && json && !(chosen = chat_file_choose(config, spec->tools != NULL)))
        r = dl_error_set(err, EINVAL, path,
                         "has no chat_template; name the file that has it, such "
                         "as a chat_template.jinja beside it");
    if (r == 0 && chat_file_beside(spec, beside) &&
        chat_file_load_json(beside, env, &tokens, &absent) < 0 && absent.code != ENOENT)
        r = dl_error_set(err, absent.code, beside, "%s", absent.message);
    if (r == 0 && (!variables || chat_file_take_tokens(tokens ? tokens : config, variables) < 0))
        r = dl_error_set(err, ENOMEM, path, "out of memory for the tokens");
    if (r == 0)
        r = chat_file_take_args(spec, place, variables, err);
    if (r == 0) {
        const struct chat_file file = {.spec = spec,
                                       .env = env,
                                       .text = json ? json_string_value(chosen) : text,
                                       .n = json ? json_string_length(chosen) : n,
                                       .variables = variables};
        r = chat_file_parse(&file, ret, err);
    }
    json_decref(tokens);
    json_decref(config);
    if (r < 0)
        json_decref(variables);
    else
        *ret_variables = variables;
    return r;
}
