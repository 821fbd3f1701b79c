/*
 * The number that all nodes derive their seeds from: agreed on in the store, and put back there
 * when it may have lost it.
 */
#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/cluster/world/members_private.h"

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
    *ret = seed & SEED_MAX;
    return 0;
}

/* As it was, or the run has begun anew without this node, by those who knew of nothing. */
static void members_seed_on_put_back(struct members *m, uint64_t number,
                                     const struct dl_error *error)
{
    struct root_seed *root = &m->root;

    if (error)
        log_warning(
            "rendezvous %s: the store may have lost the number that seeds are derived from: "
            "%s: %s",
            m->id, error->path, error->message);
    else if (number != root->number)
        log_warning("rendezvous %s: the store was lost, and loaders whose spec gives no seed have "
                    "another seed on other nodes: start all trainers again from one state, or give "
                    "a seed in the spec",
                    m->id);
    if (!error)
        root->number = number;
    root->putting = false;
    if (!m->ending)
        members_be_ready(m);
}

static void members_seed_on_agreed(void *owner, uint64_t number, const struct dl_error *error)
{
    struct members *m = owner;
    struct root_seed *root = &m->root;

    root->agreement = NULL;
    if (root->putting) {
        members_seed_on_put_back(m, number, error);
        return;
    }
    root->known = !error;
    root->number = number;
    if (error) {
        root->failure = *error;
        root->failed_ns = uv_hrtime();
    }
    if (!m->ending)
        m->events->changed(m->context);
}

static void members_seed_ask(struct members *m, uint64_t proposal)
{
    char key[BACKEND_KEY_MAX];

    (void)snprintf(key, sizeof key, "seed/%s", m->id);
    m->root.agreement =
        agree(&(struct agree_options){.loop = m->loop,
                                      .backend = m->backend,
                                      .key = key,
                                      .proposal = proposal,
                                      .timeout_ns = min_u64(m->join_ns, SEED_PATIENCE_NS),
                                      .done = members_seed_on_agreed,
                                      .owner = m});
}

/*
 * A store that forgets was perhaps lost, and others may know what was agreed on: each has put it
 * back before a round with it is complete. So a node that has not seen a round does not ask before.
 */
static int members_seed_wait_for_round(struct members *m, uint64_t asked, struct dl_error *err)
{
    struct members_place place;
    int r = members_place(m, 0, asked, &place, err);

    return r == 1 ? members_wait(m, asked, SEED_PATIENCE_NS, err) : r;
}

/* At once when the store is another, since some in this round may ask for it; and where it forgets,
 * before this node is ready for another one. */
void members_put_seed_back(struct members *m)
{
    if (m->ending || !m->root.known || m->root.agreement)
        return;
    m->root.putting = true;
    members_seed_ask(m, m->root.number);
}

int members_seed(struct members *m, uint64_t asked, uint64_t *ret, struct dl_error *err)
{
    struct root_seed *root = &m->root;
    uint64_t proposal = 0;

    if (root->known) {
        *ret = root->number;
        return 0;
    }
    if (root->agreement)
        return 1;
    if (root->failure.code && asked <= root->failed_ns)
        return dl_error_set(err, root->failure.code, "seed",
                            "the nodes cannot agree on one: %s; give a seed in the spec, or "
                            "repair the store",
                            root->failure.message);
    int r = m->forgets ? members_seed_wait_for_round(m, asked, err) : 0;
    if (r == 0 && (r = seed_draw(&proposal, err)) == 0) {
        members_seed_ask(m, proposal);
        return 1;
    }
    return r;
}
