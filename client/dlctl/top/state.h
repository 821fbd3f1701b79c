/*
 * What the keys have made of the screen: the order of rows, the loader that is picked, whether it
 * stands still. Pure.
 */
#ifndef DLCTL_TOP_STATE_H
#define DLCTL_TOP_STATE_H

#include "client/dlctl/top/model.h"

struct top_state {
    enum top_sort sort;
    bool reverse;
    bool paused; /* what is seen stays */
    bool help;
    bool quit;
    char *selected; /* owned: the loader that Enter picks; NULL: the first one */
    uint64_t selected_uid;
    char *picked; /* owned: only this loader is shown; NULL: all */
    bool of_uid;  /* only that of */
    uint64_t picked_uid;
};

/* Keys beside characters. */
enum { TOP_KEY_UP = 0x110000, TOP_KEY_DOWN, TOP_KEY_ENTER, TOP_KEY_ESCAPE };

/* `model` may be NULL: there is none yet. False: the key means nothing. */
bool top_state_key(struct top_state *state, const struct top_model *model, int key);
void top_state_deinit(struct top_state *state);

/* Whether a row of that place is shown. */
bool top_state_shows(const struct top_state *state, const struct top_place *at);

/* The number of the row that is selected; -1: there is none. */
int top_state_row(const struct top_state *state, const struct top_model *model);

#endif
