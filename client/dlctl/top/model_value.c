/* A model as a mapping: one line of JSON for each look. */
#include "client/dlctl/form.h"
#include "client/dlctl/top/model.h"

#include <math.h>

static bool is_picked(const struct top_place *at, const char *pick)
{
    return !pick || strcmp(at->loader, pick) == 0;
}

/* A count, or null where it is not known. */
static void form_known(const struct form *form, const char *key, double d)
{
    if (d >= 0 && d < 0x1p63)
        form_u64(form, key, (uint64_t)d);
    else
        (void)form_null(form, key);
}

static void put_ring(const struct form *form, const struct top_loader *l)
{
    static const char *const names[TOP_SLOTS] = {"leased", "ready", "filling", "free"};
    const struct form ring = form_map(form, "ring");

    for (int i = 0; i < TOP_SLOTS; i++)
        form_u64(&ring, names[i], l->slots[i]);
}

static void put_loader(const struct form *row, const struct top_loader *l)
{
    form_text(row, "name", l->at.loader);
    form_u64(row, "uid", l->at.uid);
    form_text(row, "state", l->state);
    form_text(row, "verdict", l->verdict);
    form_u64(row, "batches", l->batches);
    form_real(row, "batches_per_s", l->batches_per_s);
    form_real(row, "samples_per_s", l->samples_per_s);
    form_real(row, "delivered_bytes_per_s", l->bytes_per_s);
    form_real(row, "wait", l->wait);
    form_real(row, "cpu", l->cpu);
    form_real(row, "padding", l->padding);
    form_u64(row, "faults", l->faults);
    form_u64(row, "retries", l->retries);
    form_u64(row, "bad", l->bad);
    form_u64(row, "memory_bytes", l->memory);
    form_u64(row, "limit_bytes", l->limit);
    put_ring(row, l);
}

static void put_epoch(const struct form *row, const struct top_epoch *e)
{
    form_text(row, "loader", e->at.loader);
    form_u64(row, "uid", e->at.uid);
    form_text(row, "job", e->at.job);
    form_u64(row, "epoch", e->at.epoch);
    form_u64(row, "world", e->world);
    form_u64(row, "ranks", e->ranks);
    form_known(row, "done", e->done);
    form_known(row, "steps", e->steps);
    form_real(row, "steps_per_s", e->steps_per_s);
    form_real(row, "left_s", e->left_s);
}

static void put_rank(const struct form *row, const struct top_rank *r)
{
    form_text(row, "loader", r->at.loader);
    form_u64(row, "uid", r->at.uid);
    form_text(row, "job", r->at.job);
    form_u64(row, "epoch", r->at.epoch);
    form_u64(row, "rank", r->at.number);
    form_u64(row, "world", r->world);
    form_text(row, "state", r->state);
    form_u64(row, "step", r->step);
    form_known(row, "steps", r->steps);
    form_real(row, "wait", r->wait);
    form_real(row, "steps_per_s", r->steps_per_s);
    form_real(row, "samples_per_s", r->samples_per_s);
    form_real(row, "left_s", r->left_s);
    form_real(row, "padding", r->padding);
    form_u64(row, "ready", r->ready);
    form_u64(row, "leased", r->leased);
    form_u64(row, "pinned", r->pinned);
}

static void put_worker(const struct form *row, const struct top_worker *w)
{
    form_text(row, "loader", w->at.loader);
    form_u64(row, "uid", w->at.uid);
    form_u64(row, "worker", w->at.number);
    form_known(row, "pid", w->pid);
    form_text(row, "state", w->state);
    form_real(row, "cpu", w->cpu);
    form_known(row, "memory_bytes", w->memory);
    form_real(row, "tasks_per_s", w->tasks_per_s);
    form_u64(row, "queued", w->queued);
    form_u64(row, "restarts", w->restarts);
    form_known(row, "step", w->step);
    if (w->samples)
        form_text(row, "samples", w->samples);
    else
        (void)form_null(row, "samples");
}

static void put_status(const struct form *form, const struct top_model *m)
{
    const struct form daemon = form_map(form, "daemon");

    form_text(&daemon, "version", m->version);
    form_text(&daemon, "state", m->state);
    form_u64(&daemon, "pid", m->pid);
    form_real(&daemon, "uptime_s", m->uptime_s);
    form_u64(&daemon, "sessions", m->sessions);
    form_u64(&daemon, "memory_bytes", m->memory);
}

#define PUT_ROWS(key, put)                                  \
    do {                                                    \
        struct value *rows_ = form_array(&form, #key);      \
        for (uint32_t i = 0; i < m->n_##key; i++) {         \
            if (!is_picked(&m->key[i].at, pick))            \
                continue;                                   \
            const struct form row = form_row(&form, rows_); \
            put(&row, &m->key[i]);                          \
        }                                                   \
    } while (0)

int top_model_value(const struct top_model *m, const char *pick, struct value *ret)
{
    _cleanup_(value_deinit)
    struct value map = {.type = VALUE_MAP};
    int error = 0;
    const struct form form = {.map = &map, .error = &error};

    put_status(&form, m);
    PUT_ROWS(loaders, put_loader);
    PUT_ROWS(epochs, put_epoch);
    PUT_ROWS(ranks, put_rank);
    PUT_ROWS(workers, put_worker);
    if (error == 0)
        value_move(&map, ret);
    return error;
}
