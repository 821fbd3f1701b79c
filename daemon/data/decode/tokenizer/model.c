#include "daemon/data/decode/tokenizer/model.h"

#include "daemon/data/decode/tokenizer/byte_level.h"

static int model_read_vocab(const struct file_node *node, struct vocab *vocab)
{
    const struct file_node all = file_member(node, "vocab");
    const char *text;
    json_t *value;
    int r = 0;

    if (!json_is_object(all.value))
        return file_refuse(&all, "is not an object of tokens and their ids");
    json_object_foreach((json_t *)all.value, text, value)
    {
        struct file_node id = file_entry(&all, text, value);
        uint32_t number;
        r = file_need_uint(&id, &number);
        if (r == 0 && vocab_add(vocab, text, strlen(text), number) < 0)
            r = file_no_memory(node);
        if (r < 0)
            return r;
    }
    return r;
}

static int model_read_affix(const struct file_node *node, const char *key, const char *fallback,
                            char **ret)
{
    const struct file_node affix = file_member(node, key);
    const char *text;
    size_t n;
    int r = file_text(&affix, &text, &n);

    if (r < 0)
        return r;
    if (!text)
        text = fallback;
    if (!text || !*text)
        return 0;
    *ret = strdup(text);
    return *ret ? 0 : file_no_memory(node);
}

static int model_read_unk(const struct file_node *node, bool needed, struct model *model)
{
    const struct file_node unk = file_member(node, "unk_token");
    const char *text;
    size_t n;
    int r = file_text(&unk, &text, &n);

    model->unk = VOCAB_NONE;
    if (r < 0 || (!text && !needed))
        return r;
    if (!text)
        return file_refuse(&unk, "is missing");
    model->unk = vocab_find(&model->vocab, text, n);
    if (model->unk == VOCAB_NONE)
        return file_refuse(&unk, "is \"%.60s\", which is not in model.vocab", text);
    return 0;
}

/* Files of old versions do not name the type: what else is there tells it. */
static const char *model_type_of(const struct file_node *node, const char *type)
{
    if (*type)
        return type;
    if (file_member(node, "merges").value)
        return "BPE";
    if (file_member(node, "max_input_chars_per_word").value)
        return "WordPiece";
    return json_is_object(file_member(node, "vocab").value) ? "WordLevel" : "Unigram";
}

static int model_read_kind(const struct file_node *node, struct model *model)
{
    const struct file_node type = file_member(node, "type");
    const struct file_node most = file_member(node, "max_input_chars_per_word");
    const char *name;
    int r = file_type(node, &name);

    if (r < 0)
        return r;
    name = model_type_of(node, name);
    if (strcmp(name, "BPE") == 0)
        model->kind = MODEL_BPE;
    else if (strcmp(name, "WordPiece") == 0)
        model->kind = MODEL_WORDPIECE;
    else if (strcmp(name, "WordLevel") == 0)
        model->kind = MODEL_WORDLEVEL;
    else if (strcmp(name, "Unigram") == 0)
        model->kind = MODEL_UNIGRAM;
    else
        return file_unsupported(&type, "it has the models BPE, Unigram, WordPiece and WordLevel");
    return model->kind == MODEL_WORDPIECE ? file_uint(&most, 100, &model->most_chars) : 0;
}

int model_read(const struct file_node *node, bool byte_level, struct model *ret)
{
    int r = model_read_kind(node, ret);

    ret->byte_level = byte_level;
    if (r == 0 && ret->kind == MODEL_UNIGRAM)
        return unigram_read(node, ret);
    if (r < 0 || (r = model_read_vocab(node, &ret->vocab)) < 0 ||
        (r = model_read_unk(node, ret->kind != MODEL_BPE, ret)) < 0)
        return r;
    if (ret->kind == MODEL_WORDLEVEL)
        return 0;
    r = model_read_affix(node, "continuing_subword_prefix",
                         ret->kind == MODEL_WORDPIECE ? "##" : NULL, &ret->prefix);
    if (r < 0 || ret->kind == MODEL_WORDPIECE)
        return r;
    r = model_read_affix(node, "end_of_word_suffix", NULL, &ret->suffix);
    return r < 0 ? r : bpe_read(node, ret);
}

void model_deinit(struct model *model)
{
    vocab_deinit(&model->vocab);
    merges_deinit(&model->merges);
    unigram_free(model->unigram);
    free(model->prefix);
    free(model->suffix);
    free(model->scratch.data);
    free(model->symbols);
    free(model->heap);
    *model = (struct model){0};
}

int model_write_letters(const uint8_t *word, size_t n, struct growing_bytes *to)
{
    to->n = 0;
    if (growing_bytes_reserve(to, 2 * n + 2) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        to->n += byte_level_encode(word[i], to->data + to->n);
    return 0;
}

int model_encode(struct model *model, const uint8_t *word, size_t n, struct growing_ids *to)
{
    _cleanup_free_ uint8_t *letters = NULL;

    if (n > INT32_MAX / 8)
        return -E2BIG;
    if (model->kind == MODEL_BPE)
        return bpe_encode(model, word, n, to);
    if (model->byte_level) {
        struct growing_bytes all = {0};
        int r = model_write_letters(word, n, &all);
        letters = all.data;
        if (r < 0)
            return r;
        word = letters;
        n = all.n;
    }
    if (model->kind == MODEL_WORDPIECE)
        return wordpiece_encode(model, word, n, to);
    if (model->kind == MODEL_UNIGRAM)
        return unigram_encode(model, word, n, to);
    uint32_t id = vocab_find(&model->vocab, word, n);
    return growing_ids_add_one(to, id == VOCAB_NONE ? model->unk : id);
}
