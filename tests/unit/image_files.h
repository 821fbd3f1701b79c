/* What the tests of images share: making JPEG and PNG files in memory. */
#ifndef DL_TEST_IMAGE_FILES_H
#define DL_TEST_IMAGE_FILES_H

#include "daemon/data/decode/image/image.h"
#include "tests/unit/data_files.h"

#include <jpeglib.h>
#include <png.h>

/* Shapes, edges of colour and grain; the same for the same place. */
static inline uint8_t painted(uint32_t y, uint32_t x, uint32_t c)
{
    uint32_t grain = (y * 2654435761U ^ x * 40503U ^ c * 97U) >> 7;

    return (uint8_t)(25 * (c + 1) + (x * 3 + y * 2) % 64 + 40 * ((x / 13 + y / 11) % 2) +
                     40 * (x / (3 + 2 * c) % 2) + grain % 8);
}

struct jpeg_options {
    uint32_t height;
    uint32_t width;
    int components; /* 1: grey; 3; 4: CMYK */
    int h_samp;     /* luma samples for each of chroma, 1 or 2; 0: 1 */
    int v_samp;
    int quality; /* 0: 90 */
    bool progressive;
    bool many_scans; /* progressive, one for each coefficient: 190 of them */
    bool optimise;   /* Huffman tables of its own */
    bool no_huffman;
    int restart; /* rows of blocks between restarts; 0: none */
};

/* *ret is the caller's, to be freed. */
static inline size_t make_jpeg(const struct jpeg_options *opt, uint8_t **ret)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    unsigned char *out = NULL;
    unsigned long bytes = 0;
    _cleanup_free_ uint8_t *row = malloc((size_t)opt->width * 4);

    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &out, &bytes);
    info.image_height = opt->height;
    info.image_width = opt->width;
    info.input_components = opt->components;
    info.in_color_space = opt->components == 1   ? JCS_GRAYSCALE
                          : opt->components == 3 ? JCS_RGB
                                                 : JCS_CMYK;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, opt->quality ? opt->quality : 90, TRUE);
    info.optimize_coding = opt->optimise;
    if (opt->components == 3) {
        info.comp_info[0].h_samp_factor = opt->h_samp ? opt->h_samp : 1;
        info.comp_info[0].v_samp_factor = opt->v_samp ? opt->v_samp : 1;
    }
    jpeg_scan_info scans[190] = {{.comps_in_scan = 3, .component_index = {0, 1, 2}}};
    for (int i = 1; i < 190; i++) {
        scans[i] =
            (jpeg_scan_info){.comps_in_scan = 1, .component_index = {i % 3}, .Ss = 1 + (i - 1) / 3};
        scans[i].Se = scans[i].Ss;
    }
    if (opt->progressive)
        jpeg_simple_progression(&info);
    if (opt->many_scans) {
        info.scan_info = scans;
        info.num_scans = ARRAY_SIZE(scans);
    }
    info.restart_in_rows = opt->restart;
    if (opt->no_huffman)
        jpeg_suppress_tables(&info, TRUE);
    if (opt->no_huffman)
        info.quant_tbl_ptrs[0]->sent_table = info.quant_tbl_ptrs[1]->sent_table = FALSE;
    jpeg_start_compress(&info, !opt->no_huffman);
    for (uint32_t y = 0; y < opt->height; y++) {
        for (uint32_t x = 0; x < opt->width; x++) {
            for (int c = 0; c < opt->components; c++)
                row[(size_t)x * (size_t)opt->components + (size_t)c] = painted(y, x, (uint32_t)c);
        }
        (void)jpeg_write_scanlines(&info, &(JSAMPROW){row}, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    *ret = out;
    return bytes;
}

struct png_output {
    uint8_t *data;
    size_t bytes;
};

static inline void png_output_write(png_structp png, png_bytep data, size_t n)
{
    struct png_output *out = png_get_io_ptr(png);

    out->data = realloc(out->data, out->bytes + n);
    assert_non_null(out->data);
    memcpy(out->data + out->bytes, data, n);
    out->bytes += n;
}

/* RGB of 8 bits. *ret is the caller's, to be freed. */
static inline size_t make_png(uint32_t height, uint32_t width, bool interlaced, uint8_t **ret)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    struct png_output out = {0};
    size_t row_bytes = (size_t)width * 3;
    _cleanup_free_ uint8_t *pixels = malloc(height * row_bytes);

    for (size_t i = 0; i < height * row_bytes; i++)
        pixels[i] = painted((uint32_t)(i / row_bytes), (uint32_t)(i % row_bytes / 3), i % 3);
    png_set_write_fn(png, &out, png_output_write, NULL);
    png_set_IHDR(png, info, width, height, 8, PNG_COLOR_TYPE_RGB,
                 interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_BASE,
                 PNG_FILTER_TYPE_BASE);
    png_write_info(png, info);
    int passes = png_set_interlace_handling(png);
    while (passes-- > 0) {
        for (uint32_t y = 0; y < height; y++)
            png_write_row(png, pixels + y * row_bytes);
    }
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    *ret = out.data;
    return out.bytes;
}

/* One of each sort that is decoded in its own way. */
static const struct jpeg_options jpeg_kinds[] = {
    {.components = 3},
    {.components = 3, .h_samp = 2},
    {.components = 3, .v_samp = 2},
    {.components = 3, .h_samp = 2, .v_samp = 2},
    {.components = 3, .h_samp = 2, .v_samp = 2, .restart = 1},
    {.components = 3, .h_samp = 2, .v_samp = 2, .progressive = true},
    {.components = 3, .progressive = true},
    {.components = 1},
    {.components = 1, .progressive = true},
    {.components = 4},
};

static inline bool lacks_webp(void)
{
    if (image_webp_is_built())
        return false;
    print_message("# skipped: built without WebP (Debian: libwebp-dev)\n");
    return true;
}

static inline bool lacks_tiff(void)
{
    if (!image_tiff_missing())
        return false;
    print_message("# skipped: %s\n", image_tiff_missing());
    return true;
}

#endif
