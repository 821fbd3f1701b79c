/*
 * PNG by libpng: any colour type, depth and interlacing becomes 8-bit RGB. Palettes are looked up,
 * 16 bits lose the lower 8, alpha is dropped. Gamma and colour profiles are left alone.
 */
#include "daemon/data/decode/image/image_codec.h"
#include "daemon/data/decode/image/picture.h"
#include "proto/common/load.h"

#include <errno.h>
#include <setjmp.h>
#include <stdio.h>

#include <png.h>

enum {
    SIGNATURE_BYTES = 8,
    CHUNK_FRAME = 12,        /* length, type, checksum */
    CHUNK_MAX = 8 << 20,     /* of what is no pixel: texts, profiles */
    CHUNKS_CACHED_MAX = 128, /* likewise */
};

struct image_png {
    struct image_codec base;
    png_structp png; /* owned; NULL unless an image is open */
    png_infop info;  /* owned, likewise */
    jmp_buf jump;
    char message[128];
    bool out_of_memory;
    struct image_file file;
    size_t read; /* bytes of the file that libpng has */
    struct image_size size;
    uint8_t *all;  /* owned; of an interlaced image: all of its rows; NULL of another */
    uint32_t next; /* row of `all` */
};

/* ---- libpng's ways out ---------------------------------------------------------------------- */

static void image_png_leave(png_structp png, png_const_charp message)
{
    struct image_png *self = png_get_error_ptr(png);

    snprintf(self->message, sizeof self->message, "%s", message);
    longjmp(self->jump, 1);
}

static void image_png_ignore(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void image_png_read_bytes(png_structp png, png_bytep out, size_t n)
{
    struct image_png *self = png_get_io_ptr(png);

    if (n > self->file.bytes - self->read)
        image_png_leave(png, "the data end");
    memcpy(out, self->file.data + self->read, n);
    self->read += n;
}

static png_voidp image_png_take_memory(png_structp png, png_alloc_size_t n)
{
    struct image_png *self = png_get_mem_ptr(png);
    void *memory = malloc(n);

    if (!memory)
        self->out_of_memory = true;
    return memory;
}

static void image_png_drop_memory(png_structp png, png_voidp memory)
{
    (void)png;
    free(memory);
}

static void image_png_close_image(struct image_png *self)
{
    png_destroy_read_struct(&self->png, &self->info, NULL);
    free(self->all);
    self->all = NULL;
}

static int image_png_give_up(struct image_png *self, struct dl_error *err)
{
    image_png_close_image(self);
    if (self->out_of_memory)
        return dl_error_set(err, ENOMEM, self->file.path, "out of memory for decoding it");
    return image_refuse_corrupt(self->file.path, self->message, err);
}

/* ---- one image ------------------------------------------------------------------------------ */

static const uint8_t png_signature[SIGNATURE_BYTES] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

static bool image_png_knows(const struct image_file *file)
{
    return file->bytes >= SIGNATURE_BYTES &&
           memcmp(file->data, png_signature, SIGNATURE_BYTES) == 0;
}

/* From chunk to chunk until IEND: rows that are not wanted are not read, and so not missed. */
static bool image_png_ends_whole(const struct image_file *file)
{
    size_t at = SIGNATURE_BYTES;

    while (file->bytes - at >= CHUNK_FRAME) {
        uint32_t length = load_be32(file->data + at);
        if (length > file->bytes - at - CHUNK_FRAME)
            return false;
        if (memcmp(file->data + at + 4, "IEND", 4) == 0)
            return true;
        at += CHUNK_FRAME + (size_t)length;
    }
    return false;
}

static int image_png_start(struct image_png *self, struct dl_error *err)
{
    self->png =
        png_create_read_struct_2(PNG_LIBPNG_VER_STRING, self, image_png_leave, image_png_ignore,
                                 self, image_png_take_memory, image_png_drop_memory);
    self->info = self->png ? png_create_info_struct(self->png) : NULL;
    if (!self->info) {
        image_png_close_image(self);
        return dl_error_set(err, ENOMEM, self->file.path, "out of memory for decoding it");
    }
    png_set_read_fn(self->png, self, image_png_read_bytes);
    png_set_user_limits(self->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(self->png, CHUNK_MAX);
    png_set_chunk_cache_max(self->png, CHUNKS_CACHED_MAX);
    return 0;
}

static int image_png_read_header(struct image_png *self, struct dl_error *err)
{
    /* Also what png_create_read_struct() and its like fail with. */
    if (setjmp(self->jump))
        return image_png_give_up(self, err);
    int r = image_png_start(self, err);
    if (r < 0)
        return r;
    png_read_info(self->png, self->info);
    self->size.height = png_get_image_height(self->png, self->info);
    self->size.width = png_get_image_width(self->png, self->info);
    return 0;
}

static int image_png_open(struct image_codec *codec, const struct image_file *file,
                          struct image_size *ret, struct dl_error *err)
{
    struct image_png *self = container_of(codec, struct image_png, base);
    int r;

    image_png_close_image(self);
    self->file = *file;
    self->read = 0;
    self->out_of_memory = false;
    if (!image_png_ends_whole(file))
        return image_refuse_truncated(file->path, err);
    if ((r = image_png_read_header(self, err)) < 0)
        return r;
    if ((r = image_check_size(self->size, file->path, err)) < 0) {
        image_png_close_image(self);
        return r;
    }
    *ret = self->size;
    return 0;
}

/* From 16 bits of each channel, big-endian, to 8: PIL's mode I;16 as convert("RGB") has it. */
static void image_png_clip(png_structp png, png_row_infop row, png_bytep data)
{
    (void)png;
    for (size_t i = 0; i < (size_t)row->width * PICTURE_PIXEL; i++)
        data[i] = data[2 * i] ? 255 : data[2 * i + 1];
    row->bit_depth = 8;
    row->channels = PICTURE_PIXEL;
    row->pixel_depth = 8 * PICTURE_PIXEL;
    row->rowbytes = (size_t)row->width * PICTURE_PIXEL;
}

/* Whatever it is, RGB of 8 bits, and a fourth byte. */
static void image_png_set_format(struct image_png *self, bool clip_grey)
{
    png_structp png = self->png;
    bool clip = clip_grey && png_get_bit_depth(png, self->info) == 16 &&
                png_get_color_type(png, self->info) == PNG_COLOR_TYPE_GRAY;
    bool alpha = (png_get_color_type(png, self->info) & PNG_COLOR_MASK_ALPHA) ||
                 png_get_valid(png, self->info, PNG_INFO_tRNS);

    png_set_expand(png);
    if (clip) {
        png_set_read_user_transform_fn(png, image_png_clip);
        png_set_user_transform_info(png, NULL, 8, PICTURE_PIXEL);
    } else {
        png_set_strip_16(png);
    }
    png_set_gray_to_rgb(png);
    if (!alpha)
        png_set_filler(png, 0, PNG_FILLER_AFTER);
}

/* Interlaced: the last pass has every other row. */
static void image_png_read_all(struct image_png *self, int passes)
{
    size_t row_bytes = (size_t)self->size.width * PICTURE_PIXEL;

    self->all = calloc(self->size.height, row_bytes);
    if (!self->all) {
        self->out_of_memory = true;
        image_png_leave(self->png, "out of memory");
    }
    for (int pass = 0; pass < passes; pass++) {
        for (uint32_t y = 0; y < self->size.height; y++)
            png_read_row(self->png, self->all + y * row_bytes, NULL);
    }
}

static int image_png_begin(struct image_codec *codec, const struct image_window *window,
                           struct image_rows *ret, struct dl_error *err)
{
    struct image_png *self = container_of(codec, struct image_png, base);

    if (setjmp(self->jump))
        return image_png_give_up(self, err);
    image_png_set_format(self, window->clip_grey);
    int passes = png_set_interlace_handling(self->png);
    png_read_update_info(self->png, self->info);
    if (png_get_rowbytes(self->png, self->info) != (size_t)self->size.width * PICTURE_PIXEL)
        image_png_leave(self->png, "its rows are of an unknown kind");
    self->next = window->top;
    if (passes > 1) {
        image_png_read_all(self, passes);
    } else {
        for (uint32_t y = 0; y < window->top; y++)
            png_read_row(self->png, NULL, NULL);
    }
    *ret = (struct image_rows){.origin = 0, .pixels = self->size.width};
    return 0;
}

static int image_png_row(struct image_codec *codec, uint8_t *out, struct dl_error *err)
{
    struct image_png *self = container_of(codec, struct image_png, base);
    size_t row_bytes = (size_t)self->size.width * PICTURE_PIXEL;

    if (setjmp(self->jump))
        return image_png_give_up(self, err);
    if (self->all)
        memcpy(out, self->all + self->next * row_bytes, row_bytes);
    else
        png_read_row(self->png, out, NULL);
    self->next++;
    return 0;
}

static int image_png_end(struct image_codec *codec, struct dl_error *err)
{
    (void)err; /* open has seen that the file ends as it should */
    image_png_close_image(container_of(codec, struct image_png, base));
    return 0;
}

/* ---- the codec ------------------------------------------------------------------------------ */

static void image_png_free_codec(struct image_codec *codec)
{
    if (!codec)
        return;
    struct image_png *self = container_of(codec, struct image_png, base);
    image_png_close_image(self);
    free(self);
}

static const struct image_codec_ops png_ops = {
    .knows = image_png_knows,
    .open = image_png_open,
    .begin = image_png_begin,
    .row = image_png_row,
    .end = image_png_end,
    .free = image_png_free_codec,
    .most_reduced = 1,
};

struct image_codec *image_png_new(void)
{
    struct image_png *self = calloc(1, sizeof *self);

    if (!self)
        return NULL;
    self->base.ops = &png_ops;
    return &self->base;
}
