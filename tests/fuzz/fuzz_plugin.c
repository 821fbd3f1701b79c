/*
 * Bytes as the calls of a plug-in that builds a sample: right, wrong, in any order. Either the
 * sample is refused in words, or it is a tree that can be walked to its end, and that reading tells
 * the same of as building was told.
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/input.h"

#include "daemon/data/plugin/plugin_private.h"

enum { FIND_STEPS = 8 };

/* A part of the input itself. */
static const uint8_t *take_some(struct input *in, size_t *ret_len)
{
    size_t want = take(in) % 64;

    return take_bytes(in, want, ret_len);
}

static const char *take_key(struct input *in, char text[static 256])
{
    static const char *const keys[] = {NULL, "a", "b.c", "", "\xff"};
    uint8_t choice = take(in);

    if (choice < ARRAY_SIZE(keys))
        return keys[choice];
    memset(text, 'k', choice);
    text[choice] = '\0';
    return text;
}

static uint64_t take_size(struct input *in)
{
    return (uint64_t)take(in) << (take(in) % 64);
}

static void add_tensor(const struct dl_plugin_host *host, struct dl_plugin_sample *sample,
                       const char *key, struct input *in)
{
    uint64_t shape[16];
    uint32_t type = take(in), ndim = take(in) % 17;
    uint8_t how = take(in);

    for (uint32_t i = 0; i < ndim && i < ARRAY_SIZE(shape); i++)
        shape[i] = take_size(in);
    (void)host->tensor(sample, key, type, ndim, how & 1 ? NULL : shape, how & 2 ? NULL : shape);
}

static void call(const struct dl_plugin_host *host, struct dl_plugin_sample *sample,
                 struct input *in)
{
    char text[256];
    uint8_t what = take(in) % 10;
    const char *key = take_key(in, text);
    size_t len;

    switch (what) {
    case 0:
    case 1:
        (void)host->begin(sample, take(in), key);
        break;
    case 2:
        (void)host->end(sample);
        break;
    case 3:
        add_tensor(host, sample, key, in);
        break;
    case 4:
    case 5: {
        const uint8_t *some = take_some(in, &len);
        (void)(what == 4 ? host->string(sample, key, (const char *)some, len)
                         : host->bytes(sample, key, some, len));
        break;
    }
    case 6:
        (void)host->integer(sample, key, (int64_t)take_size(in));
        break;
    case 7:
        (void)host->real(sample, key, (double)take_size(in));
        break;
    case 8:
        (void)host->boolean(sample, key, take(in));
        break;
    default:
        len = take_size(in);
        if (len <= 4096 || len > DL_MAX_SEGMENT_BYTES)
            (void)host->alloc(sample, len);
    }
}

static void check_node(const struct dl_plugin_host *host, const struct dl_plugin_sample *sample,
                       uint32_t i)
{
    struct dl_plugin_node node;

    FUZZ_ASSERT(host->node(sample, i, &node) == 0);
    FUZZ_ASSERT(node.next > i && node.next <= host->nodes(sample));
    FUZZ_ASSERT(node.key_len <= DL_MAX_NAME_BYTES && (node.key || node.key_len == 0));
    FUZZ_ASSERT((node.children > 0) <= (node.next > i + 1));
    if (node.kind == DL_PLUGIN_TENSOR) {
        uint64_t bytes;
        FUZZ_ASSERT(tensor_bytes(node.type, node.ndim, node.shape, &bytes));
        FUZZ_ASSERT(bytes == node.nbytes && (node.data || bytes == 0));
    } else if (node.kind == DL_PLUGIN_STRING || node.kind == DL_PLUGIN_BYTES) {
        FUZZ_ASSERT(node.data && node.children == 0);
    } else {
        FUZZ_ASSERT(node.kind >= DL_PLUGIN_DICT && node.kind <= DL_PLUGIN_TUPLE && !node.data);
    }
}

static void check_whole(const struct dl_plugin_host *host, const struct dl_plugin_sample *sample,
                        struct input *in)
{
    struct dl_plugin_node node;
    char path[2 * FIND_STEPS + 1];

    FUZZ_ASSERT(host->find(sample, "", &node) == 0 && node.next == host->nodes(sample));
    FUZZ_ASSERT(!node.key);
    for (uint32_t i = 0; i < host->nodes(sample) && i < 64; i++)
        check_node(host, sample, i);
    for (int i = 0; i < 2 * FIND_STEPS; i++)
        path[i] = i % 2 ? '.' : "a0b1"[take(in) % 4];
    path[2 * (take(in) % FIND_STEPS)] = '\0';
    path[sizeof path - 1] = '\0';
    (void)host->find(sample, path, &node);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static char name[] = "/plugin.so";
    struct plugin p = {.path = name};
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error why = {0}, err = {0};
    struct dl_plugin_sample building = {.sample = &sample, .why = &why};
    struct input in = {.data = data, .len = len};

    plugin_host_init(&p);
    while (in.len > 0 && sample.tree.count < 1000)
        call(&p.host, &building, &in);
    if (sample_check(&sample, &err) < 0) {
        FUZZ_ASSERT(err.code > 0 && err.message[0]);
        FUZZ_ASSERT(!sample.error == !why.code && (!why.code || why.message[0]));
    } else {
        FUZZ_ASSERT(why.code == 0);
        in = (struct input){.data = data, .len = len};
        check_whole(&p.host, &building, &in);
    }
    sample_deinit(&sample);
    arena_deinit(&arena);
    return 0;
}
