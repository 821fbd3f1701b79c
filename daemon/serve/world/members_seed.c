/*
 * Seeds that all nodes use, one for each thing that has one: agreed on in the store, and put back
 * there when it may have lost them.
 */
#include "daemon/serve/base/log.h"
#include "daemon/serve/base/memory.h"
#include "daemon/serve/world/members_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

/* Longer than any client waits for OPENED is no use. */
static const uint64_t SEED_PATIENCE_NS = 300 * (uint64_t)1000000000;

int seed_draw(uint64_t *ret, struct dl_error *err)
{
    uint64_t seed;

    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        return dl_error_set(err, errno, "seed", "cannot draw a random one: %s", strerror(errno));
    *ret = seed & ((UINT64_C(1) << 53) - 1);
    return 0;
}

/* As it was, or the run has begun anew without this node, by those who knew of nothing. */
static void members_seed_on_put_back(struct seed *seed, uint64_t number,
                                     const struct dl_error *error)
{
    struct members *m = seed->members;

    if (error)
        log_warning("rendezvous %s: the seed of %s may be lost: %s: %s", m->id, seed->key,
                    error->path, error->message);
    else if (number != seed->number)
        log_warning("rendezvous %s: the store was lost, and the seed of %s is now %" PRIu64
                    ", no more %" PRIu64
                    ": start all trainers again from one state, or give a seed "
                    "in the spec",
                    m->id, seed->key, number, seed->number);
    if (!error)
        seed->number = number;
    if (--m->putting == 0 && !m->ending)
        members_be_ready(m);
}

static void members_seed_on_agreed(void *owner, uint64_t number, const struct dl_error *error)
{
    struct seed *seed = owner;
    struct members *m = seed->members;

    seed->agreement = NULL;
    if (seed->known) {
        members_seed_on_put_back(seed, number, error);
        return;
    }
    seed->known = !error;
    seed->number = number;
    if (error) {
        seed->failure = *error;
        seed->failed_ns = uv_hrtime();
    }
    if (!m->ending)
        m->events->changed(m->context);
}

static struct seed *members_seed_find_seed(struct members *m, const char *key)
{
    struct seed *seed;

    HASH_FIND_STR(m->seeds, key, seed);
    if (!seed) {
        seed = must_alloc(sizeof *seed);
        seed->members = m;
        seed->key = must_strdup(key);
        HASH_ADD_KEYPTR(hh, m->seeds, seed->key, strlen(seed->key), seed);
    }
    return seed;
}

static int members_seed_ask_for_seed(struct members *m, struct seed *seed, struct dl_error *err)
{
    char key[BACKEND_KEY_MAX];
    struct agree_options options = {.loop = m->loop,
                                    .backend = m->backend,
                                    .key = key,
                                    .timeout_ns = min_u64(m->join_ns, SEED_PATIENCE_NS),
                                    .done = members_seed_on_agreed,
                                    .owner = seed};

    (void)snprintf(key, sizeof key, "seed/%s/%s", m->id, seed->key);
    options.proposal = seed->number;
    int r = seed->known ? 0 : seed_draw(&options.proposal, err);
    if (r < 0)
        return r;
    seed->agreement = agree(&options);
    return 1;
}

/*
 * A store that forgets was perhaps lost, and others may know what was agreed on: each has put it
 * back before a round with it is complete. So whoever has not seen a round does not ask before.
 */
static int members_seed_wait_for_round(struct members *m, uint64_t asked, struct dl_error *err)
{
    struct members_place place;
    int r = members_place(m, 0, asked, &place, err);

    return r == 1 ? members_wait(m, asked, SEED_PATIENCE_NS, err) : r;
}

/* At once when the store is another, since some in this round may ask for them; and where it
 * forgets, before this node is ready for another one. */
void members_put_seeds_back(struct members *m)
{
    struct seed *seed, *next;
    struct dl_error err = {0};

    HASH_ITER (hh, m->seeds, seed, next) {
        if (!m->ending && seed->known && !seed->agreement &&
            members_seed_ask_for_seed(m, seed, &err) > 0)
            m->putting++;
    }
}

int members_seed(struct members *m, const char *key, uint64_t asked, uint64_t *ret,
                 struct dl_error *err)
{
    struct seed *seed = members_seed_find_seed(m, key);

    if (seed->known) {
        *ret = seed->number;
        return 0;
    }
    if (seed->agreement)
        return 1;
    if (seed->failure.code && asked <= seed->failed_ns)
        return dl_error_set(err, seed->failure.code, "seed",
                            "the nodes cannot agree on one: %s; give a seed in the spec, or "
                            "repair the store",
                            seed->failure.message);
    int r = m->forgets ? members_seed_wait_for_round(m, asked, err) : 0;
    return r ? r : members_seed_ask_for_seed(m, seed, err);
}

void members_forget_seeds(struct members *m)
{
    struct seed *seed, *next;

    HASH_ITER (hh, m->seeds, seed, next) {
        HASH_DEL(m->seeds, seed);
        agree_cancel(seed->agreement);
        free(seed->key);
        free(seed);
    }
}
