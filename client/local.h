/*
 * The interface between libdlclient and dlclient-local.so, the module that loads in the client's
 * own process (`workers: {count: 0}`): one table of functions. It keeps datasets, decoders and YAML
 * out of the library until they are needed.
 *
 * Both are of one release: a table of another version is refused. One thread at a time for all
 * objects of one open(). Functions that fail return a negative errno with `err`.
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
    const char *label; /* names the loader in the errors of its steps */
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
    struct dl_span state;         /* the dataset's state; may be empty; copied */
    struct dl_span changes;       /* changed weights of a mixture, as in CHANGED */
};

struct local_extent {
    uint64_t steps, samples; /* or DL_UNKNOWN */
};

/* One step's batch: memory for it, then what was made there. */
struct local_batch {
    void *slot; /* 64-byte aligned; borrowed */
    uint64_t bytes;
    uint64_t used;     /* or the size needed */
    uint32_t repeated; /* see struct dl_descriptor */
    const char
        *warning; /* of next(): a warning for the user, borrowed until the next call; may be NULL */
};

struct local_table {
    uint32_t version; /* DL_LOCAL_VERSION */

    /* `text` is YAML or JSON of `len` bytes; `base` an absolute directory; `seed` is for a spec
     * without one; NULL: it is drawn. */
    int (*open)(const char *text, size_t len, const char *base, const uint64_t *seed,
                struct module_loader **ret, struct dl_error *err);
    void (*close)(struct module_loader *loader); /* its passes were ended */
    void (*facts)(const struct module_loader *loader, struct local_facts *ret);

    int (*start)(struct module_loader *loader, const struct local_start *where,
                 struct local_pass **ret, struct local_extent *ret_extent, struct dl_error *err);
    void (*end)(struct local_pass *pass);

    /*
     * Makes the next step's batch: 0; DL_END; -ENODATA: feed it; -ENOBUFS: the batch needs
     * batch->used bytes, and is made in the next call; else the step's error, as from a daemon.
     * `give_up`: that much memory is not available, so the step fails and the next one follows.
     */
    int (*next)(struct module_loader *loader, struct local_pass *pass, struct local_batch *batch,
                struct dl_error *err);
    int (*give_up)(struct module_loader *loader, struct local_pass *pass,
                   const struct local_batch *batch, struct dl_error *err);

    int (*feed)(struct local_pass *pass, const uint64_t *indices, size_t n, struct dl_error *err);
    void (*feed_end)(struct local_pass *pass);
};

#endif
