#include "proto/shared/words.h"

#include "proto/tree.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

enum { NAMED_INDICES = 8, TIMES_MOST = 20 };

size_t words_step(uint64_t step, uint64_t epoch, char *text, size_t len)
{
    assert(len >= 64);
    return (size_t)snprintf(text, len, "step %llu of epoch %llu ", (ull)step, (ull)epoch);
}

void words_samples(const uint64_t *indices, uint32_t n, char *text, size_t len)
{
    int at = snprintf(text, len, "(sample%s", n == 1 ? "" : "s");

    assert(len >= 256);
    for (uint32_t i = 0; i < n && i < NAMED_INDICES; i++)
        at += snprintf(text + at, len - (size_t)at, "%s %llu", i ? "," : "", (ull)indices[i]);
    if (n > NAMED_INDICES)
        at += snprintf(text + at, len - (size_t)at, ", … %u in all", n);
    snprintf(text + at, len - (size_t)at, ")");
}

void words_passing(const char *dataset, uint64_t step, uint64_t batch, char *text, size_t len)
{
    uint64_t samples;

    if (mul_overflows(step, max_u64(batch, 1), &samples))
        samples = UINT64_MAX;
    snprintf(text, len,
             "resuming at step %llu: the iterable dataset %s cannot skip to it, so up to %llu "
             "samples are made again and dropped first (a dataset's own state, or a plug-in's "
             "skip(), avoids that)",
             (ull)step, dataset, (ull)samples);
}

void words_state_lost(enum dataset_state_loss why, char *text, size_t len)
{
    snprintf(text, len,
             "the dataset's own state is not kept, since it %s: a run that resumes from a state "
             "taken here makes the earlier samples again",
             why == DATASET_STATE_TOO_LARGE
                 ? "takes more than 65536 bytes"
                 : "contains other values than numbers, text, bytes, None, and lists, tuples, "
                   "dicts, NumPy arrays and CPU tensors of them");
}

void words_times(double times, char *text, size_t len)
{
    if (times > TIMES_MOST)
        (void)snprintf(text, len, "> %d", TIMES_MOST);
    else
        (void)snprintf(text, len, "%.2f", times);
}

void words_too_many(const char *dataset, uint64_t length, uint64_t samples, char *text, size_t len)
{
    snprintf(text, len,
             "the iterable dataset %s declares %llu samples, but %llu were already fetched; "
             "with several workers or ranks each must yield only its share (dataset.divide, or "
             "the worker's number that a plug-in gets)",
             dataset, (ull)length, (ull)samples);
}

void words_no_rows(const struct tree_node *leaf, uint32_t number, uint64_t samples, char *text,
                   size_t len)
{
    static const char remedy[] = "let collate make one row per sample, or write another "
                                 "shard.mode";

    if (leaf->kind == TREE_OBJECT || leaf->ndim == 0)
        snprintf(text, len, "cannot be dispatched: node %" PRIu32 " of its batch is %s; %s", number,
                 leaf->kind == TREE_OBJECT ? "an object" : "a single value", remedy);
    else
        snprintf(text, len,
                 "cannot be dispatched: node %" PRIu32 " of its batch has %" PRIu64
                 " rows for %" PRIu64 " samples; %s",
                 number, leaf->shape[0], samples, remedy);
}

void words_bad(const struct bad_sample *sample, const struct quarantine *all, bool skipped,
               char *text, size_t len)
{
    char replica[64] = "";

    if (sample->place.world)
        snprintf(replica, sizeof replica, " of worker %u, rank %u", sample->place.worker,
                 sample->place.rank);
    snprintf(text, len, "sample %lld%s is bad, and %s: %s (%llu of %llu that may be)",
             (long long)sample->index, replica, skipped ? "left out" : "replaced",
             sample->text ? sample->text : "one of many", (ull)quarantine_count(all),
             (ull)all->limit);
}
