/*
 * WebP by libwebp and its demultiplexer, as PIL decodes it: of an animation the first frame, black
 * where that leaves its canvas free; alpha is dropped.
 *
 * Cropping is libwebp's: rows below the window are not decoded, and what lies beside it gets no
 * colours. It takes the window's edge for the picture's where it smooths chroma, so the window is
 * opened a little wider. Its scaling is not used: it scales what it has decoded whole.
 */
#include "daemon/data/decode/image/image_codec.h"
#include "daemon/data/decode/image/picture.h"
#include "proto/common/load.h"

#include <errno.h>

#include <webp/decode.h>
#include <webp/demux.h>

enum {
    WEBP_MARGIN = 4,      /* pixels beside the window */
    WEBP_HEAD_BYTES = 12, /* "RIFF", size, "WEBP" */
};

struct image_webp {
    struct image_codec base;
    struct image_file file;
    struct image_size size;   /* of the canvas */
    struct picture_box frame; /* where the first frame lies on it */
    WebPData coded;           /* the first frame's, in the file */
    struct picture rows;      /* what begin() decoded */
    uint32_t next;            /* row of them */
};

static bool image_webp_knows(const struct image_file *file)
{
    const uint8_t *p = file->data;

    return file->bytes >= WEBP_HEAD_BYTES && memcmp(p, "RIFF", 4) == 0 &&
           memcmp(p + 8, "WEBP", 4) == 0;
}

/* By the size that the file begins with: what is missing at its end may be outside of the window.
 */
static bool image_webp_is_whole(const struct image_file *file)
{
    return load_le32(file->data + 4) <= file->bytes - 8;
}

/* Where the first frame is. It refuses the same files as PIL's decoder of animations, which begins
 * so. */
static bool image_webp_find_frame(struct image_webp *self)
{
    const WebPData data = {.bytes = self->file.data, .size = self->file.bytes};
    WebPDemuxer *demux = WebPDemux(&data);
    WebPIterator frame = {0};
    bool found = demux && WebPDemuxGetFrame(demux, 1, &frame);

    if (found) {
        self->size.height = WebPDemuxGetI(demux, WEBP_FF_CANVAS_HEIGHT);
        self->size.width = WebPDemuxGetI(demux, WEBP_FF_CANVAS_WIDTH);
        self->frame = (struct picture_box){
            .top = frame.y_offset,
            .left = frame.x_offset,
            .size = {.height = (uint32_t)frame.height, .width = (uint32_t)frame.width},
        };
        self->coded = frame.fragment;
        WebPDemuxReleaseIterator(&frame);
    }
    WebPDemuxDelete(demux);
    return found;
}

static int image_webp_open(struct image_codec *codec, const struct image_file *file,
                           struct image_size *ret, struct dl_error *err)
{
    struct image_webp *self = container_of(codec, struct image_webp, base);
    int r;

    self->file = *file;
    if (!image_webp_is_whole(file))
        return image_refuse_truncated(file->path, err);
    if (!image_webp_find_frame(self))
        return image_refuse_corrupt(file->path, "its chunks do not form a WebP picture", err);
    if ((r = image_check_size(self->size, file->path, err)) < 0)
        return r;
    *ret = self->size;
    return 0;
}

static int image_webp_refuse(const struct image_webp *self, VP8StatusCode status,
                             struct dl_error *err)
{
    const char *path = self->file.path;

    if (status == VP8_STATUS_OUT_OF_MEMORY)
        return dl_error_set(err, ENOMEM, path, "out of memory for decoding it");
    if (status == VP8_STATUS_SUSPENDED || status == VP8_STATUS_NOT_ENOUGH_DATA)
        return image_refuse_truncated(path, err);
    return image_refuse_corrupt(path,
                                status == VP8_STATUS_UNSUPPORTED_FEATURE
                                    ? "libwebp does not know a feature of it"
                                    : "libwebp cannot decode its data",
                                err);
}

/* The part of the canvas that is decoded; of a frame that does not fill it, all. libwebp begins at
 * even places. */
static struct picture_box image_webp_choose(const struct image_webp *self,
                                            const struct image_window *window)
{
    struct image_size all = self->size;

    if (self->frame.size.height != all.height || self->frame.size.width != all.width)
        return (struct picture_box){.size = all};
    uint32_t top = window->top > WEBP_MARGIN ? (window->top - WEBP_MARGIN) & ~1U : 0;
    uint32_t left = window->left > WEBP_MARGIN ? (window->left - WEBP_MARGIN) & ~1U : 0;
    uint32_t bottom = (uint32_t)min_u64((uint64_t)window->bottom + WEBP_MARGIN, all.height);
    uint32_t right = (uint32_t)min_u64((uint64_t)window->right + WEBP_MARGIN, all.width);
    return (struct picture_box){
        .top = top, .left = left, .size = {.height = bottom - top, .width = right - left}};
}

/* The frame into self->rows, which are `part` of the canvas. */
static int image_webp_decode(struct image_webp *self, const struct picture_box *part,
                             struct dl_error *err)
{
    bool is_whole =
        self->frame.size.height != self->size.height || self->frame.size.width != self->size.width;
    size_t stride = (size_t)part->size.width * PICTURE_PIXEL, bytes = stride * part->size.height;
    size_t at =
        is_whole ? (size_t)self->frame.top * stride + (size_t)self->frame.left * PICTURE_PIXEL : 0;
    WebPDecoderConfig config;

    if (!WebPInitDecoderConfig(&config))
        return dl_error_set(err, ENOTSUP, self->file.path,
                            "cannot be decoded: this libwebp is not compatible with the one that "
                            "the daemon was built with; update both");
    if (is_whole)
        memset(self->rows.pixels, 0, bytes);
    config.options.use_cropping = !is_whole;
    config.options.crop_left = (int)part->left;
    config.options.crop_top = (int)part->top;
    config.options.crop_width = (int)part->size.width;
    config.options.crop_height = (int)part->size.height;
    config.output.colorspace = MODE_RGBA;
    config.output.is_external_memory = 1;
    config.output.u.RGBA =
        (WebPRGBABuffer){.rgba = self->rows.pixels + at, .stride = (int)stride, .size = bytes - at};
    VP8StatusCode status = WebPDecode(self->coded.bytes, self->coded.size, &config);
    return status == VP8_STATUS_OK ? 0 : image_webp_refuse(self, status, err);
}

static int image_webp_begin(struct image_codec *codec, const struct image_window *window,
                            struct image_rows *ret, struct dl_error *err)
{
    struct image_webp *self = container_of(codec, struct image_webp, base);
    struct picture_box part = image_webp_choose(self, window);
    int r = picture_set(&self->rows, part.size, false);

    if (r < 0)
        return dl_error_set(err, ENOMEM, self->file.path, "out of memory for decoding it");
    if ((r = image_webp_decode(self, &part, err)) < 0)
        return r;
    self->next = window->top - (uint32_t)part.top;
    *ret = (struct image_rows){.origin = (uint32_t)part.left, .pixels = part.size.width};
    return 0;
}

static int image_webp_row(struct image_codec *codec, uint8_t *out, struct dl_error *err)
{
    struct image_webp *self = container_of(codec, struct image_webp, base);

    (void)err;
    memcpy(out, picture_row(&self->rows, self->next++),
           (size_t)self->rows.size.width * PICTURE_PIXEL);
    return 0;
}

static int image_webp_end(struct image_codec *codec, struct dl_error *err)
{
    (void)codec, (void)err; /* open has seen that the file is whole */
    return 0;
}

static void image_webp_free(struct image_codec *codec)
{
    if (!codec)
        return;
    struct image_webp *self = container_of(codec, struct image_webp, base);
    picture_deinit(&self->rows);
    free(self);
}

static const struct image_codec_ops webp_ops = {
    .knows = image_webp_knows,
    .open = image_webp_open,
    .begin = image_webp_begin,
    .row = image_webp_row,
    .end = image_webp_end,
    .free = image_webp_free,
    .most_reduced = 1,
};

struct image_codec *image_webp_new(void)
{
    struct image_webp *self = calloc(1, sizeof *self);

    if (!self)
        return NULL;
    self->base.ops = &webp_ops;
    return &self->base;
}
