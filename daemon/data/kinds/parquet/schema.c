#include "daemon/data/kinds/parquet/schema.h"

#include "daemon/data/base/decimal.h"
#include "daemon/data/kinds/arrow/arrow_message.h"
#include "daemon/data/kinds/arrow/arrow_schema.h"
#include "proto/common/base64.h"
#include "proto/dtype.h"
#include "proto/limits.h"

#include <errno.h>
#include <stdio.h>

enum { SCHEMA_DEPTH_MAX = 64, NAME_ROOM = DL_BOUND_NAME_BYTES + 1, PATH_ROOM = 4 * NAME_ROOM };

/* A place in the tree: what its ancestors have added up to. */
struct schema_place {
    const char *name;                              /* what a column here is called; "": the root */
    struct parquet_above above[PARQUET_ABOVE_MAX]; /* as a column's */
    uint32_t n_above;
    uint8_t list_def[PARQUET_ABOVE_MAX];
    const char *refused; /* of all that is below; may be NULL */
    const char *own;     /* the name of the next child, instead of the file's; or NULL */
    uint8_t def, rep;
    unsigned depth;
};

struct schema_walk {
    const struct parquet_footer *footer;
    uint32_t next; /* element */
    uint32_t leaf;
    uint32_t top;    /* children of the root that were begun */
    uint32_t groups; /* structs and lists */
    struct parquet_schema schema;
    int error; /* 0; -EINVAL: no tree; -E2BIG: nested too deeply; -ENOMEM */
};

void parquet_schema_deinit(struct parquet_schema *schema)
{
    for (uint32_t i = 0; i < schema->n; i++) {
        free(schema->columns[i].path);
        free(schema->columns[i].above);
    }
    free(schema->columns);
    *schema = (struct parquet_schema){0};
}

/* ---- what a column's values become ---------------------------------------------------------- */

static void schema_set_number(struct parquet_column *c, uint32_t dtype, uint32_t width)
{
    c->sort = PARQUET_NUMBER;
    c->dtype = dtype;
    c->width = width;
    c->bytes = (uint32_t)dtype_bytes(dtype);
    if (c->bytes < width)
        c->convert = width == 12 ? PARQUET_NANOSECONDS : PARQUET_NARROW;
}

/* 64 bits, unless the file says one of the others. */
static uint32_t schema_integer(uint32_t bits, bool has_sign)
{
    return dtype_integer(bits == 8 || bits == 16 || bits == 32 ? bits : 64, has_sign);
}

static void schema_set_fixed(struct parquet_column *c, const struct parquet_element *e)
{
    if (e->type_length == 0 || e->type_length > DL_MAX_SEGMENT_BYTES / 8)
        c->refused = "has values of an impossible length";
    c->sort = PARQUET_BYTES;
    c->width = e->type_length;
    if (e->logical != PARQUET_HALF)
        return;
    if (e->type_length == 2)
        schema_set_number(c, DL_DTYPE_FLOAT16, 2);
    else
        c->refused = "is float16 of another length";
}

static void schema_set_values(struct parquet_column *c, const struct parquet_element *e)
{
    bool integer = e->logical == PARQUET_INTEGER;

    switch ((enum parquet_type)e->type) {
    case PARQUET_BOOLEAN:
        schema_set_number(c, DL_DTYPE_BOOL, 1);
        break;
    case PARQUET_INT32:
        schema_set_number(c, integer ? schema_integer(e->bits, e->has_sign) : DL_DTYPE_INT32, 4);
        break;
    case PARQUET_INT64:
        schema_set_number(c, integer && !e->has_sign ? DL_DTYPE_UINT64 : DL_DTYPE_INT64, 8);
        break;
    case PARQUET_INT96:
        schema_set_number(c, DL_DTYPE_INT64, 12);
        break;
    case PARQUET_FLOAT:
        schema_set_number(c, DL_DTYPE_FLOAT32, 4);
        break;
    case PARQUET_DOUBLE:
        schema_set_number(c, DL_DTYPE_FLOAT64, 8);
        break;
    case PARQUET_FIXED_BYTES:
        schema_set_fixed(c, e);
        break;
    case PARQUET_BYTE_ARRAY:
    case PARQUET_GROUP:
        c->sort = e->logical == PARQUET_STRING ? PARQUET_TEXT : PARQUET_BYTES;
    }
    c->is_decimal = e->logical == PARQUET_DECIMAL;
    c->scale = e->scale;
    if (c->is_decimal && !c->refused)
        c->refused = DECIMAL_UNTYPED;
    if (c->sort == PARQUET_NUMBER && c->bytes > c->width)
        c->refused = "has integers that are wider than their storage";
}

/* ---- the tree ------------------------------------------------------------------------------- */

static void schema_walk_node(struct schema_walk *w, const struct schema_place *above);
static void schema_walk_value(struct schema_walk *w, const struct parquet_element *e,
                              const struct schema_place *above);

/* Copies a name that can be a leaf's in a sample; a column with a bad name is refused when it is
 * used. */
static bool schema_copy_name(const struct thrift_text *name, char ret[static NAME_ROOM])
{
    if (name->bytes > DL_BOUND_NAME_BYTES || memchr(name->data, '\0', name->bytes))
        return false;
    memcpy(ret, name->data, name->bytes);
    ret[name->bytes] = '\0';
    return true;
}

static void schema_add_column(struct schema_walk *w, const struct parquet_element *e,
                              const struct schema_place *place)
{
    struct parquet_column *column = &w->schema.columns[w->schema.n];
    uint64_t bytes = place->n_above * sizeof *place->above;

    *column = (struct parquet_column){.n_above = place->n_above,
                                      .leaf = w->leaf++,
                                      .type = (enum parquet_type)e->type,
                                      .max_def = place->def,
                                      .max_rep = place->rep};
    memcpy(column->list_def, place->list_def, sizeof column->list_def);
    schema_set_values(column, e);
    if (place->refused)
        column->refused = place->refused;
    column->path = strdup(place->name);
    column->above = malloc(max_u64(bytes, 1));
    if (column->path && column->above) {
        memcpy(column->above, place->above, bytes);
        w->schema.n++;
        return;
    }
    free(column->path);
    free(column->above);
    w->error = -ENOMEM;
}

/* Enters a struct or a list, whose name prefixes those of its columns. */
static void schema_enter(struct schema_walk *w, struct schema_place *place, bool is_list)
{
    if (place->n_above == PARQUET_ABOVE_MAX && !place->refused)
        place->refused = "is nested too deeply";
    if (place->refused)
        return;
    place->above[place->n_above++] = (struct parquet_above){.id = w->groups++,
                                                            .name = (uint16_t)strlen(place->name),
                                                            .def = place->def,
                                                            .depth = place->rep,
                                                            .is_list = is_list};
    if (is_list)
        place->list_def[place->rep++] = ++place->def;
}

/* A group that is a struct. */
static void schema_walk_struct(struct schema_walk *w, const struct parquet_element *e,
                               const struct schema_place *place)
{
    struct schema_place inside = *place;

    schema_enter(w, &inside, false);
    for (uint32_t i = 0; i < e->children && w->error == 0; i++)
        schema_walk_node(w, &inside);
}

/* A struct of a key and a value, which writers call by names of their own. */
static void schema_walk_entries(struct schema_walk *w, const struct schema_place *map)
{
    static const char *const names[] = {"key", "value"};
    struct schema_place inside = *map;

    schema_enter(w, &inside, false);
    for (uint32_t i = 0; i < ARRAY_SIZE(names) && w->error == 0; i++) {
        inside.own = names[i];
        schema_walk_node(w, &inside);
    }
}

/* What the one child of a list is called if it is an element, and not a group around one. */
static bool schema_is_element(const struct thrift_text *name)
{
    static const char array[] = "array", tuple[] = "_tuple";

    return (name->bytes == strlen(array) && memcmp(name->data, array, strlen(array)) == 0) ||
           (name->bytes >= strlen(tuple) &&
            memcmp(name->data + name->bytes - strlen(tuple), tuple, strlen(tuple)) == 0);
}

static bool schema_is_list(const struct parquet_element *e)
{
    return e->type == PARQUET_GROUP && (e->logical == PARQUET_LIST || e->logical == PARQUET_MAP);
}

/*
 * A group that is a list, by the rules of parquet-format's LogicalTypes.md: one repeated child,
 * which is the element, or a group with only the element. Both have the list's name here. A map's
 * element is a struct of key and value, or the key, if it has no values.
 */
static void schema_walk_list(struct schema_walk *w, const struct parquet_element *e,
                             const struct schema_place *place)
{
    const struct parquet_element *child = &w->footer->elements[w->next], *element = child + 1;
    const uint32_t left = w->footer->n_elements - w->next;
    struct schema_place inside = *place;

    if (e->children != 1 || left == 0 || child->repetition != PARQUET_REPEATED) {
        inside.refused = "is a list of an unknown form";
        schema_walk_struct(w, e, &inside);
        return;
    }
    w->next++;
    schema_enter(w, &inside, true);
    if (child->type == PARQUET_GROUP && child->children == 2 && e->logical == PARQUET_MAP) {
        schema_walk_entries(w, &inside);
    } else if (child->type != PARQUET_GROUP ||
               (schema_is_list(child) && e->logical == PARQUET_LIST)) {
        schema_walk_value(w, child, &inside);
    } else if (child->children != 1 || left == 1 || element->repetition == PARQUET_REPEATED ||
               schema_is_element(&child->name)) {
        schema_walk_struct(w, child, &inside);
    } else {
        w->next++;
        inside.def += element->repetition == PARQUET_OPTIONAL;
        schema_walk_value(w, element, &inside);
    }
}

/* What an element is at a place that it has found. */
static void schema_walk_value(struct schema_walk *w, const struct parquet_element *e,
                              const struct schema_place *above)
{
    struct schema_place place = *above;

    if (place.depth++ == SCHEMA_DEPTH_MAX)
        w->error = -E2BIG;
    else if (e->type != PARQUET_GROUP)
        schema_add_column(w, e, &place);
    else if (schema_is_list(e))
        schema_walk_list(w, e, &place);
    else
        schema_walk_struct(w, e, &place);
}

/* The next element, and all that is below it: what a struct has, or the root. */
static void schema_walk_node(struct schema_walk *w, const struct schema_place *above)
{
    char own[NAME_ROOM], name[PATH_ROOM];
    struct schema_place place = *above;
    uint32_t number = w->top;
    int len = 0;

    if (w->next == w->footer->n_elements) {
        w->error = -EINVAL;
        return;
    }
    const struct parquet_element *e = &w->footer->elements[w->next++];
    place.own = NULL;
    w->top += place.depth == 0;
    if (above->own) {
        snprintf(own, sizeof own, "%s", above->own);
    } else if (e->name.bytes == 0) { /* pandas' name, as for CSV */
        snprintf(own, sizeof own, "Unnamed: %u", number);
    } else if (!schema_copy_name(&e->name, own)) {
        place.refused = "has no name, or a name that is too long";
        snprintf(own, sizeof own, "column %u", w->leaf);
    }
    /* A refused element has the name of the obstacle. */
    if (above->refused)
        snprintf(name, sizeof name, "%s", above->name);
    else
        len = snprintf(name, sizeof name, "%s%s%s", above->name, *above->name ? "." : "", own);
    if (len >= PATH_ROOM)
        place.refused = "has a name that is too long, with those of the structs around it";
    place.name = name;
    if (e->repetition == PARQUET_REPEATED)
        schema_enter(w, &place, true);
    else
        place.def += e->repetition == PARQUET_OPTIONAL;
    schema_walk_value(w, e, &place);
}

static int schema_compare(const void *a, const void *b)
{
    const struct parquet_column *const *left = a, *const *right = b;

    return strcmp((*left)->path, (*right)->path);
}

/* Two columns of one name cannot be told apart. */
static int schema_refuse_twins(struct parquet_schema *schema)
{
    struct parquet_column **sorted = calloc(max_u64(schema->n, 1), sizeof *sorted);

    if (!sorted)
        return -ENOMEM;
    for (uint32_t i = 0; i < schema->n; i++)
        sorted[i] = &schema->columns[i];
    qsort(sorted, schema->n, sizeof *sorted, schema_compare);
    for (uint32_t i = 1; i < schema->n; i++)
        if (strcmp(sorted[i - 1]->path, sorted[i]->path) == 0 && !sorted[i]->refused)
            sorted[i - 1]->refused = sorted[i]->refused = "has the name of another";
    free(sorted);
    return 0;
}

/* ---- sizes of lists ------------------------------------------------------------------------- */

/* The part of a struct by the column's name from byte `from` on; or ARROW_NONE. */
static uint32_t schema_find_part(const struct arrow_schema *schema, uint32_t i,
                                 const struct parquet_column *c, uint32_t from, uint32_t level)
{
    const uint32_t end = i + schema->fields[i].span;
    size_t bytes = (level < c->n_above ? c->above[level].name : strlen(c->path)) - from;

    for (i++; i < end; i += schema->fields[i].span)
        if (strlen(schema->fields[i].name) == bytes &&
            memcmp(schema->fields[i].name, c->path + from, bytes) == 0)
            return i;
    return ARROW_NONE;
}

/* As far as the column is nested as Arrow's field `i` is. */
static void schema_take_column_sizes(struct parquet_column *c, const struct arrow_schema *schema,
                                     uint32_t i)
{
    for (uint32_t level = 0; i != ARROW_NONE && level < c->n_above; level++) {
        const struct arrow_field *field = &schema->fields[i];
        const struct parquet_above *above = &c->above[level];
        bool sized = field->sort == ARROW_FIXED_LIST;
        if (above->is_list != (sized || field->sort == ARROW_LIST) ||
            (!above->is_list && field->sort != ARROW_STRUCT))
            return;
        if (sized)
            c->sizes[above->depth] = (uint32_t)field->width;
        c->has_sizes |= sized && field->width > 0;
        i = above->is_list ? i + 1 : schema_find_part(schema, i, c, above->name + 1U, level + 1);
    }
}

/*
 * Parquet stores lists of a fixed size as ordinary lists; the size is in the schema that Arrow's
 * writer keeps in the file. Other content is ignored. -ENOMEM.
 */
static int schema_take_sizes(struct parquet_schema *schema, const struct parquet_footer *footer)
{
    _cleanup_free_ uint8_t *data = malloc(BASE64_BYTES(footer->arrow.bytes) + 1);
    struct arrow_view view = {.path = "", .data = data};
    struct arrow_message message;
    struct arrow_schema arrow = {0};
    struct dl_error err = {0};

    if (!data)
        return -ENOMEM;
    ssize_t n = base64_decode(footer->arrow.data, footer->arrow.bytes, data);
    view.bytes = n > 0 ? (uint64_t)n : 0;
    int r = arrow_message_read(&view, 0, &message, &err);
    if (r == 0 && message.type == ARROW_SCHEMA)
        r = arrow_schema_read(&message.flat, &message.header, "", &arrow, &err);
    for (uint32_t i = 0; i < schema->n; i++) {
        struct parquet_column *c = &schema->columns[i];
        for (uint32_t at = 0; at < arrow.n && c->n_above > 0; at += arrow.fields[at].span)
            if (parquet_column_is_in(c, 0, arrow.fields[at].name))
                schema_take_column_sizes(c, &arrow, at);
    }
    arrow_schema_deinit(&arrow);
    return r == -ENOMEM ? r : 0;
}

static int schema_tell(int error, const char *path, struct dl_error *err)
{
    const char *what = "its schema is not a tree; the file is damaged";

    if (error == -ENOMEM)
        what = "out of memory for its schema";
    else if (error == -E2BIG)
        what = "its schema is nested too deeply";
    return dl_error_set(err, error == -ENOMEM ? ENOMEM : EINVAL, path, "%s", what);
}

int parquet_schema_make(const struct parquet_footer *footer, const char *path,
                        struct parquet_schema *ret, struct dl_error *err)
{
    struct schema_walk w = {.footer = footer, .next = 1};
    const struct schema_place root = {.name = ""};

    w.schema.columns = calloc(footer->n_elements, sizeof *w.schema.columns);
    if (!w.schema.columns)
        w.error = -ENOMEM;
    for (uint32_t i = 0; i < footer->elements[0].children && w.error == 0; i++)
        schema_walk_node(&w, &root);
    if (w.error == 0 && w.next < footer->n_elements)
        w.error = -EINVAL;
    if (w.error == 0)
        w.error = schema_refuse_twins(&w.schema);
    if (w.error == 0)
        w.error = schema_take_sizes(&w.schema, footer);
    if (w.error == 0) {
        *ret = w.schema;
        return 0;
    }
    parquet_schema_deinit(&w.schema);
    return schema_tell(w.error, path, err);
}

/* Whether the column, or a struct that contains it, is called `name`. */
static bool schema_is_of(const struct parquet_column *c, const char *name)
{
    bool is_of = strcmp(c->path, name) == 0;

    for (uint32_t level = 0; level < c->n_above; level++)
        is_of |= parquet_column_is_in(c, level, name);
    return is_of;
}

static bool schema_set_type(struct parquet_schema *schema, const char *name, uint32_t dtype)
{
    bool found = false;

    for (uint32_t i = 0; i < schema->n; i++) {
        struct parquet_column *c = &schema->columns[i];
        if (!c->is_decimal || !schema_is_of(c, name))
            continue;
        found = true;
        if (c->refused && strcmp(c->refused, DECIMAL_UNTYPED) != 0)
            continue;
        c->refused = NULL;
        c->sort = PARQUET_NUMBER;
        c->dtype = dtype;
        c->bytes = (uint32_t)dtype_bytes(dtype);
        c->convert = PARQUET_TO_NUMBER;
    }
    return found;
}

int parquet_schema_set_types(struct parquet_schema *schema, const struct value *types,
                             const char *place, struct dl_error *err)
{
    char at[DL_ERROR_PATH_MAX];

    for (uint32_t i = 0; types->type == VALUE_MAP && i < types->count; i++) {
        const char *name = types->items[i].key;
        if (schema_set_type(schema, name, decimal_type(types, name)) || !place)
            continue;
        snprintf(at, sizeof at, "%s.types.%s", place, name);
        return dl_error_set(err, EINVAL, at, DECIMAL_NONE);
    }
    return 0;
}

const struct parquet_column *parquet_schema_find(const struct parquet_schema *schema,
                                                 const char *path)
{
    for (uint32_t i = 0; i < schema->n; i++)
        if (strcmp(schema->columns[i].path, path) == 0)
            return &schema->columns[i];
    return NULL;
}

bool parquet_columns_equal(const struct parquet_column *a, const struct parquet_column *b)
{
    bool equal = strcmp(a->path, b->path) == 0 && a->sort == b->sort && a->dtype == b->dtype &&
                 a->n_above == b->n_above && !a->refused == !b->refused;

    for (uint32_t i = 0; equal && i < a->n_above; i++)
        equal = a->above[i].is_list == b->above[i].is_list && a->above[i].name == b->above[i].name;
    for (uint32_t i = 0; equal && i < a->max_rep; i++)
        equal = a->sizes[i] == b->sizes[i];
    return equal;
}
