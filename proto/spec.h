/*
 * The loader spec: what a client opens. One mapping with the same keys in YAML, JSON, msgpack.
 *
 * spec_from_value() accepts exactly the keys of spec.def and refuses every other thing with path,
 * value and remedy: `batch.size: -3 is not a positive integer` (err->path "batch.size", the rest in
 * err->message). spec_to_value() gives the canonical form: defaults filled in, paths absolute, keys
 * in table order, files by field; two specs are the same loader when their canonical forms are
 * equal. Pure.
 */
#ifndef DL_SPEC_H
#define DL_SPEC_H

#include "proto/dtype.h"
#include "proto/mixture.h"
#include "proto/state_token.h"
#include "proto/value.h"

enum dataset_kind {
    DATASET_UNSET, /* 0 */
#define DATASET(NAME, ...) DATASET_##NAME,
#include "proto/kinds.def"
};
enum sample_index { INDEX_OFF = 1, INDEX_AUTO, INDEX_FILE };
enum megatron_view { MEGATRON_DOCUMENTS = 1, MEGATRON_SAMPLES };
enum token_widen { WIDEN_INT64 = 1, WIDEN_NONE };
enum batch_strategy {
    STRATEGY_SORTED = 1,
    STRATEGY_BUCKET,
    STRATEGY_SEQUENTIAL,
    STRATEGY_FIRST_FIT, /* of rows alone, as the next */
    STRATEGY_CUT
};
enum batch_balance { BALANCE_NONE = 1, BALANCE_TOKENS, BALANCE_COST };
enum overlong { OVERLONG_DROP = 1, OVERLONG_TRUNCATE, OVERLONG_ERROR, OVERLONG_SPLIT };
enum lengths_when { LENGTHS_LAZY = 1 }; /* 0: all are taken before the first step */
enum leftover { LEFTOVER_EMIT = 1, LEFTOVER_DROP, LEFTOVER_CARRY };
enum csv_separator { CSV_AUTO = 1, CSV_COMMA, CSV_SEMICOLON, CSV_TAB, CSV_PIPE };
enum text_format { TEXT_AUTO = 1, TEXT_LINES, TEXT_JSON };
enum tokenizer {
    TOKENIZER_NONE = 1,
    TOKENIZER_BYTES,
    TOKENIZER_SENTENCEPIECE,
    TOKENIZER_HUGGINGFACE
};
enum chat_template { CHAT_NONE = 1, CHAT_CHATML, CHAT_LLAMA3, CHAT_PLAIN, CHAT_JINJA, CHAT_JINJA2 };

static inline bool spec_chat_has_file(enum chat_template chat)
{
    return chat >= CHAT_JINJA;
}

enum chat_end { CHAT_END_TURN = 1, CHAT_END_PROMPT, CHAT_END_CONTINUE };
enum chat_loss { LOSS_ASSISTANT = 1, LOSS_LAST };
enum chat_cut { CUT_TOKENS = 1, CUT_OLDEST, CUT_NEWEST };
enum image_transform {
    TRANSFORM_NONE = 1,
    TRANSFORM_RESIZE,
    TRANSFORM_CENTER_CROP,
    TRANSFORM_RANDOM_CROP
};
enum image_layout { LAYOUT_HWC = 1, LAYOUT_CHW };
enum audio_channels { AUDIO_MONO = 1, AUDIO_KEEP };
enum audio_crop { AUDIO_CROP_RANDOM = 1, AUDIO_CROP_CENTER, AUDIO_CROP_START };
enum sampler_kind {
    SAMPLER_SEQUENTIAL = 1,
    SAMPLER_RANDOM,
    SAMPLER_SUBSET_RANDOM,
    SAMPLER_WEIGHTED,
    SAMPLER_INDICES,
    SAMPLER_CLIENT,
};
enum collate_kind {
    COLLATE_DEFAULT = 1,
    COLLATE_PAD,
    COLLATE_NONE,
    COLLATE_PLUGIN,
    COLLATE_PYTHON,
    COLLATE_PACK,
};
enum pad_side { PAD_RIGHT = 1, PAD_LEFT };
enum pad_to { PAD_TO_LONGEST = 1, PAD_TO_BUCKET };
enum sampler_order { ORDER_TORCH = 1, ORDER_NATIVE };
enum shard_mode { SHARD_STRIDED = 1, SHARD_BATCH, SHARD_SPLIT, SHARD_DISPATCH };
/* Ordered: up to raise, a bad sample fails its batch. */
enum on_error { ON_ERROR_RAISE = 1, ON_ERROR_SKIP, ON_ERROR_SUBSTITUTE };

struct spec_file {
    char *field; /* owned; NULL: the sample is this file's row itself, not a dict */
    char *path;  /* owned; absolute */
};

/* A field of a sample, and what it is called in the record it is made of. */
struct spec_field {
    char *name;   /* owned */
    char *source; /* owned */
};

/* How an image is processed on its way into the batch; see daemon/data/decode/image/image.h. */
struct spec_image {
    enum image_transform transform;
    enum image_layout layout;
    bool grey;       /* one channel, as PIL's mode L; else RGB */
    uint32_t height; /* of the result; 0 unless there is a transform */
    uint32_t width;
    uint32_t resize;  /* center_crop: what the shorter side becomes first; 0: by 256/224 */
    double flip;      /* probability of a mirror image, left to right; 0..1 */
    double scale[2];  /* random_crop: least and greatest share of the area */
    double aspect[2]; /* random_crop: least and greatest width / height */
};

/* How sound is processed; see daemon/data/decode/audio/audio.h. */
struct spec_audio {
    enum audio_channels channels;
    enum audio_crop crop; /* 0 unless there are frames */
    uint32_t rate;        /* frames a second; 0: its own */
    uint64_t frames;      /* of every sound; 0: its own */
};

#define SPEC_IDS_BYTES (UINT64_C(64) << 20) /* dataset.ids, where it is not said */

struct spec_dataset {
    enum dataset_kind kind;
    uint64_t length;         /* range; mix: of an epoch; 0 unless stop is never */
    struct spec_file *files; /* owned; idx, npy: 1..DL_MAX_DATASET_FILES, sorted by field: the order
                                of a map's keys is no matter; the others without field: records,
                                tokens, plugin, imagefolder, audiofolder (its directory) one; python
                                none, or its interpreter; text, tar, tfrecord, parquet, arrow, csv
                                1..DL_MAX_DATASET_PARTS in their order, which may be patterns;
                                megatron one, with or without .bin; mds, litdata one; lmdb its
                                directory or file; hdf5 one; files as text */
    uint32_t n_files;
    uint32_t dtype; /* records; tokens: 0 = that of the .npy file; kinds with sounds */
    uint32_t ndim;  /* records */
    uint64_t shape[8];
    uint64_t offset; /* records: bytes to skip at the start of the file */

    uint64_t sequence_length; /* tokens, megatron; litdata: 0: samples are items */
    uint64_t stride;          /* tokens between the starts of two windows */
    enum token_widen widen;   /* tokens */

    struct spec_dataset *datasets; /* owned; concat, chain: 1..DL_MAX_DATASET_PARTS; mix:
                                      1..DL_MAX_MIX_CHILDREN; subset, split: one */
    uint32_t n_datasets;
    enum mix_stop stop;       /* mix */
    enum mix_by by;           /* mix */
    enum mix_draw draw;       /* mix */
    uint32_t n_points;        /* mix: 1..DL_MAX_MIX_POINTS */
    struct mix_point *points; /* owned; mix */
    uint64_t global_batch; /* mix: samples in a step of the schedule; 0: the weights are constant */
    uint32_t n_indices;
    uint64_t *indices; /* owned; subset; else NULL */
    uint64_t *lengths; /* owned; split: of its parts; NULL: fractions */
    double *fractions; /* owned; split: each in [0, 1], about 1 in all; NULL: lengths */
    uint32_t n_parts;  /* split: 1..DL_MAX_DATASET_PARTS */
    uint32_t part;     /* split: below n_parts */
    uint64_t seed;     /* split */

    bool iterable; /* range: one after another instead of by index */
    bool divide;   /* iterable range, tar: ranks and workers share the samples; else each has all */

    enum text_format format; /* text; auto: by the file's name */
    /* text; of tar, mds, litdata, tfrecord, parquet, arrow, csv and lmdb: of one field. */
    enum tokenizer tokenizer;
    char *model;             /* owned; of the tokenizers sentencepiece and huggingface; else NULL */
    bool special_tokens;     /* text, huggingface: those that the file adds to a text */
    double mlm_probability;  /* the share of tokens that are masked; 0: masking is off */
    enum chat_template chat; /* CHAT_NONE: the field is text, else messages */
    char *chat_template;     /* owned; of chat: jinja, jinja2, the file; else NULL */
    struct value chat_args;  /* owned; likewise, variables by their names; or null */
    enum chat_end chat_end;
    enum chat_loss loss;
    enum chat_cut cut;     /* what goes if there are more tokens than max_length */
    char *prompt;          /* owned; a field with messages before those of `field`; may be NULL */
    char *tools;           /* owned; a field with the tools of a conversation; may be NULL */
    char *field;           /* owned; text: of a JSON line; NULL: format: lines; others: what
                              becomes tokens, with dots where it is inside another; NULL: nothing */
    char *second;          /* owned; another field to tokenize; may be NULL */
    uint64_t max_length;   /* tokens kept of a longer text; 0: all */
    uint64_t ids;          /* bytes of memory for what a tokenizer's file makes */
    struct value bos, eos; /* owned; likewise: tokens before and behind a sample's: the number of
                              one;   huggingface: or its text; null: none */

    struct spec_image image; /* imagefolder, tar */
    struct spec_audio audio; /* audiofolder; tar, parquet, arrow: if there are audios */
    struct value transforms; /* owned; imagefolder: a list; null: see image */
    struct value views;      /* owned; imagefolder: such lists, each in a map; null: one view */
    uint64_t shuffle; /* tar: samples in the buffer that the next is drawn from; 0: not shuffled */
    bool decode;      /* tar: members are decoded by their extension; else bytes */
    bool listed;      /* files: the files are text files of paths */
    uint32_t raw;     /* kinds of records, files: what bytes are numbers of; 0: they stay bytes */

    enum sample_index index;   /* tar: off: a stream; else samples have indices */
    char *index_path;          /* owned; tar: INDEX_FILE's; NULL: of no other */
    struct spec_field *fields; /* owned; kinds of records and text: those of the sample, sorted by
                                  name; NULL: all, as they are called */
    uint32_t n_fields;
    char **images; /* owned; tfrecord, parquet, arrow, lmdb: the sources that are pictures */
    uint32_t n_images;
    char **audios; /* owned; tar, parquet, arrow: the sources that are sounds */
    uint32_t n_audio;
    enum megatron_view view; /* megatron */
    struct value
        nulls; /* owned; parquet, arrow, csv: a number; null: they are errors of their samples */
    struct value filter; /* owned; parquet: a map; null: all rows */
    uint64_t shared; /* parquet: bytes of decoded rows shared by a user's workers; 0: not shared */
    uint64_t cache; /* parquet, arrow, hdf5: bytes of decoded rows that a worker keeps; imagefolder:
                       of pictures that are kept for all workers of the user, and python with
                       host, if it keeps them so; 0: none are */

    enum csv_separator separator; /* csv; auto: by the file's name */
    bool header;                  /* csv: the first row has the names */
    struct value types; /* owned; csv: a map of columns to types; null: as they are read. parquet,
                           arrow: likewise of decimal numbers */

    struct value prefix; /* owned; lmdb: a text that keys begin with; null: all do */

    struct value config; /* owned; plugin: what it is opened with, python: args; null: nothing */

    char *object;        /* owned; python: "module:name"; NULL: host */
    uint64_t host;       /* python: number of the client's host; 0: object */
    char *pictures_root; /* owned; python: the folder of pictures in cache, or a URL; may be NULL */
};

/*
 * Batches that are measured in tokens, not in samples; daemon/plan/plan.h has the rules. Only
 * `tokens` has a meaning where it is 0.
 */
struct spec_batch {
    uint64_t tokens;              /* maximum in a batch, padding included; 0: batch_size counts */
    enum batch_strategy strategy; /* 0: collate packs */
    enum batch_balance balance;   /* 0 without tokens */
    enum overlong overlong;
    enum leftover leftover;
    double cost[2];      /* balance cost: of a token, and of a pair of tokens of one sample */
    uint64_t accumulate; /* balance: steps that are balanced together; at least 1 */
    uint64_t overlap;    /* overlong split: tokens that a part has of the one before it */
    uint64_t max_length; /* tokens of a sample; 0 = null: as many as a batch can have */
    uint64_t interval;   /* bucket: width of a bucket in tokens */
    uint64_t window;     /* in batches of each rank; 0 = null: the whole epoch; see plan.h */
    enum lengths_when lengths;
    uint64_t documents; /* lengths lazy: samples of a window */
    char *length_of;    /* owned; the leaf whose first dimension is a sample's length, named as in
                           collate.fields; NULL: the first that has a dimension */
};

/* How samples become a batch; daemon/data/collate/collate.h has the rules. */
struct spec_collate {
    enum collate_kind kind;
    enum pad_side side;   /* pad: where the filling stands */
    enum pad_to to;       /* pad: target of the padding; 0 where there is a length */
    uint64_t length;      /* pad: the padded length; 0 = null: by `to`. pack: of a row */
    uint64_t multiple_of; /* pad: the padded length; at least 1, and 1 where there is a length */
    double value;         /* pad: the filling, rounded to the leaf's dtype */
    char **fields; /* owned; pad, pack: paths of the leaves in question; NULL: all that have a
                      dimension */
    uint32_t n_fields;
    char *path;          /* owned; plugin: absolute */
    struct value config; /* owned; plugin */
    char *object;        /* owned; python: "module:name"; NULL: default_collate, or the host's */
    double mixup;        /* default: alpha of MixUp; 0: it is not done */
    double cutmix;       /* default: alpha of CutMix */
    uint64_t classes;    /* of the labels that these mix; 0: not given */
};

struct dl_spec {
    char *name;  /* owned; never NULL: given, or the label, or "spec-" and the fingerprint */
    char *label; /* owned; may be NULL */
    struct spec_dataset dataset;
    uint64_t batch_size; /* 0 = null: each sample as it is; 1 with batch.tokens */
    struct spec_batch batch;
    uint64_t seed;         /* if has_seed */
    uint64_t timeout_ns;   /* of one task; 0: unlimited */
    uint64_t memory_limit; /* bytes of the loader's ring */
    enum sampler_kind sampler;
    enum sampler_order order; /* of a sampler that draws; 0: it does not */
    uint64_t num_samples;     /* random, weighted; 0 = null: as many as the dataset has */
    uint64_t block;           /* random; 0 = null: samples are shuffled over the whole epoch */
    uint64_t window;          /* random, with a block: blocks that are shuffled into each other */
    uint64_t *indices;        /* owned; subset_random, indices: not NULL, even when empty */
    double *weights; /* owned; weighted: finite, ≥ 0, with a finite sum above 0; NULL: all
                        samples have the same */
    uint32_t n_indices;
    uint32_t n_weights;
    struct spec_collate collate;
    enum shard_mode shard;
    uint32_t replicas;      /* ranks that read the same batches; at least 1 */
    uint64_t share_window;  /* steps that jobs may be apart to share batches; 0: they do not */
    uint64_t share_wait_ns; /* how long one may hold up the others, in an epoch */
    uint64_t share_size; /* samples in the batches that jobs share, of which this one's are parts;
                            0: they are its own */
    uint32_t workers;    /* 0: in the client's own process; at first, if workers_auto */
    uint32_t helpers;    /* workers on other machines besides, at most */
    uint32_t prefetch;
    uint32_t retries;
    enum on_error on_error;
    double max_bad;    /* without raise: samples, from 1 on; below 1: their share of the dataset */
    bool workers_auto; /* later as many as the daemon finds */
    bool drop_last;
    bool even;
    bool replacement; /* random, weighted */
    bool has_seed;
    bool writable;
    bool has_writable; /* the spec has memory.writable; else its client decides */
    bool pin;        /* the clients' own business: the daemon and its workers do nothing about it */
    bool in_order;   /* batches come in the order of their steps; else as they are ready */
    uint32_t bypass; /* how many of them may come before one that is not ready */
};

/*
 * The loader that the spec's job shares with jobs of other batch sizes (share.size): batches of all
 * are parts of its own, and each job leaves out its last one by itself. The spec itself where it
 * does not. Owns nothing: all that it points to is the spec's.
 */
struct dl_spec spec_common(const struct dl_spec *spec);

/* Workers that a loader begins with whose workers.count is auto. */
enum { SPEC_WORKERS_AT_FIRST = 2 };

void spec_deinit(struct dl_spec *spec);

/* Batches come in the order of their steps, whichever is ready. */
static inline bool spec_is_in_order(const struct dl_spec *spec)
{
    return spec->in_order && spec->bypass == 0;
}

/* Steps that may come before one that is not ready. */
static inline uint32_t spec_bypass(const struct dl_spec *spec)
{
    return spec->in_order ? spec->bypass : DL_BOUND_BYPASS;
}

/* Batches that are loaded ahead for a rank: `prefetch` for each of that many workers, the one that
 * is read, those that pass a slow one, and as many that its reader has once these are read. */
static inline uint32_t spec_credits(const struct dl_spec *spec, uint32_t prefetch, uint32_t workers)
{
    uint64_t credits = (uint64_t)prefetch * workers + 1 + 2 * (uint64_t)spec->bypass;

    return (uint32_t)min_u64(credits, DL_MAX_CREDITS);
}

/* Slots of each of `workers`, which together have room for a rank's batches; where these may
 * pass a slow one, also without its worker, which has two. */
static inline uint32_t spec_slots(const struct dl_spec *spec, uint32_t workers)
{
    uint32_t slow = spec->bypass > 0 && workers > 1;
    uint32_t of = workers - slow;

    return (spec_credits(spec, spec->prefetch, workers) - 2 * slow + of - 1) / of;
}

/* Samples that a batch has at most: each of a token batch has at least one token. */
static inline uint64_t spec_most_samples(const struct dl_spec *spec)
{
    return spec->batch.tokens ? spec->batch.tokens : max_u64(spec->batch_size, 1);
}

/*
 * Samples that one task of an iterable dataset requests: a rank's batch or, with shard.mode
 * dispatch, the batches of all ranks. spec_check_world() has checked that the batches can be split.
 */
static inline uint64_t spec_round_samples(const struct dl_spec *spec, uint64_t world)
{
    uint64_t size = max_u64(spec->batch_size, 1);

    if (spec->shard == SHARD_SPLIT)
        return size / world;
    return spec->shard == SHARD_DISPATCH ? size * world : size;
}

/* What the padded length of each batch is a multiple of, unless it is collate.length: multiple_of,
 * and with `to: bucket` the interval too. 1 where collate does not pad. */
static inline uint64_t spec_pad_multiple(const struct dl_spec *spec)
{
    uint64_t a = max_u64(spec->collate.multiple_of, 1), b = spec->batch.interval, least = a * b;

    if (spec->collate.kind != COLLATE_PAD)
        return 1;
    if (spec->collate.to != PAD_TO_BUCKET)
        return a;
    while (b > 0) { /* a becomes the greatest that divides both */
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return least / a;
}

/* Whether tokens can be stored as this: uint16, uint32, int32, int64. */
bool spec_token_dtype(uint32_t dtype);

/* The name used in error texts: the file, or the dataset's kind where there is no single file. */
const char *spec_dataset_label(const struct spec_dataset *dataset);

/* Datasets that are not of kind mix: all leaves of a mix, nested ones included; 1 for any other
 * dataset. spec_mixture_is_nested(): whether a mix lists another mix. */
uint32_t spec_mixture_leaves(const struct spec_dataset *dataset);
uint32_t spec_mixture_nodes(const struct spec_dataset *dataset); /* of a mix itself and all in it */
bool spec_mixture_is_nested(const struct spec_dataset *dataset);
/* Whether the weights of a mix in it follow a schedule. */
bool spec_mixture_has_inner_steps(const struct spec_dataset *dataset);

/* Whether the kind is known to be iterable. False of a plugin: only it knows, when it is open. */
bool spec_dataset_is_iterable(const struct spec_dataset *dataset);

/* Whether a file of it, or of a dataset that it lists, is behind a URL that is fetched. */
bool spec_is_remote(const struct spec_dataset *dataset);

/* `base`: absolute directory for relative paths; NULL: relative paths are refused. */
int _nodiscard_ spec_from_value(const struct value *v, const char *base, struct dl_spec *ret,
                                struct dl_error *err);

/*
 * What can only be known with the dataset: whether the sampler's indices, weights and number of
 * samples, and batch.tokens, fit its length. -EINVAL with path, value and remedy. The spec is
 * otherwise complete.
 */
int _nodiscard_ spec_check_length(const struct dl_spec *spec, uint64_t length,
                                  struct dl_error *err);

/* Checks that depend on the world size, ≥ 1: whether batches can be split or dispatched. -EINVAL
 * with path, value and remedy. */
int _nodiscard_ spec_check_world(const struct dl_spec *spec, uint64_t world, struct dl_error *err);

/* Whether the rest of an epoch can be planned after the steps of other world sizes. -EINVAL with
 * path, value and remedy. */
int _nodiscard_ spec_check_history(const struct dl_spec *spec, const struct history *before,
                                   struct dl_error *err);

/*
 * Refuses what an iterable dataset cannot have: samplers other than sequential, and batch.tokens.
 * spec_from_value() calls it where the spec says that the dataset is iterable; call it again when a
 * plugin turns out to be iterable. -EINVAL with path, value and remedy.
 */
int _nodiscard_ spec_check_iterable(const struct dl_spec *spec, struct dl_error *err);

/*
 * How many different samples may be bad before it is an error: max_bad, of a dataset of `length`
 * samples, UINT64_MAX where that is not known. 0 with on_error raise.
 */
uint64_t spec_max_bad(const struct dl_spec *spec, uint64_t length);

/* Whether max_bad makes sense for a dataset of that length. -EINVAL with path, value and remedy. */
int _nodiscard_ spec_check_share(const struct dl_spec *spec, uint64_t length, struct dl_error *err);

/* Canonical form; the seed is in it only if has_seed. -ENOMEM. */
int _nodiscard_ spec_to_value(const struct dl_spec *spec, struct value *ret);

/* The same for a dataset: the map below `dataset`. -ENOMEM. */
int _nodiscard_ spec_dataset_to_value(const struct spec_dataset *dataset, struct value *ret);

/*
 * Renames keys of datasets, in a spec or a dataset as a value of any shape: to the last release's
 * names, for fingerprints; and from them, for a spec written by a program of the last release.
 * -ENOMEM.
 */
int _nodiscard_ spec_to_former(struct value *v);
int _nodiscard_ spec_from_former(struct value *v);

/* The folder, or first file, of which workers keep what they decode in memory that they share, and
 * how many bytes it may take; 0: none. */
static inline const char *spec_kept(const struct spec_dataset *dataset, uint64_t *ret_bytes)
{
    bool groups = dataset->kind == DATASET_PARQUET;
    const char *root = groups || dataset->kind == DATASET_IMAGEFOLDER ? dataset->files[0].path
                       : dataset->kind == DATASET_PYTHON              ? dataset->pictures_root
                                                                      : NULL;

    *ret_bytes = !root ? 0 : groups ? dataset->shared : dataset->cache;
    return root;
}

/* The file that has what a client's own host would run, for other machines (daemon/helper/sent.h);
 * NULL: none. Its steps are seeded by themselves, so that any worker may make any, unless
 * spec_carries_state(). */
static inline const char *spec_sent(const struct dl_spec *spec)
{
    const struct spec_dataset *dataset = &spec->dataset;
    const struct value *sent =
        dataset->kind == DATASET_PYTHON && dataset->host && dataset->config.type == VALUE_MAP
            ? value_get(&dataset->config, "sent")
            : NULL;

    return sent && sent->type == VALUE_STRING ? sent->string : NULL;
}

/* Its dataset has a state, which changes from step to step and from epoch to epoch: each worker
 * makes its share of the steps in turn, and one that takes another's place begins with the state
 * behind the last one. */
static inline bool spec_carries_state(const struct dl_spec *spec)
{
    return spec_sent(spec) && value_get(&spec->dataset.config, "carries") != NULL;
}

/* XXH3-64 of the packed canonical form without `name`, `seed`, `workers` and `memory`: what
 * decides which samples come in which order. */
int _nodiscard_ spec_fingerprint(const struct dl_spec *spec, uint64_t *ret);

/*
 * By what a state (state_token.h) knows the spec: XXH3-64 of each of its sections, packed, without
 * paths, which say where the data lies and not what it is, and without dataset.host. -ENOMEM.
 */
int _nodiscard_ spec_parts(const struct dl_spec *spec, uint64_t ret[static STATE_PARTS]);
enum state_order spec_state_order(const struct dl_spec *spec);

/*
 * The first key whose canonical values differ ("batch.size") as err->path, with both values in the
 * message and code EEXIST; false when equal. A spec without a seed accepts the seed of `have`,
 * which may have been drawn. Also true, with code ENOMEM, when memory is too short to compare.
 */
bool spec_differs(const struct dl_spec *have, const struct dl_spec *want, struct dl_error *err);

const char *dataset_kind_name(enum dataset_kind kind);
/* "package.module:Class.method": both parts are present and made of valid names. */
bool spec_is_callable(const char *text);
const char *sampler_kind_name(enum sampler_kind kind);

/*
 * Durations ("30s", "1.5min", "500ms", "30" = seconds, "0" = unlimited) and sizes ("256MiB",
 * "4096") as users write them. 0, -EINVAL, or -ERANGE when it does not fit 64 bits.
 */
int _nodiscard_ parse_duration(const char *text, uint64_t *ret_ns);
int _nodiscard_ parse_bytes(const char *text, uint64_t *ret);

/* What to write in a spec for PyTorch's word; NULL if unknown. */
const char *dl_spec_word(const char *theirs);

#endif
