/*
 * LMDB environments: sample i is record i of the main database, in the order of its keys, as
 *
 *   key     bytes
 *   value   bytes; or, if the spec names it in `images`, uint8 [H, W, 3] or what image.h makes of
 * it
 *
 * A path is a directory with data.mdb, or such a file (MDB_NOSUBDIR). With a prefix, samples are
 * the records whose keys begin with it. The file is mapped and read without the lock file: it must
 * not be written to meanwhile.
 */
#include "daemon/data/kinds/kinds.h"

#include "daemon/data/field/field.h"
#include "daemon/data/files/remote.h"
#include "daemon/data/files/source.h"
#include "daemon/data/kinds/lmdb/lmdb_tree.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

/* What a record has. */
enum lmdb_part { LMDB_KEY, LMDB_VALUE, LMDB_PARTS };
static const char *const lmdb_parts[LMDB_PARTS] = {"key", "value"};

struct lmdb {
    struct dataset base;
    char *path; /* owned; the file */
    struct source source;
    struct lmdb_tree tree; /* owned */
    uint64_t first;        /* number of sample 0's record */
    struct fields fields;  /* owned; only the value can be decoded */
};

/* One that is being made. */
struct lmdb_sample {
    const struct lmdb *lmdb;
    uint64_t number; /* of the record */
    struct lmdb_record record;
    struct decoding decoding;
    struct sample *ret;
};

/* ---- samples -------------------------------------------------------------------------------- */

static int lmdb_add(const struct lmdb_sample *s, enum lmdb_part part, const char *name,
                    struct dl_error *err)
{
    const struct lmdb_record *record = &s->record;
    const struct field parts[LMDB_PARTS] = {
        [LMDB_KEY] = {FIELD_BYTES, name, record->key, record->key_bytes},
        [LMDB_VALUE] = {FIELD_IMAGE, name, record->value, record->value_bytes}};
    struct dl_error why = {0};
    int r = field_add(&parts[part], &s->decoding, s->ret, &why);

    if (!why.code)
        return r < 0 ? sample_check(s->ret, err) : 0;
    return dl_error_set(err, why.code, s->lmdb->path, "record %llu: its value %s", (ull)s->number,
                        why.message);
}

static enum lmdb_part lmdb_part_of(const char *source)
{
    return strcmp(source, lmdb_parts[LMDB_KEY]) == 0 ? LMDB_KEY : LMDB_VALUE;
}

static int lmdb_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                    struct sample *ret, struct dl_error *err)
{
    const struct lmdb *lmdb = container_of(ds, struct lmdb, base);
    const struct field_choice *choice = &lmdb->fields.choice;

    struct lmdb_sample s = {.lmdb = lmdb,
                            .number = lmdb->first + index,
                            .decoding = {.fields = &lmdb->fields, .key = key, .index = index},
                            .ret = ret};
    int r = lmdb_tree_get(&lmdb->tree, s.number, &s.record, err);
    if (r < 0)
        return r;
    sample_begin(ret, TREE_DICT, NULL);
    for (uint32_t i = 0; r == 0 && i < choice->n; i++)
        r = lmdb_add(&s, lmdb_part_of(choice->fields[i].source), choice->fields[i].name, err);
    for (uint32_t i = 0; r == 0 && choice->n == 0 && i < LMDB_PARTS; i++)
        r = lmdb_add(&s, (enum lmdb_part)i, lmdb_parts[i], err);
    if (r < 0)
        return r;
    sample_end(ret);
    return sample_check(ret, err);
}

static void lmdb_expect(struct dataset *ds, uint64_t index)
{
    const struct lmdb *lmdb = container_of(ds, struct lmdb, base);

    lmdb_tree_expect(&lmdb->tree, lmdb->first + index);
}

static size_t lmdb_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    const struct lmdb *lmdb = container_of(ds, struct lmdb, base);

    return dataset_put_name(lmdb->path, "record", lmdb->first + index, ret, room);
}

static void lmdb_close(struct dataset *ds)
{
    struct lmdb *lmdb = container_of(ds, struct lmdb, base);

    lmdb_tree_close(&lmdb->tree);
    source_close(&lmdb->source);
    fields_close(&lmdb->fields);
    free(lmdb->path);
    free(lmdb);
}

static const struct dataset_ops lmdb_ops = {
    .get = lmdb_get, .name = lmdb_name, .expect = lmdb_expect, .close = lmdb_close};

/* ---- opening -------------------------------------------------------------------------------- */

/* The file of a path, which may be the directory it lies in. */
static void lmdb_file_of(const char *path, const struct data_env *env, char ret[static PATH_MAX])
{
    struct stat st;

    if (env->remote && remote_is_url(path)) /* if it is the file: what it is, and its first block */
        remote_expect_part(env->remote, path, 0, REMOTE_BLOCK_BYTES);
    bool directory = source_stat(path, true, env, &st) == 0 && S_ISDIR(st.st_mode);

    snprintf(ret, PATH_MAX, "%s%s", path, directory ? "/data.mdb" : "");
}

int lmdb_list_files(const struct spec_dataset *spec, const struct data_env *env,
                    struct file_list *ret, struct dl_error *err)
{
    char path[PATH_MAX];

    lmdb_file_of(spec->files[0].path, env, path);
    int r = file_list_add(ret, path, err);
    if (r == 0)
        file_list_expect(ret, env);
    return r;
}

static int lmdb_check_source(const char *source, const char *place, const char *key,
                             struct dl_error *err)
{
    char at[DL_ERROR_PATH_MAX];

    if (strcmp(source, lmdb_parts[LMDB_KEY]) == 0 || strcmp(source, lmdb_parts[LMDB_VALUE]) == 0)
        return 0;
    snprintf(at, sizeof at, "%s.%s", place, key);
    return dl_error_set(err, EINVAL, at, "a record of LMDB has no %s; it has key and value",
                        source);
}

static int lmdb_check_sources(const struct spec_dataset *spec, const char *place,
                              struct dl_error *err)
{
    char at[DL_ERROR_PATH_MAX];
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < spec->n_fields; i++)
        r = lmdb_check_source(spec->fields[i].source, place, "fields", err);
    for (uint32_t i = 0; r == 0 && i < spec->n_images; i++)
        r = lmdb_check_source(spec->images[i], place, "images", err);
    if (r < 0 || spec->prefix.type == VALUE_NULL ||
        (spec->prefix.type == VALUE_STRING && spec->prefix.string[0]))
        return r;
    snprintf(at, sizeof at, "%s.prefix", place);
    return dl_error_set(err, EINVAL, at, "is not a text, such as \"image-\"; put it in quotes");
}

static bool lmdb_has_pictures(const struct spec_dataset *spec)
{
    bool has = false;

    for (uint32_t i = 0; i < spec->n_images; i++)
        has |= lmdb_part_of(spec->images[i]) == LMDB_VALUE;
    return has;
}

static int lmdb_take_prefix(struct lmdb *lmdb, const struct value *prefix, struct dl_error *err)
{
    uint64_t end = lmdb->tree.records;
    int r = 0;

    if (prefix->type == VALUE_STRING && !lmdb->tree.plain_order)
        return dl_error_set(err, EINVAL, lmdb->path,
                            "has keys that are not sorted by their bytes, so no prefix can be "
                            "looked up; leave dataset.prefix out");
    if (prefix->type == VALUE_STRING)
        r = lmdb_tree_find(&lmdb->tree, prefix->string, strlen(prefix->string), &lmdb->first, &end,
                           err);
    lmdb->base.length = end - lmdb->first;
    return r;
}

int lmdb_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
              struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct lmdb *lmdb = calloc(1, sizeof *lmdb);
    char path[PATH_MAX];
    int r;

    if (!lmdb)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &lmdb->base;
    ds->ops = &lmdb_ops;
    lmdb_file_of(spec->files[0].path, env, path);
    lmdb->path = strdup(path);
    if (!lmdb->path)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    if ((r = lmdb_check_sources(spec, place, err)) < 0 ||
        (r = fields_open(&lmdb->fields, spec, lmdb_has_pictures(spec), place, err)) < 0 ||
        (r = source_open(lmdb->path, env, &lmdb->source, err)) < 0 ||
        (r = lmdb_tree_open(lmdb->source.data, lmdb->source.bytes, lmdb->path, &lmdb->tree, err)) <
            0 ||
        (r = lmdb_take_prefix(lmdb, &spec->prefix, err)) < 0)
        return r;
    *ret = steal_ptr(ds);
    return 0;
}
