#include "daemon/data/decode/tokenizer/chars.h"
#include "daemon/data/decode/tokenizer/pretokenize.h"

#define PRE_HAS                                                                                \
    "it has BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, Metaspace, Punctuation, " \
    "Sequence, Split, Whitespace and WhitespaceSplit"

static int pre_add(const struct file_node *node, struct pretokenizer *pre, struct pre_step **ret)
{
    if (pre->n == PRE_STEPS_MAX || pre->byte_level) {
        file_refuse(node, pre->byte_level ? "comes after ByteLevel; put it before"
                                          : "is one pre-tokenizer too many");
        return -EINVAL;
    }
    *ret = &pre->steps[pre->n++];
    **ret = (struct pre_step){0};
    return 0;
}

static int pre_add_class(const struct file_node *node, struct pretokenizer *pre, uint8_t class,
                         enum split_behavior behavior)
{
    struct pre_step *step;
    int r = pre_add(node, pre, &step);

    if (r == 0)
        *step = (struct pre_step){.kind = PRE_CLASS, .class = class, .behavior = behavior};
    return r;
}

static int pre_read_behavior(const struct file_node *node, enum split_behavior fallback,
                             enum split_behavior *ret)
{
    static const char *const names[] = {
        [SPLIT_ISOLATED] = "Isolated",
        [SPLIT_REMOVED] = "Removed",
        [SPLIT_CONTIGUOUS] = "Contiguous",
        [SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
    };
    const struct file_node behavior = file_member(node, "behavior");
    const char *text;
    size_t n;
    int r = file_text(&behavior, &text, &n);

    *ret = fallback;
    if (r < 0 || (!text && fallback))
        return r;
    for (unsigned i = SPLIT_ISOLATED; text && i < ARRAY_SIZE(names); i++)
        if (strcmp(names[i], text) == 0) {
            *ret = (enum split_behavior)i;
            return 0;
        }
    return file_refuse(&behavior, "is not one of Isolated, Removed, Contiguous, "
                                  "MergedWithPrevious, MergedWithNext");
}

static int pre_copy(const struct file_node *node, const char *text, size_t n, char **ret)
{
    if (strlen(text) != n)
        return file_refuse(node, "has a NUL");
    *ret = strdup(text);
    return *ret ? 0 : file_no_memory(node);
}

/* {"Regex": "..."}: by scan.h where it is known and all of it is cut, else by PCRE2. */
static int pre_read_regex(const struct file_node *node, struct pre_step *step)
{
    char why[PATTERN_WHY_MAX];
    const char *text;
    size_t n;
    int r = file_need_text(node, &text, &n);

    if (r < 0)
        return r;
    step->scan = scan_find(text, n);
    /* Its matches leave nothing between them. */
    if (step->scan &&
        (step->behavior == SPLIT_ISOLATED || (step->behavior == SPLIT_REMOVED && step->invert))) {
        step->kind = PRE_SCAN;
        return 0;
    }
    step->kind = PRE_PATTERN;
    r = pattern_new(text, n, &step->pattern, why);
    if (r == -ENOMEM)
        return file_no_memory(node);
    return r < 0 ? file_refuse(node, "cannot be used: %s", why) : 0;
}

static int pre_read_split(const struct file_node *node, struct pretokenizer *pre)
{
    const struct file_node pattern = file_member(node, "pattern");
    const struct file_node text = file_member(&pattern, "String");
    const struct file_node regex = file_member(&pattern, "Regex");
    const struct file_node invert = file_member(node, "invert");
    struct pre_step *step;
    const char *string;
    size_t n;
    int r = pre_add(node, pre, &step);

    if (r < 0 || (r = pre_read_behavior(node, 0, &step->behavior)) < 0 ||
        (r = file_bool(&invert, false, &step->invert)) < 0)
        return r;
    if (regex.value)
        return pre_read_regex(&regex, step);
    if (!text.value)
        return file_refuse(&pattern, "is neither {\"String\": ...} nor {\"Regex\": ...}");
    step->kind = PRE_TEXT;
    r = file_need_text(&text, &string, &n);
    return r < 0 ? r : pre_copy(&text, string, n, &step->text);
}

static int pre_read_delimiter(const struct file_node *node, struct pretokenizer *pre)
{
    const struct file_node delimiter = file_member(node, "delimiter");
    struct pre_step *step;
    const char *text;
    size_t n;
    int r = pre_add(node, pre, &step);

    if (r < 0 || (r = file_need_text(&delimiter, &text, &n)) < 0)
        return r;
    step->kind = PRE_TEXT;
    step->behavior = SPLIT_REMOVED;
    return pre_copy(&delimiter, text, n, &step->text);
}

static int pre_read_byte_level(const struct file_node *node, struct pretokenizer *pre)
{
    const struct file_node prefix = file_member(node, "add_prefix_space");
    const struct file_node regex = file_member(node, "use_regex");
    struct pre_step *step;
    bool has_prefix, has_regex;
    int r = file_bool(&prefix, true, &has_prefix);

    if (r < 0 || (r = file_bool(&regex, true, &has_regex)) < 0)
        return r;
    if (pre->byte_level)
        return file_refuse(node, "comes after another ByteLevel; leave one of them out");
    if (has_prefix && (r = pre_add(node, pre, &step)) == 0)
        step->kind = PRE_PREFIX;
    if (r == 0 && has_regex && (r = pre_add(node, pre, &step)) == 0)
        *step = (struct pre_step){.kind = PRE_SCAN, .scan = SCAN_GPT2};
    pre->byte_level = true;
    return r;
}

static int pre_read_prepend(const struct file_node *node, enum meta_prepend *ret)
{
    const struct file_node scheme = file_member(node, "prepend_scheme");
    const struct file_node former = file_member(node, "add_prefix_space");
    const char *text;
    bool add;
    size_t n;
    int r = file_text(&scheme, &text, &n);

    if (r < 0 || (r = file_bool(&former, true, &add)) < 0)
        return r;
    if (!text)
        *ret = add ? META_ALWAYS : META_NEVER;
    else if (strcmp(text, "always") == 0)
        *ret = META_ALWAYS;
    else if (strcmp(text, "first") == 0)
        *ret = META_FIRST;
    else if (strcmp(text, "never") == 0)
        *ret = META_NEVER;
    else
        return file_refuse(&scheme, "is not one of always, first, never");
    if (!add && *ret != META_NEVER)
        return file_refuse(&scheme, "is \"%s\", but add_prefix_space is false; leave one out",
                           text);
    return 0;
}

static int pre_read_meta(const struct file_node *node, struct pretokenizer *pre)
{
    const struct file_node replacement = file_member(node, "replacement");
    const struct file_node split = file_member(node, "split");
    struct pre_step *step;
    const char *text;
    size_t n;
    int r = pre_add(node, pre, &step);

    if (r < 0)
        return r;
    step->kind = PRE_META;
    step->behavior = SPLIT_MERGED_WITH_NEXT;
    if ((r = pre_read_prepend(node, &step->prepend)) < 0 ||
        (r = file_bool(&split, true, &step->split)) < 0 ||
        (r = file_text(&replacement, &text, &n)) < 0)
        return r;
    if (!text)
        text = "\u2581";
    if (text[0] == '\0' || utf8_char((const uint8_t *)text, strlen(text)) != strlen(text))
        return file_refuse(&replacement, "is not one character");
    return pre_copy(&replacement, text, strlen(text), &step->text);
}

static int pre_read_digits(const struct file_node *node, struct pretokenizer *pre)
{
    const struct file_node each = file_member(node, "individual_digits");
    bool apart;
    int r = file_bool(&each, false, &apart);

    return r < 0 ? r
                 : pre_add_class(node, pre, CHAR_NUMBER, apart ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS);
}

static int pre_read_punctuation(const struct file_node *node, struct pretokenizer *pre)
{
    enum split_behavior behavior;
    int r = pre_read_behavior(node, SPLIT_ISOLATED, &behavior);

    return r < 0 ? r : pre_add_class(node, pre, CHAR_PUNCTUATION, behavior);
}

static int pre_read_bert(const struct file_node *node, struct pretokenizer *pre)
{
    int r = pre_add_class(node, pre, CHAR_SPACE, SPLIT_REMOVED);

    return r < 0 ? r : pre_add_class(node, pre, CHAR_PUNCTUATION, SPLIT_ISOLATED);
}

static int pre_read_spaces(const struct file_node *node, struct pretokenizer *pre)
{
    return pre_add_class(node, pre, CHAR_SPACE, SPLIT_REMOVED);
}

static int pre_read_words(const struct file_node *node, struct pretokenizer *pre)
{
    struct pre_step *step;
    int r = pre_add(node, pre, &step);

    if (r == 0)
        step->kind = PRE_RUNS;
    return r;
}

static int pre_read_one(const struct file_node *node, const char *name, void *owner)
{
    static const struct {
        const char *type;
        int (*read)(const struct file_node *node, struct pretokenizer *pre);
    } types[] = {
        {"BertPreTokenizer", pre_read_bert},
        {"ByteLevel", pre_read_byte_level},
        {"CharDelimiterSplit", pre_read_delimiter},
        {"Digits", pre_read_digits},
        {"Metaspace", pre_read_meta},
        {"Punctuation", pre_read_punctuation},
        {"Split", pre_read_split},
        {"Whitespace", pre_read_words},
        {"WhitespaceSplit", pre_read_spaces},
    };
    const struct file_node type = file_member(node, "type");
    struct pretokenizer *pre = owner;

    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (strcmp(types[i].type, name) == 0)
            return types[i].read(node, pre);
    return file_unsupported(&type, PRE_HAS);
}

int pretokenizer_read(const struct file_node *node, struct pretokenizer *ret)
{
    return node->value ? file_read_each(node, "pretokenizers", pre_read_one, ret) : 0;
}

void pretokenizer_deinit(struct pretokenizer *pre)
{
    for (unsigned i = 0; i < pre->n; i++) {
        pattern_free(pre->steps[i].pattern);
        free(pre->steps[i].text);
        free(pre->steps[i].own.data);
    }
    *pre = (struct pretokenizer){0};
}
