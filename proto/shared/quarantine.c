#include "proto/shared/quarantine.h"

#include "proto/common/array.h"

#include <errno.h>
#include <stdio.h>

void quarantine_deinit(struct quarantine *q)
{
    for (uint32_t i = 0; i < q->n; i++)
        free(q->samples[i].text);
    free(q->samples);
    *q = (struct quarantine){0};
}

uint64_t quarantine_count(const struct quarantine *q)
{
    return q->n + q->unlisted;
}

static int quarantine_compare_numbers(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int quarantine_compare(const struct bad_sample *sample, const struct bad_place *place,
                              uint64_t index)
{
    int order = quarantine_compare_numbers(sample->place.world, place->world);

    if (order == 0)
        order = quarantine_compare_numbers(sample->place.rank, place->rank);
    if (order == 0)
        order = quarantine_compare_numbers(sample->place.worker, place->worker);
    return order ? order : quarantine_compare_numbers(sample->index, index);
}

/* The first sample that is not before it. */
static uint32_t quarantine_find(const struct quarantine *q, const struct bad_place *place,
                                uint64_t index)
{
    uint32_t begin = 0, end = q->n;

    while (begin < end) {
        uint32_t middle = begin + (end - begin) / 2;
        if (quarantine_compare(&q->samples[middle], place, index) < 0)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

enum bad_verdict quarantine_admit_unlisted(struct quarantine *q, uint32_t n)
{
    if (n == 0)
        return BAD_KNOWN;
    if (n > q->limit || quarantine_count(q) > q->limit - n)
        return BAD_ABOVE;
    q->unlisted += n;
    return BAD_NEW;
}

enum bad_verdict quarantine_admit(struct quarantine *q, const struct bad_place *place,
                                  const struct slot_bad *bad, const struct bad_sample **ret)
{
    uint32_t at = quarantine_find(q, place, bad->index);

    if (ret)
        *ret = NULL;
    if (at < q->n && quarantine_compare(&q->samples[at], place, bad->index) == 0) {
        q->samples[at].seen++;
        if (ret)
            *ret = &q->samples[at];
        return BAD_KNOWN;
    }
    if (quarantine_count(q) >= q->limit)
        return BAD_ABOVE;
    if (!array_reserve(q->samples, q->room, q->n + UINT64_C(1)))
        return quarantine_admit_unlisted(q, 1);
    memmove(&q->samples[at + 1], &q->samples[at], (q->n - at) * sizeof *q->samples);
    q->samples[at] = (struct bad_sample){.place = *place,
                                         .index = bad->index,
                                         .seen = 1,
                                         .code = (int)bad->code,
                                         .text = q->n < QUARANTINE_TOLD ? strdup(bad->text) : NULL};
    q->n++;
    if (ret)
        *ret = &q->samples[at];
    return BAD_NEW;
}

static int quarantine_refuse(const struct quarantine *q, const struct slot_bad *bad, uint32_t n,
                             struct dl_error *err)
{
    char which[64] = "";

    if (bad)
        snprintf(which, sizeof which, "sample %lld: ", (long long)bad->index);
    else
        snprintf(which, sizeof which, "%u samples of one batch: ", n);
    return dl_error_set(err, bad ? (int)bad->code : EIO, "dataset",
                        "%s%s; workers.max_bad allows only %llu bad sample%s: check them (dlctl "
                        "quarantine), repair the data, or raise it",
                        which, bad ? bad->text : "they are bad", (ull)q->limit,
                        q->limit == 1 ? "" : "s");
}

bool quarantine_take(struct quarantine *q, const struct bad_place *place,
                     const struct bad_list *list,
                     void (*named)(void *owner, const struct bad_sample *sample), void *owner,
                     struct dl_error *err)
{
    uint32_t listed = bad_list_listed(list);

    for (uint32_t i = 0; i < listed; i++) {
        const struct bad_sample *sample;
        enum bad_verdict verdict = quarantine_admit(q, place, &list->items[i], &sample);
        if (verdict == BAD_ABOVE)
            return quarantine_refuse(q, &list->items[i], 1, err) == 0;
        if (verdict == BAD_NEW && sample && named)
            named(owner, sample);
    }
    if (quarantine_admit_unlisted(q, list->n - listed) == BAD_ABOVE)
        return quarantine_refuse(q, NULL, list->n - listed, err) == 0;
    return true;
}
