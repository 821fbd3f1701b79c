/*
 * Does what image_pil.py asks for, so that it can compare. Standard input has a line for each:
 *   image OUT TRANSFORM HEIGHT WIDTH RESIZE FLIP LAYOUT SEED EPOCH INDEX PATH
 *     decodes the file (LAYOUT hwc, chw, or grey), writes the pixels to OUT, prints "HEIGHT WIDTH"
 * or "error: TEXT" box HEIGHT WIDTH SCALE SCALE ASPECT ASPECT FLIP SEED EPOCH INDEX prints top,
 * left, height and width of a random crop of an image, and 1 for mirrored list ROOT prints "LABEL
 * PATH" for each image below a folder of class folders, then an empty line words N SEED EPOCH INDEX
 *     prints the first words of the sample's generator
 */
#include "daemon/data/decode/image/image.h"
#include "daemon/data/decode/image/image_files.h"
#include "tests/lib/read_file.h"

#include <errno.h>
#include <stdio.h>

static const struct spec_image any_crop = {
    .transform = TRANSFORM_RANDOM_CROP, .scale = {0.08, 1}, .aspect = {3.0 / 4, 4.0 / 3}};

static int decode(struct image_decoder *decoder, const struct spec_image *spec, struct rng *rng,
                  const char *path, const char *out, struct image_size *ret, struct dl_error *err)
{
    size_t bytes = 0;
    _cleanup_free_ uint8_t *data = read_file(path, &bytes);
    struct image_file file = {.data = data, .bytes = bytes, .path = path};
    struct image_size source;
    int r;

    if (!data)
        return dl_error_set(err, EIO, path, "cannot be read");
    if ((r = image_check_spec(spec, "dataset", err)) < 0 ||
        (r = image_open(decoder, &file, &source, err)) < 0)
        return r;
    *ret = image_result(spec, source);
    size_t pixels = (size_t)ret->height * ret->width * image_channels(spec);
    /* Exactly as much: the sanitizer sees what is written behind it. */
    _cleanup_free_ uint8_t *image = malloc(pixels);
    if ((r = image_decode(decoder, spec, rng, image, err)) < 0)
        return r;
    FILE *to = fopen(out, "wb");
    if (!to || fwrite(image, 1, pixels, to) != pixels || fclose(to) != 0)
        return dl_error_set(err, EIO, out, "cannot be written");
    return 0;
}

static int image_line(struct image_decoder *decoder, const char *line)
{
    static const char *const transforms[] = {"", "none", "resize", "center_crop", "random_crop"};
    char out[1024], transform[32], layout[8];
    unsigned long long seed, epoch, index;
    struct spec_image spec = any_crop;
    struct dl_error err = {0};
    struct image_size size = {0};
    struct rng rng;
    int path;

    if (sscanf(line, "%1023s %31s %u %u %u %lf %7s %llu %llu %llu %n", out, transform, &spec.height,
               &spec.width, &spec.resize, &spec.flip, layout, &seed, &epoch, &index, &path) != 10)
        return -1;
    for (unsigned i = 1; i < ARRAY_SIZE(transforms); i++) {
        if (strcmp(transform, transforms[i]) == 0)
            spec.transform = (enum image_transform)i;
    }
    spec.layout = strcmp(layout, "chw") == 0 ? LAYOUT_CHW : LAYOUT_HWC;
    spec.grey = strcmp(layout, "grey") == 0;
    rng_init(&rng, seed, epoch, index);
    if (decode(decoder, &spec, &rng, line + path, out, &size, &err) < 0)
        printf("error: %s\n", err.message);
    else
        printf("%u %u\n", size.height, size.width);
    return 0;
}

static int box_line(const char *line)
{
    unsigned long long seed, epoch, index;
    struct spec_image spec = any_crop;
    struct image_crop crop;
    struct image_size size;
    struct rng rng;

    if (sscanf(line, "%u %u %lf %lf %lf %lf %lf %llu %llu %llu", &size.height, &size.width,
               &spec.scale[0], &spec.scale[1], &spec.aspect[0], &spec.aspect[1], &spec.flip, &seed,
               &epoch, &index) != 10)
        return -1;
    rng_init(&rng, seed, epoch, index);
    image_crop_choose(&spec, size, &rng, &crop);
    printf("%u %u %u %u %d\n", crop.box_top, crop.box_left, crop.box.height, crop.box.width,
           crop.mirror);
    return 0;
}

static int words_line(const char *line)
{
    unsigned long long seed, epoch, index;
    struct rng rng;
    unsigned n;

    if (sscanf(line, "%u %llu %llu %llu", &n, &seed, &epoch, &index) != 4)
        return -1;
    rng_init(&rng, seed, epoch, index);
    for (unsigned i = 0; i < n; i++)
        printf("%llu%s", (unsigned long long)rng_u64(&rng), i + 1 < n ? " " : "\n");
    return 0;
}

static int list_line(const char *root)
{
    struct class_list list = {0};
    char path[4096];
    size_t len;

    if (class_list_make(root, &image_files, &(struct data_env){0}, &list, NULL) < 0)
        return -1;
    for (uint64_t i = 0; i < list.n; i++) {
        uint32_t label = class_list_get(&list, i, path, sizeof path, &len);
        printf("%u %s\n", label, path);
    }
    puts("");
    class_list_deinit(&list);
    return 0;
}

static int any_line(struct image_decoder *decoder, const char *verb, const char *rest)
{
    if (strcmp(verb, "image") == 0)
        return image_line(decoder, rest);
    if (strcmp(verb, "box") == 0)
        return box_line(rest);
    return strcmp(verb, "list") == 0 ? list_line(rest) : words_line(rest);
}

int main(void)
{
    struct image_decoder *decoder = NULL;
    struct dl_error err;
    char line[8192];
    int r = image_decoder_new(&decoder, &err);

    while (r == 0 && fgets(line, sizeof line, stdin)) {
        char *rest = strchr(line, ' ');
        line[strcspn(line, "\n")] = '\0';
        if (!rest)
            break;
        *rest++ = '\0';
        r = any_line(decoder, line, rest);
        fflush(stdout);
    }
    image_decoder_free(decoder);
    return r < 0;
}
