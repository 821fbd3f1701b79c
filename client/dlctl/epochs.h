/* The view `epochs` as a table: what is of batches of tokens, for people. */
#ifndef DLCTL_EPOCHS_H
#define DLCTL_EPOCHS_H

#include "proto/value.h"

/*
 * Of the view's rows: where none has tokens, the keys of batches of tokens go; else tokens,
 * tokens_per_s, padding (a share, from tokens and padded) and leftover stay, and what does not fit
 * a column goes. Where no rank waits for another, the keys of waiting go. Other keys stay as they
 * are. 0 or -ENOMEM, after which the view is fit for being freed alone.
 */
int _nodiscard_ epochs_table(struct value *view);

#endif
