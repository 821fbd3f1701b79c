/* What `dlctl top` knows while it runs, whether on a screen or as text. */
#ifndef DLCTL_TOP_SESSION_H
#define DLCTL_TOP_SESSION_H

#include "client/dlctl/options.h"
#include "client/dlctl/top/layout.h"
#include "client/dlctl/top/look.h"

enum { TOP_NOTICE_MAX = 512 };

struct top_session {
    const struct options *o; /* borrowed */
    struct top_state state;
    struct top_model *model;     /* owned; NULL: nothing was seen yet */
    char notice[TOP_NOTICE_MAX]; /* why nothing new is seen; "": all is well */
    bool unicode;                /* what the locale's characters are */
    uint64_t shown;              /* looks that were shown: --count */
};

void top_session_deinit(struct top_session *s);

/* Takes over what was seen; the model from before stays where that was a failure. -ENOMEM. */
int _nodiscard_ top_session_take(struct top_session *s, struct top_seen *seen);

/* The screen as it is now. -ENOMEM. */
int _nodiscard_ top_session_layout(const struct top_session *s, const struct top_shape *shape,
                                   struct top_grid *ret);

/* True once as much was shown as was asked for. */
bool top_session_done(const struct top_session *s);

/*
 * The second look comes so soon after the first one, in ms, for what can only be told of two; all
 * others as --interval says.
 */
uint64_t top_session_first_ms(const struct top_session *s);

/*
 * On a screen of ncurses, until somebody presses q: an exit status. -ENOTTY: there is none that it
 * could be drawn on, and nothing was done.
 */
int _nodiscard_ top_terminal(struct top_session *s);

#endif
