#include "daemon/data/decode/tokenizer/post.h"

#define POST_HAS \
    "it has BertProcessing, ByteLevel, RobertaProcessing, Sequence and TemplateProcessing"

static int post_has_room(const struct file_node *node, unsigned n)
{
    if (n < POST_TOKENS_MAX)
        return 0;
    return file_refuse(node, "is one token too many: the maximum is %d", POST_TOKENS_MAX);
}

/* Of one processor: what comes before all that is there by now. */
static int post_put_before(const struct file_node *node, struct post *post, const uint32_t *ids,
                           size_t n)
{
    if (n > POST_TOKENS_MAX - post->n_before)
        return post_has_room(node, POST_TOKENS_MAX);
    memmove(post->before + n, post->before, post->n_before * sizeof *ids);
    for (size_t i = 0; i < n; i++)
        post->before[i] = ids[i];
    post->n_before += (unsigned)n;
    return 0;
}

static int post_put_behind(const struct file_node *node, struct post *post, const uint32_t *ids,
                           size_t n)
{
    if (n > POST_TOKENS_MAX - post->n_behind)
        return post_has_room(node, POST_TOKENS_MAX);
    for (size_t i = 0; i < n; i++)
        post->behind[post->n_behind++] = ids[i];
    return 0;
}

/* ["[SEP]", 102] */
static int post_read_pair(const struct file_node *node, const char *key, uint32_t *ret)
{
    const struct file_node pair = file_member(node, key);
    const struct file_node id = file_item(&pair, 1);

    if (file_items(&pair) != 2)
        return file_refuse(&pair, "is not [TOKEN, ID]");
    return file_need_uint(&id, ret);
}

static int post_read_bert(const struct file_node *node, struct post *post)
{
    uint32_t cls, sep;
    int r = post_read_pair(node, "cls", &cls);

    if (r < 0 || (r = post_read_pair(node, "sep", &sep)) < 0 ||
        (r = post_put_before(node, post, &cls, 1)) < 0)
        return r;
    return post_put_behind(node, post, &sep, 1);
}

/* The ids of a template's special token, appended to ids[n..]. */
static int post_read_special(const struct file_node *node, const struct file_node *piece,
                             uint32_t *ids, unsigned *n)
{
    const struct file_node name = file_member(piece, "id");
    const struct file_node known = file_member(node, "special_tokens");
    const char *text;
    size_t bytes;
    int r = file_need_text(&name, &text, &bytes);

    if (r < 0)
        return r;
    const struct file_node token = file_member(&known, text);
    const struct file_node list = file_member(&token, "ids");
    if (!json_is_array(list.value))
        return file_refuse(
            &name, "is \"%.60s\", for which post_processor.special_tokens has no ids", text);
    for (size_t i = 0; r == 0 && i < file_items(&list); i++) {
        const struct file_node id = file_item(&list, i);
        if ((r = post_has_room(&id, *n)) == 0 && (r = file_need_uint(&id, &ids[*n])) == 0)
            (*n)++;
    }
    return r;
}

static int post_read_template(const struct file_node *node, struct post *post)
{
    const struct file_node single = file_member(node, "single");
    uint32_t ids[2][POST_TOKENS_MAX];
    unsigned n[2] = {0}, sequences = 0;
    int r = 0;

    for (size_t i = 0; r == 0 && i < file_items(&single); i++) {
        const struct file_node item = file_item(&single, i);
        const struct file_node special = file_member(&item, "SpecialToken");
        const struct file_node sequence = file_member(&item, "Sequence");
        const struct file_node id = file_member(&sequence, "id");
        const char *text;
        size_t bytes;
        if (special.value)
            r = post_read_special(node, &special, ids[sequences], &n[sequences]);
        else if ((r = file_need_text(&id, &text, &bytes)) == 0 &&
                 (strcmp(text, "A") != 0 || sequences++))
            return file_refuse(&id,
                               "is not A, the only sequence of a single text, or is a second one");
    }
    if (r == 0 && sequences != 1)
        r = file_refuse(&single, "has no {\"Sequence\": {\"id\": \"A\"}}");
    if (r < 0 || (r = post_put_before(node, post, ids[0], n[0])) < 0)
        return r;
    return post_put_behind(node, post, ids[1], n[1]);
}

static int post_read_one(const struct file_node *node, const char *name, void *owner)
{
    const struct file_node type = file_member(node, "type");
    struct post *post = owner;

    if (strcmp(name, "ByteLevel") == 0)
        return 0; /* it moves offsets, which nobody asks for */
    if (strcmp(name, "TemplateProcessing") == 0)
        return post_read_template(node, post);
    if (strcmp(name, "BertProcessing") == 0 || strcmp(name, "RobertaProcessing") == 0)
        return post_read_bert(node, post);
    return file_unsupported(&type, POST_HAS);
}

int post_read(const struct file_node *node, struct post *ret)
{
    return node->value ? file_read_each(node, "processors", post_read_one, ret) : 0;
}
