/*
 * Where nodes leave what they agree on: values under keys, in a store that all of them reach.
 *
 * backend_get() reads a key; backend_set() writes it if what is there is still what `token` was
 * given for, and otherwise says what is there instead. So of several nodes that change the same
 * state at once one wins, and the others learn of it.
 *
 * What only one node writes needs no token: backend_put() writes it whatever was there, and the
 * others find it, with all keys that begin alike, by backend_list(), until backend_drop(). In a
 * list are the keys that were put; those that were set only where backend_lists_all().
 *
 * A token is a number that the backend gives for what lies under a key; 0 stands for nothing. It
 * means something to the same backend and key only, and any other number is one that is out of
 * date.
 *
 * All calls come back at once and are answered later, once each, from the loop and never from
 * inside a call, within the backend's time limit. A set that was answered by an error may have
 * been done or not; one that finds its own bytes there has won: no two nodes write the same. After
 * backend_free() nothing is answered. Calls of one key are made one after another; those of
 * different keys may overlap. Main thread only.
 */
#ifndef DL_BACKEND_H
#define DL_BACKEND_H

#include "proto/codec.h"

#include <stdio.h>
#include <uv.h>

#define BACKEND_PREFIX "/dloader/"

enum {
    BACKEND_PREFIX_MAX = 96, /* bytes of what precedes each key in the store, with its NUL */
    BACKEND_KEY_MAX = 512,   /* bytes of a key */
    BACKEND_VALUE_MAX = 1024 * 1024, /* bytes of a value; one of none cannot be set */
    BACKEND_NOTES_MAX = 110          /* etcd does 128 operations at once */
};

struct backend_item {
    const char *name; /* what follows the prefix in its key */
    struct dl_span data;
};

struct backend_answer {
    int status; /* 0, or a negative errno with `error`; the fields below are then zero */
    bool won;   /* of a set: it was done, and what is there is what was given */
    uint64_t token;
    struct dl_span data; /* what is there; borrowed for the call, as all here. Of a put and of a
                            list: under `ask` */
    const struct backend_item *items; /* of a list, by name */
    uint32_t n;
    const struct dl_error *error; /* names the endpoint, what was tried, and for how long */
};

/* What a set that wins leaves besides: small, for those who only have to know that something has
 * changed. A store that cannot do both at once does this second, and an end in between leaves the
 * old one. */
struct backend_note {
    const char *key;
    struct dl_span data;
    const struct backend_note *next; /* NULL: the last; one alone unless backend_notes_many() */
};

typedef void (*backend_done)(void *owner, const struct backend_answer *answer);

/* What lies under a watched key now, borrowed for the call; of no bytes: that is not known. */
typedef void (*backend_changed)(void *owner, struct dl_span data);

/* How the store does, for `dlctl members` and metrics. */
struct backend_health {
    char endpoint[256];     /* that answers, or was last tried */
    bool answers;           /* the last call was answered */
    uint64_t calls;         /* made */
    uint64_t failures;      /* of them, answered by an error */
    struct dl_error latest; /* why the last one that failed did; code 0: none has */
    bool here;              /* the store is served by this process, */
    uint64_t peers;         /* connections that are open to it, its own included */
};

struct backend;

struct backend_ops {
    bool lists_all, notes_many;
    void (*get)(struct backend *backend, const char *key, backend_done done, void *owner);
    void (*set)(struct backend *backend, const char *key, uint64_t token, struct dl_span data,
                const struct backend_note *note, backend_done done, void *owner);
    void (*put)(struct backend *backend, const char *key, struct dl_span data, const char *ask,
                backend_done done, void *owner);
    void (*list)(struct backend *backend, const char *prefix, const char *ask, backend_done done,
                 void *owner);
    void (*drop)(struct backend *backend, const char *key, backend_done done, void *owner);
    /* NULL: the backend cannot watch, and is asked now and then instead. */
    void (*watch)(struct backend *backend, const char *key, backend_changed changed, void *owner);
    void (*health)(const struct backend *backend, struct backend_health *ret);
    void (*free)(struct backend *backend);
};

/* The first member of each backend's own struct. */
struct backend {
    const struct backend_ops *ops;
};

static inline void backend_get(struct backend *backend, const char *key, backend_done done,
                               void *owner)
{
    backend->ops->get(backend, key, done, owner);
}

/* `token` 0: only if nothing is there. `data` is copied. */
static inline void backend_set(struct backend *backend, const char *key, uint64_t token,
                               struct dl_span data, backend_done done, void *owner)
{
    backend->ops->set(backend, key, token, data, NULL, done, owner);
}

/* A set leaves up to BACKEND_NOTES_MAX notes, at once with it. */
static inline bool backend_notes_many(const struct backend *backend)
{
    return backend->ops->notes_many;
}

/* The same, with notes, which are copied. */
static inline void backend_set_with(struct backend *backend, const char *key, uint64_t token,
                                    struct dl_span data, const struct backend_note *note,
                                    backend_done done, void *owner)
{
    backend->ops->set(backend, key, token, data, note, done, owner);
}

/* The answer is what lies under `ask`, read not before this was written. `data` is copied. */
static inline void backend_put(struct backend *backend, const char *key, struct dl_span data,
                               const char *ask, backend_done done, void *owner)
{
    backend->ops->put(backend, key, data, ask, done, owner);
}

static inline void backend_copy_prefix(char ret[static BACKEND_PREFIX_MAX], const char *prefix)
{
    (void)snprintf(ret, BACKEND_PREFIX_MAX, "%s", prefix ? prefix : BACKEND_PREFIX);
}

/* `prefix` ends in a slash, and no key under it has another behind that. The answer has also what
 * lies under `ask`; NULL: nothing is asked. */
static inline void backend_list(struct backend *backend, const char *prefix, const char *ask,
                                backend_done done, void *owner)
{
    backend->ops->list(backend, prefix, ask, done, owner);
}

static inline bool backend_lists_all(const struct backend *backend)
{
    return backend->ops->lists_all;
}

/* One that is not there is dropped, too. */
static inline void backend_drop(struct backend *backend, const char *key, backend_done done,
                                void *owner)
{
    backend->ops->drop(backend, key, done, owner);
}

static inline void backend_ignore(void *owner, const struct backend_answer *answer)
{
    (void)owner, (void)answer;
}

/* Of no importance whether it is dropped: who looks next finds it again, or nobody reads it. */
static inline void backend_forget(struct backend *backend, const char *key)
{
    backend_drop(backend, key, backend_ignore, NULL);
}

/*
 * Calls `changed` from the loop when the key may have changed, until backend_free(): a hint that
 * can come late, for nothing, or never. One key a backend. False: it cannot watch.
 */
static inline bool backend_watch(struct backend *backend, const char *key, backend_changed changed,
                                 void *owner)
{
    if (backend->ops->watch)
        backend->ops->watch(backend, key, changed, owner);
    return backend->ops->watch != NULL;
}

static inline void backend_health(const struct backend *backend, struct backend_health *ret)
{
    backend->ops->health(backend, ret);
}

/* Its memory goes once the loop has let go of its handles. NULL is fine; returns NULL. */
static inline struct backend *backend_free(struct backend *backend)
{
    if (backend)
        backend->ops->free(backend);
    return NULL;
}

#endif
