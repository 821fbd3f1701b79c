/* Shared by desk.c (who asks), desk_probe.c (what an object is), desk_fetch.c (its blocks),
 * desk_ahead.c (what will be asked for) and desk_list.c (directories). */
#ifndef DL_REMOTE_DESK_PRIVATE_H
#define DL_REMOTE_DESK_PRIVATE_H

#include "daemon/fetcher/desk.h"
#include "daemon/fetcher/objects.h"

struct desk {
    uv_loop_t *loop;
    uv_prepare_t prepare;
    struct transfers *transfers; /* borrowed, both */
    struct kept *kept;
    struct peers *peers; /* borrowed; NULL: none */
    struct objects objects;
    struct asker *askers;
    struct asker *planners; /* those with something ahead: the next one's turn is the first's */
    struct fetch *fetches;  /* all that are under way */
    void (*unused)(void *owner);
    void *owner;
    uint64_t turn;   /* counts workers that came, and questions what is at a URL */
    uint64_t newest; /* of the loader that came last */
    bool for_disk;   /* what is asked for now is to wait there until it is read */
};

/* A remote file that a worker has mapped. */
struct asker_file {
    UT_hash_handle hh;     /* by number */
    uint32_t number;       /* of this worker's; another one each time that it opens a file */
    struct object *object; /* used */
    uint8_t *in_use;       /* owned; of each block: the worker may read it */
};

struct asker {
    uv_poll_t poll;
    struct desk *desk;
    int sock;        /* owned */
    uint64_t number; /* of it alone */
    uint64_t loader; /* 0: it is alone */
    uint64_t since;  /* desk->turn when its loader's first worker came: what was known before is
                        asked  again */
    struct asker_file *files;
    uint32_t last_number;
    /* The question that is open; `op` 0: none. */
    uint32_t op;
    struct object *object; /* used; NULL: REMOTE_LIST */
    struct asker_file *file;
    uint64_t first, n; /* blocks that are used for it */
    bool waited;       /* it could not be answered at once, though there was room on the way */
    struct desk_walk *walk;
    struct desk_walk *listed; /* what it will ask for (utlist): lists of directories */
    uint32_t n_listed;
    uint64_t listed_bytes;
    struct ahead *ahead;    /* what it will ask for later, in this order (utlist) */
    struct ahead *for_disk; /* of these: the first one that is not yet looked at for the disk */
    uint32_t n_ahead;
    struct asker *prev, *next;                 /* desk->askers */
    struct asker *planner_prev, *planner_next; /* desk->planners */
};

/* Answers and ends the question. `fd`: -1, or what goes with it, and stays the caller's. */
void asker_answer(struct asker *asker, const struct remote_answer *answer, int fd);
void asker_refuse(struct asker *asker, int code, const struct dl_error *err);

/* Its question, if what it needs is there by now. */
void asker_serve(struct asker *asker);
/* The object of its question is not what is at the URL any more: begins anew. */
void asker_ask_again(struct asker *asker);

/* False, too, of a loader that was opened since the object was looked at: it may be another one by
 * now. */
bool asker_knows(const struct asker *asker, const struct object *object);

/* Bytes that will be asked for, if there is room for them; `first` may be REMOTE_FROM_END. */
void asker_expect(struct asker *asker, struct object *object, uint64_t first, uint64_t bytes);
/* The same of an object whose size is known. */
void desk_expect(struct desk *desk, struct object *object, uint64_t first, uint64_t bytes);

/* ---- desk_probe.c --------------------------------------------------------------------------- */

/* What is at the URL: its first bytes, and with them its size; of one that is known, or kept on
 * disk, whether it is still that one. */
void desk_probe(struct desk *desk, struct object *object, uint64_t bytes);
/* It is being asked what it is. */
bool object_is_probed(const struct object *object);
/* The same while nobody waits for it; then these bytes are fetched, if there is room. `since`: a
 * question that was asked before is answered, and then asked again. */
void desk_probe_expected(struct desk *desk, struct object *object, uint64_t since, uint64_t bytes,
                         uint64_t first, uint64_t expected);

/* ---- desk_fetch.c --------------------------------------------------------------------------- */

/* Blocks, those that are absent, from the disk or the store; `urgent`: somebody waits for them,
 * else only if there is room. */
void desk_want(struct desk *desk, struct object *object, uint64_t first, uint64_t n, bool urgent);
/* No transfer is under way. */
void desk_stop(struct desk *desk);

/* ---- desk_ahead.c --------------------------------------------------------------------------- */

void asker_put_ahead(struct asker *asker, struct object *object, uint64_t first, uint64_t bytes);
void asker_forget_ahead(struct asker *asker);
/* Begins what is ahead, as far as nothing nearer waits and there is room. */
void desk_go_ahead(struct desk *desk);

/* ---- desk_list.c ---------------------------------------------------------------------------- */

/* `once`: whether there is anything, which is all that the asker wants to know. */
void desk_list(struct asker *asker, const char *url, bool once);
/* It will ask for that list. */
void desk_list_expect(struct asker *asker, const char *url);
void desk_walk_cancel(struct asker *asker); /* all of them */

#endif
