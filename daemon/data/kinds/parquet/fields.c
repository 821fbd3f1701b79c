#include "daemon/data/kinds/parquet/fields.h"

#include <errno.h>

enum fields_media { FIELDS_NONE, FIELDS_IMAGE, FIELDS_SOUND };

struct fields_making {
    const struct spec_dataset *spec;
    struct parquet_table *table;
    struct parquet_fields fields;
    uint32_t images; /* of the spec's, found */
    uint32_t sounds; /* likewise */
    struct dl_error *err;
};

/* A struct or a list by the first column that is in it, and how many others that is in around it;
 * or a column. */
struct fields_place {
    const struct parquet_column *first;
    uint32_t level; /* n_above: the column */
    uint32_t parent;
};

void parquet_fields_deinit(struct parquet_fields *fields)
{
    for (uint32_t i = 0; i < fields->n; i++)
        free(fields->steps[i].name);
    free(fields->steps);
    free(fields->nodes);
    arrow_schema_deinit(&fields->schema);
    *fields = (struct parquet_fields){0};
}

static int fields_no_memory(const struct fields_making *m)
{
    return dl_error_set(m->err, ENOMEM, "dataset.fields", "out of memory");
}

/* ---- media ---------------------------------------------------------------------------------- */

/* What the spec says that the values of a column, or of a struct, are. */
static enum fields_media fields_media_of(const struct fields_making *m, const char *source)
{
    for (uint32_t i = 0; i < m->spec->n_images; i++)
        if (strcmp(m->spec->images[i], source) == 0)
            return FIELDS_IMAGE;
    for (uint32_t i = 0; i < m->spec->n_audio; i++)
        if (strcmp(m->spec->audios[i], source) == 0)
            return FIELDS_SOUND;
    return FIELDS_NONE;
}

static void fields_mark_media(struct fields_making *m, uint32_t i, enum fields_media media)
{
    struct arrow_field *field = &m->fields.schema.fields[i];

    field->is_media |= media != FIELDS_NONE;
    field->is_image |= media == FIELDS_IMAGE;
    field->is_sound |= media == FIELDS_SOUND;
    m->images += media == FIELDS_IMAGE;
    m->sounds += media == FIELDS_SOUND;
    m->fields.images |= media == FIELDS_IMAGE;
}

/* ---- fields --------------------------------------------------------------------------------- */

/* What a place is called, with the structs around it, and without them: *ret_own. */
static char *fields_path(const struct fields_place *at, size_t *ret_own)
{
    const struct parquet_column *c = at->first;
    const char *path = c->path;
    size_t around = at->level > 0 ? c->above[at->level - 1].name : 0;
    size_t bytes = at->level < c->n_above ? c->above[at->level].name : strlen(path);

    /* A list's element has the list's. */
    *ret_own = around == bytes || around == 0 ? 0 : around + 1;
    return strndup(path, bytes);
}

/* A field more at the end, called `name`, which it takes over. */
static int fields_append(struct fields_making *m, const struct fields_place *at, char *name,
                         enum arrow_sort sort)
{
    struct arrow_schema *schema = &m->fields.schema;
    uint32_t room = schema->room;

    if (name && schema->n == room) {
        room = 2 * room + 16;
        struct arrow_field *more = reallocarray(schema->fields, room, sizeof *more);
        if (more)
            schema->fields = more;
        struct parquet_node *nodes = reallocarray(m->fields.nodes, room, sizeof *nodes);
        if (nodes)
            m->fields.nodes = nodes;
        schema->room = more && nodes ? room : schema->room;
    }
    if (!name || schema->n == schema->room) {
        free(name);
        return fields_no_memory(m);
    }
    m->fields.nodes[schema->n] = (struct parquet_node){.level = at->level, .parent = at->parent};
    schema->fields[schema->n] = (struct arrow_field){
        .name = name, .type = "", .sort = sort, .span = 1, .is_large = true, .slot = schema->n};
    schema->n++;
    return 0;
}

static int fields_add_column(struct fields_making *m, const struct fields_place *at, char *name,
                             enum fields_media media)
{
    static const enum arrow_sort sorts[] = {[PARQUET_NUMBER] = ARROW_NUMBER,
                                            [PARQUET_TEXT] = ARROW_STRING,
                                            [PARQUET_BYTES] = ARROW_BYTES};
    const struct parquet_column *column = at->first;
    uint32_t number, i = m->fields.schema.n;
    int r = fields_append(m, at, name, sorts[column->sort]);

    if (r == 0)
        r = parquet_table_use(m->table, column, &number, m->err);
    if (r < 0)
        return r;
    m->fields.nodes[i].column = number;
    if (media && (column->sort != PARQUET_BYTES || column->max_rep > 0))
        return dl_error_set(m->err, EINVAL, m->table->files.list.paths[0],
                            "its column %s has no %s, which are bytes; see dataset.%s",
                            column->path, media == FIELDS_IMAGE ? "images" : "sounds",
                            media == FIELDS_IMAGE ? "images" : "audio");
    fields_mark_media(m, i, media);
    if (column->sort == PARQUET_NUMBER) {
        struct arrow_field *field = &m->fields.schema.fields[i];
        field->dtype = column->dtype;
        field->width = field->row_bytes = column->bytes;
        field->is_fixed = true;
    }
    return 0;
}

/* ---- structs and lists ---------------------------------------------------------------------- */

static bool fields_is_in(const struct fields_place *at, const struct parquet_column *c)
{
    return c->n_above > at->level && c->above[at->level].id == at->first->above[at->level].id;
}

/* For a file as Hugging Face's datasets write it, {bytes, path}: only the bytes. */
static bool fields_is_file(const struct fields_place *at, const struct parquet_column *c)
{
    return c->n_above == at->level + 1 && c->sort == PARQUET_BYTES && c->max_rep == 0 &&
           strcmp(c->path + c->above[at->level].name, ".bytes") == 0;
}

/* Sets the size of field `i`, if it is a list of known size. */
static void fields_set_size(struct fields_making *m, const struct fields_place *at, uint32_t i)
{
    const struct parquet_above *above = &at->first->above[at->level];
    struct arrow_field *field = &m->fields.schema.fields[i];

    if (!above->is_list || at->first->sizes[above->depth] == 0)
        return;
    field->sort = ARROW_FIXED_LIST;
    field->width = at->first->sizes[above->depth];
    arrow_schema_judge(&m->fields.schema, i);
}

static int fields_add_place(struct fields_making *m, const struct fields_place *at,
                            const char *name, const struct parquet_column **ret);

/* Adds the children of field `i`, from the columns up to `end`. */
static int fields_add_children(struct fields_making *m, const struct fields_place *at, uint32_t i,
                               enum fields_media media, const struct parquet_column *end)
{
    struct arrow_schema *schema = &m->fields.schema;
    const struct parquet_column *c = at->first;
    uint32_t n = 0;
    int r = 0;

    while (r == 0 && c < end) {
        const struct fields_place inner = {c, at->level + 1, i};
        if (media && !fields_is_file(at, c)) {
            c++;
            continue;
        }
        r = fields_add_place(m, &inner, NULL, &c);
        n++;
    }
    if (r == 0 && n == 0)
        r = dl_error_set(m->err, EINVAL, m->table->files.list.paths[0],
                         "its struct %s has no column bytes for %s; see dataset.%s",
                         schema->fields[i].name, media == FIELDS_IMAGE ? "an image" : "a sound",
                         media == FIELDS_IMAGE ? "images" : "audio");
    if (r < 0)
        return r;
    schema->fields[i].n_children = n;
    schema->fields[i].span = schema->n - i;
    m->fields.nodes[i].column = m->fields.nodes[i + 1].column;
    fields_set_size(m, at, i);
    return 0;
}

/* A struct or a list with all that is in it, or a column, called `name`, or NULL: as in the file;
 * *ret: behind the last of its columns. */
static int fields_add_place(struct fields_making *m, const struct fields_place *at,
                            const char *name, const struct parquet_column **ret)
{
    const struct parquet_column *c = at->first, *end = c + 1;
    const struct parquet_column *all_end = m->table->schema.columns + m->table->schema.n;
    size_t own;
    _cleanup_free_ char *path = fields_path(at, &own);

    if (!path)
        return fields_no_memory(m);
    char *copy = strdup(name ? name : path + own);
    enum fields_media media = fields_media_of(m, path);
    if (at->level == c->n_above) {
        *ret = end;
        return fields_add_column(m, at, copy, media);
    }
    while (end < all_end && fields_is_in(at, end))
        end++;
    *ret = end;
    bool is_list = c->above[at->level].is_list;
    uint32_t i = m->fields.schema.n;
    int r = fields_append(m, at, copy, is_list ? ARROW_LIST : ARROW_STRUCT);
    if (r < 0)
        return r;
    if (is_list) /* the child has its name and decides whether it is readable */
        media = FIELDS_NONE;
    fields_mark_media(m, i, media);
    return fields_add_children(m, at, i, media, end);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static int fields_add_step(struct fields_making *m, enum parquet_step_sort sort, uint32_t number,
                           const char *name)
{
    struct parquet_fields *fields = &m->fields;
    struct parquet_step *steps = reallocarray(fields->steps, fields->n + 1, sizeof *steps);

    if (!steps)
        return fields_no_memory(m);
    fields->steps = steps;
    steps[fields->n] = (struct parquet_step){.sort = sort, .number = number, .name = strdup(name)};
    if (!steps[fields->n].name)
        return fields_no_memory(m);
    fields->n++;
    return 0;
}

/* Adds a top-level field under its own name. */
static int fields_add_top(struct fields_making *m, const struct parquet_column **c)
{
    const struct fields_place at = {*c, 0, ARROW_NONE};
    uint32_t i = m->fields.schema.n;
    int r = fields_add_place(m, &at, NULL, c);

    return r < 0 ? r : fields_add_step(m, STEP_VALUE, i, m->fields.schema.fields[i].name);
}

static int fields_add_all(struct fields_making *m)
{
    const struct parquet_schema *schema = &m->table->schema;
    const struct parquet_column *c = schema->columns, *end = c + schema->n;
    int r = 0;

    while (r == 0 && c < end)
        r = fields_add_top(m, &c);
    for (uint32_t key = 0; r == 0 && key < m->table->n_keys; key++) {
        if (parquet_schema_find(schema, m->table->keys[key]))
            continue; /* the file has this column, too */
        r = fields_add_step(m, STEP_KEY, key, m->table->keys[key]);
    }
    return r;
}

/* The column, struct or list of that name, the outermost one. */
static bool fields_find_place(const struct fields_making *m, const char *source,
                              struct fields_place *ret)
{
    const struct parquet_schema *schema = &m->table->schema;

    for (uint32_t i = 0; i < schema->n; i++) {
        const struct parquet_column *c = &schema->columns[i];
        uint32_t level = 0;
        while (level < c->n_above && !parquet_column_is_in(c, level, source))
            level++;
        *ret = (struct fields_place){c, level, ARROW_NONE};
        if (level < c->n_above || strcmp(c->path, source) == 0)
            return true;
    }
    return false;
}

/* A part of a struct in lists: lists of that part, without the structs. */
static int fields_add_part(struct fields_making *m, const struct fields_place *part,
                           const struct spec_field *field)
{
    struct fields_place at = {part->first, 0, ARROW_NONE};
    struct arrow_schema *schema = &m->fields.schema;
    const struct parquet_column *next;
    uint32_t first = schema->n;
    int r = 0;

    for (; r == 0 && at.level < part->level; at.level++) {
        if (!part->first->above[at.level].is_list)
            continue;
        r = fields_append(m, &at, strdup(field->source), ARROW_LIST);
        at.parent = schema->n - 1;
    }
    uint32_t i = schema->n;
    if (r == 0)
        r = fields_add_place(m, &at, field->source, &next);
    while (r == 0 && i-- > first) {
        at.level = m->fields.nodes[i].level;
        schema->fields[i].n_children = 1;
        schema->fields[i].span = schema->n - i;
        m->fields.nodes[i].column = m->fields.nodes[i + 1].column;
        fields_set_size(m, &at, i);
    }
    return r < 0 ? r : fields_add_step(m, STEP_VALUE, first, field->name);
}

static int fields_add_chosen(struct fields_making *m, const struct spec_field *field)
{
    struct fields_place found;
    uint32_t key;

    if (fields_find_place(m, field->source, &found))
        return fields_add_part(m, &found, field);
    key = parquet_table_find_key(m->table, field->source);
    if (key != UINT32_MAX)
        return fields_add_step(m, STEP_KEY, key, field->name);
    return dl_error_set(m->err, EINVAL, m->table->files.list.paths[0],
                        "has no column %s; see dataset.fields", field->source);
}

/* ---- all of them ---------------------------------------------------------------------------- */

static bool fields_are_fixed(const struct fields_making *m)
{
    const struct parquet_fields *fields = &m->fields;
    bool fixed = true;

    for (uint32_t i = 0; fixed && i < fields->n; i++) {
        const struct parquet_step *step = &fields->steps[i];
        fixed = step->sort == STEP_KEY ? !m->table->key_is_text[step->number]
                                       : fields->schema.fields[step->number].sort == ARROW_NUMBER;
    }
    return fixed;
}

int parquet_fields_make(const struct spec_dataset *spec, const char *place,
                        struct parquet_table *table, struct parquet_fields *ret,
                        struct dl_error *err)
{
    struct fields_making m = {.spec = spec, .table = table, .err = err};
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < spec->n_fields; i++)
        r = fields_add_chosen(&m, &spec->fields[i]);
    if (spec->n_fields == 0)
        r = fields_add_all(&m);
    if (r == 0 && spec->decode && m.images < spec->n_images)
        r = dl_error_set(err, EINVAL, place,
                         "dataset.images has a column that is not among the fields of the samples");
    if (r == 0 && spec->decode && m.sounds < spec->n_audio)
        r = dl_error_set(err, EINVAL, place,
                         "dataset.audio has a column that is not among the fields of the samples");
    if (r == 0 && m.fields.n == 0)
        r = dl_error_set(err, EINVAL, table->files.list.paths[0], "has no columns");
    m.fields.fixed = fields_are_fixed(&m);
    if (r < 0)
        parquet_fields_deinit(&m.fields);
    else
        *ret = m.fields;
    return r;
}
