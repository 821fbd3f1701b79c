/*
 * Reads a loader spec from a value, in one pass over the rows of spec.def: accepted keys, defaults
 * and messages follow from the table. Checks that span two sections are in what
 * spec_check_sections() calls.
 */
#include "proto/spec_table.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

_Static_assert(sizeof(enum dataset_kind) == sizeof(uint32_t), "rows store enums as 32 bits");

void spec_deinit(struct dl_spec *spec)
{
    spec_dataset_deinit(&spec->dataset);
    spec_collate_deinit(&spec->collate);
    free(spec->batch.length_of);
    free(spec->indices);
    free(spec->weights);
    free(spec->name);
    free(spec->label);
    *spec = (struct dl_spec){0};
}

static const char *spec_name_of_choice(const char *section, const char *key, uint32_t number)
{
    return spec_choice_name(spec_key_find(section, key), number);
}

const char *dataset_kind_name(enum dataset_kind kind)
{
    return spec_name_of_choice("dataset", "kind", kind);
}

const char *sampler_kind_name(enum sampler_kind kind)
{
    return spec_name_of_choice("sampler", "kind", kind);
}

void spec_place(const struct spec_reading *rd, const struct spec_key *key,
                char ret[static DL_ERROR_PATH_MAX])
{
    const char *section = spec_key_in(key, "dataset") ? rd->place : key->section;
    snprintf(ret, DL_ERROR_PATH_MAX, "%s%s%s", section, section[0] ? "." : "", key->key);
}

int spec_refuse(const struct spec_reading *rd, const struct spec_key *key, const struct value *v,
                const char *fmt, ...)
{
    char place[DL_ERROR_PATH_MAX], shown[SPEC_SHOWN_MAX], text[DL_ERROR_MESSAGE_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    spec_place(rd, key, place);
    return dl_error_set(rd->err, EINVAL, place, "%s %s", spec_show(v, shown), text);
}

int spec_no_memory(const struct spec_reading *rd)
{
    return dl_error_set(rd->err, ENOMEM, "", "out of memory for the loader spec");
}

/* ---- one reader for each type of key -------------------------------------------------------- */

static int spec_read_name(struct spec_reading *rd, const struct spec_key *key,
                          const struct value *v)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";

    if (v->type != VALUE_STRING)
        return spec_refuse(rd, key, v, "is not a string%s", spec_quote_hint(v));
    size_t len = strlen(v->string);
    if (len < key->min || len > key->max || v->string[strspn(v->string, good)])
        return spec_refuse(rd, key, v,
                           "is not a name: 1 to %" PRIu64 " letters, digits and . _ - /", key->max);
    free(rd->spec->name);
    rd->spec->name = strdup(v->string);
    return rd->spec->name ? 0 : spec_no_memory(rd);
}

/* One line that fits a table whose columns are two blanks apart, and is safe to print on a
 * terminal. */
static bool spec_is_label(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((uint8_t)text[i] < 0x20 || text[i] == 0x7F ||
            ((uint8_t)text[i] == 0xC2 && (uint8_t)text[i + 1] < 0xA0))
            return false;
    return len > 0 && text[0] != ' ' && text[len - 1] != ' ' && !strstr(text, "  ");
}

static int spec_read_label(struct spec_reading *rd, const struct spec_key *key,
                           const struct value *v)
{
    if (v->type != VALUE_STRING)
        return spec_refuse(rd, key, v, "is not a string%s", spec_quote_hint(v));
    if (strlen(v->string) > key->max || !spec_is_label(v->string, strlen(v->string)))
        return spec_refuse(rd, key, v,
                           "is not a label: 1 to %" PRIu64
                           " bytes on one line, without blanks at its ends or two together",
                           key->max);
    if (rd->spec->name)
        return spec_refuse(rd, key, v, "is given together with name; leave out one of them");
    rd->spec->label = strdup(v->string);
    return rd->spec->label ? 0 : spec_no_memory(rd);
}

static int spec_read_choice(struct spec_reading *rd, const struct spec_key *key,
                            const struct value *v)
{
    struct word_list list;

    int number = v->type == VALUE_STRING ? spec_choice_number(key, v->string) : -1;
    if (number > 0) {
        if (key->size)
            spec_field_set(rd->spec, key, (uint64_t)number);
        return 0;
    }
    word_list_begin(&list, v->type == VALUE_STRING ? v->string : "");
    spec_list_choices(key, &list);
    if (number == 0)
        return spec_refuse(rd, key, v, "is not supported by this version; it has %s", list.text);
    return spec_refuse(rd, key, v, "is not one of %s%s%s%s", list.text,
                       list.best ? "; did you mean " : "", list.best ? list.best : "",
                       list.best ? "?" : "");
}

static int spec_read_bool(struct spec_reading *rd, const struct spec_key *key,
                          const struct value *v)
{
    if (v->type != VALUE_BOOL)
        return spec_refuse(rd, key, v, "is not true or false");
    if (v->boolean > key->max)
        return spec_refuse(rd, key, v, "is not supported by this version; it has false");
    if (key->size)
        spec_field_set(rd->spec, key, v->boolean);
    return 0;
}

static int spec_read_uint(struct spec_reading *rd, const struct spec_key *key,
                          const struct value *v)
{
    bool integer = v->type == VALUE_INT || v->type == VALUE_UINT;
    uint64_t n = v->type == VALUE_UINT ? v->uinteger : (uint64_t)v->integer;
    char shown[SPEC_SHOWN_MAX];

    if (!integer || v->integer < 0 || n < key->min) {
        const char *note = integer ? spec_note(key, spec_show(v, shown)) : NULL;
        if (note)
            return spec_refuse(rd, key, v, "%s", note);
        return spec_refuse(rd, key, v, "is not a %s integer",
                           key->min ? "positive" : "non-negative");
    }
    if (n > key->max)
        return spec_refuse(rd, key, v, "is above the maximum of %" PRIu64, key->max);
    spec_field_set(rd->spec, key, n);
    return 0;
}

static int spec_read_uint_or_null(struct spec_reading *rd, const struct spec_key *key,
                                  const struct value *v)
{
    if (v->type != VALUE_NULL)
        return spec_read_uint(rd, key, v);
    spec_field_set(rd->spec, key, 0);
    return 0;
}

static int spec_read_workers(struct spec_reading *rd, const struct spec_key *key,
                             const struct value *v)
{
    rd->spec->workers_auto = v->type == VALUE_STRING && strcmp(v->string, "auto") == 0;
    if (!rd->spec->workers_auto)
        return spec_read_uint(rd, key, v);
    spec_field_set(rd->spec, key, SPEC_WORKERS_AT_FIRST);
    return 0;
}

static int spec_read_uint_or_auto(struct spec_reading *rd, const struct spec_key *key,
                                  const struct value *v)
{
    if (v->type != VALUE_STRING || strcmp(v->string, "auto") != 0)
        return spec_read_uint(rd, key, v);
    spec_field_set(rd->spec, key, key->max);
    return 0;
}

/* Negative seeds wrap, as they do in torch.manual_seed(). */
static int spec_read_seed(struct spec_reading *rd, const struct spec_key *key,
                          const struct value *v)
{
    if (v->type != VALUE_INT && v->type != VALUE_UINT)
        return spec_refuse(
            rd, key, v, "is not an integer from %" PRId64 " to %" PRIu64 "%s", INT64_MIN,
            UINT64_MAX,
            v->type == VALUE_NULL && !key->section[0] ? "; leave seed out to have one drawn" : "");
    spec_field_set(rd->spec, key, v->type == VALUE_UINT ? v->uinteger : (uint64_t)v->integer);
    if (!key->section[0])
        rd->spec->has_seed = true;
    return 0;
}

/* What a value with a unit says: 0 and *ret, -EINVAL, or -ERANGE when it does not fit. */
static int spec_scaled(const struct spec_key *key, const struct value *v, uint64_t *ret)
{
    uint64_t unit = key->type == KEY_DURATION ? 1000000000 : 1;

    switch (v->type) {
    case VALUE_STRING:
        return key->type == KEY_DURATION ? parse_duration(v->string, ret)
                                         : parse_bytes(v->string, ret);
    case VALUE_INT:
        if (v->integer < 0)
            return -EINVAL;
        return mul_overflows((uint64_t)v->integer, unit, ret) ? -ERANGE : 0;
    case VALUE_UINT:
        return mul_overflows(v->uinteger, unit, ret) ? -ERANGE : 0;
    case VALUE_FLOAT:
        if (key->type != KEY_DURATION || !(v->number >= 0) || isinf(v->number))
            return -EINVAL;
        if (v->number * 1e9 >= 0x1p63)
            return -ERANGE;
        *ret = (uint64_t)(v->number * 1e9 + 0.5);
        return 0;
    default:
        return -EINVAL;
    }
}

static int spec_read_scaled(struct spec_reading *rd, const struct spec_key *key,
                            const struct value *v)
{
    bool duration = key->type == KEY_DURATION;
    uint64_t n;

    int r = spec_scaled(key, v, &n);
    if (r == -ERANGE || (r == 0 && n > key->max))
        return spec_refuse(rd, key, v, "is above the maximum of %" PRIu64 " %s", key->max,
                           duration ? "nanoseconds" : "bytes");
    bool negative =
        (v->type == VALUE_INT && v->integer < 0) || (v->type == VALUE_FLOAT && v->number < 0);
    if (r < 0 || n < key->min)
        return spec_refuse(rd, key, v, "is not a %s%s", negative ? "non-negative " : "",
                           duration ? "duration, such as 30s, 500ms or 2min; 0 is none"
                                    : "size in bytes, such as 4096, 256MiB or 1GiB");
    spec_field_set(rd->spec, key, n);
    return 0;
}

typedef int reader(struct spec_reading *rd, const struct spec_key *key, const struct value *v);

/* clang-format off */
static reader *const spec_readers[] = {
    [KEY_NAME] = spec_read_name,
    [KEY_LABEL] = spec_read_label,
    [KEY_CHOICE] = spec_read_choice,
    [KEY_BOOL] = spec_read_bool,
    [KEY_UINT] = spec_read_uint,
    [KEY_UINT_OR_NULL] = spec_read_uint_or_null,
    [KEY_WORKERS] = spec_read_workers,
    [KEY_UINT_OR_AUTO] = spec_read_uint_or_auto,
    [KEY_SEED] = spec_read_seed,
    [KEY_DURATION] = spec_read_scaled,
    [KEY_BYTES] = spec_read_scaled,
    [KEY_PATH] = spec_read_path,
    [KEY_DTYPE] = spec_read_dtype,
    [KEY_SHAPE] = spec_read_shape,
    [KEY_INDICES] = spec_read_indices,
    [KEY_WEIGHTS] = spec_read_weights,
    [KEY_DATASET] = spec_read_dataset,
    [KEY_DATASETS] = spec_read_datasets,
    [KEY_MEMBERS] = spec_read_members,
    [KEY_PARTS] = spec_read_parts,
    [KEY_PATHS] = spec_read_paths,
    [KEY_FIELD_NAME] = spec_read_field_name,
    [KEY_SIZE] = spec_read_size,
    [KEY_NUMBER] = spec_read_number,
    [KEY_RANGE] = spec_read_range,
    [KEY_SHARE] = spec_read_share,
    [KEY_COST] = spec_read_cost,
    [KEY_LEAVES] = spec_read_leaves,
    [KEY_LEAF] = spec_read_leaf,
    [KEY_TOKEN] = spec_read_token,
    [KEY_VALUE] = spec_read_value,
    [KEY_CALLABLE] = spec_read_callable,
    [KEY_INDEX] = spec_read_index,
    [KEY_FIELDS] = spec_read_fields,
    [KEY_FEATURES] = spec_read_features,
    [KEY_NULLS] = spec_read_nulls,
    [KEY_SHARES] = spec_read_shares,
    [KEY_SCHEDULE] = spec_read_schedule,
};
/* clang-format on */

/* ---- the table against the value ------------------------------------------------------------ */

/* "[0.08, 1]" */
static int spec_read_fallback_range(struct spec_reading *rd, const struct spec_key *key)
{
    char *end;
    struct value ends[] = {{.type = VALUE_FLOAT}, {.type = VALUE_FLOAT}};
    const struct value v = {.type = VALUE_ARRAY, .items = ends, .count = 2};

    assert(key->fallback);
    ends[0].number = strtod(key->fallback + 1, &end);
    ends[1].number = strtod(end + 1, NULL);
    return spec_read_range(rd, key, &v);
}

/* "{linear: 1, square: 0.5}" */
static int spec_read_fallback_cost(struct spec_reading *rd, const struct spec_key *key)
{
    char linear[] = "linear", square[] = "square";
    struct value items[] = {{.type = VALUE_FLOAT, .key = linear},
                            {.type = VALUE_FLOAT, .key = square}};
    const struct value v = {.type = VALUE_MAP, .items = items, .count = 2};

    assert(key->fallback);
    items[0].number = strtod(strchr(key->fallback, ':') + 1, NULL);
    items[1].number = strtod(strrchr(key->fallback, ':') + 1, NULL);
    return spec_read_cost(rd, key, &v);
}

/* A row's fallback is spec text, too; tests check that each is valid. */
static int spec_read_fallback(struct spec_reading *rd, const struct spec_key *key)
{
    const char *fallback = spec_fallback(rd->spec, key);
    struct value v = {.type = VALUE_STRING};

    if (key->type == KEY_RANGE)
        return spec_read_fallback_range(rd, key);
    if (key->type == KEY_COST)
        return spec_read_fallback_cost(rd, key);
    if (key->type == KEY_NUMBER) {
        v = (struct value){.type = VALUE_FLOAT, .number = strtod(fallback, NULL)};
    } else if (key->type == KEY_BOOL) {
        v = (struct value){.type = VALUE_BOOL, .boolean = strcmp(fallback, "true") == 0};
    } else if (strcmp(fallback, "null") == 0) {
        v = (struct value){.type = VALUE_NULL};
    } else if (key->type == KEY_UINT || key->type == KEY_UINT_OR_NULL || key->type == KEY_SHARE ||
               key->type == KEY_WORKERS) {
        v = (struct value){.type = VALUE_INT, .integer = strtoll(fallback, NULL, 10)};
    } else {
        v.string = strdup(fallback);
        if (!v.string)
            return spec_no_memory(rd);
    }
    int r = spec_readers[key->type](rd, key, &v);
    assert(r == 0 || r == -ENOMEM);
    value_deinit(&v);
    return r;
}

/* Before the section's kind is known, none of its keys is out of place. */
static bool spec_applies(const struct spec_reading *rd, const struct spec_key *key)
{
    uint32_t kind = spec_section_kind(rd->spec, key->section);
    return !key->kinds || !kind || key->kinds & 1U << kind;
}

/* Of the dataset, the sampler or collate. */
static const char *spec_kind_name(const struct spec_reading *rd, const char *section)
{
    return spec_name_of_choice(section, "kind", spec_section_kind(rd->spec, section));
}

static const char *spec_article(const char *section)
{
    return strcmp(section, "collate") == 0 ? "" : "a ";
}

/* What a .npy file of tokens says itself, what spec_check_dataset() and spec_check_batch() fill in,
 * and what can be left out without anything in its place. */
static bool spec_optional(const struct spec_reading *rd, const struct spec_key *key)
{
    if (key->type == KEY_SIZE || key->type == KEY_LEAVES || key->type == KEY_LEAF ||
        key->type == KEY_CALLABLE || key->type == KEY_FIELDS || key->type == KEY_FEATURES ||
        key->type == KEY_SHARES || key->type == KEY_SCHEDULE ||
        strcmp(key->key, "transform") == 0 || strcmp(key->key, "strategy") == 0 ||
        strcmp(key->key, "lengths") == 0 || spec_is_other_field(key) ||
        strcmp(key->key, "raw") == 0)
        return true;
    if (rd->spec->dataset.kind == DATASET_PYTHON && spec_key_in(key, "dataset"))
        return true;
    if (rd->spec->dataset.kind == DATASET_LITDATA && strcmp(key->key, "sequence_length") == 0)
        return true;
    return rd->spec->dataset.kind == DATASET_TOKENS &&
           (key->type == KEY_DTYPE || strcmp(key->key, "stride") == 0);
}

static int spec_missing(struct spec_reading *rd, const struct spec_key *key)
{
    struct word_list list;
    char place[DL_ERROR_PATH_MAX];

    spec_place(rd, key, place);
    if (strcmp(key->key, "model") == 0 && rd->spec->dataset.tokenizer == TOKENIZER_HUGGINGFACE)
        return dl_error_set(rd->err, EINVAL, place,
                            "missing; tokenizer: huggingface needs it, the tokenizer.json that "
                            "save_pretrained() or Tokenizer.save() wrote");
    if (strcmp(key->key, "model") == 0)
        return dl_error_set(rd->err, EINVAL, place,
                            "missing; tokenizer: sentencepiece needs it, the .model file that "
                            "spm_train wrote");
    if (strcmp(key->key, "chat_template") == 0)
        return dl_error_set(rd->err, EINVAL, place,
                            "missing; chat: jinja needs it, the chat_template.jinja or "
                            "tokenizer_config.json that save_pretrained() wrote");
    if (key->kinds)
        return dl_error_set(rd->err, EINVAL, place, "missing; %s%s of kind %s needs it",
                            spec_article(key->section), key->section,
                            spec_kind_name(rd, key->section));
    word_list_begin(&list, "");
    spec_list_choices(key, &list);
    return dl_error_set(rd->err, EINVAL, place, "missing; give one of %s", list.text);
}

/* `map` may be NULL: an absent section is an empty one. */
static int spec_read_key(struct spec_reading *rd, const struct spec_key *key,
                         const struct value *map)
{
    const struct value *v = map ? value_get(map, key->key) : NULL;

    if (!spec_applies(rd, key))
        return 0;
    const char *words = spec_without_meaning(rd->spec, key);
    if (words)
        return v ? spec_refuse(rd, key, v, "%s", words) : 0;
    if (v && strcmp(key->key, "writable") == 0)
        rd->spec->has_writable = true;
    if (v)
        return spec_readers[key->type](rd, key, v);
    if (spec_fallback(rd->spec, key))
        return spec_read_fallback(rd, key);
    return key->section[0] && !spec_optional(rd, key) ? spec_missing(rd, key) : 0;
}

static int spec_refuse_key(struct spec_reading *rd, const char *section, const char *key)
{
    const char *what = section[0] ? section : "a loader spec";
    const struct spec_key *known = spec_key_find(section, key), *now = spec_key_meant(section, key);
    const char *word = known ? NULL : dl_spec_word(key);
    bool dataset = strcmp(section, "dataset") == 0;
    uint32_t kind = spec_section_kind(rd->spec, section);
    char place[DL_ERROR_PATH_MAX], places[SPEC_PLACES_MAX];
    struct word_list list;

    snprintf(place, sizeof place, "%s%s%s", dataset ? rd->place : section, section[0] ? "." : "",
             key);
    word_list_begin(&list, key);
    spec_list_keys(section, kind, &list);
    if (word)
        return dl_error_set(rd->err, EINVAL, place, "unknown key; write %s", word);
    if (spec_key_is_later(section, key))
        return dl_error_set(rd->err, EINVAL, place, "not supported by this version; %s takes %s",
                            what, list.text);
    bool former = now && spec_applies(rd, now);
    if (known && !former)
        return dl_error_set(rd->err, EINVAL, place, "not a key of %s%s of kind %s; it takes %s",
                            spec_article(section), section, spec_kind_name(rd, section), list.text);
    spec_list_places(section, key, places, sizeof places);
    const char *meant = former ? now->key : *places ? places : list.best;
    if (dataset && kind == 0) /* the keys of all kinds fit into no message */
        return dl_error_set(rd->err, EINVAL, place,
                            "unknown key%s%s%s which keys a dataset takes depends on its kind",
                            meant ? "; did you mean " : ";", meant ? meant : "", meant ? "?" : "");
    return dl_error_set(rd->err, EINVAL, place, "unknown key%s%s%s %s takes %s",
                        meant ? "; did you mean " : ";", meant ? meant : "", meant ? "?" : "", what,
                        list.text);
}

static int spec_check_keys(struct spec_reading *rd, const char *section, const struct value *map)
{
    for (uint32_t i = 0; i < map->count; i++) {
        const char *name = map->items[i].key;
        const struct spec_key *key = spec_key_find(section, name);

        if (key && spec_applies(rd, key))
            continue;
        if (section[0] == '\0' && spec_section_exists(name))
            continue;
        return spec_refuse_key(rd, section, name);
    }
    return 0;
}

/* What no single key can know. */
static int spec_check_sections(struct spec_reading *rd)
{
    int r = spec_check_together(rd->spec, rd->err);

    if (r == 0)
        r = spec_check_python(rd);
    if (r == 0)
        r = spec_check_sampler(rd);
    return r < 0 ? r : spec_check_batch(rd);
}

static int spec_check_section(struct spec_reading *rd, const char *section, const struct value *map)
{
    char shown[SPEC_SHOWN_MAX];

    if (map && map->type != VALUE_MAP)
        return dl_error_set(rd->err, EINVAL, strcmp(section, "dataset") == 0 ? rd->place : section,
                            "%s is not a mapping", spec_show(map, shown));
    if (!map && strcmp(section, "dataset") == 0)
        return dl_error_set(rd->err, EINVAL, section,
                            "missing; for example dataset: {kind: range, length: 100}");
    return 0;
}

/*
 * A section's first key decides which other keys are allowed, so it is read before they are
 * checked: an unsupported kind is reported as such, not as its first unknown key.
 */
static int spec_read_section(struct spec_reading *rd, const struct spec_key *keys, size_t n,
                             const struct value *map)
{
    int r = spec_check_section(rd, keys[0].section, map);
    bool first = r == 0 && (keys[0].fallback || (map && value_get(map, keys[0].key)));

    if (first)
        r = spec_read_key(rd, &keys[0], map);
    if (r == 0 && map)
        r = spec_check_keys(rd, keys[0].section, map);
    for (size_t i = first; r == 0 && i < n; i++)
        r = spec_read_key(rd, &keys[i], map);
    return r < 0 || !spec_key_in(&keys[0], "dataset") ? r : spec_check_dataset(rd);
}

int spec_read_inner(const struct spec_reading *rd, const char *place, const struct value *v,
                    struct spec_dataset *ret)
{
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    struct spec_reading inner = {
        .spec = &spec, .base = rd->base, .err = rd->err, .place = place, .depth = rd->depth + 1};
    size_t n, begin = 0, end;
    const struct spec_key *keys = spec_keys(&n);

    if (inner.depth > DL_MAX_VALUE_DEPTH)
        return dl_error_set(rd->err, EINVAL, place, "more than %" PRIu64 " nested datasets",
                            DL_MAX_VALUE_DEPTH);
    while (!spec_key_in(&keys[begin], "dataset"))
        begin++;
    for (end = begin; end < n && spec_key_in(&keys[end], "dataset"); end++)
        ;
    int r = spec_read_section(&inner, &keys[begin], end - begin, v);
    if (r < 0)
        return r;
    *ret = spec.dataset;
    spec.dataset = (struct spec_dataset){0};
    return 0;
}

static int spec_read(struct spec_reading *rd, const struct value *v)
{
    size_t n, end;
    const struct spec_key *keys = spec_keys(&n);

    int r = spec_check_keys(rd, "", v);
    for (size_t begin = 0; r == 0 && begin < n; begin = end) {
        const char *section = keys[begin].section;
        for (end = begin + 1; end < n && spec_key_in(&keys[end], section); end++)
            ;
        if (section[0])
            r = spec_read_section(rd, &keys[begin], end - begin, value_get(v, section));
        for (size_t i = begin; r == 0 && !section[0] && i < end; i++)
            r = spec_read_key(rd, &keys[i], v);
    }
    return r < 0 ? r : spec_check_sections(rd);
}

/*
 * Defaults and whole paths make the canonical form longer than what was written: it must still fit
 * the message that takes it to a worker.
 */
static int spec_check_size(struct spec_reading *rd)
{
    _cleanup_(value_deinit) struct value canonical = {0};
    _cleanup_(buffer_deinit) struct dl_buffer packed = {0};

    int r = spec_to_value(rd->spec, &canonical);
    if (r == 0)
        r = value_pack(&canonical, &packed);
    if (r == -ENOMEM)
        return spec_no_memory(rd);
    if (r < 0)
        return dl_error_set(rd->err, EINVAL, "dataset",
                            "with its defaults, the spec is above the maximum of %" PRIu64
                            " values in %" PRIu64 " levels; list fewer indices or datasets",
                            DL_MAX_VALUE_NODES, DL_MAX_VALUE_DEPTH);
    if (packed.len > DL_MAX_SPEC_BYTES)
        return dl_error_set(rd->err, EINVAL, "dataset",
                            "with its defaults and whole paths, the spec has %zu bytes, above the "
                            "maximum of %" PRIu64 "; list fewer indices or files",
                            packed.len, DL_MAX_SPEC_BYTES);
    return 0;
}

static int spec_name_by_content(struct spec_reading *rd)
{
    uint64_t fingerprint;

    if (rd->spec->name)
        return 0;
    if (rd->spec->label) {
        rd->spec->name = strdup(rd->spec->label);
        return rd->spec->name ? 0 : spec_no_memory(rd);
    }
    const struct dl_spec common = spec_common(rd->spec); /* jobs that share it find it by name */
    int r = spec_fingerprint(&common, &fingerprint);
    if (r < 0)
        return spec_no_memory(rd);
    if (asprintf(&rd->spec->name, "spec-%016" PRIx64, fingerprint) < 0) {
        rd->spec->name = NULL;
        return spec_no_memory(rd);
    }
    return 0;
}

int spec_from_value(const struct value *v, const char *base, struct dl_spec *ret,
                    struct dl_error *err)
{
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    struct spec_reading rd = {.spec = &spec, .base = base, .err = err, .place = "dataset"};
    char shown[SPEC_SHOWN_MAX];

    if (v->type != VALUE_MAP)
        return dl_error_set(err, EINVAL, "", "a loader spec is a mapping, not %s",
                            spec_show(v, shown));
    if (base && base[0] != '/')
        return dl_error_set(err, EINVAL, "", "the base directory %.200s is not a path from /",
                            base);
    int r = spec_read(&rd, v);
    if (r == 0)
        r = spec_check_size(&rd);
    if (r == 0)
        r = spec_name_by_content(&rd);
    if (r < 0)
        return r;
    *ret = spec;
    spec = (struct dl_spec){0};
    return 0;
}
