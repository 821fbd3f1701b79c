/* The image decoders on any bytes; the first two choose what is done with the image. */
#include "daemon/data/decode/image/image.h"
#include "tests/fuzz/fuzz.h"

enum { HEAD = 2, SIDE = 20, PIXELS_MAX = 1 << 18 };

static const struct spec_image specs[] = {
    {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC},
    {.transform = TRANSFORM_NONE, .layout = LAYOUT_CHW, .flip = 0.5},
    {.transform = TRANSFORM_RESIZE, .layout = LAYOUT_HWC, .height = SIDE, .width = SIDE + 3},
    {.transform = TRANSFORM_CENTER_CROP, .layout = LAYOUT_CHW, .height = SIDE, .width = SIDE + 3},
    {.transform = TRANSFORM_RANDOM_CROP,
     .layout = LAYOUT_CHW,
     .height = SIDE,
     .width = SIDE,
     .flip = 0.5,
     .scale = {0.001, 1},
     .aspect = {0.1, 10}},
};

/* One decoder for all inputs, as in a worker: what an image leaves behind must not matter. */
static struct image_decoder *decoder;

static void decode(const uint8_t *data, size_t len, const struct spec_image *spec, uint64_t seed)
{
    struct image_file file = {.data = data, .bytes = len, .path = "fuzz"};
    struct image_size source, size;
    struct dl_error err = {0};
    struct rng rng;
    int r = image_open(decoder, &file, &source, &err);

    FUZZ_ASSERT(r == -err.code && (r == 0 || err.message[0]));
    if (r < 0)
        return;
    FUZZ_ASSERT(source.height > 0 && source.width > 0);
    FUZZ_ASSERT((uint64_t)source.height * source.width <= IMAGE_BYTES_MAX / 3);
    /* Large ones are as right, and slow. */
    if ((uint64_t)source.height * source.width > PIXELS_MAX)
        return;
    size = image_result(spec, source);
    _cleanup_free_ uint8_t *out = malloc((size_t)size.height * size.width * 3);
    rng_init(&rng, seed, 0, 0);
    r = image_decode(decoder, spec, &rng, out, &err);
    FUZZ_ASSERT(r == -err.code && (r == 0 || err.message[0]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!decoder && image_decoder_new(&decoder, NULL) < 0)
        abort();
    if (size < HEAD)
        return 0;
    /* Behind the head, in memory of its own: the sanitizer then sees its end. */
    _cleanup_free_ uint8_t *file = malloc(size > HEAD ? size - HEAD : 1);
    memcpy(file, data + HEAD, size - HEAD);
    decode(file, size - HEAD, &specs[data[0] % ARRAY_SIZE(specs)], data[1]);
    return 0;
}
