/*
 * `dlctl peek`: one batch of a loader, in an epoch of its own with a single credit, so that no
 * other client's batches, order or place are touched.
 */
#include "client/dlclient.h"
#include "client/dlctl/contents.h"
#include "client/dlctl/open.h"
#include "client/dlctl/report.h"
#include "client/dlctl/verbs.h"

#include <errno.h>
#include <inttypes.h>

/* Samples that are fed at most, unless they are named: batch.size can be far more than it means,
 * where a batch sampler gives batches of its own sizes. */
enum { FEED_DEFAULT = 64 };

struct peek {
    const struct options *o;
    struct dl_client *client; /* owned */
    struct dl_loader *loader; /* the client's */
    struct dl_epoch *epoch;   /* the loader's */
    struct dl_batch *batch;   /* the epoch's */
    uint32_t at;              /* node of the batch that comes next */
    struct contents contents;
};

static void peek_deinit(struct peek *p)
{
    dl_epoch_end(p->epoch);
    dl_loader_close(p->loader);
    dl_client_close(p->client);
    contents_deinit(&p->contents);
}

/* ---- getting a batch ------------------------------------------------------------------------ */

static int start(struct peek *p)
{
    const struct dl_epoch_options options = {.epoch = p->o->epoch,
                                             .rank = (uint32_t)p->o->rank,
                                             .world = (uint32_t)p->o->world,
                                             .step = p->o->step,
                                             .credits = 1};
    int r = dl_client_connect(&p->client, p->o->socket, "dlctl peek " DLOADER_VERSION);

    if (r == 0)
        r = open_operand(p->client, p->o->operand, &p->loader);
    return r < 0 ? r : dl_epoch_start(p->loader, &options, &p->epoch);
}

/* The samples that --indices names, or the first ones. *ret is owned by the caller. */
static int choose(const struct peek *p, uint64_t **ret, size_t *ret_n)
{
    const char *list = p->o->indices;
    uint64_t *indices, index;
    size_t n = 0;

    if (!list) {
        uint64_t length = dl_loader_length(p->loader);

        n = max_u64(dl_loader_batch_size(p->loader), 1);
        n = min_u64(min_u64(n, FEED_DEFAULT), length == DL_UNKNOWN ? FEED_DEFAULT : length);
    }
    for (const char *rest = list; rest && options_next_index(&rest, &index);)
        n++;
    indices = calloc(max_u64(n, 1), sizeof *indices);
    if (!indices)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (!list || !options_next_index(&list, &indices[i]))
            indices[i] = i;
    *ret = indices;
    *ret_n = n;
    return 0;
}

static int feed(struct peek *p)
{
    _cleanup_free_ uint64_t *indices = NULL;
    size_t n = 0;
    int r = choose(p, &indices, &n);

    if (r < 0)
        return r;
    if (n > 0)
        r = dl_epoch_feed_batch(p->epoch, indices, n);
    p->contents.fed = true;
    return r < 0 ? r : dl_epoch_feed_end(p->epoch);
}

/* 0, DL_END, or a negative errno. Only an epoch that is fed says -ENODATA. */
static int load(struct peek *p)
{
    int r = p->o->indices ? feed(p) : 0;

    if (r < 0)
        return r;
    r = dl_epoch_next(p->epoch, -1, &p->batch);
    if (r == -ENODATA && !p->contents.fed) {
        r = feed(p);
        if (r == 0)
            r = dl_epoch_next(p->epoch, -1, &p->batch);
    }
    return r;
}

/* ---- looking at it -------------------------------------------------------------------------- */

static int add_tensor(struct peek *p, const struct dl_node *node, const char *path)
{
    const struct dl_tensor *t = &node->tensor;
    struct content *c = contents_add(&p->contents, path, DL_NODE_TENSOR);
    uint64_t n = min_u64(p->o->values, t->nbytes / max_u64(dl_type_bytes(t->dtype), 1));

    if (!c)
        return -ENOMEM;
    c->dtype = t->dtype;
    c->ndim = t->ndim;
    memcpy(c->shape, t->shape, sizeof c->shape);
    c->nbytes = t->nbytes;
    c->has_stats = tensor_stats(t->dtype, t->data, t->nbytes, &c->stats);
    c->elements = calloc(max_u64(n, 1), sizeof *c->elements);
    if (!c->elements)
        return -ENOMEM;
    while (c->n_values < n &&
           element_read(t->dtype, t->data, c->n_values, &c->elements[c->n_values]))
        c->n_values++;
    return 0;
}

static int add_text(struct peek *p, const struct dl_node *node, uint32_t at, const char *path)
{
    struct content *c = contents_add(&p->contents, path, node->kind);
    uint64_t n = min_u64(p->o->values, node->count);

    if (!c)
        return -ENOMEM;
    c->ndim = node->is_list;
    c->shape[0] = node->is_list ? node->count : 0;
    c->nbytes = node->text_nbytes;
    c->texts = calloc(max_u64(n, 1), sizeof *c->texts);
    if (!c->texts)
        return -ENOMEM;
    for (; c->n_values < n; c->n_values++) {
        struct text_start *start = &c->texts[c->n_values];
        const char *text;
        size_t len;
        int r = dl_batch_node_text(p->batch, at, c->n_values, &text, &len);

        if (r < 0)
            return r;
        start->nbytes = len;
        start->kept = (uint32_t)min_u64(len, CONTENTS_TEXT);
        memcpy(start->bytes, text, start->kept);
    }
    return 0;
}

/* An object's first child is its pickle; of that only the class is told. */
static int add_object(struct peek *p, const struct dl_node *object, const char *path)
{
    struct content *c = contents_add(&p->contents, path, DL_NODE_OBJECT);
    _cleanup_free_ void *copy = NULL; /* a worker may still change what is in shared memory */
    const char *pickle;
    size_t len;
    int r;

    if (!c)
        return -ENOMEM;
    r = dl_batch_node_text(p->batch, p->at++, 0, &pickle, &len);
    if (r < 0)
        return r;
    c->nbytes = len;
    c->tensors = object->children - 1;
    copy = malloc(max_u64(min_u64(len, PICKLE_SCAN_MAX), 1));
    if (!copy)
        return -ENOMEM;
    if (len <= PICKLE_SCAN_MAX) {
        memcpy(copy, pickle, len);
        pickle_class(copy, len, c->type);
    }
    return 0;
}

static int look(struct peek *p, const char *path);

/* The children from `first` on, each at a path of its own. */
static int look_below(struct peek *p, const struct dl_node *parent, uint32_t first,
                      const char *path)
{
    int r = 0;

    for (uint32_t i = first; i < parent->children && r == 0; i++) {
        _cleanup_free_ char *below = NULL;
        const char *dot = *path ? "." : "";
        struct dl_node child = {0};

        r = dl_batch_node(p->batch, p->at, &child);
        if (r < 0)
            return r;
        r = child.key ? asprintf(&below, "%s%s%.*s", path, dot, (int)child.key_len, child.key)
                      : asprintf(&below, "%s%s%" PRIu32, path, dot, i);
        if (r < 0) {
            below = NULL; /* asprintf leaves it undefined */
            return -ENOMEM;
        }
        r = look(p, below);
    }
    return r;
}

/* Adds node p->at and all below it. */
static int look(struct peek *p, const char *path)
{
    struct dl_node node = {0};
    uint32_t at = p->at++;
    int r = dl_batch_node(p->batch, at, &node);

    if (r < 0)
        return r;
    switch (node.kind) {
    case DL_NODE_TENSOR:
        return add_tensor(p, &node, path);
    case DL_NODE_STRING:
    case DL_NODE_BYTES:
        return add_text(p, &node, at, path);
    case DL_NODE_OBJECT:
        r = add_object(p, &node, path);
        return r < 0 ? r : look_below(p, &node, 1, path);
    case DL_NODE_DICT:
    case DL_NODE_LIST:
    case DL_NODE_TUPLE:
        if (node.children == 0)
            return contents_add(&p->contents, path, node.kind) ? 0 : -ENOMEM;
        return look_below(p, &node, 0, path);
    }
    return 0;
}

static int describe(struct peek *p)
{
    struct contents *c = &p->contents;
    const uint64_t *indices = dl_batch_indices(p->batch, &c->samples);

    c->seed = dl_loader_seed(p->loader);
    c->epoch = p->o->epoch;
    c->step = dl_batch_step(p->batch);
    c->rank = p->o->rank;
    c->world = p->o->world;
    c->nbytes = dl_batch_bytes(p->batch);
    c->name = strdup(dl_loader_name(p->loader));
    c->indices = calloc(max_u64(c->samples, 1), sizeof *c->indices);
    if (!c->name || !c->indices)
        return -ENOMEM;
    if (c->samples > 0)
        memcpy(c->indices, indices, c->samples * sizeof *indices);
    return look(p, "");
}

/* ---- telling -------------------------------------------------------------------------------- */

static int no_such_step(const struct peek *p)
{
    uint64_t steps = p->contents.fed ? 0 : dl_epoch_steps(p->epoch);
    struct dl_error err = {0};

    if (steps == 0)
        dl_error_set(&err, ENODATA, "--step", "%" PRIu64 ": there is no batch: the %s is empty",
                     p->o->step, p->contents.fed ? "dataset" : "epoch");
    else if (steps == DL_UNKNOWN)
        dl_error_set(&err, ENODATA, "--step", "%" PRIu64 ": the epoch ended before it", p->o->step);
    else
        dl_error_set(&err, ENODATA, "--step",
                     "%" PRIu64 ": the epoch has %" PRIu64 " steps for this rank, 0 to %" PRIu64,
                     p->o->step, steps, steps - 1);
    return report_error(p->o, &err);
}

int verb_peek(const struct options *o)
{
    _cleanup_(peek_deinit)
    struct peek p = {.o = o};
    const char *warning;
    int r;

    r = start(&p);
    if (r == 0)
        r = load(&p);
    warning = p.epoch ? dl_epoch_warning(p.epoch) : NULL;
    if (warning)
        report_warning(o, warning);
    if (r == DL_END)
        return no_such_step(&p);
    if (r == 0)
        r = describe(&p);
    if (r < 0)
        return report_client(o, p.client, r);
    if (o->json)
        return report_json(o, contents_json(&p.contents));
    contents_print(stdout, &p.contents, o->values);
    return STATUS_DONE;
}
