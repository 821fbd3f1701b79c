/*
 * A dataset of the trainer's own program at helpers. Its client has pickled what its host would run
 * (client/python/dloaderd/_sent.py) into a file, dataset.args.sent of the spec: lines as those of
 * alike.h, an empty one, and the pickle. The stand-in reads it, and sends the pickle behind H_OPEN;
 * at the helper it is a file in memory again, from which a host takes it.
 */
#ifndef DL_HELPER_SENT_H
#define DL_HELPER_SENT_H

#include "daemon/helper/alike.h"

struct sent {
    int fd;         /* owned; while bytes is not NULL */
    uint8_t *bytes; /* owned mapping */
    uint64_t len;
};

/* All zero, then one of these. sent_open(): negative errno with `err`. */
int _nodiscard_ sent_open(struct sent *sent, const char *path, struct dl_error *err);
int _nodiscard_ sent_room(struct sent *sent, uint64_t bytes);
void sent_deinit(struct sent *sent);

/* Its parts, of which `ret` is borrowed. `any_versions`: no lines of packages', whose versions may
 * be others. Pure; negative errno with `err`. */
int _nodiscard_ sent_read(const struct sent *sent, bool any_versions,
                          char ret_lines[static ALIKE_MAX], struct dl_span *ret,
                          struct dl_error *err);

#endif
