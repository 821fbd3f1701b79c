/* The daemon's loaders, by user and name. */
#include "daemon/serve/registry.h"

#include "daemon/base/blame.h"
#include "daemon/base/memory.h"
#include "daemon/base/rights.h"
#include "daemon/serve/room.h"
#include "daemon/serve/sizes.h"

#include <errno.h>
#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

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

static struct registered *registry_find_spec(const struct daemon *d, uid_t uid, const char *name)
{
    char key[KEY_MAX];
    struct registered *entry;

    registry_write_key(uid, name, key);
    HASH_FIND_STR(d->loaders, key, entry);
    return entry;
}

/* ---- what loaders were like ----------------------------------------------------------------- */

/* The last verdicts of closed loaders: a DataLoader without persistent workers opens one loader per
 * epoch. */
enum { PAST_MAX = 32 };

struct past {
    char key[KEY_MAX]; /* may be "" */
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

/* ---- OPENs that wait for a look at files ---------------------------------------------------- */

static void registry_on_anew(uv_timer_t *timer)
{
    const struct daemon *d = timer->data;

    for (struct session *s = d->sessions.head; s; s = session_next(s))
        session_ask_again(s);
}

/* From the loop, since repeated requests may end a loader. */
static void registry_on_looked(void *context)
{
    struct daemon *d = context;

    if (!d->stopping)
        uv_timer_start(&d->anew, registry_on_anew, 0, 0);
}

void registry_begin(struct daemon *d)
{
    uv_timer_init(&d->loop, &d->anew);
    d->anew.data = d;
}

/* ---- joining -------------------------------------------------------------------------------- */

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
    registry_on_looked(d);
}

static void registry_on_retired(void *context, uint32_t segment)
{
    struct daemon *d = context;

    for (struct session *s = d->sessions.head; s; s = session_next(s))
        session_segment_retired(s, segment);
}

/* Its batches are read with the rights of the client that opened it. */
static int registry_check_groups(const struct registered *entry, const struct session *session,
                                 struct dl_error *err)
{
    if (loader_may_join(entry->loader, session_credentials(session)))
        return 0;
    return dl_error_set(err, EACCES, "name",
                        "the loader named \"%s\" was opened with other groups than this "
                        "process has, so that other files can be read; open it by another name, "
                        "or with the same groups",
                        loader_spec(entry->loader)->name);
}

/*
 * A client that opens a loader must find its files as they are now. If they have changed, an unused
 * loader is dropped (1), and one in use is not joined (-ESTALE). Ranks of a job stay together,
 * whatever happens to the files. -EAGAIN: not known yet.
 */
static int registry_check_files(const struct registered *entry, uint64_t asked)
{
    struct loader *loader = entry->loader;
    enum loader_files files = loader_files(loader, asked);
    bool parked;

    if (files == LOADER_FILES_SAME)
        return 0;
    if (files == LOADER_FILES_ASKED)
        return -EAGAIN;
    if (loader_has_jobs(loader)) {
        loader_warn_of_files(loader);
        return 0;
    }
    if (loader_unused_since(loader, &parked) == UINT64_MAX)
        return -ESTALE;
    log_loader(LOG_INFO, loader_spec(loader)->name, loader_uid(loader),
               "%s: its files have changed since it was opened, or no worker can look at them; "
               "nobody uses it, and they are opened anew",
               loader_spec(loader)->name);
    loader_give_way(loader);
    return 1;
}

/* ---- limits --------------------------------------------------------------------------------- */

static bool registry_make_way(void *context, struct loader *loader)
{
    return room_make_way(context, loader_account(loader));
}

static bool registry_spare_worker(void *context, struct loader *loader)
{
    return room_spare_worker(context, loader_account(loader));
}

/* OPENs that wait are tried again before long: what makes room is not told. 1. */
static int registry_ask_soon(struct daemon *d)
{
    enum { ASK_AGAIN_MS = 100 };

    if (!uv_is_active((uv_handle_t *)&d->anew))
        uv_timer_start(&d->anew, registry_on_anew, ASK_AGAIN_MS, 0);
    return 1;
}

static void registry_on_automatic(void *context)
{
    sizes_wake(context);
}

static void registry_on_due(void *context)
{
    sizes_go_on(context);
}

static const struct loader_events loader_events = {SESSION_LOADER_EVENTS,
                                                   .retired = registry_on_retired,
                                                   .make_way = registry_make_way,
                                                   .looked = registry_on_looked,
                                                   .automatic = registry_on_automatic,
                                                   .due = registry_on_due,
                                                   .spare_worker = registry_spare_worker,
                                                   .gone = registry_on_gone};

static int registry_take_host(struct daemon *d, struct session *session, struct python_run *run,
                              struct dl_error *err)
{
    int sock = -1;
    int r = session_take_host(session, run->host_number, &sock, err);

    return r < 0 ? r : host_adopt(d->hosts, sock, session_pid(session), &run->host, err);
}

/* For specs without a seed. */
struct registry_seed {
    const uint64_t *former; /* the former seed; may be NULL */
    uint64_t asked;         /* when, ns */
};

/* The location of the data may differ from node to node; its content, and how it is read, may
 * not. */
static int registry_agree_on_seed(struct daemon *d, struct dl_spec *spec, uint64_t asked,
                                  struct dl_error *err)
{
    uint64_t parts[STATE_PARTS];

    if (spec_parts(spec, parts) < 0)
        return dl_error_set(err, ENOMEM, "seed", "out of memory");
    int r = members_seed(d->members, asked, &spec->seed, err);
    if (r != 0)
        return r;
    spec->seed = XXH3_64bits_withSeed(parts, sizeof parts, spec->seed) & SEED_MAX;
    return 0;
}

/*
 * The seed of a spec without one: the former seed, the one that all nodes have agreed on, or a new
 * one. 1: they have not agreed yet.
 */
static int registry_give_seed(struct daemon *d, struct dl_spec *spec,
                              const struct registry_seed *seed, struct dl_error *err)
{
    if (spec->has_seed)
        return 0;
    if (seed->former) {
        spec->seed = *seed->former;
        return 0;
    }
    if (d->members)
        return registry_agree_on_seed(d, spec, seed->asked, err);
    return seed_draw(&spec->seed, err);
}

/* The seed is requested last, so that a refused spec leaves nothing in the store. 1: not known
 * yet. */
static int registry_make_loader(struct daemon *d, struct session *session, struct dl_spec *spec,
                                const struct registry_seed *seed, struct loader **ret,
                                struct dl_error *err)
{
    char key[KEY_MAX];
    struct loader_options options = {.pool = {.loop = &d->loop,
                                              .config = &d->config,
                                              .found = &d->found,
                                              .hosts = d->hosts,
                                              .remotes = d->remotes,
                                              .account = session_account(session),
                                              .budget = &d->budget,
                                              .retired = &d->retired,
                                              .next_segment = &d->next_segment,
                                              .told_sandbox = &d->told_sandbox,
                                              .stuck = &d->stuck},
                                     .crew = d->crew,
                                     .fair = &d->fair,
                                     .uid = session_uid(session),
                                     .blame = blame_at(),
                                     .pictures = &d->pictures,
                                     .events = &loader_events,
                                     .context = d};

    const struct rights_asker asker = {
        .config = &d->config, .private = d->options.private, .uid = options.uid, .own = geteuid()};

    options.pool.foreign = rights_is_other(&asker);
    options.pool.reader = session_credentials(session);
    registry_write_key(options.uid, spec->name, key);
    int r = rights_check(&asker, spec, err);
    if (r == 0)
        r = room_make(d, session, spec, err);
    if (r == 1)
        return registry_ask_soon(d);
    if (r == -EDQUOT)
        quota_count_refusal(session_account(session));
    if (r == 0)
        r = python_choose(&d->config, spec, &options.python, err);
    if (r == 0)
        r = registry_give_seed(d, spec, seed, err);
    if (r == 0 && options.python.host_number)
        r = registry_take_host(d, session, &options.python, err);
    if (r != 0) {
        python_run_deinit(&options.python);
        return r;
    }
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

/* For a spec without a seed: whether the loader's differs from the former one, or from the
 * nodes'. */
static bool registry_has_other_seed(const struct daemon *d, const struct loader *loader,
                                    const struct dl_spec *spec, const uint64_t *seed)
{
    const struct dl_spec *theirs = loader_spec(loader);

    if (spec->has_seed)
        return false; /* spec_differs() says it */
    return seed ? theirs->seed != *seed : d->members && theirs->has_seed;
}

/* Another loader has the name that was made for a spec. */
static bool registry_is_other(const struct daemon *d, const struct session *session,
                              const struct registered *entry, const uint64_t *seed,
                              const struct dl_spec *spec)
{
    struct dl_error difference;

    return python_host_number(spec) != 0 ||
           !loader_may_join(entry->loader, session_credentials(session)) ||
           registry_has_other_seed(d, entry->loader, spec, seed) ||
           spec_differs(loader_spec(entry->loader), spec, &difference);
}

/*
 * A spec without a name is named after its fingerprint, which leaves out seed, workers and memory:
 * clients that differ in these, in their groups, or after the files have changed, get "…-2" and so
 * on instead of a refusal, as do those with a former daemon's seed, or with one that all nodes must
 * agree on. A host's number does not identify its dataset: the client that brings one without a
 * name has the loader to itself. -EAGAIN: not known yet whether that loader can be joined.
 */
static int registry_find_free_name(struct daemon *d, const struct session *session,
                                   const struct registry_seed *seed, struct dl_spec *spec,
                                   struct loader **ret)
{
    uid_t uid = session_uid(session);
    _cleanup_free_ char *stem = must_strdup(spec->name);
    const struct registered *entry;

    for (unsigned i = 2; (entry = registry_find_spec(d, uid, spec->name)); i++) {
        *ret = entry->loader;
        int r = registry_is_other(d, session, entry, seed->former, spec)
                    ? -ESTALE
                    : registry_check_files(entry, seed->asked);
        if (r != -ESTALE)
            return r;
        free(spec->name);
        if (asprintf(&spec->name, "%s-%u", stem, i) < 0)
            spec->name = must_strdup(stem);
    }
    return 1;
}

/* Joins by the spec's name. 1: not open; -EAGAIN: as above. */
static int registry_join(const struct daemon *d, const struct session *session,
                         const struct dl_spec *wanted, uint64_t asked, struct loader **ret,
                         struct dl_error *err)
{
    const struct registered *entry = registry_find_spec(d, session_uid(session), wanted->name);
    struct dl_error difference = {0};
    int r = entry ? registry_check_groups(entry, session, err) : 1;

    if (r != 0)
        return r;
    const struct dl_spec *theirs = loader_spec(entry->loader);
    if (spec_differs(theirs, wanted, &difference))
        return dl_error_set(err, EEXIST, difference.path,
                            "a loader named \"%s\" is open with another spec: %s", wanted->name,
                            difference.message);
    *ret = entry->loader;
    r = registry_check_files(entry, asked);
    if (r != -ESTALE)
        return r;
    return dl_error_set(err, EEXIST, spec_dataset_label(&theirs->dataset),
                        "its files have changed since the loader named \"%s\" was opened, which "
                        "others use; open it by another name, or after they have closed it",
                        wanted->name);
}

/* The joined loader has its own host: the one that came with this OPEN must not stay. */
static void registry_drop_host(struct session *session, const struct dl_spec *spec)
{
    uint64_t number = python_host_number(spec);
    int sock;

    if (number && session_take_host(session, number, &sock, NULL) == 0)
        close(sock);
}

/* The loader of that spec, joined or made. */
static int registry_find_or_make(struct daemon *d, struct session *session,
                                 struct loader_wanted *wanted, const struct registry_seed *seed,
                                 struct loader **ret, struct dl_error *err)
{
    struct dl_spec *spec = &wanted->spec;

    if (d->draining)
        return dl_error_set(err, ESHUTDOWN, "", "the daemon is shutting down");
    if (spec->workers == 0)
        return dl_error_set(err, ENOTSUP, "workers.count", /* libdlclient then does it */
                            "0 loads in the client's own process, without the daemon; give 1 or "
                            "more");
    int r = wanted->named ? registry_join(d, session, spec, seed->asked, ret, err)
                          : registry_find_free_name(d, session, seed, spec, ret);
    if (r == -EAGAIN)
        return 1;
    if (r == 1)
        return registry_make_loader(d, session, spec, seed, ret, err);
    if (r == 0)
        registry_drop_host(session, spec);
    return r;
}

/* Finds the loader of that name, whatever its spec. One in use is shared whatever happens to its
 * files. 1: not known yet whether the files of an unused one have changed. */
static int registry_find_named(struct daemon *d, struct session *session, const char *name,
                               uint64_t asked, struct loader **ret, struct dl_error *err)
{
    const struct registered *entry = registry_find_spec(d, session_uid(session), name);
    int r = entry ? registry_check_groups(entry, session, err) : 1;
    bool parked;

    if (r < 0)
        return r;
    if (r == 0) {
        *ret = entry->loader;
        if (loader_unused_since(entry->loader, &parked) != UINT64_MAX)
            r = registry_check_files(entry, asked);
    }
    if (r == 1)
        return dl_error_set(err, ENOENT, "name",
                            "no loader named \"%s\" is open; open it by its spec first", name);
    return r == -EAGAIN;
}

int registry_find(void *context, struct session *session, struct loader_wanted *wanted,
                  const uint64_t *seed, uint64_t asked, struct loader **ret, struct dl_error *err)
{
    struct daemon *d = context;

    if (!wanted->name) {
        const struct registry_seed known = {seed, asked};
        _cleanup_free_ char *said = must_strdup(wanted->spec.name);
        int r = registry_find_or_make(d, session, wanted, &known, ret, err);

        if (r == 1) { /* others of that name may be open by then, or gone */
            free(wanted->spec.name);
            wanted->spec.name = steal_ptr(said);
        }
        return r;
    }
    return registry_find_named(d, session, wanted->name, asked, ret, err);
}

/* The loader of that name among all users; NULL if there are several or it is not open. */
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

/* The daemon's own user and root may also query other users' loaders. */
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
    if (!uv_is_closing((uv_handle_t *)&d->anew))
        uv_close((uv_handle_t *)&d->anew, NULL);
    free(d->past);
    d->past = NULL;
}
