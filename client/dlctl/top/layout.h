/*
 * A model, and what the keys have made of it, on a screen of any size: what fits, and of what does
 * not the part that matters more. Pure.
 */
#ifndef DLCTL_TOP_LAYOUT_H
#define DLCTL_TOP_LAYOUT_H

#include "client/dlctl/top/grid.h"
#include "client/dlctl/top/state.h"

struct top_shape {
    int width;
    int height; /* 0: as many lines as there is to say */
    bool unicode;
    bool keys; /* somebody sits there: a line says what keys do, and one row is selected */
};

/* `model` may be NULL: nothing is known yet. `notice`: a line about the connection, or NULL.
 * -ENOMEM. */
int _nodiscard_ top_layout(const struct top_model *model, const struct top_state *state,
                           const char *notice, const struct top_shape *shape, struct top_grid *ret);

#endif
