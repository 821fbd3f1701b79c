/*
 * The canonical form of a spec and what follows from it: fingerprint and difference. Two specs are
 * the same loader when their canonical forms are equal, so every key that says something is in it,
 * defaults included.
 */
#include "proto/spec_table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

static bool spec_canon_has_features(const struct dl_spec *spec, const struct spec_key *key)
{
    uint32_t n;

    (void)spec_features(&spec->dataset, key, &n);
    return n > 0;
}

/*
 * Whether the key came later than the first saved states, and says what the spec meant without it.
 * Such a key is left out: loaders would else lose the fingerprint that states know them by.
 */
static bool spec_canon_says_nothing_new(const struct dl_spec *spec, const struct spec_key *key)
{
    if (strcmp(key->key, "iterable") == 0)
        return !spec->dataset.iterable;
    if (key->type == KEY_TOKEN)
        return spec_value_at(spec, key)->type == VALUE_NULL;
    if (key->type == KEY_INDEX)
        return spec->dataset.index <= INDEX_OFF;
    if (strcmp(key->key, "chat_args") == 0)
        return spec->dataset.chat_args.type == VALUE_NULL;
    if (strcmp(key->key, "chat_end") == 0)
        return spec->dataset.chat_end == CHAT_END_TURN;
    if (strcmp(key->key, "loss") == 0)
        return spec->dataset.loss == LOSS_ASSISTANT;
    if (strcmp(key->key, "cut") == 0)
        return spec->dataset.cut == CUT_TOKENS;
    if (strcmp(key->key, "ids") == 0)
        return spec->dataset.ids == SPEC_IDS_BYTES;
    if (strcmp(key->key, "overlap") == 0)
        return spec->batch.overlap == 0;
    if (strcmp(key->key, "cache") == 0)
        return spec->dataset.cache == 0;
    if (strcmp(key->key, "grey") == 0)
        return !spec->dataset.image.grey;
    if (strcmp(key->key, "sequence_length") == 0)
        return spec->dataset.sequence_length == 0;
    if (strcmp(key->key, "tokens") == 0)
        return !spec->batch.tokens;
    if (strcmp(key->key, "block") == 0)
        return !spec->block;
    if (strcmp(key->key, "replicas") == 0)
        return spec->replicas <= 1;
    if (spec_key_in(key, "share"))
        return spec->share_window == 0 || (strcmp(key->key, "size") == 0 && !spec->share_size);
    if (strcmp(key->key, "bypass") == 0)
        return spec->bypass == 0;
    if (strcmp(key->key, "balance") == 0)
        return spec->batch.balance == BALANCE_NONE;
    if (spec_key_in(key, "collate") && strcmp(key->key, "length") == 0)
        return !spec->collate.length;
    return strcmp(key->key, "to") == 0 && spec->collate.to != PAD_TO_BUCKET;
}

/* Keys of batches that are mixed, where these are not. */
static bool spec_canon_is_unmixed(const struct dl_spec *spec, const struct spec_key *key)
{
    if (!spec_key_in(key, "collate"))
        return false;
    return (strcmp(key->key, "mixup") == 0 && spec->collate.mixup == 0) ||
           (strcmp(key->key, "cutmix") == 0 && spec->collate.cutmix == 0) ||
           (strcmp(key->key, "classes") == 0 && !spec->collate.classes);
}

/* Whether the key says anything about this spec. */
static bool spec_canon_present(const struct dl_spec *spec, const struct spec_key *key)
{
    if (key->type == KEY_NAME)
        return spec->name && !spec->label;
    if (key->type == KEY_LABEL)
        return spec->label;
    if (key->type == KEY_SEED && !key->section[0])
        return spec->has_seed;
    if (key->type == KEY_WEIGHTS)
        return spec->weights;
    if (key->type == KEY_BOOL && strcmp(key->key, "writable") == 0)
        return spec->has_writable;
    if (key->type == KEY_DTYPE && !spec_dtype_of(spec, key))
        return false; /* tokens of a .npy file, bytes that stay bytes */
    if (key->type == KEY_SIZE && !spec->dataset.image.height)
        return false;
    if (spec_canon_is_unmixed(spec, key))
        return false;
    if ((strcmp(key->key, "transforms") == 0 && spec->dataset.transforms.type == VALUE_NULL) ||
        (strcmp(key->key, "views") == 0 && spec->dataset.views.type == VALUE_NULL) ||
        (strcmp(key->key, "types") == 0 && spec->dataset.types.type == VALUE_NULL &&
         spec->dataset.kind != DATASET_CSV)) /* others have it since they read decimal numbers */
        return false;
    if ((key->type == KEY_LEAVES && !spec->collate.fields) ||
        (key->type == KEY_FIELDS && !spec->dataset.fields) ||
        (key->type == KEY_FEATURES && !spec_canon_has_features(spec, key)))
        return false;
    if (spec->dataset.kind == DATASET_PYTHON && spec_key_in(key, "dataset") &&
        ((key->type == KEY_CALLABLE && !spec->dataset.object) ||
         ((key->type == KEY_PATH || key->type == KEY_PATHS) && !spec_canon_path_of(spec, key)) ||
         (key->type == KEY_UINT && !spec->dataset.host)))
        return false;
    if (spec_is_other_field(key) && !spec_canon_field_of(&spec->dataset, key))
        return false;
    if (key->type == KEY_CALLABLE && spec_key_in(key, "collate") && !spec->collate.object)
        return false;
    if ((key->type == KEY_SHARES && spec->dataset.n_points != 1) ||
        (key->type == KEY_SCHEDULE && spec->dataset.n_points < 2) ||
        (strcmp(key->key, "global_batch") == 0 && !spec->dataset.global_batch))
        return false;
    if (key->type == KEY_UINT_OR_AUTO && spec_field_get(spec, key) == key->max)
        return false;
    if (key->type == KEY_LEAF && !spec->batch.length_of)
        return false;
    if (strcmp(key->key, "strategy") == 0 && !spec->batch.strategy)
        return false; /* packing is its own */
    if (strcmp(key->key, "lengths") == 0 && !spec->batch.lengths)
        return false;
    if (spec_canon_says_nothing_new(spec, key))
        return false;
    if (key->kinds && !(key->kinds & 1U << spec_section_kind(spec, key->section)))
        return false;
    return !spec_without_meaning(spec, key);
}

int spec_canon_write_dataset(const struct spec_dataset *dataset, struct value *v)
{
    const struct dl_spec spec = {.dataset = *dataset}; /* rows are of a spec; owns nothing */
    size_t n;
    const struct spec_key *keys = spec_keys(&n);

    for (size_t i = 0; i < n; i++) {
        struct value *item;
        if (!spec_key_in(&keys[i], "dataset") || !spec_canon_present(&spec, &keys[i]))
            continue;
        int r = value_set(v, keys[i].key, &item);
        if (r == 0)
            r = spec_canon_write(&spec, &keys[i], item);
        if (r < 0)
            return r;
    }
    return 0;
}

int spec_dataset_to_value(const struct spec_dataset *dataset, struct value *ret)
{
    _cleanup_(value_deinit) struct value v = {.type = VALUE_MAP};

    int r = spec_canon_write_dataset(dataset, &v);
    if (r < 0)
        return r;
    *ret = v;
    v = (struct value){0};
    return 0;
}

/* The section's map in `root`, made when it is not the last child already. */
static int spec_canon_open_section(struct value *root, const char *section, struct value **ret)
{
    if (root->count && strcmp(root->items[root->count - 1].key, section) == 0) {
        *ret = &root->items[root->count - 1];
        return 0;
    }
    return value_set(root, section, ret);
}

static int spec_canon_write_row(const struct dl_spec *spec, const struct spec_key *key,
                                struct value *root)
{
    struct value *map = root, *v;
    int r = 0;

    if (key->section[0])
        r = spec_canon_open_section(root, key->section, &map);
    if (r < 0)
        return r;
    r = value_set(map, key->key, &v);
    return r < 0 ? r : spec_canon_write(spec, key, v);
}

int spec_to_value(const struct dl_spec *spec, struct value *ret)
{
    _cleanup_(value_deinit) struct value root = {.type = VALUE_MAP};
    size_t n;
    const struct spec_key *keys = spec_keys(&n);

    for (size_t i = 0; i < n; i++) {
        int r =
            spec_canon_present(spec, &keys[i]) ? spec_canon_write_row(spec, &keys[i], &root) : 0;
        if (r < 0)
            return r;
    }
    *ret = root;
    root = (struct value){0};
    return 0;
}

/* A client's name, with how many others batches are shared, and tuning do not change which samples
 * come in which order. */
static bool spec_canon_decides_content(const struct spec_key *key)
{
    bool sampler_seed = key->type == KEY_SEED && !key->section[0];
    return key->type != KEY_NAME && key->type != KEY_LABEL && !sampler_seed &&
           strcmp(key->key, "replicas") != 0 && !spec_key_in(key, "workers") &&
           !spec_key_in(key, "memory") && !spec_key_in(key, "share");
}

struct dl_spec spec_common(const struct dl_spec *spec)
{
    struct dl_spec common = *spec;

    if (!spec->share_size)
        return common;
    common.batch_size = spec->share_size;
    common.share_size = 0;
    common.drop_last = false;
    return common;
}

int spec_fingerprint(const struct dl_spec *spec, uint64_t *ret)
{
    _cleanup_(value_deinit) struct value root = {.type = VALUE_MAP};
    _cleanup_(buffer_deinit) struct dl_buffer packed = {0};
    size_t n;
    const struct spec_key *keys = spec_keys(&n);

    for (size_t i = 0; i < n; i++) {
        if (!spec_canon_decides_content(&keys[i]) || !spec_canon_present(spec, &keys[i]))
            continue;
        int r = spec_canon_write_row(spec, &keys[i], &root);
        if (r < 0)
            return r;
    }
    int r = spec_to_former(&root);
    if (r == 0)
        r = value_pack(&root, &packed);
    if (r < 0)
        return r;
    *ret = XXH3_64bits(packed.data, packed.len);
    return 0;
}

static void spec_canon_tell_difference(const char *path, const struct value *have,
                                       const struct value *want, struct dl_error *err)
{
    char left[SPEC_SHOWN_MAX], right[SPEC_SHOWN_MAX];

    dl_error_set(err, EEXIST, path, "the open loader has %s, this spec asks for %s",
                 have ? spec_show(have, left) : "nothing",
                 want ? spec_show(want, right) : "nothing");
}

static bool spec_canon_differs(const char *path, const struct value *have, const struct value *want,
                               struct dl_error *err);

/* Their lengths, or the first item that differs: a whole list is too much to show. */
static bool spec_canon_lists_differ(const char *path, const struct value *have,
                                    const struct value *want, struct dl_error *err)
{
    char below[DL_ERROR_PATH_MAX];

    if (have->count != want->count) {
        dl_error_set(err, EEXIST, path,
                     "the open loader has a list of %" PRIu32
                     ", this spec asks for one of %" PRIu32,
                     have->count, want->count);
        return true;
    }
    for (uint32_t i = 0; i < have->count; i++) {
        if (value_equal(&have->items[i], &want->items[i]))
            continue;
        snprintf(below, sizeof below, "%s.%" PRIu32, path, i);
        if (spec_canon_differs(below, &have->items[i], &want->items[i], err))
            return true;
    }
    return false;
}

/* True when a difference was found and reported. A side that lacks the key is NULL. */
static bool spec_canon_differs(const char *path, const struct value *have, const struct value *want,
                               struct dl_error *err)
{
    char below[DL_ERROR_PATH_MAX];
    bool maps = have && want && have->type == VALUE_MAP && want->type == VALUE_MAP;

    if (strcmp(path, "seed") == 0)
        return false; /* spec_canon_seed_differs() */
    if ((strcmp(path, "memory.writable") == 0 || strcmp(path, "workers.helpers") == 0) &&
        (!have || !want))
        return false; /* as in the spec that opened it first */
    if (have && want && have->type == VALUE_ARRAY && want->type == VALUE_ARRAY)
        return spec_canon_lists_differ(path, have, want, err);
    if (!maps) {
        if (have && want && value_equal(have, want))
            return false;
        spec_canon_tell_difference(path, have, want, err);
        return true;
    }
    for (uint32_t i = 0; i < have->count; i++) {
        const struct value *item = &have->items[i];
        snprintf(below, sizeof below, "%s%s%s", path, path[0] ? "." : "", item->key);
        if (spec_canon_differs(below, item, value_get(want, item->key), err))
            return true;
    }
    for (uint32_t i = 0; i < want->count; i++) {
        const struct value *item = &want->items[i];
        snprintf(below, sizeof below, "%s%s%s", path, path[0] ? "." : "", item->key);
        if (!value_get(have, item->key) && spec_canon_differs(below, NULL, item, err))
            return true;
    }
    return false;
}

/* Only if the new spec sets a seed; the open loader's may have been drawn. */
static bool spec_canon_seed_differs(const struct dl_spec *have, const struct dl_spec *want,
                                    struct dl_error *err)
{
    if (!want->has_seed || have->seed == want->seed)
        return false;
    dl_error_set(err, EEXIST, "seed",
                 "the open loader has %" PRIu64 "%s, this spec asks for %" PRIu64, have->seed,
                 have->has_seed ? "" : ", which was drawn", want->seed);
    return true;
}

bool spec_differs(const struct dl_spec *have, const struct dl_spec *want, struct dl_error *err)
{
    _cleanup_(value_deinit) struct value left = {0};
    _cleanup_(value_deinit) struct value right = {0};

    struct dl_spec alike = *want;                   /* borrowed: all that it points to */
    if (have->workers_auto || want->workers_auto) { /* the first to open it decided */
        alike.workers = have->workers;
        alike.workers_auto = have->workers_auto;
    }
    if (spec_to_value(have, &left) < 0 || spec_to_value(&alike, &right) < 0) {
        /* Unknown is as good as different: the caller refuses to share, in these words. */
        dl_error_set(err, ENOMEM, "", "out of memory for comparing two loader specs");
        return true;
    }
    return spec_canon_differs("", &left, &right, err) || spec_canon_seed_differs(have, want, err);
}
