/*
 * A backend in memory: a store of this process, and any number of backends that share it.
 */
#ifndef DL_MEMORY_H
#define DL_MEMORY_H

#include "daemon/cluster/store/backend.h"

struct memory_store;

struct memory_store *memory_store_new(void); /* NULL: out of memory */
/* Its backends were freed. NULL is fine; returns NULL. */
struct memory_store *memory_store_free(struct memory_store *store);

/* All is forgotten, as by a store that was started again. */
void memory_store_forget(struct memory_store *store);
/* Until it is back all calls fail. */
void memory_store_take_away(struct memory_store *store, bool away);
/* Of its backends from now on: as of one that lists only what was put. */
void memory_store_list_little(struct memory_store *store);
/* Of keys and values, asked and answered. */
uint64_t memory_store_bytes(const struct memory_store *store);

/* Answers in the loop's next turn. */
int _nodiscard_ memory_new(uv_loop_t *loop, struct memory_store *store, struct backend **ret,
                           struct dl_error *err);

#endif
