/* The rows of spec.def, look-ups in them, and the words that messages are made of. */
#include "proto/spec_table.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define MAX(name)      DL_BOUND_##name
#define KIND(name)     (1U << DATASET_##name)
#define SAMPLER(name)  (1U << SAMPLER_##name)
#define COLLATE(name)  (1U << COLLATE_##name)
#define STRATEGY(name) (1U << STRATEGY_##name)
#define ONE_PATH                                                                                   \
    (KIND(RECORDS) | KIND(TOKENS) | KIND(MEGATRON) | KIND(LMDB) | KIND(HDF5) | KIND(IMAGEFOLDER) | \
     KIND(AUDIOFOLDER) | KIND(MDS) | KIND(LITDATA) | KIND(PYTHON))
#define PATH_BY_FIELD (KIND(IDX) | KIND(NPY))
#define SEVERAL_PATHS                                                                    \
    (KIND(TEXT) | KIND(TFRECORD) | KIND(PARQUET) | KIND(ARROW) | KIND(CSV) | KIND(TAR) | \
     KIND(FILES))
#define RECORDS                                                                          \
    (KIND(TAR) | KIND(MDS) | KIND(TFRECORD) | KIND(PARQUET) | KIND(ARROW) | KIND(LMDB) | \
     KIND(LITDATA))
#define DECODED     (RECORDS | KIND(FILES)) /* as their format says, or bytes */
#define IMAGES      (KIND(IMAGEFOLDER) | DECODED)
#define TOKENIZED   (RECORDS | KIND(CSV)) /* a field of the sample may become tokens */
#define TEXTS       (KIND(TEXT) | TOKENIZED)
#define SOUNDS      (KIND(TAR) | KIND(PARQUET) | KIND(ARROW))
#define AUDIO       (KIND(AUDIOFOLDER) | SOUNDS)
#define BIT(number) (1U << (number))
#define TOKENIZERS \
    (BIT(TOKENIZER_BYTES) | BIT(TOKENIZER_SENTENCEPIECE) | BIT(TOKENIZER_HUGGINGFACE))
#define NOT_A_FILE(key) \
    "only applies to a tokenizer.json; write tokenizer: huggingface, or leave " key " out"
#define WITH_INDEX                                                                           \
    "only applies to a stream; with an index, sampler and shard say who gets which sample: " \
    "leave out one of them"
#define NOT_DECODED                                                              \
    "has no effect with decode: false, which leaves images as they are stored; " \
    "leave out one of them"
#define NO_SOUNDS                                                                           \
    "only applies to sounds; write audio: [source, ...] to say which fields are, or leave " \
    "this out"
#define JINJAS (BIT(CHAT_JINJA) | BIT(CHAT_JINJA2))
#define CHATS  (BIT(CHAT_CHATML) | BIT(CHAT_LLAMA3) | BIT(CHAT_PLAIN) | JINJAS)
#define NOT_A_CHAT(key) \
    "only applies to conversations; write chat: jinja or another template, or leave " key " out"
#define NOT_JINJA(key) \
    "only applies to a model's own template; write chat: jinja, or leave " key " out"
#define NO_TOKENS                                                                                \
    "is a token, but tokenizer: none makes no tokens; write tokenizer: bytes, sentencepiece or " \
    "huggingface, or leave this out"
#define WITHOUT_TOKENS                                               \
    "only applies to batches measured in tokens; add batch.tokens, " \
    "or leave this out"
#define BESIDE_LENGTH                                         \
    "has no effect with length, which is the padded length; " \
    "leave out one of them"
#define PACKS          (s->collate.kind == COLLATE_PACK)
#define HAS_BUCKETS    (s->batch.strategy == STRATEGY_BUCKET)
#define CUTS           (s->batch.tokens && s->batch.strategy == STRATEGY_CUT)
#define BALANCES       (s->batch.tokens && s->batch.balance > BALANCE_NONE)
#define LAZY           (s->batch.tokens && s->batch.lengths == LENGTHS_LAZY)
#define CARRIES        (s->batch.tokens && s->batch.leftover == LEFTOVER_CARRY)
#define MIXES          (s->dataset.kind == DATASET_MIX)
#define MIXED          (s->collate.mixup > 0 || s->collate.cutmix > 0)
#define WEIGHTED_TORCH (s->sampler == SAMPLER_WEIGHTED && s->order == ORDER_TORCH)
#define NOT_ALL_EPOCHS_ALIKE(other)                                                              \
    "needs epochs of the same samples, each once, which " other " does not have; write emit or " \
    "drop"
#define ANY_KIND      0
#define FIELD(member) offsetof(struct dl_spec, member), sizeof(((struct dl_spec *)NULL)->member)
#define NO_FIELD      0, 0

static const struct spec_key spec_key_list[] = {
/* Two steps, so that FIELD() is two arguments by the time the row is made. */
#define ROW(section, key, type, offset, size, kinds, min, max, fallback, values, meaning) \
    {section, key, KEY_##type, offset, size, kinds, min, max, fallback, values, meaning},
#define KEY(section, key, type, ...) ROW(section, key, type, __VA_ARGS__)
#include "proto/spec.def"
};

struct choice {
    const char *section;
    const char *key;
    const char *name;
    int number;
};

static const struct choice spec_choices[] = {
#define CHOICE(section, key, name, number) {section, key, name, number},
#include "proto/spec.def"
};

static const struct {
    const char *section;
    const char *key;
    const char *value;
    const char *remedy;
} spec_notes[] = {
#define NOTE(section, key, value, remedy) {section, key, value, remedy},
#include "proto/spec.def"
};

static const struct {
    const char *section;
    const char *key;
    const char *other;
    const char *words;
    uint32_t kinds;
    uint32_t numbers;
} spec_onlys[] = {
#define ONLY(section, key, kinds, other, numbers, words) \
    {section, key, other, words, kinds, numbers},
#include "proto/spec.def"
};

static const struct {
    const char *section;
    const char *key;
    uint32_t kinds;
    const char *fallback;
} spec_fallbacks[] = {
#define FALLBACK(section, key, kinds, fallback) {section, key, kinds, fallback},
#include "proto/spec.def"
};

struct pair {
    const char *first;
    const char *second;
};

static const struct pair spec_later[] = {
#define LATER(section, key) {section, key},
#include "proto/spec.def"
};

static const struct pair spec_words[] = {
#define WORD(theirs, ours) {theirs, ours},
#include "proto/spec.def"
};

static const struct {
    const char *key;
    const char *former;
    uint32_t kinds;
} spec_formers[] = {
#define FORMER(key, former, kinds) {key, former, kinds},
#include "proto/spec.def"
};

const struct spec_key *spec_keys(size_t *ret_count)
{
    *ret_count = ARRAY_SIZE(spec_key_list);
    return spec_key_list;
}

const struct spec_key *spec_key_find(const char *section, const char *key)
{
    for (size_t i = 0; i < ARRAY_SIZE(spec_key_list); i++)
        if (strcmp(spec_key_list[i].section, section) == 0 &&
            strcmp(spec_key_list[i].key, key) == 0)
            return &spec_key_list[i];
    return NULL;
}

bool spec_section_exists(const char *section)
{
    for (size_t i = 0; i < ARRAY_SIZE(spec_key_list); i++)
        if (spec_key_list[i].section[0] && strcmp(spec_key_list[i].section, section) == 0)
            return true;
    return false;
}

bool spec_key_is_later(const char *section, const char *key)
{
    for (size_t i = 0; i < ARRAY_SIZE(spec_later); i++)
        if (strcmp(spec_later[i].first, section) == 0 && strcmp(spec_later[i].second, key) == 0)
            return true;
    return false;
}

uint32_t spec_section_kind(const struct dl_spec *spec, const char *section)
{
    if (strcmp(section, "dataset") == 0)
        return spec->dataset.kind;
    if (strcmp(section, "collate") == 0)
        return spec->collate.kind;
    if (strcmp(section, "batch") == 0)
        return spec->batch.strategy;
    return strcmp(section, "sampler") == 0 ? spec->sampler : 0;
}

const char *spec_without_meaning(const struct dl_spec *spec, const struct spec_key *key)
{
    uint32_t kind = spec_section_kind(spec, key->section);

    for (size_t i = 0; i < ARRAY_SIZE(spec_onlys); i++) {
        if (strcmp(spec_onlys[i].section, key->section) != 0 ||
            strcmp(spec_onlys[i].key, key->key) != 0 ||
            (spec_onlys[i].kinds && !(spec_onlys[i].kinds & 1U << kind)))
            continue;
        const struct spec_key *other = spec_key_find(spec_onlys[i].section, spec_onlys[i].other);
        /* 31 stands for any number too large to have a bit. */
        uint64_t number = min_u64(spec_field_get(spec, other), 31);
        if (!(spec_onlys[i].numbers & 1U << number))
            return spec_onlys[i].words;
    }
    return NULL;
}

/* What the row's field has, as a user would write it. */
static const char *spec_table_show_field(const struct dl_spec *spec, const struct spec_key *key,
                                         char ret[static SPEC_SHOWN_MAX])
{
    uint64_t number = spec_field_get(spec, key);

    if (key->type == KEY_CHOICE)
        snprintf(ret, SPEC_SHOWN_MAX, "\"%s\"", spec_choice_name(key, (uint32_t)number));
    else if (key->type == KEY_BOOL)
        snprintf(ret, SPEC_SHOWN_MAX, "%s", number ? "true" : "false");
    else if (key->type == KEY_UINT_OR_NULL && number == 0)
        snprintf(ret, SPEC_SHOWN_MAX, "null");
    else
        snprintf(ret, SPEC_SHOWN_MAX, "%" PRIu64, number);
    return ret;
}

static int spec_table_refuse_together(const struct dl_spec *spec, const char *section,
                                      const char *key, const char *why, struct dl_error *err)
{
    const struct spec_key *row = spec_key_find(section, key);
    char place[SPEC_PATH_MAX], shown[SPEC_SHOWN_MAX];

    spec_key_path(row, place);
    return dl_error_set(err, EINVAL, place, "%s %s", spec_table_show_field(spec, row, shown), why);
}

int spec_check_together(const struct dl_spec *s, struct dl_error *err)
{
#define REFUSE(section, key, when, spec_words) \
    if (when)                                  \
        return spec_table_refuse_together(s, section, key, spec_words, err);
#include "proto/spec.def"
    return 0;
}

const char *spec_fallback(const struct dl_spec *spec, const struct spec_key *key)
{
    uint32_t kind = spec_section_kind(spec, key->section);

    for (size_t i = 0; i < ARRAY_SIZE(spec_fallbacks); i++)
        if (strcmp(spec_fallbacks[i].section, key->section) == 0 &&
            strcmp(spec_fallbacks[i].key, key->key) == 0 && spec_fallbacks[i].kinds & 1U << kind)
            return spec_fallbacks[i].fallback;
    return key->fallback;
}

const char *spec_note(const struct spec_key *key, const char *shown)
{
    for (size_t i = 0; i < ARRAY_SIZE(spec_notes); i++)
        if (strcmp(spec_notes[i].section, key->section) == 0 &&
            strcmp(spec_notes[i].key, key->key) == 0 &&
            (strcmp(spec_notes[i].value, shown) == 0 || strcmp(spec_notes[i].value, "<") == 0))
            return spec_notes[i].remedy;
    return NULL;
}

const char *dl_spec_word(const char *theirs)
{
    for (size_t i = 0; i < ARRAY_SIZE(spec_words); i++)
        if (strcmp(spec_words[i].first, theirs) == 0)
            return spec_words[i].second;
    return NULL;
}

const char *spec_former_name(uint32_t kind, const char *key)
{
    for (size_t i = 0; i < ARRAY_SIZE(spec_formers); i++)
        if (strcmp(spec_formers[i].key, key) == 0 && spec_formers[i].kinds & 1U << kind)
            return spec_formers[i].former;
    return NULL;
}

const struct spec_key *spec_key_meant(const char *section, const char *former)
{
    for (size_t i = 0; strcmp(section, "dataset") == 0 && i < ARRAY_SIZE(spec_formers); i++)
        if (strcmp(spec_formers[i].former, former) == 0)
            return spec_key_find(section, spec_formers[i].key);
    return NULL;
}

enum spec_paths spec_paths_of(enum dataset_kind kind)
{
    uint32_t bit = 1U << kind;

    return bit & SEVERAL_PATHS ? PATHS_MANY : bit & PATH_BY_FIELD ? PATHS_BY_FIELD : PATHS_ONE;
}

static bool spec_table_choice_of(const struct choice *choice, const struct spec_key *key)
{
    return strcmp(choice->section, key->section) == 0 && strcmp(choice->key, key->key) == 0;
}

int spec_choice_number(const struct spec_key *key, const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(spec_choices); i++)
        if (spec_table_choice_of(&spec_choices[i], key) && strcmp(spec_choices[i].name, name) == 0)
            return spec_choices[i].number;
    return -1;
}

const char *spec_choice_name(const struct spec_key *key, uint32_t number)
{
    for (size_t i = 0; number && i < ARRAY_SIZE(spec_choices); i++)
        if (spec_table_choice_of(&spec_choices[i], key) &&
            (uint32_t)spec_choices[i].number == number)
            return spec_choices[i].name;
    return "?";
}

void spec_list_keys(const char *section, uint32_t kind, struct word_list *list)
{
    const char *last = "";

    for (size_t i = 0; i < ARRAY_SIZE(spec_key_list); i++) {
        const struct spec_key *key = &spec_key_list[i];
        if (section[0] == '\0' && key->section[0]) {
            if (strcmp(last, key->section) != 0)
                word_list_add(list, key->section);
            last = key->section;
        } else if (strcmp(key->section, section) == 0 &&
                   (!key->kinds || !kind || key->kinds & 1U << kind)) {
            word_list_add(list, key->key);
        }
    }
}

static void spec_table_add_place(char *ret, size_t size, const char *section, const char *key)
{
    size_t used = strlen(ret);

    snprintf(ret + used, size - used, "%s%s%s%s", used ? " or " : "", section, *section ? "." : "",
             key);
}

void spec_list_places(const char *section, const char *key, char *ret, size_t size)
{
    *ret = '\0';
    if (section[0] && spec_section_exists(key))
        spec_table_add_place(ret, size, "", key);
    for (size_t i = 0; i < ARRAY_SIZE(spec_key_list); i++)
        if (strcmp(spec_key_list[i].key, key) == 0 &&
            strcmp(spec_key_list[i].section, section) != 0)
            spec_table_add_place(ret, size, spec_key_list[i].section, key);
}

void spec_list_choices(const struct spec_key *key, struct word_list *list)
{
    for (size_t i = 0; i < ARRAY_SIZE(spec_choices); i++)
        if (spec_choices[i].number && spec_table_choice_of(&spec_choices[i], key))
            word_list_add(list, spec_choices[i].name);
}

void spec_key_path(const struct spec_key *key, char ret[static SPEC_PATH_MAX])
{
    snprintf(ret, SPEC_PATH_MAX, "%s%s%s", key->section, key->section[0] ? "." : "", key->key);
}

void spec_place_below(const char *above, const char *key, char ret[static DL_ERROR_PATH_MAX])
{
    snprintf(ret, DL_ERROR_PATH_MAX, "%s.%s", above, key);
}

void spec_place_item(const char *above, uint32_t i, char ret[static DL_ERROR_PATH_MAX])
{
    snprintf(ret, DL_ERROR_PATH_MAX, "%s.%" PRIu32, above, i);
}

uint64_t spec_field_get(const struct dl_spec *spec, const struct spec_key *key)
{
    const char *field = (const char *)spec + key->offset;
    uint64_t wide;
    uint32_t narrow;

    switch (key->size) {
    case sizeof wide:
        memcpy(&wide, field, sizeof wide);
        return wide;
    case sizeof narrow:
        memcpy(&narrow, field, sizeof narrow);
        return narrow;
    default:
        assert(key->size == sizeof(bool));
        return *(const bool *)field;
    }
}

void spec_field_set(struct dl_spec *spec, const struct spec_key *key, uint64_t n)
{
    char *field = (char *)spec + key->offset;
    uint32_t narrow = (uint32_t)n;

    switch (key->size) {
    case sizeof n:
        memcpy(field, &n, sizeof n);
        break;
    case sizeof narrow:
        assert(n <= UINT32_MAX);
        memcpy(field, &narrow, sizeof narrow);
        break;
    default:
        assert(key->size == sizeof(bool) && n <= 1);
        *(bool *)field = n;
    }
}

/* A float always shows as one: 5 would be an integer. */
static void spec_table_show_float(double number, char *ret, size_t size)
{
    for (int digits = 6; digits <= 17; digits += 11) {
        snprintf(ret, size, "%.*g", digits, number);
        if (strtod(ret, NULL) == number)
            break;
    }
    if (!strpbrk(ret, ".eni"))
        strncat(ret, ".0", size - strlen(ret) - 1);
}

const char *spec_quote_hint(const struct value *v)
{
    bool scalar = v->type != VALUE_STRING && v->type != VALUE_ARRAY && v->type != VALUE_MAP;
    return scalar ? "; put it in quotes" : "";
}

const char *spec_show(const struct value *v, char ret[static SPEC_SHOWN_MAX])
{
    switch (v->type) {
    case VALUE_BOOL:
        return v->boolean ? "true" : "false";
    case VALUE_INT:
        snprintf(ret, SPEC_SHOWN_MAX, "%" PRId64, v->integer);
        return ret;
    case VALUE_UINT:
        snprintf(ret, SPEC_SHOWN_MAX, "%" PRIu64, v->uinteger);
        return ret;
    case VALUE_FLOAT:
        spec_table_show_float(v->number, ret, SPEC_SHOWN_MAX);
        return ret;
    case VALUE_STRING:
        /* Quotes, dots and the NUL have room. */
        if (strlen(v->string) <= SPEC_SHOWN_MAX - 3)
            snprintf(ret, SPEC_SHOWN_MAX, "\"%s\"", v->string);
        else
            snprintf(ret, SPEC_SHOWN_MAX, "\"%.*s...\"", SPEC_SHOWN_MAX - 6, v->string);
        return ret;
    default:
        return value_type_name(v);
    }
}
