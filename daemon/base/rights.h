/*
 * Which code and which data files a user may have the daemon use: the only place that decides.
 * Pure.
 *
 *   who asks           | code that the spec names            | data files
 *   -------------------+-------------------------------------+-----------------------------------
 *   the daemon's own   | any; `python` and `plugins` limit   | below data_roots, if there are any
 *   user               | it where they are given             |
 *   another user       | what `site` lists, by the daemon's  | below data_roots, without which none
 *                      | interpreter                         |
 *   another user, of a | none                                | none
 *   --private daemon   |                                     |
 *
 * Root is another user, too, unless the daemon runs as root. Code is a Python object, an
 * interpreter or a plug-in. A `host` is the client's own process, which reads with the client's
 * rights: any client of a daemon that is not private may bring one.
 */
#ifndef DL_RIGHTS_H
#define DL_RIGHTS_H

#include "daemon/base/config.h"
#include "proto/spec.h"

#include <sys/types.h>

/* The user that asks, and the daemon's side. */
struct rights_asker {
    const struct config *config;
    bool private; /* the daemon is its user's own, and ends with its clients */
    uid_t uid;    /* of the client */
    uid_t own;    /* of the daemon */
};

static inline bool rights_is_other(const struct rights_asker *asker)
{
    return asker->uid != asker->own;
}

/* 0; or -EPERM with place, value and remedy. */
int _nodiscard_ rights_check(const struct rights_asker *asker, const struct dl_spec *spec,
                             struct dl_error *err);

#endif
