#include "client/dlctl/top/columns.h"

#include "client/dlctl/top/bars.h"
#include "client/dlctl/units.h"
#include <inttypes.h>
#include <math.h>

/* "train.py: ImageFolder" and some more. */
enum { NAME_MAX_COLUMNS = 26 };

/* What a rank that waits more than so is worth looking at, and what is bad. */
static const double WAITS = 0.05, WAITS_MUCH = 0.5;

/* ---- texts ---------------------------------------------------------------------------------- */

static void put_text(struct top_text *t, const char *text)
{
    snprintf(t->text, sizeof t->text, "%s", *text ? text : "-");
}

static void put_count(struct top_text *t, uint64_t n)
{
    snprintf(t->text, sizeof t->text, "%" PRIu64, n);
}

static void put_number(struct top_text *t, double d)
{
    if (isnan(d))
        put_text(t, "-");
    else
        snprintf(t->text, sizeof t->text, "%.0f", d);
}

static void put_known(struct top_text *t, double d, void (*format)(double, char *, size_t))
{
    if (isnan(d))
        put_text(t, "-");
    else
        format(d, t->text, sizeof t->text);
}

static void put_percent(struct top_text *t, double share, int decimals)
{
    if (isnan(share))
        put_text(t, "-");
    else
        snprintf(t->text, sizeof t->text, "%.*f%%", decimals, 100 * share);
}

static void put_wait(struct top_text *t, double wait)
{
    put_percent(t, wait, 0);
    t->look = wait >= WAITS_MUCH ? LOOK_BAD : wait >= WAITS ? LOOK_WARN : LOOK_PLAIN;
}

/* Of what should not be there at all. */
static void put_fault(struct top_text *t, uint64_t n, enum top_look look)
{
    put_count(t, n);
    t->look = n ? look : LOOK_PLAIN;
}

static void put_of(struct top_text *t, double n, double all)
{
    if (isnan(all))
        snprintf(t->text, sizeof t->text, "%.0f", n);
    else
        snprintf(t->text, sizeof t->text, "%.0f/%.0f", n, all);
}

/* `from` is the row's; `t` what becomes of it. */
#define MAKE(kind, name, ...)                             \
    static void name(const void *row, struct top_text *t) \
    {                                                     \
        const struct kind *from = row;                    \
        __VA_ARGS__;                                      \
    }

/* ---- loaders -------------------------------------------------------------------------------- */

enum top_look top_verdict_look(const char *verdict)
{
    static const char *const good[] = {"healthy", "trainer-bound"};
    static const char *const slow[] = {"loader-bound", "starved", "straggling"};

    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        if (strncmp(verdict, good[i], strlen(good[i])) == 0)
            return LOOK_GOOD;
    for (size_t i = 0; i < ARRAY_SIZE(slow); i++)
        if (strncmp(verdict, slow[i], strlen(slow[i])) == 0)
            return LOOK_WARN;
    return LOOK_FAINT;
}

MAKE(top_loader, loader_name, put_text(t, from->at.loader); t->look = LOOK_STRONG)
MAKE(top_loader, loader_state, put_text(t, from->state);
     t->look = strcmp(from->state, "broken") == 0 ? LOOK_BAD : LOOK_PLAIN)
MAKE(top_loader, loader_batches, put_known(t, from->batches_per_s, format_count))
MAKE(top_loader, loader_samples, put_known(t, from->samples_per_s, format_count))
MAKE(top_loader, loader_bytes, put_known(t, from->bytes_per_s, format_bytes))
MAKE(top_loader, loader_wait, put_wait(t, from->wait))
MAKE(top_loader, loader_ring,
     top_ring_bar(from->slots, t->columns, t->unicode, t->text, sizeof t->text))
MAKE(top_loader, loader_padding, put_percent(t, from->padding, 1))
MAKE(top_loader, loader_faults, put_fault(t, from->faults, LOOK_BAD))
MAKE(top_loader, loader_bad, put_fault(t, from->bad, LOOK_WARN))
MAKE(top_loader, loader_retries, put_fault(t, from->retries, LOOK_WARN))
MAKE(top_loader, loader_cpu, put_percent(t, from->cpu, 0))
MAKE(top_loader, loader_memory, format_bytes((double)from->memory, t->text, sizeof t->text))

/* title, text, width, keep; right, stretches, or_none */
const struct top_column top_loader_columns[] = {
    {"LOADER", loader_name, 11, 99, .stretches = true, .whole = NAME_MAX_COLUMNS},
    {"STATE", loader_state, 9, 3},
    {"BATCH/S", loader_batches, 7, 8, .right = true},
    {"SAMPLE/S", loader_samples, 8, 5, .right = true},
    {"DATA/S", loader_bytes, 10, 2, .right = true},
    {"WAIT", loader_wait, 4, 10, .right = true},
    {"RING", loader_ring, 8, 7},
    {"PAD", loader_padding, 5, 6, .right = true, .or_none = true},
    {"CPU", loader_cpu, 5, 1, .right = true},
    {"MEMORY", loader_memory, 10, 4, .right = true},
    {"FAULT", loader_faults, 5, 9, .right = true},
    {"RETRY", loader_retries, 5, 7, .right = true},
    {"BAD", loader_bad, 4, 8, .right = true},
};
const int top_loader_columns_n = ARRAY_SIZE(top_loader_columns);

/* ---- epochs --------------------------------------------------------------------------------- */

static double done_share(const struct top_epoch *e)
{
    return e->steps > 0 ? e->done / e->steps : isnan(e->steps) ? NAN : 1;
}

MAKE(top_epoch, epoch_loader, put_text(t, from->at.loader); t->look = LOOK_STRONG)
MAKE(top_epoch, epoch_job, put_text(t, from->at.job))
MAKE(top_epoch, epoch_number, put_count(t, from->at.epoch))
MAKE(top_epoch, epoch_ranks, put_of(t, (double)from->ranks, (double)from->world))
MAKE(top_epoch, epoch_bar,
     top_bar(done_share(from), t->columns, t->unicode, t->text, sizeof t->text);
     t->look = LOOK_GOOD)
MAKE(top_epoch, epoch_share, put_percent(t, floor(100 * done_share(from)) / 100, 0))
MAKE(top_epoch, epoch_steps, put_of(t, from->done, from->steps))
MAKE(top_epoch, epoch_rate, put_known(t, from->steps_per_s, format_count))
MAKE(top_epoch, epoch_left, top_left(from->left_s, t->text, sizeof t->text))

const struct top_column top_epoch_columns[] = {
    {"LOADER", epoch_loader, 12, 6, .whole = NAME_MAX_COLUMNS},
    {"JOB", epoch_job, 8, 4, .or_none = true},
    {"EPOCH", epoch_number, 5, 9, .right = true},
    {"RANKS", epoch_ranks, 5, 3, .right = true},
    {"PROGRESS", epoch_bar, 10, 10, .stretches = true},
    {"DONE", epoch_share, 4, 8, .right = true},
    {"STEPS", epoch_steps, 13, 2, .right = true},
    {"STEP/S", epoch_rate, 7, 5, .right = true},
    {"LEFT", epoch_left, 6, 9, .right = true},
};
const int top_epoch_columns_n = ARRAY_SIZE(top_epoch_columns);

/* ---- ranks ---------------------------------------------------------------------------------- */

MAKE(top_rank, rank_loader, put_text(t, from->at.loader); t->look = LOOK_STRONG)
MAKE(top_rank, rank_job, put_text(t, from->at.job))
MAKE(top_rank, rank_epoch, put_count(t, from->at.epoch))
MAKE(top_rank, rank_number, put_of(t, (double)from->at.number, (double)from->world))
MAKE(top_rank, rank_wait, put_wait(t, from->wait))
MAKE(top_rank, rank_wait_bar, put_wait(t, from->wait);
     top_bar(from->wait, t->columns, t->unicode, t->text, sizeof t->text))
MAKE(top_rank, rank_steps, put_of(t, (double)from->step, from->steps))
MAKE(top_rank, rank_samples, put_known(t, from->samples_per_s, format_count))
MAKE(top_rank, rank_ready, put_count(t, from->ready))
MAKE(top_rank, rank_held, put_count(t, from->leased))
MAKE(top_rank, rank_pinned, put_count(t, from->pinned))
MAKE(top_rank, rank_padding, put_percent(t, from->padding, 1))
MAKE(top_rank, rank_left, top_left(from->left_s, t->text, sizeof t->text))
MAKE(top_rank, rank_state, put_text(t, from->state);
     t->look = strcmp(from->state, "starving") == 0 ? LOOK_BAD : LOOK_PLAIN)

const struct top_column top_rank_columns[] = {
    {"LOADER", rank_loader, 12, 10, .stretches = true, .whole = NAME_MAX_COLUMNS},
    {"JOB", rank_job, 8, 4, .or_none = true},
    {"EPOCH", rank_epoch, 5, 5, .right = true},
    {"RANK", rank_number, 6, 20, .right = true},
    {"WAIT", rank_wait, 4, 19, .right = true},
    {"", rank_wait_bar, 10, 0},
    {"STEP", rank_steps, 13, 8, .right = true},
    {"SAMPLE/S", rank_samples, 8, 7, .right = true},
    {"READY", rank_ready, 5, 9, .right = true},
    {"HELD", rank_held, 4, 6, .right = true},
    {"PINNED", rank_pinned, 6, 2, .right = true},
    {"PAD", rank_padding, 5, 5, .right = true, .or_none = true},
    {"LEFT", rank_left, 6, 1, .right = true},
    {"STATE", rank_state, 8, 9},
};
const int top_rank_columns_n = ARRAY_SIZE(top_rank_columns);

/* ---- workers -------------------------------------------------------------------------------- */

/* The column says that they are samples; where they have no numbers, other words come. */
static void put_samples(struct top_text *t, const char *words)
{
    static const char *const heads[] = {"samples ", "sample "};

    for (size_t i = 0; i < ARRAY_SIZE(heads); i++)
        if (strncmp(words, heads[i], strlen(heads[i])) == 0)
            words += strlen(heads[i]);
    put_text(t, words);
}

MAKE(top_worker, worker_loader, put_text(t, from->at.loader); t->look = LOOK_STRONG)
MAKE(top_worker, worker_number, put_count(t, from->at.number))
MAKE(top_worker, worker_pid, put_number(t, from->pid))
MAKE(top_worker, worker_state, put_text(t, from->state);
     t->look = strcmp(from->state, "ready") == 0 ? LOOK_PLAIN : LOOK_WARN)
MAKE(top_worker, worker_cpu, put_percent(t, from->cpu, 0))
MAKE(top_worker, worker_memory, put_known(t, from->memory, format_bytes))
MAKE(top_worker, worker_tasks, put_known(t, from->tasks_per_s, format_count))
MAKE(top_worker, worker_queue, put_count(t, from->queued))
MAKE(top_worker, worker_restarts, put_fault(t, from->restarts, LOOK_WARN))
MAKE(top_worker, worker_step, put_number(t, from->step))
MAKE(top_worker, worker_samples, put_samples(t, from->samples ? from->samples : ""))

const struct top_column top_worker_columns[] = {
    {"LOADER", worker_loader, 12, 9, .whole = NAME_MAX_COLUMNS},
    {"WORKER", worker_number, 6, 20, .right = true},
    {"PID", worker_pid, 7, 2, .right = true},
    {"STATE", worker_state, 8, 8},
    {"CPU", worker_cpu, 4, 12, .right = true},
    {"MEMORY", worker_memory, 10, 11, .right = true},
    {"TASK/S", worker_tasks, 6, 5, .right = true},
    {"QUEUE", worker_queue, 5, 3, .right = true},
    {"DIED", worker_restarts, 4, 6, .right = true},
    {"STEP", worker_step, 7, 4, .right = true},
    {"SAMPLES", worker_samples, 12, 10, .stretches = true},
};
const int top_worker_columns_n = ARRAY_SIZE(top_worker_columns);
