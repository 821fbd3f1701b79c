/*
 * JPEG by libjpeg-turbo, with its own defaults (accurate DCT, smooth chroma), as PIL decodes.
 *
 * Rows above the window are skipped without inverse DCT, columns beside it likewise, rows below
 * are not read at all. Smooth upsampling of chroma looks one pixel to each side, and libjpeg takes
 * the window's edge for the image's: so the window is opened a little wider.
 *
 * libjpeg warns of data that are damaged, and continues. So does PIL, which only refuses a file
 * that ends before its last row is decoded; so do we. Where a file has to be exact, such a warning
 * is an error, unless it is about bytes that are no part of the picture: versions of libjpeg-turbo
 * differ in how they continue, and in how they smooth a progressive picture that lacks scans.
 */
#include "daemon/data/decode/image/image_codec.h"
#include "daemon/data/decode/image/pixel_rows.h"

#include <assert.h>
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
/* Needs stdio.h before it. */
#include <jpeglib.h>

#include <jerror.h>

#ifndef JCS_EXTENSIONS
#error "libjpeg-turbo is needed: IJG's libjpeg has neither RGBX rows nor partial decoding"
#endif

enum {
    JPEG_MARGIN = 4, /* pixels beside the window */
    /* Of a progressive file: real ones have ten or so, made-up ones cost a pass over all blocks. */
    MAX_SCANS = 128,
};

/* Coefficients of a progressive image, all of them at once. */
static const long max_memory = 1L << 30;

struct image_jpeg {
    struct image_codec base;
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
    struct image_file file;
    bool cmyk;      /* rows come as C, M, Y, K */
    JSAMPARRAY row; /* borrowed: one of grey, for a grey image; else NULL */
};

/* ---- libjpeg's ways out --------------------------------------------------------------------- */

static void image_jpeg_leave(j_common_ptr info)
{
    struct image_jpeg *jpeg = info->client_data;

    info->err->format_message(info, jpeg->message);
    longjmp(jpeg->jump, 1);
}

/* Of headers that are unusual, and bytes between two segments: all pixels are there. */
static bool image_jpeg_is_harmless(int warning)
{
    return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_JFIF_MAJOR ||
           warning == JWRN_ADOBE_XFORM || warning == JWRN_BOGUS_ICC ||
           warning == JWRN_NOT_SEQUENTIAL;
}

static void image_jpeg_take_message(j_common_ptr info, int level)
{
    struct image_jpeg *jpeg = info->client_data;
    int warning = info->err->msg_code;

    if (level >= 0 || image_jpeg_is_harmless(warning))
        return;
    if (jpeg->file.exact || warning == JWRN_JPEG_EOF)
        image_jpeg_leave(info);
}

static void image_jpeg_no_output(j_common_ptr info)
{
    (void)info;
}

static void image_jpeg_watch_scans(j_common_ptr info)
{
    struct image_jpeg *jpeg = info->client_data;

    if (jpeg->info.input_scan_number > MAX_SCANS) {
        snprintf(jpeg->message, sizeof jpeg->message, "more than %d scans", MAX_SCANS);
        longjmp(jpeg->jump, 1);
    }
}

/* After a jump: frees what the image took, and says what was wrong. */
static int image_jpeg_give_up(struct image_jpeg *jpeg, struct dl_error *err)
{
    const char *path = jpeg->file.path;
    int code = jpeg->errors.msg_code;

    jpeg_abort_decompress(&jpeg->info);
    if (code == JERR_OUT_OF_MEMORY)
        return dl_error_set(err, ENOMEM, path, "out of memory for decoding it");
    if (code == JERR_NO_BACKING_STORE)
        return dl_error_set(err, EFBIG, path,
                            "is a progressive JPEG that needs more than %ld MiB to decode; make it "
                            "smaller, or store it as baseline JPEG",
                            max_memory >> 20);
    if (code == JWRN_JPEG_EOF || code == JERR_INPUT_EOF)
        return image_refuse_truncated(path, err);
    return image_refuse_corrupt(path, jpeg->message, err);
}

/* ---- one image ------------------------------------------------------------------------------ */

static bool image_jpeg_knows(const struct image_file *file)
{
    return file->bytes >= 3 && memcmp(file->data, "\xff\xd8\xff", 3) == 0;
}

/* An object that was used keeps its tables: an image without would be read with those of the last
 * one. Jumps, when there is no memory. */
static void image_jpeg_begin_anew(struct image_jpeg *jpeg)
{
    jpeg_destroy_decompress(&jpeg->info);
    jpeg_create_decompress(&jpeg->info);
    jpeg->info.mem->max_memory_to_use = max_memory;
    jpeg->info.progress = &jpeg->progress;
}

static int image_jpeg_read_header(struct image_jpeg *jpeg, struct dl_error *err)
{
    jpeg->errors.msg_code = 0;
    if (setjmp(jpeg->jump))
        return image_jpeg_give_up(jpeg, err);
    image_jpeg_begin_anew(jpeg);
    jpeg_mem_src(&jpeg->info, jpeg->file.data, jpeg->file.bytes);
    (void)jpeg_read_header(&jpeg->info, TRUE);
    return 0;
}

static int image_jpeg_open(struct image_codec *codec, const struct image_file *file,
                           struct image_size *ret, struct dl_error *err)
{
    struct image_jpeg *jpeg = container_of(codec, struct image_jpeg, base);
    struct image_size size;
    int r;

    jpeg->file = *file;
    if (jpeg->file.scale == 0)
        jpeg->file.scale = 1;
    if ((r = image_jpeg_read_header(jpeg, err)) < 0)
        return r;
    size.height = (jpeg->info.image_height - 1) / jpeg->file.scale + 1;
    size.width = (jpeg->info.image_width - 1) / jpeg->file.scale + 1;
    if ((r = image_check_size(size, file->path, err)) < 0) {
        jpeg_abort_decompress(&jpeg->info);
        return r;
    }
    *ret = size;
    return 0;
}

static int image_jpeg_check_colours(struct image_jpeg *jpeg, struct dl_error *err)
{
    J_COLOR_SPACE space = jpeg->info.jpeg_color_space;

    jpeg->cmyk = space == JCS_CMYK || space == JCS_YCCK;
    if (jpeg->cmyk || space == JCS_GRAYSCALE || space == JCS_RGB || space == JCS_YCbCr)
        return 0;
    jpeg_abort_decompress(&jpeg->info);
    return dl_error_set(err, EINVAL, jpeg->file.path,
                        "has %d colour components in an unknown way; store it as grey, RGB or CMYK",
                        jpeg->info.num_components);
}

/* The part of each row that is decoded. */
static void image_jpeg_cut_columns(struct jpeg_decompress_struct *info,
                                   const struct image_window *window, struct image_rows *ret)
{
    JDIMENSION left = window->left > JPEG_MARGIN ? window->left - JPEG_MARGIN : 0;
    JDIMENSION right = window->right + JPEG_MARGIN;

    if (right > info->output_width)
        right = info->output_width;
    JDIMENSION width = right - left;
    if (width < info->output_width)
        jpeg_crop_scanline(info, &left, &width);
    else
        left = 0;
    ret->origin = left;
    ret->pixels = info->output_width;
}

/* Whether scans are missing, so that libjpeg estimates the coefficients they would have brought. */
static bool image_jpeg_lacks_scans(const struct jpeg_decompress_struct *info)
{
    enum { ESTIMATED = 9 };

    for (int c = 0; info->progressive_mode && c < info->num_components; c++) {
        for (int i = 1; i <= ESTIMATED; i++) {
            if (info->coef_bits[c][i] != 0)
                return true;
        }
    }
    return false;
}

/* The columns that are decoded. All where blocks are smoothed from those beside them. */
static int image_jpeg_choose_columns(struct image_jpeg *jpeg, const struct image_window *window,
                                     struct image_rows *ret, struct dl_error *err)
{
    struct jpeg_decompress_struct *info = &jpeg->info;

    *ret = (struct image_rows){.pixels = info->output_width,
                               .grey = info->out_color_space == JCS_GRAYSCALE && !jpeg->row};
    if (!image_jpeg_lacks_scans(info)) {
        image_jpeg_cut_columns(info, window, ret);
        return 0;
    }
    if (!jpeg->file.exact)
        return 0;
    jpeg_abort_decompress(info);
    return image_refuse_corrupt(jpeg->file.path, "a progressive JPEG without all its scans", err);
}

static int image_jpeg_begin(struct image_codec *codec, const struct image_window *window,
                            struct image_rows *ret, struct dl_error *err)
{
    struct image_jpeg *jpeg = container_of(codec, struct image_jpeg, base);
    struct jpeg_decompress_struct *info = &jpeg->info;
    int r;

    if ((r = image_jpeg_check_colours(jpeg, err)) < 0)
        return r;
    if (setjmp(jpeg->jump))
        return image_jpeg_give_up(jpeg, err);
    bool grey = info->jpeg_color_space == JCS_GRAYSCALE || (jpeg->file.luma && !jpeg->cmyk);
    info->out_color_space = jpeg->cmyk ? JCS_CMYK : grey ? JCS_GRAYSCALE : JCS_EXT_RGBX;
    info->scale_num = 1;
    assert(window->reduce == 1 || jpeg->file.scale == 1);
    info->scale_denom = window->reduce * jpeg->file.scale;
    (void)jpeg_start_decompress(info);
    /* libjpeg itself would take longer to make four bytes of one. */
    jpeg->row = grey && !window->grey ? info->mem->alloc_sarray((j_common_ptr)info, JPOOL_IMAGE,
                                                                info->output_width, 1)
                                      : NULL;
    if ((r = image_jpeg_choose_columns(jpeg, window, ret, err)) < 0)
        return r;
    if (window->top > 0)
        (void)jpeg_skip_scanlines(info, window->top);
    return 0;
}

/* a · b / 255, rounded. */
static inline uint8_t image_jpeg_scale_byte(unsigned a, unsigned b)
{
    unsigned t = a * b + 128;

    return (uint8_t)((t + (t >> 8)) >> 8);
}

/*
 * As PIL's convert("RGB"), without colour management: R = 255 · (1 - C)(1 - K). And as PIL we take
 * 255 for no ink, as Adobe's programs write it, whether or not the file has their marker.
 */
static void image_jpeg_cmyk_to_rgb(uint8_t *row, uint32_t pixels)
{
    for (uint32_t x = 0; x < pixels; x++) {
        uint8_t *p = row + (size_t)x * PICTURE_PIXEL;
        for (unsigned c = 0; c < 3; c++)
            p[c] = image_jpeg_scale_byte(p[c], p[3]);
    }
}

static int image_jpeg_row(struct image_codec *codec, uint8_t *out, struct dl_error *err)
{
    struct image_jpeg *jpeg = container_of(codec, struct image_jpeg, base);

    if (setjmp(jpeg->jump))
        return image_jpeg_give_up(jpeg, err);
    (void)jpeg_read_scanlines(&jpeg->info, jpeg->row ? jpeg->row : &out, 1);
    if (jpeg->row)
        pixel_rows_spread(jpeg->row[0], jpeg->info.output_width, out);
    if (jpeg->cmyk)
        image_jpeg_cmyk_to_rgb(out, jpeg->info.output_width);
    return 0;
}

/* The next marker that ends coded data, where a byte of 255 is followed by 0 or a restart; 0: none
 * follows. */
static int image_jpeg_next_marker(const struct jpeg_decompress_struct *info)
{
    const uint8_t *p = info->src->next_input_byte, *end = p + info->src->bytes_in_buffer;

    while (end - p >= 2 && (p = memchr(p, 0xFF, (size_t)(end - p) - 1))) {
        uint8_t code = *++p;
        if (code != 0 && code != 0xFF && (code < JPEG_RST0 || code > JPEG_RST0 + 7))
            return code;
    }
    return 0;
}

/* Whether the file's last marker was seen, or is the next: the rest is not decoded for it, and rows
 * that it ends are filled with grey. */
static bool image_jpeg_ends_whole(struct jpeg_decompress_struct *info)
{
    int marker = info->unread_marker ? info->unread_marker : image_jpeg_next_marker(info);

    return jpeg_input_complete(info) || marker == JPEG_EOI;
}

/* Whether the rows below the window are there, and what follows them is no error; it may be
 * missing. */
static int image_jpeg_read_rest(struct image_jpeg *jpeg, struct dl_error *err)
{
    struct jpeg_decompress_struct *info = &jpeg->info;

    if (setjmp(jpeg->jump)) {
        bool made_all = info->output_scanline == info->output_height;
        bool ended = jpeg->errors.msg_code == JWRN_JPEG_EOF;
        return made_all && ended ? 0 : image_jpeg_give_up(jpeg, err);
    }
    JSAMPARRAY row = info->mem->alloc_sarray((j_common_ptr)info, JPOOL_IMAGE,
                                             info->output_width * PICTURE_PIXEL, 1);
    while (info->output_scanline < info->output_height)
        (void)jpeg_read_scanlines(info, row, 1);
    (void)jpeg_finish_decompress(info);
    return 0;
}

static int image_jpeg_end(struct image_codec *codec, struct dl_error *err)
{
    struct image_jpeg *jpeg = container_of(codec, struct image_jpeg, base);
    int r = 0;

    if (!image_jpeg_ends_whole(&jpeg->info))
        r = jpeg->file.exact ? image_refuse_truncated(jpeg->file.path, err)
                             : image_jpeg_read_rest(jpeg, err);
    jpeg_abort_decompress(&jpeg->info);
    return r;
}

/* ---- the codec ------------------------------------------------------------------------------ */

static void image_jpeg_free(struct image_codec *codec)
{
    if (!codec)
        return;
    struct image_jpeg *jpeg = container_of(codec, struct image_jpeg, base);
    jpeg_destroy_decompress(&jpeg->info);
    free(jpeg);
}

static const struct image_codec_ops jpeg_ops = {
    .knows = image_jpeg_knows,
    .open = image_jpeg_open,
    .begin = image_jpeg_begin,
    .row = image_jpeg_row,
    .end = image_jpeg_end,
    .free = image_jpeg_free,
    .most_reduced = 8,
};

struct image_codec *image_jpeg_new(void)
{
    struct image_jpeg *jpeg = calloc(1, sizeof *jpeg);

    if (!jpeg)
        return NULL;
    jpeg->base.ops = &jpeg_ops;
    jpeg->info.err = jpeg_std_error(&jpeg->errors);
    jpeg->errors.error_exit = image_jpeg_leave;
    jpeg->errors.emit_message = image_jpeg_take_message;
    jpeg->errors.output_message = image_jpeg_no_output;
    jpeg->info.client_data = jpeg;
    jpeg->progress.progress_monitor = image_jpeg_watch_scans;
    return &jpeg->base;
}
