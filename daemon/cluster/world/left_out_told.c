/*
 * What nodes tell those that come later. Each node that knows of absences has them in the store,
 * under a key of its own, which changes when one of them does: so a death costs each a small write,
 * and nobody a read. A node that comes to a loader that others read lists these keys once at once,
 * and once more at the end of the epoch that it came in, which it says only when it knows: then all
 * tell the same. Of later epochs it has seen all itself.
 */
#include "daemon/base/memory.h"
#include "daemon/cluster/world/left_out_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>

/* ---- told to others ------------------------------------------------------------------------- */

/* The node's; or with `node` 0 what all those keys begin with. */
static void left_out_told_key(const struct left_out *l, uint64_t node,
                              char ret[static BACKEND_KEY_MAX])
{
    int len = snprintf(ret, BACKEND_KEY_MAX, "absent/%s/%s/", l->members->id, l->key);

    if (node != 0)
        (void)snprintf(ret + len, BACKEND_KEY_MAX - (size_t)len, "%016" PRIx64, node);
}

/* Nothing: no absences. Those of this node's own ranks it reports alone. */
static void left_out_told_text(const struct left_out *l, struct dl_buffer *out)
{
    const struct absence *absence;

    DL_FOREACH (l->absences, absence) {
        if (absence->id == 0)
            continue;
        if (out->len == 0)
            account_begin(&l->ended, out);
        account_add(&(struct account_entry){.id = absence->id,
                                            .what = absence->what,
                                            .said = absence->said,
                                            .said_epoch = absence->said_epoch},
                    out);
    }
}

void left_out_untell(const struct left_out *l, uint64_t node)
{
    char key[BACKEND_KEY_MAX];

    left_out_told_key(l, node, key);
    backend_forget(l->members->backend, key);
}

/* It may have become another meanwhile. */
static void left_out_told_on_put(void *owner, const struct backend_answer *answer)
{
    struct left_out *l = left_out_take(owner);

    if (!l)
        return;
    l->telling = false;
    l->told_lost = answer->status < 0;
    if (!l->told_lost)
        left_out_tell(l);
}

void left_out_tell(struct left_out *l)
{
    uint64_t self = member_id(l->members->member);
    _cleanup_(buffer_deinit) struct dl_buffer text = {0};
    char key[BACKEND_KEY_MAX];

    left_out_told_text(l, &text);
    bool same = text.len == l->told.len &&
                (text.len == 0 || memcmp(text.data, l->told.data, text.len) == 0);
    if (l->telling || (same && !l->told_lost))
        return;
    l->told_lost = false;
    l->told.len = 0;
    must_append(&l->told, text.data, text.len);
    if (text.len == 0) {
        left_out_untell(l, self);
        return;
    }
    l->telling = true;
    left_out_told_key(l, self, key);
    backend_put(l->members->backend, key, (struct dl_span){text.data, text.len}, NULL,
                left_out_told_on_put, left_out_call(l, 0));
}

void left_out_tell_again(struct left_out *l)
{
    if (l->told_lost)
        left_out_tell(l);
}

void left_out_store_lost(struct left_out *l)
{
    l->told_lost = l->told.len > 0;
    left_out_tell_again(l);
}

/* ---- heard of others ------------------------------------------------------------------------ */

/* A node can be missed again that was back. */
static bool left_out_told_is(const struct absence *absence, const struct account_entry *entry)
{
    const struct account_absence *a = &absence->what, *b = &entry->what;

    if (absence->id != entry->id || a->world != b->world)
        return false;
    if (a->has_to && b->has_to)
        return progress_compare(&a->to, &b->to) == PROGRESS_SAME;
    return !a->has_to || progress_compare(&b->from, &a->to) != PROGRESS_AFTER;
}

/* The same absence as others know it; NULL: it is news. */
static struct absence *left_out_told_find(const struct left_out *l,
                                          const struct account_entry *entry)
{
    struct absence *absence;

    DL_FOREACH (l->absences, absence)
        if (left_out_told_is(absence, entry))
            return absence;
    return NULL;
}

static struct absence *left_out_told_add(struct left_out *l, const struct account_entry *entry)
{
    struct left_out_node node = {.id = entry->id,
                                 .first = entry->what.first,
                                 .local = entry->what.local,
                                 .world = entry->what.world};

    (void)snprintf(node.name, sizeof node.name, "%s", entry->what.node);
    struct absence *absence = left_out_add(l, &node, &entry->what.from);
    absence->pass = entry->what.from.pass;
    absence->asking = true;
    left_out_ask(l, absence);
    return absence;
}

/* What was said before this node came is not said again. */
static void left_out_told_take(struct left_out *l, const struct account_entry *entry)
{
    if (entry->id == member_id(l->members->member) ||
        (entry->said && entry->said_epoch < l->came_epoch))
        return;
    struct absence *absence = left_out_told_find(l, entry);
    if (!absence)
        absence = left_out_told_add(l, entry);
    if (progress_compare(&entry->what.from, &absence->what.from) == PROGRESS_AFTER)
        absence->what.from = entry->what.from;
    if (!absence->what.has_to && entry->what.has_to) {
        absence->what.has_to = true;
        absence->what.to = entry->what.to;
    }
}

/* Of what was not written by dloaderd nothing is taken. */
static void left_out_told_read(struct left_out *l, struct dl_span data)
{
    _cleanup_free_ char *text = data.len > 0 ? span_dup(data) : NULL;
    struct account_entry entry;
    struct progress_point ended;
    const char *at = text;

    if (!text || !account_read_begin(&at, &ended))
        return;
    if (l->ended.history.n == 0 && ended.epoch < l->came_epoch)
        l->ended = ended;
    while (account_read_next(&at, &entry))
        left_out_told_take(l, &entry);
}

static void left_out_told_on_listed(void *owner, const struct backend_answer *answer)
{
    struct left_out *l = left_out_take(owner);

    if (!l)
        return;
    l->hearing = l->coming = false;
    if (answer->status < 0) /* at the epoch's end it is asked again */
        return;
    for (uint32_t i = 0; i < answer->n; i++)
        left_out_told_read(l, answer->items[i].data);
    l->heard_end = l->hears_end;
    left_out_tell(l);
    if (!l->members->ending)
        l->members->events->changed(l->members->context);
}

static void left_out_told_list(struct left_out *l)
{
    char key[BACKEND_KEY_MAX];

    l->hearing = true;
    left_out_told_key(l, 0, key);
    backend_list(l->members->backend, key, NULL, left_out_told_on_listed, left_out_call(l, 0));
}

void left_out_came(struct left_out *l, const struct progress_point *begin)
{
    l->came = true;
    l->came_epoch = begin->epoch;
    l->hears_end = l->heard_end = false;
    l->coming = true;
    if (!l->hearing)
        left_out_told_list(l);
}

bool left_out_is_coming(const struct left_out *l)
{
    return l->coming;
}

bool left_out_is_hearing(struct left_out *l, const struct progress_point *end)
{
    if (!l->came || l->heard_end || end->epoch != l->came_epoch)
        return false;
    if (!l->hearing) {
        l->hears_end = true;
        left_out_told_list(l);
    }
    return true;
}
