/*
 * `dlctl run`: iterates as a trainer would, over the public library alone. With `--rank all` one
 * process consumes every rank's batches in turn, step by step.
 */
#include "client/dlctl/ask.h"
#include "client/dlctl/options.h"
#include "client/dlctl/report.h"
#include "client/dlctl/run/digest.h"
#include "client/dlctl/run/opening.h"
#include "client/dlctl/run/outcome.h"
#include "client/dlctl/run/spent.h"
#include "client/dlctl/state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

struct run {
    const struct options *o;
    struct dl_client *client; /* owned */
    struct dl_loader *loader; /* owned by the client */
    struct dl_epoch **ranks;  /* owned; those asked for, NULL when at their end */
    uint32_t n_ranks;
    struct digest *digest; /* owned; NULL unless asked for */
    struct opening opening;
    struct progress progress;
    struct outcome outcome;
    struct state_file state;   /* to begin with; then where rank 0 stands */
    struct state_file journal; /* likewise: of rank 0's order */
    struct spent before;       /* of the loader's time, when it begins */
    uint64_t epoch;            /* under way */
    uint32_t world;            /* of it */
};

static void run_end_ranks(struct run *run)
{
    for (uint32_t i = 0; i < run->n_ranks && run->ranks; i++)
        run->ranks[i] = dl_epoch_end(run->ranks[i]);
}

static void run_deinit(struct run *run)
{
    progress_end(&run->progress);
    run_end_ranks(run);
    free(run->ranks);
    dl_loader_close(run->loader);
    dl_client_close(run->client);
    digest_free(run->digest);
    outcome_deinit(&run->outcome);
    state_file_deinit(&run->state);
    state_file_deinit(&run->journal);
    spent_deinit(&run->before);
}

static int run_init(struct run *run)
{
    uint64_t begin = clock_ns();
    int r;

    r = dl_client_connect(&run->client, run->o->socket, "dlctl run " DLOADER_VERSION);
    if (r < 0)
        return r;
    opening_begin(&run->opening, run->client, run->o);
    if (run->o->has_launcher) /* the others may have daemons of their own */
        dl_client_set_seed(run->client, 0);
    r = open_operand(run->client, run->o->operand, &run->loader);
    opening_end(&run->opening);
    if (r < 0)
        return r;
    run->outcome.open_s = (double)(clock_ns() - begin) / 1e9;
    run->outcome.length = dl_loader_length(run->loader);
    run->outcome.seed = dl_loader_seed(run->loader);
    run->n_ranks = run->o->rank_all ? (uint32_t)run->o->world : 1;
    run->ranks = calloc(run->n_ranks, sizeof(struct dl_epoch *));
    if (!run->ranks || (run->o->digest && digest_new(&run->digest) < 0))
        return -ENOMEM;
    r = outcome_set_name(&run->outcome, dl_loader_name(run->loader));
    return r < 0 ? r : spent_ask(run->client, run->outcome.name, &run->before);
}

/* The first epoch begins where the state or the job says, if there is one. */
static int run_start_ranks(struct run *run, uint64_t epoch, bool first)
{
    bool resumes = first && run->o->state;
    uint64_t total = 0;

    run->outcome.steps = 0;
    for (uint32_t i = 0; i < run->n_ranks; i++) {
        struct dl_epoch_options options = {
            .size = sizeof options,
            .epoch = resumes                   ? 0
                     : first && run->o->resume ? DL_RESUME
                                               : epoch,
            .rank = run->o->rank_all ? i : (uint32_t)run->o->rank,
            .world = (uint32_t)run->o->world,
            .local_world = run->o->local_world,
            .credits = (uint32_t)run->o->credits,
            .follow = run->o->world == DL_WORLD_CLUSTER,
            .state = resumes ? run->state.bytes : NULL,
            .state_len = resumes ? run->state.len : 0,
            .job = run->o->job,
            .journal = first && i == 0 && run->o->journal ? run->journal.bytes : NULL,
            .journal_len = run->journal.len,
        };
        uint64_t steps;
        int r = dl_epoch_start(run->loader, &options, &run->ranks[i]);

        if (r < 0)
            return r;
        run->epoch = dl_epoch_number(run->ranks[i]);
        run->world = dl_epoch_world(run->ranks[i]);
        steps = dl_epoch_steps(run->ranks[i]);
        run->outcome.steps = max_u64(run->outcome.steps, steps);
        if (add_overflows(total, min_u64(steps, run->o->batches), &total))
            total = PROGRESS_UNKNOWN;
    }
    if (run->progress.begin_ns == 0) {
        if (mul_overflows(total, run->o->epochs, &total))
            total = PROGRESS_UNKNOWN;
        progress_begin(&run->progress, total, run->o->quiet || run->o->json);
    }
    return 0;
}

/* A list of which only some strings are this rank's, as the list it would be; freed by the caller.
 */
static int run_gather_list(struct dl_batch *batch, uint32_t at, const struct dl_node *node,
                           void **ret)
{
    uint64_t room = node->text_nbytes - (node->count + 1) * sizeof(uint64_t), end = 0;
    uint64_t *numbers = malloc(node->text_nbytes);
    char *strings;

    if (!numbers)
        return -ENOMEM;
    *ret = numbers;
    strings = (char *)(numbers + node->count + 1);
    numbers[0] = 0;
    for (uint64_t i = 0; i < node->count; i++) {
        const char *text;
        size_t len;
        int r = dl_batch_node_text(batch, at, i, &text, &len);

        if (r < 0)
            return r;
        len = min_u64(len, room - end);
        memcpy(strings + end, text, len);
        numbers[i + 1] = end += len;
    }
    return 0;
}

static void run_feed_node(struct digest *digest, const struct dl_node *node)
{
    bool text = node->kind == DL_NODE_STRING || node->kind == DL_NODE_BYTES;

    digest_node(digest, &(struct digest_node){
                            .kind = node->kind,
                            .children = node->children,
                            .key = node->key,
                            .key_len = node->key_len,
                            .dtype = node->tensor.dtype,
                            .ndim = text ? node->is_list : node->tensor.ndim,
                            .shape = text ? &node->count : node->tensor.shape,
                            .data = text ? node->text : node->tensor.data,
                            .nbytes = text ? node->text_nbytes : node->tensor.nbytes,
                        });
}

static int run_feed_digest(struct digest *digest, struct dl_batch *batch)
{
    uint32_t nodes = dl_batch_nodes(batch);
    const uint64_t *indices;
    size_t samples;

    indices = dl_batch_indices(batch, &samples);
    digest_batch(digest, dl_batch_step(batch), indices, samples, nodes);
    for (uint32_t i = 0; i < nodes; i++) {
        struct dl_node node = {0};
        _cleanup_free_ void *gathered = NULL;
        int r = dl_batch_node(batch, i, &node);

        if (r == 0 && node.is_list && !node.text) {
            r = run_gather_list(batch, i, &node, &gathered);
            node.text = gathered;
        }
        if (r < 0)
            return r;
        run_feed_node(digest, &node);
    }
    return 0;
}

static void run_pass_on_warning(struct run *run, struct dl_epoch *epoch)
{
    const char *warning = dl_epoch_warning(epoch);

    if (!warning)
        return;
    progress_wipe(&run->progress);
    report_warning(run->o, warning);
}

static void run_tally_tokens(struct tally *tally, const struct dl_batch *batch)
{
    const uint32_t *lengths;
    uint64_t padded;
    size_t n;

    if (dl_batch_lengths(batch, &lengths, &n, &padded) < 0)
        return;
    tally->padded += padded;
    for (size_t i = 0; i < n; i++)
        tally->tokens += lengths[i];
}

/* One batch of one rank: 0, DL_END, or a negative errno. */
static int run_consume(struct run *run, struct dl_epoch *epoch)
{
    struct tally *tally = &run->outcome.tally;
    struct dl_batch *batch = NULL;
    uint64_t waited = dl_epoch_wait_ns(epoch);
    size_t samples = 0;
    int r;

    r = dl_epoch_next(epoch, -1, &batch);
    run_pass_on_warning(run, epoch);
    if (r != 0)
        return r;
    dl_batch_indices(batch, &samples);
    tally->batches++;
    tally->samples += samples;
    tally->repeated += dl_batch_repeated(batch);
    tally->bytes += dl_batch_bytes(batch);
    tally->wait_ns += dl_epoch_wait_ns(epoch) - waited;
    run_tally_tokens(tally, batch);
    if (run->digest)
        r = run_feed_digest(run->digest, batch);
    if (progress_due(&run->progress))
        progress_draw(&run->progress, tally);
    return r;
}

/* Where the epoch stands, with what the dataset itself says. */
static int run_write_state(struct dl_epoch *epoch, void *buf, size_t *len)
{
    return dl_epoch_whole_state(epoch, DL_UNKNOWN, buf, len);
}

/* What is written into as large a buffer as it needs. */
static int run_take(int (*write)(struct dl_epoch *epoch, void *buf, size_t *len),
                    struct dl_epoch *epoch, struct state_file *ret)
{
    struct state_file file = {0};
    int r = write(epoch, NULL, &file.len);

    if (r != -ENOSPC)
        return r;
    file.bytes = malloc(file.len);
    if (!file.bytes)
        return -ENOMEM;
    r = write(epoch, file.bytes, &file.len);
    state_file_deinit(ret);
    *ret = file;
    return r;
}

/* Rank 0 has the most steps, or the only ones asked for. */
static int run_end_rank(struct run *run, uint32_t i)
{
    int r = 0;

    if (run->ranks[i] && i == 0 && run->o->save_state)
        r = run_take(run_write_state, run->ranks[i], &run->state);
    if (r == 0 && run->ranks[i] && i == 0 && run->o->save_journal)
        r = run_take(dl_epoch_journal, run->ranks[i], &run->journal);
    run->ranks[i] = dl_epoch_end(run->ranks[i]);
    return r;
}

/* One round over the ranks that have batches left; *ret_live of them still do. */
static int run_consume_step(struct run *run, struct epoch_outcome *e, uint64_t begin,
                            uint32_t *ret_live)
{
    uint32_t live = 0;

    for (uint32_t i = 0; i < run->n_ranks; i++) {
        int r = run->ranks[i] ? run_consume(run, run->ranks[i]) : DL_END;

        if (r == DL_END)
            r = run_end_rank(run, i);
        if (r < 0)
            return r;
        if (!run->ranks[i])
            continue;
        if (e->batches++ == 0)
            e->first_batch_s = (double)(clock_ns() - begin) / 1e9;
        live++;
    }
    *ret_live = live;
    return 0;
}

static bool run_says(const struct value *row, const char *key, uint64_t n)
{
    const struct value *v = value_get(row, key);

    return v && ((v->type == VALUE_UINT && v->uinteger == n) ||
                 (v->type == VALUE_INT && v->integer >= 0 && (uint64_t)v->integer == n));
}

/* Of batches of tokens: what the daemon says of the epoch. */
static int run_ask_for_plan(struct run *run, uint64_t epoch)
{
    _cleanup_(value_deinit) struct value view = {0};
    int r;

    if (run->outcome.tally.padded == 0)
        return 0;
    r = ask_view(run->client, "epochs", &view);
    if (r < 0)
        return r;
    for (uint32_t i = 0; view.type == VALUE_ARRAY && i < view.count; i++) {
        struct value *row = &view.items[i];
        const struct value *name = value_get(row, "loader");

        if (!name || name->type != VALUE_STRING || strcmp(name->string, run->outcome.name) != 0 ||
            !run_says(row, "epoch", epoch) || !run_says(row, "world", run->world))
            continue;
        value_deinit(&run->outcome.plan);
        run->outcome.plan = *row;
        *row = (struct value){0};
        break;
    }
    return 0;
}

static int run_epoch(struct run *run, uint64_t epoch, bool first)
{
    struct epoch_outcome e = {.first_batch_s = -1};
    uint64_t begin = clock_ns(), waited = run->outcome.tally.wait_ns;
    uint32_t live = 1;
    int r;

    r = run_start_ranks(run, epoch, first);
    e.epoch = run->epoch;
    for (uint64_t step = 0; step < run->o->batches && live && r == 0; step++) {
        r = run_consume_step(run, &e, begin, &live);
        if (r == 0 && step == 0)
            r = run_ask_for_plan(run, run->epoch);
    }
    for (uint32_t i = 0; i < run->n_ranks && r == 0; i++)
        r = run_end_rank(run, i);
    if (r < 0)
        return r;
    run_end_ranks(run);
    e.seconds = (double)(clock_ns() - begin) / 1e9;
    e.wait_s = (double)(run->outcome.tally.wait_ns - waited) / 1e9;
    return outcome_add_epoch(&run->outcome, &e);
}

/* Where the time went, of the whole loader: others may read it, too. */
static int run_judge(struct run *run)
{
    struct outcome *outcome = &run->outcome;
    _cleanup_(spent_deinit) struct spent after = {0};
    int r = run->before.known ? spent_ask(run->client, outcome->name, &after) : 0;

    outcome->has_verdict =
        r == 0 && spent_verdict(&run->before, &after, (uint64_t)(outcome->seconds * 1e9),
                                outcome->tally.wait_ns, outcome->tally.batches, &outcome->verdict);
    return r;
}

int verb_run(const struct options *o)
{
    _cleanup_(run_deinit) struct run run = {.o = o};
    struct dl_error err = {0};
    uint64_t begin;
    int r;

    if (o->state && state_file_read(o->state, &run.state, &err) < 0)
        return report_error(o, &err);
    if (o->journal && state_file_read(o->journal, &run.journal, &err) < 0)
        return report_error(o, &err);
    r = run_init(&run);
    begin = clock_ns();
    for (uint64_t i = 0; i < o->epochs && r == 0; i++)
        r = run_epoch(&run, i > 0 ? run.epoch + 1 : o->epoch, i == 0);
    run.outcome.seconds = (double)(clock_ns() - begin) / 1e9;
    progress_end(&run.progress);
    if (r == 0)
        r = run_judge(&run);
    if (r < 0)
        return report_client(o, run.client, r);
    if (o->save_state && state_file_write(o->save_state, &run.state, &err) < 0)
        return report_error(o, &err);
    if (o->save_journal && state_file_write(o->save_journal, &run.journal, &err) < 0)
        return report_error(o, &err);
    if (run.digest)
        digest_text(run.digest, run.outcome.digest);
    return outcome_report(o, &run.outcome);
}
