/* Steps on a picture: first how many, and each; the file's bytes are behind them. Where these are
 * none that can be read, the steps are done to a few pixels. */
#include "daemon/data/decode/image/steps.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/input.h"

enum { MOST_STEPS = 8, SIDE = 6 };

static const uint8_t pixels[SIDE * SIDE * 3] = {1, 2, 3, 250, 251, 252};
static struct image_decoder *decoder;
static struct transforms_runner *runner;

static void open_picture(const struct image_file *file)
{
    struct image_size size = {0};
    struct dl_error err = {0};

    /* Large pictures are as right, and slow. */
    if (image_open(decoder, file, &size, &err) == 0 && size.height <= 256 && size.width <= 256)
        return;
    image_open_pixels(decoder,
                      &(struct image_pixels){.pixels = pixels, .size = {SIDE, SIDE}, .step = 3});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct picture_step steps[MOST_STEPS];
    struct dl_error err = {0};
    struct image_size made;

    if (!decoder &&
        (image_decoder_new(&decoder, NULL) < 0 || transforms_runner_new(&runner, NULL) < 0))
        abort();
    uint32_t n = take(&in);
    bool grey = n & 0x80;
    double part = n >> 4 & 7;
    n &= 15;
    /* As many steps as there are not: a file at a smaller scale, or its luma. */
    uint32_t draft = n > MOST_STEPS ? take(&in) : 0;
    n %= MOST_STEPS + 1;
    for (uint32_t i = 0; i < n; i++)
        steps[i] = (struct picture_step){.kind = (enum picture_step_kind)(take(&in) % 5),
                                         .left = (uint32_t)take_number(&in),
                                         .top = (uint32_t)take_number(&in),
                                         .size = {.height = take(&in), .width = take(&in)},
                                         .choice = take(&in) % 16};
    /* The first one alone: bytes of seeds stay where they are. */
    if (n > 0 && part)
        steps[0].part = (struct picture_part){.left = steps[0].left / 4.0,
                                              .top = steps[0].top / 4.0,
                                              .width = part / 4.0,
                                              .height = part / 3.0};
    const struct image_file file = {.data = in.data,
                                    .bytes = in.len,
                                    .path = "fuzz",
                                    .exact = true,
                                    .scale = 1U << (draft & 3),
                                    .luma = draft & 4};
    struct jpeg_header header;
    FUZZ_ASSERT(image_jpeg_whole(&file) <= in.len);
    if (image_jpeg_looks_plain(&file, &header))
        FUZZ_ASSERT(header.bytes <= in.len && header.size.height > 0 && header.size.width > 0);
    open_picture(&file);
    struct picture_box box = {.size = image_source(decoder)};
    if (steps_are_crops(steps, n, grey, &box)) {
        _cleanup_free_ uint8_t *rows =
            malloc((size_t)box.size.height * box.size.width * (grey ? 1 : 3));
        FUZZ_ASSERT(rows);
        int bad = steps_decode(decoder, &box, grey, rows, &err);
        FUZZ_ASSERT(bad == 0 || (err.message[0] && err.path[0]));
        memset(&err, 0, sizeof err);
        open_picture(&file);
    }
    int r = steps_run(steps, n, grey, runner, decoder, &made, &err);
    FUZZ_ASSERT(r == -err.code && (r == 0 || (err.message[0] && err.path[0])));
    if (r < 0)
        return 0;
    _cleanup_free_ uint8_t *out = malloc((size_t)made.height * made.width * (grey ? 1 : 3) + 1);
    FUZZ_ASSERT(out && made.height > 0 && made.width > 0);
    transforms_write(runner, TRANSFORMS_NEAR, out);
    return 0;
}
