/* What nodes tell each other of a shared loader in a new round: see shared_loader.h. */
#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/cluster/world/shared_loader_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>

bool reports_are_due(const struct shared_loader *shared)
{
    for (uint32_t i = 0; i < shared->members->local; i++)
        if (shared->ranks[i].report_due)
            return true;
    return false;
}

static void reports_end(struct report_round *round)
{
    DL_DELETE(round->shared->report_rounds, round);
    free(round->nodes);
    free(round);
}

void reports_cancel(struct shared_loader *shared)
{
    while (shared->report_rounds) {
        allgather_cancel(shared->report_rounds->allgather);
        reports_end(shared->report_rounds);
    }
}

bool reports_know_begin(const struct shared_loader *shared)
{
    const struct progress_round *round = progress_find(&shared->progress, shared->members->round);

    return round && round->known;
}

struct report_round *reports_find(const struct shared_loader *shared, uint64_t number)
{
    struct report_round *round;

    DL_FOREACH (shared->report_rounds, round)
        if (round->number == number && !round->settled)
            return round;
    return NULL;
}

/* The furthest that a rank of this node was given. One that has asked this daemon for nothing yet,
 * since it waits in a collective under a new one, may be where the last round began. */
static void reports_find_furthest(const struct shared_loader *shared,
                                  struct progress_report *report)
{
    const struct progress_round *latest = progress_latest(&shared->progress);
    bool all_are_known = true;

    for (uint32_t i = 0; i < shared->members->local; i++) {
        const struct progress_rank *rank = &shared->ranks[i].progress;

        all_are_known = all_are_known && rank->entered != PROGRESS_NO_ROUND;
        if (rank->entered == PROGRESS_NO_ROUND ||
            (report->has_point && progress_compare(&rank->given, &report->point) != PROGRESS_AFTER))
            continue;
        report->has_point = true;
        report->point = rank->given;
    }
    if (!all_are_known && report->has_point && latest &&
        progress_compare(&latest->begin, &report->point) == PROGRESS_AFTER)
        report->point = latest->begin;
}

/* A node that was in a round since the latest whose beginning this one knows may know more. */
static bool reports_may_know(const struct shared_loader *shared, uint64_t id)
{
    return shared->n_others == 0 || allgather_nodes_have(shared->others, shared->n_others, id);
}

/* Those that may know more, and do; if none does, all who may. */
static void reports_choose(const struct shared_loader *shared, struct report_round *round)
{
    bool any = false;

    for (uint32_t i = 0; i < round->n; i++)
        any |= newcomers_knows(shared->members, i, shared->key);
    for (uint32_t i = 0; i < round->n; i++)
        round->nodes[i].wanted = reports_may_know(shared, round->nodes[i].id) &&
                                 (!any || newcomers_knows(shared->members, i, shared->key));
}

/* Each once, however often a round has to be reported again. */
static void reports_add_others(struct shared_loader *shared, const struct allgather_node *nodes,
                               uint32_t n)
{
    uint32_t had = shared->n_others;
    struct allgather_node *all = must_alloc((had + n) * sizeof *all);

    if (had > 0)
        memcpy(all, shared->others, had * sizeof *all);
    for (uint32_t i = 0; i < n; i++)
        if (!allgather_nodes_have(all, had, nodes[i].id))
            all[shared->n_others++] = nodes[i];
    free(shared->others);
    shared->others = all;
}

static void reports_forget_others(struct shared_loader *shared)
{
    free(shared->others);
    shared->others = NULL;
    shared->n_others = 0;
}

typedef void (*reports_fn)(void *owner, const struct dl_span *texts, const struct dl_error *error);

/* Puts this node's report of the round into the store, and waits for those of nodes that may know
 * more. In the store the key's first word is "course": daemons of other versions look there. */
static void reports_publish(struct shared_loader *shared, struct dl_span text, bool all_known,
                            reports_fn done)
{
    struct members *m = shared->members;
    struct report_round *round = must_alloc(sizeof *round);
    char key[BACKEND_KEY_MAX];

    (void)snprintf(key, sizeof key, "course/%s/%s", m->id, shared->key);
    round->shared = shared;
    round->number = m->round;
    round->n = m->n_nodes;
    round->self = m->self;
    round->nodes = must_alloc(m->n_nodes * sizeof *round->nodes);
    memcpy(round->nodes, m->nodes, m->n_nodes * sizeof *round->nodes);
    for (uint32_t i = 0; i < round->n; i++)
        round->nodes[i].wanted = false;
    if (!all_known)
        reports_choose(shared, round);
    DL_APPEND(shared->report_rounds, round);
    struct allgather_options options = {.loop = m->loop,
                                        .backend = m->backend,
                                        .key = key,
                                        .round = m->round,
                                        .nodes = round->nodes,
                                        .n = round->n,
                                        .self = m->self,
                                        .value = text,
                                        .timeout_ns = m->join_ns,
                                        .sums = m->sums,
                                        .done = done,
                                        .owner = round};
    round->allgather = allgather_start(&options);
}

static void reports_on_gathered(void *owner, const struct dl_span *texts,
                                const struct dl_error *error);

/* Behind the text, and a NUL: the changed weights that this node was given; nothing where there
 * are none. */
static int reports_add_weights(const struct shared_loader *shared, struct dl_buffer *out)
{
    const struct mix_changes *list = given_report(&shared->given.given);

    if (!list)
        return 0;
    must_append(out, "", 1);
    return mix_changes_write(list, out);
}

/* The other way: what is left is the text. */
static int reports_split_weights(struct dl_span *text, struct mix_changes **ret)
{
    const uint8_t *end = memchr(text->data, '\0', text->len);
    size_t len = end ? (size_t)(end - text->data) : text->len;
    struct dl_span list = {text->data + len, text->len - len};

    *ret = NULL;
    text->len = len;
    return end ? mix_changes_read((struct dl_span){list.data + 1, list.len - 1}, ret) : 0;
}

/* Reports for the round. `report` lacks the rounds that this node knows. */
static void reports_write(struct shared_loader *shared, struct progress_report *report)
{
    const struct members *m = shared->members;
    const struct progress_round *latest = progress_latest(&shared->progress);
    _cleanup_(buffer_deinit) struct dl_buffer text = {0};

    report->last = latest ? latest->number : PROGRESS_NO_ROUND;
    report->known = shared->progress;
    progress_report_write(report, &text);
    if (reports_add_weights(shared, &text) < 0)
        return; /* for want of memory: it is tried again */
    reports_publish(shared, (struct dl_span){text.data, text.len}, false, reports_on_gathered);
    if (latest)
        reports_add_others(shared, m->nodes, m->n_nodes);
    shared->failure.code = 0;
}

static void reports_on_republished(void *owner, const struct dl_span *texts,
                                   const struct dl_error *error)
{
    struct report_round *round = owner;
    const struct members *m = round->shared->members;

    /* The store failed again: when it is back, all is published once more. */
    (void)texts, (void)error;
    reports_end(round);
    if (!m->ending)
        m->events->changed(m->context);
}

/* A node that nobody waited for may still wait for the reports of the others. */
void shared_loaders_republish(struct members *m)
{
    struct shared_loader *shared;

    newcomers_republish(m);
    DL_FOREACH (m->shared_loaders, shared) {
        left_out_store_lost(shared->left_out);
        if (m->state == MEMBERS_IN && shared->published.len > 0 &&
            shared->published_round == m->round && !reports_find(shared, m->round))
            reports_publish(shared, (struct dl_span){shared->published.data, shared->published.len},
                            true, reports_on_republished);
    }
}

static void reports_keep_published(struct shared_loader *shared, uint64_t round,
                                   struct dl_span text)
{
    shared->published.len = 0;
    must_append(&shared->published, text.data, text.len);
    shared->published_round = round;
}

void reports_write_if_known(struct shared_loader *shared)
{
    struct progress_report report = {0};

    if (shared->members->state != MEMBERS_IN || reports_are_due(shared) ||
        reports_know_begin(shared) || reports_find(shared, shared->members->round) ||
        left_out_is_learning(shared->left_out))
        return;
    reports_find_furthest(shared, &report);
    if (!report.has_point || !newcomers_are_heard(shared->members))
        return;
    left_out_raise(shared->left_out, &shared->progress, &report.point);
    reports_write(shared, &report);
}

void reports_write_as_new(struct shared_loader *shared, const struct resume_request *request)
{
    struct progress_report report = {.has_point = request->epoch != RESUME_ANYWHERE};
    const struct rdzv_place *place = &shared->members->place;

    if (!progress_begin_as_before(request, place->first, place->world, &report.point) &&
        !progress_point_after(&report.point, 0, request->epoch, &request->before, place->world,
                              request->step))
        report.has_point = false;
    reports_write(shared, &report);
}

void shared_loaders_publish(struct members *m)
{
    struct shared_loader *shared;

    DL_FOREACH (m->shared_loaders, shared)
        reports_write_if_known(shared);
}

static void reports_learn(struct shared_loader *shared, uint64_t round,
                          const struct node_report *by_node, uint32_t n,
                          const struct progress_point *begin)
{
    bool is_new = !progress_latest(&shared->progress), others_know = false;
    char text[PROGRESS_TEXT_MAX];

    for (uint32_t i = 0; i < n; i++)
        others_know |= by_node[i].report->known.n > 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < by_node[i].report->known.n; k++)
            progress_learn(&shared->progress, by_node[i].report->known.rounds[k].number,
                           &by_node[i].report->known.rounds[k].begin);
    progress_learn(&shared->progress, round, begin);
    if (is_new && others_know)
        left_out_came(shared->left_out, begin);
    left_out_went_on(shared->left_out, begin);
    progress_point_text(begin, text);
    log_info("rendezvous %s: in round %" PRIu64 " loader %.16s continues in %s",
             shared->members->id, round, shared->key, text);
}

/* It knows it by now, too: so it will say in the next round. */
void reports_settle(struct shared_loader *shared, const struct progress_point *begin)
{
    struct progress_report report = {
        .last = PROGRESS_NO_ROUND, .has_point = true, .point = *begin, .known = shared->progress};
    struct members *m = shared->members;
    struct report_round *round = reports_find(shared, m->round);
    _cleanup_(buffer_deinit) struct dl_buffer text = {0};

    if (round)
        round->settled = true;
    progress_report_write(&report, &text);
    if (reports_add_weights(shared, &text) < 0)
        return; /* for want of memory: its rank asks again */
    reports_keep_published(shared, m->round, (struct dl_span){text.data, text.len});
    reports_forget_others(shared);
    reports_add_others(shared, m->nodes, m->n_nodes);
    reports_learn(shared, m->round, NULL, 0, begin);
    given_weights_begin_round(shared, given_report(&shared->given.given));
}

/* ---- reports of all nodes ------------------------------------------------------------------- */

struct reports_heard {
    struct progress_report *reports; /* owned, as all here; of those that were wanted, `n` */
    struct node_report *by_node;
    struct mix_changes **lists; /* counted */
    uint32_t n;
};

static void reports_heard_deinit(struct reports_heard *heard)
{
    for (uint32_t i = 0; i < heard->n; i++)
        mix_changes_unref(heard->lists[i]);
    free(heard->reports);
    free(heard->by_node);
    free(heard->lists);
}

static int reports_read(const struct report_round *round, const struct dl_span *texts,
                        struct reports_heard *ret, struct dl_error *err)
{
    ret->reports = must_alloc(round->n * sizeof *ret->reports);
    ret->by_node = must_alloc(round->n * sizeof *ret->by_node);
    ret->lists = must_alloc(round->n * sizeof *ret->lists);
    for (uint32_t i = 0; i < round->n; i++) {
        struct progress_report *report = &ret->reports[ret->n];
        struct dl_span text = texts[i];

        if (text.len == 0)
            continue;
        int r = reports_split_weights(&text, &ret->lists[ret->n]);
        if (r == -ENOMEM)
            return dl_error_set(err, ENOMEM, "rendezvous", "out of memory");
        ret->by_node[ret->n++] =
            (struct node_report){.node = round->nodes[i].name, .report = report};
        if (r < 0 || !progress_report_read(text, round->number, report))
            return dl_error_set(err, EBADMSG, "rendezvous",
                                "the store's value of node %s for a loader was not written by "
                                "dloaderd",
                                round->nodes[i].name);
    }
    return 0;
}

/* Nodes that were in the latest round with it all read the same. */
static struct mix_changes *reports_choose_weights(const struct reports_heard *heard)
{
    _cleanup_free_ struct mix_changes **lists = must_alloc(max_u64(heard->n, 1) * sizeof *lists);
    uint64_t last = PROGRESS_NO_ROUND;
    uint32_t n = 0;

    for (uint32_t i = 0; i < heard->n; i++) {
        uint64_t one = heard->reports[i].last;

        if (one != PROGRESS_NO_ROUND && (last == PROGRESS_NO_ROUND || one > last))
            last = one;
    }
    for (uint32_t i = 0; i < heard->n; i++)
        if (heard->reports[i].last == last)
            lists[n++] = heard->lists[i];
    return given_choose(lists, n);
}

static int reports_merge(struct report_round *round, const struct dl_span *texts,
                         struct dl_error *err)
{
    _cleanup_(reports_heard_deinit) struct reports_heard heard = {0};
    struct progress_point begin = {0}; /* unless a node knows another */
    int r = reports_read(round, texts, &heard, err);

    if (r == 0)
        r = progress_merge(heard.by_node, heard.n, &begin, err);
    if (r < 0)
        return r;
    reports_learn(round->shared, round->number, heard.by_node, heard.n, &begin);
    if (round->number == round->shared->members->round)
        given_weights_begin_round(round->shared, reports_choose_weights(&heard));
    return 0;
}

static void reports_on_gathered(void *owner, const struct dl_span *texts,
                                const struct dl_error *error)
{
    struct report_round *round = owner;
    struct shared_loader *shared = round->shared;
    struct members *m = shared->members;
    bool latest = round->number == m->round;
    struct dl_error err = {0};

    if (round->settled) {
        reports_end(round);
        return;
    }
    if (error)
        err = *error;
    else
        (void)!reports_merge(round, texts, &err);
    if (err.code && latest) {
        shared->failure = err;
        shared->failed_ns = uv_hrtime();
        log_warning("rendezvous %s: loader %.16s: %s: %s", m->id, shared->key, err.path,
                    err.message);
    }
    if (!err.code && latest) {
        reports_keep_published(shared, round->number, texts[round->self]);
        reports_forget_others(shared);
        reports_add_others(shared, round->nodes, round->n);
    }
    reports_end(round);
    if (!m->ending)
        m->events->changed(m->context);
}
