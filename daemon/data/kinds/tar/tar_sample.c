#include "daemon/data/kinds/tar/tar_sample.h"

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

/* The length of the sample's key in the name; 0: the member belongs to no sample. */
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
    if (!f->member)
        return dl_error_set(err, code, f->path, "%s", text);
    return dl_error_set(err, code, f->path, "its member %s at byte %llu %s", f->member,
                        (ull)f->offset, text);
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

static int tar_sample_add_key(const struct tar_group *group, const char *name, struct sample *ret)
{
    void *copy = sample_alloc(ret, group->key_len);

    if (!copy)
        return ret->error;
    memcpy(copy, group->key, group->key_len);
    return sample_text(ret, TREE_STRING, name, copy, group->key_len);
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

/* What stands behind the sample's name, in lower case; `ret` has room for any name. */
static void tar_sample_field_of(const struct tar_group *group, const struct tar_member *member,
                                char *ret)
{
    const char *at = member->name + group->key_len + 1;
    size_t len = 0;

    for (; at[len]; len++) /* not tolower(): the locale must not change what a sample has */
        ret[len] = (char)(at[len] >= 'A' && at[len] <= 'Z' ? at[len] - 'A' + 'a' : at[len]);
    ret[len] = '\0';
}

/* The member as field `key` of the sample; `source` is what it is called in the shard. */
static int tar_sample_add_field(const struct tar_group *group, const struct tar_member *member,
                                const char *key, const char *source,
                                const struct decoding *decoding, struct sample *ret,
                                struct dl_error *err)
{
    struct tar_field f = {.path = group->reader.view.path,
                          .member = member->name,
                          .offset = member->begin,
                          .key = key,
                          .extension = strrchr(source, '.') ? strrchr(source, '.') + 1 : source,
                          .source = source,
                          .data = member->data,
                          .size = member->size};
    int r = tar_add_field(&f, decoding, ret, err);

    if (ret->error == 0)
        return r;
    return tar_sample_judge(&f, ret,
                            "is not UTF-8; convert it, or take its bytes with decode: false", err);
}

static int tar_sample_begin(const struct tar_group *group, const struct tar_member *member,
                            struct sample *ret, struct dl_error *err)
{
    struct tar_field f = {
        .path = group->reader.view.path, .member = member->name, .offset = member->begin};

    sample_begin(ret, TREE_DICT, NULL);
    tar_sample_add_key(group, "__key__", ret);
    return tar_sample_judge(&f, ret, "has a name that is not UTF-8; give it another", err);
}

static int tar_sample_add_member(const struct tar_group *group, const struct tar_member *member,
                                 const struct decoding *decoding, struct sample *ret,
                                 struct dl_error *err)
{
    char key[DL_BOUND_PATH_BYTES + 1];
    int r = ret->tree.count == 0 ? tar_sample_begin(group, member, ret, err) : 0;

    if (r < 0)
        return r;
    tar_sample_field_of(group, member, key);
    if (tar_sample_has_key(ret, key)) {
        struct tar_field f = {
            .path = group->reader.view.path, .member = member->name, .offset = member->begin};
        return tar_field_error(&f, EINVAL, err,
                               "is the second field \"%s\" of its sample; a field may occur once",
                               key);
    }
    return tar_sample_add_field(group, member, key, key, decoding, ret, err);
}

/* ---- chosen fields -------------------------------------------------------------------------- */

/* The place of `field` in "jpg;jpeg;png", or UINT32_MAX. */
static uint32_t tar_sample_rank(const char *sources, const char *field)
{
    size_t len = strlen(field);
    uint32_t rank = 0;

    for (const char *at = sources;; rank++) {
        size_t part = strcspn(at, ";");
        if (part == len && memcmp(at, field, len) == 0)
            return rank;
        if (!at[part])
            return UINT32_MAX;
        at += part + 1;
    }
}

/* Finds the member for the source; *ret_offset of its first header. 0, TAR_END if it is missing; or
 * an error. `group` moves behind the sample. */
static int tar_sample_find(struct tar_group *group, const char *sources, uint64_t *ret_offset,
                           struct dl_error *err)
{
    char field[DL_BOUND_PATH_BYTES + 1];
    struct tar_member member;
    uint32_t best = UINT32_MAX;
    int r;

    while ((r = tar_sample_group_next(group, &member, err)) == 0) {
        tar_sample_field_of(group, &member, field);
        uint32_t rank = tar_sample_rank(sources, field);
        if (rank < best) {
            best = rank;
            *ret_offset = member.begin;
        }
    }
    return r < 0 ? r : best == UINT32_MAX ? TAR_END : 0;
}

static int tar_sample_refuse_missing(const struct tar_view *view, uint64_t offset,
                                     const struct tar_group *group, const char *source,
                                     struct dl_error *err)
{
    return dl_error_set(err, EINVAL, view->path,
                        "its sample %.*s at byte %llu has no field %s; see dataset.fields",
                        (int)group->key_len, group->key, (ull)offset, source);
}

static int tar_sample_add_chosen(const struct tar_view *view, uint64_t offset,
                                 const struct spec_field *choice, const struct decoding *decoding,
                                 struct sample *ret, struct dl_error *err)
{
    char source[DL_BOUND_PATH_BYTES + 1];
    struct tar_member member;
    struct tar_group group;
    uint64_t at = 0;
    int r;

    tar_sample_group_init(&group, view, offset);
    group.key[0] = '\0';
    r = tar_sample_find(&group, choice->source, &at, err);
    if (r < 0)
        return r;
    if (strcmp(choice->source, "__key__") == 0) {
        struct tar_field f = {.path = view->path, .member = group.key, .offset = offset};
        tar_sample_add_key(&group, choice->name, ret);
        return tar_sample_judge(&f, ret, "has a name that is not UTF-8; give it another", err);
    }
    if (r == TAR_END)
        return tar_sample_refuse_missing(view, offset, &group, choice->source, err);
    tar_sample_group_init(&group, view, at);
    r = tar_sample_group_next(&group, &member, err);
    if (r != 0)
        return r;
    tar_sample_field_of(&group, &member, source);
    return tar_sample_add_field(&group, &member, choice->name, source, decoding, ret, err);
}

static int tar_sample_make_chosen(const struct tar_view *view, uint64_t offset,
                                  const struct decoding *decoding, struct sample *ret,
                                  struct dl_error *err)
{
    const struct field_choice *choice = &decoding->fields->choice;
    int r = 0;

    sample_begin(ret, TREE_DICT, NULL);
    for (uint32_t i = 0; r == 0 && i < choice->n; i++)
        r = tar_sample_add_chosen(view, offset, &choice->fields[i], decoding, ret, err);
    if (r != 0)
        return r;
    sample_end(ret);
    return sample_check(ret, err);
}

/* ---- whole samples -------------------------------------------------------------------------- */

int tar_make(const struct tar_view *view, uint64_t offset, const struct decoding *decoding,
             struct sample *ret, struct dl_error *err)
{
    struct tar_member member;
    struct tar_group group;
    int r;

    if (decoding->fields->choice.n > 0)
        return tar_sample_make_chosen(view, offset, decoding, ret, err);
    tar_sample_group_init(&group, view, offset);
    while ((r = tar_sample_group_next(&group, &member, err)) == 0) {
        r = tar_sample_add_member(&group, &member, decoding, ret, err);
        if (r < 0)
            return r;
    }
    if (r < 0 || !group.begun)
        return r;
    sample_end(ret);
    return sample_check(ret, err);
}

size_t tar_put_name(const struct tar_view *view, uint64_t offset, char *ret, size_t room)
{
    struct tar_reader reader;
    struct tar_member member;
    struct dl_error err; /* ignored: it was reported when the sample was made */

    tar_reader_init(&reader, view, offset);
    if (tar_next(&reader, &member, &err) != 0)
        return 0;
    int len = snprintf(ret, room, "%s: %s", view->path, member.name);
    return len < 0 ? 0 : (size_t)len;
}
