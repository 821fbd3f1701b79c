#include "daemon/cluster/world/left_out.h"

#include "daemon/base/log.h"
#include "daemon/base/memory.h"
#include "daemon/base/row.h"
#include "daemon/cluster/world/left_out_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>

enum { ABSENCES_MAX = 256, LEFT_OUT_SAID_MAX = 3 };

/* ---- made and ended ------------------------------------------------------------------------- */

struct left_out *left_out_new(struct members *m, const char *key, const char *name, uint64_t batch)
{
    struct left_out *l = must_alloc(sizeof *l);

    l->members = m;
    l->key = must_strdup(key);
    l->name = must_strdup(name);
    l->batch = batch;
    DL_APPEND(m->left_outs, l);
    return l;
}

static void left_out_drop(struct left_out *l, struct absence *absence)
{
    DL_DELETE(l->absences, absence);
    l->n--;
    free(absence);
}

struct left_out *left_out_free(struct left_out *l)
{
    struct left_out_call *call;

    if (!l)
        return NULL;
    while (l->absences)
        left_out_drop(l, l->absences);
    DL_FOREACH (l->members->left_out_calls, call)
        if (call->left_out == l)
            call->left_out = NULL;
    DL_DELETE(l->members->left_outs, l);
    buffer_deinit(&l->published);
    buffer_deinit(&l->told);
    buffer_deinit(&l->due);
    free(l->name);
    free(l->key);
    free(l);
    return NULL;
}

void left_out_deinit(struct members *m)
{
    while (m->left_out_calls) {
        struct left_out_call *call = m->left_out_calls;

        DL_DELETE(m->left_out_calls, call);
        free(call);
    }
}

/* ---- positions in the store ----------------------------------------------------------------- */

struct left_out_call *left_out_call(struct left_out *l, uint64_t node)
{
    struct left_out_call *call = must_alloc(sizeof *call);

    *call = (struct left_out_call){.members = l->members, .left_out = l, .node = node};
    DL_APPEND(l->members->left_out_calls, call);
    return call;
}

struct left_out *left_out_take(struct left_out_call *call)
{
    struct left_out *l = call->left_out;

    DL_DELETE(call->members->left_out_calls, call);
    free(call);
    return l;
}

static void left_out_write_key(const struct left_out *l, uint64_t node,
                               char ret[static BACKEND_KEY_MAX])
{
    (void)snprintf(ret, BACKEND_KEY_MAX, "position/%s/%s/%016" PRIx64, l->members->id, l->key,
                   node);
}

static void left_out_write(struct left_out *l);

static void left_out_on_published(void *owner, const struct backend_answer *answer)
{
    struct left_out *l = left_out_take(owner);

    if (!l)
        return;
    l->writing = false;
    l->lost = answer->status < 0 || !answer->won;
    if (answer->status == 0)
        l->token = answer->token;
    if (l->due.len > 0)
        left_out_write(l);
    members_go_on_leaving(l->members);
}

/* What is due, in place of what the store has. */
static void left_out_write(struct left_out *l)
{
    char key[BACKEND_KEY_MAX];

    buffer_deinit(&l->published);
    l->published = l->due;
    l->due = (struct dl_buffer){0};
    l->writing = true;
    left_out_write_key(l, member_id(l->members->member), key);
    backend_set(l->members->backend, key, l->token,
                (struct dl_span){l->published.data, l->published.len}, left_out_on_published,
                left_out_call(l, 0));
}

bool left_outs_are_writing(const struct members *m)
{
    const struct left_out *l;

    DL_FOREACH (m->left_outs, l)
        if (l->writing)
            return true;
    return false;
}

/* In the store, of the rounds that a report knows: 0: where it began; 1 and 2: its word. */
void left_out_publish(struct left_out *l, const struct progress_point *least,
                      const struct progress_point *began, const struct left_out_word *word)
{
    struct progress_report report = {.last = PROGRESS_NO_ROUND, .has_point = true, .point = *least};

    progress_learn(&report.known, 0, began);
    if (word) {
        progress_learn(&report.known, 1, &word->furthest);
        if (word->has_last)
            progress_learn(&report.known, 2, &word->last);
    }
    l->due.len = 0;
    progress_report_write(&report, &l->due);
    bool same =
        l->due.len == l->published.len && memcmp(l->due.data, l->published.data, l->due.len) == 0;
    if (same && (l->writing || !l->lost))
        l->due.len = 0;
    else if (!l->writing)
        left_out_write(l);
}

/* The latest: a node that was cut off can be so again. */
static struct absence *left_out_find(const struct left_out *l, uint64_t id)
{
    struct absence *absence, *found = NULL;

    DL_FOREACH (l->absences, absence)
        if (absence->id == id && !absence->said)
            found = absence;
    return found;
}

/* It may have been said meanwhile what is missing, as far as was known; and missed once more. Each
 * question has one answer, and one that has failed is over. */
static struct absence *left_out_find_asking(const struct left_out *l, uint64_t id)
{
    struct absence *absence;

    DL_FOREACH (l->absences, absence)
        if (absence->id == id && absence->asking && !absence->failed)
            return absence;
    return NULL;
}

static void left_out_take_word(struct absence *absence, const struct progress *said)
{
    const struct progress_round *furthest = progress_find(said, 1), *last = progress_find(said, 2);

    absence->has_word = furthest != NULL;
    if (furthest)
        absence->word.furthest = furthest->begin;
    absence->word.has_last = last != NULL;
    if (last)
        absence->word.last = last->begin;
}

/* When the round began, its ranks may have been on their way there. */
static void left_out_on_position(void *owner, const struct backend_answer *answer)
{
    struct left_out_call *call = owner;
    uint64_t node = call->node;
    struct left_out *l = left_out_take(call);
    struct absence *absence = l ? left_out_find_asking(l, node) : NULL;
    struct progress_report report = {0};

    if (!absence)
        return;
    absence->failed = answer->status < 0;
    if (absence->failed)
        return;
    absence->asking = false;
    if (answer->token != 0 && progress_report_read(answer->data, UINT64_MAX, &report) &&
        report.has_point)
        absence->what.from = report.point;
    left_out_turn(l, absence);
    if (answer->token != 0)
        left_out_take_word(absence, &report.known);
    left_out_tell(l);
    shared_loaders_publish(l->members); /* reports may have waited for it */
    if (!l->members->ending)
        l->members->events->changed(l->members->context);
}

void left_out_ask(struct left_out *l, struct absence *absence)
{
    char key[BACKEND_KEY_MAX];

    left_out_write_key(l, absence->id, key);
    backend_get(l->members->backend, key, left_out_on_position, left_out_call(l, absence->id));
}

static void left_out_on_heir(void *owner, const struct backend_answer *answer)
{
    struct left_out_call *call = owner;
    uint64_t heir = call->node;
    struct left_out *l = left_out_take(call);
    struct progress_report report;
    struct absence *absence;

    if (!l)
        return;
    bool said = answer->status == 0 && answer->token != 0 &&
                progress_report_read(answer->data, UINT64_MAX, &report) && report.known.n > 0;
    DL_FOREACH (l->absences, absence) {
        if (absence->heir != heir || !absence->asking_heir)
            continue;
        absence->asking_heir = false;
        absence->knows_heir = said;
        if (said)
            absence->heir_began = report.known.rounds[0].begin;
    }
    if (said && !l->members->ending)
        l->members->events->changed(l->members->context);
}

/* The node was replaced by that daemon. True: it is not known yet with which ranks. */
static bool left_out_ask_heir(struct left_out *l, struct absence *absence, uint64_t heir)
{
    char key[BACKEND_KEY_MAX];

    if (absence->heir != heir) {
        absence->heir = heir;
        absence->asking_heir = absence->knows_heir = false;
    }
    if (absence->knows_heir || absence->asking_heir)
        return !absence->knows_heir;
    absence->asking_heir = true;
    left_out_write_key(l, heir, key);
    backend_get(l->members->backend, key, left_out_on_heir, left_out_call(l, heir));
    return true;
}

void left_out_ask_again(struct members *m)
{
    struct left_out *l;
    struct absence *absence;

    DL_FOREACH (m->left_outs, l) {
        left_out_tell_again(l);
        DL_FOREACH (l->absences, absence)
            if (absence->asking && absence->failed) {
                absence->failed = false;
                left_out_ask(l, absence);
            }
    }
}

/* ---- who is absent -------------------------------------------------------------------------- */

struct absence *left_out_add(struct left_out *l, const struct left_out_node *node,
                             const struct progress_point *from)
{
    struct absence *absence = must_alloc(sizeof *absence);

    if (l->n == ABSENCES_MAX)
        left_out_drop(l, l->absences);
    absence->id = node->id;
    absence->pass = max_u64(from->pass, l->n_turns > 0 ? l->turns[l->n_turns - 1].pass : 0);
    absence->what = (struct account_absence){
        .first = node->first, .local = node->local, .world = node->world, .from = *from};
    (void)snprintf(absence->what.node, sizeof absence->what.node, "%s", node->name);
    DL_APPEND(l->absences, absence);
    l->n++;
    return absence;
}

bool left_out_knows(const struct left_out *l, uint64_t node)
{
    const struct absence *absence;

    DL_FOREACH (l->absences, absence) /* each of this node's ranks asks, and the first gets it */
        if (absence->id == node && !absence->what.has_to)
            return true;
    return false;
}

void left_out_gone(struct left_out *l, const struct left_out_node *node,
                   const struct progress_point *begin)
{
    struct absence *absence = left_out_find(l, node->id);

    if (absence && absence->asking)
        return;
    if (!absence || absence->what.has_to)
        absence = left_out_add(l, node, begin);
    absence->asking = true;
    left_out_ask(l, absence);
    left_out_tell(l);
}

bool left_out_is_learning(const struct left_out *l)
{
    const struct absence *absence;

    DL_FOREACH (l->absences, absence)
        if (!absence->what.has_to && absence->asking)
            return true;
    return false;
}

/* The latest of that name, which may come back; NULL: none is missed. */
static const struct absence *left_out_find_name(const struct left_out *l, const char *name)
{
    const struct absence *absence, *found = NULL;

    DL_FOREACH (l->absences, absence)
        if (absence->id != 0 && !absence->said && strcmp(absence->what.node, name) == 0)
            found = absence;
    return found;
}

struct former_place left_out_former(const struct left_out *l, uint64_t world)
{
    const struct absence *absence;
    struct former_place former = {0};

    DL_FOREACH (l->absences, absence)
        if (absence->id != 0 && absence->what.world == world &&
            strcmp(absence->what.node, l->members->self_name) == 0)
            former = (struct former_place){absence->what.first, world};
    return former;
}

bool left_outs_miss(const struct members *m, const char *name)
{
    const struct left_out *l;

    DL_FOREACH (m->left_outs, l)
        if (left_out_find_name(l, name))
            return true;
    return false;
}

/* Of those that are back, the one that the others have missed for longest. */
static bool left_out_find_back(const struct left_out *l, struct progress_point *ret)
{
    const struct members *m = l->members;
    bool any = false;

    for (uint32_t i = 0; i < m->n_nodes; i++) {
        const struct absence *absence =
            m->shares[i].came ? left_out_find_name(l, m->shares[i].name) : NULL;

        if (!absence || !absence->what.has_to ||
            (any && progress_compare(&absence->what.to, ret) != PROGRESS_BEFORE))
            continue;
        *ret = absence->what.to;
        any = true;
    }
    return any;
}

/* Another daemon has taken its place at once. */
static bool left_out_came_again(const struct left_out *l, const struct absence *absence)
{
    const struct members *m = l->members;

    for (uint32_t i = 0; i < m->n_nodes; i++)
        if (m->shares[i].came && strcmp(m->shares[i].name, absence->what.node) == 0)
            return true;
    return false;
}

static void left_out_raise_to(const struct progress_point *to, struct progress_point *point)
{
    if (progress_compare(to, point) == PROGRESS_AFTER)
        *point = *to;
}

void left_out_raise(const struct left_out *l, const struct progress *progress,
                    struct progress_point *point)
{
    const struct progress_round *latest = progress_latest(progress);
    const struct absence *absence;
    struct progress_point at;

    DL_FOREACH (l->absences, absence) {
        if (absence->what.has_to)
            continue;
        /* Its ranks may have been on their way to where the last round began, and further than
         * those of the others. */
        if (latest && left_out_came_again(l, absence))
            left_out_raise_to(&latest->begin, point);
        if (!absence->has_word)
            continue;
        left_out_raise_to(&absence->word.furthest, point);
        if (absence->word.has_last && progress_next(progress, &absence->word.last, &at))
            left_out_raise_to(&at, point);
    }
    if (left_out_find_back(l, &at))
        left_out_raise_to(&at, point);
}

void left_out_went_on(struct left_out *l, const struct progress_point *point)
{
    struct absence *absence;

    DL_FOREACH (l->absences, absence)
        if (!absence->what.has_to) {
            absence->what.has_to = true;
            absence->what.to = *point;
        }
    left_out_tell(l);
}

void left_out_turn(const struct left_out *l, struct absence *absence)
{
    struct account_absence *what = &absence->what;

    for (uint32_t i = 0; i < l->n_turns; i++) {
        if (l->turns[i].pass > absence->pass)
            account_turn(what, &l->turns[i]);
        else if (what->from.epoch == l->turns[i].epoch && what->from.pass < l->turns[i].pass)
            what->from = l->turns[i]; /* it had turned back, too, and not said so yet */
    }
}

/* Of an epoch that ranks go back into after its end it is said once more. What was said of a pass
 * before the one that ends now stays said: the epoch was read again from its beginning since. */
static void left_out_turn_now(const struct left_out *l, struct absence *absence,
                              const struct progress_point *at)
{
    if (absence->said && absence->what.from.pass + 1 != at->pass)
        return;
    left_out_turn(l, absence);
    absence->said = absence->said && absence->what.from.pass < at->pass;
}

void left_out_turned(struct left_out *l, const struct progress_point *at)
{
    struct absence *absence;

    if (l->n_turns > 0 &&
        progress_compare(at, &l->turns[l->n_turns - 1]) != PROGRESS_AFTER) /* it is known */
        return;
    if (l->n_turns == TURNS_MAX)
        memmove(l->turns, l->turns + 1, --l->n_turns * sizeof l->turns[0]);
    l->turns[l->n_turns++] = *at;
    DL_FOREACH (l->absences, absence)
        left_out_turn_now(l, absence, at);
    left_out_tell(l);
}

void left_out_moved(struct left_out *l, const struct left_out_node *node,
                    const struct progress_point *from, const struct progress_point *to)
{
    struct absence *absence = left_out_add(l, node, from);

    absence->what.has_to = true;
    absence->what.to = *to;
}

/* ---- what is missing ------------------------------------------------------------------------ */

static enum members_sight left_out_look_for(const struct left_out *l, const struct absence *absence,
                                            uint64_t *ret_heir)
{
    struct left_out_node node = {.id = absence->id};

    *ret_heir = 0;
    if (absence->id == 0)
        return MEMBERS_GONE;
    (void)snprintf(node.name, sizeof node.name, "%s", absence->what.node);
    return members_look_for(l->members, &node, ret_heir);
}

/* The node is there; or another daemon has taken its place, and the same ranks continue, or
 * others that begin no later than where those were. */
static bool left_out_is_back(const struct left_out *l, const struct absence *absence)
{
    uint64_t heir;
    enum members_sight sight = left_out_look_for(l, absence, &heir);

    if (sight != MEMBERS_REPLACED)
        return sight == MEMBERS_THERE;
    return absence->heir == heir && absence->knows_heir &&
           progress_compare(&absence->heir_began, &absence->what.from) != PROGRESS_AFTER;
}

/* What was found out after its epoch's end is said at that of the next. */
static bool left_out_find_range(const struct left_out *l, const struct absence *absence,
                                const struct progress_point *end, struct account_range *ret)
{
    bool late = absence->what.from.epoch < end->epoch;
    struct progress_point own = late ? l->ended : *end;

    /* Each epoch has as many steps as the one before. Of one that nobody here came to the end of it
     * is known where the others went on. */
    if (late && own.epoch < absence->what.from.epoch && absence->what.has_to)
        own = absence->what.to;
    else if (late && own.epoch >= absence->what.from.epoch) {
        own.epoch = absence->what.from.epoch;
        own.pass = absence->what.from.pass;
    }

    if (absence->said && absence->said_epoch != end->epoch)
        return false;
    return !left_out_is_back(l, absence) && account_missing(&absence->what, &own, ret);
}

bool left_out_is_asking(struct left_out *l, const struct progress_point *end)
{
    struct absence *absence;
    struct account_range range;
    bool asking = left_out_is_hearing(l, end);
    uint64_t heir;

    DL_FOREACH (l->absences, absence) {
        asking = asking || absence->asking;
        if (left_out_find_range(l, absence, end, &range) &&
            left_out_look_for(l, absence, &heir) == MEMBERS_REPLACED)
            asking = left_out_ask_heir(l, absence, heir) || asking;
    }
    return asking;
}

uint64_t left_out_count(const struct left_out *l, const struct progress_point *end)
{
    const struct absence *absence;
    struct account_range range;
    uint64_t sum = 0;

    DL_FOREACH (l->absences, absence)
        if (left_out_find_range(l, absence, end, &range) &&
            add_overflows(sum, account_samples(&absence->what, &range, l->batch), &sum))
            sum = UINT64_MAX;
    return sum;
}

/* Of an epoch before the last one: it was said there, or then, or there was nothing to say. */
static bool left_out_is_over(const struct absence *absence, const struct progress_point *end)
{
    uint64_t epoch = absence->said ? absence->said_epoch : absence->what.from.epoch;

    return !absence->asking && epoch + 1 < end->epoch;
}

/* With what the node has left in the store, which the first of those that are there removes. */
static void left_out_forget(struct left_out *l, struct absence *absence)
{
    struct members *m = l->members;
    char key[BACKEND_KEY_MAX];
    uint64_t heir;
    enum members_sight sight = left_out_look_for(l, absence, &heir);

    if (absence->id != 0 && m->self == 0 && (sight == MEMBERS_GONE || sight == MEMBERS_REPLACED)) {
        left_out_write_key(l, absence->id, key);
        backend_forget(m->backend, key);
        left_out_untell(l, absence->id);
        restarts_forget(m, l->key, absence->id);
    }
    left_out_drop(l, absence);
}

/* Counted and logged once, however many ranks learn of it. */
static void left_out_note_said(struct left_out *l, struct absence *absence, uint64_t epoch,
                               const struct account_range *range)
{
    char text[ACCOUNT_TEXT_MAX];

    if (absence->said)
        return;
    absence->said = true;
    absence->said_epoch = epoch;
    absence->range = *range;
    absence->samples = account_samples(&absence->what, range, l->batch);
    if (add_overflows(l->members->left_out, absence->samples, &l->members->left_out))
        l->members->left_out = UINT64_MAX;
    account_text(&absence->what, range, text);
    log_warning("rendezvous %s: loader %s: epoch %" PRIu64 " ends without up to %" PRIu64
                " samples: %s",
                l->members->id, l->name, absence->what.from.epoch, absence->samples, text);
}

int left_out_say(struct left_out *l, const struct progress_point *end, struct dl_error *err)
{
    char said[LEFT_OUT_SAID_MAX * ACCOUNT_TEXT_MAX] = "", text[ACCOUNT_TEXT_MAX];
    uint64_t samples = left_out_count(l, end);
    struct absence *absence, *next;
    struct account_range range;
    size_t at = 0;
    uint32_t n = 0;

    DL_FOREACH_SAFE (l->absences, absence, next) {
        if (left_out_is_over(absence, end)) {
            left_out_forget(l, absence);
            continue;
        }
        if (!left_out_find_range(l, absence, end, &range))
            continue;
        left_out_note_said(l, absence, end->epoch, &range);
        account_text(&absence->what, &range, text);
        if (n++ < LEFT_OUT_SAID_MAX && at < sizeof said)
            at += (size_t)snprintf(said + at, sizeof said - at, "%s%s", at ? "; " : "", text);
    }
    if (end->epoch >= l->ended.epoch)
        l->ended = *end;
    left_out_tell(l);
    if (n == 0)
        return 0;
    return dl_error_set(err, ENOTRECOVERABLE, "epoch",
                        "%" PRIu64 " ends, and up to %" PRIu64 " of its samples are not known to "
                        "have been used (%s%s); dlctl members lists them",
                        end->epoch, samples, said, n > LEFT_OUT_SAID_MAX ? "; and others" : "");
}

/* ---- for people ----------------------------------------------------------------------------- */

uint64_t left_out_total(const struct members *m)
{
    return m->left_out;
}

static int left_out_view_add(const struct left_out *l, const struct absence *absence,
                             struct value *rows)
{
    struct row row = row_push(rows);
    bool ranked = absence->range.world == absence->what.world;

    row_string(&row, "loader", l->name);
    row_uint(&row, "epoch", absence->what.from.epoch);
    row_string(&row, "node", absence->what.node);
    row_uint(&row, "samples", absence->samples);
    row_uint_if(&row, "first_rank", ranked, absence->what.first);
    row_uint(&row, "local_ranks", absence->what.local);
    row_uint(&row, "world", absence->range.world);
    row_uint(&row, "from_step", absence->range.from);
    row_uint(&row, "to_step", absence->range.to);
    return row.r;
}

int left_out_view(const struct members *m, struct value *rows)
{
    const struct left_out *l;
    const struct absence *absence;
    int r = 0;

    DL_FOREACH (m->left_outs, l)
        DL_FOREACH (l->absences, absence)
            if (absence->said && r == 0)
                r = left_out_view_add(l, absence, rows);
    return r;
}
