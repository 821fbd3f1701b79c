#include "daemon/data/kinds/tokenized.h"

#include "daemon/data/collate/collate_batch.h"
#include "daemon/data/decode/tokenizer/token_leaves.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

struct tokenized {
    struct dataset base;
    struct dataset *inner;       /* owned */
    struct token_leaves *leaves; /* owned */
    char *field;                 /* owned */
    const char *key;             /* of the spec, which names it: "field", or "second" */
    char *path;                  /* owned; for errors */
    char *prompt, *tools;        /* owned; fields of a conversation; may be NULL */
    const char *name;            /* borrowed; of the leaf of `second`; else NULL */
    bool drops;                  /* those fields are left out: no other needs them */
    struct sample sample;        /* owned; the reader's, on its way */
};

struct tokenized_iter {
    struct dataset_iter base;
    struct tokenized *tokenized; /* borrowed */
    struct dataset_iter *inner;  /* owned */
    struct sample_key key;       /* of this replica */
    uint64_t next;               /* the number of its next sample, good or bad */
};

/* One sample in the making. */
struct tokenized_making {
    struct tokenized *tokenized;
    const struct sample_key *key;
    uint64_t index;
    uint32_t found; /* the field's node */
    struct sample *ret;
    struct dl_error *err;
};

/* ---- the field ------------------------------------------------------------------------------ */

static int tokenized_refuse(const struct tokenized_making *m, int code, const char *what)
{
    const struct tokenized *t = m->tokenized;

    return dl_error_set(m->err, code, t->path, "sample %llu: its field %s %s", (ull)m->index,
                        t->field, what);
}

/* Reports the result of token_leaves.h. */
static int tokenized_tell(const struct tokenized_making *m, int r, const char *why)
{
    char what[TOKEN_WHY_MAX + 128];

    if (r >= 0 || m->ret->error)
        return r;
    if (r == -ENOMEM)
        return dl_error_set(m->err, ENOMEM, m->tokenized->path, "out of memory for a sample");
    if (r == -EILSEQ)
        return tokenized_refuse(m, EILSEQ,
                                "is not UTF-8; write it so, or take its bytes with tokenizer: "
                                "bytes");
    if (r == -EINVAL && token_leaves_has_chat(m->tokenized->leaves))
        snprintf(what, sizeof what,
                 "is not a conversation: %s; each message is {\"role\": ..., \"content\": ...}",
                 why);
    else
        snprintf(what, sizeof what, "cannot be made into tokens (%s); cut it into shorter ones",
                 why);
    return tokenized_refuse(m, -r, what);
}

/* A number of no dimension; anything else is null, which no template has a use for. */
static json_t *tokenized_number_of(const struct tree_node *node, const uint8_t *data)
{
    float single;
    double real;
    int64_t integer = 0;

    if (node->ndim > 0)
        return json_null();
    switch (node->dtype) {
    case DL_DTYPE_BOOL:
        return json_boolean(data[0] != 0);
    case DL_DTYPE_INT32: {
        int32_t small;
        memcpy(&small, data, sizeof small);
        return json_integer(small);
    }
    case DL_DTYPE_INT64:
        memcpy(&integer, data, sizeof integer);
        return json_integer(integer);
    case DL_DTYPE_FLOAT32:
        memcpy(&single, data, sizeof single);
        return json_real((double)single);
    case DL_DTYPE_FLOAT64:
        memcpy(&real, data, sizeof real);
        return json_real(real);
    default:
        return json_null();
    }
}

static json_t *tokenized_json_of(const struct sample *sample, uint32_t i);

/* The children of a node, as items of `ret`. */
static int tokenized_fill_json(const struct sample *sample, uint32_t i, json_t *ret)
{
    const struct tree *tree = &sample->tree;
    uint32_t child = i + 1;
    int r = ret ? 0 : -1;

    for (uint32_t k = 0; r == 0 && k < tree->nodes[i].children; k++) {
        const struct tree_node *node = &tree->nodes[child];
        const char *name = node->key_len > 0 ? tree->keys + node->key_off : "";
        json_t *value = tokenized_json_of(sample, child);
        r = json_is_array(ret) ? json_array_append_new(ret, value)
                               : json_object_setn_new_nocheck(ret, name, node->key_len, value);
        child = collate_skip(tree, child);
    }
    return r;
}

/* A part of the sample as JSON; as deep as the sample, which is bounded. NULL: out of memory, or
 * not UTF-8. */
static json_t *tokenized_json_of(const struct sample *sample, uint32_t i)
{
    const struct tree_node *node = &sample->tree.nodes[i];
    json_t *ret;

    if (node->kind == TREE_STRING || node->kind == TREE_BYTES)
        return json_stringn(node->nbytes > 0 ? sample->data[i] : "", node->nbytes);
    if (node->kind == TREE_TENSOR)
        return tokenized_number_of(node, sample->data[i]);
    if (node->kind != TREE_LIST && node->kind != TREE_TUPLE && node->kind != TREE_DICT)
        return json_null();
    ret = node->kind == TREE_DICT ? json_object() : json_array();
    if (tokenized_fill_json(sample, i, ret) == 0)
        return ret;
    json_decref(ret);
    return NULL;
}

static bool tokenized_is_empty(const json_t *value)
{
    return json_is_string(value) ? json_string_length(value) == 0
                                 : json_is_array(value) && json_array_size(value) == 0;
}

/* Columns have each field in all messages, and in all parts of contents: what is null there is
 * empty here, and counts as absent. `own`: the field of an object that may be empty. */
static void tokenized_drop_empty(json_t *list, const char *own)
{
    const char *key;
    json_t *value;
    void *next;

    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *object = json_array_get(list, i);
        const char *type = json_string_value(json_object_get(object, "type"));
        json_object_foreach_safe(object, next, key, value)
        {
            bool kept = own ? strcmp(key, own) == 0 || strcmp(key, "role") == 0
                            : type && strcmp(key, type) == 0; /* a part of type text has a text */
            if (!kept && tokenized_is_empty(value))
                (void)json_object_del(object, key);
        }
        if (own)
            tokenized_drop_empty(json_object_get(object, own), NULL);
    }
}

/* The same of messages or tools, which may be JSON in a text, but where texts are messages. */
static json_t *tokenized_messages_of(const struct tokenized *t, uint32_t i)
{
    json_t *ret = tokenized_json_of(&t->sample, i), *parsed;

    tokenized_drop_empty(ret, "content");
    if (!json_is_string(ret))
        return ret;
    parsed = json_loadb(json_string_value(ret), json_string_length(ret), JSON_ALLOW_NUL, NULL);
    if (!json_is_array(parsed) && t->prompt) {
        json_decref(parsed);
        return ret;
    }
    json_decref(ret);
    return parsed ? parsed : json_null(); /* not a list, which is reported */
}

/* A field that belongs to the conversation; `name` NULL: *ret is NULL, too. */
static int tokenized_take(const struct tokenized_making *m, const char *key, const char *name,
                          json_t **ret)
{
    uint32_t i;

    *ret = NULL;
    if (!name)
        return 0;
    if (!collate_find(&m->tokenized->sample.tree, 0, name, &i))
        return dl_error_set(m->err, EINVAL, m->tokenized->path,
                            "sample %llu: its field %s is missing; set dataset.%s", (ull)m->index,
                            name, key);
    *ret = tokenized_messages_of(m->tokenized, i);
    return *ret ? 0
                : tokenized_refuse(m, EILSEQ,
                                   "has a message that is not UTF-8, or there is no memory");
}

static int tokenized_add_chat(const struct tokenized_making *m, uint32_t i)
{
    const struct tokenized *t = m->tokenized;
    char why[TOKEN_WHY_MAX] = "";
    json_t *messages = tokenized_messages_of(t, i), *prompt = NULL, *tools = NULL;
    int r = messages ? 0
                     : tokenized_refuse(m, EILSEQ,
                                        "has a message that is not UTF-8, or there is no memory");

    if (r == 0 && (r = tokenized_take(m, "prompt", t->prompt, &prompt)) == 0 &&
        (r = tokenized_take(m, "tools", t->tools, &tools)) == 0) {
        const struct chat_talk talk = {.messages = messages, .prompt = prompt, .tools = tools};
        r = tokenized_tell(m, token_leaves_chat(t->leaves, &talk, t->name, m->ret, why), why);
    }
    json_decref(messages);
    json_decref(prompt);
    json_decref(tools);
    return r;
}

static int tokenized_add_text(const struct tokenized_making *m, uint32_t i)
{
    const struct sample *sample = &m->tokenized->sample;
    const struct tree_node *node = &sample->tree.nodes[i];
    char why[TOKEN_WHY_MAX] = "", what[COLLATE_WORDS], words[2 * COLLATE_WORDS];

    if (node->kind != TREE_STRING && node->kind != TREE_BYTES) {
        snprintf(words, sizeof words, "is %s, not text; set dataset.%s",
                 collate_say_node(node, what, sizeof what), m->tokenized->key);
        return tokenized_refuse(m, EINVAL, words);
    }
    int r = token_leaves_text(m->tokenized->leaves, m->key, m->index,
                              node->nbytes > 0 ? sample->data[i] : "", node->nbytes, m->ret, why);
    return tokenized_tell(m, r, why);
}

/* ---- the sample ----------------------------------------------------------------------------- */

/* The leaves of the field must not have the name of another one beside it. */
static int tokenized_check_names(const struct tokenized_making *m, uint32_t parent)
{
    static const char *const names[] = {"tokens", "labels", "loss_mask"};
    const struct tree *tree = &m->tokenized->sample.tree;
    size_t n = token_leaves_has_mask(m->tokenized->leaves) ? ARRAY_SIZE(names) : 1;
    char words[128];
    uint32_t other;

    if (strcmp(m->tokenized->key, "second") == 0)
        return 0; /* it keeps its own */
    for (size_t i = 0; i < n; i++) {
        if (!collate_find(tree, parent, names[i], &other) || other == m->found)
            continue;
        snprintf(words, sizeof words,
                 "becomes %s, but there is such a field beside it; choose or rename fields with "
                 "dataset.fields",
                 names[i]);
        return tokenized_refuse(m, EINVAL, words);
    }
    return 0;
}

static int tokenized_add_node(const struct tokenized_making *m, uint32_t i, const char *key);

/* A prompt and tools are in the tokens. */
static bool tokenized_is_dropped(const struct tokenized *t, const char *name)
{
    return t->drops && ((t->prompt && strcmp(name, t->prompt) == 0) ||
                        (t->tools && strcmp(name, t->tools) == 0));
}

static int tokenized_add_children(const struct tokenized_making *m, uint32_t i)
{
    const struct tree *tree = &m->tokenized->sample.tree;
    const struct tree_node *parent = &tree->nodes[i];
    char name[DL_BOUND_NAME_BYTES + 1];
    uint32_t child = i + 1;
    int r = 0;

    for (uint32_t k = 0; r == 0 && k < parent->children; k++) {
        const struct tree_node *node = &tree->nodes[child];
        bool named = parent->kind == TREE_DICT;
        if (node->key_len > 0)
            memcpy(name, tree->keys + node->key_off, node->key_len);
        name[node->key_len] = '\0';
        bool dropped = named && i == 0 && tokenized_is_dropped(m->tokenized, name);
        if (child == m->found)
            r = named ? tokenized_check_names(m, i)
                      : tokenized_refuse(m, EINVAL, "is one of a list; name one of a dict");
        if (r == 0 && !dropped)
            r = tokenized_add_node(m, child, named ? name : NULL);
        child = collate_skip(tree, child);
    }
    return r;
}

/* As deep as the reader's sample, which is bounded. */
static int tokenized_add_node(const struct tokenized_making *m, uint32_t i, const char *key)
{
    const struct sample *sample = &m->tokenized->sample;
    const struct tree_node *node = &sample->tree.nodes[i];

    if (i == m->found)
        return token_leaves_has_chat(m->tokenized->leaves) ? tokenized_add_chat(m, i)
                                                           : tokenized_add_text(m, i);
    if (node->kind == TREE_TENSOR)
        return sample_tensor(m->ret, key, node->dtype, node->ndim, node->shape, sample->data[i]);
    if (node->kind == TREE_STRING || node->kind == TREE_BYTES)
        return sample_text(m->ret, node->kind, key, sample->data[i], node->nbytes);
    int r = sample_begin(m->ret, node->kind, key);
    if (r == 0)
        r = tokenized_add_children(m, i);
    return r < 0 ? r : sample_end(m->ret);
}

/* Makes m->ret of the reader's sample. */
static int tokenized_make(struct tokenized_making *m)
{
    const struct tree *tree = &m->tokenized->sample.tree;
    int r = sample_check(&m->tokenized->sample, m->err);

    if (r < 0)
        return r;
    if (!collate_find(tree, 0, m->tokenized->field, &m->found)) {
        char words[64];

        snprintf(words, sizeof words, "is missing; set dataset.%s", m->tokenized->key);
        return tokenized_refuse(m, EINVAL, words);
    }
    r = tokenized_add_node(m, 0, NULL);
    return r < 0 && !m->ret->error ? r : sample_check(m->ret, m->err);
}

/* The reader's sample, empty, whose bytes live as long as those of `ret`. */
static struct sample *tokenized_begin(struct tokenized *t, const struct sample *ret)
{
    sample_clear(&t->sample);
    t->sample.arena = ret->arena;
    return &t->sample;
}

static int tokenized_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                         struct sample *ret, struct dl_error *err)
{
    struct tokenized *t = container_of(ds, struct tokenized, base);
    struct tokenized_making m = {
        .tokenized = t, .key = key, .index = index, .ret = ret, .err = err};
    int r = dataset_get(t->inner, key, index, tokenized_begin(t, ret), err);

    return r < 0 ? r : tokenized_make(&m);
}

static size_t tokenized_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    struct dataset *inner = container_of(ds, struct tokenized, base)->inner;

    return dataset_name(inner, index, ret, room);
}

static void tokenized_expect(struct dataset *ds, uint64_t index)
{
    struct dataset *inner = container_of(ds, struct tokenized, base)->inner;

    dataset_expect(inner, index);
}

static void tokenized_locate(struct dataset *ds, uint64_t index)
{
    struct dataset *inner = container_of(ds, struct tokenized, base)->inner;

    dataset_locate(inner, index);
}

static void tokenized_close(struct dataset *ds)
{
    struct tokenized *t = container_of(ds, struct tokenized, base);

    sample_deinit(&t->sample);
    dataset_close(t->inner);
    token_leaves_free(t->leaves);
    free(t->field);
    free(t->path);
    free(t->prompt);
    free(t->tools);
    free(t);
}

static const struct dataset_ops tokenized_ops = {.get = tokenized_get,
                                                 .name = tokenized_name,
                                                 .expect = tokenized_expect,
                                                 .locate = tokenized_locate,
                                                 .close = tokenized_close};

/* ---- streams -------------------------------------------------------------------------------- */

static int tokenized_iter_next(struct dataset_iter *iter, struct sample *ret, struct dl_error *err)
{
    struct tokenized_iter *it = container_of(iter, struct tokenized_iter, base);
    struct tokenized *t = it->tokenized;
    struct tokenized_making m = {
        .tokenized = t, .key = &it->key, .index = it->next, .ret = ret, .err = err};
    int r = it->inner->ops->next(it->inner, tokenized_begin(t, ret), err);

    it->next += r != DATASET_END;
    return r != 0 ? r : tokenized_make(&m);
}

static int tokenized_iter_skip(struct dataset_iter *iter, uint64_t n, uint64_t *ret)
{
    struct tokenized_iter *it = container_of(iter, struct tokenized_iter, base);
    uint64_t passed = 0;
    int r = it->inner->ops->skip(it->inner, n, &passed);

    it->next += passed;
    if (ret)
        *ret = passed;
    return r;
}

static size_t tokenized_iter_name(struct dataset_iter *iter, char *ret, size_t room)
{
    return dataset_iter_name(container_of(iter, struct tokenized_iter, base)->inner, ret, room);
}

static void tokenized_iter_close(struct dataset_iter *iter)
{
    struct tokenized_iter *it = container_of(iter, struct tokenized_iter, base);

    it->inner->ops->close(it->inner);
    free(it);
}

static const struct dataset_iter_ops tokenized_iter_ops = {.next = tokenized_iter_next,
                                                           .skip = tokenized_iter_skip,
                                                           .name = tokenized_iter_name,
                                                           .close = tokenized_iter_close};

/*
 * The masking of a stream's sample depends on the replica and the sample's number in it, as the
 * order of a shuffled stream does: only the reader knows more.
 */
static int tokenized_iterate(struct dataset *ds, const struct replica_params *params,
                             struct dataset_iter **ret, struct dl_error *err)
{
    struct tokenized *t = container_of(ds, struct tokenized, base);
    struct tokenized_iter *it = calloc(1, sizeof *it);

    if (!it)
        return dl_error_set(err, ENOMEM, "dataset", "out of memory for a replica");
    it->base.ops = &tokenized_iter_ops;
    it->tokenized = t;
    /* Number 0 of the seed is what a stream's shuffling draws by. */
    it->key = (struct sample_key){.seed = params->seed, .epoch = params->key.epoch, .base = 1};
    int r = t->inner->ops->iterate(t->inner, params, &it->inner, err);
    if (r < 0) {
        free(it);
        return r;
    }
    assert(it->inner->ops->skip && !it->inner->ops->again && !it->inner->ops->save);
    *ret = &it->base;
    return 0;
}

static const struct dataset_ops tokenized_stream_ops = {.iterate = tokenized_iterate,
                                                        .close = tokenized_close};

/* ---- opening -------------------------------------------------------------------------------- */

bool tokenized_is_asked_for(const struct spec_dataset *spec)
{
    return spec->tokenizer > TOKENIZER_NONE &&
           (spec->kind != DATASET_TEXT || (spec->second && spec->chat <= CHAT_NONE));
}

/* If the spec lists fields, the field must be one of them. */
static int tokenized_check_field(const struct tokenized *t, const struct spec_dataset *spec,
                                 const char *place, struct dl_error *err)
{
    char where[DL_ERROR_PATH_MAX];

    for (uint32_t i = 0; i < spec->n_fields; i++) {
        const char *name = spec->fields[i].name;
        size_t len = strlen(name);
        if (strncmp(t->field, name, len) == 0 && strchr(".", t->field[len]))
            return 0;
    }
    if (spec->n_fields == 0 && spec->kind != DATASET_TEXT) /* their samples have all fields */
        return 0;
    snprintf(where, sizeof where, "%s.%s", place, t->key);
    return dl_error_set(err, EINVAL, where, "%s is not one of dataset.fields; add it to them",
                        t->field);
}

static int tokenized_init(struct tokenized *t, const struct spec_dataset *spec, const char *place,
                          const struct data_env *env, struct dl_error *err)
{
    struct dataset *ds = &t->base;

    ds->ops = dataset_is_iterable(t->inner) ? &tokenized_stream_ops : &tokenized_ops;
    ds->length = t->inner->length;
    ds->can_skip = t->inner->can_skip;
    ds->content = t->inner->content;
    t->field = strdup(strcmp(t->key, "second") == 0 ? spec->second : spec->field);
    t->path = strdup(spec->n_files == 1 ? spec->files[0].path : place);
    t->prompt = spec->prompt ? strdup(spec->prompt) : NULL;
    t->tools = spec->tools ? strdup(spec->tools) : NULL;
    t->drops = !spec->second || strcmp(t->key, "second") == 0;
    if (!t->field || !t->path || !t->prompt != !spec->prompt || !t->tools != !spec->tools)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    int r = tokenized_check_field(t, spec, place, err);
    return r < 0 ? r : token_leaves_open(spec, place, env, &t->leaves, err);
}

/* A second text is like the first, under its own name; nothing of it is hidden. */
static int tokenized_check_second(struct tokenized *t, const char *place, struct dl_error *err)
{
    const char *dot = strrchr(t->field, '.');
    char where[DL_ERROR_PATH_MAX];

    if (strcmp(t->key, "second") != 0)
        return 0;
    t->name = dot ? dot + 1 : t->field;
    token_leaves_set_name(t->leaves, t->name);
    if (!token_leaves_has_mask(t->leaves) || token_leaves_has_chat(t->leaves))
        return 0;
    snprintf(where, sizeof where, "%s.second", place);
    return dl_error_set(err, EINVAL, where,
                        "does not work with mlm_probability, which makes more leaves of a text; "
                        "leave one of them out");
}

static int tokenized_open_field(const char *key, const struct spec_dataset *spec, const char *place,
                                const struct data_env *env, struct dataset **ret,
                                struct dl_error *err)
{
    struct tokenized *t = calloc(1, sizeof *t);
    int r;

    if (!t) {
        *ret = dataset_close(*ret);
        return dl_error_set(err, ENOMEM, place, "out of memory");
    }
    t->inner = *ret;
    t->key = key;
    r = tokenized_init(t, spec, place, env, err);
    if (r == 0)
        r = tokenized_check_second(t, place, err);
    if (r < 0)
        tokenized_close(&t->base);
    *ret = r < 0 ? NULL : &t->base;
    return r;
}

int tokenized_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
                   struct dataset **ret, struct dl_error *err)
{
    int r =
        spec->kind == DATASET_TEXT ? 0 : tokenized_open_field("field", spec, place, env, ret, err);

    return r < 0 || !spec->second ? r : tokenized_open_field("second", spec, place, env, ret, err);
}
