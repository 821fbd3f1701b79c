/*
 * The lengths in tokens of a loader's samples, which plans of token batches are made from. Counted:
 * a plan that a thread is still at may outlive its loader. Main thread, but for the values.
 *
 * A cache on disk (daemon/cache/lengths_cache.h) saves taking them again. It is read and written in
 * libuv's thread pool.
 */
#ifndef DL_LENGTH_TABLE_H
#define DL_LENGTH_TABLE_H

#include "daemon/plan/lengths_rule.h"

#include <uv.h>

struct length_table {
    uint64_t n;
    uint32_t refs;
    uint32_t values[];
};

/* One reference; all zero, and memory only as they are written. NULL: there is not enough. */
struct length_table *length_table_new(uint64_t n);
struct length_table *length_table_ref(struct length_table *table);   /* NULL is fine */
struct length_table *length_table_unref(struct length_table *table); /* returns NULL */

/* What of the quota a table of so many lengths takes. */
static inline uint64_t length_table_bytes(uint64_t n)
{
    return n * sizeof(uint32_t);
}

/* Puts the directory that there is by default in place of "auto". */
void length_cache_locate(char **dir);

/*
 * Fills the table from the cache in `dir`, and looks at what it has (lengths_check()). `done` comes
 * from the loop with 0, -ENOENT, or -EINVAL and `err`, unless length_cache_forget() was called
 * before. NULL: it cannot be done.
 */
struct length_cache_load;
typedef void (*length_cache_done)(void *owner, int r, const struct lengths_found *found,
                                  const struct dl_error *err);
struct length_cache_load *length_cache_load(uv_loop_t *loop, const char *dir, uint64_t fingerprint,
                                            struct length_table *table,
                                            const struct lengths_rule *rule, length_cache_done done,
                                            void *owner);
void length_cache_forget(struct length_cache_load *load); /* NULL is fine */

/* Puts the table there; what fails is logged, with `label`. */
void length_cache_store(uv_loop_t *loop, const char *dir, uint64_t fingerprint,
                        struct length_table *table, const char *label);

#endif
