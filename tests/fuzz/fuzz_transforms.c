/* Lists of transforms as text, read and then run on a small picture; the first byte is the seed. */
#include "daemon/data/decode/transform/transforms.h"
#include "proto/yaml.h"
#include "tests/fuzz/fuzz.h"

/* A grey PNG of 3 × 2 pixels: what transforms do to a picture depends on its size alone. */
static const uint8_t picture[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44,
    0x52, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x02, 0x08, 0x00, 0x00, 0x00, 0x00, 0xb8,
    0x1f, 0x39, 0xc6, 0x00, 0x00, 0x00, 0x10, 0x49, 0x44, 0x41, 0x54, 0x78, 0xda, 0x63, 0x10,
    0x68, 0xf8, 0xc0, 0xf0, 0xdf, 0x81, 0x11, 0x00, 0x0b, 0xa6, 0x02, 0xc1, 0x5b, 0x8e, 0x50,
    0xd8, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};

static struct image_decoder *decoder;
static struct transforms_runner *runner;

static bool is_large(const struct value *v)
{
    if (value_real(v) > 256)
        return true;
    for (uint32_t i = 0; i < v->count; i++) {
        if (is_large(&v->items[i]))
            return true;
    }
    return false;
}

static void run(const struct transforms *transforms, uint8_t seed)
{
    struct image_file file = {.data = picture, .bytes = sizeof picture, .path = "fuzz"};
    struct transforms_shape shape;
    struct draws_keyed draws;
    struct dl_error err = {0};
    struct image_size size;
    int r = image_open(decoder, &file, &size, &err);

    FUZZ_ASSERT(r == 0);
    draws_keyed_init(&draws, seed, 0, 0);
    r = transforms_run(transforms, runner, decoder, &draws.base, "fuzz", &shape, &err);
    FUZZ_ASSERT(r == -err.code && (r == 0 || err.message[0]));
    if (r < 0)
        return;
    _cleanup_free_ uint8_t *out = malloc(transforms_bytes(&shape) + 1);
    transforms_write(runner, (enum transforms_way)(seed % 3), out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct transforms *transforms = NULL;
    struct dl_error err = {0};
    struct value list = {0};

    if (!decoder &&
        (image_decoder_new(&decoder, NULL) < 0 || transforms_runner_new(&runner, NULL) < 0))
        abort();
    if (size < 1 || yaml_parse((const char *)data + 1, size - 1, "fuzz", &list, NULL) < 0)
        return 0;
    int r = transforms_read(&list, "transforms", &transforms, &err);
    FUZZ_ASSERT(r == -err.code && (r == 0 || (err.message[0] && err.path[0])));
    /* Large pictures are as right, and slow. */
    if (r == 0 && !is_large(&list))
        run(transforms, data[0]);
    transforms_free(transforms);
    value_deinit(&list);
    return 0;
}
