#include "daemon/data/parquet/fields.h"

#include "daemon/data/audio/audio_field.h"

#include <errno.h>

struct fields_making {
    const struct spec_dataset *spec;
    struct parquet_table *table;
    struct parquet_fields fields;
    uint32_t images; /* of the spec's, found */
    uint32_t sounds; /* likewise */
    struct dl_error *err;
};

void parquet_fields_deinit(struct parquet_fields *fields)
{
    for (uint32_t i = 0; i < fields->n; i++)
        free(fields->steps[i].name);
    free(fields->steps);
    *fields = (struct parquet_fields){0};
}

/* ---- steps ---------------------------------------------------------------------------------- */

static int fields_add(struct fields_making *m, enum parquet_step_sort sort, uint32_t number,
                      const char *name)
{
    struct parquet_fields *fields = &m->fields;

    if (fields->n == fields->room) {
        uint32_t room = 2 * fields->room + 16;
        struct parquet_step *steps = reallocarray(fields->steps, room, sizeof *steps);
        if (!steps)
            return dl_error_set(m->err, ENOMEM, "dataset.fields", "out of memory");
        fields->steps = steps;
        fields->room = room;
    }
    struct parquet_step *step = &fields->steps[fields->n];
    *step = (struct parquet_step){.sort = sort, .number = number};
    step->name = name ? strdup(name) : NULL;
    if (name && !step->name)
        return dl_error_set(m->err, ENOMEM, "dataset.fields", "out of memory");
    fields->n++;
    return 0;
}

/* What the spec says that the values of a column, or of a struct, are. */
static enum parquet_step_sort fields_media_of(const struct fields_making *m, const char *source)
{
    for (uint32_t i = 0; m->spec->decode && i < m->spec->n_images; i++)
        if (strcmp(m->spec->images[i], source) == 0)
            return STEP_IMAGE;
    return audio_field_is_named(m->spec, source) ? STEP_AUDIO : STEP_COLUMN;
}

static void fields_count_media(struct fields_making *m, enum parquet_step_sort sort)
{
    m->images += sort == STEP_IMAGE;
    m->sounds += sort == STEP_AUDIO;
}

/* "images, which are bytes; see dataset.images" */
static const char *fields_media_words(enum parquet_step_sort sort)
{
    return sort == STEP_IMAGE ? "images, which are bytes; see dataset.images"
                              : "sounds, which are bytes; see dataset.audio";
}

static int fields_add_column(struct fields_making *m, const struct parquet_column *column,
                             const char *name)
{
    enum parquet_step_sort sort = fields_media_of(m, column->path);
    uint32_t number;
    int r = parquet_table_use(m->table, column, &number, m->err);

    if (r < 0)
        return r;
    if (sort != STEP_COLUMN && (column->sort != PARQUET_BYTES || column->max_rep > 0))
        return dl_error_set(m->err, EINVAL, m->table->files.list.paths[0],
                            "its column %s has no %s", column->path, fields_media_words(sort));
    fields_count_media(m, sort);
    m->fields.fixed = m->fields.fixed && column->sort == PARQUET_NUMBER && column->max_rep == 0;
    return fields_add(m, sort, number, name);
}

static int fields_add_key(struct fields_making *m, uint32_t key, const char *name)
{
    m->fields.fixed = m->fields.fixed && !m->table->key_is_text[key];
    return fields_add(m, STEP_KEY, key, name);
}

/* ---- structs -------------------------------------------------------------------------------- */

/* A struct, by the first column that is in it, and how many others that is in around it. */
struct fields_struct {
    const struct parquet_column *first;
    uint32_t level;
};

static bool fields_is_list(const struct parquet_column *c, uint32_t level)
{
    return c->in_list && level + 1 == c->n_structs;
}

static bool fields_is_in(const struct fields_struct *s, const struct parquet_column *c)
{
    const struct parquet_column *first = s->first;

    return c->n_structs > s->level && c->structs[s->level] == first->structs[s->level] &&
           fields_is_list(c, s->level) == fields_is_list(first, s->level) &&
           memcmp(c->path, first->path, c->structs[s->level]) == 0;
}

/* A file as Hugging Face's datasets write it: {bytes, path}. */
static int fields_add_struct_media(struct fields_making *m, enum parquet_step_sort sort,
                                   const struct fields_struct *s, const struct parquet_column *end,
                                   const char *name)
{
    uint32_t number;

    for (const struct parquet_column *c = s->first; c < end; c++) {
        if (strcmp(c->path + c->structs[s->level], ".bytes") != 0 || c->sort != PARQUET_BYTES ||
            c->max_rep)
            continue;
        int r = parquet_table_use(m->table, c, &number, m->err);
        fields_count_media(m, sort);
        m->fields.fixed = false;
        return r < 0 ? r : fields_add(m, sort, number, name);
    }
    return dl_error_set(m->err, EINVAL, m->table->files.list.paths[0],
                        "its struct %s has no column bytes for %s; see dataset.%s", name,
                        sort == STEP_IMAGE ? "an image" : "a sound",
                        sort == STEP_IMAGE ? "images" : "audio");
}

static int fields_add_inner(struct fields_making *m, const struct fields_struct *s, uint32_t from,
                            const struct parquet_column **ret);

/* Adds a struct, with all that is in it; *ret: behind the last of its columns. `name`: what it is
 * called. */
static int fields_add_struct(struct fields_making *m, const struct fields_struct *s,
                             const char *name, const struct parquet_column **ret)
{
    const struct parquet_column *all_end = m->table->schema.columns + m->table->schema.n;
    const struct parquet_column *end = s->first, *c = s->first;
    const uint16_t bytes = c->structs[s->level];
    _cleanup_free_ char *source = strndup(c->path, bytes);

    if (!source)
        return dl_error_set(m->err, ENOMEM, "dataset.fields", "out of memory");
    while (end < all_end && fields_is_in(s, end))
        end++;
    *ret = end;
    enum parquet_step_sort sort = fields_media_of(m, source);
    if (sort != STEP_COLUMN)
        return fields_add_struct_media(m, sort, s, end, name);
    m->fields.fixed = false;
    int r = fields_add(m, fields_is_list(c, s->level) ? STEP_LIST : STEP_BEGIN, 0, name);
    while (r == 0 && c < end) {
        const struct fields_struct inner = {c, s->level + 1};
        if (c->n_structs > inner.level) {
            r = fields_add_inner(m, &inner, bytes + 1, &c);
        } else {
            r = fields_add_column(m, c, c->path + bytes + 1);
            c++;
        }
    }
    return r < 0 ? r : fields_add(m, STEP_END, 0, NULL);
}

/* By its own name, which begins at byte `from` of its columns'. */
static int fields_add_inner(struct fields_making *m, const struct fields_struct *s, uint32_t from,
                            const struct parquet_column **ret)
{
    _cleanup_free_ char *name =
        strndup(s->first->path + from, s->first->structs[s->level] - (size_t)from);

    return name ? fields_add_struct(m, s, name, ret)
                : dl_error_set(m->err, ENOMEM, "dataset.fields", "out of memory");
}

static bool fields_find_struct(const struct fields_making *m, const char *source,
                               struct fields_struct *ret)
{
    const struct parquet_schema *schema = &m->table->schema;

    for (uint32_t i = 0; i < schema->n; i++)
        for (uint32_t level = 0; level < schema->columns[i].n_structs; level++)
            if (parquet_column_is_in(&schema->columns[i], level, source)) {
                *ret = (struct fields_struct){&schema->columns[i], level};
                return true;
            }
    return false;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static int fields_add_all(struct fields_making *m)
{
    const struct parquet_schema *schema = &m->table->schema;
    const struct parquet_column *c = schema->columns, *end = c + schema->n;
    int r = 0;

    while (r == 0 && c < end) {
        if (c->n_structs > 0) {
            r = fields_add_inner(m, &(struct fields_struct){c, 0}, 0, &c);
        } else {
            r = fields_add_column(m, c, c->path);
            c++;
        }
    }
    for (uint32_t key = 0; r == 0 && key < m->table->n_keys; key++) {
        if (parquet_schema_find(schema, m->table->keys[key]))
            continue; /* the file has it as well */
        r = fields_add_key(m, key, m->table->keys[key]);
    }
    return r;
}

static int fields_add_chosen(struct fields_making *m, const struct spec_field *field)
{
    const struct parquet_column *column = parquet_schema_find(&m->table->schema, field->source);
    struct fields_struct found;
    uint32_t key;

    if (column)
        return fields_add_column(m, column, field->name);
    if (fields_find_struct(m, field->source, &found))
        return fields_add_struct(m, &found, field->name, &column);
    key = parquet_table_find_key(m->table, field->source);
    if (key != UINT32_MAX)
        return fields_add_key(m, key, field->name);
    return dl_error_set(m->err, EINVAL, m->table->files.list.paths[0],
                        "has no column %s; see dataset.fields", field->source);
}

int parquet_fields_make(const struct spec_dataset *spec, const char *place,
                        struct parquet_table *table, struct parquet_fields *ret,
                        struct dl_error *err)
{
    struct fields_making m = {.spec = spec, .table = table, .err = err};
    int r = 0;

    m.fields.fixed = true;
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
    if (r < 0)
        parquet_fields_deinit(&m.fields);
    else
        *ret = m.fields;
    return r;
}
