/*
 * Between libdlclient and dlclient-local.so, the module that loads in the client's own process
 * (`workers: {count: 0}`): one table of functions. So the library needs no dataset, no decoder and
 * no YAML, and takes them only where they are asked for.
 *
 * Both are of one release: a table of another version is refused. One thread at a time for all that
 * comes from one open(). Functions that fail give a negative errno with `err`.
 */
#ifndef DL_CLIENT_LOCAL_H
#define DL_CLIENT_LOCAL_H

#include "client/dlclient.h"
#include "proto/codec.h"
#include "proto/common/error.h"
#include "proto/state_token.h"

/* To be raised with every change of what stands here. */
enum { DL_LOCAL_VERSION = 5 };

/* The table's symbol. */
#define DL_LOCAL_TABLE "dlclient_local"

struct module_loader; /* the module's */
struct local_pass;    /* the module's: daemon/data/local.h */

struct local_facts {
    const char *name;  /* borrowed from the loader, as `label` */
    const char *label; /* what the errors of its steps are told with */
    uint64_t length;   /* or DL_UNKNOWN */
    uint64_t batch_size;
    uint64_t seed;
    uint64_t fingerprint;
    struct state_identity identity;
    uint64_t slot_bytes; /* for a batch, to begin with */
    uint64_t memory_limit;
    bool drop_last;
    uint32_t replicas; /* shard.replicas */
    bool iterable;
    bool can_skip; /* iterable, and passes over samples without making them */
    bool fed;      /* the client is the sampler */
};

struct local_start {
    uint64_t epoch;
    uint64_t step;
    uint32_t rank, world;
    const struct history *before; /* what other world sizes had of the epoch */
    struct dl_span state;         /* what the dataset said of its place; empty: nothing; copied */
    struct dl_span changes;       /* changed weights of a mixture, as in CHANGED */
};

struct local_extent {
    uint64_t steps, samples; /* or DL_UNKNOWN */
};

/* One step's batch: memory for it, then what was made there. */
struct local_batch {
    void *slot; /* 64-byte aligned; borrowed */
    uint64_t bytes;
    uint64_t used;     /* or what is needed */
    uint32_t repeated; /* see struct dl_descriptor */
    const char
        *warning; /* of next(): what is to be said of it, borrowed until the next call; NULL */
};

struct local_table {
    uint32_t version; /* DL_LOCAL_VERSION */

    /* `text` is YAML or JSON of `len` bytes; `base` an absolute directory; `seed` for a spec that
     * gives none, or NULL: one is drawn. */
    int (*open)(const char *text, size_t len, const char *base, const uint64_t *seed,
                struct module_loader **ret, struct dl_error *err);
    void (*close)(struct module_loader *loader); /* its passes were ended */
    void (*facts)(const struct module_loader *loader, struct local_facts *ret);

    int (*start)(struct module_loader *loader, const struct local_start *where,
                 struct local_pass **ret, struct local_extent *ret_extent, struct dl_error *err);
    void (*end)(struct local_pass *pass);

    /*
     * The next step's batch: 0; DL_END; -ENODATA: feed it; -ENOBUFS and batch->used: it needs more
     * memory, and is made when asked again; else the step's error, as a daemon tells it. `give_up`
     * says that there is not so much memory: the error of that step, and the next one is next.
     */
    int (*next)(struct module_loader *loader, struct local_pass *pass, struct local_batch *batch,
                struct dl_error *err);
    int (*give_up)(struct module_loader *loader, struct local_pass *pass,
                   const struct local_batch *batch, struct dl_error *err);

    int (*feed)(struct local_pass *pass, const uint64_t *indices, size_t n, struct dl_error *err);
    void (*feed_end)(struct local_pass *pass);
};

#endif
