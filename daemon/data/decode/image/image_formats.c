/* Which formats there are: the codecs of this build, and what a file that none of them knows is. */
#include "daemon/data/decode/image/image_codec.h"

#include <errno.h>

static struct image_codec *(*const makers[])(void) = {
    image_jpeg_new,
    image_png_new,
#if HAVE_WEBP
    image_webp_new,
#endif
#if HAVE_TIFF
    image_tiff_new,
#endif
};

_Static_assert(ARRAY_SIZE(makers) <= IMAGE_CODECS_MAX, "image_codecs_new() has room for all");

bool image_codecs_new(struct image_codec *ret[static IMAGE_CODECS_MAX])
{
    for (size_t i = 0; i < IMAGE_CODECS_MAX; i++)
        ret[i] = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(makers); i++) {
        if (!(ret[i] = makers[i]()))
            return false;
    }
    return true;
}

bool image_webp_is_built(void)
{
    return HAVE_WEBP;
}

#if !HAVE_TIFF
const char *image_tiff_missing(void)
{
    return "this build has no libtiff; build it with libtiff-dev";
}
#endif

/* What is recognised, and not read. WebP and TIFF: in a build without them. */
static const struct {
    size_t at, bytes; /* in the file */
    char begins[12];
    const char *name;
    const char *remedy;
} image_others[] = {
    {8, 4, "WEBP", "WebP, and this build has no libwebp", "build it with libwebp-dev"},
    {0, 3, "II*", "TIFF, and this build has no libtiff", "build it with libtiff-dev"},
    {0, 4, "MM\0*", "TIFF, and this build has no libtiff", "build it with libtiff-dev"},
    {0, 2, "BM", "BMP, which is not supported", "convert it to PNG"},
    {0, 4, "GIF8", "GIF, which is not supported", "convert it to PNG"},
    {4, 8, "ftypavif", "AVIF, which is not supported", "convert it to JPEG or WebP"},
    {4, 7, "ftyphei", "HEIF, which is not supported", "convert it to JPEG or WebP"},
    {0, 2, "\xff\x0a", "JPEG XL, which is not supported", "convert it to JPEG or WebP"},
    {0, 2, "P5", "PGM, which is not supported", "convert it to PNG"},
    {0, 2, "P6", "PPM, which is not supported", "convert it to PNG"},
};

int image_refuse_unknown(const struct image_file *file, struct dl_error *err)
{
    const uint8_t *p = file->data;

    if (file->bytes < 8)
        return dl_error_set(err, EINVAL, file->path,
                            "has %zu bytes, and is not an image; replace the file, or remove it",
                            file->bytes);
    for (size_t i = 0; i < ARRAY_SIZE(image_others); i++) {
        size_t n = image_others[i].bytes;
        if (file->bytes < image_others[i].at + n ||
            memcmp(p + image_others[i].at, image_others[i].begins, n) != 0)
            continue;
        return dl_error_set(err, EINVAL, file->path, "is %s; %s, or remove it",
                            image_others[i].name, image_others[i].remedy);
    }
    return dl_error_set(
        err, EINVAL, file->path,
        "is not an image of a known format: it begins with the bytes %02x %02x %02x %02x; "
        "convert it to JPEG, PNG, WebP or TIFF, or remove it",
        p[0], p[1], p[2], p[3]);
}
