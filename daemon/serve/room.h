/*
 * Room for one more loader: what its user may have of loaders, workers, descriptors and memory, and
 * all users together of memory and of bytes in a second. What nobody uses makes way; and one that
 * does not fit now is refused, or waits (limits.full).
 */
#ifndef DL_ROOM_H
#define DL_ROOM_H

#include "daemon/serve/daemon.h"

/* 0: there is. 1: not now, and it waits; -EDQUOT, -ENOMEM: it is refused. Both with `err`, which
 * has the numbers. */
int _nodiscard_ room_make(struct daemon *daemon, struct session *session,
                          const struct dl_spec *spec, struct dl_error *err);
/* One of the account's loaders that nobody has open makes way. False: all are in use. */
bool room_make_way(const struct daemon *daemon, const struct quota_account *account);
/* One of the account's loaders that nobody reads gives workers back, with `last` also the last one
 * that it has. False: none has any to give. */
bool room_yield_workers(const struct daemon *daemon, const struct quota_account *account,
                        bool last);
/* The account needs one worker for a loader that has none: others give one back, who need it least.
 * False: none does, or one is on its way. */
bool room_spare_worker(const struct daemon *daemon, const struct quota_account *account);

#endif
