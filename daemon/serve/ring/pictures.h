/*
 * The memory in which decoded pictures are kept (dataset.cache), and row groups (dataset.shared):
 * one arena for each user and folder, or first file, shared by all loaders of the user that name
 * it, and gone with the last of them.
 * Of a client's own host, whose loader ends with each epoch, the client's session keeps it, too.
 * Its size is that of the first loader's wish, and is charged to the user as long as it is there.
 * Workers fill it (daemon/cache/pictures_cache.h); the daemon maps its counts alone. Main thread.
 */
#ifndef DL_RING_PICTURES_H
#define DL_RING_PICTURES_H

#include "daemon/cache/pictures_cache.h"
#include "daemon/serve/ring/charge.h"
#include "proto/spec.h"

struct pictures; /* one arena, counted */

/* All of a daemon. All zero: there are none. */
struct pictures_set {
    struct pictures *head; /* (utlist) */
};

/* Those of one loader, or session. */
struct pictures_list {
    struct pictures **items; /* owned array of references */
    uint32_t n;
};

/*
 * The arenas that the spec's datasets want: those that are there, and new ones, which `payer` pays
 * for. -EDQUOT, -ENOMEM or what the system says, with `err`, which names the key where the
 * size is to blame; nothing is kept then.
 */
int _nodiscard_ pictures_list_make(struct pictures_set *set, const struct spec_dataset *dataset,
                                   const struct payer *payer, struct pictures_list *ret,
                                   struct dl_error *err);
/* `list` keeps those of `from`, too. */
void pictures_list_share(struct pictures_list *list, const struct pictures_list *from);
void pictures_list_deinit(struct pictures_list *list); /* zeroes it */

const char *pictures_root(const struct pictures *pictures); /* the folder */
int pictures_fd(const struct pictures *pictures);           /* borrowed; writable */
uint64_t pictures_bytes(const struct pictures *pictures);

/* What the loader's arenas have, in all, and their sizes. */
void pictures_list_counts(const struct pictures_list *list, struct pictures_counts *ret,
                          uint64_t *ret_bytes);

/* Tells the budget what of the arenas is there by now; `set` is a struct pictures_set. */
void pictures_set_settle(void *set);

#endif
