/*
 * A plug-in that does what it is told, right or wrong: test_plugin.c is the one who tells. Which
 * table it shows is in the environment, PLUGIN_TABLE; what its functions do is its configuration, a
 * string.
 */
#include "daemon/data/plugin/dloader-plugin.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MODE_MAX = 512, LENGTH = 10 };

struct bad {
    const struct dl_plugin_host *host;
    char mode[MODE_MAX];
    struct dl_plugin_worker worker;
    unsigned inits;
    float constant[2];
};

static int is(const struct bad *bad, const char *mode)
{
    return strcmp(bad->mode, mode) == 0;
}

/* ---- samples -------------------------------------------------------------------------------- */

static int build_good(struct bad *bad, uint64_t index, struct dl_plugin_sample *s,
                      struct dl_plugin_rng *rng)
{
    const struct dl_plugin_host *h = bad->host;
    const uint64_t shape[2] = {1, 2};
    int16_t *numbers = h->alloc(s, 2 * sizeof *numbers);

    if (!numbers)
        return -ENOMEM;
    numbers[0] = (int16_t)index;
    numbers[1] = -3;
    h->begin(s, DL_PLUGIN_DICT, NULL);
    h->tensor(s, "numbers", DL_PLUGIN_INT16, 2, shape, numbers);
    h->tensor(s, "constant", DL_PLUGIN_FLOAT32, 1, &shape[1], bad->constant);
    h->tensor(s, "empty", DL_PLUGIN_UINT8, 1, (const uint64_t[]){0}, NULL);
    h->integer(s, "index", (int64_t)index);
    h->real(s, "uniform", h->uniform(rng));
    h->boolean(s, "odd", (int)(index & 1) << 8); /* any value but 0 is true */
    h->string(s, "text", "gr\xc3\xbcn", 5);
    h->bytes(s, "raw", "\0\xff", 2);
    h->string(s, "", NULL, 0);
    h->begin(s, DL_PLUGIN_LIST, "list");
    h->begin(s, DL_PLUGIN_TUPLE, NULL);
    h->integer(s, NULL, (int64_t)h->random(rng));
    h->integer(s, NULL, (int64_t)h->below(rng, 100));
    h->integer(s, NULL, (int64_t)h->below(rng, 0));
    h->end(s);
    h->end(s);
    return h->end(s);
}

/* What is wrong with each of these: the names say it. */
static int build_shape(const struct bad *bad, struct dl_plugin_sample *s)
{
    const struct dl_plugin_host *h = bad->host;
    static const uint64_t dims[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const uint64_t huge[2] = {1ull << 62, 4};
    static const uint8_t data[16];

    if (is(bad, "type 0"))
        return h->tensor(s, NULL, 0, 1, dims, data);
    if (is(bad, "type 99"))
        return h->tensor(s, NULL, 99, 1, dims, data);
    if (is(bad, "nine dimensions"))
        return h->tensor(s, NULL, DL_PLUGIN_UINT8, 9, dims, data);
    if (is(bad, "no shape"))
        return h->tensor(s, NULL, DL_PLUGIN_UINT8, 2, NULL, data);
    if (is(bad, "huge shape"))
        return h->tensor(s, NULL, DL_PLUGIN_UINT8, 2, huge, data);
    if (is(bad, "no data"))
        return h->tensor(s, NULL, DL_PLUGIN_FLOAT64, 1, dims, NULL);
    if (is(bad, "no text"))
        return h->string(s, NULL, NULL, 3);
    if (is(bad, "huge text"))
        return h->bytes(s, NULL, data, SIZE_MAX);
    if (is(bad, "huge memory"))
        return h->alloc(s, SIZE_MAX) ? 0 : -ENOMEM;
    if (is(bad, "not UTF-8"))
        return h->string(s, NULL, "\xff", 1);
    return 1;
}

static int build_tree(const struct bad *bad, struct dl_plugin_sample *s)
{
    const struct dl_plugin_host *h = bad->host;
    char key[200];

    memset(key, 'k', sizeof key);
    key[sizeof key - 1] = '\0';
    if (is(bad, "nothing"))
        return 0;
    if (is(bad, "left open"))
        return h->begin(s, DL_PLUGIN_DICT, NULL);
    if (is(bad, "ends early"))
        return h->end(s);
    if (is(bad, "two roots"))
        return h->integer(s, NULL, 1), h->integer(s, NULL, 2);
    if (is(bad, "key outside"))
        return h->integer(s, "x", 1);
    if (is(bad, "a tensor begins"))
        return h->begin(s, DL_PLUGIN_TENSOR, NULL);
    if (is(bad, "77 begins"))
        return h->begin(s, 77, NULL);
    h->begin(s, DL_PLUGIN_DICT, NULL);
    if (is(bad, "no key"))
        h->integer(s, NULL, 1);
    if (is(bad, "long key"))
        h->integer(s, key, 1);
    if (is(bad, "key not UTF-8"))
        h->integer(s, "\xff", 1);
    if (is(bad, "faults are ignored")) {
        h->tensor(s, "first", 99, 0, NULL, key);
        h->tensor(s, "second", 98, 0, NULL, key);
        h->alloc(s, SIZE_MAX);
        h->begin(s, 99, NULL);
    }
    for (int i = 0; is(bad, "too many") && i < 70000; i++)
        h->integer(s, "x", i);
    for (int i = 0; is(bad, "too deep") && i < 40; i++)
        h->begin(s, DL_PLUGIN_DICT, "x");
    h->end(s);
    return 0;
}

static int say(struct bad *bad, struct dl_plugin_sample *s)
{
    const struct dl_plugin_host *h = bad->host;
    char words[5000];

    memset(words, 'w', sizeof words);
    words[sizeof words - 1] = '\0';
    if (is(bad, "says ENOENT"))
        return h->fail(h, ENOENT, "no %s today, only %d", "fish", 7);
    if (is(bad, "says 0"))
        return h->fail(h, 0, "nothing");
    if (is(bad, "says one, returns another"))
        return h->fail(h, ENOENT, "gone"), -EPERM;
    if (is(bad, "says it at length"))
        return h->fail(h, EINVAL, "%s", words);
    if (is(bad, "says nothing"))
        return h->fail(h, EINVAL, NULL);
    if (is(bad, "says ENOBUFS"))
        return h->fail(h, ENOBUFS, "no room");
    if (is(bad, "is silent with ENODATA"))
        return -ENODATA;
    if (is(bad, "silent"))
        return -EIO;
    if (is(bad, "positive"))
        return 7;
    if (is(bad, "an end"))
        return DL_PLUGIN_END;
    if (is(bad, "absurd"))
        return INT_MIN;
    if (is(bad, "forgiven")) {
        h->fail(h, EIO, "not so bad");
        h->log(h, "line %d", 1);
        h->log(h, NULL);
        return h->integer(s, NULL, 1);
    }
    if (is(bad, "no sample")) {
        int sum = h->integer(NULL, NULL, 1) + h->real(NULL, NULL, 1) + h->boolean(NULL, NULL, 1) +
                  h->begin(NULL, DL_PLUGIN_DICT, NULL) + h->end(NULL) +
                  h->tensor(NULL, NULL, 1, 0, NULL, "") + h->string(NULL, NULL, "", 0) +
                  h->bytes(NULL, NULL, "", 0) + (h->alloc(NULL, 1) ? 1 : -EPERM) +
                  (int)h->nodes(NULL);
        return h->integer(s, NULL, sum);
    }
    return build_tree(bad, s);
}

static int bad_get(void *handle, uint64_t index, struct dl_plugin_sample *s,
                   struct dl_plugin_rng *rng)
{
    struct bad *bad = handle;

    if (strncmp(bad->mode, "map ", 4) == 0) {
        const void *data = NULL;
        uint64_t bytes = 77;
        int r = bad->host->map(bad->host, bad->mode + 4, &data, &bytes);
        return r < 0 ? r : bad->host->bytes(s, NULL, data, bytes);
    }
    if (is(bad, "forks") && index % 5 == 0)
        (void)fork(); /* and goes on in both processes */
    if (is(bad, "crashes") && index == 5) {
        bad->host->log(bad->host, "these are its last output");
        abort();
    }
    if (strncmp(bad->mode, "tokens", 6) == 0) {
        uint64_t n = index + 1;
        int64_t *tokens = bad->host->alloc(s, n * sizeof *tokens);
        memset(tokens, 0, n * sizeof *tokens);
        bad->host->begin(s, DL_PLUGIN_DICT, NULL);
        bad->host->integer(s, "id", (int64_t)index);
        bad->host->tensor(s, "tokens", DL_PLUGIN_INT64, 1, &n, tokens);
        return bad->host->end(s);
    }
    if (is(bad, "maps nothing"))
        return bad->host->map(bad->host, NULL, NULL, NULL);
    if (is(bad, "") || is(bad, "crashes") || is(bad, "forks") ||
        strncmp(bad->mode, "rows ", 5) == 0)
        return build_good(bad, index, s, rng);
    int r = build_shape(bad, s);
    return r > 0 ? say(bad, s) : r;
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static int bad_open(const struct dl_plugin_host *host, const char *config, void **ret)
{
    struct bad *bad = calloc(1, sizeof *bad);

    if (!bad)
        return host->fail(host, ENOMEM, "no memory");
    *bad = (struct bad){.host = host, .constant = {1.5f, -2}};
    if (config[0] == '"')
        snprintf(bad->mode, sizeof bad->mode, "%.*s", (int)strlen(config) - 2, config + 1);
    if (strncmp(bad->mode, "open ", 5) == 0) {
        int r = is(bad, "open fails") ? host->fail(host, EINVAL, "no such column")
                                      : (is(bad, "open silent") ? -ENOENT : 3);
        free(bad);
        return r;
    }
    *ret = bad;
    return 0;
}

static void bad_close(void *handle)
{
    free(handle);
}

static int bad_init(void *handle, const struct dl_plugin_worker *worker)
{
    struct bad *bad = handle;

    if (is(bad, "init fails"))
        return bad->host->fail(bad->host, ENODEV, "no device for worker %u", worker->number);
    bad->worker = *worker;
    bad->inits++;
    return 0;
}

static int bad_length(void *handle, uint64_t *ret)
{
    const struct bad *bad = handle;

    if (is(bad, "length fails"))
        return bad->host->fail(bad->host, EIO, "the index is broken");
    if (is(bad, "length 1"))
        return 1;
    if (strncmp(bad->mode, "rows ", 5) == 0) {
        *ret = strtoull(bad->mode + 5, NULL, 10);
        return 0;
    }
    if (strncmp(bad->mode, "tokens of ", 10) == 0) {
        *ret = strtoull(bad->mode + 10, NULL, 10);
        return 0;
    }
    *ret = is(bad, "length 2^63")      ? 1ull << 63
           : is(bad, "length unknown") ? DL_PLUGIN_LENGTH_UNKNOWN
                                       : LENGTH;
    return 0;
}

/* Ten times the truth, so that it shows who is asked. */
static int bad_lengths(void *handle, uint64_t first, uint64_t n, uint64_t *ret)
{
    const struct bad *bad = handle;

    if (is(bad, "tokens: fails"))
        return bad->host->fail(bad->host, EIO, "the table of lengths is broken");
    if (is(bad, "tokens: silent"))
        return -ENOENT;
    if (is(bad, "tokens: positive"))
        return 3;
    if (is(bad, "tokens: unknown"))
        return bad->host->fail(bad->host, ENOTSUP, "nobody counted them");
    if (is(bad, "tokens: unwritten"))
        return 0;
    for (uint64_t i = 0; i < n; i++)
        ret[i] = 10 * (first + i + 1);
    if (is(bad, "tokens: empty") && first <= 4 && first + n > 4)
        ret[4 - first] = 0;
    if (is(bad, "tokens: huge") && first <= 5 && first + n > 5)
        ret[5 - first] = (1ull << 32) + 1;
    if (is(bad, "tokens: sentinel") && first <= 5 && first + n > 5)
        ret[5 - first] = UINT32_MAX;
    return 0;
}

/* ---- iterating ------------------------------------------------------------------------------ */

/* This replica's numbers of all those below LENGTH. */
struct bad_iter {
    struct bad *bad;
    struct dl_plugin_replica replica;
    uint64_t next;
};

static int bad_iterate(void *handle, const struct dl_plugin_replica *replica, void **ret)
{
    struct bad *bad = handle;

    if (is(bad, "iterate fails"))
        return bad->host->fail(bad->host, EIO, "no rewinding");
    if (is(bad, "iterate silent"))
        return -EIO;
    struct bad_iter *it = malloc(sizeof *it);
    if (!it)
        return -ENOMEM;
    *it = (struct bad_iter){.bad = bad,
                            .replica = *replica,
                            .next = (uint64_t)replica->rank * replica->workers + replica->worker};
    *ret = it;
    return 0;
}

static int bad_next(void *iter, struct dl_plugin_sample *s, struct dl_plugin_rng *rng)
{
    struct bad_iter *it = iter;
    const struct dl_plugin_host *h = it->bad->host;
    uint64_t now = it->next;

    if (is(it->bad, "next positive"))
        return 2;
    if (is(it->bad, "half and end")) {
        h->begin(s, DL_PLUGIN_DICT, NULL);
        return DL_PLUGIN_END;
    }
    if (now >= LENGTH)
        return DL_PLUGIN_END;
    it->next += (uint64_t)it->replica.workers * it->replica.world;
    if (is(it->bad, "third fails") && now == 2)
        return h->fail(h, EILSEQ, "bad record");
    if (is(it->bad, "third is broken") && now == 2)
        return h->begin(s, DL_PLUGIN_LIST, NULL);
    h->begin(s, DL_PLUGIN_DICT, NULL);
    h->integer(s, "number", (int64_t)now);
    h->integer(s, "random", (int64_t)h->random(rng));
    h->integer(s, "seed", (int64_t)it->replica.seed);
    h->integer(s, "epoch", (int64_t)it->replica.epoch);
    h->integer(s, "inits", it->bad->inits);
    h->integer(s, "worker", it->bad->worker.number);
    h->integer(s, "count", it->bad->worker.count);
    h->integer(s, "worker seed", (int64_t)it->bad->worker.seed);
    return h->end(s);
}

static int bad_skip(void *iter, uint64_t n)
{
    struct bad_iter *it = iter;

    if (is(it->bad, "skip fails"))
        return it->bad->host->fail(it->bad->host, EIO, "cannot seek");
    if (is(it->bad, "skip positive"))
        return 5;
    uint64_t stride = (uint64_t)it->replica.workers * it->replica.world;
    uint64_t left = it->next < LENGTH ? (LENGTH - it->next - 1) / stride + 1 : 0;
    it->next += n * stride;
    return n > left ? DL_PLUGIN_END : 0;
}

static void bad_iter_close(void *iter)
{
    free(iter);
}

/* ---- collating ------------------------------------------------------------------------------ */

/* The int64 at `path` of each sample, summed, and what reading says of the first one's nodes. */
static int collate_sum(struct bad *bad, const struct dl_plugin_sample *const *samples, size_t n,
                       struct dl_plugin_sample *batch)
{
    const struct dl_plugin_host *h = bad->host;
    struct dl_plugin_node node;
    int64_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        if (h->find(samples[i], "x", &node) < 0 || node.type != DL_PLUGIN_INT64)
            return h->fail(h, EINVAL, "sample %zu has no int64 at x", i);
        sum += *(const int64_t *)node.data;
    }
    h->begin(batch, DL_PLUGIN_DICT, NULL);
    h->integer(batch, "sum", sum);
    h->begin(batch, DL_PLUGIN_LIST, "nodes");
    for (uint32_t i = 0; h->node(samples[0], i, &node) == 0; i++) {
        h->begin(batch, DL_PLUGIN_LIST, NULL);
        h->string(batch, NULL, node.key ? node.key : "-", node.key ? node.key_len : 1);
        h->integer(batch, NULL, node.kind);
        h->integer(batch, NULL, node.children);
        h->integer(batch, NULL, node.next);
        h->integer(batch, NULL, (int64_t)node.nbytes);
        h->end(batch);
    }
    h->end(batch);
    /* Borrowed from a sample. */
    if (h->find(samples[0], "words.1", &node) == 0)
        h->string(batch, "word", node.data, node.nbytes);
    return h->end(batch);
}

static int bad_collate(void *handle, const struct dl_plugin_sample *const *samples,
                       const uint64_t *numbers, size_t n, struct dl_plugin_sample *batch)
{
    struct bad *bad = handle;
    const struct dl_plugin_host *h = bad->host;
    struct dl_plugin_node node;

    if (is(bad, "collate fails"))
        return h->fail(h, EINVAL, "%zu samples from %llu on", n, (unsigned long long)numbers[0]);
    if (is(bad, "scribbles")) {
        struct dl_plugin_sample *theirs = (struct dl_plugin_sample *)samples[0];
        return h->integer(batch, NULL, h->begin(theirs, DL_PLUGIN_DICT, NULL) + h->end(theirs));
    }
    if (is(bad, "looks in vain"))
        return h->integer(batch, NULL,
                          (h->find(samples[0], "none", &node) == -ENOENT) +
                              (h->find(samples[0], "x.0", &node) == -ENOENT) +
                              (h->find(samples[0], "words.7", &node) == -ENOENT) +
                              (h->find(samples[0], NULL, &node) == -EINVAL) +
                              (h->find(samples[0], "", NULL) == -EINVAL) +
                              (h->find(NULL, "", &node) == -EINVAL) +
                              (h->node(samples[0], 1000, &node) == -ENOENT) +
                              (h->node(NULL, 0, &node) == -EINVAL) + (h->nodes(samples[0]) == 5));
    if (is(bad, "nothing"))
        return 0;
    return collate_sum(bad, samples, n, batch);
}

/* ---- tables --------------------------------------------------------------------------------- */

#define TABLE .abi = DL_PLUGIN_ABI, .size = sizeof(struct dl_plugin)
#define OPENS TABLE, .open = bad_open, .close = bad_close
#define MAP   .length = bad_length, .get = bad_get
#define ITER  .iterate = bad_iterate, .next = bad_next, .iter_close = bad_iter_close
#define INIT  .init = bad_init

/* As a later version of the header would have it. */
struct later {
    struct dl_plugin known;
    void *unknown[3];
};

static const struct dl_plugin map = {OPENS, INIT, MAP, .collate = bad_collate};
static const struct dl_plugin map_lengths = {OPENS, MAP, .lengths = bad_lengths};
static const struct dl_plugin iter = {OPENS, INIT, ITER, .skip = bad_skip};
static const struct dl_plugin iter_no_skip = {OPENS, ITER};
static const struct dl_plugin iter_length = {OPENS, ITER, .length = bad_length};
static const struct dl_plugin both = {OPENS, MAP, ITER};
static const struct dl_plugin neither = {OPENS, .length = bad_length, .next = bad_next};
static const struct dl_plugin collate = {OPENS, .collate = bad_collate};
static const struct dl_plugin no_open = {TABLE, MAP};
static const struct dl_plugin no_length = {OPENS, .get = bad_get};
static const struct dl_plugin no_next = {OPENS, .iterate = bad_iterate,
                                         .iter_close = bad_iter_close};
static const struct dl_plugin no_iter_close = {OPENS, .iterate = bad_iterate, .next = bad_next};
#define ITERATES .iterate = bad_iterate, .next = bad_next, .iter_close = bad_iter_close
static int bad_save_state(void *at, void *state, size_t room, size_t *ret_bytes)
{
    return -ENOTSUP;
}
static int bad_load_state(void *handle, const struct dl_plugin_replica *replica, const void *state,
                          size_t bytes, void **ret)
{
    return -ENOTSUP;
}
static const struct dl_plugin no_load_state = {OPENS, ITERATES, .save_state = bad_save_state};
static const struct dl_plugin no_save_state = {OPENS, ITERATES, .load_state = bad_load_state};
static const struct dl_plugin abi_2 = {.abi = 2, .size = sizeof(struct dl_plugin)};
static const struct dl_plugin too_small = {.abi = DL_PLUGIN_ABI, .size = 16, .open = bad_open};
static const struct dl_plugin too_large = {.abi = DL_PLUGIN_ABI, .size = UINT32_MAX};
static const struct later later_plain = {.known = {.abi = DL_PLUGIN_ABI,
                                                   .size = sizeof(struct later),
                                                   .open = bad_open,
                                                   .close = bad_close,
                                                   MAP}};
static const struct later later_more = {.known = {.abi = DL_PLUGIN_ABI,
                                                  .size = sizeof(struct later),
                                                  .open = bad_open,
                                                  .close = bad_close,
                                                  MAP},
                                        .unknown = {NULL, NULL, (void *)&map}};

static const struct {
    const char *name;
    const void *table;
} tables[] = {
    {"map", &map},
    {"map, lengths", &map_lengths},
    {"iter", &iter},
    {"iter, no skip", &iter_no_skip},
    {"iter, length", &iter_length},
    {"both", &both},
    {"neither", &neither},
    {"collate", &collate},
    {"no open", &no_open},
    {"no length", &no_length},
    {"no next", &no_next},
    {"no iter_close", &no_iter_close},
    {"no load_state", &no_load_state},
    {"no save_state", &no_save_state},
    {"abi 2", &abi_2},
    {"too small", &too_small},
    {"too large", &too_large},
    {"later, plain", &later_plain},
    {"later, more", &later_more},
    {"odd", (const char *)&map + 1},
    {"null", NULL},
};

const struct dl_plugin *dl_plugin_entry(void)
{
    const char *name = getenv("PLUGIN_TABLE");

    for (size_t i = 0; name && i < sizeof tables / sizeof tables[0]; i++)
        if (strcmp(name, tables[i].name) == 0)
            return tables[i].table;
    return &map;
}
