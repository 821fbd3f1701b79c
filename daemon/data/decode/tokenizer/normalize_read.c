#include "daemon/data/decode/tokenizer/normalize.h"

#define NORMALIZE_HAS                                                                              \
    "it has BertNormalizer, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, Prepend, Replace, " \
    "Sequence, Strip and StripAccents"

static int normalize_read_add(const struct file_node *node, struct normalizer *all,
                              enum normalize_kind kind, struct normalize_step **ret)
{
    if (all->n == NORMALIZE_STEPS_MAX) {
        file_refuse(node, "is one normalizer too many");
        return -EINVAL;
    }
    *ret = &all->steps[all->n++];
    **ret = (struct normalize_step){.kind = kind};
    return 0;
}

/* Where the flag is set, the step is there. */
static int normalize_read_flag(const struct file_node *node, const char *key,
                               enum normalize_kind kind, struct normalizer *all)
{
    const struct file_node flag = file_member(node, key);
    struct normalize_step *step;
    bool set;
    int r = file_bool(&flag, true, &set);

    return r < 0 || !set ? r : normalize_read_add(node, all, kind, &step);
}

static int normalize_read_strip(const struct file_node *node, struct normalizer *all)
{
    int r = normalize_read_flag(node, "strip_left", NORMALIZE_STRIP_LEFT, all);

    return r < 0 ? r : normalize_read_flag(node, "strip_right", NORMALIZE_STRIP_RIGHT, all);
}

static int normalize_read_bert(const struct file_node *node, struct normalizer *all)
{
    const struct file_node lower = file_member(node, "lowercase");
    const struct file_node strip = file_member(node, "strip_accents");
    struct normalize_step *step;
    bool lowercase, strip_accents;
    int r = file_bool(&lower, true, &lowercase);

    if (r < 0 || (r = file_bool(&strip, lowercase, &strip_accents)) < 0 ||
        (r = normalize_read_flag(node, "clean_text", NORMALIZE_CLEAN, all)) < 0 ||
        (r = normalize_read_flag(node, "handle_chinese_chars", NORMALIZE_IDEOGRAPHS, all)) < 0)
        return r;
    if (strip_accents &&
        ((r = normalize_read_add(node, all, NORMALIZE_NFD, &step)) < 0 ||
         (r = normalize_read_add(node, all, NORMALIZE_WITHOUT_NONSPACING, &step)) < 0))
        return r;
    return lowercase ? normalize_read_add(node, all, NORMALIZE_LOWERCASE, &step) : 0;
}

static int normalize_read_copy(const struct file_node *node, char **ret)
{
    const char *text;
    size_t n;
    int r = file_need_text(node, &text, &n);

    if (r < 0)
        return r;
    if (strlen(text) != n)
        return file_refuse(node, "has a NUL");
    *ret = strdup(text);
    return *ret ? 0 : file_no_memory(node);
}

static int normalize_read_prepend(const struct file_node *node, struct normalizer *all)
{
    const struct file_node text = file_member(node, "prepend");
    struct normalize_step *step;
    int r = normalize_read_add(node, all, NORMALIZE_PREPEND, &step);

    return r < 0 ? r : normalize_read_copy(&text, &step->text);
}

static int normalize_read_replace(const struct file_node *node, struct normalizer *all)
{
    const struct file_node pattern = file_member(node, "pattern");
    const struct file_node content = file_member(node, "content");
    const struct file_node text = file_member(&pattern, "String");
    const struct file_node regex = file_member(&pattern, "Regex");
    char why[PATTERN_WHY_MAX];
    struct normalize_step *step;
    const char *source;
    size_t n;
    int r = normalize_read_add(node, all, NORMALIZE_REPLACE, &step);

    if (r < 0 || (r = normalize_read_copy(&content, &step->text)) < 0)
        return r;
    if (!regex.value)
        return text.value
                   ? normalize_read_copy(&text, &step->from)
                   : file_refuse(&pattern, "is neither {\"String\": ...} nor {\"Regex\": ...}");
    if ((r = file_need_text(&regex, &source, &n)) < 0)
        return r;
    r = pattern_new(source, n, &step->pattern, why);
    if (r == -ENOMEM)
        return file_no_memory(node);
    return r < 0 ? file_refuse(&regex, "cannot be used: %s", why) : 0;
}

static int normalize_read_charsmap(const struct file_node *node, struct normalizer *all)
{
    const struct file_node map = file_member(node, "precompiled_charsmap");
    struct normalize_step *step;
    int r = normalize_read_add(node, all, NORMALIZE_CHARSMAP, &step);

    return r < 0 ? r : charsmap_read(&map, &step->map);
}

static int normalize_read_one(const struct file_node *node, const char *name, void *owner)
{
    static const struct {
        const char *type;
        enum normalize_kind kind; /* 0: it is read */
        int (*read)(const struct file_node *node, struct normalizer *all);
    } types[] = {
        {"BertNormalizer", 0, normalize_read_bert},
        {"Lowercase", NORMALIZE_LOWERCASE, NULL},
        {"NFC", NORMALIZE_NFC, NULL},
        {"NFD", NORMALIZE_NFD, NULL},
        {"NFKC", NORMALIZE_NFKC, NULL},
        {"NFKD", NORMALIZE_NFKD, NULL},
        {"Nmt", NORMALIZE_NMT, NULL},
        {"Precompiled", 0, normalize_read_charsmap},
        {"Prepend", 0, normalize_read_prepend},
        {"Replace", 0, normalize_read_replace},
        {"Strip", 0, normalize_read_strip},
        {"StripAccents", NORMALIZE_WITHOUT_MARKS, NULL},
    };
    const struct file_node type = file_member(node, "type");
    struct normalizer *all = owner;
    struct normalize_step *step;

    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (strcmp(types[i].type, name) == 0)
            return types[i].read ? types[i].read(node, all)
                                 : normalize_read_add(node, all, types[i].kind, &step);
    return file_unsupported(&type, NORMALIZE_HAS);
}

int normalizer_read(const struct file_node *node, struct normalizer *ret)
{
    return node->value ? file_read_each(node, "normalizers", normalize_read_one, ret) : 0;
}

void normalizer_deinit(struct normalizer *normalizer)
{
    for (unsigned i = 0; i < normalizer->n; i++) {
        free(normalizer->steps[i].from);
        free(normalizer->steps[i].text);
        pattern_free(normalizer->steps[i].pattern);
        charsmap_free(normalizer->steps[i].map);
    }
    free(normalizer->text[0].data);
    free(normalizer->text[1].data);
    *normalizer = (struct normalizer){0};
}
