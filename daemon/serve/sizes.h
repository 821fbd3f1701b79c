/*
 * Looks from time to time at what all loaders do, and gives those whose number of workers the
 * daemon finds (workers.count: auto) as many as core/sizing.h decides.
 */
#ifndef DL_SIZES_H
#define DL_SIZES_H

#include "daemon/serve/daemon.h"

void sizes_begin(struct daemon *daemon);
/* There may be such a loader now, or loaders of several users. */
void sizes_wake(struct daemon *daemon);
/* Loaders that were held back (core/fair.h) may go on: soon, they are not called from here. */
void sizes_go_on(struct daemon *daemon);

#endif
