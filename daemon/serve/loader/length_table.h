/*
 * The lengths in tokens of a loader's samples, which plans of token batches are made from. Counted:
 * a plan in use by a thread may outlive its loader, and the lengths stay charged meanwhile. Main
 * thread, but for the values.
 *
 * A cache on disk (daemon/cache/lengths_cache.h) saves measuring them again. It is read and written
 * by the loop's threads.
 */
#ifndef DL_LENGTH_TABLE_H
#define DL_LENGTH_TABLE_H

#include "daemon/plan/lengths_rule.h"
#include "daemon/serve/loader/crew.h"
#include "daemon/serve/ring/charge.h"

struct length_table {
    uint64_t n;
    struct charge charge; /* of the values */
    uint32_t refs;
    uint32_t values[];
};

/* One reference; all zero, and memory only as they are written. -EDQUOT, or -ENOMEM, with `err`. */
int _nodiscard_ length_table_new(uint64_t n, const struct payer *payer, struct length_table **ret,
                                 struct dl_error *err);
struct length_table *length_table_ref(struct length_table *table);   /* NULL is fine */
struct length_table *length_table_unref(struct length_table *table); /* returns NULL */

/* The quota that a table of `n` lengths takes. */
static inline uint64_t length_table_bytes(uint64_t n)
{
    return n * sizeof(uint32_t);
}

/* Puts the directory that there is by default in place of "auto". */
void length_cache_locate(char **dir);

/* The threads that read and write the cache, and the user they work for. */
struct length_cache_for {
    struct crew *crew; /* borrowed */
    uint32_t uid;
    const char *dir; /* copied */
    uint64_t size;   /* cache_room.h */
};

/*
 * Fills the table from the cache, and looks at what it has (lengths_check()). `done` comes from the
 * loop with 0, -ENOENT, or -EINVAL and `err`, unless length_cache_forget() was called before.
 */
struct length_cache_load;
typedef void (*length_cache_done)(void *owner, int r, const struct lengths_found *found,
                                  const struct dl_error *err);
struct length_cache_load *length_cache_load(const struct length_cache_for *cache,
                                            uint64_t fingerprint, struct length_table *table,
                                            const struct lengths_rule *rule, length_cache_done done,
                                            void *owner);
void length_cache_forget(struct length_cache_load *load); /* NULL is fine */

/* Puts the table there; what fails is logged, with `label`. */
void length_cache_store(const struct length_cache_for *cache, uint64_t fingerprint,
                        struct length_table *table, const char *label);

#endif
