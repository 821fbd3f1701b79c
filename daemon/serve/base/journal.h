/* systemd's journal, where it reads our standard error. */
#ifndef DL_JOURNAL_H
#define DL_JOURNAL_H

#include "proto/base.h"

#include <sys/uio.h>

/* Whether standard error leads to the journal: systemd says so in $JOURNAL_STREAM. Never without
 * libsystemd. */
bool journal_is_stderr(void);

/* One entry of fields "KEY=value", in which the value may be anything. A negative errno: it was not
 * taken. */
int _nodiscard_ journal_send(const struct iovec *fields, int n);

#endif
