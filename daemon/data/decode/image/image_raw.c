#include "daemon/data/decode/image/image_raw.h"

#include "daemon/data/decode/image/colour.h"
#include "daemon/data/decode/image/image.h"

#include <errno.h>

static uint32_t image_raw_channels(const uint8_t *mode, uint32_t len)
{
    static const struct {
        const char *mode;
        uint32_t channels;
    } modes[] = {{"L", 1}, {"RGB", 3}, {"RGBA", 4}};

    for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
        if (strlen(modes[i].mode) == len && memcmp(mode, modes[i].mode, len) == 0)
            return modes[i].channels;
    return 0;
}

/* Any channels to grey. */
static void image_raw_make_grey(const uint8_t *from, uint32_t channels, uint64_t n, uint8_t *to)
{
    for (uint64_t i = 0; i < n; i++, from += channels) {
        uint8_t pixel[PICTURE_PIXEL] = {from[0], from[channels > 1 ? 1 : 0],
                                        from[channels > 1 ? 2 : 0]};
        colour_grey_row(pixel, 1);
        to[i] = pixel[0];
    }
}

/* Any channels to RGB, and to the layout. */
static void image_raw_copy(const uint8_t *from, uint32_t channels, uint64_t n,
                           enum image_layout layout, uint8_t *to)
{
    uint64_t pixel = layout == LAYOUT_CHW ? 1 : 3, plane = layout == LAYOUT_CHW ? n : 1;

    for (uint64_t i = 0; i < n; i++)
        for (unsigned c = 0; c < 3; c++)
            to[i * pixel + c * plane] = from[i * channels + (channels == 1 ? 0 : c)];
}

static int image_raw_wrong_size(uint64_t bytes, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, "", "has %llu bytes, which an image cannot have", (ull)bytes);
}

int image_raw_add(const uint8_t *data, uint64_t bytes, const struct spec_image *spec,
                  const char *name, struct sample *ret, struct dl_error *err)
{
    uint32_t head[3];
    uint64_t shape[3], n, stored;

    if (bytes < sizeof head)
        return image_raw_wrong_size(bytes, err);
    memcpy(head, data, sizeof head);
    if (head[2] > bytes - sizeof head)
        return image_raw_wrong_size(bytes, err);
    const uint8_t *mode = data + sizeof head, *pixels = mode + head[2];
    uint32_t channels = image_raw_channels(mode, head[2]);
    if (channels == 0)
        return dl_error_set(err, EINVAL, "",
                            "is an image of mode %.*s; RGB, RGBA and L can be read: write it as "
                            "png or jpeg",
                            (int)min_u64(head[2], 16), (const char *)mode);
    if (mul_overflows(head[0], head[1], &n) || mul_overflows(n, channels, &stored) ||
        stored != bytes - sizeof head - head[2])
        return image_raw_wrong_size(bytes, err);
    image_shape(spec, (struct image_size){.width = head[0], .height = head[1]}, shape);
    uint8_t *out = sample_alloc(ret, image_channels(spec) * n);
    if (out && spec->grey)
        image_raw_make_grey(pixels, channels, n, out);
    else if (out)
        image_raw_copy(pixels, channels, n, spec->layout, out);
    return sample_tensor(ret, name, DL_DTYPE_UINT8, 3, shape, out);
}
