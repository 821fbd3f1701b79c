#include "daemon/data/kinds/csv/csv_columns.h"

#include "daemon/data/collate/collate_batch.h"
#include "proto/common/array.h"
#include "proto/common/utf8.h"
#include "proto/dtype.h"

#include <errno.h>
#include <stdio.h>

/* ---- names ---------------------------------------------------------------------------------- */

static int csv_columns_name(const struct csv_cell *cell, bool header, uint32_t i, const char *path,
                            char **ret, struct dl_error *err)
{
    enum { MADE_ROOM = 24 }; /* for a name that the file does not have */

    if (header && (cell->bad || cell->len > DL_MAX_NAME_BYTES ||
                   memchr(cell->text, '\0', cell->len) || !utf8_text(cell->text, cell->len)))
        return dl_error_set(err, EINVAL, path,
                            "its first row has no name of 1 to %llu bytes of UTF-8 for column %u; "
                            "write header: false if the row has no names",
                            (ull)DL_MAX_NAME_BYTES, i);
    *ret = calloc(1, max_u64(cell->len + 1, MADE_ROOM));
    if (!*ret)
        return dl_error_set(err, ENOMEM, path, "out of memory for its columns");
    if (header && cell->len > 0)
        csv_cell_copy(cell, (uint8_t *)*ret);
    else /* as in pandas, whose own files begin with such a column */
        snprintf(*ret, MADE_ROOM, header ? "Unnamed: %u" : "%u", i);
    return 0;
}

static int csv_columns_add(struct csv_columns *columns, uint32_t *room, const char *path,
                           struct dl_error *err)
{
    if (columns->n == CSV_COLUMNS_MAX)
        return dl_error_set(err, E2BIG, path, "its first row has more than %d columns",
                            CSV_COLUMNS_MAX);
    return array_reserve(columns->all, *room, columns->n + UINT64_C(1))
               ? 0
               : dl_error_set(err, ENOMEM, path, "out of memory for its columns");
}

static int csv_columns_compare(const void *a, const void *b)
{
    const struct csv_column *const *left = a, *const *right = b;

    return strcmp((*left)->name, (*right)->name);
}

static int csv_columns_check_names(const struct csv_columns *columns, const char *path,
                                   struct dl_error *err)
{
    _cleanup_free_ const struct csv_column **sorted = calloc(columns->n, sizeof *sorted);

    if (!sorted)
        return dl_error_set(err, ENOMEM, path, "out of memory for its columns");
    for (uint32_t i = 0; i < columns->n; i++)
        sorted[i] = &columns->all[i];
    qsort(sorted, columns->n, sizeof *sorted, csv_columns_compare);
    for (uint32_t i = 1; i < columns->n; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            return dl_error_set(err, EINVAL, path,
                                "its first row has the name %s twice; write header: false if the "
                                "row has no names",
                                sorted[i]->name);
    return 0;
}

int csv_columns_read(const uint8_t *at, const uint8_t *end, uint8_t separator, bool header,
                     const char *path, struct csv_columns *ret, struct dl_error *err)
{
    struct csv_columns columns = {0};
    struct csv_cell cell = {.last = at == end};
    uint32_t room = 0;
    int r = 0;

    if (cell.last)
        return dl_error_set(err, EINVAL, path, "has no row with the names of its columns");
    while (r == 0 && !cell.last) {
        at = csv_cell_read(at, end, separator, &cell);
        if (!at)
            r = dl_error_set(err, EINVAL, path,
                             "its first row has a cell without its closing quote");
        if (r == 0)
            r = csv_columns_add(&columns, &room, path, err);
        char *name = NULL;
        if (r == 0)
            r = csv_columns_name(&cell, header, columns.n, path, &name, err);
        if (r == 0)
            columns.all[columns.n++] = (struct csv_column){.name = name};
    }
    if (r == 0)
        r = csv_columns_check_names(&columns, path, err);
    if (r == 0)
        *ret = columns;
    else
        csv_columns_deinit(&columns);
    return r;
}

void csv_columns_deinit(struct csv_columns *columns)
{
    for (uint32_t i = 0; i < columns->n; i++)
        free(columns->all[i].name);
    free(columns->all);
    *columns = (struct csv_columns){0};
}

bool csv_columns_equal(const struct csv_columns *a, const struct csv_columns *b)
{
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (strcmp(a->all[i].name, b->all[i].name) != 0)
            return false;
    return true;
}

struct csv_column *csv_columns_find(const struct csv_columns *columns, const char *name)
{
    for (uint32_t i = 0; i < columns->n; i++)
        if (strcmp(columns->all[i].name, name) == 0)
            return &columns->all[i];
    return NULL;
}

/* ---- types ---------------------------------------------------------------------------------- */

void csv_columns_judge(struct csv_columns *columns, const uint8_t *at, const uint8_t *end,
                       uint8_t separator)
{
    struct csv_cell cell = {.last = false};

    for (uint32_t i = 0; i < columns->n && !cell.last; i++) {
        struct csv_column *column = &columns->all[i];
        at = csv_cell_read(at, end, separator, &cell);
        if (!at)
            return;
        column->sort = csv_sort_join(column->sort, csv_cell_sort(&cell));
    }
}

static int csv_columns_set_type(const struct csv_columns *columns, const struct value *type,
                                const char *place, struct dl_error *err)
{
    struct csv_column *column = csv_columns_find(columns, type->key);
    char at[DL_ERROR_PATH_MAX];
    uint32_t dtype = 0;

    snprintf(at, sizeof at, "%s.types.%s", place, type->key);
    if (!column)
        return dl_error_set(err, EINVAL, at, "is not a column of the files");
    bool text = type->type == VALUE_STRING && strcmp(type->string, "string") == 0;
    if (!text && (type->type != VALUE_STRING || dtype_from_name(type->string, &dtype) < 0 ||
                  !csv_has_dtype(dtype)))
        return dl_error_set(err, EINVAL, at,
                            "is not a type of a column; give one of string, bool, int8 to int64, "
                            "uint8 to uint64, float32, float64");
    column->dtype = dtype;
    return 0;
}

static uint32_t csv_columns_dtype(enum csv_sort sort)
{
    switch (sort) {
    case CSV_BOOL:
        return DL_DTYPE_BOOL;
    case CSV_INT:
        return DL_DTYPE_INT64;
    case CSV_REAL:
        return DL_DTYPE_FLOAT64;
    default:
        return 0;
    }
}

int csv_columns_decide(struct csv_columns *columns, const struct value *types,
                       const struct value *nulls, const char *place, struct dl_error *err)
{
    char at[DL_ERROR_PATH_MAX];
    int r = 0;

    snprintf(at, sizeof at, "%s.types", place);
    if (types->type != VALUE_NULL && types->type != VALUE_MAP)
        return dl_error_set(err, EINVAL, at,
                            "is not a map of columns to types, such as {label: int64}");
    for (uint32_t i = 0; i < columns->n; i++)
        columns->all[i].dtype = csv_columns_dtype(columns->all[i].sort);
    for (uint32_t i = 0; r == 0 && columns->n > 0 && i < types->count; i++)
        r = csv_columns_set_type(columns, &types->items[i], place, err);
    for (uint32_t i = 0; r == 0 && nulls->type != VALUE_NULL && i < columns->n; i++) {
        struct csv_column *column = &columns->all[i];
        column->filled =
            column->dtype && collate_element(value_real(nulls), column->dtype, column->fill) == 0;
    }
    return r;
}
