/*
 * Where ranks resume that a launcher has started again, all of them: at one step, the least that
 * one of them was at. A rank that comes back while others of its node are there has been alone, and
 * continues by itself.
 *
 * Of its ranks that rest, since none has a client here, a node puts the least into the store, and
 * that they read once they are back. The first of a node that comes back lists that of all nodes.
 * If all rest, it is a *restart*: they resume at the least of all. Two that find this out at once
 * come to the same, since a rank that rests stays where it is. A node that finds that others have
 * seen a restart that it was part of, by its number, resumes where they do; and one that finds that
 * others read has been alone. In the number is the round, so that a node that was not in that round
 * takes no part.
 */
#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/cluster/world/shared_loader_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>

/* In the store, of the rounds that a report knows: 0: where the last restart was; 1: where the
 * ranks rest; 2: or that they do, and it is not known where. `last`: the restart's number. */
enum { RESTARTS_AT, RESTARTS_REST, RESTARTS_REST_UNKNOWN };
enum { RESTARTS_OF_A_ROUND = 1 << 16 };

/* Which ranks have come back with those of this node: no others; all, of each node; or it is not
 * known yet, since a node that does not rest says nothing. */
enum restarts_find { RESTARTS_ALONE, RESTARTS_ALL, RESTARTS_UNKNOWN };

/* The node's; or with `node` 0 what all those keys begin with. */
static void restarts_key(const struct members *m, const char *loader, uint64_t node,
                         char ret[static BACKEND_KEY_MAX])
{
    int len = snprintf(ret, BACKEND_KEY_MAX, "restart/%s/%s/", m->id, loader);

    if (node != 0)
        (void)snprintf(ret + len, BACKEND_KEY_MAX - (size_t)len, "%016" PRIx64, node);
}

/* ---- of this node --------------------------------------------------------------------------- */

static bool restarts_any_is_there(const struct shared_loader *shared)
{
    for (uint32_t i = 0; i < shared->members->local; i++)
        if (shared->ranks[i].session)
            return true;
    return false;
}

/* Where the rank of this node is that has used the fewest; one that never began here is where it
 * would. False: a client of theirs is there, or nothing is known of any. */
static bool restarts_find_least(const struct shared_loader *shared, struct progress_rank *ret)
{
    const struct progress_round *first = progress_first(&shared->progress);
    bool all_begun = true;

    *ret = (struct progress_rank){.entered = PROGRESS_NO_ROUND};
    if (restarts_any_is_there(shared))
        return false;
    for (uint32_t i = 0; i < shared->members->local; i++) {
        const struct progress_rank *rank = &shared->ranks[i].progress;
        bool has_begun = rank->entered != PROGRESS_NO_ROUND;

        all_begun = all_begun && has_begun;
        if (has_begun && (ret->entered == PROGRESS_NO_ROUND ||
                          progress_compare(&rank->behind, &ret->behind) == PROGRESS_BEFORE))
            *ret = *rank;
    }
    if (!all_begun && first && progress_compare(&first->begin, &ret->behind) == PROGRESS_BEFORE)
        ret->behind = first->begin;
    ret->given = ret->behind;
    return ret->entered != PROGRESS_NO_ROUND;
}

static void restarts_level(struct shared_loader *shared, const struct progress_rank *least)
{
    for (uint32_t i = 0; i < shared->members->local; i++)
        shared->ranks[i].progress = *least;
}

/* ---- told to others ------------------------------------------------------------------------- */

static void restarts_write(const struct shared_loader *shared, struct dl_buffer *out)
{
    const struct restart *restart = &shared->restart;
    struct progress_report report = {.last = PROGRESS_NO_ROUND};
    struct progress_rank least;

    if (restart->number > 0) {
        report.last = restart->number;
        progress_learn(&report.known, RESTARTS_AT, &restart->at);
    }
    if (restarts_find_least(shared, &least))
        progress_learn(&report.known, RESTARTS_REST, &least.behind);
    else if (!restarts_any_is_there(shared))
        progress_learn(&report.known, RESTARTS_REST_UNKNOWN, &(struct progress_point){0});
    progress_report_write(&report, out);
}

/* Which loader's it was does not matter: what is the same is not put again by those that are. */
static void restarts_on_said(void *owner, const struct backend_answer *answer)
{
    struct members *m = owner;
    struct shared_loader *shared;

    if (answer->status == 0)
        return;
    DL_FOREACH (m->shared_loaders, shared)
        shared->restart.is_lost = shared->restart.said.len > 0;
}

/* The first has begun where it was decided. */
static void restarts_begin(struct restart *restart)
{
    if (restart->decided_ns > 0 && restart->next > 0) {
        restart->number = restart->next;
        restart->at = restart->next_at;
    }
    restart->decided_ns = 0;
}

void restarts_say(struct shared_loader *shared)
{
    struct members *m = shared->members;
    struct dl_buffer *said = &shared->restart.said;
    _cleanup_(buffer_deinit) struct dl_buffer text = {0};
    char key[BACKEND_KEY_MAX];

    if (restarts_any_is_there(shared))
        restarts_begin(&shared->restart);
    /* Who reads for the first time need not say it. */
    if (m->max == 1 || m->ending || (said->len == 0 && restarts_any_is_there(shared)))
        return;
    restarts_write(shared, &text);
    bool same = text.len == said->len && memcmp(text.data, said->data, text.len) == 0;
    if (same && !shared->restart.is_lost)
        return;
    shared->restart.is_lost = false;
    said->len = 0;
    must_append(said, text.data, text.len);
    restarts_key(m, shared->key, member_id(m->member), key);
    backend_put(m->backend, key, (struct dl_span){text.data, text.len}, NULL, restarts_on_said, m);
}

void restarts_say_again(struct members *m)
{
    struct shared_loader *shared;

    DL_FOREACH (m->shared_loaders, shared)
        if (shared->restart.is_lost)
            restarts_say(shared);
}

void restarts_forget(struct members *m, const char *loader, uint64_t node)
{
    char key[BACKEND_KEY_MAX];

    restarts_key(m, loader, node, key);
    backend_forget(m->backend, key);
}

/* ---- heard of others ------------------------------------------------------------------------ */

/* What the node has said; false: nothing that can be read. */
static bool restarts_read(const struct backend_answer *answer, uint64_t node,
                          struct progress_report *ret)
{
    char name[17];

    (void)snprintf(name, sizeof name, "%016" PRIx64, node);
    for (uint32_t i = 0; i < answer->n; i++)
        if (strcmp(answer->items[i].name, name) == 0)
            return progress_report_read(answer->items[i].data, UINT64_MAX, ret);
    return false;
}

/* Another node has seen a restart that this one was part of, and does not know of yet. */
static bool restarts_is_news(const struct shared_loader *shared,
                             const struct progress_report *report)
{
    const struct progress_round *in =
        report->last == PROGRESS_NO_ROUND
            ? NULL
            : progress_find(&shared->progress, report->last / RESTARTS_OF_A_ROUND);

    return in && in->world > 0 && report->last > shared->restart.number &&
           progress_find(&report->known, RESTARTS_AT);
}

/* It has sent a heartbeat since the first rank came back here: one that is not late was seen to
 * send one after that, and it took no longer to be seen. */
static bool restarts_lives(struct members *m, const struct left_out_node *node, uint64_t asked_ns)
{
    uint64_t heir;

    return uv_hrtime() - asked_ns > 2 * (m->beat_ns + 2 * m->poll_ns) &&
           members_look_for(m, node, &heir) == MEMBERS_THERE;
}

/* `least`: this node's; then all nodes'. */
static enum restarts_find restarts_decide(struct shared_loader *shared,
                                          const struct backend_answer *answer,
                                          struct progress_point *least, uint64_t *ret_number)
{
    struct members *m = shared->members;
    uint64_t number = max_u64(m->round * RESTARTS_OF_A_ROUND, shared->restart.number) + 1;
    struct progress_point all = *least;
    bool all_rest = true, all_live = true;
    uint64_t news = 0; /* the last of them */

    for (uint32_t i = 0; i < m->n_nodes; i++) {
        struct progress_report report = {.last = PROGRESS_NO_ROUND};

        if (i == m->self)
            continue;
        bool is = restarts_read(answer, m->nodes[i].id, &report);
        if (is && restarts_is_news(shared, &report) && report.last > news) {
            *least = progress_find(&report.known, RESTARTS_AT)->begin;
            news = report.last;
        }
        const struct progress_round *rests = progress_find(&report.known, RESTARTS_REST);
        if (!is || !(rests || progress_find(&report.known, RESTARTS_REST_UNKNOWN))) {
            all_rest = false;
            all_live = all_live && restarts_lives(m, &m->shares[i], shared->restart.asked_ns);
        }
        if (is && report.last != PROGRESS_NO_ROUND)
            number = max_u64(number, report.last + 1);
        if (rests && progress_compare(&rests->begin, &all) == PROGRESS_BEFORE)
            all = rests->begin;
    }
    if (news == 0 && !all_rest)
        return all_live ? RESTARTS_ALONE : RESTARTS_UNKNOWN;
    if (news == 0)
        *least = all;
    *ret_number = news > 0 ? news : number;
    return RESTARTS_ALL;
}

static void restarts_take(struct shared_loader *shared, const struct backend_answer *answer)
{
    struct restart *restart = &shared->restart;
    const struct members *m = shared->members;
    struct progress_rank least;
    char text[PROGRESS_TEXT_MAX];
    uint64_t number = 0;

    /* One has come back meanwhile; or nodes have. */
    if (!restarts_find_least(shared, &least) || m->state != MEMBERS_IN ||
        restart->asked_round != m->round)
        return;
    enum restarts_find found = restarts_decide(shared, answer, &least.behind, &number);
    if (found == RESTARTS_UNKNOWN)
        return;
    least.given = least.behind;
    restart->next = number;
    restart->next_at = least.behind;
    restart->decided_ns = uv_hrtime();
    progress_point_text(&least.behind, text);
    log_info("rendezvous %s: all ranks of %s start loader %.16s again, in %s", m->id,
             found == RESTARTS_ALL ? "all nodes" : "this node", shared->key, text);
    restarts_level(shared, &least);
    shared_loaders_publish_positions(shared->members); /* others may have it further */
}

static void restarts_on_listed(void *owner, const struct backend_answer *answer)
{
    struct members *m = owner;
    struct shared_loader *shared = m->restarting;

    m->restarting = NULL;
    if (m->ending)
        return;
    if (shared && answer->status == 0)
        restarts_take(shared, answer);
    if (shared && shared->restart.decided_ns > 0)
        m->events->changed(m->context);
    else /* then it is asked again */
        members_be_patient(m, uv_hrtime(), uv_hrtime() + m->poll_ns);
}

int restarts_meet(struct shared_loader *shared, const struct shared_loader_request *request,
                  struct dl_error *err)
{
    struct members *m = shared->members;
    struct progress_rank least;
    char key[BACKEND_KEY_MAX];

    if (request->resume.epoch != RESUME_ANYWHERE || request->resume.former.world > 0 ||
        !restarts_find_least(shared, &least))
        return 0;
    if (m->max > 1 && m->state != MEMBERS_IN)
        return members_wait(m, request->asked, m->join_ns, err);
    if (m->max == 1 || m->n_nodes == 1) {
        restarts_level(shared, &least);
        return 0;
    }
    if (shared->restart.decided_ns >= request->asked && shared->restart.asked_round == m->round)
        return 0;
    if (!m->restarting) {
        m->restarting = shared;
        shared->restart.decided_ns = 0;
        shared->restart.asked_ns = request->asked;
        shared->restart.asked_round = m->round;
        restarts_key(m, shared->key, 0, key);
        backend_list(m->backend, key, NULL, restarts_on_listed, m);
    }
    return members_wait(m, request->asked, m->join_ns, err);
}

void restarts_end(struct shared_loader *shared)
{
    if (shared->members->restarting == shared)
        shared->members->restarting = NULL;
    buffer_deinit(&shared->restart.said);
}
