#include "daemon/serve/world/shared_loader.h"

#include "daemon/serve/base/log.h"
#include "daemon/serve/base/memory.h"
#include "daemon/serve/world/members_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>

enum {
    SHARED_LOADERS_MAX = 1024,
    SHARED_KEY_PARTS = STATE_PARTS + 2,
    SHARED_KEY_MAX = SHARED_KEY_PARTS * 16 + 1
};

struct shared_rank {
    struct progress_rank progress;
    const void *session, *stream; /* that it reads with; only compared */
    bool report_due;              /* its client knows what it had, and has not said so yet */
};

/* The reports of one round, while they are gathered. */
struct report_round {
    struct report_round *prev, *next; /* shared_loader.report_rounds */
    struct shared_loader *shared;
    struct allgather *allgather;
    uint64_t number;              /* of the round */
    struct allgather_node *nodes; /* owned: of that round */
    uint32_t n, self;
};

struct shared_loader {
    struct shared_loader *prev, *next; /* members.shared_loaders */
    struct members *members;
    char *key; /* owned */
    struct progress progress;
    struct shared_rank *ranks;          /* owned; members.local of them */
    struct report_round *report_rounds; /* owned */
    struct allgather_node *others; /* owned: nodes that were in a round with it, since the latest
                                   round whose beginning it knows */
    uint32_t n_others;
    struct dl_buffer published; /* its report of the latest round that was merged: */
    uint64_t published_round;   /* this one */
    struct dl_error failure;    /* of the latest round of reports; code 0: none, or it goes on */
    uint64_t failed_ns;
};

/* ---- making and ending ---------------------------------------------------------------------- */

/* Where the data lies may differ from node to node. What is read, and in which order, must be the
 * same: else a point would mean other samples on another node. */
static void shared_loader_write_key(const struct state_identity *identity,
                                    char ret[static SHARED_KEY_MAX])
{
    uint64_t parts[SHARED_KEY_PARTS];

    memcpy(parts, identity->parts, sizeof identity->parts);
    parts[STATE_PARTS] = identity->length;
    parts[STATE_PARTS + 1] = identity->order == STATE_SEQUENTIAL ? 0 : identity->seed;
    for (size_t i = 0; i < SHARED_KEY_PARTS; i++)
        (void)snprintf(ret + 16 * i, 17, "%016" PRIx64, parts[i]);
}

static struct shared_loader *shared_loader_find(struct members *m, const char *key)
{
    struct shared_loader *shared;

    DL_FOREACH (m->shared_loaders, shared)
        if (strcmp(shared->key, key) == 0)
            return shared;
    return NULL;
}

static int shared_loader_make(struct members *m, const char *key, struct shared_loader **ret,
                              struct dl_error *err)
{
    struct shared_loader *shared = NULL;
    int count = 0;

    DL_COUNT(m->shared_loaders, shared, count);
    if (count >= SHARED_LOADERS_MAX)
        return dl_error_set(err, ENOSPC, "loader",
                            "%d loaders were read in the cluster's world, the most possible; "
                            "restart dloaderd",
                            count);
    shared = must_alloc(sizeof *shared);
    shared->members = m;
    shared->key = must_strdup(key);
    shared->ranks = must_alloc(m->local * sizeof *shared->ranks);
    for (uint32_t i = 0; i < m->local; i++)
        shared->ranks[i].progress.entered = PROGRESS_NO_ROUND;
    /* Its ranks had a share of those rounds, too, though nobody has asked for it here yet. */
    shared->progress = m->progress;
    DL_APPEND(m->shared_loaders, shared);
    *ret = shared;
    return 0;
}

static void shared_loader_end_reports(struct report_round *round)
{
    DL_DELETE(round->shared->report_rounds, round);
    free(round->nodes);
    free(round);
}

void shared_loaders_enter_round(struct members *m)
{
    struct shared_loader *shared;

    progress_enter(&m->progress, m->round, m->place.first, m->place.world);
    DL_FOREACH (m->shared_loaders, shared)
        progress_enter(&shared->progress, m->round, m->place.first, m->place.world);
}

void shared_loaders_deinit(struct members *m)
{
    struct shared_loader *shared, *next;

    DL_FOREACH_SAFE (m->shared_loaders, shared, next) {
        while (shared->report_rounds) {
            allgather_cancel(shared->report_rounds->allgather);
            shared_loader_end_reports(shared->report_rounds);
        }
        DL_DELETE(m->shared_loaders, shared);
        free(shared->others);
        buffer_deinit(&shared->published);
        free(shared->ranks);
        free(shared->key);
        free(shared);
    }
}

/* ---- reports -------------------------------------------------------------------------------- */

static bool shared_loader_knows_begin(const struct shared_loader *shared)
{
    const struct progress_round *round = progress_find(&shared->progress, shared->members->round);

    return round && round->known;
}

static struct report_round *shared_loader_find_reports(const struct shared_loader *shared,
                                                       uint64_t number)
{
    struct report_round *round;

    DL_FOREACH (shared->report_rounds, round)
        if (round->number == number)
            return round;
    return NULL;
}

/* The furthest that a rank of this node was given. */
static void shared_loader_find_furthest(const struct shared_loader *shared,
                                        struct progress_report *report)
{
    for (uint32_t i = 0; i < shared->members->local; i++) {
        const struct progress_rank *rank = &shared->ranks[i].progress;

        if (rank->entered == PROGRESS_NO_ROUND ||
            (report->has_point && progress_compare(&rank->given, &report->point) != PROGRESS_AFTER))
            continue;
        report->has_point = true;
        report->point = rank->given;
    }
}

static bool shared_loader_is_among(const struct allgather_node *nodes, uint32_t n, uint64_t id)
{
    for (uint32_t i = 0; i < n; i++)
        if (nodes[i].id == id)
            return true;
    return false;
}

/* A node that was in a round since the latest whose beginning this one knows may know more. */
static bool shared_loader_may_know(const struct shared_loader *shared, uint64_t id)
{
    return shared->n_others == 0 || shared_loader_is_among(shared->others, shared->n_others, id);
}

/* Each once, however often a round has to be reported again. */
static void shared_loader_add_others(struct shared_loader *shared,
                                     const struct allgather_node *nodes, uint32_t n)
{
    uint32_t had = shared->n_others;
    struct allgather_node *all = must_alloc((had + n) * sizeof *all);

    if (had > 0)
        memcpy(all, shared->others, had * sizeof *all);
    for (uint32_t i = 0; i < n; i++)
        if (!shared_loader_is_among(all, had, nodes[i].id))
            all[shared->n_others++] = nodes[i];
    free(shared->others);
    shared->others = all;
}

static void shared_loader_forget_others(struct shared_loader *shared)
{
    free(shared->others);
    shared->others = NULL;
    shared->n_others = 0;
}

typedef void (*reports_fn)(void *owner, const struct dl_span *texts, const struct dl_error *error);

/* Puts this node's report of the round into the store, and waits for those of nodes that may know
 * more. In the store the key's first word is "course": daemons of other versions look there. */
static void shared_loader_publish(struct shared_loader *shared, struct dl_span text, bool all_known,
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
        round->nodes[i].wanted = !all_known && shared_loader_may_know(shared, round->nodes[i].id);
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
                                        .done = done,
                                        .owner = round};
    round->allgather = allgather_start(&options);
}

static void shared_loader_on_reports(void *owner, const struct dl_span *texts,
                                     const struct dl_error *error);

/* Reports for the round. `report` lacks the rounds that this node knows. */
static void shared_loader_report(struct shared_loader *shared, struct progress_report *report)
{
    const struct members *m = shared->members;
    const struct progress_round *latest = progress_latest(&shared->progress);
    _cleanup_(buffer_deinit)
    struct dl_buffer text = {0};

    report->last = latest ? latest->number : PROGRESS_NO_ROUND;
    report->known = shared->progress;
    progress_report_write(report, &text);
    shared_loader_publish(shared, (struct dl_span){text.data, text.len}, false,
                          shared_loader_on_reports);
    if (latest)
        shared_loader_add_others(shared, m->nodes, m->n_nodes);
    shared->failure.code = 0;
}

static void shared_loader_on_republished(void *owner, const struct dl_span *texts,
                                         const struct dl_error *error)
{
    struct report_round *round = owner;
    const struct members *m = round->shared->members;

    /* The store failed again: when it is back, all is published once more. */
    (void)texts, (void)error;
    shared_loader_end_reports(round);
    if (!m->ending)
        m->events->changed(m->context);
}

/* A node that nobody waited for may still wait for the reports of the others. */
void shared_loaders_republish(struct members *m)
{
    struct shared_loader *shared;

    DL_FOREACH (m->shared_loaders, shared) {
        if (m->state == MEMBERS_IN && shared->published.len > 0 &&
            shared->published_round == m->round && !shared_loader_find_reports(shared, m->round))
            shared_loader_publish(shared,
                                  (struct dl_span){shared->published.data, shared->published.len},
                                  true, shared_loader_on_republished);
    }
}

static void shared_loader_keep_published(struct shared_loader *shared, uint64_t round,
                                         struct dl_span text)
{
    shared->published.len = 0;
    must_append(&shared->published, text.data, text.len);
    shared->published_round = round;
}

static bool shared_loader_report_is_due(const struct shared_loader *shared)
{
    for (uint32_t i = 0; i < shared->members->local; i++)
        if (shared->ranks[i].report_due)
            return true;
    return false;
}

/* A node whose ranks were in an earlier round reports by itself, once no rank has a report due. */
static void shared_loader_report_if_known(struct shared_loader *shared)
{
    struct progress_report report = {0};

    if (shared->members->state != MEMBERS_IN || shared_loader_report_is_due(shared) ||
        shared_loader_knows_begin(shared) ||
        shared_loader_find_reports(shared, shared->members->round))
        return;
    shared_loader_find_furthest(shared, &report);
    if (report.has_point)
        shared_loader_report(shared, &report);
}

void shared_loaders_publish(struct members *m)
{
    struct shared_loader *shared;

    DL_FOREACH (m->shared_loaders, shared)
        shared_loader_report_if_known(shared);
}

/* ---- reports of all nodes ------------------------------------------------------------------- */

static int shared_loader_read_reports(const struct report_round *round, const struct dl_span *texts,
                                      struct progress_report *reports, struct node_report *by_node,
                                      uint32_t *ret_n, struct dl_error *err)
{
    *ret_n = 0;
    for (uint32_t i = 0; i < round->n; i++) {
        if (texts[i].len == 0)
            continue;
        if (!progress_report_read(texts[i], round->number, &reports[*ret_n]))
            return dl_error_set(err, EBADMSG, "rendezvous",
                                "the store's value of node %s for a loader was not written by "
                                "dloaderd",
                                round->nodes[i].name);
        by_node[*ret_n] =
            (struct node_report){.node = round->nodes[i].name, .report = &reports[*ret_n]};
        ++*ret_n;
    }
    return 0;
}

static void shared_loader_learn(struct shared_loader *shared, uint64_t round,
                                const struct node_report *by_node, uint32_t n,
                                const struct progress_point *begin)
{
    char text[PROGRESS_TEXT_MAX];

    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < by_node[i].report->known.n; k++)
            progress_learn(&shared->progress, by_node[i].report->known.rounds[k].number,
                           &by_node[i].report->known.rounds[k].begin);
    progress_learn(&shared->progress, round, begin);
    progress_point_text(begin, text);
    log_info("rendezvous %s: in round %" PRIu64 " loader %.16s continues in %s",
             shared->members->id, round, shared->key, text);
}

static int shared_loader_merge(struct report_round *round, const struct dl_span *texts,
                               struct dl_error *err)
{
    _cleanup_free_ struct progress_report *reports = must_alloc(round->n * sizeof *reports);
    _cleanup_free_ struct node_report *by_node = must_alloc(round->n * sizeof *by_node);
    struct progress_point begin = {0}; /* unless a node knows another */
    uint32_t n;
    int r = shared_loader_read_reports(round, texts, reports, by_node, &n, err);

    if (r == 0)
        r = progress_merge(by_node, n, &begin, err);
    if (r < 0)
        return r;
    shared_loader_learn(round->shared, round->number, by_node, n, &begin);
    return 0;
}

static void shared_loader_on_reports(void *owner, const struct dl_span *texts,
                                     const struct dl_error *error)
{
    struct report_round *round = owner;
    struct shared_loader *shared = round->shared;
    struct members *m = shared->members;
    bool latest = round->number == m->round;
    struct dl_error err = {0};

    if (error)
        err = *error;
    else
        (void)!shared_loader_merge(round, texts, &err);
    if (err.code && latest) {
        shared->failure = err;
        shared->failed_ns = uv_hrtime();
        log_warning("rendezvous %s: loader %.16s: %s: %s", m->id, shared->key, err.path,
                    err.message);
    }
    if (!err.code && latest) {
        shared_loader_keep_published(shared, round->number, texts[round->self]);
        shared_loader_forget_others(shared);
        shared_loader_add_others(shared, round->nodes, round->n);
    }
    shared_loader_end_reports(round);
    if (!m->ending)
        m->events->changed(m->context);
}

/* ---- what is asked for ---------------------------------------------------------------------- */

/* What a rank that was cut off asks for is what it had; or less, if its last step was lost with the
 * nodes that are gone. One that asks for all of an epoch begins it again. */
static void shared_loader_take_report(struct shared_loader *shared,
                                      const struct shared_loader_request *request)
{
    struct shared_rank *rank = &shared->ranks[request->local];
    struct progress_point point;
    enum progress_order order;

    if (!rank->report_due)
        return;
    rank->report_due = false;
    rank->progress.given = rank->progress.behind;
    if (request->resume.epoch != RESUME_ANYWHERE && request->resume.step == 0 &&
        progress_point_after(&point, rank->progress.behind.pass, request->resume.epoch,
                             &request->resume.before, 1, 0)) {
        order = progress_compare(&point, &rank->progress.behind);
        if (order == PROGRESS_AFTER || (order == PROGRESS_BEFORE && point.history.n > 0))
            rank->progress.given = rank->progress.behind = point;
    }
    shared_loader_report_if_known(shared);
}

/* The first rank to ask, of a node that is new to the loader. */
static void shared_loader_report_as_new(struct shared_loader *shared,
                                        const struct resume_request *request)
{
    struct progress_report report = {.has_point = request->epoch != RESUME_ANYWHERE};

    if (!progress_point_after(&report.point, 0, request->epoch, &request->before,
                              shared->members->place.world, request->step))
        report.has_point = false;
    shared_loader_report(shared, &report);
}

static int shared_loader_say_failure(const struct shared_loader *shared, struct dl_error *err)
{
    *err = shared->failure;
    return -err->code;
}

/* With as many ranks as before, each goes on with its own stretch of the epoch. */
static int shared_loader_place_fixed(const struct members_place *place,
                                     const struct shared_loader_request *request,
                                     struct resume_place *ret, struct dl_error *err)
{
    struct progress_point point;

    if (!progress_point_after(&point, 0, request->resume.epoch, &request->resume.before,
                              place->world, request->resume.step))
        return dl_error_set(err, EINVAL, "before", "too many steps");
    *ret = (struct resume_place){.first = place->rank - request->local,
                                 .world = place->world,
                                 .limit = UINT64_MAX,
                                 .epoch = request->resume.epoch};
    ret->step = progress_point_split(&point, place->world, &ret->before);
    return 0;
}

int shared_loader_place(struct members *m, const struct shared_loader_request *request,
                        struct shared_loader **ret, struct resume_place *ret_place,
                        struct dl_error *err)
{
    struct members_place place;
    char key[SHARED_KEY_MAX];
    int r = members_place(m, request->local, request->asked, &place, err);

    *ret = NULL;
    if (r < 0 || request->fixed)
        return r == 0 ? shared_loader_place_fixed(&place, request, ret_place, err) : r;
    shared_loader_write_key(request->identity, key);
    struct shared_loader *shared = shared_loader_find(m, key);
    if (shared)
        shared_loader_take_report(shared, request);
    if (r == 0 && !shared)
        r = shared_loader_make(m, key, &shared, err);
    if (r != 0)
        return r;
    *ret = shared;
    if (shared_loader_knows_begin(shared))
        return progress_resume(&shared->progress, &shared->ranks[request->local].progress,
                               &request->resume, ret_place, err);
    if (shared_loader_find_reports(shared, m->round))
        return 1;
    if (shared->failure.code && request->asked <= shared->failed_ns)
        return shared_loader_say_failure(shared, err);
    shared_loader_report_if_known(shared);
    if (!shared_loader_find_reports(shared, m->round) && !shared_loader_report_is_due(shared))
        shared_loader_report_as_new(shared, &request->resume);
    return 1;
}

void shared_loader_started(struct shared_loader *shared, uint64_t local,
                           const struct resume_place *place, const void *session,
                           const void *stream)
{
    struct shared_rank *rank = &shared->ranks[local];

    rank->session = session;
    rank->stream = stream;
    rank->report_due = false;
    rank->progress.entered = place->round;
    if (!progress_point_after(&rank->progress.given, place->pass, place->epoch, &place->before,
                              place->world, place->step))
        rank->progress.given =
            (struct progress_point){.pass = place->pass, .epoch = place->epoch + 1};
    rank->progress.behind = rank->progress.given;
}

void shared_loader_note(struct shared_loader *shared, uint64_t local, const void *stream,
                        const struct progress_point *given, const struct progress_point *behind)
{
    struct shared_rank *rank = &shared->ranks[local];

    if (rank->stream != stream)
        return;
    rank->progress.given = *given;
    rank->progress.behind = *behind;
}

void shared_loader_ended(struct shared_loader *shared, uint64_t local, const void *stream)
{
    struct shared_rank *rank = &shared->ranks[local];

    if (rank->stream != stream)
        return;
    rank->progress.given = rank->progress.behind;
    rank->stream = NULL;
}

void shared_loader_mark_report_due(struct shared_loader *shared, uint64_t local, const void *stream)
{
    struct shared_rank *rank = &shared->ranks[local];

    if (rank->stream != stream)
        return;
    rank->progress.given = rank->progress.behind; /* unless its client knows more */
    rank->report_due = true;
    rank->stream = NULL;
}

void shared_loaders_forget_session(struct members *m, const void *session)
{
    struct shared_loader *shared;

    if (!m)
        return;
    DL_FOREACH (m->shared_loaders, shared) {
        for (uint32_t i = 0; i < m->local; i++)
            if (shared->ranks[i].session == session)
                shared->ranks[i].report_due = false;
        shared_loader_report_if_known(shared);
    }
}

int shared_loader_limit(const struct shared_loader *shared, const struct resume_place *place,
                        uint64_t *ret, struct dl_error *err)
{
    if (shared->members->state != MEMBERS_IN ||
        shared_loader_find_reports(shared, shared->members->round))
        return 1;
    if (!shared_loader_knows_begin(shared) && shared->failure.code)
        return shared_loader_say_failure(shared, err);
    if (!shared_loader_knows_begin(shared))
        return 1;
    *ret =
        progress_limit(&shared->progress, place->round, place->pass, place->epoch, &place->before);
    return 0;
}

const struct dl_error *shared_loader_why(const struct shared_loader *shared)
{
    return &shared->members->why_over;
}
