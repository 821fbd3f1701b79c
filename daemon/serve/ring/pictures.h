/*
 * The memory in which decoded pictures (dataset.cache), row groups (dataset.shared) and ids of
 * texts (dataset.ids) are kept: one arena for each user and folder, first file, or tokenizer's
 * file, shared by all loaders of the user that name it, and freed with the last of them. A host's
 * loader ends with each epoch, so the client's session keeps its arena, too. The first loader
 * decides the size, which is charged to the user while the arena exists. Workers fill it
 * (daemon/cache/pictures_cache.h, ids_cache.h); the daemon maps only its counts. Main thread.
 */
#ifndef DL_RING_PICTURES_H
#define DL_RING_PICTURES_H

#include "daemon/cache/pictures_cache.h"
#include "daemon/serve/ring/charge.h"
#include "proto/spec.h"

struct pictures; /* one arena, counted */

/* All of a daemon. All zero is empty. */
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
 * for. One for ids of the size that nobody asked for is left out where it cannot be had. -EDQUOT,
 * -ENOMEM or what the system says, with `err`, which names the key where the size is to blame;
 * nothing is kept then.
 */
int _nodiscard_ pictures_list_make(struct pictures_set *set, const struct spec_dataset *dataset,
                                   const struct payer *payer, struct pictures_list *ret,
                                   struct dl_error *err);
/* `list` also keeps those of `from`. */
void pictures_list_share(struct pictures_list *list, const struct pictures_list *from);
/* What a list for the dataset would take that is not there yet: arenas, and (added) their bytes. */
uint64_t pictures_set_wants(const struct pictures_set *set, const struct spec_dataset *dataset,
                            const struct payer *payer, uint64_t *bytes);
/* Bytes that `payer` has paid for; NULL: all. */
uint64_t pictures_list_bytes(const struct pictures_list *list, const struct quota_account *payer);
/* Bytes that nobody else has a reference to. */
uint64_t pictures_list_own_bytes(const struct pictures_list *list);
void pictures_list_deinit(struct pictures_list *list); /* zeroes it */

/* Memory of an arena, new and empty, for ids or for what is decoded below that folder or file: a
 * descriptor, or a negative errno. */
int _nodiscard_ pictures_memory(const char *root, uint64_t bytes, bool ids);

const char *pictures_root(const struct pictures *pictures); /* the folder, or file */
bool pictures_has_ids(const struct pictures *pictures);
int pictures_fd(const struct pictures *pictures); /* borrowed; writable */
uint64_t pictures_bytes(const struct pictures *pictures);

/* What the loader's arenas have, in all, and their sizes; a text counts as a picture. */
void pictures_list_counts(const struct pictures_list *list, struct pictures_counts *ret,
                          uint64_t *ret_bytes);

/* Reports to the budget how much of the arenas is allocated; `set` is a struct pictures_set. */
void pictures_set_settle(void *set);

#endif
