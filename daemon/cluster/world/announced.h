/*
 * Which helpers are there, by what the store lists of them. Each writes another word under its
 * address again and again (discovery.h); one whose word has stayed the same for too long, by this
 * machine's clock alone, is gone. One that is not listed any more is not gone at once: the store
 * may have been started again, empty, and the helper's next word brings it back. Pure.
 */
#ifndef DL_ANNOUNCED_H
#define DL_ANNOUNCED_H

#include "daemon/base/config.h"
#include "daemon/cluster/store/backend.h"

/* Of helpers; what else is listed is left out. */
enum { ANNOUNCED_MAX = 1024 };

struct announced_helper {
    char *address; /* owned */
    uint64_t word;
    uint64_t changed_ns; /* when another word was seen last */
    bool listed;         /* at the last look */
    bool there;
};

/* All zero: nobody was seen. */
struct announced {
    struct announced_helper *all; /* owned; by address */
    uint32_t n;
};

/* What the store lists at `now`. True: others are there than before. */
bool announced_look(struct announced *announced, const struct backend_item *items, uint32_t n,
                    uint64_t now, uint64_t silence_ns);
/* Those that are there, by address: the caller's. */
void announced_there(const struct announced *announced, struct config_dirs *ret);
/* The address of the first from *at on that is listed and gone: nobody needs what the store has of
 * it. NULL: no more. */
const char *announced_next_gone(const struct announced *announced, uint32_t *at);
void announced_deinit(struct announced *announced);

#endif
