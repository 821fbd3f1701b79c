/*
 * Filling a map of values key by key, for what is printed as a table or as JSON alike. The first
 * failure, -ENOMEM, is kept, and asked for at the end.
 */
#ifndef DLCTL_FORM_H
#define DLCTL_FORM_H

#include "proto/value.h"

struct form {
    struct value *map; /* borrowed; NULL after a failure */
    int *error;        /* borrowed; shared by the forms of one tree */
};

static inline void form_note(const struct form *form, int r)
{
    if (r < 0 && *form->error == 0)
        *form->error = r;
}

static inline void form_u64(const struct form *form, const char *key, uint64_t n)
{
    if (form->map)
        form_note(form, value_set_uint(form->map, key, n));
}

static inline void form_real(const struct form *form, const char *key, double d)
{
    if (form->map)
        form_note(form, value_set_float(form->map, key, d));
}

static inline void form_text(const struct form *form, const char *key, const char *text)
{
    if (form->map)
        form_note(form, value_set_string(form->map, key, text));
}

/* A child that is null, until it is used as something else; NULL after a failure. Valid until the
 * map's next one. */
static inline struct value *form_null(const struct form *form, const char *key)
{
    struct value *child = NULL;

    if (form->map)
        form_note(form, value_set(form->map, key, &child));
    return child;
}

static inline struct value *form_array(const struct form *form, const char *key)
{
    struct value *child = form_null(form, key);

    if (child)
        child->type = VALUE_ARRAY;
    return child;
}

static inline struct form form_map(const struct form *form, const char *key)
{
    struct form child = {.map = form_null(form, key), .error = form->error};

    if (child.map)
        child.map->type = VALUE_MAP;
    return child;
}

/* One more map in an array, which may be NULL; valid until the next one. */
static inline struct form form_row(const struct form *form, struct value *array)
{
    struct form row = {.error = form->error};

    if (array)
        form_note(form, value_push(array, &row.map));
    if (row.map)
        row.map->type = VALUE_MAP;
    return row;
}

/* The share of `padded` tokens that are padding; null where there are none. */
static inline void form_padding(const struct form *form, uint64_t tokens, uint64_t padded)
{
    if (padded == 0)
        (void)form_null(form, "padding");
    else
        form_real(form, "padding", 1 - (double)tokens / (double)padded);
}

#endif
