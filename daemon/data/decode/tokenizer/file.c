#include "daemon/data/decode/tokenizer/file.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

enum { PLACE_MAX = 160 };

/* Ids are stored as int64 and counted in int by many; tokenizers have some hundred thousand. */
enum { UINT_MAX_HERE = INT32_MAX - 1 };

static struct file_node file_below(const struct file_node *node, const json_t *value)
{
    return (struct file_node){.value = json_is_null(value) ? NULL : value,
                              .parent = node,
                              .path = node->path,
                              .err = node->err};
}

struct file_node file_entry(const struct file_node *node, const char *key, const json_t *value)
{
    struct file_node entry = file_below(node, value);

    entry.key = key;
    return entry;
}

struct file_node file_member(const struct file_node *node, const char *key)
{
    return file_entry(node, key, node->value ? json_object_get(node->value, key) : NULL);
}

struct file_node file_item(const struct file_node *node, size_t index)
{
    struct file_node item =
        file_below(node, node->value ? json_array_get(node->value, index) : NULL);

    item.index = index;
    return item;
}

size_t file_items(const struct file_node *node)
{
    return node->value ? json_array_size(node->value) : 0;
}

static size_t file_write_place(const struct file_node *node, char *out, size_t room)
{
    size_t n = node->parent ? file_write_place(node->parent, out, room) : 0;
    int more = 0;

    if (!node->parent || n >= room)
        return n;
    if (node->key)
        more = snprintf(out + n, room - n, "%s%s", n > 0 ? "." : "", node->key);
    else
        more = snprintf(out + n, room - n, "[%zu]", node->index);
    return min_u64(room - 1, n + (size_t)more);
}

int file_refuse(const struct file_node *node, const char *fmt, ...)
{
    char place[PLACE_MAX] = "the file", words[DL_ERROR_MESSAGE_MAX];
    va_list args;

    if (node->parent)
        file_write_place(node, place, sizeof place);
    va_start(args, fmt);
    vsnprintf(words, sizeof words, fmt, args);
    va_end(args);
    return dl_error_set(node->err, EINVAL, node->path, "%s %s", place, words);
}

int file_unsupported(const struct file_node *node, const char *remedy)
{
    char *text = node->value ? json_dumps(node->value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    int r = file_refuse(node, "is %.100s%s, which this version does not support; %s",
                        text ? text : "absent", text && strlen(text) > 100 ? "..." : "", remedy);

    free(text);
    return r;
}

int file_no_memory(const struct file_node *node)
{
    return dl_error_set(node->err, ENOMEM, node->path, "out of memory for the tokenizer");
}

int file_bool(const struct file_node *node, bool fallback, bool *ret)
{
    if (node->value && !json_is_boolean(node->value))
        return file_refuse(node, "is neither true nor false");
    *ret = node->value ? json_is_true(node->value) : fallback;
    return 0;
}

int file_uint(const struct file_node *node, uint32_t fallback, uint32_t *ret)
{
    json_int_t number = node->value ? json_integer_value(node->value) : fallback;

    if ((node->value && !json_is_integer(node->value)) || number < 0 || number > UINT_MAX_HERE)
        return file_refuse(node, "is not a whole number from 0 to %d", UINT_MAX_HERE);
    *ret = (uint32_t)number;
    return 0;
}

int file_text(const struct file_node *node, const char **ret, size_t *ret_n)
{
    *ret = json_string_value(node->value);
    *ret_n = json_string_length(node->value);
    return node->value && !*ret ? file_refuse(node, "is not a string") : 0;
}

int file_need_uint(const struct file_node *node, uint32_t *ret)
{
    return node->value ? file_uint(node, 0, ret) : file_refuse(node, "is missing");
}

int file_need_text(const struct file_node *node, const char **ret, size_t *ret_n)
{
    return node->value ? file_text(node, ret, ret_n) : file_refuse(node, "is missing");
}

int file_type(const struct file_node *node, const char **ret)
{
    struct file_node type = file_member(node, "type");
    size_t n;

    if (!json_is_object(node->value))
        return file_refuse(node, "is not an object");
    int r = file_text(&type, ret, &n);
    if (r == 0 && !*ret)
        *ret = "";
    return r;
}

int file_read_each(const struct file_node *node, const char *list, file_read_fn *read, void *owner)
{
    const struct file_node all = file_member(node, list);
    const char *type;
    int r = file_type(node, &type);

    if (r < 0)
        return r;
    if (strcmp(type, "Sequence") != 0)
        return read(node, type, owner);
    if (!json_is_array(all.value))
        return file_refuse(&all, "is not a list");
    for (size_t i = 0; r == 0 && i < file_items(&all); i++) {
        const struct file_node item = file_item(&all, i);
        r = file_read_each(&item, list, read, owner);
    }
    return r;
}
