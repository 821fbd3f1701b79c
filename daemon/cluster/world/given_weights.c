#include "daemon/cluster/world/given_weights.h"

#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/cluster/world/shared_loader_private.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>
#include <xxhash.h>

#define SECOND ((uint64_t)1000000000)

/* Clients wait for 30 s, and so do ranks. */
static const uint64_t GIVEN_COMPARE_NS = 15 * SECOND, GIVEN_WAIT_NS = 25 * SECOND;

/* What all nodes were given, on its way here. */
struct given_compare {
    struct given_compare *prev, *next; /* members.given_compares */
    struct members *members;
    struct shared_loader *shared; /* NULL: it is gone */
    struct allgather *allgather;
    uint64_t round, number; /* of the nodes, and of the change in it */
};

/* In front of what others are told: the list's checksum and a space. */
enum { GIVEN_DIGEST = 17, GIVEN_KEY_MAX = BACKEND_KEY_MAX - 32 /* a node's id follows */ };

static void given_weights_go_on(struct shared_loader *shared);

/* ---- what the loader hears ------------------------------------------------------------------ */

/* What is in force comes first: what is held until then is free afterwards. */
static void given_weights_tell(struct shared_loader *shared)
{
    struct given_weights *w = &shared->given;
    uint64_t lacks = UINT64_MAX;

    if (!w->loader || !w->given.in)
        return;
    if (!w->told)
        lacks = w->ops->take(w->loader, w->given.list);
    w->told = lacks == UINT64_MAX;
    w->ops->hold(w->loader, min_u64(given_hold(&w->given), lacks));
}

static void given_weights_share(struct mix_changes *list, const struct mix_changes *with)
{
    if (list && with)
        mix_changes_share_tables(list, with);
}

static void given_weights_tell_list(struct shared_loader *shared)
{
    shared->given.told = false;
    given_weights_tell(shared);
}

void given_weights_again(struct shared_loader *shared)
{
    struct given *given = &shared->given.given;

    given_weights_share(given->list, given->wanted);
    given_release(given, false);
    given_weights_tell_list(shared);
}

void given_weights_attach(struct shared_loader *shared, void *loader,
                          const struct given_weights_ops *ops)
{
    struct given_weights *w = &shared->given;

    w->loader = loader;
    w->ops = ops;
    given_weights_tell_list(shared);
}

void given_weights_detach(struct shared_loader *shared)
{
    struct given_weights *w = &shared->given;

    if (!w->loader)
        return;
    w->ops->hold(w->loader, UINT64_MAX);
    w->loader = NULL;
}

/* Its ranks end with that error. */
static void given_weights_fail(struct shared_loader *shared, const struct dl_error *why)
{
    struct given_weights *w = &shared->given;

    log_warning("rendezvous %s: loader %.16s: %s: %s", shared->members->id, shared->key, why->path,
                why->message);
    if (w->loader)
        w->ops->fail(w->loader, why);
}

/* ---- what others were given ------------------------------------------------------------------ */

static void given_weights_end_compare(struct given_compare *compare)
{
    DL_DELETE(compare->members->given_compares, compare);
    free(compare);
}

/* The words may differ, as steps are counted in the world in which the change was given. */
static bool given_weights_is_equal(struct dl_span value, struct dl_span own)
{
    assert(own.len > GIVEN_DIGEST);
    return value.len > GIVEN_DIGEST && memcmp(value.data, own.data, GIVEN_DIGEST) == 0;
}

/* Of such a value what people read: behind the list's checksum. */
static struct dl_span given_weights_words(struct dl_span value)
{
    size_t at = min_u64(value.len, GIVEN_DIGEST);

    return (struct dl_span){value.data + at, value.len - at};
}

static const char *given_weights_own_words(const struct given_weights *w)
{
    return w->text + min_u64(strlen(w->text), GIVEN_DIGEST);
}

/* False: that node was given another change. */
static bool given_weights_check(const struct shared_loader *shared, const struct dl_span *values,
                                uint32_t i, struct dl_error *err)
{
    const struct members *m = shared->members;
    const struct left_out_node *node = &m->shares[i];
    const struct dl_span theirs = given_weights_words(values[i]);
    const struct dl_span ours = given_weights_words(values[m->self]);

    if (given_weights_is_equal(values[i], values[m->self]))
        return true;
    dl_error_set(err, ESTALE, "weights",
                 "ranks %" PRIu64 " to %" PRIu64 " on node %s were given \"%.*s\", and those of "
                 "this node \"%.*s\"; start all ranks from one state, and give each node the same "
                 "weights with the same step",
                 node->first, node->first + node->local - 1, node->name,
                 (int)min_u64(theirs.len, 200), (const char *)theirs.data,
                 (int)min_u64(ours.len, 200), (const char *)ours.data);
    return false;
}

static void given_weights_key_given(const struct shared_loader *shared, uint64_t number,
                                    char ret[static GIVEN_KEY_MAX])
{
    (void)snprintf(ret, GIVEN_KEY_MAX, "given/%s/%s/%" PRIu64, shared->members->id, shared->key,
                   number);
}

/* All have read what was given before. */
static void given_weights_forget_given(struct shared_loader *shared)
{
    struct members *m = shared->members;
    char key[GIVEN_KEY_MAX], own[BACKEND_KEY_MAX];

    if (shared->given.given.compared == 0)
        return;
    given_weights_key_given(shared, shared->given.given.compared - 1, key);
    (void)snprintf(own, sizeof own, "%s/%016" PRIx64, key, m->nodes[m->self].id);
    backend_forget(m->backend, own);
}

static void given_weights_decide(struct shared_loader *shared, const struct dl_span *values)
{
    struct given_weights *w = &shared->given;
    struct dl_error err = {0};
    uint32_t i = 0, n = shared->members->n_nodes;

    while (i < n && given_weights_check(shared, values, i, &err))
        i++;
    w->failure.code = 0;
    given_weights_forget_given(shared);
    if (i < n) {
        given_refuse(&w->given);
        given_weights_fail(shared, &err);
        return;
    }
    given_agree(&w->given);
    given_weights_tell_list(shared);
}

static bool given_weights_counts(const struct given_compare *compare)
{
    const struct members *m = compare->members;
    const struct given *given = compare->shared ? &compare->shared->given.given : NULL;

    return given && m->state == MEMBERS_IN && compare->round == m->round && given->in &&
           given->wanted && compare->number == given->compared;
}

static void given_weights_on_compared(void *owner, const struct dl_span *values,
                                      const struct dl_error *error)
{
    struct given_compare *compare = owner;
    struct shared_loader *shared = compare->shared;
    struct members *m = compare->members;
    bool counts = given_weights_counts(compare);

    if (shared && compare->round == m->round)
        shared->given.compares = false;
    if (counts && error)
        shared->given.failure = *error; /* the next turn asks again */
    else if (counts)
        given_weights_decide(shared, values);
    given_weights_end_compare(compare);
    if (shared && !m->ending)
        m->events->changed(m->context);
}

static void given_weights_compare(struct shared_loader *shared)
{
    struct given_weights *w = &shared->given;
    struct members *m = shared->members;
    struct given_compare *compare = must_alloc(sizeof *compare);
    _cleanup_free_ struct allgather_node *nodes = must_alloc(m->n_nodes * sizeof *nodes);
    char key[GIVEN_KEY_MAX];

    *compare = (struct given_compare){
        .members = m, .shared = shared, .round = m->round, .number = w->given.compared};
    given_weights_key_given(shared, compare->number, key);
    memcpy(nodes, m->nodes, m->n_nodes * sizeof *nodes);
    for (uint32_t i = 0; i < m->n_nodes; i++)
        nodes[i].wanted = true;
    w->compares = true;
    DL_APPEND(m->given_compares, compare);
    struct allgather_options options = {
        .loop = m->loop,
        .backend = m->backend,
        .key = key,
        .round = compare->round,
        .nodes = nodes,
        .n = m->n_nodes,
        .self = m->self,
        .value = span_str(w->text),
        .timeout_ns = GIVEN_COMPARE_NS,
        .sums = m->sums,
        .missing = "was given the weights that this node was given; give each node the same ones "
                   "with the same step",
        .done = given_weights_on_compared,
        .owner = compare};
    compare->allgather = allgather_start(&options);
}

/* ---- turns ----------------------------------------------------------------------------------- */

static void given_weights_go_on(struct shared_loader *shared)
{
    const struct given_weights *w = &shared->given;

    if (w->given.in && w->given.wanted && !w->compares && shared->members->state == MEMBERS_IN)
        given_weights_compare(shared);
}

/* Ranks that have waited for too long get an error. */
static void given_weights_wait_on(struct shared_loader *shared)
{
    struct given_weights *w = &shared->given;
    struct dl_error why = {0};

    if (!w->loader || given_hold(&w->given) == UINT64_MAX)
        return;
    dl_error_set(&why, ENOENT, "weights", "\"%s\" was given on this node, and not on all: %s",
                 given_weights_own_words(w),
                 w->failure.code ? w->failure.message
                                 : "give each node the same weights with the same step");
    if (!w->ops->wait(w->loader, &why))
        return;
    given_release(&w->given, true);
    given_weights_tell(shared);
}

void given_weights_tick(struct members *m)
{
    struct shared_loader *shared;

    DL_FOREACH (m->shared_loaders, shared) {
        struct given_weights *w = &shared->given;

        if (!w->told)
            given_weights_tell(shared);
        given_weights_wait_on(shared);
        given_weights_go_on(shared);
    }
}

/* ---- rounds ---------------------------------------------------------------------------------- */

void given_weights_begin_round(struct shared_loader *shared, struct mix_changes *list)
{
    struct given_weights *w = &shared->given;
    struct dl_error err = {0};

    given_weights_share(list, w->given.list);
    given_weights_share(list, w->given.wanted);
    w->compares = false; /* what is still compared of the former round does not count */
    w->failure.code = 0;
    if (!given_begin(&w->given, list)) {
        dl_error_set(&err, ESTALE, "weights",
                     "other nodes have other weights than this one, which was given \"%s\" last; "
                     "start all ranks from one state, and give each node the same weights with the "
                     "same step",
                     given_weights_own_words(w));
        given_weights_fail(shared, &err);
    }
    given_weights_tell_list(shared);
}

void given_weights_leave_rounds(struct members *m)
{
    struct shared_loader *shared;

    DL_FOREACH (m->shared_loaders, shared)
        given_leave(&shared->given.given);
}

void given_weights_end(struct shared_loader *shared)
{
    struct members *m = shared->members;
    struct given_compare *compare;

    DL_FOREACH (m->given_compares, compare)
        if (compare->shared == shared)
            compare->shared = NULL;
    given_deinit(&shared->given.given);
}

void given_weights_deinit(struct members *m)
{
    while (m->given_compares) {
        allgather_cancel(m->given_compares->allgather);
        given_weights_end_compare(m->given_compares);
    }
}

bool given_weights_are_idle(const struct shared_loader *shared)
{
    return !shared->given.given.wanted;
}

/* ---- what clients ask for -------------------------------------------------------------------- */

struct mix_changes *given_weights_list(const struct shared_loader *shared)
{
    return shared->given.given.list;
}

struct mix_changes *given_weights_latest(const struct shared_loader *shared)
{
    return given_latest(&shared->given.given);
}

uint64_t given_weights_hold(const struct shared_loader *shared)
{
    return given_hold(&shared->given.given);
}

int given_weights_wait(struct shared_loader *shared, uint64_t asked, struct dl_error *err)
{
    const struct given_weights *w = &shared->given;
    const struct members *m = shared->members;

    if (w->given.in && !w->given.wanted)
        return 0;
    if (uv_hrtime() - asked <= GIVEN_WAIT_NS) {
        members_be_patient(shared->members, uv_hrtime(), asked + GIVEN_WAIT_NS + 1);
        return 1;
    }
    if (!w->given.wanted)
        return dl_error_set(err, EAGAIN, "weights", "the nodes of rendezvous %s are not known: %s",
                            m->id, m->trouble[0] ? m->trouble : "try again");
    return dl_error_set(err, EAGAIN, "weights",
                        "\"%s\", which this node was given before, was not given on all nodes of "
                        "rendezvous %s: %s",
                        given_weights_own_words(w), m->id,
                        w->failure.code ? w->failure.message
                                        : "give each node the same weights with the same step");
}

int given_weights_give(struct shared_loader *shared, struct mix_changes *list, const char *text,
                       struct dl_error *err)
{
    struct given_weights *w = &shared->given;
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0};

    if (mix_changes_write(list, &bytes) < 0)
        return dl_error_set(err, ENOMEM, "weights", "out of memory");
    (void)snprintf(w->text, sizeof w->text, "%016" PRIx64 " %s", XXH3_64bits(bytes.data, bytes.len),
                   text);
    w->failure.code = 0;
    log_info("rendezvous %s: loader %.16s: this node was given %s", shared->members->id,
             shared->key, text);
    given_give(&w->given, list);
    given_weights_tell(shared);
    given_weights_go_on(shared);
    return 0;
}

struct shared_loader *given_weights_find(struct members *m, const void *loader, uint32_t *ret_n)
{
    struct shared_loader *shared, *found = NULL;

    *ret_n = 0;
    if (!m)
        return NULL;
    DL_FOREACH (m->shared_loaders, shared) {
        if (shared->given.loader != loader)
            continue;
        found = shared;
        ++*ret_n;
    }
    return found;
}
