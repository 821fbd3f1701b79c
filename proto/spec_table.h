/*
 * The table of spec.def as data, and what the files spec_*.c share. Internal to spec.
 *
 * One row holds all about a key; the type of its value decides how it is read from a value
 * (spec.c), written to one (spec_canon_write.c), and which error is reported. Pure.
 */
#ifndef DL_SPEC_TABLE_H
#define DL_SPEC_TABLE_H

#include "proto/common/word_list.h"
#include "proto/spec.h"

enum key_type {
    KEY_NAME,
    KEY_LABEL,
    KEY_CHOICE,
    KEY_BOOL,
    KEY_UINT,
    KEY_UINT_OR_NULL, /* null is stored as 0 */
    KEY_WORKERS,      /* a number, or auto: workers_auto, and the number at first */
    KEY_UINT_OR_AUTO, /* auto is stored as the maximum, and left out of a canonical form */
    KEY_SEED,
    KEY_DURATION,
    KEY_BYTES,
    KEY_PATH,
    KEY_DTYPE,
    KEY_SHAPE,
    KEY_INDICES,
    KEY_WEIGHTS,
    KEY_DATASET,
    KEY_DATASETS,
    KEY_MEMBERS,
    KEY_PARTS,
    KEY_PATHS,
    KEY_FIELD_NAME,
    KEY_SIZE,   /* stored in two fields; the row has the first */
    KEY_NUMBER, /* double */
    KEY_RANGE,  /* double[2] */
    KEY_SHARE,  /* double: a number from 1 on, or a share below it */
    KEY_COST,   /* double[2]: a map of linear and square */
    KEY_LEAVES,
    KEY_LEAF,
    KEY_TOKEN,    /* struct value: a number, a text or null */
    KEY_VALUE,    /* struct value */
    KEY_CALLABLE, /* the section's `object` */
    KEY_INDEX,    /* one of the key's choices, or a path, which has a number of its own */
    KEY_FIELDS,
    KEY_FEATURES,
    KEY_NULLS,    /* struct value: a number, or null for the word refuse */
    KEY_SHARES,   /* of a mix: those of its only point */
    KEY_SCHEDULE, /* of a mix: all of its points, if there are several */
};

struct spec_key {
    const char *section; /* "" = the spec itself */
    const char *key;
    enum key_type type;
    uint32_t offset; /* of the field in struct dl_spec */
    uint32_t size;   /* of the field in bytes; 0: a CHOICE or BOOL with only one value */
    uint32_t kinds;  /* mask of 1 << the section's kind; 0: any kind */
    uint64_t min, max;
    const char *fallback; /* may be NULL */
    const char *values;
    const char *meaning;
};

/* All rows, in canonical order. */
const struct spec_key *spec_keys(size_t *ret_count);

/* NULL for an unknown key; section_exists() knows the strings "dataset", "batch", ... */
const struct spec_key *spec_key_find(const char *section, const char *key);
bool spec_section_exists(const char *section);
bool spec_key_is_later(const char *section, const char *key);

/* The kind that decides a section's keys: of the spec's dataset, sampler or collate; for batch, the
 * strategy. 0: not known yet, or the section has no kinds. */
uint32_t spec_section_kind(const struct dl_spec *spec, const char *section);

/* Why the key, which the section's kind has, has no effect beside the keys before it; NULL: it has
 * one. */
const char *spec_without_meaning(const struct dl_spec *spec, const struct spec_key *key);

/* What the rows REFUSE say of the whole: 0, or -EINVAL with `err`. */
int _nodiscard_ spec_check_together(const struct dl_spec *spec, struct dl_error *err);

/* What the absent key means in this spec; NULL: nothing, or see the row. */
const char *spec_fallback(const struct dl_spec *spec, const struct spec_key *key);

/* The special message for an integer below the minimum, given as shown; NULL if the key has no such
 * message. */
const char *spec_note(const struct spec_key *key, const char *shown);

/* Number of a choice: 0 = known but not supported by this version, -1 = no such word. */
int spec_choice_number(const struct spec_key *key, const char *name);

/* "?" for a number that the key does not have. */
const char *spec_choice_name(const struct spec_key *key, uint32_t number);

/* The last release's name of a dataset's key, NULL if unchanged; and the key that had this name,
 * NULL if unknown. */
const char *spec_former_name(uint32_t kind, const char *key);
const struct spec_key *spec_key_meant(const char *section, const char *former);

/* How many paths a dataset of the kind has: one; one, or one for each field of a sample; or any
 * number. */
enum spec_paths { PATHS_ONE, PATHS_BY_FIELD, PATHS_MANY };
enum spec_paths spec_paths_of(enum dataset_kind kind);

/* What may stand in a section for its kind (0: not known yet); what a choice may be. */
void spec_list_keys(const char *section, uint32_t kind, struct word_list *list);
/* Where else in a spec this key stands, as paths joined by " or "; "" if nowhere. */
void spec_list_places(const char *section, const char *key, char *ret, size_t size);
void spec_list_choices(const struct spec_key *key, struct word_list *list);

/* Whether it is `section`'s. */
/* Whether it names a field beside dataset.field, which a dataset need not have. */
static inline bool spec_is_other_field(const struct spec_key *key)
{
    return key->type == KEY_FIELD_NAME && strcmp(key->key, "field") != 0;
}

static inline bool spec_key_in(const struct spec_key *key, const char *section)
{
    return strcmp(key->section, section) == 0;
}

/* "batch.size"; "seed" at the top. */
enum { SPEC_PATH_MAX = 64, SPEC_PLACES_MAX = 4 * SPEC_PATH_MAX };
void spec_key_path(const struct spec_key *key, char ret[static SPEC_PATH_MAX]);

/* A numeric field of the spec by its row, not of type NUMBER. `spec` has the row's field. */
uint64_t spec_field_get(const struct dl_spec *spec, const struct spec_key *key);
void spec_field_set(struct dl_spec *spec, const struct spec_key *key, uint64_t n);

/* A value as a user may have written it, for messages: -3, "abc", a list. Cut where it is long. */
enum { SPEC_SHOWN_MAX = 96 };
const char *spec_show(const struct value *v, char ret[static SPEC_SHOWN_MAX]);

/* The value of a key that is present, and a dataset's keys, in the canonical form
 * (spec_canon_write.c, spec_canon.c): 0 or -ENOMEM. `v` is null, and owned by the caller, also when
 * half is written. */
int _nodiscard_ spec_canon_write(const struct dl_spec *spec, const struct spec_key *key,
                                 struct value *v);
int _nodiscard_ spec_canon_write_dataset(const struct spec_dataset *dataset, struct value *v);
/* The path in a KEY_PATH; NULL if unset. */
const char *spec_canon_path_of(const struct dl_spec *spec, const struct spec_key *key);
/* Of a KEY_FIELD_NAME; NULL: not given. */
const char *spec_canon_field_of(const struct spec_dataset *dataset, const struct spec_key *key);

/* "; put it in quotes" where a word in a text file was read as something else; else "". */
const char *spec_quote_hint(const struct value *v);

/* The shortest text that parse_duration() reads as `ns`: "90s", "1500ms". */
enum { SPEC_DURATION_MAX = 32 };
void format_duration(uint64_t ns, char ret[static SPEC_DURATION_MAX]);

/* Reading the dataset's own types (spec_dataset.c): 0, or what dl_error_set() returned. */
struct spec_reading {
    struct dl_spec *spec; /* under construction */
    const char *base;     /* may be NULL */
    struct dl_error *err; /* may be NULL */
    const char *place;    /* of the current dataset: "dataset", "dataset.datasets.1", ... */
    unsigned depth;       /* datasets around it */
};

/* The place of `key`, or of item `i`, below `above`; cut if it is too long. */
void spec_place_below(const char *above, const char *key, char ret[static DL_ERROR_PATH_MAX]);
void spec_place_item(const char *above, uint32_t i, char ret[static DL_ERROR_PATH_MAX]);

/* Where a key stands: as spec_key_path(), but below rd->place for a dataset's. */
void spec_place(const struct spec_reading *rd, const struct spec_key *key,
                char ret[static DL_ERROR_PATH_MAX]);

int _nodiscard_ spec_read_token(struct spec_reading *rd, const struct spec_key *key,
                                const struct value *v);
int _nodiscard_ spec_read_path(struct spec_reading *rd, const struct spec_key *key,
                               const struct value *v);
int _nodiscard_ spec_read_paths(struct spec_reading *rd, const struct spec_key *key,
                                const struct value *v);
int _nodiscard_ spec_read_field_name(struct spec_reading *rd, const struct spec_key *key,
                                     const struct value *v);
int _nodiscard_ spec_read_dtype(struct spec_reading *rd, const struct spec_key *key,
                                const struct value *v);
int _nodiscard_ spec_read_shape(struct spec_reading *rd, const struct spec_key *key,
                                const struct value *v);

/* The fields of a record that a sample has, and those that are images; the index of a tar's samples
 * (spec_records.c). */
int _nodiscard_ spec_read_index(struct spec_reading *rd, const struct spec_key *key,
                                const struct value *v);
int _nodiscard_ spec_read_fields(struct spec_reading *rd, const struct spec_key *key,
                                 const struct value *v);
int _nodiscard_ spec_read_nulls(struct spec_reading *rd, const struct spec_key *key,
                                const struct value *v);
/* The sources of a key of this type, *ret_n of them; the dataset's. */
char **spec_features(const struct spec_dataset *dataset, const struct spec_key *key,
                     uint32_t *ret_n);
int _nodiscard_ spec_read_features(struct spec_reading *rd, const struct spec_key *key,
                                   const struct value *v);
void spec_fields_deinit(struct spec_dataset *dataset);

/* *ret is owned by the caller. `place` is where the path stands, for messages (spec_dataset.c). */
int _nodiscard_ spec_resolve_path(const struct spec_reading *rd, const char *place,
                                  const struct value *v, char **ret);

/* Non-integer numbers, of images and of collate (spec_numbers.c). */
int _nodiscard_ spec_read_number(struct spec_reading *rd, const struct spec_key *key,
                                 const struct value *v);
int _nodiscard_ spec_read_range(struct spec_reading *rd, const struct spec_key *key,
                                const struct value *v);
int _nodiscard_ spec_read_cost(struct spec_reading *rd, const struct spec_key *key,
                               const struct value *v);
int _nodiscard_ spec_read_size(struct spec_reading *rd, const struct spec_key *key,
                               const struct value *v);
int _nodiscard_ spec_read_share(struct spec_reading *rd, const struct spec_key *key,
                                const struct value *v);

/* A non-integer field of the spec, by its row: KEY_NUMBER, KEY_SHARE: one; KEY_RANGE, KEY_COST:
 * two; KEY_TOKEN, KEY_NULLS and KEY_VALUE. */
const double *spec_numbers_at(const struct dl_spec *spec, const struct spec_key *key);
const struct value *spec_value_at(const struct dl_spec *spec, const struct spec_key *key);

/* Likewise of a KEY_DTYPE; 0: none was given. */
static inline uint32_t spec_dtype_of(const struct dl_spec *spec, const struct spec_key *key)
{
    uint32_t dtype;

    memcpy(&dtype, (const char *)spec + key->offset, sizeof dtype);
    return dtype;
}

/* Values that are passed on as they are, and the leaves named in collate (spec_collate.c). */
int _nodiscard_ spec_read_value(struct spec_reading *rd, const struct spec_key *key,
                                const struct value *v);
int _nodiscard_ spec_read_leaves(struct spec_reading *rd, const struct spec_key *key,
                                 const struct value *v);
int _nodiscard_ spec_read_callable(struct spec_reading *rd, const struct spec_key *key,
                                   const struct value *v);
void spec_collate_deinit(struct spec_collate *collate);

/* Whether it can be a leaf's path: fields' names, or numbers of items, with dots between them. */
bool spec_good_leaf(const char *leaf);

/* Batches measured in tokens (spec_batch.c), and what no single key of batch and collate can know;
 * fills in what follows from another key. */
int _nodiscard_ spec_read_leaf(struct spec_reading *rd, const struct spec_key *key,
                               const struct value *v);
int _nodiscard_ spec_check_batch(struct spec_reading *rd);

/* Whether it can be a field's name: 1 to DL_MAX_NAME_BYTES bytes without dots, control characters.
 */
bool spec_good_field(const char *field, size_t len);

/* The sampler's own (spec_sampler.c), and what no single key of it can know. */
int _nodiscard_ spec_read_indices(struct spec_reading *rd, const struct spec_key *key,
                                  const struct value *v);
int _nodiscard_ spec_read_weights(struct spec_reading *rd, const struct spec_key *key,
                                  const struct value *v);
int _nodiscard_ spec_check_sampler(struct spec_reading *rd);

/* What no single key of a Python dataset can know (spec_collate.c). */
int _nodiscard_ spec_check_python(struct spec_reading *rd);

/* What no single key of images can know (spec_numbers.c); fills in the transform. */
int _nodiscard_ spec_check_image(struct spec_reading *rd);

/* Reading what datasets made of datasets have (spec_nested.c). */
int _nodiscard_ spec_read_dataset(struct spec_reading *rd, const struct spec_key *key,
                                  const struct value *v);
int _nodiscard_ spec_read_datasets(struct spec_reading *rd, const struct spec_key *key,
                                   const struct value *v);
int _nodiscard_ spec_read_members(struct spec_reading *rd, const struct spec_key *key,
                                  const struct value *v);
int _nodiscard_ spec_read_parts(struct spec_reading *rd, const struct spec_key *key,
                                const struct value *v);

/* The weights of a mixture (spec_mixture.c), behind its datasets; and what must be so of its keys
 * together. */
int _nodiscard_ spec_read_shares(struct spec_reading *rd, const struct spec_key *key,
                                 const struct value *v);
int _nodiscard_ spec_read_schedule(struct spec_reading *rd, const struct spec_key *key,
                                   const struct value *v);
int _nodiscard_ spec_check_mixture(const struct spec_reading *rd);
int _nodiscard_ spec_mixture_check_inner(const struct spec_reading *rd, const char *place,
                                         const struct spec_dataset *inner);
void spec_mixture_deinit(struct spec_dataset *dataset);

/* A list of key->min to key->max items; `example` shows one in error messages. *ret has room for
 * all of them. */
int _nodiscard_ spec_check_list(const struct spec_reading *rd, const struct spec_key *key,
                                const struct value *v, const char *what, const char *example);
int spec_refuse_item(const struct spec_reading *rd, const struct spec_key *key,
                     const struct value *list, uint32_t i, const char *what);
int _nodiscard_ spec_read_whole(const struct spec_reading *rd, const struct spec_key *key,
                                const struct value *list, uint64_t *ret);

/* One dataset at `place` inside the current one; *ret is owned by the caller. */
int _nodiscard_ spec_read_inner(const struct spec_reading *rd, const char *place,
                                const struct value *v, struct spec_dataset *ret);
void spec_dataset_deinit(struct spec_dataset *dataset);

/* What no single key of a dataset can know; fills in what follows from another key. */
int _nodiscard_ spec_check_dataset(struct spec_reading *rd);

/* Refuses the value of `key`: the error's text is `v` as shown, then the words of `fmt`. */
int spec_refuse(const struct spec_reading *rd, const struct spec_key *key, const struct value *v,
                const char *fmt, ...) _printf_(4, 5);
int spec_no_memory(const struct spec_reading *rd);

#endif
