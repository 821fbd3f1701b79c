#include "proto/shared/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* A table that cannot grow is not fatal: the entry is left out. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

const char *const metrics_views[] = {"status", "loaders",  "epochs", "workers", "ring", "times",
                                     "users",  "mixtures", "remote", "members", NULL};

/* Labels of a row: keys of the view, with the label names they get. */
enum labels { DAEMON, LOADER, STAGE, RING, RANK, WORKER, NODE, USER, CHILD };

enum { LABELS_MAX = 5, METRICS_NUMBER_MAX = 32 };

static const struct {
    const char *key, *name;
} labels_of[][LABELS_MAX] = {
    [DAEMON] = {{NULL, NULL}},
    [LOADER] = {{"name", "loader"}},
    [STAGE] = {{"loader", "loader"}, {"stage", "stage"}},
    [RING] = {{"loader", "loader"}},
    /* "job" is what Prometheus calls its own: it would rename ours. */
    [RANK] = {{"loader", "loader"}, {"job", "job_name"}, {"rank", "rank"}, {"world", "world"}},
    [WORKER] = {{"loader", "loader"}, {"worker", "worker"}},
    [NODE] = {{"node", "node"}},
    [USER] = {{"uid", "uid"}, {"control_group", "control_group"}},
    [CHILD] = {{"loader", "loader"},
               {"job", "job_name"},
               {"child", "child"},
               {"dataset", "dataset"}},
};

enum how { SUM, FIRST, WORD, IS };
enum type { COUNTER, GAUGE, SUMMARY };

/* A family where `view` is NULL, and then `key` and `suffix` are its name and meaning. */
struct line {
    const char *view, *key, *suffix, *label, *value;
    enum labels labels;
    enum how how;
    enum type type;
};

static const struct line metrics_lines[] = {
#define FAMILY(name, kind, meaning) {.key = name, .suffix = meaning, .type = kind},
#define SAMPLE(from, key_name, behind, row, more, is, what) \
    {.view = from,                                          \
     .key = key_name,                                       \
     .suffix = behind,                                      \
     .labels = row,                                         \
     .label = more,                                         \
     .value = is,                                           \
     .how = what},
#include "proto/shared/metrics.def"
#undef FAMILY
#undef SAMPLE
};

/* ---- text ----------------------------------------------------------------------------------- */

/* The first failure, out of memory, sticks. */
struct metrics_text {
    struct dl_buffer *out;
    int r;
};

static void metrics_put(struct metrics_text *text, const char *s, size_t len)
{
    if (text->r == 0)
        text->r = buffer_append(text->out, s, len);
}

static void metrics_put_string(struct metrics_text *text, const char *s)
{
    metrics_put(text, s, strlen(s));
}

/* Backslashes, quotes and ends of lines are escaped. */
static void metrics_put_quoted(struct metrics_text *text, const char *s, size_t len)
{
    metrics_put_string(text, "\"");
    for (size_t i = 0; i < len; i++) {
        if (s[i] == '\n')
            metrics_put_string(text, "\\n");
        else if (s[i] == '"' || s[i] == '\\')
            metrics_put(text, s[i] == '"' ? "\\\"" : "\\\\", 2);
        else
            metrics_put(text, s + i, 1);
    }
    metrics_put_string(text, "\"");
}

/* ---- rows ----------------------------------------------------------------------------------- */

static bool metrics_number_of(const struct value *v, double *ret)
{
    if (!v)
        return false;
    switch (v->type) {
    case VALUE_INT:
        *ret = (double)v->integer;
        return true;
    case VALUE_UINT:
        *ret = (double)v->uinteger;
        return true;
    case VALUE_FLOAT:
        *ret = v->number;
        return true;
    default:
        return false;
    }
}

/* The word that a text begins with: "loader-bound: ..." and "idle; ..." say more. */
static size_t metrics_word_of(const char *s)
{
    return strcspn(s, ":;");
}

static bool metrics_sample_of(const struct line *line, const struct value *row, double *ret)
{
    const struct value *v = value_get(row, line->key);

    if (line->how != WORD && line->how != IS)
        return metrics_number_of(v, ret);
    if (!v || v->type != VALUE_STRING)
        return false;
    *ret = line->how == WORD || strcmp(v->string, line->value) == 0;
    return true;
}

static void metrics_put_label(struct metrics_text *text, bool *any, const char *name, const char *s,
                              size_t len)
{
    metrics_put_string(text, *any ? "," : "{");
    *any = true;
    metrics_put_string(text, name);
    metrics_put_string(text, "=");
    metrics_put_quoted(text, s, len);
}

static void metrics_put_labels(struct metrics_text *text, const struct line *line,
                               const struct value *row)
{
    bool any = false;

    for (size_t i = 0; i < LABELS_MAX && labels_of[line->labels][i].key; i++) {
        const struct value *v = value_get(row, labels_of[line->labels][i].key);
        char number[METRICS_NUMBER_MAX];
        double n;

        if (v && v->type == VALUE_STRING) {
            metrics_put_label(text, &any, labels_of[line->labels][i].name, v->string,
                              strlen(v->string));
        } else if (metrics_number_of(v, &n)) {
            int len = snprintf(number, sizeof number, "%.0f", n);
            metrics_put_label(text, &any, labels_of[line->labels][i].name, number, (size_t)len);
        }
    }
    if (line->how == WORD) {
        const struct value *v = value_get(row, line->key);
        metrics_put_label(text, &any, line->label, v->string, metrics_word_of(v->string));
    } else if (*line->label) {
        metrics_put_label(text, &any, line->label, line->value, strlen(line->value));
    }
    metrics_put_string(text, any ? "} " : " "); /* and then the number */
}

/* A stage's times of a single rank are not metrics. */
static bool metrics_is_left_out(const struct line *line, const struct value *row)
{
    const struct value *rank = line->labels == STAGE ? value_get(row, "rank") : NULL;

    return row->type != VALUE_MAP || (rank && rank->type != VALUE_NULL);
}

/* What rows with the same labels make together. */
struct sample {
    UT_hash_handle hh; /* by labels, in the order they came */
    double number;
    size_t len;
    char labels[];
};

static int metrics_add_sample(struct sample **samples, const struct line *line,
                              const struct value *row)
{
    _cleanup_(buffer_deinit) struct dl_buffer labels = {0};
    struct metrics_text text = {.out = &labels};
    struct sample *sample;
    double number;

    if (metrics_is_left_out(line, row) || !metrics_sample_of(line, row, &number))
        return 0;
    metrics_put_labels(&text, line, row);
    if (text.r < 0)
        return text.r;
    HASH_FIND(hh, *samples, labels.data, labels.len, sample);
    if (sample) {
        sample->number += line->how == SUM ? number : 0;
        return 0;
    }
    sample = calloc(1, sizeof *sample + labels.len);
    if (!sample)
        return -ENOMEM;
    sample->number = number;
    sample->len = labels.len;
    memcpy(sample->labels, labels.data, labels.len);
    HASH_ADD_KEYPTR(hh, *samples, sample->labels, sample->len, sample);
    if (sample->hh.tbl)
        return 0;
    free(sample);
    return -ENOMEM;
}

struct rows {
    const struct value *items;
    uint32_t n;
};

static void metrics_put_samples(struct metrics_text *text, const char *family,
                                const struct line *line, const struct rows *rows)
{
    struct sample *samples = NULL, *sample, *next;
    char number[METRICS_NUMBER_MAX];

    for (uint32_t i = 0; i < rows->n && text->r == 0; i++)
        text->r = metrics_add_sample(&samples, line, &rows->items[i]);
    HASH_ITER (hh, samples, sample, next) {
        metrics_put_string(text, family);
        metrics_put_string(text, line->suffix);
        metrics_put(text, sample->labels, sample->len);
        int len = snprintf(number, sizeof number, "%.15g\n", sample->number);
        metrics_put(text, number, (size_t)len);
        HASH_DEL(samples, sample);
        free(sample);
    }
}

/* ---- all ------------------------------------------------------------------------------------ */

static struct rows metrics_rows_of(const struct value views[static METRICS_VIEWS], const char *name)
{
    const struct value *v = NULL;

    for (size_t i = 0; i < METRICS_VIEWS; i++)
        if (strcmp(metrics_views[i], name) == 0)
            v = &views[i];
    if (strcmp(name, "nodes") == 0) /* in the last view */
        v = value_get(&views[METRICS_VIEWS - 1], name);
    if (v && v->type == VALUE_ARRAY)
        return (struct rows){v->items, v->count};
    return (struct rows){v, v && v->type == VALUE_MAP};
}

static void metrics_put_family(struct metrics_text *text, const struct line *family)
{
    static const char *const types[] = {"counter", "gauge", "summary"};
    const char *const parts[] = {"# HELP ",   family->key, " ", family->suffix,
                                 "\n# TYPE ", family->key, " ", types[family->type],
                                 "\n"};

    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        metrics_put_string(text, parts[i]);
}

int metrics_write(const struct value views[static METRICS_VIEWS], struct dl_buffer *out)
{
    struct metrics_text text = {.out = out};
    const struct line *family = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(metrics_lines) && text.r == 0; i++) {
        if (!metrics_lines[i].view) {
            family = &metrics_lines[i];
            metrics_put_family(&text, family);
            continue;
        }
        struct rows rows = metrics_rows_of(views, metrics_lines[i].view);
        metrics_put_samples(&text, family->key, &metrics_lines[i], &rows);
    }
    return text.r;
}
