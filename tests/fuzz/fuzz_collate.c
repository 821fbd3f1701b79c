/*
 * Collating samples of any shape. What is made is a tree that passes its check, in a slot of which
 * nothing is touched but its own bytes; the same samples make the same bytes; and what is refused
 * is refused in words, naming one of the samples.
 *
 * Input: a byte of kind, side and batching, one of multiple_of, one of the filling value, one of
 * the number of samples; then each sample as a program of single bytes: what to add, and its size.
 * Where the first byte says so, what is planned follows: a byte of how, one of the cut, one of the
 * rows, and a byte for each length and row, or what would be right.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/input.h"

#include "daemon/data/collate/collate_batch.h"

enum { HEAD = 4, SAMPLES = 8, SLOT = 1 << 18, GUARD = 4096, LARGEST = 64 };

static _Alignas(4096) uint8_t slot_a[SLOT + GUARD], slot_b[SLOT + GUARD];
/* Of a tensor beyond the slot: no more is looked at, as that is what it may be cut to. */
static const uint8_t beginning[SLOT];

static void add_tensor(struct input *in, struct sample *sample, const char *key)
{
    uint64_t shape[TREE_DIMS], bytes;
    uint8_t form = take(in);
    uint32_t ndim = form >> 4 & 7;

    for (uint32_t i = 0; i < ndim; i++) {
        uint8_t dim = take(in);
        shape[i] = dim < 0xf0 ? dim & 7 : 1ULL << (dim & 0xf) * 4;
    }
    if (!tensor_bytes(form & 15, ndim, shape, &bytes))
        bytes = 0; /* an error */
    if (bytes > SLOT) {
        sample_tensor(sample, key, form & 15, ndim, shape, beginning);
        return;
    }
    uint8_t *data = sample_alloc(sample, bytes);
    if (data)
        memset(data, take(in), bytes);
    sample_tensor(sample, key, form & 15, ndim, shape, data);
}

static void add_text(struct input *in, struct sample *sample, enum tree_kind kind, const char *key)
{
    size_t want = take(in) % LARGEST, len;
    const uint8_t *text = take_bytes(in, want, &len);

    sample_text(sample, kind, key, text, len);
}

static const char *const keys[] = {"a", "b", "a_mask", "a_lengths", "a.b", "", "0", "long"};

/* Until the root is whole, or the program ends. */
static void build(struct input *in, struct sample *sample)
{
    do {
        uint8_t op = take(in);
        bool dict = sample->depth > 0 &&
                    sample->tree.nodes[sample->open[sample->depth - 1]].kind == TREE_DICT;
        const char *key = dict ? keys[op >> 3 & 7] : NULL;
        switch (op & 7) {
        case 0:
            sample_end(sample);
            break;
        case 1:
            add_tensor(in, sample, key);
            break;
        case 2:
            sample_begin(sample, TREE_DICT, key);
            break;
        case 3:
            sample_begin(sample, TREE_LIST, key);
            break;
        case 4:
            sample_begin(sample, TREE_TUPLE, key);
            break;
        case 5:
            add_text(in, sample, op & 0x80 ? TREE_STRING : TREE_BYTES, key);
            break;
        case 6:
            sample_int(sample, key, op);
            break;
        case 7:
            sample_float(sample, key, op);
            break;
        }
    } while (sample->error == 0 && sample->depth > 0 && in->len > 0);
    while (sample->error == 0 && sample->depth > 0)
        sample_end(sample);
}

static struct dl_spec read_spec(struct input *in, char **fields)
{
    static const double values[] = {0, 1, -1, 255, 256, 0.5, 1e300, -1e-30};
    uint8_t how = take(in), multiple = take(in);
    struct dl_spec spec = {.batch_size = how & 0x80 ? 0 : SAMPLES};

    spec.collate.kind = how % 3 == 0 ? COLLATE_DEFAULT : how % 3 == 1 ? COLLATE_PAD : COLLATE_NONE;
    if (how & 0x10 && how % 3 == 0)
        spec.collate.kind = COLLATE_PACK;
    spec.collate.length = how & 0x10 ? 8 : 0;
    spec.collate.side = how & 0x40 ? PAD_LEFT : PAD_RIGHT;
    spec.collate.multiple_of = multiple < 0xf0 ? multiple & 15 : UINT64_MAX >> (multiple & 15);
    spec.collate.value = values[take(in) & 7];
    if (how & 0x20) {
        spec.collate.fields = fields;
        spec.collate.n_fields = 2;
    }
    return spec;
}

static void check_texts(const uint8_t *encoded, uint32_t count)
{
    const struct tree_node *nodes = (const void *)encoded;
    const char *text;
    uint64_t len;

    for (uint32_t i = 0; i < count; i++) {
        if (nodes[i].kind != TREE_STRING && nodes[i].kind != TREE_BYTES)
            continue;
        for (uint64_t s = 0; s < (nodes[i].ndim ? nodes[i].shape[0] : 1); s++)
            FUZZ_ASSERT(tree_text(&nodes[i], slot_a, s, &text, &len));
    }
}

static void check_batch(struct collate *c, const struct batch_layout *layout, uint64_t begin)
{
    struct dl_error err = {0};

    FUZZ_ASSERT(layout->tree_off >= begin && layout->tree_off % 64 == 0);
    FUZZ_ASSERT(layout->data_off >= layout->tree_off + layout->tree_len);
    FUZZ_ASSERT(layout->used >= layout->data_off);
    if (layout->used > SLOT)
        return;
    memset(slot_a, 0xaa, begin);
    memset(slot_a + begin, 0x33, layout->used - begin);
    memset(slot_a + layout->used, 0xaa, GUARD);
    memset(slot_b + begin, 0xcc, layout->used - begin);
    collate_write(c, slot_a);
    collate_write(c, slot_b);
    FUZZ_ASSERT(memcmp(slot_a + begin, slot_b + begin, layout->used - begin) == 0);
    for (uint64_t i = 0; i < begin; i++)
        FUZZ_ASSERT(slot_a[i] == 0xaa);
    for (uint64_t i = 0; i < GUARD; i++)
        FUZZ_ASSERT(slot_a[layout->used + i] == 0xaa);
    FUZZ_ASSERT(tree_check(slot_a + layout->tree_off, layout->tree_len, layout->tree_count,
                           layout->used, &err) == 0);
    check_texts(slot_a + layout->tree_off, layout->tree_count);
}

enum { PLANNED_HONEST = 1, PLANNED_HUGE = 2, PLANNED_SHORT = 4, ROWS = 8 };

/* What a daemon that knows the samples would plan, a row for each. */
static void plan_honestly(const struct sample *samples, size_t n, struct slot_planned *ret)
{
    ret->rows = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        uint32_t leaf;
        bool has = samples[i].error == 0 && collate_length_leaf(&samples[i].tree, NULL, &leaf);
        ret->lists[i] = has ? (uint32_t)samples[i].tree.nodes[leaf].shape[0] : 1;
        ret->lists[n + i] = 1;
    }
}

/* What is planned of the samples, as it may stand in a slot. False: it is refused, in words. */
static bool read_planned(struct input *in, const struct sample *samples, size_t n,
                         struct planned *ret)
{
    static _Alignas(64) uint8_t slot[SLOT_HEADER_BYTES + 256];
    uint8_t how = take(in);
    struct slot_planned *block = slot_planned(slot, n);
    struct dl_error err = {0};

    memset(slot, 0, sizeof slot);
    block->cut = take(in) & 7;
    block->rows = take(in) % ROWS;
    if (how & PLANNED_HONEST)
        plan_honestly(samples, n, block);
    for (size_t i = 0; !(how & PLANNED_HONEST) && i < n + block->rows; i++)
        block->lists[i] = take(in);
    uint64_t bytes = slot_planned_bytes(n, block->rows);
    if (how & PLANNED_SHORT)
        bytes -= min_u64(bytes, (uint64_t)8 * (how >> 3));
    if (how & PLANNED_HUGE)
        block->rows = UINT32_MAX - how;
    struct slot_task task = {.samples = (uint32_t)n, .planned = bytes};
    int r = planned_read(ret, slot, &task, &err);
    FUZZ_ASSERT(r == 0 || (err.message[0] && err.code == -r));
    return r == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const uint64_t numbers[SAMPLES] = {7, 6, 5, 4, 3, 2, 1, 0};
    struct input in = {data, len};
    char *fields[] = {(char *)"a", (char *)"b.0"};
    struct sample samples[SAMPLES] = {0};
    struct arena arena = {0};
    struct collate *c = NULL;
    struct dl_error err = {0};
    size_t n, bad = SIZE_MAX;

    if (len < HEAD)
        return 0;
    bool is_planned = (data[0] & 0x90) == 0x10;
    struct planned planned = {0};
    struct dl_spec spec = read_spec(&in, fields);
    n = spec.batch_size ? 1 + take(&in) % SAMPLES : 1;
    for (size_t i = 0; i < n; i++) {
        samples[i].arena = &arena;
        build(&in, &samples[i]);
    }
    FUZZ_ASSERT(collate_new(&spec, &(struct data_env){0}, &c, &err) == 0);
    uint64_t begin = 128 + 8 * n;
    struct batch_layout layout;
    int r = 0;
    if (is_planned && !read_planned(&in, samples, n, &planned))
        is_planned = false;
    else if (is_planned)
        r = collate_fit(c, samples, numbers, n, &planned, &bad, &err);
    if (r == 0)
        r = collate_measure(c, samples, numbers, n, is_planned ? &planned : NULL, begin, &layout,
                            &bad, &err);
    if (r == 0)
        check_batch(c, &layout, begin);
    else
        FUZZ_ASSERT((bad < n || (bad == SIZE_MAX && spec.collate.kind == COLLATE_PACK)) &&
                    err.message[0] && err.code == -r);
    planned_deinit(&planned);
    collate_free(c);
    for (size_t i = 0; i < n; i++)
        sample_deinit(&samples[i]);
    arena_deinit(&arena);
    return 0;
}
