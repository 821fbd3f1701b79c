#include "daemon/data/tar/tar_sample.h"

#include <errno.h>
#include <stdio.h>

/* The members of one sample, one after another. */
struct tar_group {
    struct tar_reader reader;
    bool begun;
    size_t key_len;
    char key[DL_BOUND_PATH_BYTES + 1];
};

static void tar_sample_group_init(struct tar_group *group, const struct tar_view *view,
                                  uint64_t offset)
{
    tar_reader_init(&group->reader, view, offset);
    group->begun = false;
    group->key_len = 0;
}

/* Bytes of the name that are the sample's; 0: the member is part of none. */
static size_t tar_sample_key_length(const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    const char *dot = strchr(base, '.');
    size_t len = strlen(name);

    if (!dot || dot == base || dot[1] == '\0')
        return 0;
    if (!slash && len >= 4 && memcmp(name, "__", 2) == 0 && memcmp(name + len - 2, "__", 2) == 0)
        return 0;
    return (size_t)(dot - name);
}

/* 0, TAR_END behind the last, or an error. */
static int tar_sample_group_next(struct tar_group *group, struct tar_member *ret,
                                 struct dl_error *err)
{
    struct tar_member member = {0};
    size_t len;
    int r;

    do {
        r = tar_next(&group->reader, &member, err);
        if (r != 0)
            return r;
        len = member.regular ? tar_sample_key_length(member.name) : 0;
    } while (len == 0);
    if (!group->begun) {
        memcpy(group->key, member.name, len);
        group->key_len = len;
        group->begun = true;
    } else if (len != group->key_len || memcmp(group->key, member.name, len) != 0) {
        group->reader.offset = member.begin;
        return TAR_END;
    }
    *ret = member;
    return 0;
}

int tar_scan(const struct tar_view *view, uint64_t *offset, struct dl_error *err)
{
    struct tar_member member;
    struct tar_group group;
    int r;

    tar_sample_group_init(&group, view, *offset);
    do {
        r = tar_sample_group_next(&group, &member, err);
    } while (r == 0);
    if (r < 0)
        return r;
    *offset = group.reader.offset;
    return group.begun ? 0 : TAR_END;
}

int tar_field_error(const struct tar_field *f, int code, struct dl_error *err, const char *fmt, ...)
{
    char text[DL_ERROR_MESSAGE_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return dl_error_set(err, code, f->path, "its member %s at byte %llu %s", f->member,
                        (unsigned long long)f->offset, text);
}

/* Whether the dict that the sample is has the key already. */
static bool tar_sample_has_key(const struct sample *sample, const char *key)
{
    const struct tree *tree = &sample->tree;
    const struct tree_node *node = tree->nodes + 1, *end = tree->nodes + tree->count;
    size_t len = strlen(key);

    for (; node < end; node = tree_skip(node)) {
        if (node->key_len == len && memcmp(tree->keys + node->key_off, key, len) == 0)
            return true;
    }
    return false;
}

static int tar_sample_add_key(const struct tar_group *group, struct sample *ret)
{
    void *copy = sample_alloc(ret, group->key_len);

    if (!copy)
        return ret->error;
    memcpy(copy, group->key, group->key_len);
    return sample_text(ret, TREE_STRING, "__key__", copy, group->key_len);
}

/* What the builder of the sample refused, in words; `text` is what should have been UTF-8. */
static int tar_sample_judge(const struct tar_field *f, const struct sample *sample,
                            const char *text, struct dl_error *err)
{
    struct dl_error why = {0};

    if (sample->error == 0)
        return 0;
    if (sample->error == -EILSEQ)
        return tar_field_error(f, EILSEQ, err, "%s", text);
    (void)!sample_check(sample, &why);
    return tar_field_error(f, why.code, err, "cannot be part of its sample: %s", why.message);
}

static int tar_sample_add_member(const struct tar_group *group, const struct tar_member *member,
                                 const struct tar_options *options,
                                 const struct tar_randomness *randomness, struct sample *ret,
                                 struct dl_error *err)
{
    char key[DL_BOUND_PATH_BYTES + 1];
    const char *at = member->name + group->key_len + 1;
    struct tar_field f = {.path = group->reader.view.path,
                          .member = member->name,
                          .offset = member->begin,
                          .key = key,
                          .data = member->data,
                          .size = member->size};
    size_t len = 0;
    int r;

    for (; at[len]; len++) /* not tolower(): the locale must not change what a sample has */
        key[len] = (char)(at[len] >= 'A' && at[len] <= 'Z' ? at[len] - 'A' + 'a' : at[len]);
    key[len] = '\0';
    f.extension = strrchr(key, '.') ? strrchr(key, '.') + 1 : key;
    if (ret->tree.count == 0) {
        sample_begin(ret, TREE_DICT, NULL);
        tar_sample_add_key(group, ret);
        r = tar_sample_judge(&f, ret, "has a name that is not UTF-8; give it another", err);
        if (r < 0)
            return r;
    }
    if (tar_sample_has_key(ret, key))
        return tar_field_error(&f, EINVAL, err,
                               "is the second field \"%s\" of its sample; a field may occur once",
                               key);
    r = tar_add_field(&f, options, randomness, ret, err);
    if (ret->error == 0)
        return r;
    return tar_sample_judge(&f, ret,
                            "is not UTF-8; convert it, or take its bytes with decode: false", err);
}

int tar_make(const struct tar_view *view, uint64_t offset, const struct tar_options *options,
             const struct tar_randomness *randomness, struct sample *ret, struct dl_error *err)
{
    struct tar_member member;
    struct tar_group group;
    int r;

    tar_sample_group_init(&group, view, offset);
    while ((r = tar_sample_group_next(&group, &member, err)) == 0) {
        r = tar_sample_add_member(&group, &member, options, randomness, ret, err);
        if (r < 0)
            return r;
    }
    if (r < 0 || !group.begun)
        return r;
    sample_end(ret);
    return sample_check(ret, err);
}
