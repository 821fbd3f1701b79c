/*
 * The values of a tokenizer.json, each with its place in the file, so that an error can name it.
 *
 * A node is a value below another node; both lie on the stack of who reads. What is absent and what
 * is null are the same here, as for the library that writes these files: `value` is NULL. Not
 * thread-safe.
 */
#ifndef DL_DATA_TOKENIZER_FILE_H
#define DL_DATA_TOKENIZER_FILE_H

#include "proto/common/error.h"

#include <jansson.h>

struct file_node {
    const json_t *value;            /* borrowed; NULL: absent or null */
    const struct file_node *parent; /* borrowed; NULL: the whole file */
    const char *key;                /* borrowed; NULL: an item of a list */
    size_t index;
    const char *path;     /* borrowed; of the file */
    struct dl_error *err; /* borrowed */
};

struct file_node file_member(const struct file_node *node, const char *key);
/* Of an object that is being walked: its `value` at `key`. */
struct file_node file_entry(const struct file_node *node, const char *key, const json_t *value);
struct file_node file_item(const struct file_node *node, size_t index);
size_t file_items(const struct file_node *node); /* 0: of what is no list */

/* -EINVAL, and the error "PLACE WORDS", such as "model.vocab is no object". */
int file_refuse(const struct file_node *node, const char *fmt, ...) _printf_(2, 3);
/* -EINVAL: this version does not have what the file asks for; what to do about it. */
int file_unsupported(const struct file_node *node, const char *remedy);
int file_no_memory(const struct file_node *node); /* -ENOMEM */

/* Typed values. Absent: `fallback`, or *ret is NULL. -EINVAL: another type, or out of range. */
int _nodiscard_ file_bool(const struct file_node *node, bool fallback, bool *ret);
int _nodiscard_ file_uint(const struct file_node *node, uint32_t fallback, uint32_t *ret);
int _nodiscard_ file_text(const struct file_node *node, const char **ret, size_t *ret_n);
/* The same of what must be there. */
int _nodiscard_ file_need_uint(const struct file_node *node, uint32_t *ret);
int _nodiscard_ file_need_text(const struct file_node *node, const char **ret, size_t *ret_n);
/* The string `type` of an object, or "". */
int _nodiscard_ file_type(const struct file_node *node, const char **ret);

typedef int file_read_fn(const struct file_node *node, const char *type, void *owner);
/*
 * read() of the object and its type; of a Sequence, of each item of its list at `list`, and of
 * Sequences in it likewise. -EINVAL, or what read() returns first that is below 0.
 */
int _nodiscard_ file_read_each(const struct file_node *node, const char *list, file_read_fn *read,
                               void *owner);

#endif
