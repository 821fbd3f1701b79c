/* A batch for people and programs: see contents.h. */
#include "client/dlctl/batch/contents.h"

#include "client/dlctl/batch/leaves.h"
#include "client/dlctl/render.h"
#include "client/dlctl/units.h"
#include "proto/utf8.h"
#include <inttypes.h>

enum {
    PATH_COLUMNS = 60, /* longer paths break the alignment instead of the line */
    QUOTED = 64,       /* bytes of a string as it is shown */
    HEX_SHOWN = 16,    /* bytes of bytes */
};

void contents_deinit(struct contents *c)
{
    for (size_t i = 0; i < c->n_nodes; i++) {
        free(c->nodes[i].path);
        free(c->nodes[i].elements);
        free(c->nodes[i].texts);
    }
    free(c->nodes);
    free(c->indices);
    free(c->name);
    *c = (struct contents){0};
}

struct content *contents_add(struct contents *c, const char *path, enum dl_node_kind kind)
{
    char *copy = strdup(path);
    struct content *more = copy ? realloc(c->nodes, (c->n_nodes + 1) * sizeof *more) : NULL;

    if (!more) {
        free(copy);
        return NULL;
    }
    c->nodes = more;
    more[c->n_nodes] = (struct content){.path = copy, .kind = kind};
    return &more[c->n_nodes++];
}

static bool is_text(const struct content *node)
{
    return node->kind == DL_NODE_STRING || node->kind == DL_NODE_BYTES;
}

/* ---- for people ----------------------------------------------------------------------------- */

static void print_text(FILE *file, const struct content *node, const struct text_start *text)
{
    char quoted[QUOTED];
    uint32_t shown = (uint32_t)min_u64(text->kept, HEX_SHOWN);

    if (node->kind == DL_NODE_STRING) {
        /* What was not kept is cut off in any case: HEX_SHOWN < QUOTED < CONTENTS_TEXT. */
        render_quoted(text->bytes, text->kept, quoted, sizeof quoted);
        fprintf(file, "%s", quoted);
        return;
    }
    fprintf(file, "%" PRIu64 " bytes", text->nbytes);
    for (uint32_t i = 0; i < shown; i++)
        fprintf(file, " %02x", (uint8_t)text->bytes[i]);
    fprintf(file, "%s", shown < text->nbytes ? " ..." : "");
}

/* How many elements or strings there are. */
static uint64_t count(const struct content *node)
{
    if (node->kind == DL_NODE_TENSOR)
        return node->nbytes / max_u64(dl_type_bytes(node->dtype), 1);
    return node->ndim ? node->shape[0] : 1;
}

static void print_values(FILE *file, const struct content *node)
{
    char text[ELEMENT_TEXT];

    if (node->n_values == 0)
        return;
    fprintf(file, "          ");
    for (uint64_t i = 0; i < node->n_values; i++) {
        fputs(i == 0 ? "" : is_text(node) ? ", " : " ", file);
        if (is_text(node)) {
            print_text(file, node, &node->texts[i]);
        } else {
            element_text(&node->elements[i], text);
            fputs(text, file);
        }
    }
    if (count(node) > node->n_values)
        fprintf(file, "%s...", is_text(node) ? ", " : " ");
    fputc('\n', file);
}

static void print_object(FILE *file, const struct content *node)
{
    fprintf(file, "object: pickled, %" PRIu64 " bytes%s%s", node->nbytes,
            *node->type ? ", of " : "", node->type);
    if (node->tensors)
        fprintf(file, ", with %" PRIu32 " tensor%s", node->tensors, node->tensors > 1 ? "s" : "");
}

static void print_leaf(FILE *file, const struct content *node)
{
    char bytes[UNITS_MAX];

    format_bytes((double)node->nbytes, bytes, sizeof bytes);
    fprintf(file, "%-10s [",
            node->kind == DL_NODE_TENSOR ? dl_type_name(node->dtype)
                                         : leaves_kind_name(node->kind));
    for (uint32_t d = 0; d < node->ndim; d++)
        fprintf(file, "%s%" PRIu64, d ? ", " : "", node->shape[d]);
    fprintf(file, "]  %s", bytes);
    if (node->has_stats)
        fprintf(file, "  min %.6g  max %.6g  mean %.6g", node->stats.min, node->stats.max,
                node->stats.mean);
}

/* Keys come from other processes. */
static void print_path(FILE *file, const char *path, int width)
{
    int columns = 0;

    for (; *path; path++) {
        columns += ((unsigned char)*path & 0xc0) != 0x80;
        fputc((unsigned char)*path < 0x20 || *path == 0x7f ? '?' : *path, file);
    }
    fprintf(file, "%*s", columns < width ? width - columns : 0, "");
}

static void print_node(FILE *file, const struct content *node, int width, bool first)
{
    fprintf(file, "%-10s", first ? "tree" : "");
    print_path(file, *node->path ? node->path : "(batch)", width);
    fputc(' ', file);
    if (node->kind == DL_NODE_OBJECT)
        print_object(file, node);
    else if (node->kind == DL_NODE_TENSOR || is_text(node))
        print_leaf(file, node);
    else
        fprintf(file, "%-10s empty", leaves_kind_name(node->kind));
    fputc('\n', file);
    print_values(file, node);
}

void contents_print(FILE *file, const struct contents *c, uint64_t values)
{
    char bytes[UNITS_MAX];
    uint64_t width = 8, shown = min_u64(c->samples, values);

    format_bytes((double)c->nbytes, bytes, sizeof bytes);
    fprintf(file, "loader    %s, seed %" PRIu64 "\n", c->name, c->seed);
    fprintf(file,
            "batch     epoch %" PRIu64 ", step %" PRIu64 ", rank %" PRIu64 " of %" PRIu64
            ": %zu samples, %s\n",
            c->epoch, c->step, c->rank, c->world, c->samples, bytes);
    if (c->fed)
        fprintf(file, "order     is the client's; dlctl chose these samples itself\n");
    if (shown > 0) {
        fprintf(file, "indices   ");
        for (uint64_t i = 0; i < shown; i++)
            fprintf(file, "%s%" PRIu64, i ? " " : "", c->indices[i]);
        fprintf(file, "%s\n", shown < c->samples ? " ..." : "");
    }
    for (size_t i = 0; i < c->n_nodes; i++)
        width = max_u64(width, strlen(c->nodes[i].path));
    for (size_t i = 0; i < c->n_nodes; i++)
        print_node(file, &c->nodes[i], (int)min_u64(width, PATH_COLUMNS), i == 0);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

/* Appends `item`, which is consumed; false, and *array NULL, when out of memory. */
static bool append(json_t **array, json_t *item)
{
    if (*array && json_array_append_new(*array, item) == 0)
        return true;
    json_decref(*array);
    *array = NULL;
    return false;
}

static json_t *numbers_json(const uint64_t *numbers, size_t n)
{
    json_t *array = json_array();

    for (size_t i = 0; i < n && array; i++)
        if (!append(&array, render_json_u64(numbers[i])))
            break;
    return array;
}

/* Whole characters of what was kept; bytes that are no UTF-8 become '?'. */
static json_t *string_json(const struct text_start *text)
{
    char copy[CONTENTS_TEXT];
    size_t at = 0;

    while (at < text->kept) {
        const uint8_t *in = (const uint8_t *)text->bytes + at;
        size_t n = utf8_char(in, text->kept - at);

        if (n == 0 && *in >= 0xc2 && text->kept < text->nbytes && text->kept - at < 4)
            break; /* cut off in the middle of a character */
        if (n == 0)
            copy[at++] = '?';
        for (; n > 0; n--, at++)
            copy[at] = text->bytes[at];
    }
    return json_pack("{s:o, s:o}", "bytes", render_json_u64(text->nbytes), "text",
                     json_stringn(copy, at));
}

static json_t *bytes_json(const struct text_start *text)
{
    char hex[2 * CONTENTS_TEXT + 1] = "";

    for (uint32_t i = 0; i < text->kept; i++)
        snprintf(hex + 2 * (size_t)i, 3, "%02x", (uint8_t)text->bytes[i]);
    return json_pack("{s:o, s:s}", "bytes", render_json_u64(text->nbytes), "hex", hex);
}

static json_t *values_json(const struct content *node)
{
    json_t *array = json_array();

    for (uint64_t i = 0; i < node->n_values && array; i++) {
        json_t *item = node->kind == DL_NODE_STRING  ? string_json(&node->texts[i])
                       : node->kind == DL_NODE_BYTES ? bytes_json(&node->texts[i])
                                                     : element_json(&node->elements[i]);
        if (!append(&array, item))
            break;
    }
    return array;
}

static json_t *stat_json(const struct content *node, double stat)
{
    return node->has_stats ? render_json_real(stat) : json_null();
}

/* What only some kinds have, on top of path and kind. */
static int add_leaf(json_t *json, const struct content *node)
{
    json_t *more = json_pack("{s:o, s:o, s:o}", "shape", numbers_json(node->shape, node->ndim),
                             "bytes", render_json_u64(node->nbytes), "values", values_json(node));
    int r = more ? json_object_update(json, more) : -1;

    json_decref(more);
    if (r < 0 || node->kind != DL_NODE_TENSOR)
        return r;
    more = json_pack("{s:s, s:o, s:o, s:o}", "dtype", dl_type_name(node->dtype), "min",
                     stat_json(node, node->stats.min), "max", stat_json(node, node->stats.max),
                     "mean", stat_json(node, node->stats.mean));
    r = more ? json_object_update(json, more) : -1;
    json_decref(more);
    return r;
}

static int add_object(json_t *json, const struct content *node)
{
    json_t *more =
        json_pack("{s:o, s:i, s:o}", "bytes", render_json_u64(node->nbytes), "tensors",
                  (int)node->tensors, "class", *node->type ? json_string(node->type) : json_null());
    int r = more ? json_object_update(json, more) : -1;

    json_decref(more);
    return r;
}

static json_t *node_json(const struct content *node)
{
    json_t *json = json_pack("{s:o, s:s}", "path", render_json_text(node->path), "kind",
                             leaves_kind_name(node->kind));
    int r = -1;

    if (!json)
        return NULL;
    if (node->kind == DL_NODE_OBJECT)
        r = add_object(json, node);
    else
        r = node->kind == DL_NODE_TENSOR || is_text(node) ? add_leaf(json, node) : 0;
    if (r < 0) {
        json_decref(json);
        return NULL;
    }
    return json;
}

json_t *contents_json(const struct contents *c)
{
    json_t *tree = json_array();

    for (size_t i = 0; i < c->n_nodes && tree; i++)
        if (!append(&tree, node_json(&c->nodes[i])))
            break;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o}", "name",
                     render_json_text(c->name), "seed", render_json_u64(c->seed), "epoch",
                     render_json_u64(c->epoch), "step", render_json_u64(c->step), "rank",
                     render_json_u64(c->rank), "world", render_json_u64(c->world), "fed", c->fed,
                     "indices", numbers_json(c->indices, c->samples), "bytes",
                     render_json_u64(c->nbytes), "tree", tree);
}
