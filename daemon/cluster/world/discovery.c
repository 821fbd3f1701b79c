#include "daemon/cluster/world/discovery.h"

#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/cluster/world/announced.h"
#include "daemon/cluster/world/members.h"
#include "daemon/cluster/world/world_store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

struct discovery {
    struct backend *backend; /* owned */
    uv_timer_t beat;
    char *run;                    /* owned */
    char prefix[BACKEND_KEY_MAX]; /* of the keys of its helpers */
    uint64_t silence_ns;
    bool busy; /* the store is asked */
    bool fails;
    bool ends;
    /* Of a helper: */
    char *address; /* owned; NULL: this is a daemon's */
    uint64_t word;
    /* Of a daemon: */
    struct announced announced;
    discovery_found found;
    void *context;
};

int discovery_check(const struct config *config, struct dl_error *err)
{
    const char *run = config->helpers.run;
    int r;

    if (!*run)
        return 0;
    if (config->rendezvous.backend == CONFIG_BACKEND_NONE)
        return dl_error_set(err, EINVAL, "helpers.run",
                            "\"%s\" is a name in a store, and there is none: set "
                            "rendezvous.backend, or list the helpers in helpers.addresses",
                            run);
    if (!config->helpers.secret)
        return dl_error_set(err, EINVAL, "helpers.secret_file",
                            "is not set, and helpers and this daemon have to prove it to each "
                            "other; write the same secret on all machines, made with: openssl rand "
                            "-hex 32");
    r = world_store_check(&config->rendezvous, err);
    return r < 0 ? r : members_check_name("helpers.run", run, err);
}

/* ---- the store ------------------------------------------------------------------------------ */

static void discovery_on_said(void *context, enum c10d_saying what, const char *text)
{
    const struct discovery *d = context;

    if (what == C10D_TROUBLE)
        log_warning("helpers of %s: %s", d->run, text);
    else if (what == C10D_NOTE)
        log_info("helpers of %s: %s", d->run, text);
    else
        log_debug("helpers of %s: %s", d->run, text);
}

/* Once, until it answers again. */
static void discovery_note(struct discovery *d, const struct backend_answer *answer)
{
    bool fails = answer->status < 0;

    if (fails && !d->fails)
        log_warning("helpers of %s: the store does not answer: %s; %s", d->run,
                    answer->error->message,
                    d->address ? "daemons that do not know this helper do not learn of it"
                               : "those that are known stay");
    else if (!fails && d->fails)
        log_info("helpers of %s: the store answers again", d->run);
    d->fails = fails;
}

static void discovery_key(const struct discovery *d, const char *address,
                          char ret[static BACKEND_KEY_MAX])
{
    (void)snprintf(ret, BACKEND_KEY_MAX, "%.200s%.255s", d->prefix, address);
}

/* ---- a helper ------------------------------------------------------------------------------- */

static void discovery_close(struct discovery *d);

static void discovery_on_gone(void *owner, const struct backend_answer *answer)
{
    (void)answer;
    discovery_close(owner);
}

static void discovery_take_back(struct discovery *d)
{
    char key[BACKEND_KEY_MAX];

    discovery_key(d, d->address, key);
    backend_drop(d->backend, key, discovery_on_gone, d);
}

static void discovery_on_put(void *owner, const struct backend_answer *answer)
{
    struct discovery *d = owner;

    d->busy = false;
    if (d->ends)
        discovery_take_back(d);
    else
        discovery_note(d, answer);
}

static void discovery_put(struct discovery *d)
{
    char key[BACKEND_KEY_MAX], word[24];

    discovery_key(d, d->address, key);
    (void)snprintf(word, sizeof word, "%" PRIu64, d->word++);
    d->busy = true;
    backend_put(d->backend, key, (struct dl_span){(const uint8_t *)word, strlen(word)}, NULL,
                discovery_on_put, d);
}

/* ---- a daemon ------------------------------------------------------------------------------- */

static void discovery_on_listed(void *owner, const struct backend_answer *answer)
{
    _cleanup_(config_dirs_deinit) struct config_dirs there = {0};
    struct discovery *d = owner;
    char key[BACKEND_KEY_MAX];
    const char *gone;
    uint32_t at = 0;

    d->busy = false;
    discovery_note(d, answer);
    if (answer->status < 0)
        return;
    bool changed =
        announced_look(&d->announced, answer->items, answer->n, uv_hrtime(), d->silence_ns);
    while ((gone = announced_next_gone(&d->announced, &at))) {
        discovery_key(d, gone, key);
        backend_forget(d->backend, key);
    }
    if (!changed)
        return;
    announced_there(&d->announced, &there);
    log_info("helpers of %s: %u are there", d->run, there.n);
    d->found(d->context, &there);
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static void discovery_on_beat(uv_timer_t *timer)
{
    struct discovery *d = timer->data;

    if (d->busy)
        return;
    if (d->address) {
        discovery_put(d);
    } else {
        d->busy = true;
        backend_list(d->backend, d->prefix, NULL, discovery_on_listed, d);
    }
}

static void discovery_on_closed(uv_handle_t *handle)
{
    struct discovery *d = handle->data;

    announced_deinit(&d->announced);
    free(d->run);
    free(d->address);
    free(d);
}

static void discovery_close(struct discovery *d)
{
    d->backend = backend_free(d->backend);
    uv_close((uv_handle_t *)&d->beat, discovery_on_closed);
}

struct discovery *discovery_free(struct discovery *d)
{
    if (!d)
        return NULL;
    d->ends = true;
    uv_timer_stop(&d->beat);
    if (!d->address)
        discovery_close(d);
    else if (!d->busy)
        discovery_take_back(d);
    return NULL;
}

/* `made`: what it is, but for the store. */
static int discovery_new(uv_loop_t *loop, const struct config *config, bool hosts,
                         const struct discovery *made, struct discovery **ret, struct dl_error *err)
{
    uint64_t beat_ns = config->rendezvous.heartbeat.interval;
    int r = discovery_check(config, err);

    *ret = NULL;
    if (r < 0 || !*config->helpers.run)
        return r;
    struct discovery *d = must_alloc(sizeof *d);
    *d = *made;
    d->run = must_strdup(config->helpers.run);
    (void)snprintf(d->prefix, sizeof d->prefix, "helpers/%s/", d->run);
    d->silence_ns = beat_ns * (config->rendezvous.heartbeat.missed + 1);
    const struct world_store_options store = {.loop = loop,
                                              .config = &config->rendezvous,
                                              .run = d->prefix,
                                              .hosts = hosts,
                                              .said = discovery_on_said,
                                              .context = d};
    r = world_store_open(&store, &d->backend, err);
    if (r < 0) {
        free(d->run);
        free(d);
        return r;
    }
    (void)uv_timer_init(loop, &d->beat);
    d->beat.data = d;
    uv_timer_start(&d->beat, discovery_on_beat, 0, max_u64(beat_ns / 1000000, 1));
    *ret = d;
    return 0;
}

int discovery_announce(uv_loop_t *loop, const struct config *config, const char *address,
                       struct discovery **ret, struct dl_error *err)
{
    /* One that is started again at the same address goes on with other words. */
    const struct discovery made = {.address = must_strdup(address), .word = uv_hrtime()};
    int r = discovery_new(loop, config, true, &made, ret, err);

    if (r < 0 || !*ret)
        free(made.address);
    return r;
}

int discovery_watch(uv_loop_t *loop, const struct config *config, bool hosts, discovery_found found,
                    void *context, struct discovery **ret, struct dl_error *err)
{
    const struct discovery made = {.found = found, .context = context};

    return discovery_new(loop, config, hosts, &made, ret, err);
}
