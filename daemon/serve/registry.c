/* The daemon's loaders, by who opened them and what they are called. */
#include "daemon/serve/registry.h"

#include "daemon/serve/base/memory.h"

#include <errno.h>
#include <stdio.h>

struct registered {
    UT_hash_handle hh; /* daemon.loaders, by key */
    char *key;         /* owned; "uid:name" */
    struct loader *loader;
};

struct registered *registered_next(const struct registered *entry)
{
    return entry->hh.next;
}

struct loader *registered_loader(const struct registered *entry)
{
    return entry->loader;
}

enum { KEY_MAX = DL_BOUND_NAME_BYTES + 16 };

static void registry_write_key(uid_t uid, const char *name, char key[static KEY_MAX])
{
    snprintf(key, KEY_MAX, "%u:%s", (unsigned)uid, name);
}

static struct registered *registry_find_spec(struct daemon *d, uid_t uid, const char *name)
{
    char key[KEY_MAX];
    struct registered *entry;

    registry_write_key(uid, name, key);
    HASH_FIND_STR(d->loaders, key, entry);
    return entry;
}

/* ---- what loaders were like ----------------------------------------------------------------- */

/* The last verdicts of loaders that are gone: a DataLoader without persistent workers has one
 * loader an epoch. */
enum { PAST_MAX = 32 };

struct past {
    char key[KEY_MAX]; /* "": none */
    char verdict[VERDICT_LATEST_MAX];
};

static void registry_keep_verdict(struct daemon *d, const struct registered *entry)
{
    const char *verdict = loader_last_verdict(entry->loader);
    struct past *to = NULL;

    if (!*verdict)
        return;
    if (!d->past)
        d->past = must_alloc(PAST_MAX * sizeof *d->past);
    for (size_t i = 0; i < PAST_MAX && !to; i++)
        if (strcmp(d->past[i].key, entry->key) == 0)
            to = &d->past[i];
    if (!to)
        to = &d->past[d->next_past++ % PAST_MAX];
    snprintf(to->key, sizeof to->key, "%s", entry->key);
    snprintf(to->verdict, sizeof to->verdict, "%s", verdict);
}

static void registry_give_verdict(const struct daemon *d, const struct registered *entry)
{
    for (size_t i = 0; d->past && i < PAST_MAX; i++)
        if (strcmp(d->past[i].key, entry->key) == 0)
            loader_was(entry->loader, d->past[i].verdict);
}

static void registry_on_gone(void *context, struct loader *loader)
{
    struct daemon *d = context;
    struct registered *entry;
    struct registered *next;

    HASH_ITER (hh, d->loaders, entry, next) {
        if (entry->loader != loader)
            continue;
        registry_keep_verdict(d, entry);
        HASH_DEL(d->loaders, entry);
        free(entry->key);
        free(entry);
    }
}

static void registry_on_retired(void *context, uint32_t segment)
{
    struct daemon *d = context;

    for (struct session *s = d->sessions.head; s; s = session_next(s))
        session_segment_retired(s, segment);
}

static int registry_join(const struct registered *entry, const struct dl_spec *wanted,
                         struct loader **ret, struct dl_error *err)
{
    struct dl_error difference = {0};

    if (spec_differs(loader_spec(entry->loader), wanted, &difference))
        return dl_error_set(err, EEXIST, difference.path,
                            "a loader named \"%s\" is open with another spec: %s", wanted->name,
                            difference.message);
    *ret = entry->loader;
    return 0;
}

static const struct loader_events loader_events = {
    SESSION_LOADER_EVENTS, .retired = registry_on_retired, .gone = registry_on_gone};

static int registry_take_host(struct daemon *d, struct session *session, struct python_run *run,
                              struct dl_error *err)
{
    int sock = -1;
    int r = session_take_host(session, run->host_number, &sock, err);

    return r < 0 ? r : host_adopt(d->hosts, sock, session_pid(session), &run->host, err);
}

/* What the loader's workers are run with; the host of its spec is taken from the session. */
static int registry_choose_python(struct daemon *d, struct session *session,
                                  const struct dl_spec *spec, struct python_run *ret,
                                  struct dl_error *err)
{
    struct python_asker asker = {
        .config = &d->config, .private = d->options.private, .uid = session_uid(session)};
    int r = python_choose(&asker, spec, ret, err);

    if (r == 0 && ret->host_number)
        r = registry_take_host(d, session, ret, err);
    if (r < 0)
        python_run_deinit(ret);
    return r;
}

/* Where the data lies may differ from node to node; what is read, and how, does not. */
static int registry_agree_on_seed(struct daemon *d, struct dl_spec *spec, uint64_t asked,
                                  struct dl_error *err)
{
    uint64_t parts[STATE_PARTS];
    char key[STATE_PARTS * 16 + 1];

    if (spec_parts(spec, parts) < 0)
        return dl_error_set(err, ENOMEM, "seed", "out of memory");
    for (size_t i = 0; i < STATE_PARTS; i++)
        snprintf(key + 16 * i, 17, "%016llx", (unsigned long long)parts[i]);
    return members_seed(d->members, key, asked, &spec->seed, err);
}

/*
 * The seed of a spec that gives none: the one that was in force before, the one that all nodes have
 * agreed on, or a new one. 1: they have not yet.
 */
static int registry_give_seed(struct daemon *d, struct dl_spec *spec, const uint64_t *seed,
                              uint64_t asked, struct dl_error *err)
{
    if (spec->has_seed)
        return 0;
    if (seed) {
        spec->seed = *seed;
        return 0;
    }
    if (d->members)
        return registry_agree_on_seed(d, spec, asked, err);
    return seed_draw(&spec->seed, err);
}

static int registry_make_loader(struct daemon *d, struct session *session, struct dl_spec *spec,
                                struct loader **ret, struct dl_error *err)
{
    char key[KEY_MAX];
    struct loader_options options = {.loop = &d->loop,
                                     .config = &d->config,
                                     .hosts = d->hosts,
                                     .account = session_account(session),
                                     .uid = session_uid(session),
                                     .next_segment = &d->next_segment,
                                     .told_sandbox = &d->told_sandbox,
                                     .events = &loader_events,
                                     .context = d};

    registry_write_key(options.uid, spec->name, key);
    int r = registry_choose_python(d, session, spec, &options.python, err);
    if (r == 0)
        r = loader_new(&options, spec, ret, err);
    if (r < 0)
        return r;
    struct registered *entry = must_alloc(sizeof *entry);
    entry->key = must_strdup(key);
    entry->loader = *ret;
    HASH_ADD_KEYPTR(hh, d->loaders, entry->key, strlen(entry->key), entry);
    registry_give_verdict(d, entry);
    return 0;
}

/* Of who gives no seed: the loader's is not the one that was in force before, or that nodes agree
 * on. */
static bool registry_has_other_seed(const struct daemon *d, const struct loader *loader,
                                    const struct dl_spec *spec, const uint64_t *seed)
{
    const struct dl_spec *theirs = loader_spec(loader);

    if (spec->has_seed)
        return false; /* spec_differs() says it */
    return seed ? theirs->seed != *seed : d->members && theirs->has_seed;
}

/*
 * A spec without a name has one made from its fingerprint, which leaves out seed, workers and
 * memory: those who differ in these get "…-2" and so on instead of a refusal, also where the seed
 * is one that a former daemon has drawn, or all nodes have to agree on one. A host's number says
 * nothing of what it has: who brings one without a name has the loader alone.
 */
static void registry_find_free_name(struct daemon *d, uid_t uid, const uint64_t *seed,
                                    struct dl_spec *spec)
{
    _cleanup_free_ char *stem = must_strdup(spec->name);
    const struct registered *entry;
    struct dl_error difference;
    bool alone = python_host_number(spec) != 0;

    for (unsigned i = 2; (entry = registry_find_spec(d, uid, spec->name)) &&
                         (alone || registry_has_other_seed(d, entry->loader, spec, seed) ||
                          spec_differs(loader_spec(entry->loader), spec, &difference));
         i++) {
        free(spec->name);
        if (asprintf(&spec->name, "%s-%u", stem, i) < 0)
            spec->name = must_strdup(stem);
    }
}

/* The loader that is joined has one: what came with this OPEN must not stay. */
static void registry_drop_host(struct session *session, const struct dl_spec *spec)
{
    uint64_t number = python_host_number(spec);
    int sock;

    if (number && session_take_host(session, number, &sock, NULL) == 0)
        close(sock);
}

int registry_find(void *context, struct session *session, const struct value *spec_value,
                  const char *base, const uint64_t *seed, uint64_t asked, struct loader **ret,
                  struct dl_error *err)
{
    struct daemon *d = context;
    _cleanup_(spec_deinit)
    struct dl_spec spec = {0};
    const struct registered *entry;
    int r;

    if (spec_value->type == VALUE_STRING) {
        entry = registry_find_spec(d, session_uid(session), spec_value->string);
        if (!entry)
            return dl_error_set(err, ENOENT, "name",
                                "no loader named \"%s\" is open; open it by its spec first",
                                spec_value->string);
        *ret = entry->loader;
        return 0;
    }
    if (d->draining)
        return dl_error_set(err, ESHUTDOWN, "", "the daemon is shutting down");
    if ((r = spec_from_value(spec_value, base, &spec, err)) < 0)
        return r;
    if (spec.workers == 0)
        return dl_error_set(err, ENOTSUP, "workers.count", /* libdlclient then does it */
                            "0 loads in the client's own process, without the daemon; give 1 or "
                            "more");
    if (!value_get(spec_value, "name"))
        registry_find_free_name(d, session_uid(session), seed, &spec);
    entry = registry_find_spec(d, session_uid(session), spec.name);
    if (!entry) {
        r = registry_give_seed(d, &spec, seed, asked, err);
        return r != 0 ? r : registry_make_loader(d, session, &spec, ret, err);
    }
    r = registry_join(entry, &spec, ret, err);
    if (r == 0)
        registry_drop_host(session, &spec);
    return r;
}

/* Of that name, of all users; NULL: none, or several. */
static const struct registered *registry_find_anyones(const struct daemon *d, const char *name)
{
    const struct registered *found = NULL;

    for (const struct registered *e = d->loaders; e; e = e->hh.next) {
        if (strcmp(loader_spec(e->loader)->name, name) != 0)
            continue;
        if (found)
            return NULL;
        found = e;
    }
    return found;
}

/* The daemon's own user and root may ask about what is others'. */
int registry_find_open(void *context, struct session *session, const char *name,
                       struct loader **ret, struct dl_error *err)
{
    struct daemon *d = context;
    uid_t uid = session_uid(session);
    const struct registered *entry = registry_find_spec(d, uid, name);

    if (!entry && (uid == 0 || uid == geteuid()))
        entry = registry_find_anyones(d, name);
    if (!entry)
        return dl_error_set(err, ENOENT, name, "no loader of that name is open; see dlctl loaders");
    *ret = entry->loader;
    return 0;
}

void registry_free(struct daemon *d)
{
    struct registered *entry;
    struct registered *next;

    HASH_ITER (hh, d->loaders, entry, next) {
        struct loader *loader = entry->loader;
        registry_on_gone(d, loader);
        loader_free(loader);
    }
    free(d->past);
    d->past = NULL;
}
