/*
 * Reports of nodes about a loader: whatever the bytes are, they are refused, or a report that is
 * written and read again as the same; and where nodes resume by it is a place that exists. The
 * first bytes say which round it is and what a rank asks for; then the reports, with a 0 between
 * two.
 */
#include "daemon/cluster/progress/progress.h"

#include "tests/fuzz/fuzz.h"

enum { REPORTS = 6, HEAD = 4, FIRST = 2, WORLD = 4 };

static void check_again(const struct progress_report *report, uint64_t round)
{
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0}, twice = {0};
    struct progress_report again;

    progress_report_write(report, &bytes);
    FUZZ_ASSERT(progress_report_read((struct dl_span){bytes.data, bytes.len}, round, &again));
    progress_report_write(&again, &twice);
    FUZZ_ASSERT(twice.len == bytes.len && memcmp(twice.data, bytes.data, bytes.len) == 0);
    buffer_deinit(&twice);
}

static uint32_t read_reports(const uint8_t *data, size_t len, uint64_t round,
                             struct progress_report *reports)
{
    uint32_t n = 0;

    while (len > 0 && n < REPORTS) {
        const uint8_t *end = memchr(data, 0, len);
        size_t size = end ? (size_t)(end - data) : len;

        if (progress_report_read((struct dl_span){data, size}, round, &reports[n]))
            check_again(&reports[n++], round);
        data += end ? size + 1 : size;
        len -= end ? size + 1 : size;
    }
    return n;
}

static void place(const struct progress *progress, const uint8_t *asks,
                  const struct progress_point *at)
{
    const struct progress_round *first = progress_first(progress), *round;
    struct progress_rank rank = {
        .entered = asks[0] % 2 ? PROGRESS_NO_ROUND : first->number, .given = *at, .behind = *at};
    struct resume_request request = {.epoch =
                                         asks[1] % 3 ? at->epoch + asks[1] % 2 : RESUME_ANYWHERE,
                                     .step = asks[2],
                                     .local = asks[2] % 2,
                                     .former = {.rank = asks[2] % 8, .world = asks[0] / 32}};
    struct resume_place ret = {0};
    struct dl_error err = {0};

    if (asks[1] % 5)
        request.before = at->history;
    int r = progress_resume(progress, &rank, &request, &ret, &err);
    FUZZ_ASSERT(r == 0 || (err.code && err.message[0]));
    round = r == 0 ? progress_find(progress, ret.round) : NULL;
    FUZZ_ASSERT(r < 0 || (round && round->known && ret.world > 0 &&
                          (round->world == ret.world || request.former.world == ret.world)));
    FUZZ_ASSERT(r < 0 || ret.before.n <= DL_BOUND_HISTORY);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct progress_report reports[REPORTS];
    struct node_report by_node[REPORTS] = {0};
    struct progress_point begin = {0};
    struct progress progress = {0};
    struct dl_error err = {0};

    if (len < HEAD)
        return 0;
    uint64_t round = 1 + data[0];
    uint32_t n = read_reports(data + HEAD, len - HEAD, round, reports);
    for (uint32_t i = 0; i < n; i++)
        by_node[i] = (struct node_report){.node = "node", .report = &reports[i]};
    int r = progress_merge(by_node, n, &begin, &err);
    FUZZ_ASSERT(r >= 0 || (err.code && err.message[0]));
    if (r < 0)
        return 0;
    progress_enter(&progress, round, FIRST, WORLD);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < reports[i].known.n; k++)
            progress_learn(&progress, reports[i].known.rounds[k].number,
                           &reports[i].known.rounds[k].begin);
    progress_learn(&progress, round, &begin);
    FUZZ_ASSERT(progress_latest(&progress)->number == round);
    place(&progress, data + 1, n > 0 && reports[0].has_point ? &reports[0].point : &begin);
    return 0;
}
