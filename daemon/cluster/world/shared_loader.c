#include "daemon/cluster/world/shared_loader.h"

#include "daemon/base/memory.h"
#include "daemon/cluster/world/shared_loader_private.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>
#include <xxhash.h>

enum { SHARED_KEY_PARTS = STATE_PARTS + 3, SHARED_KEY_MAX = SHARED_KEY_PARTS * 16 + 1 };

/* ---- making and ending ---------------------------------------------------------------------- */

/* Where the data lies may differ from node to node. What is read, and in which order, must be the
 * same: else a point would mean other samples on another node. Another job's ranks are not where
 * those of this one are. */
static void shared_loader_write_key(const struct state_identity *identity, const char *job,
                                    char ret[static SHARED_KEY_MAX])
{
    uint64_t parts[SHARED_KEY_PARTS];
    size_t n = job[0] ? SHARED_KEY_PARTS : SHARED_KEY_PARTS - 1;

    memcpy(parts, identity->parts, sizeof identity->parts);
    parts[STATE_PARTS] = identity->length;
    parts[STATE_PARTS + 1] = identity->order == STATE_SEQUENTIAL ? 0 : identity->seed;
    parts[STATE_PARTS + 2] = XXH3_64bits(job, strlen(job));
    for (size_t i = 0; i < n; i++)
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

static void shared_loader_free(struct shared_loader *shared);

/* Nobody reads it, nor waits for what nodes report of it. */
static bool shared_loader_is_unused(const struct shared_loader *shared)
{
    return shared->users == 0 && !shared->report_rounds && !reports_are_due(shared) &&
           given_weights_are_idle(shared);
}

/* Of those of that user that are not in use the one that was asked for longest ago is forgotten. */
static bool shared_loader_make_way(struct members *m, const struct quota_account *account)
{
    struct shared_loader *shared;

    DL_FOREACH (m->shared_loaders, shared) {
        if (shared->account != account || !shared_loader_is_unused(shared))
            continue;
        shared_loader_free(shared);
        return true;
    }
    return false;
}

static int shared_loader_make(struct members *m, const char *key,
                              const struct shared_loader_request *request,
                              struct shared_loader **ret, struct dl_error *err)
{
    struct quota_account *account = request->account;
    struct shared_loader *shared;

    while (quota_charge(account, QUOTA_WORLDS, 1, err) < 0)
        if (!shared_loader_make_way(m, account))
            return -EDQUOT;
    if (err)
        *err = (struct dl_error){0};
    shared = must_alloc(sizeof *shared);
    shared->members = m;
    shared->account = account;
    shared->key = must_strdup(key);
    shared->left_out = left_out_new(m, key, request->name, request->batch);
    shared->ranks = must_alloc(m->local * sizeof *shared->ranks);
    for (uint32_t i = 0; i < m->local; i++)
        shared->ranks[i].progress.entered = PROGRESS_NO_ROUND;
    /* Its ranks had a share of those rounds, too, though nobody has asked for it here yet. */
    shared->progress = m->progress;
    DL_APPEND(m->shared_loaders, shared);
    *ret = shared;
    return 0;
}

static void shared_loader_free(struct shared_loader *shared)
{
    reports_cancel(shared);
    given_weights_end(shared);
    restarts_end(shared);
    DL_DELETE(shared->members->shared_loaders, shared);
    quota_return(shared->account, QUOTA_WORLDS, 1);
    left_out_free(shared->left_out);
    free(shared->others);
    buffer_deinit(&shared->published);
    free(shared->ranks);
    free(shared->key);
    free(shared);
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

    DL_FOREACH_SAFE (m->shared_loaders, shared, next)
        shared_loader_free(shared);
}
/* ---- what is asked for ---------------------------------------------------------------------- */

/* A rank whose epoch has ended because the store was away for so long has waited. */
static uint64_t shared_loader_asked(const struct members *m,
                                    const struct shared_loader_request *request)
{
    bool waited = m && m->fenced_over && request->resume.former.world > 0;

    return waited ? min_u64(request->asked, m->fenced_ns) : request->asked;
}

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
    reports_write_if_known(shared);
}

static int shared_loader_say_failure(const struct shared_loader *shared, struct dl_error *err)
{
    *err = shared->failure;
    return -err->code;
}

/* With as many ranks as before, each continues with its own stretch of the epoch. */
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

/* Of what lies between, its own share is nobody's. */
static void shared_loader_note_lost(struct shared_loader *shared,
                                    const struct shared_loader_request *request,
                                    const struct members_place *place,
                                    const struct resume_place *to)
{
    const struct members *m = shared->members;
    const struct former_place *former = &request->resume.former;
    struct left_out_node self = {.first = place->rank, .local = 1, .world = place->world};
    struct progress_point end;

    if (former->world > 0) {
        self.first = former->rank;
        self.world = former->world;
    }
    (void)snprintf(self.name, sizeof self.name, "%s", m->self_name);
    bool is =
        to->lost == UINT64_MAX
            ? progress_point_after(&end, to->pass, to->epoch, &to->before, to->world, to->step)
            : progress_point_after(&end, to->from.pass, to->from.epoch, &to->from.history,
                                   self.world, to->lost);
    if (is)
        left_out_moved(shared->left_out, &self, &to->from, &end);
}

/* All ranks go back there. */
static void shared_loader_note_turn(struct shared_loader *shared, const struct resume_place *to)
{
    struct progress_point at;

    if (progress_point_after(&at, to->pass, to->epoch, &to->before, to->world, to->step))
        left_out_turned(shared->left_out, &at);
}

/* All daemons were started anew under ranks that continue, some of which may ask for nothing before
 * others have had their next steps. */
static void shared_loader_begin_as_before(struct shared_loader *shared,
                                          const struct shared_loader_request *request)
{
    struct members *m = shared->members;
    struct progress_point begin;

    if (!progress_begin_as_before(&request->resume, m->place.first, m->place.world, &begin) ||
        !newcomers_are_all(m))
        return;
    reports_settle(shared, &begin);
    members_be_patient(m, 0, 0); /* others may have asked before, and not have known */
}

/* Where the latest round begins. 0: that is known; 1: not yet. */
static int shared_loader_find_begin(struct shared_loader *shared,
                                    const struct shared_loader_request *request,
                                    struct dl_error *err)
{
    uint64_t round = shared->members->round;

    given_bring(&shared->given.given, request->known);
    if (!reports_find(shared, round)) {
        if (shared->failure.code && request->asked <= shared->failed_ns)
            return shared_loader_say_failure(shared, err);
        reports_write_if_known(shared);
        if (!reports_find(shared, round) && !reports_are_due(shared) &&
            !left_out_is_learning(shared->left_out) && newcomers_are_heard(shared->members))
            reports_write_as_new(shared, &request->resume);
    }
    if (!reports_are_due(shared))
        shared_loader_begin_as_before(shared, request);
    return reports_know_begin(shared) ? 0 : 1;
}

static struct former_place shared_loader_tell(const void *teller, uint64_t world)
{
    return left_out_former(teller, world);
}

/* A rank that a launcher has started again does not know where it was: other ranks of this node
 * have said it. */
static struct resume_request shared_loader_recall(struct shared_loader *shared,
                                                  const struct resume_request *request)
{
    struct resume_request recalled = *request;

    if (request->former.world > 0 && request->former.rank >= request->local)
        shared->former =
            (struct former_place){request->former.rank - request->local, request->former.world};
    else if (shared->former.world > 0 &&
             (request->before.n > 0 ||
              shared->ranks[request->local].progress.entered != PROGRESS_NO_ROUND))
        recalled.former =
            (struct former_place){shared->former.rank + request->local, shared->former.world};
    recalled.tell = shared_loader_tell;
    recalled.teller = shared->left_out;
    return recalled;
}

int shared_loader_place(struct members *m, const struct shared_loader_request *request,
                        struct shared_loader **ret, struct resume_place *ret_place,
                        struct dl_error *err)
{
    struct members_place place;
    char key[SHARED_KEY_MAX];
    int r = members_place(m, request->local, shared_loader_asked(m, request), &place, err);

    *ret = NULL;
    if (r < 0 || request->fixed)
        return r == 0 ? shared_loader_place_fixed(&place, request, ret_place, err) : r;
    shared_loader_write_key(request->identity, request->job, key);
    struct shared_loader *shared = shared_loader_find(m, key);
    if (shared)
        shared_loader_take_report(shared, request);
    if (r == 0 && !shared)
        r = shared_loader_make(m, key, request, &shared, err);
    if (r != 0)
        return r;
    DL_DELETE(m->shared_loaders, shared); /* asked for last: it gives way last */
    DL_APPEND(m->shared_loaders, shared);
    *ret = shared;
    if (!reports_know_begin(shared))
        r = shared_loader_find_begin(shared, request, err);
    if (r == 0 && left_out_is_coming(shared->left_out))
        r = members_wait(m, request->asked, m->join_ns, err);
    if (r == 0)
        r = restarts_meet(shared, request, err);
    if (r != 0)
        return r;
    const struct resume_request recalled = shared_loader_recall(shared, &request->resume);
    r = progress_resume(&shared->progress, &shared->ranks[request->local].progress, &recalled,
                        ret_place, err);
    if (r == 0 && ret_place->lost > 0)
        shared_loader_note_lost(shared, request, &place, ret_place);
    if (r == 0 && ret_place->turns)
        shared_loader_note_turn(shared, ret_place);
    shared->ranks[request->local].goes_on =
        request->resume.former.world > 0 && r == 0 && ret_place->lost == 0;
    return r;
}

/* False: none of its ranks continues. */
static bool shared_loader_find_word(const struct shared_loader *shared, struct left_out_word *ret)
{
    bool any = false;

    *ret = (struct left_out_word){0};
    for (uint32_t i = 0; i < shared->members->local; i++) {
        const struct shared_rank *rank = &shared->ranks[i];
        const struct progress_point *at = &rank->progress.behind;

        if (rank->progress.entered == PROGRESS_NO_ROUND || !rank->session)
            continue;
        if (!any || progress_compare(at, &ret->furthest) == PROGRESS_AFTER)
            ret->furthest = *at;
        any = true;
        if (rank->asks && (!ret->has_last || progress_compare(at, &ret->last) == PROGRESS_BEFORE)) {
            ret->last = *at;
            ret->has_last = true;
        }
    }
    return any;
}

/* Unless some of its ranks have not begun. */
static void shared_loader_publish_position(struct shared_loader *shared)
{
    struct progress_point least = {0}, began = {0};
    struct left_out_word word;
    bool has_word = shared->members->ending && shared_loader_find_word(shared, &word);

    for (uint32_t i = 0; i < shared->members->local; i++) {
        const struct shared_rank *rank = &shared->ranks[i];

        if (rank->progress.entered == PROGRESS_NO_ROUND && !has_word)
            return;
        if (rank->progress.entered == PROGRESS_NO_ROUND) { /* it is in this epoch, too */
            least =
                (struct progress_point){.pass = word.furthest.pass, .epoch = word.furthest.epoch};
            break;
        }
        if (i == 0 || progress_compare(&rank->progress.behind, &least) == PROGRESS_BEFORE)
            least = rank->progress.behind;
        if (progress_compare(&rank->began, &began) == PROGRESS_AFTER)
            began = rank->began;
    }
    left_out_publish(shared->left_out, &least, &began, has_word ? &word : NULL);
}

void shared_loader_started(struct shared_loader *shared, uint64_t local,
                           const struct resume_place *place, const void *session,
                           const void *stream)
{
    struct shared_rank *rank = &shared->ranks[local];

    shared->users++;
    rank->session = session;
    rank->stream = stream;
    rank->report_due = rank->asks = rank->progress.left = false;
    const struct progress_point was = rank->progress.behind;
    bool is_first = rank->progress.entered == PROGRESS_NO_ROUND;
    rank->progress.entered = place->round;
    if (!progress_point_after(&rank->progress.given, place->pass, place->epoch, &place->before,
                              place->world, place->step))
        rank->progress.given =
            (struct progress_point){.pass = place->pass, .epoch = place->epoch + 1};
    rank->progress.behind = rank->progress.given;
    restarts_say(shared);
    bool goes_back = progress_compare(&rank->progress.behind, &was) == PROGRESS_BEFORE;
    if (!is_first && !goes_back)
        return;
    if (is_first && !rank->goes_on)
        rank->began = rank->progress.given;
    shared_loader_publish_position(shared); /* others may wait to learn which ranks continue here */
}

void shared_loader_leave(struct shared_loader *shared)
{
    assert(shared->users > 0);
    shared->users--;
    if (shared->users == 0)
        given_weights_detach(shared);
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

void shared_loader_ended(struct shared_loader *shared, uint64_t local, const void *stream,
                         enum rank_next next)
{
    struct shared_rank *rank = &shared->ranks[local];

    if (rank->stream != stream)
        return;
    rank->progress.given = rank->progress.behind;
    rank->progress.left = next == RANK_GOES_AWAY;
    rank->asks = next == RANK_GOES_ON;
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
            if (shared->ranks[i].session == session) {
                shared->ranks[i].session = NULL;
                shared->ranks[i].report_due = shared->ranks[i].asks = false;
                shared->ranks[i].progress.left = false;
            }
        reports_write_if_known(shared);
        restarts_say(shared);
    }
}

int shared_loader_limit(const struct shared_loader *shared, const struct resume_place *place,
                        uint64_t *ret, struct dl_error *err)
{
    if (shared->members->state != MEMBERS_IN || shared->members->fenced ||
        reports_find(shared, shared->members->round))
        return 1;
    if (!reports_know_begin(shared) && shared->failure.code)
        return shared_loader_say_failure(shared, err);
    if (!reports_know_begin(shared))
        return 1;
    *ret = progress_limit(&shared->progress, place->round, place->world, place->pass, place->epoch,
                          &place->before);
    return 0;
}

/* ---- what nodes that are gone leave out ----------------------------------------------------- */

void shared_loaders_publish_positions(struct members *m)
{
    struct shared_loader *shared;

    DL_FOREACH (m->shared_loaders, shared)
        shared_loader_publish_position(shared);
}

/* Its ranks are where that round began, at least. */
static void shared_loader_miss(struct shared_loader *shared, const struct left_out_node *node)
{
    const struct progress_round *round = progress_find(&shared->progress, shared->members->round);

    if (round && round->known)
        left_out_gone(shared->left_out, node, &round->begin);
}

void shared_loaders_note_gone(struct members *m, const struct rdzv_state *state)
{
    struct shared_loader *shared;

    for (uint32_t i = 0; i < m->n_nodes; i++)
        if (!rdzv_state_find(state, m->shares[i].id))
            DL_FOREACH (m->shared_loaders, shared)
                shared_loader_miss(shared, &m->shares[i]);
}

/* Of nodes that are gone it is asked how far they were. True: one of the others is late, or it is
 * not known; in time its heartbeat comes, or it is gone. */
static bool shared_loader_look_around(struct shared_loader *shared)
{
    struct members *m = shared->members;
    bool late = false;

    for (uint32_t i = 0; i < m->n_nodes; i++) {
        const struct left_out_node *node = &m->shares[i];
        uint64_t heir;
        enum members_sight sight = i == m->self ? MEMBERS_THERE : members_look_for(m, node, &heir);

        late = late || sight == MEMBERS_LATE;
        if ((sight == MEMBERS_GONE || sight == MEMBERS_REPLACED) &&
            !left_out_knows(shared->left_out, node->id))
            shared_loader_miss(shared, node);
    }
    return late;
}

/* Where an epoch's stream begun there ends. */
static bool shared_loader_find_end(const struct resume_place *place, uint64_t steps,
                                   struct progress_point *ret)
{
    return progress_point_after(ret, place->pass, place->epoch, &place->before, place->world,
                                steps);
}

/* A slow store alone is no reason to report samples as left out. Once no node is late, a node that
 * takes another's place has as long as the fence: till then it could not say so. When nobody
 * looked, a node may have been late. */
static bool shared_loader_waits(struct shared_loader *shared, const struct progress_point *end,
                                uint64_t since, uint64_t now)
{
    const struct members *m = shared->members;
    bool finds_out = m->state == MEMBERS_IN || m->state == MEMBERS_JOINING;
    bool is_late = shared_loader_look_around(shared);

    if (is_late || now - shared->looked_ns > m->fence_ns / 2)
        shared->late_ns = now;
    shared->looked_ns = now;
    if (is_late && finds_out)
        return true;
    return left_out_is_asking(shared->left_out, end) &&
           (now - max_u64(since, shared->late_ns) < m->fence_ns || (m->fenced && finds_out));
}

int shared_loader_finish(struct shared_loader *shared, const struct resume_place *place,
                         uint64_t steps, uint64_t since, struct dl_error *err)
{
    struct members *m = shared->members;
    struct progress_point end;
    uint64_t now = uv_hrtime();

    if (!shared_loader_find_end(place, steps, &end))
        return 0;
    if (shared_loader_waits(shared, &end, since, now)) {
        if (m->fenced_over) {
            *err = m->why_over;
            return -err->code;
        }
        members_be_patient(m, now, now + m->poll_ns);
        return 1;
    }
    return left_out_say(shared->left_out, &end, err);
}

uint64_t shared_loader_left_out(const struct shared_loader *shared,
                                const struct resume_place *place, uint64_t steps)
{
    struct progress_point end;

    return shared_loader_find_end(place, steps, &end) ? left_out_count(shared->left_out, &end) : 0;
}

const struct dl_error *shared_loader_why(const struct shared_loader *shared)
{
    return &shared->members->why_over;
}
