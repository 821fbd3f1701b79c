#include "daemon/data/parquet/schema.h"

#include "daemon/data/decimal.h"
#include "proto/dtype.h"
#include "proto/limits.h"

#include <errno.h>
#include <stdio.h>

enum { SCHEMA_DEPTH_MAX = 32, NAME_ROOM = DL_BOUND_NAME_BYTES + 1, PATH_ROOM = 4 * NAME_ROOM };

/* A place in the tree: what its ancestors have added up to. */
struct schema_place {
    const char *name;                      /* what a column here is called; "": the root */
    uint16_t structs[PARQUET_STRUCTS_MAX]; /* as a column's */
    uint32_t n_structs;
    bool in_list;
    const char *refused; /* of all that is below; may be NULL */
    const char *own;     /* what the next child is called, whatever the file says; NULL: that */
    uint8_t def, rep, list_def;
    unsigned depth;
};

struct schema_walk {
    const struct parquet_footer *footer;
    uint32_t next; /* element */
    uint32_t leaf;
    struct parquet_schema schema;
    int error; /* 0; -EINVAL: no tree; -ENOMEM */
};

void parquet_schema_deinit(struct parquet_schema *schema)
{
    for (uint32_t i = 0; i < schema->n; i++)
        free(schema->columns[i].path);
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

/* A name as it can be a leaf's in a sample; what is refused is said of the column when it is used.
 */
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

    *column = (struct parquet_column){.n_structs = place->n_structs,
                                      .in_list = place->in_list,
                                      .leaf = w->leaf++,
                                      .type = (enum parquet_type)e->type,
                                      .max_def = place->def,
                                      .max_rep = place->rep,
                                      .list_def = place->list_def};
    memcpy(column->structs, place->structs, sizeof column->structs);
    schema_set_values(column, e);
    if (place->refused)
        column->refused = place->refused;
    column->path = strdup(place->name);
    if (column->path)
        w->schema.n++;
    else
        w->error = -ENOMEM;
}

/* What is below a group, all with the same names before theirs. */
static void schema_walk_children(struct schema_walk *w, const struct parquet_element *e,
                                 const struct schema_place *place)
{
    for (uint32_t i = 0; i < e->children && w->error == 0; i++)
        schema_walk_node(w, place);
}

/* Into a struct, whose name its columns have before theirs. */
static void schema_enter(struct schema_place *place)
{
    if (place->n_structs == PARQUET_STRUCTS_MAX && !place->refused)
        place->refused = "is nested too deeply";
    if (!place->refused)
        place->structs[place->n_structs++] = (uint16_t)strlen(place->name);
}

/* A list whose elements are structs, which have its name. */
static void schema_walk_structs(struct schema_walk *w, const struct parquet_element *e,
                                const struct schema_place *list)
{
    struct schema_place inside = *list;

    schema_enter(&inside);
    inside.in_list = true;
    schema_walk_children(w, e, &inside);
}

/* One whose structs are of a key and a value, which writers call by names of their own. */
static void schema_walk_entries(struct schema_walk *w, const struct schema_place *map)
{
    static const char *const names[] = {"key", "value"};
    struct schema_place inside = *map;

    schema_enter(&inside);
    inside.in_list = true;
    for (uint32_t i = 0; i < ARRAY_SIZE(names) && w->error == 0; i++) {
        inside.own = names[i];
        schema_walk_node(w, &inside);
    }
}

/*
 * A group that is a list, by the rules of parquet-format's LogicalTypes.md: one repeated child,
 * which is the element, or a group of nothing but the element. Both have the list's name here. Of a
 * map it is a struct of key and value, or the key, where there are no values.
 */
static void schema_walk_list(struct schema_walk *w, const struct parquet_element *e,
                             const struct schema_place *place)
{
    const struct parquet_element *child = &w->footer->elements[w->next];
    struct schema_place inside = *place;

    if (e->children != 1 || w->next == w->footer->n_elements ||
        child->repetition != PARQUET_REPEATED) {
        inside.refused = "is a list of an unknown form";
        schema_walk_children(w, e, &inside);
        return;
    }
    w->next++;
    inside.def++;
    inside.rep++;
    inside.list_def = inside.def;
    if (child->type != PARQUET_GROUP) {
        schema_add_column(w, child, &inside);
        return;
    }
    if (child->children == 2 && e->logical == PARQUET_MAP) {
        schema_walk_entries(w, &inside);
        return;
    }
    if (child->children != 1 || w->next == w->footer->n_elements) {
        schema_walk_structs(w, child, &inside);
        return;
    }
    const struct parquet_element *element = &w->footer->elements[w->next];
    if (element->repetition == PARQUET_REPEATED ||
        (element->type == PARQUET_GROUP && element->logical != PARQUET_NO_LOGICAL)) {
        inside.refused = "is a list of lists or maps";
        schema_walk_children(w, child, &inside);
        return;
    }
    w->next++;
    inside.def += element->repetition == PARQUET_OPTIONAL;
    if (element->type == PARQUET_GROUP)
        schema_walk_structs(w, element, &inside);
    else
        schema_add_column(w, element, &inside);
}

/* A group that is a struct: its columns have its name before theirs. */
static void schema_walk_struct(struct schema_walk *w, const struct parquet_element *e,
                               const struct schema_place *place, bool is_root)
{
    struct schema_place inside = *place;

    if (place->in_list && !inside.refused)
        inside.refused = "is a struct in a list of structs";
    if (!is_root)
        schema_enter(&inside);
    schema_walk_children(w, e, &inside);
}

/* The next element, and all that is below it. */
static void schema_walk_node(struct schema_walk *w, const struct schema_place *above)
{
    char own[NAME_ROOM], name[PATH_ROOM];
    struct schema_place place = *above;
    int len = 0;

    if (w->next == w->footer->n_elements || place.depth == SCHEMA_DEPTH_MAX) {
        w->error = -EINVAL;
        return;
    }
    const struct parquet_element *e = &w->footer->elements[w->next++];
    place.own = NULL;
    if (above->own) {
        snprintf(own, sizeof own, "%s", above->own);
    } else if (e->name.bytes == 0) { /* as pandas calls those of CSV */
        snprintf(own, sizeof own, "Unnamed: %u", w->leaf);
    } else if (!schema_copy_name(&e->name, own)) {
        place.refused = "has no name, or a name that is too long";
        snprintf(own, sizeof own, "column %u", w->leaf);
    }
    /* What is refused has the name of what is in the way. */
    if (above->refused)
        snprintf(name, sizeof name, "%s", above->name);
    else
        len = snprintf(name, sizeof name, "%s%s%s", above->name, *above->name ? "." : "", own);
    if (len >= PATH_ROOM)
        place.refused = "has a name that is too long, with those of the structs around it";
    place.name = name;
    place.depth++;
    place.def += e->repetition != PARQUET_REQUIRED;
    if (e->type == PARQUET_GROUP && (e->logical == PARQUET_LIST || e->logical == PARQUET_MAP) &&
        e->repetition != PARQUET_REPEATED) {
        if (place.rep > 0 && !place.refused)
            place.refused = "is a list of lists";
        schema_walk_list(w, e, &place);
        return;
    }
    if (e->repetition == PARQUET_REPEATED) {
        if (place.rep++ > 0 && !place.refused)
            place.refused = "is a list of lists";
        place.list_def = place.def;
    }
    if (e->type != PARQUET_GROUP)
        schema_add_column(w, e, &place);
    else if (e->repetition == PARQUET_REPEATED)
        schema_walk_structs(w, e, &place);
    else
        schema_walk_struct(w, e, &place, false);
}

static int schema_compare(const void *a, const void *b)
{
    const struct parquet_column *const *left = a, *const *right = b;

    return strcmp((*left)->path, (*right)->path);
}

/* Two columns of one name: neither can be told from the other. */
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

int parquet_schema_make(const struct parquet_footer *footer, const char *path,
                        struct parquet_schema *ret, struct dl_error *err)
{
    struct schema_walk w = {.footer = footer, .next = 1};
    const struct parquet_element *root = &footer->elements[0];
    struct schema_place place = {.name = ""};

    w.schema.columns = calloc(footer->n_elements, sizeof *w.schema.columns);
    if (!w.schema.columns)
        w.error = -ENOMEM;
    else
        schema_walk_struct(&w, root, &place, true);
    if (w.error == 0 && w.next < footer->n_elements)
        w.error = -EINVAL;
    if (w.error == 0)
        w.error = schema_refuse_twins(&w.schema);
    if (w.error == 0) {
        *ret = w.schema;
        return 0;
    }
    parquet_schema_deinit(&w.schema);
    return dl_error_set(err, -w.error, path, "%s",
                        w.error == -ENOMEM ? "out of memory for its schema"
                                           : "its schema is not a tree; the file is damaged");
}

/* Where the column's name, or that of a struct it is in, is `name`. */
static bool schema_is_of(const struct parquet_column *c, const char *name)
{
    bool is_of = strcmp(c->path, name) == 0;

    for (uint32_t level = 0; level < c->n_structs; level++)
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
    return strcmp(a->path, b->path) == 0 && a->sort == b->sort && a->dtype == b->dtype &&
           a->max_rep == b->max_rep && a->in_list == b->in_list && !a->refused == !b->refused;
}
