/*
 * TIFF by libtiff, as PIL decodes it: the first page, turned as its tag Orientation says, which PIL
 * does on loading. Which files are read is tiff_rows.c's to say; the others are refused with the
 * reason.
 *
 * libtiff is found when the first TIFF file is opened: it brings seven libraries, and few read
 * TIFF. It allocates what a file's tags say, so it has a limit, which goes by the file's size; its
 * messages come here, and not to standard error; and all it sees of the world are the file's bytes.
 * Strips and tiles are decoded one by one and whole, as PIL does: of one that is damaged, or packed
 * in runs that go across rows, a row alone would have other pixels. Tiles may be no larger than the
 * picture needs.
 */
#include "daemon/data/decode/image/image_codec.h"
#include "daemon/data/decode/image/picture.h"
#include "daemon/data/decode/image/tiff_rows.h"
#include "proto/common/library.h"

#include <errno.h>
#include <stdio.h>

#include <tiffio.h>

#define TIFF_FUNCTIONS(X)               \
    X(ClientOpenExt)                    \
    X(Close)                            \
    X(GetField)                         \
    X(GetFieldDefaulted)                \
    X(IsTiled)                          \
    X(OpenOptionsAlloc)                 \
    X(OpenOptionsFree)                  \
    X(OpenOptionsSetErrorHandlerExtR)   \
    X(OpenOptionsSetMaxSingleMemAlloc)  \
    X(OpenOptionsSetWarningHandlerExtR) \
    X(ReadEncodedStrip)                 \
    X(ReadEncodedTile)                  \
    X(ScanlineSize)                     \
    X(SetField)                         \
    X(ComputeStrip)                     \
    X(ComputeTile)                      \
    X(StripSize)                        \
    X(TileRowSize)                      \
    X(TileSize)

/* Set once; the same whichever thread does it. */
static struct {
    bool is_there;
#define X(name) __typeof__(TIFF##name) *name;
    TIFF_FUNCTIONS(X)
#undef X
} tiff_library;

enum { TILE_SIDE_MIN = 1024 }; /* a tile may be so large, however small the picture is */

/* Of one allocation of libtiff's, besides some times the file's bytes: tables of its codecs. */
static const uint64_t allocation_min = 16 << 20;

struct image_tiff {
    struct image_codec base;
    struct image_file file;
    TIFF *tiff;  /* owned; NULL unless an image is open */
    uint64_t at; /* libtiff's position in the file */
    struct tiff_tags tags;
    struct tiff_layout layout;
    struct image_size stored; /* as the file has it; what comes out may be turned */
    struct picture rows;      /* what begin() decoded */
    struct picture turned;
    uint8_t *coded; /* owned; a strip or a tile as libtiff gives it */
    size_t coded_bytes, coded_room;
    uint32_t next; /* row of `rows` */
    bool is_decoding;
    bool lacks_tag;    /* one that counts for the pixels: libtiff warned of it */
    char message[128]; /* libtiff's; "": none yet */
};

static bool image_tiff_find_library(void)
{
    static const char *const files[] = {"libtiff.so.6", NULL};
    static const struct library_function functions[] = {
#define X(name) {"TIFF" #name, &tiff_library.name},
        TIFF_FUNCTIONS(X)
#undef X
    };

    if (!tiff_library.is_there)
        tiff_library.is_there = library_find(files, functions, ARRAY_SIZE(functions));
    return tiff_library.is_there;
}

const char *image_tiff_missing(void)
{
    if (image_tiff_find_library())
        return NULL;
    return "this system has no libtiff.so.6; install it (libtiff6 of Debian and Ubuntu, libtiff of "
           "Fedora)";
}

/* ---- what libtiff calls --------------------------------------------------------------------- */

static void _printf_(2, 0)
    image_tiff_take(struct image_tiff *self, const char *format, va_list words)
{
    if (!self->message[0])
        (void)vsnprintf(self->message, sizeof self->message, format, words);
}

static int image_tiff_error(TIFF *tiff, void *owner, const char *module, const char *format,
                            va_list words)
{
    (void)tiff, (void)module;
    image_tiff_take(owner, format, words);
    return 1;
}

/* Whether it quotes the name of a tag that says where or what the pixels are. Sizes of strips are
 * no such ones: programs write wrong ones, or none, and libtiff knows them, as PIL does. */
static bool image_tiff_names_pixels(const char *message)
{
    static const char *const tags[] = {
        "\"BitsPerSample\"", "\"ColorMap\"",     "\"Compression\"",  "\"ExtraSamples\"",
        "\"FillOrder\"",     "\"Orientation\"",  "\"Photometric",    "\"PlanarConfiguration\"",
        "\"Predictor\"",     "\"RowsPerStrip\"", "\"SampleFormat\"", "\"SamplesPerPixel\"",
        "\"StripOffsets\"",  "\"TileLength\"",   "\"TileOffsets\"",  "\"TileWidth\"",
    };

    for (size_t i = 0; i < ARRAY_SIZE(tags); i++) {
        if (strcasestr(message, tags[i]))
            return true;
    }
    return false;
}

/*
 * Unknown tags and the like are no faults. A damaged tag that counts for the pixels is one, which
 * libtiff ignores. What libjpeg warns of is data that are corrupt, which it replaces by grey; PIL
 * asks libtiff to do so, too, but an error is known to be one.
 */
static int image_tiff_warning(TIFF *tiff, void *owner, const char *module, const char *format,
                              va_list words)
{
    struct image_tiff *self = owner;
    char message[sizeof self->message];

    (void)tiff;
    if (self->is_decoding) {
        if (module && strcmp(module, "JPEGLib") == 0)
            image_tiff_take(self, format, words);
        return 1;
    }
    (void)vsnprintf(message, sizeof message, format, words);
    if (image_tiff_names_pixels(message)) {
        self->lacks_tag = true;
        memcpy(self->message, message, sizeof message);
    }
    return 1;
}

static tmsize_t image_tiff_read(thandle_t owner, void *out, tmsize_t n)
{
    struct image_tiff *self = owner;
    uint64_t left = self->at < self->file.bytes ? self->file.bytes - self->at : 0;
    size_t some = n > 0 ? min_u64((uint64_t)n, left) : 0;

    if (some > 0)
        memcpy(out, self->file.data + self->at, some);
    self->at += some;
    return (tmsize_t)some;
}

static tmsize_t image_tiff_write(thandle_t owner, void *data, tmsize_t n)
{
    (void)owner, (void)data, (void)n;
    return -1;
}

static toff_t image_tiff_seek(thandle_t owner, toff_t to, int whence)
{
    struct image_tiff *self = owner;

    if (whence == SEEK_CUR)
        to += self->at;
    else if (whence == SEEK_END)
        to += self->file.bytes;
    self->at = to;
    return to;
}

static int image_tiff_close_file(thandle_t owner)
{
    (void)owner;
    return 0;
}

static toff_t image_tiff_bytes(thandle_t owner)
{
    return ((struct image_tiff *)owner)->file.bytes;
}

/* Opened to read: libtiff copies what it changes. */
static int image_tiff_map(thandle_t owner, void **ret, toff_t *ret_bytes)
{
    struct image_tiff *self = owner;

    *ret = (void *)(uintptr_t)self->file.data;
    *ret_bytes = self->file.bytes;
    return 1;
}

static void image_tiff_unmap(thandle_t owner, void *data, toff_t bytes)
{
    (void)owner, (void)data, (void)bytes;
}

/* ---- opening -------------------------------------------------------------------------------- */

static bool image_tiff_knows(const struct image_file *file)
{
    /* Of BigTIFF, as PIL, what little-endian machines write. */
    static const char begins[][5] = {"II*\0", "MM\0*", "II+\0"};

    for (size_t i = 0; file->bytes >= 8 && i < ARRAY_SIZE(begins); i++) {
        if (memcmp(file->data, begins[i], 4) == 0)
            return true;
    }
    return false;
}

static void image_tiff_close(struct image_tiff *self)
{
    if (self->tiff)
        tiff_library.Close(self->tiff);
    self->tiff = NULL;
    self->is_decoding = false;
}

static int image_tiff_give_up(struct image_tiff *self, struct dl_error *err)
{
    size_t n = strlen(self->message);

    image_tiff_close(self);
    while (n > 0 && (self->message[n - 1] == '.' || self->message[n - 1] == '\n'))
        self->message[--n] = '\0';
    return image_refuse_corrupt(self->file.path, n > 0 ? self->message : "libtiff cannot decode it",
                                err);
}

static void image_tiff_start(struct image_tiff *self)
{
    TIFFOpenOptions *options = tiff_library.OpenOptionsAlloc();
    uint64_t most = allocation_min + 4 * (uint64_t)self->file.bytes;

    if (!options)
        return;
    tiff_library.OpenOptionsSetMaxSingleMemAlloc(options, (tmsize_t)most);
    tiff_library.OpenOptionsSetErrorHandlerExtR(options, image_tiff_error, self);
    tiff_library.OpenOptionsSetWarningHandlerExtR(options, image_tiff_warning, self);
    self->tiff = tiff_library.ClientOpenExt(
        "image", "r", self, image_tiff_read, image_tiff_write, image_tiff_seek,
        image_tiff_close_file, image_tiff_bytes, image_tiff_map, image_tiff_unmap, options);
    tiff_library.OpenOptionsFree(options);
}

static void image_tiff_read_tags(struct image_tiff *self)
{
    struct tiff_tags *tags = &self->tags;
    const struct {
        uint32_t tag;
        uint16_t *ret;
    } numbers[] = {
        {TIFFTAG_BITSPERSAMPLE, &tags->bits},      {TIFFTAG_COMPRESSION, &tags->compression},
        {TIFFTAG_FILLORDER, &tags->fill_order},    {TIFFTAG_ORIENTATION, &tags->orientation},
        {TIFFTAG_SAMPLESPERPIXEL, &tags->samples}, {TIFFTAG_PLANARCONFIG, &tags->planar},
        {TIFFTAG_SAMPLEFORMAT, &tags->format},
    };
    uint16_t *extra = NULL;

    *tags = (struct tiff_tags){.photometric = 0};
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        (void)tiff_library.GetFieldDefaulted(self->tiff, numbers[i].tag, numbers[i].ret);
    (void)tiff_library.GetField(self->tiff, TIFFTAG_PHOTOMETRIC, &tags->photometric);
    if (tiff_library.GetField(self->tiff, TIFFTAG_EXTRASAMPLES, &tags->n_extra, &extra) &&
        tags->n_extra > 0)
        tags->extra = extra[0];
    (void)tiff_library.GetField(self->tiff, TIFFTAG_IMAGEWIDTH, &self->stored.width);
    (void)tiff_library.GetField(self->tiff, TIFFTAG_IMAGELENGTH, &self->stored.height);
}

static uint64_t image_tiff_number(const uint8_t *p, unsigned bytes, bool big_endian)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)p[big_endian ? bytes - 1 - i : i] << (8 * i);
    return value;
}

/* Whether the file itself says that its pixels stand for colours of a palette. If that cannot be
 * read, libtiff takes them for grey. */
static bool image_tiff_has_indices(const struct image_file *file)
{
    enum { BIG = '+', NUMBER = 2 };
    bool big_endian = file->data[0] == 'M', big = file->data[2] == BIG;
    unsigned word = big ? 8 : 4, count = big ? 8 : 2, entry = big ? 20 : 12;
    uint64_t at = 0, n = 0;

    if (file->bytes >= 2 * word)
        at = image_tiff_number(file->data + word, word, big_endian);
    if (at >= file->bytes || file->bytes - at < count)
        return false;
    n = min_u64(image_tiff_number(file->data + at, count, big_endian),
                (file->bytes - at - count) / entry);
    for (const uint8_t *p = file->data + at + count; n > 0; n--, p += entry) {
        if (image_tiff_number(p, NUMBER, big_endian) == TIFFTAG_PHOTOMETRIC)
            return image_tiff_number(p + entry - word, NUMBER, big_endian) == PHOTOMETRIC_PALETTE;
    }
    return false;
}

/* Of 16 bits a colour; the upper 8 count, as in PIL, also where a program wrote 8 bits alone. */
static bool image_tiff_read_palette(struct image_tiff *self)
{
    uint16_t *colours[3];

    if (self->layout.kind != TIFF_PALETTE)
        return !image_tiff_has_indices(&self->file);
    if (!tiff_library.GetField(self->tiff, TIFFTAG_COLORMAP, &colours[0], &colours[1], &colours[2]))
        return false;
    for (unsigned c = 0; c < 3; c++) {
        for (unsigned i = 0; i < 1U << self->tags.bits; i++)
            self->layout.palette[i][c] = (uint8_t)(colours[c][i] >> 8);
    }
    return true;
}

static int image_tiff_check(struct image_tiff *self, struct dl_error *err)
{
    const char *why = tiff_layout_choose(&self->tags, &self->layout);

    if (why)
        return dl_error_set(err, EINVAL, self->file.path,
                            "is TIFF that %s (%u samples of %u bits, photometric interpretation "
                            "%u, compression %u); convert it to PNG",
                            why, self->tags.samples, self->tags.bits, self->tags.photometric,
                            self->tags.compression);
    if (!image_tiff_read_palette(self))
        return image_refuse_corrupt(self->file.path, "it has no palette", err);
    if (self->tags.compression == COMPRESSION_JPEG && self->tags.photometric == PHOTOMETRIC_YCBCR)
        (void)tiff_library.SetField(self->tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    return 0;
}

static int image_tiff_open(struct image_codec *codec, const struct image_file *file,
                           struct image_size *ret, struct dl_error *err)
{
    struct image_tiff *self = container_of(codec, struct image_tiff, base);
    const char *missing = image_tiff_missing();
    int r;

    if (missing)
        return dl_error_set(err, ENOTSUP, file->path, "is TIFF, which libtiff decodes, but %s",
                            missing);
    image_tiff_close(self);
    self->file = *file;
    self->at = 0;
    self->message[0] = '\0';
    self->lacks_tag = false;
    self->stored = (struct image_size){0};
    image_tiff_start(self);
    if (!self->tiff || self->lacks_tag)
        return image_tiff_give_up(self, err);
    image_tiff_read_tags(self);
    if ((r = image_check_size(self->stored, file->path, err)) < 0 ||
        (r = image_tiff_check(self, err)) < 0) {
        image_tiff_close(self);
        return r;
    }
    *ret = self->stored;
    if (self->tags.orientation >= 5) /* turned by 90° */
        *ret = (struct image_size){.height = self->stored.width, .width = self->stored.height};
    return 0;
}

/* ---- decoding ------------------------------------------------------------------------------- */

static int image_tiff_make_room(struct image_tiff *self, size_t bytes)
{
    self->coded_bytes = bytes;
    if (bytes <= self->coded_room) {
        memset(self->coded, 0, bytes); /* what a damaged strip leaves out */
        return 0;
    }
    free(self->coded);
    self->coded = calloc(1, bytes);
    self->coded_room = self->coded ? bytes : 0;
    return self->coded ? 0 : -ENOMEM;
}

static bool image_tiff_say(struct image_tiff *self, const char *why)
{
    if (!self->message[0])
        (void)snprintf(self->message, sizeof self->message, "%s", why);
    return false;
}

/* Rows [0, bottom) of one plane, or of all that there is. */
static bool image_tiff_read_strips(struct image_tiff *self, unsigned plane, uint32_t bottom,
                                   bool clip_grey)
{
    size_t row_bytes = tiff_row_bytes(&self->layout, self->stored.width);
    uint32_t height = (uint32_t)(self->coded_bytes / row_bytes);

    for (uint32_t y = 0; y < bottom; y++) {
        uint32_t i = tiff_library.ComputeStrip(self->tiff, y, (uint16_t)plane);
        if (y % height == 0 && tiff_library.ReadEncodedStrip(self->tiff, i, self->coded,
                                                             (tmsize_t)self->coded_bytes) < 0)
            return image_tiff_say(self, "its strips cannot be decoded");
        tiff_row_put(&self->layout, self->coded + y % height * row_bytes, self->stored.width, plane,
                     clip_grey, picture_row(&self->rows, y));
    }
    return true;
}

/* The tile whose upper left pixel is there. */
static void image_tiff_put_tile(struct image_tiff *self, unsigned plane, const uint32_t at[2],
                                const struct image_size *tile, bool clip_grey)
{
    uint32_t height = (uint32_t)min_u64(tile->height, self->stored.height - at[0]);
    uint32_t width = (uint32_t)min_u64(tile->width, self->stored.width - at[1]);
    size_t row_bytes = tiff_row_bytes(&self->layout, tile->width);

    for (uint32_t y = 0; y < height; y++)
        tiff_row_put(&self->layout, self->coded + y * row_bytes, width, plane, clip_grey,
                     picture_row(&self->rows, at[0] + y) + (size_t)at[1] * PICTURE_PIXEL);
}

static bool image_tiff_read_tiles(struct image_tiff *self, unsigned plane,
                                  const struct image_size *tile, bool clip_grey)
{
    for (uint64_t y = 0; y < self->stored.height; y += tile->height) {
        for (uint64_t x = 0; x < self->stored.width; x += tile->width) {
            uint32_t at[2] = {(uint32_t)y, (uint32_t)x};
            uint32_t i = tiff_library.ComputeTile(self->tiff, at[1], at[0], 0, (uint16_t)plane);
            if (tiff_library.ReadEncodedTile(self->tiff, i, self->coded,
                                             (tmsize_t)self->coded_bytes) < 0)
                return image_tiff_say(self, "its tiles cannot be decoded");
            image_tiff_put_tile(self, plane, at, tile, clip_grey);
        }
    }
    return true;
}

/* Whether libtiff's rows or tiles are as large as we take them for; *ret: their bytes. */
static bool image_tiff_measure(struct image_tiff *self, struct image_size *tile, size_t *ret)
{
    if (!tiff_library.IsTiled(self->tiff)) {
        size_t row_bytes = tiff_row_bytes(&self->layout, self->stored.width);
        *ret = (size_t)max_u64((uint64_t)tiff_library.StripSize(self->tiff), 1);
        return (tiff_library.ScanlineSize(self->tiff) == (tmsize_t)row_bytes &&
                *ret % row_bytes == 0) ||
               image_tiff_say(self, "its rows do not have the size of its colours");
    }
    (void)tiff_library.GetField(self->tiff, TIFFTAG_TILEWIDTH, &tile->width);
    (void)tiff_library.GetField(self->tiff, TIFFTAG_TILELENGTH, &tile->height);
    if (tile->width == 0 || tile->height == 0 ||
        tile->width > max_u64(2 * (uint64_t)self->stored.width, TILE_SIDE_MIN) ||
        tile->height > max_u64(2 * (uint64_t)self->stored.height, TILE_SIDE_MIN))
        return image_tiff_say(self, "its tiles are much larger than the picture");
    *ret = tiff_row_bytes(&self->layout, tile->width) * tile->height;
    return tiff_library.TileSize(self->tiff) == (tmsize_t)*ret ||
           image_tiff_say(self, "its tiles do not have the size of its colours");
}

static bool image_tiff_read_planes(struct image_tiff *self, const struct image_size *tile,
                                   uint32_t bottom, bool clip_grey)
{
    for (unsigned plane = 0; plane < self->layout.planes; plane++) {
        bool done = tile->width > 0 ? image_tiff_read_tiles(self, plane, tile, clip_grey)
                                    : image_tiff_read_strips(self, plane, bottom, clip_grey);
        if (!done || self->message[0])
            return false;
    }
    for (uint32_t y = 0; y < bottom; y++)
        tiff_row_finish(&self->layout, self->stored.width, picture_row(&self->rows, y));
    return true;
}

/* As tag 274 Orientation has it: 1 as it is, 2 mirrored, 3 upside down, ... */
static int image_tiff_turn(struct image_tiff *self)
{
    static const uint8_t quarters[] = {0, 0, 0, 2, 0, 1, 3, 1, 1};
    unsigned how = self->tags.orientation;
    int r = 0;

    if (quarters[how]) {
        r = picture_turn(&self->rows, quarters[how], &self->turned);
        picture_swap(&self->rows, &self->turned);
    }
    if (r == 0 && (how == 4 || how == 5)) {
        r = picture_flip_vertically(&self->rows, &self->turned);
        picture_swap(&self->rows, &self->turned);
    }
    if (r == 0 && (how == 2 || how == 7))
        picture_flip_horizontally(&self->rows);
    return r;
}

static int image_tiff_begin(struct image_codec *codec, const struct image_window *window,
                            struct image_rows *ret, struct dl_error *err)
{
    struct image_tiff *self = container_of(codec, struct image_tiff, base);
    uint32_t bottom = self->tags.orientation == 1 ? window->bottom : self->stored.height;
    struct image_size tile = {0};
    size_t bytes = 0;

    self->message[0] = '\0';
    if (!image_tiff_measure(self, &tile, &bytes))
        return image_tiff_give_up(self, err);
    if (picture_set(&self->rows, self->stored, false) < 0 || image_tiff_make_room(self, bytes) < 0)
        goto no_memory;
    self->is_decoding = true;
    if (!image_tiff_read_planes(self, &tile, bottom, window->clip_grey))
        return image_tiff_give_up(self, err);
    image_tiff_close(self);
    if (image_tiff_turn(self) < 0)
        goto no_memory;
    self->next = window->top;
    *ret = (struct image_rows){.origin = 0, .pixels = self->rows.size.width};
    return 0;

no_memory:
    image_tiff_close(self);
    return dl_error_set(err, ENOMEM, self->file.path, "out of memory for decoding it");
}

static int image_tiff_row(struct image_codec *codec, uint8_t *out, struct dl_error *err)
{
    struct image_tiff *self = container_of(codec, struct image_tiff, base);

    (void)err;
    memcpy(out, picture_row(&self->rows, self->next++),
           (size_t)self->rows.size.width * PICTURE_PIXEL);
    return 0;
}

static int image_tiff_end(struct image_codec *codec, struct dl_error *err)
{
    (void)codec, (void)err; /* begin has closed it */
    return 0;
}

static void image_tiff_free(struct image_codec *codec)
{
    if (!codec)
        return;
    struct image_tiff *self = container_of(codec, struct image_tiff, base);
    image_tiff_close(self);
    picture_deinit(&self->rows);
    picture_deinit(&self->turned);
    free(self->coded);
    free(self);
}

static const struct image_codec_ops tiff_ops = {
    .knows = image_tiff_knows,
    .open = image_tiff_open,
    .begin = image_tiff_begin,
    .row = image_tiff_row,
    .end = image_tiff_end,
    .free = image_tiff_free,
    .most_reduced = 1,
};

struct image_codec *image_tiff_new(void)
{
    struct image_tiff *self = calloc(1, sizeof *self);

    if (!self)
        return NULL;
    self->base.ops = &tiff_ops;
    return &self->base;
}
