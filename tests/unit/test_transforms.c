/* Lists of transforms: what may stand where, what is said of the rest, what comes out, and draws.
 */
#include "daemon/data/decode/transform/transforms.h"
#include "daemon/data/decode/transform/warp.h"
#include "proto/dtype.h"
#include "proto/yaml.h"
#include "tests/lib/splitmix.h"
#include "tests/unit/fail_alloc.h"
#include "tests/unit/image_files.h"

#include <errno.h>
#include <math.h>

static int read_list(const char *text, struct transforms **ret, struct dl_error *err)
{
    struct value list = {0};
    long later = fail_in;

    fail_in = -1;
    assert_int_equal(yaml_parse(text, strlen(text), "test", &list, err), 0);
    fail_in = later;
    int r = transforms_read(&list, "dataset.transforms", ret, err);
    value_deinit(&list);
    return r;
}

static struct transforms_shape shape_of(const char *text)
{
    struct transforms *transforms = NULL;
    struct dl_error err = {0};

    if (read_list(text, &transforms, &err) < 0)
        fail_msg("%s: %s: %s", text, err.path, err.message);
    struct transforms_shape shape = transforms_result(transforms);
    transforms_free(transforms);
    return shape;
}

/* ---- what is refused --------------------------------------------------------------------------
 */

static const struct refused {
    const char *list;
    const char *path; /* below dataset.transforms */
    const char *message;
} refused[] = {
    {"3", "", "3 is not a list of transforms"},
    {"[3]", ".0", "3 is not the name of a transform"},
    {"[{size: 3}]", ".0", "has no kind"},
    {"[Resise]", ".0", "did you mean Resize?"},
    {"[{kind: Resize, sice: 3}]", ".0.sice",
     "Resize has no argument sice; it has size, interpolation, max_size, antialias"},
    {"[{kind: ToTensor, p: 1}]", ".0.p", "ToTensor has no argument p; it has none"},
    {"[Resize]", ".0.size", "missing; Resize needs it"},
    {"[{kind: Resize, size: 0}]", ".0.size", "0 is neither a number of pixels nor [height, width]"},
    {"[{kind: Resize, size: [1, 2, 3]}]", ".0.size", "is neither a number of pixels"},
    {"[{kind: Resize, size: 1e3}]", ".0.size", "is neither a number of pixels"},
    {"[{kind: Resize, size: null}]", ".0", "has neither size nor max_size"},
    {"[{kind: Resize, size: 8, max_size: 8}]", ".0", "must be above its size of 8"},
    {"[{kind: Resize, size: [8, 9], max_size: 10}]", ".0", "leave out one of them"},
    {"[{kind: Resize, size: 8, interpolation: cubic}]", ".0.interpolation",
     "\"cubic\" is not one of nearest, box, bilinear, hamming, bicubic, lanczos, nearest-exact"},
    {"[{kind: RandomRotation, degrees: 3, interpolation: box}]", ".0",
     "RandomRotation has nearest, bilinear and bicubic"},
    {"[{kind: RandomHorizontalFlip, p: 1.5}]", ".0.p", "1.5 is not a probability"},
    {"[{kind: RandomHorizontalFlip, p: .nan}]", ".0.p", "is not a probability"},
    {"[{kind: RandomResizedCrop, size: 3, scale: [1, 0]}]", ".0.scale", "smaller first"},
    {"[{kind: RandomResizedCrop, size: 3, ratio: [0, 1]}]", ".0.ratio", "smaller first"},
    {"[{kind: RandomResizedCrop, size: 3, log_ratio: [1, 0]}]", ".0.log_ratio", "smaller first"},
    {"[{kind: Pad, padding: -1}]", ".0.padding", "-1 is neither a number of pixels"},
    {"[{kind: Pad, padding: [1, 2, 3]}]", ".0.padding", "is neither a number of pixels"},
    {"[{kind: Pad, padding: 1, fill: 256}]", ".0.fill", "256 is neither a number from 0 to 255"},
    {"[{kind: Pad, padding: 1, padding_mode: wrap}]", ".0.padding_mode",
     "\"wrap\" is not one of constant, edge, reflect, symmetric"},
    {"[{kind: ColorJitter, hue: 0.6}]", ".0.hue", "0.6 is neither"},
    {"[{kind: ColorJitter, brightness: -1}]", ".0.brightness", "-1 is neither"},
    {"[{kind: RandomPosterize, bits: 0}]", ".0.bits", "0 is not a whole number from 1 to 8"},
    {"[{kind: Grayscale, num_output_channels: 2}]", ".0", "1 or 3 can be made"},
    {"[{kind: GaussianBlur, kernel_size: 4}]", ".0", "it is an odd number"},
    {"[{kind: RandAugment, magnitude: 31}]", ".0", "has a magnitude of 31"},
    {"[{kind: FiveCrop, size: 3}, RandomInvert]", ".1",
     "RandomInvert is for one picture, but its input is 5; move it before the FiveCrop or TenCrop"},
    {"[{kind: TenCrop, size: 3}, ToTensor, RandomErasing]", ".2", "but its input is 10"},
    {"[{kind: FiveCrop, size: 3}, {kind: FiveCrop, size: 2}]", ".1", "but its input is 5"},
    {"[{kind: RandomApply, transforms: [{kind: FiveCrop, size: 3}]}]", ".0",
     "changes the kind of sample"},
    {"[{kind: AugMix, severity: 11}]", ".0.severity", "11 is not a whole number from 1 to 10"},
    {"[{kind: AugMix, mixture_width: 65}]", ".0.mixture_width", "from 1 to 64"},
    {"[{kind: AugMix, chain_depth: 101}]", ".0.chain_depth", "101 is not a whole number"},
    {"[{kind: AugMix, alpha: 0}]", ".0.alpha", "0 is not a number from 0.001"},
    {"[{kind: AugMix, interpolation: lanczos}]", ".0", "AugMix has nearest, bilinear and bicubic"},
    {"[ToImage, AugMix]", ".1", "AugMix is for pictures"},
    {"[{kind: AutoAugment, policy: imagenette}]", ".0.policy", "imagenet, cifar10, svhn"},
    {"[ToTensor, ToImage]", ".1", "its input is already a tensor"},
    {"[ToTensor, {kind: Resize, size: 3}]", ".1", "Resize is for pictures"},
    {"[ToTensor, RandAugment]", ".1", "RandAugment is for pictures"},
    {"[{kind: Normalize, mean: 0, std: 1}]", ".0", "write ToImage or ToTensor before it"},
    {"[ToImage, {kind: Normalize, mean: 0, std: 1}]", ".1", "Normalize is for floats"},
    {"[ToTensor, {kind: ToDtype, dtype: float16}, {kind: Normalize, mean: 0, std: 1e-9}]", ".2",
     "a std of 1e-09, which float16 cannot represent; write ToDtype to float16 after it"},
    {"[ToTensor, {kind: ToDtype, dtype: float16}, {kind: Normalize, mean: [0, 1e5, 0], std: 1}]",
     ".2", "a mean of 100000"},
    {"[ToTensor, {kind: ToDtype, dtype: float16}, {kind: ToDtype, dtype: uint8}]", ".2",
     "would make uint8 of float16"},
    {"[ToTensor, {kind: ToDtype, dtype: half}]", ".1.dtype",
     "\"half\" is not one of uint8, float32, float16, bfloat16"},
    {"[ToTensor, {kind: Normalize, mean: 0, std: [1, 0, 1]}]", ".1.std", "has a 0"},
    {"[Grayscale, ToTensor, {kind: Normalize, mean: [1, 2, 3], std: 1}]", ".2", "one channel"},
    {"[ToTensor, {kind: ToDtype, dtype: uint8}]", ".1", "is not supported"},
    {"[ToImage, RandomErasing]", ".1", "RandomErasing of uint8 is not supported"},
    {"[ToTensor, {kind: RandomErasing, value: noise}]", ".1.value", "nor random"},
    {"[{kind: RandomApply, transforms: []}]", ".0.transforms", "is an empty list"},
    {"[{kind: RandomApply, transforms: [ToTensor]}]", ".0",
     "RandomApply contains a ToTensor, which changes the kind of sample"},
    {"[{kind: RandomChoice, transforms: [{kind: Pad}]}]", ".0.transforms.0.padding", "missing"},
    {"[{kind: RandomChoice, transforms: [RandAugment], p: [1, 2]}]", ".0", "has 2 weights for 1"},
    {"[{kind: RandomChoice, transforms: [RandAugment], p: [0]}]", ".0.p", "all 0"},
};

TEST(test_refused)
{
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        struct transforms *transforms = NULL;
        struct dl_error err = {0};
        char path[DL_ERROR_PATH_MAX];
        snprintf(path, sizeof path, "dataset.transforms%s", refused[i].path);
        assert_int_equal(read_list(refused[i].list, &transforms, &err), -EINVAL);
        assert_null(transforms);
        if (strcmp(err.path, path) != 0 || !strstr(err.message, refused[i].message))
            fail_msg("%s: %s: %s", refused[i].list, err.path, err.message);
    }
}

/* ---- what comes out ---------------------------------------------------------------------------
 */

TEST(test_shapes)
{
    static const struct {
        const char *list;
        uint32_t height; /* 0: not fixed */
        uint32_t width;
        uint32_t channels;
        uint32_t dtype;
        bool is_tensor;
        uint32_t stack;
    } shapes[] = {
        {"[]", 0, 0, 3, DL_DTYPE_UINT8, false},
        {"[{kind: Resize, size: 8}]", 0, 0, 3, DL_DTYPE_UINT8, false},
        {"[{kind: Resize, size: [8, 9]}]", 8, 9, 3, DL_DTYPE_UINT8, false},
        {"[{kind: CenterCrop, size: 8}, {kind: Resize, size: 5}]", 5, 5, 3, DL_DTYPE_UINT8, false},
        {"[{kind: RandomCrop, size: 8}, {kind: Pad, padding: [1, 2]}]", 12, 10, 3, DL_DTYPE_UINT8,
         false},
        {"[{kind: RandomCrop, size: 8}, {kind: RandomRotation, degrees: 5, expand: true}]", 0, 0, 3,
         DL_DTYPE_UINT8, false},
        {"[{kind: RandomCrop, size: 8}, RandAugment, Grayscale, ToTensor]", 8, 8, 1,
         DL_DTYPE_FLOAT32, true},
        {"[{kind: TenCrop, size: [9, 8]}, ToTensor]", 9, 8, 3, DL_DTYPE_FLOAT32, true, 10},
        {"[{kind: RandomCrop, size: 8}, ToTensor, {kind: ToDtype, dtype: bfloat16}]", 8, 8, 3,
         DL_DTYPE_BFLOAT16, true},
        {"[{kind: RandomCrop, size: 8}, ToImage, {kind: ConvertImageDtype, dtype: float16}]", 8, 8,
         3, DL_DTYPE_FLOAT16, true},
        {"[{kind: RandomCrop, size: 8}, {kind: RandomApply, transforms: [{kind: Pad, padding: "
         "1}]}]",
         0, 0, 3, DL_DTYPE_UINT8, false},
        {"[{kind: RandomCrop, size: 8}, {kind: RandomOrder, transforms: [RandomInvert]}, ToImage]",
         8, 8, 3, DL_DTYPE_UINT8, true},
    };

    for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
        struct transforms_shape is = shape_of(shapes[i].list);
        assert_int_equal(is.is_fixed, shapes[i].height > 0);
        if (is.is_fixed)
            assert_true(is.size.height == shapes[i].height && is.size.width == shapes[i].width);
        assert_int_equal(is.channels, shapes[i].channels);
        assert_int_equal(is.dtype, shapes[i].dtype);
        assert_int_equal(is.is_tensor, shapes[i].is_tensor);
        assert_int_equal(is.stack, shapes[i].stack);
        if (is.stack)
            assert_true(transforms_bytes(&is) == (uint64_t)is.stack * 9 * 8 * 3 * sizeof(float));
    }
}

/* Everything at once, with every allocation failing in turn. */
TEST(test_out_of_memory)
{
    static const char list[] =
        "[{kind: RandomResizedCrop, size: [9, 8]}, {kind: Pad, padding: 1}, RandomVerticalFlip, "
        "AugMix, "
        "{kind: GaussianBlur, kernel_size: 3}, {kind: RandomAffine, degrees: 9}, "
        "{kind: RandomChoice, transforms: [RandAugment, RandomInvert], p: [1, 2]}, "
        "{kind: RandomAdjustSharpness, sharpness_factor: 2, p: 1}, ToTensor, "
        "{kind: RandomErasing, value: random, p: 1, scale: [0.1, 0.2]}]";
    struct jpeg_options options = {.height = 20, .width = 30, .components = 3};
    uint8_t *data = NULL;
    struct image_file file = {.path = "a.jpg"};
    int failed = 0;

    file.bytes = make_jpeg(&options, &data);
    file.data = data;
    for (long i = 0;; i++) {
        struct image_decoder *decoder = NULL;
        struct transforms_runner *run = NULL;
        struct transforms *transforms = NULL;
        struct transforms_shape shape;
        struct draws_keyed draws;
        struct dl_error err = {0};
        struct image_size size;
        assert_int_equal(image_decoder_new(&decoder, &err), 0);
        draws_keyed_init(&draws, 1, 0, 0);
        fail_in = i;
        int r = read_list(list, &transforms, &err);
        if (r == 0 && (r = transforms_runner_new(&run, &err)) == 0 &&
            (r = image_open(decoder, &file, &size, &err)) == 0)
            r = transforms_run(transforms, run, decoder, &draws.base, "a.jpg", &shape, &err);
        bool done = fail_in >= 0;
        fail_in = -1;
        assert_true(r == -err.code && (r == 0 || r == -ENOMEM));
        failed += r < 0;
        transforms_runner_free(run);
        transforms_free(transforms);
        image_decoder_free(decoder);
        if (done) {
            assert_int_equal(r, 0);
            break;
        }
    }
    assert_true(failed > 10);
    free(data);
}

/* ---- draws ------------------------------------------------------------------------------------
 */

/* Means and variances of shares, as a Dirichlet distribution has them; of small alphas, too. */
static void keyed_shares(struct draws *draws)
{
    static const double alphas[] = {0.001, 0.2, 1, 7.5};
    static const double weights[] = {1, 0, 3};
    unsigned chosen[3] = {0};

    for (size_t k = 0; k < ARRAY_SIZE(alphas); k++) {
        double sum[3] = {0}, squares = 0, variance = 2.0 / 9 / (3 * alphas[k] + 1);
        for (int i = 0; i < 10000; i++) {
            float shares[3];
            draws_dirichlet(draws, 3, alphas[k], shares);
            assert_true(fabsf(shares[0] + shares[1] + shares[2] - 1) < 1e-6F);
            for (unsigned j = 0; j < 3; j++) {
                assert_true(shares[j] >= 0);
                sum[j] += (double)shares[j];
            }
            squares += pow((double)shares[0] - 1.0 / 3, 2);
        }
        for (unsigned j = 0; j < 3; j++)
            assert_true(fabs(sum[j] / 10000 - 1.0 / 3) < 0.025);
        assert_true(fabs(squares / 10000 / variance - 1) < 0.1);
    }
    for (int i = 0; i < 10000; i++) {
        chosen[draws_chosen(draws, 3, weights)]++;
        assert_true(draws_chosen(draws, 1, NULL) == 0);
    }
    assert_true(chosen[1] == 0 && chosen[0] > 2200 && chosen[0] < 2800);
}

TEST(test_keyed_draws)
{
    static const float weights[] = {0, 3, 0, 1};
    struct draws_keyed keyed, again;
    uint32_t chosen[4] = {0}, order[5], seen = 0;
    float normal[1001];
    double sum = 0, squares = 0;

    draws_keyed_init(&keyed, 7, 1, 42);
    draws_keyed_init(&again, 7, 1, 42);
    for (int i = 0; i < 10000; i++) {
        float u = draws_uniform(&keyed.base, -0.25, 0.5);
        assert_true(u >= -0.25F && u < 0.5F && u == draws_uniform(&again.base, -0.25, 0.5));
        int64_t n = draws_int(&keyed.base, -3, 4);
        assert_true(n >= -3 && n < 4);
        (void)draws_int(&again.base, -3, 4);
        chosen[draws_choice(&keyed.base, 4, weights)]++;
        (void)draws_choice(&again.base, 4, weights);
    }
    keyed_shares(&keyed.base);
    assert_true(chosen[0] == 0 && chosen[2] == 0);
    assert_true(chosen[1] > 7200 && chosen[1] < 7800);
    draws_permutation(&keyed.base, 5, order);
    for (unsigned i = 0; i < 5; i++)
        seen |= 1U << order[i];
    assert_int_equal(seen, 31);
    draws_normals(&keyed.base, ARRAY_SIZE(normal), normal);
    for (size_t i = 0; i < ARRAY_SIZE(normal); i++) {
        sum += (double)normal[i];
        squares += (double)normal[i] * (double)normal[i];
    }
    assert_true(fabs(sum) < 150 && fabs(squares - 1001) < 200);
}

/* ---- pictures in memory, and torchvision's first generation -----------------------------------
 */

/* Counts draws of integers, which are all the least. */
struct counted {
    struct draws base;
    unsigned n;
};

static int64_t counted_integer(struct draws *d, int64_t low, int64_t high)
{
    assert_true(low < high);
    container_of(d, struct counted, base)->n++;
    return low;
}

static const struct draws_ops counted_ops = {.integer = counted_integer};

static int run_pixels(const char *text, const struct transforms_how *how,
                      const struct transforms_pixels *from, struct counted *draws, uint8_t *out)
{
    struct transforms_runner *run = NULL;
    struct transforms *transforms = NULL;
    struct transforms_shape shape;
    struct dl_error err = {0};
    struct value list = {0};

    assert_int_equal(yaml_parse(text, strlen(text), "test", &list, &err), 0);
    int r = transforms_read_as(&list, "test", how, &transforms, &err);
    value_deinit(&list);
    if (r == 0)
        r = transforms_runner_new(&run, &err);
    if (r == 0)
        r = transforms_run_pixels(transforms, run, from, &draws->base, &shape, &err);
    if (r == 0 && out)
        transforms_write(run, TRANSFORMS_AWAY, out);
    transforms_runner_free(run);
    transforms_free(transforms);
    return r;
}

TEST(test_pixels)
{
    static const uint8_t pixels[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    struct transforms_pixels colour = {.pixels = pixels, .size = {2, 2}};
    struct transforms_pixels grey = {.pixels = pixels, .size = {3, 4}};
    struct transforms_pixels none = {.pixels = pixels};
    struct counted draws = {.base.ops = &counted_ops};
    struct transforms_how how = {.channels = 3};
    static const uint8_t corners[] = {1, 5, 4, 8, 5, 9, 8, 12, 3, 7};
    uint8_t out[12] = {0}, cut[] = {1, 2, 5, 6};

    assert_int_equal(run_pixels("[]", &how, &colour, &draws, out), 0);
    assert_memory_equal(out, pixels, 12);
    assert_int_equal(run_pixels("[]", &how, &none, &draws, NULL), 0);
    how.channels = 1;
    assert_int_equal(run_pixels("[PILToTensor]", &how, &grey, &draws, out), 0);
    assert_memory_equal(out, pixels, 12);
    assert_int_equal(run_pixels("[{kind: RandomCrop, size: 2}]", &how, &grey, &draws, out), 0);
    assert_memory_equal(out, cut, 4);
    assert_int_equal(draws.n, 2);
    assert_int_equal(run_pixels("[{kind: FiveCrop, size: [4, 4]}]", &how, &grey, &draws, NULL),
                     -EINVAL);
    assert_int_equal(run_pixels("[{kind: FiveCrop, size: [2, 1]}]", &how, &grey, &draws, out), 0);
    assert_memory_equal(out, corners, sizeof corners);
    assert_int_equal(run_pixels("[{kind: RandomCrop, size: 9}]", &how, &grey, &draws, NULL),
                     -EINVAL);
}

/* Of a picture of 3 × 4: how often a RandomCrop draws. */
TEST(test_first_generation)
{
    static const struct {
        const char *list;
        unsigned first;
        unsigned second;
    } crops[] = {
        {"[{kind: RandomCrop, size: [3, 4]}]", 0, 0},
        {"[{kind: RandomCrop, size: [3, 2]}]", 2, 1},
        {"[{kind: RandomCrop, size: [2, 4]}]", 2, 1},
        {"[{kind: RandomCrop, size: [2, 2]}]", 2, 2},
        {"[{kind: RandomCrop, size: [5, 4], pad_if_needed: true}]", 2, 1},
    };
    static const uint8_t pixels[12] = {0};
    struct transforms_pixels grey = {.pixels = pixels, .size = {3, 4}};

    for (size_t i = 0; i < ARRAY_SIZE(crops); i++) {
        struct counted first = {.base.ops = &counted_ops}, second = first;
        struct transforms_how how = {.channels = 1};
        assert_int_equal(run_pixels(crops[i].list, &how, &grey, &second, NULL), 0);
        how.first_generation = true;
        assert_int_equal(run_pixels(crops[i].list, &how, &grey, &first, NULL), 0);
        assert_int_equal(first.n, crops[i].first);
        assert_int_equal(second.n, crops[i].second);
    }
}

/* ---- a smaller scale ----------------------------------------------------------------------------
 */

static void run_file(const char *text, bool fast, const struct image_file *file, uint64_t seed,
                     uint8_t out[static 9 * 8 * 3])
{
    const struct transforms_how how = {.channels = 3, .fast = fast};
    struct transforms_runner *run = NULL;
    struct image_decoder *decoder = NULL;
    struct transforms *transforms = NULL;
    struct transforms_shape shape;
    struct draws_keyed draws;
    struct value list = {0};
    struct image_size size;

    draws_keyed_init(&draws, seed, 0, 0);
    assert_int_equal(yaml_parse(text, strlen(text), "test", &list, NULL), 0);
    assert_int_equal(transforms_read_as(&list, "test", &how, &transforms, NULL), 0);
    value_deinit(&list);
    assert_int_equal(transforms_runner_new(&run, NULL), 0);
    assert_int_equal(image_decoder_new(&decoder, NULL), 0);
    assert_int_equal(image_open(decoder, file, &size, NULL), 0);
    assert_int_equal(
        transforms_run(transforms, run, decoder, &draws.base, file->path, &shape, NULL), 0);
    assert_int_equal(transforms_bytes(&shape), 9 * 8 * 3);
    transforms_write(run, TRANSFORMS_AWAY, out);
    image_decoder_free(decoder);
    transforms_runner_free(run);
    transforms_free(transforms);
}

/* Boxes of all kinds of places and scales are near to what the whole scale gives. */
TEST(test_fast)
{
    static const char *const lists[] = {
        "[{kind: RandomResizedCrop, size: [9, 8], scale: [0.02, 1]}]",
        "[{kind: RandomResizedCrop, size: [9, 8], scale: [0.9, 1], interpolation: bicubic}]",
        "[{kind: Resize, size: [9, 8], interpolation: box}]",
        "[{kind: Resize, size: [9, 8], interpolation: nearest}]",
    };
    struct jpeg_options options = {.height = 211, .width = 307, .components = 3};
    uint8_t *data = NULL, exact[9 * 8 * 3], fast[9 * 8 * 3];
    struct image_file file = {.path = "a.jpg"};
    unsigned unequal = 0;

    file.bytes = make_jpeg(&options, &data);
    file.data = data;
    for (uint64_t seed = 0; seed < 200; seed++) {
        const char *list = lists[seed % ARRAY_SIZE(lists)];
        unsigned apart = 0;
        run_file(list, false, &file, seed, exact);
        run_file(list, true, &file, seed, fast);
        for (size_t i = 0; i < sizeof exact; i++)
            apart += (unsigned)abs(exact[i] - fast[i]);
        assert_true(apart < 8 * sizeof exact);
        if (seed % ARRAY_SIZE(lists) == 3)
            assert_int_equal(apart, 0);
        unequal += apart > 0;
    }
    assert_true(unequal > 50);
    free(data);
}

/* ---- the manual -------------------------------------------------------------------------------
 */

/* ---- a flip -----------------------------------------------------------------------------------
 */

/* Of rows of each width up to some registers: what comes from both ends, and what is between. */
TEST(test_flip)
{
    enum { HEIGHT = 3, WIDTH_MAX = 41 };
    struct picture p = {0};

    for (uint32_t w = 1; w <= WIDTH_MAX; w++) {
        assert_int_equal(picture_set(&p, (struct image_size){HEIGHT, w}, false), 0);
        for (size_t i = 0; i < picture_pixels(&p) * PICTURE_PIXEL; i++)
            p.pixels[i] = (uint8_t)(i * 7);
        picture_flip_horizontally(&p);
        for (size_t i = 0; i < picture_pixels(&p) * PICTURE_PIXEL; i++) {
            size_t pixel = i / PICTURE_PIXEL, x = pixel % w;
            size_t from = (pixel - x + w - 1 - x) * PICTURE_PIXEL + i % PICTURE_PIXEL;
            if (p.pixels[i] != (uint8_t)(from * 7))
                fail_msg("%u pixels wide: byte %zu is %u, not %u", w, i, p.pixels[i],
                         (uint8_t)(from * 7));
        }
    }
    picture_deinit(&p);
}

/* A place from 0 or from `size` - 1 to half of the picture, at random. */
static double drawn_corner(uint64_t *seed, unsigned size, bool far)
{
    double inwards = (double)(next_random(seed) % (size / 2));

    return far ? size - 1 - inwards : inwards;
}

/* What 64 bits of a number leave of a coefficient that is 0 is up to 1e-16, and other processors'
 * would be other ones. */
TEST(test_perspective_has_128_bits)
{
    uint64_t seed = 1;
    unsigned zeros = 0;

    for (unsigned i = 0; i < 5000; i++) {
        unsigned w = 16 + (unsigned)(next_random(&seed) % 1000);
        unsigned h = 16 + (unsigned)(next_random(&seed) % 1000);
        const double from[4][2] = {{0, 0}, {w - 1, 0}, {w - 1, h - 1}, {0, h - 1}};
        double to[4][2], a[8];

        for (unsigned k = 0; k < 4; k++) {
            to[k][0] = drawn_corner(&seed, w, k == 1 || k == 2);
            to[k][1] = drawn_corner(&seed, h, k >= 2);
        }
        assert_true(warp_perspective_matrix(from, to, a));
        for (unsigned k = 0; k < 8; k++) {
            zeros += fabs(a[k]) < 1e-9;
            if (fabs(a[k]) < 1e-9 && fabs(a[k]) > 1e-25)
                fail_msg("%u x %u: coefficient %u is %g", w, h, k, a[k]);
        }
    }
    assert_true(zeros > 50);
}

TEST(test_the_manual_has_them_all)
{
    FILE *file = fopen(SPEC_PAGE, "r");

    assert_non_null(file);
    char *text = calloc(1, 1 << 20);
    size_t bytes = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    assert_true(bytes > 0 && bytes < (1 << 20) - 1);
    for (size_t i = 0; transforms_name(i); i++) {
        char name[64];
        snprintf(name, sizeof name, "_%s_", transforms_name(i));
        if (!strstr(text, name))
            fail_msg("%s does not have %s", SPEC_PAGE, transforms_name(i));
    }
    free(text);
}
