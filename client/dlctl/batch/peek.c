/* `dlctl peek`: what is in one batch of a loader. */
#include "client/dlctl/batch/contents.h"
#include "client/dlctl/batch/leaves.h"
#include "client/dlctl/batch/single.h"
#include "client/dlctl/open.h"
#include "client/dlctl/report.h"
#include "client/dlctl/verbs.h"

#include <errno.h>
#include <inttypes.h>

struct peek {
    struct single single;
    struct contents contents;
};

static void peek_deinit(struct peek *p)
{
    single_deinit(&p->single);
    contents_deinit(&p->contents);
}

/* ---- looking at it -------------------------------------------------------------------------- */

static int add_tensor(struct peek *p, const struct dl_node *node, const char *path)
{
    const struct dl_tensor *t = &node->tensor;
    struct content *c = contents_add(&p->contents, path, DL_NODE_TENSOR);
    uint64_t n = min_u64(p->single.o->values, t->nbytes / max_u64(dl_type_bytes(t->dtype), 1));

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
    uint64_t n = min_u64(p->single.o->values, node->count);

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
        int r = dl_batch_node_text(p->single.batch, at, c->n_values, &text, &len);

        if (r < 0)
            return r;
        start->nbytes = len;
        start->kept = (uint32_t)min_u64(len, CONTENTS_TEXT);
        memcpy(start->bytes, text, start->kept);
    }
    return 0;
}

/* An object's first child is its pickle; of that only the class is told. */
static int add_object(struct peek *p, const struct dl_node *object, uint32_t at, const char *path)
{
    struct content *c = contents_add(&p->contents, path, DL_NODE_OBJECT);
    _cleanup_free_ void *copy = NULL; /* a worker may still change what is in shared memory */
    const char *pickle;
    size_t len;
    int r;

    if (!c)
        return -ENOMEM;
    r = dl_batch_node_text(p->single.batch, at + 1, 0, &pickle, &len);
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

static int look(void *data, const char *path, const struct dl_node *node, uint32_t at)
{
    struct peek *p = data;

    switch (node->kind) {
    case DL_NODE_TENSOR:
        return add_tensor(p, node, path);
    case DL_NODE_STRING:
    case DL_NODE_BYTES:
        return add_text(p, node, at, path);
    case DL_NODE_OBJECT:
        return add_object(p, node, at, path);
    case DL_NODE_DICT:
    case DL_NODE_LIST:
    case DL_NODE_TUPLE:
        return contents_add(&p->contents, path, node->kind) ? 0 : -ENOMEM;
    }
    return 0;
}

static int describe(struct peek *p)
{
    const struct single *one = &p->single;
    struct contents *c = &p->contents;
    const uint64_t *indices = dl_batch_indices(one->batch, &c->samples);

    c->seed = dl_loader_seed(one->loader);
    c->epoch = one->o->epoch;
    c->step = dl_batch_step(one->batch);
    c->rank = one->o->rank;
    c->world = one->o->world;
    c->fed = one->fed;
    c->nbytes = dl_batch_bytes(one->batch);
    c->name = strdup(dl_loader_name(one->loader));
    c->indices = calloc(max_u64(c->samples, 1), sizeof *c->indices);
    if (!c->name || !c->indices)
        return -ENOMEM;
    if (c->samples > 0)
        memcpy(c->indices, indices, c->samples * sizeof *indices);
    return leaves_walk(one->batch, look, p);
}

int verb_peek(const struct options *o)
{
    _cleanup_(peek_deinit)
    struct peek p = {.single = {.o = o, .chooses = true}};
    int r = dl_client_connect(&p.single.client, o->socket, "dlctl peek " DLOADER_VERSION);

    if (r == 0)
        r = open_operand(p.single.client, o->operand, &p.single.loader);
    if (r == 0)
        r = single_load(&p.single);
    if (r == DL_END)
        return single_no_such_step(&p.single);
    if (r == 0)
        r = describe(&p);
    if (r < 0)
        return report_client(o, p.single.client, r);
    if (o->json)
        return report_json(o, contents_json(&p.contents));
    contents_print(stdout, &p.contents, o->values);
    return STATUS_DONE;
}
