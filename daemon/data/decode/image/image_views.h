/*
 * What is made of each picture of a folder: one result of a list of transforms, or several views of
 * it, each by a list of its own (dataset.transforms, dataset.views). Of several the picture is
 * decoded whole, once. They draw from the sample's generator one after the other: the first view's
 * numbers are those it would draw alone.
 *
 *   read → (begin → (run → write)* of each view in turn)*
 */
#ifndef DL_DATA_IMAGE_VIEWS_H
#define DL_DATA_IMAGE_VIEWS_H

#include "daemon/data/decode/transform/transforms.h"
#include "proto/spec.h"

enum { IMAGE_VIEWS_MAX = 64 };

/* All zero: there are none, and the spec's `transform` says what is done. */
struct image_views {
    struct transforms **lists; /* owned; n_lists */
    uint32_t n_lists;
    uint32_t chosen[IMAGE_VIEWS_MAX]; /* which list each view has; n */
    uint32_t n;                       /* views; 0: none */
    bool is_list;                     /* the sample has a list of them, if only of one */
    bool is_fixed;                    /* each has one shape in all samples */
    struct transforms_runner *run;    /* owned */
    struct picture whole;             /* owned; of several views, the picture as it was decoded */
};

/* Reads spec->transforms and spec->views. Errors name the place below `place`, value and remedy. */
int _nodiscard_ image_views_read(struct image_views *views, const struct spec_dataset *spec,
                                 const char *place, struct dl_error *err);
void image_views_deinit(struct image_views *views);

/* Of a view, as transforms_result(). */
struct transforms_shape image_views_result(const struct image_views *views, uint32_t view);

/* After image_open() of `decoder`. Errors as image_decode_picture(). */
int _nodiscard_ image_views_begin(struct image_views *views, struct image_decoder *decoder,
                                  struct dl_error *err);
/* Then each view, from 0 on: as transforms_run(). */
int _nodiscard_ image_views_run(struct image_views *views, uint32_t view,
                                struct image_decoder *decoder, struct draws *draws,
                                const char *path, struct transforms_shape *ret,
                                struct dl_error *err);
/* The view that was run last, as transforms_write(). */
void image_views_write(const struct image_views *views, bool planar, void *out);

#endif
