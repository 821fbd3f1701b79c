/*
 * `dlctl pretokenize`: tokenizes a dataset once and for all. The daemon's workers make the samples,
 * in the dataset's order, and their tokens are written as Megatron-LM's indexed dataset, which the
 * kind megatron reads without a tokenizer, or as Arrow's stream.
 */
#include "client/dlctl/ask.h"
#include "client/dlctl/options.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "client/dlctl/run/opening.h"
#include "client/dlctl/run/token_files.h"
#include "client/dlctl/spec.h"
#include "proto/common/figures.h"
#include "proto/yaml.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>

enum { LEFT_MAX = 256 };

static const char TOKENS[] = "tokens";

struct pretokenize {
    const struct options *o;
    struct dl_client *client;  /* owned */
    struct dl_loader *loader;  /* owned by the client */
    struct dl_epoch *epoch;    /* owned */
    struct token_files *files; /* owned */
    struct opening opening;
    struct progress progress;
    struct tally tally;
    char left[LEFT_MAX]; /* other leaves of the samples, which are not written, joined by commas */
    double seconds;
};

static void pretokenize_deinit(struct pretokenize *p)
{
    progress_end(&p->progress);
    p->epoch = dl_epoch_end(p->epoch);
    dl_loader_close(p->loader);
    dl_client_close(p->client);
    p->files = token_files_free(p->files);
}

/* ---- the spec ------------------------------------------------------------------------------- */

/* All samples once, in their own order, each as it is. */
static const char SPEC_PLAIN[] =
    "{sampler: {kind: sequential}, batch: {size: 64}, collate: {kind: none}}";

static int spec_copy_section(const struct value *from, const char *key, struct value *to)
{
    const struct value *section = value_get(from, key);
    struct value *copy;

    if (!section)
        return 0;
    int r = value_set(to, key, &copy);
    if (r == 0)
        r = value_copy(section, copy);
    if (r == 0 && copy->type == VALUE_MAP)
        value_unset(copy, "in_order"); /* of workers: the default is in order */
    return r;
}

/* Of the spec in the file: its dataset and workers. */
static int spec_make_plain(const char *path, struct value *ret, struct dl_error *err)
{
    static const char *const kept[] = {"dataset", "workers", "memory"};
    _cleanup_(value_deinit) struct value spec = {0};
    int r = spec_read_file(path, &spec, err);

    if (r == 0)
        r = yaml_parse(SPEC_PLAIN, sizeof SPEC_PLAIN - 1, path, ret, err);
    for (size_t i = 0; i < ARRAY_SIZE(kept) && r == 0; i++) {
        r = spec_copy_section(&spec, kept[i], ret);
        if (r < 0)
            r = dl_error_set(err, -r, path, "%s", strerror(-r));
    }
    return r;
}

static int spec_open(struct pretokenize *p, const struct value *spec)
{
    _cleanup_free_ char *copy = strdup(p->o->operand);
    json_t *json = render_json(spec);
    _cleanup_free_ char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    int r = -ENOMEM;

    json_decref(json);
    opening_begin(&p->opening, p->client, p->o);
    if (copy && text)
        r = dl_loader_open(p->client, text, strlen(text), dirname(copy), &p->loader);
    opening_end(&p->opening);
    return r;
}

/* ---- batches -------------------------------------------------------------------------------- */

static bool node_is(const struct dl_node *node, const char *key)
{
    return node->key && node->key_len == strlen(key) && memcmp(node->key, key, node->key_len) == 0;
}

/* Each name once, as far as there is room. */
static void batch_note_left(struct pretokenize *p, const struct dl_node *node)
{
    size_t len = strlen(p->left);
    char name[64];

    if (!node->key || node->key_len >= sizeof name)
        return;
    snprintf(name, sizeof name, "%.*s", (int)node->key_len, node->key);
    for (const char *at = p->left; (at = strstr(at, name)); at += node->key_len)
        if ((at == p->left || at[-1] == ' ') && strchr(",", at[node->key_len]))
            return;
    if (len + node->key_len + 3 < sizeof p->left)
        snprintf(p->left + len, sizeof p->left - len, "%s%s", len > 0 ? ", " : "", name);
}

static int batch_add_sample(struct pretokenize *p, const struct dl_node *node, struct dl_error *err)
{
    const struct dl_tensor *tensor = &node->tensor;

    if (tensor->dtype != DL_INT64 || tensor->ndim != 1)
        return dl_error_set(err, EINVAL, p->o->operand,
                            "its samples' tokens are no list of int64: their dtype is %s, and they "
                            "have %u dimensions; only what a tokenizer makes can be written",
                            dl_type_name(tensor->dtype), tensor->ndim);
    p->tally.samples++;
    p->tally.tokens += tensor->shape[0];
    return token_files_add(p->files, tensor->data, tensor->shape[0], err);
}

/* A list of samples, each a dict: its nodes are at depth 2. */
static int batch_add(struct pretokenize *p, struct dl_batch *batch, struct dl_error *err)
{
    uint32_t nodes = dl_batch_nodes(batch);
    uint64_t before = p->tally.samples;
    size_t samples;
    int r = 0;

    dl_batch_indices(batch, &samples);
    for (uint32_t i = 0; i < nodes && r == 0; i++) {
        struct dl_node node = {0};

        r = dl_batch_node(batch, i, &node);
        if (r < 0 || node.depth != 2)
            continue;
        if (node.kind == DL_NODE_TENSOR && node_is(&node, TOKENS))
            r = batch_add_sample(p, &node, err);
        else
            batch_note_left(p, &node);
    }
    if (r == 0 && p->tally.samples - before != samples)
        return dl_error_set(err, EINVAL, p->o->operand,
                            "its samples have no leaf %s; give its dataset a tokenizer", TOKENS);
    return r;
}

static int pretokenize_all(struct pretokenize *p, struct dl_error *err)
{
    const struct dl_epoch_options options = {.size = sizeof options, .world = 1};
    uint64_t begin = clock_ns();
    struct dl_batch *batch;
    int r = dl_epoch_start(p->loader, &options, &p->epoch);

    if (r == 0)
        progress_begin(&p->progress, dl_epoch_steps(p->epoch), p->o->quiet || p->o->json);
    while (r == 0 && (r = dl_epoch_next(p->epoch, -1, &batch)) == 0) {
        p->tally.batches++;
        p->tally.bytes += dl_batch_bytes(batch);
        r = batch_add(p, batch, err);
        if (progress_due(&p->progress))
            progress_draw(&p->progress, &p->tally);
    }
    progress_end(&p->progress);
    if (r == DL_END)
        r = token_files_finish(p->files, err);
    p->seconds = (double)(clock_ns() - begin) / 1e9;
    return r;
}

/* ---- what came of it ------------------------------------------------------------------------ */

static const char *pretokenize_dtype(const struct pretokenize *p)
{
    return token_files_width(p->files) == sizeof(uint16_t) ? "uint16" : "int32";
}

static int pretokenize_report(const struct pretokenize *p)
{
    char bytes[UNITS_MAX], seconds[UNITS_MAX];

    if (p->o->json)
        return report_json(p->o,
                           json_pack("{s:o, s:o, s:o, s:s, s:f, s:s}", "output",
                                     render_json_text(p->o->output), "documents",
                                     render_json_u64(p->tally.samples), TOKENS,
                                     render_json_u64(p->tally.tokens), "dtype",
                                     pretokenize_dtype(p), "seconds", p->seconds, "left", p->left));
    format_bytes((double)(p->tally.tokens * token_files_width(p->files)), bytes, sizeof bytes);
    format_seconds(p->seconds, seconds, sizeof seconds);
    printf("%" PRIu64 " documents of %" PRIu64 " tokens in %s\n", p->tally.samples, p->tally.tokens,
           seconds);
    if (token_files_is_arrow(p->files))
        printf("%s: %s of int32\n", p->o->output, bytes);
    else
        printf("%s.bin: %s of %s; %s.idx\n", p->o->output, bytes, pretokenize_dtype(p),
               p->o->output);
    if (*p->left)
        printf("not written: %s\n", p->left);
    return STATUS_DONE;
}

int verb_pretokenize(const struct options *o)
{
    _cleanup_(pretokenize_deinit) struct pretokenize p = {.o = o};
    _cleanup_(value_deinit) struct value spec = {0};
    struct dl_error err = {0};
    int r = spec_make_plain(o->operand, &spec, &err);

    if (r == 0)
        r = ask_connect(o, &p.client);
    if (r == 0)
        r = spec_open(&p, &spec);
    if (r == 0)
        r = token_files_new(o->output, &p.files, &err);
    if (r == 0)
        r = pretokenize_all(&p, &err);
    progress_end(&p.progress);
    if (err.code)
        return report_error(o, &err);
    return r < 0 ? report_client(o, p.client, r) : pretokenize_report(&p);
}
