/*
 * Tables of samples' weights that a client brings (TABLE), for its next WEIGHTS or START. While one
 * is being mapped, the session reads no further messages, so that the message that names it finds
 * it.
 */
#include "daemon/base/memory.h"
#include "daemon/serve/session/session_private.h"

#include <assert.h>
#include <errno.h>

static void session_tables_pop(struct session_tables *tables)
{
    assert(tables->n > 0);
    weight_table_unref(tables->all[0].table);
    memmove(&tables->all[0], &tables->all[1], --tables->n * sizeof tables->all[0]);
}

void session_tables_drop(struct session *s)
{
    struct session_tables *tables = &s->tables;

    while (tables->n > 0)
        session_tables_pop(tables);
    free(tables->all);
    tables->all = NULL;
}

void session_tables_leave(struct session *s)
{
    table_bringing_forget(steal_ptr(s->tables.bringing));
    session_tables_drop(s);
}

/* The last one of as many as a list has is for the next word. */
static void session_tables_put(struct session *s, struct weight_table *table,
                               const struct dl_error *why)
{
    struct session_tables *tables = &s->tables;

    if (!tables->all)
        tables->all = must_alloc(DL_BOUND_MIX_CHANGES * sizeof *tables->all);
    if (tables->n == DL_BOUND_MIX_CHANGES)
        session_tables_pop(tables);
    tables->all[tables->n++] = (struct session_table){
        .table = table, .n = s->tables.wanted_n, .sum = s->tables.wanted_sum, .why = *why};
    assert(tables->n <= DL_BOUND_MIX_CHANGES && (table || why->code));
}

static void session_tables_on_brought(void *owner, struct weight_table *table,
                                      const struct dl_error *why)
{
    struct session *s = owner;

    s->tables.bringing = NULL;
    session_tables_put(s, table, why);
    if (!s->tables.muted || s->ending)
        return;
    s->tables.muted = false;
    peer_mute(&s->peer, false);
}

int session_tables_bring(struct session *s, const struct dl_msg_table *msg, struct dl_error *err)
{
    const struct table_wanted wanted = {.tables = s->o.tables,
                                        .payer = {s->account, s->o.budget},
                                        .crew = s->o.crew,
                                        .uid = s->who.uid,
                                        .n = msg->samples,
                                        .sum = msg->sum};
    int fd = frame_reader_take_fd(&s->peer.reader);

    assert(!s->tables.bringing && !s->tables.muted); /* nothing is heard meanwhile */
    if (fd < 0)
        return dl_error_set(err, EPROTO, "TABLE", "it came without its file descriptor");
    s->tables.wanted_n = msg->samples;
    s->tables.wanted_sum = msg->sum;
    struct weight_table *here = weight_tables_find(wanted.tables, wanted.uid, wanted.n, wanted.sum);
    if (here) {
        close_fdp(&fd);
        session_tables_put(s, here, &(struct dl_error){0});
        return 0;
    }
    s->tables.bringing = weight_tables_bring(&wanted, fd, session_tables_on_brought, s);
    if (s->tables.bringing) {
        s->tables.muted = true;
        peer_mute(&s->peer, true);
    }
    return 0;
}

int session_tables_take(const struct session *s, uint64_t sum, struct weight_table **ret,
                        struct dl_error *err)
{
    for (uint32_t i = s->tables.n; i > 0; i--) {
        const struct session_table *one = &s->tables.all[i - 1];

        if (one->sum != sum)
            continue;
        if (!one->table) {
            *err = one->why;
            return -one->why.code;
        }
        *ret = weight_table_ref(one->table);
        return 0;
    }
    return dl_error_set(err, ENOENT, "weights", "%016llx were not sent; send TABLE first",
                        (ull)sum);
}

int session_tables_give(const struct session *s, struct mix_changes *changes, struct dl_error *err)
{
    for (uint32_t i = 0; changes && i < changes->n_changes; i++) {
        struct mix_change *change = &changes->items[i];

        for (uint32_t k = 0; !change->table && k < s->tables.n; k++) {
            const struct session_table *one = &s->tables.all[k];

            if (one->sum != change->sum || one->n != changes->n)
                continue;
            if (!one->table) {
                *err = one->why;
                return -one->why.code;
            }
            change->table = weight_table_ref(one->table);
        }
    }
    return 0;
}
