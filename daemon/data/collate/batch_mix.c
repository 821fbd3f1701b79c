#include "daemon/data/collate/batch_mix.h"
#include "proto/dtype.h"

#include <errno.h>
#include <math.h>

enum { CHW = 3 };

struct batch_mix {
    double mixup; /* alpha; 0: it is not drawn */
    double cutmix;
    uint64_t classes;
    uint32_t label;
    uint32_t label_dtype;
    uint32_t height;
    uint32_t width;
    uint64_t *row_bytes; /* owned; of each leaf; 0: not an image */
    uint32_t n_leaves;
    float *last; /* owned; of the batch's last sample, while an image is mixed */
    size_t room; /* bytes of it */
};

/* ---- which leaves -------------------------------------------------------------------------------
 */

static bool batch_mix_is_whole(uint32_t dtype)
{
    return dtype >= DL_DTYPE_UINT8 && dtype <= DL_DTYPE_INT64;
}

static int batch_mix_take_image(struct batch_mix *mix, const struct tree_node *node, uint32_t leaf,
                                struct dl_error *err)
{
    if (mix->height == 0) {
        mix->height = (uint32_t)node->shape[1];
        mix->width = (uint32_t)node->shape[2];
    }
    if (node->shape[1] != mix->height || node->shape[2] != mix->width)
        return dl_error_set(
            err, EINVAL, "collate",
            "mixup and cutmix need images of one height and width, and there are %u "
            "× %u and %llu × %llu",
            mix->height, mix->width, (ull)node->shape[1], (ull)node->shape[2]);
    mix->row_bytes[leaf] = node->nbytes;
    return 0;
}

static int batch_mix_find(struct batch_mix *mix, const struct tree *schema, struct dl_error *err)
{
    uint32_t leaf = 0, labels = 0, images = 0;

    for (uint32_t i = 0; i < schema->count; i++) {
        const struct tree_node *node = &schema->nodes[i];
        if (node->kind != TREE_TENSOR)
            continue;
        if (node->ndim == 0 && batch_mix_is_whole(node->dtype)) {
            mix->label = leaf;
            mix->label_dtype = node->dtype;
            labels++;
        }
        if (node->ndim == CHW && node->dtype == DL_DTYPE_FLOAT32 && node->nbytes > 0) {
            int r = batch_mix_take_image(mix, node, leaf, err);
            if (r < 0)
                return r;
            images++;
        }
        leaf++;
    }
    if (labels == 1 && images > 0)
        return 0;
    return dl_error_set(
        err, EINVAL, "collate",
        "mixup and cutmix need an image of float32 [c, h, w], as ToTensor makes it, "
        "and one label that is a whole number; samples have %u such images and %u "
        "such labels",
        images, labels);
}

int batch_mix_new(const struct spec_collate *collate, const struct tree *schema,
                  struct batch_mix **ret, struct dl_error *err)
{
    struct batch_mix *mix = calloc(1, sizeof *mix);
    int r;

    if (mix)
        *mix = (struct batch_mix){.mixup = collate->mixup,
                                  .cutmix = collate->cutmix,
                                  .classes = collate->classes,
                                  .n_leaves = schema->count,
                                  .row_bytes = calloc(schema->count + 1, sizeof *mix->row_bytes)};
    if (!mix || !mix->row_bytes)
        r = dl_error_set(err, ENOMEM, "collate", "out of memory");
    else
        r = batch_mix_find(mix, schema, err);
    if (r < 0)
        batch_mix_free(mix);
    else
        *ret = mix;
    return r;
}

struct batch_mix *batch_mix_free(struct batch_mix *mix)
{
    if (!mix)
        return NULL;
    free(mix->row_bytes);
    free(mix->last);
    free(mix);
    return NULL;
}

uint32_t batch_mix_label(const struct batch_mix *mix)
{
    return mix->label;
}

uint64_t batch_mix_classes(const struct batch_mix *mix)
{
    return mix->classes;
}

/* ---- draws --------------------------------------------------------------------------------------
 */

/* The operation drawn for a batch. */
struct batch_mix_drawn {
    bool cuts;
    double share; /* of each sample's own class in its label */
    uint32_t top;
    uint32_t left;
    uint32_t bottom;
    uint32_t right;
};

/* torch.distributions.Beta(alpha, alpha) is the first of two shares. */
static double batch_mix_draw_share(struct draws *draws, double alpha)
{
    float shares[2];

    draws_dirichlet(draws, 2, alpha, shares);
    return (double)shares[0];
}

/* From the middle to both sides, as far as the picture goes. */
static void batch_mix_span(int64_t middle, double half, uint32_t side, uint32_t *ret_low,
                           uint32_t *ret_high)
{
    int64_t reach = (int64_t)(half * side), low = middle - reach, high = middle + reach;

    *ret_low = low < 0 ? 0 : (uint32_t)low;
    *ret_high = high > side ? side : (uint32_t)high;
}

static void batch_mix_draw_box(const struct batch_mix *mix, struct draws *draws,
                               struct batch_mix_drawn *drawn)
{
    double share = batch_mix_draw_share(draws, mix->cutmix);
    int64_t x = draws_int(draws, 0, mix->width), y = draws_int(draws, 0, mix->height);
    double half = 0.5 * sqrt(1.0 - share);

    batch_mix_span(x, half, mix->width, &drawn->left, &drawn->right);
    batch_mix_span(y, half, mix->height, &drawn->top, &drawn->bottom);
    uint64_t area = (uint64_t)(drawn->right - drawn->left) * (drawn->bottom - drawn->top);
    drawn->share = 1.0 - (double)area / (double)((uint64_t)mix->width * mix->height);
}

static void batch_mix_draw(const struct batch_mix *mix, struct draws *draws,
                           struct batch_mix_drawn *drawn)
{
    static const float alike[] = {0.5F, 0.5F};

    *drawn = (struct batch_mix_drawn){.cuts = mix->cutmix > 0};
    if (mix->mixup > 0 && mix->cutmix > 0)
        drawn->cuts = draws_choice(draws, 2, alike) == 1;
    if (drawn->cuts)
        batch_mix_draw_box(mix, draws, drawn);
    else
        drawn->share = batch_mix_draw_share(draws, mix->mixup);
}

/* ---- images -------------------------------------------------------------------------------------
 */

/* `own`, with as much of `other` as is not its share. */
static void batch_mix_blend(float *restrict own, const float *restrict other, size_t n,
                            double share)
{
    float mine = (float)share, theirs = (float)(1.0 - share);

    for (size_t i = 0; i < n; i++) {
        float part = other[i] * theirs;
        own[i] = part + own[i] * mine;
    }
}

static void batch_mix_cut(const struct batch_mix *mix, const struct batch_mix_drawn *drawn,
                          float *own, const float *other, size_t n)
{
    size_t plane = (size_t)mix->height * mix->width;
    size_t bytes = (size_t)(drawn->right - drawn->left) * sizeof *own;

    for (size_t c = 0; c < n / plane; c++) {
        for (uint32_t y = drawn->top; y < drawn->bottom; y++) {
            size_t at = c * plane + (size_t)y * mix->width + drawn->left;
            memcpy(own + at, other + at, bytes);
        }
    }
}

/* From the last sample on, since each needs the one before it as it was. */
static int batch_mix_image(struct batch_mix *mix, const struct batch_mix_drawn *drawn, float *rows,
                           uint64_t row_bytes, uint64_t n)
{
    size_t elements = row_bytes / sizeof *rows;

    if (row_bytes > mix->room) {
        free(mix->last);
        mix->last = calloc(1, row_bytes);
        mix->room = mix->last ? row_bytes : 0;
    }
    if (!mix->last)
        return -ENOMEM;
    memcpy(mix->last, rows + (n - 1) * elements, row_bytes);
    for (uint64_t i = n; i-- > 0;) {
        float *own = rows + i * elements;
        const float *other = i > 0 ? own - elements : mix->last;
        if (drawn->cuts)
            batch_mix_cut(mix, drawn, own, other, elements);
        else
            batch_mix_blend(own, other, elements, drawn->share);
    }
    return 0;
}

/* ---- labels -------------------------------------------------------------------------------------
 */

/* A whole number of the label's type, as int64; of a uint64 above that, -1. */
static int64_t batch_mix_label_at(const struct batch_mix *mix, const void *labels, uint64_t i)
{
    size_t bytes = dtype_bytes(mix->label_dtype);
    const uint8_t *at = (const uint8_t *)labels + i * bytes;
    bool is_signed = dtype_name(mix->label_dtype)[0] == 'i';
    uint64_t number = 0;

    memcpy(&number, at, bytes);
    if (is_signed && bytes < sizeof number && number >> (8 * bytes - 1))
        return -1;
    return number > INT64_MAX ? -1 : (int64_t)number;
}

static int batch_mix_check_labels(const struct batch_mix *mix, const struct batch_mix_rows *rows,
                                  size_t *ret_bad, struct dl_error *err)
{
    for (uint64_t i = 0; i < rows->n; i++) {
        int64_t label = batch_mix_label_at(mix, rows->labels, i);
        if (label >= 0 && (uint64_t)label < mix->classes)
            continue;
        *ret_bad = i;
        return dl_error_set(err, ERANGE, "collate.classes",
                            "a label is not one of %llu classes, 0 to %llu", (ull)mix->classes,
                            (ull)(mix->classes - 1));
    }
    return 0;
}

static void batch_mix_labels(const struct batch_mix *mix, double share,
                             const struct batch_mix_rows *rows)
{
    float *to = rows->leaves[mix->label];

    for (uint64_t i = 0; i < rows->n; i++, to += mix->classes) {
        int64_t own = batch_mix_label_at(mix, rows->labels, i);
        int64_t other = batch_mix_label_at(mix, rows->labels, i > 0 ? i - 1 : rows->n - 1);
        memset(to, 0, mix->classes * sizeof *to);
        to[other] = (float)(1.0 - share);
        to[own] += (float)share;
    }
}

int batch_mix_run(struct batch_mix *mix, struct draws *draws, const struct batch_mix_rows *rows,
                  size_t *ret_bad, struct dl_error *err)
{
    struct batch_mix_drawn drawn;
    int r = batch_mix_check_labels(mix, rows, ret_bad, err);

    if (r < 0)
        return r;
    batch_mix_draw(mix, draws, &drawn);
    for (uint32_t i = 0; r == 0 && i < mix->n_leaves; i++) {
        if (mix->row_bytes[i] > 0)
            r = batch_mix_image(mix, &drawn, rows->leaves[i], mix->row_bytes[i], rows->n);
    }
    if (r < 0)
        return dl_error_set(err, -r, "collate", "out of memory for a sample that is mixed");
    batch_mix_labels(mix, drawn.share, rows);
    return 0;
}
