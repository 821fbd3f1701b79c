#include "daemon/base/row.h"

#include "proto/common/url.h"
#include <math.h>

struct row row_begin(struct value *v)
{
    v->type = VALUE_MAP;
    return (struct row){.map = v};
}

struct row row_push(struct value *rows)
{
    struct row row = {0};

    row.r = value_push(rows, &row.map);
    if (row.r == 0)
        row.map->type = VALUE_MAP;
    return row;
}

/* Appends a null; NULL once anything failed. Keys are unique by construction and not searched. */
static struct value *row_add(struct row *row, const char *key)
{
    struct value *v = NULL;

    if (row->r == 0)
        row->r = value_append(row->map, key, strlen(key), &v);
    return row->r == 0 ? v : NULL;
}

struct row row_under(struct row *row, const char *key)
{
    struct row inner = {.map = row_add(row, key), .r = row->r};

    if (inner.map)
        inner.map->type = VALUE_MAP;
    return inner;
}

void row_uint(struct row *row, const char *key, uint64_t u)
{
    struct value *v = row_add(row, key);

    if (v)
        value_make_uint(v, u);
}

void row_real(struct row *row, const char *key, double d)
{
    struct value *v = row_add(row, key);

    if (v && !isnan(d))
        *v = (struct value){.type = VALUE_FLOAT, .number = d, .key = v->key};
}

void row_seconds(struct row *row, const char *key, uint64_t ns)
{
    row_real(row, key, (double)ns / 1e9);
}

void row_string(struct row *row, const char *key, const char *s)
{
    struct value *v = row_add(row, key);

    if (!v || !s)
        return;
    row->r = value_make_string(v, s);
    if (row->r == 0)
        url_hide_secrets(v->string);
}

void row_null(struct row *row, const char *key)
{
    (void)row_add(row, key);
}

void row_uint_if(struct row *row, const char *key, bool is, uint64_t u)
{
    if (is)
        row_uint(row, key, u);
    else
        row_null(row, key);
}

void row_seconds_if(struct row *row, const char *key, bool is, uint64_t ns)
{
    row_real(row, key, is ? (double)ns / 1e9 : NAN);
}

struct value *row_list(struct row *row, const char *key)
{
    struct value *list = row_add(row, key);

    if (list)
        list->type = VALUE_ARRAY;
    return list;
}
