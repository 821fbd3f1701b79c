/*
 * Text: a sample is a line, or a field of a line of JSON, of one or more files in their order.
 *
 * Or, for JSON, several fields of a line: each becomes a leaf by json_field.h, under its name,
 * except the one that becomes tokens, which its leaves replace.
 *
 * Without a tokenizer it is {"text": string}; a string of a plain file lies where it is mapped.
 * With one, token_leaves.h makes the sample from the text. For `bytes`, the number of tokens is
 * known for plain files, and for JSON after parsing. Opening reads the files once, to find the
 * lines: about 2.3 bytes of memory for a line of usual length (text_lines.h).
 */
#include "daemon/data/kinds/kinds.h"

#include "daemon/data/collate/lengths.h"
#include "daemon/data/decode/tokenizer/token_leaves.h"
#include "daemon/data/field/field_choice.h"
#include "daemon/data/field/json_field.h"
#include "daemon/data/files/globs.h"
#include "daemon/data/files/source.h"
#include "daemon/data/kinds/text/text_lines.h"
#include "proto/common/bisect.h"
#include "proto/common/utf8.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/mman.h>

struct text_file {
    struct source source;    /* owned */
    struct line_table lines; /* owned */
    uint64_t first;          /* sample: its first line */
    bool json;
};

struct text {
    struct dataset base;
    struct file_list list;      /* owned */
    struct text_file *files;    /* owned; list.n of them */
    char *field;                /* owned; of a JSON line */
    struct field_choice choice; /* of a JSON line; empty: only `field` */
    enum tokenizer tokenizer;
    struct token_leaves *leaves; /* owned; NULL: no tokenizer */
    char *prompt, *tools;        /* owned; fields of a conversation; may be NULL */
    char *second;                /* owned; the field of another conversation; may be NULL */
};

/* One sample on its way: where it comes from, and what it is made into. */
struct text_sample {
    const struct text *text;
    const struct text_file *file;
    const char *path;
    uint64_t line; /* of the file */
    const struct sample_key *key;
    uint64_t index; /* of the dataset */
    struct sample *ret;
    struct dl_error *err;
};

/* ---- one sample ----------------------------------------------------------------------------- */

static unsigned long long text_number_of(const struct text_sample *s)
{
    return line_number(&s->file->lines, s->line);
}

static int text_refuse_encoding(const struct text_sample *s)
{
    return dl_error_set(s->err, EILSEQ, s->path,
                        "line %llu is not UTF-8; convert the file with iconv, or take its bytes "
                        "with tokenizer: bytes",
                        text_number_of(s));
}

/* Reports the result of token_leaves.h for the sample. */
static int text_tell_tokens(const struct text_sample *s, int r, const char *why)
{
    if (r >= 0)
        return r;
    if (r == -ENOMEM)
        return dl_error_set(s->err, ENOMEM, s->path, "out of memory for a sample");
    if (r == -EILSEQ)
        return text_refuse_encoding(s);
    if (r == -EINVAL && token_leaves_has_chat(s->text->leaves))
        return dl_error_set(s->err, EINVAL, s->path,
                            "line %llu, field \"%s\": %s; each message is {\"role\": ..., "
                            "\"content\": ...}",
                            text_number_of(s), s->text->field, why);
    return dl_error_set(s->err, -r, s->path,
                        "line %llu cannot be made into tokens (%s); cut it into shorter ones",
                        text_number_of(s), why);
}

static int text_make_tokens(const struct text_sample *s, const uint8_t *text, uint64_t bytes)
{
    char why[TOKEN_WHY_MAX] = "";

    return text_tell_tokens(
        s, token_leaves_text(s->text->leaves, s->key, s->index, text, bytes, s->ret, why), why);
}

/* The conversation in a field, and the other one that belongs to it. */
static int text_make_chat(const struct text_sample *s, const json_t *root, const json_t *messages,
                          const char *name)
{
    const struct text *text = s->text;
    const struct chat_talk talk = {
        .messages = messages,
        .prompt = text->prompt ? json_object_get(root, text->prompt) : NULL,
        .tools = text->tools ? json_object_get(root, text->tools) : NULL};
    char why[TOKEN_WHY_MAX] = "";
    json_t *other;

    if (text->prompt && !talk.prompt)
        return dl_error_set(s->err, EINVAL, s->path,
                            "line %llu has no field \"%s\"; set dataset.prompt", text_number_of(s),
                            text->prompt);
    int r = text_tell_tokens(s, token_leaves_chat(text->leaves, &talk, name, s->ret, why), why);
    if (r < 0 || name || !text->second)
        return r;
    if (!(other = json_object_get(root, text->second)))
        return dl_error_set(s->err, EINVAL, s->path,
                            "line %llu has no field \"%s\"; set dataset.second", text_number_of(s),
                            text->second);
    return text_make_chat(s, root, other, text->second);
}

static int text_make_string(const struct text_sample *s, const uint8_t *bytes, uint64_t n)
{
    int r = sample_text(s->ret, TREE_STRING, "text", bytes, n);

    return r == -EILSEQ ? text_refuse_encoding(s) : r;
}

static int text_make(const struct text_sample *s, const uint8_t *bytes, uint64_t n)
{
    return s->text->leaves ? text_make_tokens(s, bytes, n) : text_make_string(s, bytes, n);
}

/* The text of a line, or its messages, under its source's name in the line. */
static int text_make_field(const struct text_sample *s, const json_t *root, const char *field)
{
    const json_t *value = json_object_get(root, field);

    if (!value)
        return dl_error_set(s->err, EINVAL, s->path,
                            "line %llu has no field \"%s\"; set dataset.field", text_number_of(s),
                            field);
    if (s->text->leaves && token_leaves_has_chat(s->text->leaves))
        return text_make_chat(s, root, value, NULL);
    if (!json_is_string(value))
        return dl_error_set(s->err, EINVAL, s->path,
                            "line %llu: its field \"%s\" is not a string; set dataset.field",
                            text_number_of(s), field);
    return text_make(s, (const uint8_t *)json_string_value(value), json_string_length(value));
}

/* One of dataset.fields, as it is. */
static int text_add_raw(const struct text_sample *s, const json_t *root,
                        const struct spec_field *field)
{
    json_t *value = json_object_get(root, field->source);
    struct dl_error why = {0};

    if (!value)
        return dl_error_set(s->err, EINVAL, s->path,
                            "line %llu has no field \"%s\", which dataset.fields lists",
                            text_number_of(s), field->source);
    int r = json_field_add_parsed(value, field->name, s->ret, &why);
    if (why.code != 0)
        return dl_error_set(s->err, why.code, s->path, "line %llu %s", text_number_of(s),
                            why.message);
    return r;
}

static int text_make_fields(const struct text_sample *s, const json_t *root)
{
    const struct field_choice *choice = &s->text->choice;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < choice->n; i++) {
        const struct spec_field *field = &choice->fields[i];
        bool tokens = s->text->leaves && strcmp(field->name, s->text->field) == 0;

        r = tokens ? text_make_field(s, root, field->source) : text_add_raw(s, root, field);
    }
    return r;
}

static void text_release_json(void *json)
{
    json_decref(json);
}

static int text_make_json(const struct text_sample *s, struct line line)
{
    json_error_t why;
    json_t *root = json_loadb((const char *)line.text, line.bytes, JSON_ALLOW_NUL, &why);

    if (!root)
        return dl_error_set(s->err, EINVAL, s->path,
                            "line %llu is not JSON (%s, at its byte %d); each line must be one "
                            "object, as jq -c writes them",
                            text_number_of(s), why.text, why.position);
    /* Until the batch is made: the string is the parser's. */
    int r = arena_hold(s->ret->arena, text_release_json, root);
    if (r < 0)
        return dl_error_set(s->err, ENOMEM, s->path, "out of memory for a sample");
    if (!json_is_object(root))
        return dl_error_set(s->err, EINVAL, s->path,
                            "line %llu is JSON, but not an object; each line must be one, as jq "
                            "-c '.[]' makes them of a list",
                            text_number_of(s));
    return s->text->choice.n > 0 ? text_make_fields(s, root)
                                 : text_make_field(s, root, s->text->field);
}

/* ---- the dataset ---------------------------------------------------------------------------- */

/* The file that has sample `index`, below the length. */
static const struct text_file *text_file_of(const struct text *text, uint64_t index)
{
    return &text->files[bisect_firsts(&text->files[0].first, sizeof *text->files, text->list.n,
                                      index)];
}

static int text_get(struct dataset *ds, const struct sample_key *key, uint64_t index,
                    struct sample *ret, struct dl_error *err)
{
    const struct text *text = container_of(ds, struct text, base);
    int r;

    const struct text_file *file = text_file_of(text, index);
    struct text_sample s = {.text = text,
                            .file = file,
                            .path = text->list.paths[file - text->files],
                            .line = index - file->first,
                            .key = key,
                            .index = index,
                            .ret = ret,
                            .err = err};
    struct line line = line_at(&file->lines, s.line);
    sample_begin(ret, TREE_DICT, NULL);
    r = file->json ? text_make_json(&s, line) : text_make(&s, line.text, line.bytes);
    if (r < 0)
        return ret->error && ret->error != -EILSEQ ? sample_check(ret, err) : r;
    sample_end(ret);
    return sample_check(ret, err);
}

static void text_expect(struct dataset *ds, uint64_t index)
{
    const struct text *text = container_of(ds, struct text, base);
    const struct text_file *file = text_file_of(text, index);

    line_expect(&file->lines, index - file->first);
}

/* The length in tokens of line `line` of a plain file. */
static int text_length_of(const struct text *text, const struct text_file *file, uint64_t line,
                          uint32_t *ret, struct dl_error *err)
{
    uint64_t n = token_leaves_count(text->leaves, line_at(&file->lines, line).bytes);

    if (n >= LENGTH_UNKNOWN)
        return dl_error_set(err, EOVERFLOW, text->list.paths[file - text->files],
                            "line %llu has %llu tokens; a sample has fewer than 2^32 - 1: cut it "
                            "by dataset.max_length, or divide it into lines",
                            (ull)line_number(&file->lines, line), (ull)n);
    *ret = (uint32_t)n;
    return 0;
}

static int text_lengths(struct dataset *ds, struct lengths_wanted *w, struct dl_error *err)
{
    const struct text *text = container_of(ds, struct text, base);
    const struct text_file *file = w->n > 0 ? text_file_of(text, w->first) : NULL;
    uint64_t line = w->n > 0 ? w->first - file->first : 0;
    int r = 0;

    if (text->tokenizer == TOKENIZER_NONE && w->n > 0) {
        w->bad = w->first;
        return dl_error_set(err, EINVAL, text->list.paths[file - text->files],
                            "line %llu is text without tokens; write tokenizer: bytes",
                            (ull)line_number(&file->lines, line));
    }
    if (text->tokenizer != TOKENIZER_BYTES || (w->leaf && strcmp(w->leaf, "tokens") != 0))
        return -ENOTSUP;
    for (size_t i = 0; i < w->n && r == 0; i++, line++) {
        while (line == file->lines.n) { /* of this file; the next may be empty */
            file++;
            line = 0;
        }
        w->bad = w->first + i;
        if (file->json)
            w->ret[i] = LENGTH_UNKNOWN; /* parsing it is what loading does */
        else
            r = text_length_of(text, file, line, &w->ret[i], err);
    }
    return r;
}

static size_t text_name(struct dataset *ds, uint64_t index, char *ret, size_t room)
{
    const struct text *text = container_of(ds, struct text, base);
    const struct text_file *file = text_file_of(text, index);
    const char *path = text->list.paths[file - text->files];
    uint64_t i = index - file->first;

    /* If blank lines are skipped, the line number would have to be counted. */
    return file->lines.skip_blank ? dataset_put_name(path, "row", i, ret, room)
                                  : dataset_put_name(path, "line", i + 1, ret, room);
}

static void text_close(struct dataset *ds)
{
    struct text *text = container_of(ds, struct text, base);

    for (uint32_t i = 0; text->files && i < text->list.n; i++) {
        line_table_deinit(&text->files[i].lines);
        source_close(&text->files[i].source);
    }
    file_list_deinit(&text->list);
    token_leaves_free(text->leaves);
    free(text->files);
    field_choice_deinit(&text->choice);
    free(text->field);
    free(text->prompt);
    free(text->tools);
    free(text->second);
    free(text);
}

static const struct dataset_ops text_ops = {.get = text_get,
                                            .lengths = text_lengths,
                                            .name = text_name,
                                            .expect = text_expect,
                                            .close = text_close};

/* ---- opening -------------------------------------------------------------------------------- */

static bool text_ends_with(const char *path, const char *end)
{
    size_t len = strlen(path), end_len = strlen(end);

    return len > end_len && strcasecmp(path + len - end_len, end) == 0;
}

static const char *text_place(char ret[static DL_ERROR_PATH_MAX], const char *place,
                              const char *key)
{
    (void)snprintf(ret, DL_ERROR_PATH_MAX, "%s.%s", place, key);
    return ret;
}

/* The field that becomes tokens is one of the fields, and no other has the name of a result. */
static int text_check_fields(const struct text *text, const char *place, struct dl_error *err)
{
    static const char *const made[] = {"tokens", "labels", "loss_mask"};
    size_t n_made = text->leaves && token_leaves_has_mask(text->leaves) ? ARRAY_SIZE(made) : 1;
    char where[DL_ERROR_PATH_MAX];
    bool found = false;

    if (!text->leaves || text->choice.n == 0)
        return 0;
    for (uint32_t i = 0; i < text->choice.n; i++) {
        const char *name = text->choice.fields[i].name;

        if (strcmp(name, text->field) == 0) {
            found = true;
            continue;
        }
        for (size_t k = 0; k < n_made; k++)
            if (strcmp(name, made[k]) == 0)
                return dl_error_set(
                    err, EINVAL, text_place(where, place, "fields"),
                    "%s is already made from the field %s; give this one another name, "
                    "as in {text: text, mine: %s}",
                    name, text->field, name);
    }
    if (found)
        return 0;
    return dl_error_set(err, EINVAL, text_place(where, place, "field"),
                        "%s is not one of dataset.fields; add it to them", text->field);
}

static bool text_is_json(enum text_format format, const char *path)
{
    if (format == TEXT_LINES || format == TEXT_JSON)
        return format == TEXT_JSON;
    return text_ends_with(path, ".jsonl") || text_ends_with(path, ".ndjson") ||
           text_ends_with(path, ".json");
}

static int text_open_file(struct text_file *file, const char *path, const struct data_env *env,
                          struct dl_error *err)
{
    int r;

    r = source_open(path, env, &file->source, err);
    if (r < 0)
        return r;
    if (source_is_gzip(&file->source))
        return dl_error_set(err, EINVAL, path,
                            "is compressed by gzip; unpack it with gunzip, so that its lines can "
                            "be read in place");
    /* Read ahead while looking for lines; then samples come in any order. */
    if (file->source.bytes > 0)
        (void)madvise((void *)file->source.data, file->source.bytes, MADV_SEQUENTIAL);
    r = line_table_make(file->source.data, file->source.bytes, file->json, &file->lines);
    if (file->source.bytes > 0)
        (void)madvise((void *)file->source.data, file->source.bytes, MADV_NORMAL);
    if (r < 0)
        return dl_error_set(err, ENOMEM, path, "out of memory for the places of its lines");
    return 0;
}

/* The names of the fields of a conversation. */
static int text_take_chat(struct text *text, const struct spec_dataset *spec)
{
    const char *const names[] = {spec->prompt, spec->tools, spec->second};
    char **const to[] = {&text->prompt, &text->tools, &text->second};

    for (size_t i = 0; spec->chat > CHAT_NONE && i < ARRAY_SIZE(names); i++)
        if (names[i] && !(*to[i] = strdup(names[i])))
            return -ENOMEM;
    return 0;
}

int text_open(const struct spec_dataset *spec, const char *place, const struct data_env *env,
              struct dataset **ret, struct dl_error *err)
{
    _cleanup_(dataset_closep) struct dataset *ds = NULL;
    struct text *text = calloc(1, sizeof *text);
    int r;

    if (!text)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    ds = &text->base;
    ds->ops = &text_ops;
    text->tokenizer = spec->tokenizer;
    text->field = strdup(spec->field ? spec->field : "text");
    if (text->tokenizer > TOKENIZER_NONE &&
        (r = token_leaves_open(spec, place, env, &text->leaves, err)) < 0)
        return r;
    if (!text->field || text_take_chat(text, spec) < 0)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    r = field_choice_init(&text->choice, spec, place, err);
    if (r == 0)
        r = text_check_fields(text, place, err);
    if (r == 0)
        r = file_list_make(spec, env, &text->list, err);
    if (r < 0)
        return r;
    text->files = calloc(text->list.n, sizeof *text->files);
    if (!text->files)
        return dl_error_set(err, ENOMEM, place, "out of memory");
    for (uint32_t i = 0; i < text->list.n; i++) {
        struct text_file *file = &text->files[i];
        file->first = ds->length;
        file->json = text_is_json(spec->format, text->list.paths[i]);
        if (!file->json && text->leaves && token_leaves_has_chat(text->leaves))
            return dl_error_set(err, EINVAL, text->list.paths[i],
                                "is read as plain lines, but dataset.chat takes messages of JSON; "
                                "write format: json, or leave chat out");
        if (!file->json && text->choice.n > 0)
            return dl_error_set(err, EINVAL, text->list.paths[i],
                                "is read as plain lines, which have no fields; write format: json, "
                                "or leave dataset.fields out");
        r = text_open_file(file, text->list.paths[i], env, err);
        if (r < 0)
            return r;
        ds->length += file->lines.n;
        data_tell(env, "files indexed", i + 1, text->list.n);
    }
    *ret = steal_ptr(ds);
    return 0;
}
