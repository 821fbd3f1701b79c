/*
 * `dlctl check`: single-process loading, for debugging and as the reference that `run` must equal.
 * What the workers do is done here, into one slot of private memory again and again.
 */
#include "client/dlclient.h"
#include "client/dlctl/offline/offline.h"
#include "client/dlctl/options.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "client/dlctl/run/digest.h"
#include "client/dlctl/run/outcome.h"
#include "client/dlctl/run/stats.h"
#include "daemon/data/local.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>

/* Slots and the client library name node kinds alike, so digests of both are comparable. */
_Static_assert((int)TREE_TENSOR == (int)DL_NODE_TENSOR && (int)TREE_DICT == (int)DL_NODE_DICT &&
                   (int)TREE_LIST == (int)DL_NODE_LIST && (int)TREE_TUPLE == (int)DL_NODE_TUPLE &&
                   (int)TREE_STRING == (int)DL_NODE_STRING &&
                   (int)TREE_BYTES == (int)DL_NODE_BYTES && (int)TREE_DIMS == (int)DIGEST_DIMS,
               "one meaning on both sides");

/* All that one check holds. */
struct check {
    const struct options *o;
    struct offline_watch watch;
    struct dl_spec spec;         /* owned */
    struct mix_changes *changes; /* counted; NULL: none */
    struct local *local;         /* owned */
    struct local_pass **passes;  /* owned; of the current epoch, one for each rank asked for */
    uint64_t n_passes;
    uint64_t replicas;     /* number of successive ranks that have the same batches */
    struct digest *digest; /* owned; NULL unless asked for */
    void *slot;            /* owned mapping */
    uint64_t slot_bytes;
    uint64_t aside_ns; /* spent on describing, which is no loading */
    struct outcome outcome;
};

static void check_deinit(struct check *c)
{
    if (c->slot)
        munmap(c->slot, c->slot_bytes);
    for (uint64_t i = 0; c->passes && i < c->n_passes; i++)
        local_end(c->passes[i]);
    free(c->passes);
    digest_free(c->digest);
    local_free(c->local);
    mix_changes_unref(c->changes);
    spec_deinit(&c->spec);
    outcome_deinit(&c->outcome);
}

static int check_map_slot(struct check *c, uint64_t bytes, struct dl_error *err)
{
    void *slot;

    bytes = align_up(bytes, SLOT_ALIGN);
    slot = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slot == MAP_FAILED)
        return dl_error_set(err, errno, "batch", "needs %" PRIu64 " bytes of memory: %s", bytes,
                            strerror(errno));
    if (c->slot)
        munmap(c->slot, c->slot_bytes);
    c->slot = slot;
    c->slot_bytes = bytes;
    return 0;
}

static int check_init(struct check *c, struct dl_error *err)
{
    bool drawn;
    int r;

    r = offline_spec(c->o, &c->spec, &drawn, err);
    if (r == 0)
        r = offline_changes(c->o, &c->spec, &c->changes, err);
    if (r == 0)
        r = offline_replicas(c->o, &c->spec, &c->replicas, err);
    offline_watch_begin(&c->watch, c->o);
    if (r == 0)
        r = local_new(&c->spec, &c->watch.env, &c->local, err);
    offline_watch_end(&c->watch);
    if (r == 0)
        r = check_map_slot(c, local_slot_bytes(c->local), err);
    if (r < 0)
        return r;
    c->n_passes = c->o->rank_all ? c->o->world : 1;
    c->passes = calloc(c->n_passes, sizeof(struct local_pass *));
    if (!c->passes || (c->o->digest && digest_new(&c->digest) < 0))
        return dl_error_set(err, ENOMEM, "batch", "%s", strerror(ENOMEM));
    c->outcome.length = local_length(c->local);
    c->outcome.seed = c->spec.seed;
    return outcome_set_name(&c->outcome, c->spec.name) < 0
               ? dl_error_set(err, ENOMEM, "name", "%s", strerror(ENOMEM))
               : 0;
}

/* Loads the pass's next step into the slot, a larger one if it needs that. 0 or LOCAL_END. */
static int check_fill(struct check *c, struct local_pass *pass, struct dl_error *err)
{
    uint64_t step, used = 0;
    int r;

    while ((r = local_next(pass, c->slot, c->slot_bytes, &step, &used, err)) == -ENOBUFS) {
        r = check_map_slot(c, used, err);
        if (r < 0)
            break;
    }
    if (r == -ENODATA)
        return dl_error_set(err, EINVAL, "sampler.kind",
                            "client: only a client has this order; write another sampler to "
                            "check the dataset");
    return r;
}

static const struct tree_node *check_slot_nodes(const struct check *c)
{
    const struct slot_header *header = c->slot;

    return (const void *)((const char *)c->slot + header->tree_off);
}

static void check_feed_digest(struct check *c)
{
    const struct slot_header *header = c->slot;
    const struct tree_node *nodes = check_slot_nodes(c);

    digest_batch(c->digest, header->step, slot_indices(c->slot), header->samples,
                 header->tree_count);
    for (uint32_t i = 0; i < header->tree_count; i++) {
        const struct tree_node *node = &nodes[i];
        digest_node(c->digest, &(struct digest_node){
                                   .kind = node->kind,
                                   .children = node->children,
                                   .key = node->key_len ? tree_key(nodes, node) : NULL,
                                   .key_len = node->key_len,
                                   .dtype = node->dtype,
                                   .ndim = node->ndim,
                                   .shape = node->shape,
                                   .data = (const char *)c->slot + node->offset,
                                   .nbytes = node->nbytes,
                               });
    }
}

static void check_tally_tokens(struct tally *tally, void *slot)
{
    const struct slot_header *header = slot;
    const struct slot_planned *planned = slot_planned(slot, header->samples);

    if (header->planned == 0)
        return;
    tally->padded += planned->padded;
    for (uint32_t i = 0; i < header->samples; i++)
        tally->tokens += planned->lists[i];
}

/* Counts the batch in the slot, after checking it as a client would. */
static int check_count_batch(struct check *c, const struct local_pass *pass, struct dl_error *err)
{
    const struct slot_header *header = c->slot;
    const struct tree_node *nodes = check_slot_nodes(c);
    int r;

    r = tree_check(nodes, header->tree_len, header->tree_count, c->slot_bytes, err);
    if (r < 0)
        return r;
    c->outcome.tally.batches++;
    c->outcome.tally.samples += header->samples;
    c->outcome.tally.repeated += local_repeated(pass);
    for (uint32_t i = 0; i < header->tree_count; i++)
        c->outcome.tally.bytes += nodes[i].nbytes;
    check_tally_tokens(&c->outcome.tally, c->slot);
    return 0;
}

/* Adds a text: what it is, and how its first string begins. */
static int check_describe_text(struct check *c, const struct tree_node *node, const char *path)
{
    struct leaf leaf = {
        .dtype = node->kind == TREE_STRING ? "string" : "bytes",
        .ndim = node->ndim,
        .shape = {node->shape[0]},
        .is_text = true,
    };
    const char *text;
    uint64_t len;

    if (tree_text(node, c->slot, 0, &text, &len))
        render_quoted(text, len, leaf.quoted, sizeof leaf.quoted);
    return outcome_add_leaf(&c->outcome, path, &leaf);
}

/* Adds `node` and what is below it to the outcome's leaves; `path` ends with its own name. */
static int check_describe(struct check *c, const struct tree_node *nodes,
                          const struct tree_node *node, const char *path)
{
    const struct tree_node *child = node + 1;
    struct leaf leaf = {.dtype = dtype_name(node->dtype), .ndim = node->ndim};

    if (node->kind == TREE_TENSOR) {
        memcpy(leaf.shape, node->shape, sizeof leaf.shape);
        leaf.has_stats = tensor_stats(node->dtype, (const char *)c->slot + node->offset,
                                      node->nbytes, &leaf.stats);
        return outcome_add_leaf(&c->outcome, path, &leaf);
    }
    if (node->kind == TREE_STRING || node->kind == TREE_BYTES)
        return check_describe_text(c, node, path);
    for (uint32_t i = 0; i < node->children; i++, child = tree_skip(child)) {
        _cleanup_free_ char *below = NULL;
        const char *dot = *path ? "." : "";
        int r = node->kind == TREE_DICT ? asprintf(&below, "%s%s%.*s", path, dot,
                                                   (int)child->key_len, tree_key(nodes, child))
                                        : asprintf(&below, "%s%s%" PRIu32, path, dot, i);
        if (r < 0) {
            below = NULL; /* asprintf leaves it undefined */
            return -ENOMEM;
        }
        r = check_describe(c, nodes, child, below);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The tree of the first batch, at the cost of reading all of it. */
static int check_describe_first(struct check *c, struct dl_error *err)
{
    const struct tree_node *root = check_slot_nodes(c);
    uint64_t begin = clock_ns();
    int r = check_describe(c, root, root, "");

    c->aside_ns = clock_ns() - begin;
    return r < 0 ? dl_error_set(err, -r, "batch", "%s", strerror(-r)) : 0;
}

/* 0 or LOCAL_END. */
static int check_load_step(struct check *c, struct local_pass *pass, struct dl_error *err)
{
    int r;

    r = check_fill(c, pass, err);
    if (r != 0)
        return r;
    r = check_count_batch(c, pass, err);
    if (r == 0 && c->outcome.tally.batches == 1)
        r = check_describe_first(c, err);
    if (r == 0 && c->digest)
        check_feed_digest(c);
    return r;
}

static int check_start_passes(struct check *c, uint64_t epoch, struct dl_error *err)
{
    const struct options *o = c->o;
    int r = 0;

    c->outcome.steps = 0;
    for (uint64_t i = 0; r == 0 && i < c->n_passes; i++) {
        struct local_where where = {.epoch = epoch,
                                    .rank = (uint32_t)((o->rank_all ? i : o->rank) / c->replicas),
                                    .world = (uint32_t)(o->world / c->replicas),
                                    .changes = c->changes};
        r = local_start(c->local, &where, &c->passes[i], err);
        if (r == 0)
            c->outcome.steps = max_u64(c->outcome.steps, local_steps(c->passes[i]));
    }
    return r;
}

static int check_add_place(struct value *row, const struct bad_place *place)
{
    const struct {
        const char *key;
        uint32_t n;
    } all[] = {{"rank", place->rank}, {"world", place->world}, {"worker", place->worker}};
    struct value *v;
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(all) && r == 0; i++)
        r = place->world ? value_set_uint(row, all[i].key, all[i].n)
                         : value_set(row, all[i].key, &v);
    return r;
}

static int check_add_bad_sample(const struct check *c, const struct bad_sample *sample,
                                struct value *rows)
{
    bool skipped = c->spec.on_error == ON_ERROR_SKIP;
    struct value *row, *v;

    int r = value_push(rows, &row);
    if (r == 0) {
        row->type = VALUE_MAP;
        r = value_set_uint(row, "sample", sample->index);
    }
    if (r == 0)
        r = check_add_place(row, &sample->place);
    if (r == 0)
        r = value_set_uint(row, "errno", (uint64_t)sample->code);
    if (r == 0)
        r = value_set_string(row, "done", skipped ? "skipped" : "substituted");
    if (r == 0)
        r = value_set_uint(row, "seen", sample->seen);
    if (r == 0)
        r = sample->text ? value_set_string(row, "message", sample->text)
                         : value_set(row, "message", &v);
    return r;
}

/* What was bad in all that was loaded. */
static int check_describe_bad(struct check *c, struct dl_error *err)
{
    const struct quarantine *q = local_quarantine(c->local);
    int r = 0;

    if (c->spec.on_error <= ON_ERROR_RAISE)
        return 0;
    c->outcome.bad.type = VALUE_ARRAY;
    for (uint32_t i = 0; i < q->n && i < QUARANTINE_TOLD && r == 0; i++)
        r = check_add_bad_sample(c, &q->samples[i], &c->outcome.bad);
    return r < 0 ? dl_error_set(err, -r, "workers.on_error", "%s", strerror(-r)) : 0;
}

/* The ranks take a step each in turn, as `run` has them do. */
static int check_load_epoch(struct check *c, uint64_t epoch, struct dl_error *err)
{
    uint64_t left = c->n_passes;
    int r;

    r = check_start_passes(c, epoch, err);
    for (uint64_t k = 0; r == 0 && left > 0 && k < c->o->batches; k++) {
        for (uint64_t i = 0; r == 0 && i < c->n_passes; i++) {
            if (!c->passes[i])
                continue;
            r = check_load_step(c, c->passes[i], err);
            if (r == LOCAL_END) {
                c->passes[i] = local_end(c->passes[i]);
                left--;
                r = 0;
            }
        }
    }
    for (uint64_t i = 0; i < c->n_passes; i++)
        c->passes[i] = local_end(c->passes[i]);
    return r;
}

int verb_check(const struct options *o)
{
    _cleanup_(check_deinit) struct check c = {.o = o};
    struct dl_error err = {0};
    uint64_t begin;
    int r;

    r = check_init(&c, &err);
    begin = clock_ns();
    for (uint64_t i = 0; i < o->epochs && r == 0; i++)
        r = check_load_epoch(&c, o->epoch + i, &err);
    if (r == 0)
        r = check_describe_bad(&c, &err);
    if (r < 0)
        return report_error(o, &err);
    c.outcome.seconds = (double)(clock_ns() - begin - c.aside_ns) / 1e9;
    if (c.digest)
        digest_text(c.digest, c.outcome.digest);
    return outcome_report(o, &c.outcome);
}
