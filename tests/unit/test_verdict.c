/* What is said of a loader, by table. */
#include "tests/lib/harness.h"
#include "tests/lib/row.h"

#include "proto/shared/verdict.h"

#define S  ((uint64_t)1000000000)
#define MS ((uint64_t)1000000)

enum { RANKS = 4, WORKERS = 4 };

struct row {
    const char *text; /* the beginning of it, or the whole */
    enum verdict_kind kind;
    struct verdict_rank ranks[RANKS];
    struct verdict_worker workers[WORKERS];
    enum stage stage;
    uint64_t span, ready, between; /* no span: 10 s */
    const char *starving;
    uint64_t rank;
    uint32_t one; /* the number of the worker that is named, and 1; 0: all of them */
    bool cores_short, own_shares;
    struct verdict_store store;
};

#define RANK(i, waited)        \
    {                          \
        i, 10 * S, waited, 100 \
    }

static const struct row rows[] = {
    ROW("idle: no trainer reads", VERDICT_IDLE),
    ROW("too early to tell: 7 batches so far", VERDICT_EARLY,
        {{0, 10 * S, 9 * S, 3}, {1, 10 * S, 9 * S, 4}}, {{9 * S, 0}}),
    /* Memory comes first: nothing else can be helped before. */
    ROW("starved by memory: memory.limit leaves no room for the next batch; raise it, or hold "
        "fewer batches",
        VERDICT_MEMORY, {{0, 10 * S, 9 * S, 0}}, {{0, 0}}, .starving = "memory.limit"),
    ROW("trainer-bound: it hardly waits for batches, and workers are busy for 20 % of the time; "
        "nothing to do here: fewer workers would do",
        VERDICT_TRAINER, {RANK(0, 0)}, {{S, 0}, {2 * S, S}}, .ready = 90 * S),
    ROW("healthy: trainers hardly wait for batches, and workers are busy for 90 % of the time; "
        "nothing to do: only a faster trainer needs more workers",
        VERDICT_HEALTHY, {RANK(0, 440 * MS)}, {{9 * S, 0}}),
    ROW("loader-bound: the trainer waited 6.0 s for batches, 60 % of its time; 2 workers are busy "
        "for 93 % of the time, and fetch takes 86 % of that; more workers, or samples that cost "
        "less",
        VERDICT_LOADER, {RANK(0, 6 * S)}, {{8 * S, 1300 * MS}, {8 * S, 1300 * MS}}, STAGE_FETCH),
    /* Of three workers two are other machines': 8 s and 6 s of 10 s. */
    ROW("loader-bound: the trainer waited 6.0 s for batches, 60 % of its time; the network to "
        "helpers is full: it gives 238.4 MiB/s, and batches are on their way for 70 % of the time; "
        "smaller batches, such as uint8 for float32, or a faster network; more helpers do not help",
        VERDICT_LOADER, {RANK(0, 6 * S)},
        {{.fetch_ns = 9 * S},
         {.fetch_ns = S, .away = true, .way_ns = 8 * S, .way_bytes = 1250000000},
         {.fetch_ns = S, .away = true, .way_ns = 6 * S, .way_bytes = 1250000000}},
        STAGE_HANDOVER),
    ROW("loader-bound: the trainer waited 6.0 s for batches, 60 % of its time; the network to "
        "helpers is full: it gives 119.2 MiB/s, and files that helpers are served are on their way "
        "for 80 % of the time; files that helpers have themselves, or a faster network; more "
        "helpers do not help",
        VERDICT_LOADER, {RANK(0, 6 * S)},
        {{.fetch_ns = 9 * S,
          .away = true,
          .way_ns = 8 * S,
          .way_bytes = 1000,
          .served_bytes = 1250000000}},
        STAGE_FETCH),
    /* What a helper fetches itself, the store gives: this machine sees not how fast. */
    ROW("starved by storage: the trainer waited 6.0 s for batches, 60 % of its time; 1 worker "
        "waits for remote files for 89 % of what it does, and the store gives 1.0 MiB/s to this "
        "machine",
        VERDICT_STORE, {RANK(0, 6 * S)}, {{.fetch_ns = 9 * S, .remote_ns = 8 * S, .away = true}},
        STAGE_FETCH, .store = {10 * S, 10 << 20, 1000}),
    ROW("loader-bound: the trainer waited 6.0 s for batches, 60 % of its time; 3 workers are busy "
        "for 90 % of the time, and fetch takes 100 % of that; more workers, or samples that cost "
        "less",
        VERDICT_LOADER, {RANK(0, 6 * S)},
        {{.fetch_ns = 9 * S},
         {.fetch_ns = 9 * S, .away = true, .way_ns = 5 * S},
         {.fetch_ns = 9 * S, .away = true, .way_ns = 5 * S}},
        STAGE_FETCH),
    ROW("loader-bound: the trainer waited 450 ms for batches, 4.5 % of its time; 1 worker is busy "
        "for 95 % of the time, and collate takes 63 % of that; more workers, or a cheaper collate",
        VERDICT_LOADER, {RANK(0, 450 * MS)}, {{3500 * MS, 6 * S}}, STAGE_COLLATE),
    /* An epoch can be as short as that. */
    ROW("loader-bound: the trainer waited 36 ms for batches, 60 % of its time; 2 workers are busy "
        "for 93 % of the time, and fetch takes 86 % of that; more workers, or samples that cost "
        "less",
        VERDICT_LOADER, {{0, 60 * MS, 36 * MS, 100}}, {{48 * MS, 8 * MS}, {48 * MS, 8 * MS}},
        STAGE_FETCH, .span = 60 * MS),
    /* They are busy, but for lack of a processor: nobody is helped by more of them. */
    ROW("loader-bound: the trainer waited 6.0 s for batches, 60 % of its time; cores are short: 2 "
        "workers are busy for 93 % of the time, and wait for a processor for 54 % of that; samples "
        "that cost less, or more processors; more workers do not help",
        VERDICT_LOADER, {RANK(0, 6 * S)},
        {{8 * S, 1300 * MS, 0, 4 * S}, {8 * S, 1300 * MS, 0, 6 * S}}, STAGE_FETCH,
        .cores_short = true),
    ROW("loader-bound: the trainer waited 6.0 s for batches, 60 % of its time; cores are short: 1 "
        "worker is busy for 95 % of the time, and waits for a processor for 100 % of that; a "
        "cheaper collate, or",
        VERDICT_LOADER, {RANK(0, 6 * S)}, {{S, 8500 * MS, 0, 11 * S}},
        /* it waited when it had nothing to do, too */
        STAGE_COLLATE, .cores_short = true),
    ROW("loader-bound: the trainer waited 6.0 s for batches, 60 % of its time; 1 worker is busy "
        "for 95 % of the time, and collate takes 89 % of that",
        VERDICT_LOADER, {RANK(0, 6 * S)}, {{S, 8500 * MS, 0, 1700 * MS}}, STAGE_COLLATE),
    ROW("loader-bound: trainers waited 11 s for batches, rank 1 for 60 % of its time; 1 worker is",
        VERDICT_LOADER, {RANK(0, 5 * S), RANK(1, 6 * S)}, {{9 * S, 0}}, STAGE_FETCH, .rank = 1),
    ROW("loader-bound: the trainer waited 5.0 s for batches, 50 % of its time; worker 2 is busy "
        "with collate for 98 % of the time, and the others are not; divide its work evenly: more "
        "shards, of similar size",
        VERDICT_LOADER, {RANK(0, 5 * S)}, {{2 * S, 0}, {2 * S, 0}, {4 * S, 5800 * MS}},
        STAGE_COLLATE, .one = 3, .own_shares = true),
    /* Each takes the next batch that there is: none has a share to be divided. */
    ROW("loader-bound: the trainer waited 5.0 s for batches, 50 % of its time; worker 0 is busy "
        "with fetch for 100 % of the time, and the others are not; dlctl slow shows whether its "
        "samples are slow; if not, its processor is",
        VERDICT_LOADER, {RANK(0, 5 * S)}, {{10500 * MS, 0, 4 * S}, {2 * S, 0}},
        /* one of its batches was begun before */
        STAGE_FETCH, .one = 1),
    /* Slow samples: also where they keep one worker busy, or let the others wait in turn. */
    ROW("loader-bound: the trainer waited 9.6 s for batches, 96 % of its time; a few samples that "
        "are much slower than the others take 93 % of what 2 workers do; dlctl slow names them",
        VERDICT_LOADER, {RANK(0, 9600 * MS)}, {{10500 * MS, 0, 10 * S}, {3 * S, 0, 2500 * MS}},
        STAGE_FETCH),
    ROW("loader-bound: the trainer waited 5.0 s for batches, 50 % of its time; a few samples that "
        "are much slower than the others take 60 % of what 1 worker does; dlctl slow names them",
        VERDICT_LOADER, {RANK(0, 5 * S)}, {{4 * S, 1 * S, 3 * S}}, STAGE_FETCH, .ready = 30 * S,
        .own_shares = true),
    /* Less than half of it; and for lack of a processor. */
    ROW("loader-bound: the trainer waited 6.0 s for batches, 60 % of its time; 2 workers are busy "
        "for 90 % of the time, and fetch takes 100 % of that; more workers, or samples that cost "
        "less",
        VERDICT_LOADER, {RANK(0, 6 * S)}, {{9 * S, 0, 4 * S}, {9 * S, 0, 4 * S}}, STAGE_FETCH),
    ROW("loader-bound: the trainer waited 6.0 s for batches, 60 % of its time; cores are short: ",
        VERDICT_LOADER, {RANK(0, 6 * S)}, {{9 * S, 0, 8 * S, 5 * S}}, STAGE_FETCH,
        .cores_short = true),
    /* A rank that is looked at late seems to have waited longer than it was read. */
    ROW("loader-bound: the trainer waited 11 s for batches, 100 % of its time; 1 worker is",
        VERDICT_LOADER, {RANK(0, 11 * S)}, {{12 * S, 0}}, STAGE_FETCH),
    /* One has more to do than the other, and time to spare. */
    ROW("loader-bound: the trainer waited 5.0 s for batches, 50 % of its time; workers are busy "
        "for 20 % of the time: a batch takes 4.0 ms to make, and 6.0 ms on its way; larger batches "
        "or more workers.prefetch help",
        VERDICT_LOADER, {RANK(0, 5 * S)}, {{3 * S, 0}, {S, 0}}, STAGE_HANDOVER, .ready = 5 * S,
        .between = 6 * S),
    ROW("loader-bound: the trainer waited 5.0 s for batches, 50 % of its time; batches that are "
        "ready wait for earlier ones, which take longer; workers.bypass, or more workers.prefetch, "
        "lets others pass",
        VERDICT_LOADER, {RANK(0, 5 * S)}, {{3 * S, 0}, {3 * S, 0}}, STAGE_READY, .ready = 30 * S),
    /* Workers wait for a store, and are busy with nothing else: no sample, worker or processor is.
     */
    ROW("starved by storage: trainers waited 10 s for batches, rank 1 for 60 % of its time; 2 "
        "workers wait for remote files for 50 % of what they do, and the store gives 480.0 MiB/s; "
        "more workers.prefetch asks for more at once, a larger remote.held for less",
        VERDICT_STORE, {RANK(0, 4 * S), RANK(1, 6 * S)},
        {{8 * S, 0, 8 * S, 0, 4 * S}, {S, S, 0, 2 * S, S}}, STAGE_FETCH, .rank = 1,
        .store = {20 * S, (uint64_t)9600 << 20, 1000, 44}),
    ROW("loader-bound: the trainer waited 6.0 s for batches, 60 % of its time; 1 worker is busy "
        "for 80 % of the time, and fetch takes 100 % of that; more workers, or samples that cost "
        "less",
        VERDICT_LOADER, {RANK(0, 6 * S)}, {{8 * S, 0, 0, 0, 3900 * MS}}, STAGE_FETCH,
        .store = {10 * S, 1 << 20, 100, 50}),
    ROW("throttled by the store: the trainer waited 6.0 s for batches, 60 % of its time; it "
        "refuses 5 % of requests (status 503 or 429), and gives 1.0 MiB/s; a larger remote.held, "
        "larger files, or a higher limit there",
        VERDICT_THROTTLE, {RANK(0, 6 * S)}, {{S, 0, 0, 0, S}}, STAGE_FETCH,
        .store = {10 * S, 10 << 20, 1000, 50}),
    /* It refuses few since it is sent few. */
    ROW("throttled by the store: the trainer waited 6.0 s for batches, 60 % of its time; it "
        "refuses 2 % of requests (status 503 or 429), so that 45 % were held back, and gives 1.0 "
        "MiB/s; ",
        VERDICT_THROTTLE, {RANK(0, 6 * S)}, {{S, 0, 0, 0, S}}, STAGE_FETCH,
        .store = {10 * S, 10 << 20, 1000, 20, 450}),
    /* What workers get is there: no store has to give it, whatever it refuses. */
    ROW("loader-bound: the trainer waited 6.0 s for batches, 60 % of its time; 1 worker waits for "
        "100 % of what it does to be given remote files that are held already; more workers, or "
        "larger files",
        VERDICT_LOADER, {RANK(0, 6 * S)}, {{S, 0, 0, 0, S}}, STAGE_FETCH,
        .store = {10 * S, 99, 10, 5, 0, 100 * 1000}),
    ROW("throttled by the store: ", VERDICT_THROTTLE, {RANK(0, 6 * S)}, {{S, 0, 0, 0, S}},
        STAGE_FETCH, .store = {10 * S, 100, 10, 5, 0, 100 * 1000}),
    /* Who does not wait for batches has nothing to win of a store. */
    ROW("healthy: ", VERDICT_HEALTHY, {RANK(0, 0)}, {{9 * S, 0, 0, 0, 9 * S}},
        .store = {10 * S, 10 << 20, 1000, 900}),
    ROW("straggling: rank 3 waits for batches for 40 % of its time (4.0 s), and most others hardly "
        "do; check its machine, and its share of the data",
        VERDICT_RANK, {RANK(0, 100 * MS), RANK(1, 0), RANK(2, 3900 * MS), RANK(3, 4 * S)},
        {{9 * S, 0}}, .rank = 3),
    /* Half of them wait as much. */
    ROW("loader-bound: ", VERDICT_LOADER,
        {RANK(0, 2 * S), RANK(1, 2 * S), RANK(2, 100 * MS), RANK(3, 4 * S)}, {{9 * S, 0}},
        STAGE_FETCH, .rank = 3),
};

static size_t count_ranks(const struct row *row)
{
    size_t n = 0;

    while (n < RANKS && row->ranks[n].span_ns > 0)
        n++;
    return n;
}

static size_t count_workers(const struct row *row)
{
    size_t n = 1;

    while (n < WORKERS && row->workers[n].fetch_ns > 0)
        n++;
    return n;
}

TEST(test_rows)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct row *row = &rows[i];
        struct verdict_case c = {.ranks = row->ranks,
                                 .n_ranks = count_ranks(row),
                                 .workers = row->workers,
                                 .n_workers = count_workers(row),
                                 .span_ns = row->span ? row->span : 10 * S,
                                 .batches = 1000,
                                 .ns = {[STAGE_READY] = row->ready,
                                        [STAGE_QUEUED] = row->between / 2,
                                        [STAGE_HANDOVER] = row->between / 2},
                                 .own_shares = row->own_shares,
                                 .starving = row->starving,
                                 .store = row->store};
        struct verdict v;
        uint64_t lost = 0;

        for (size_t k = 0; k < c.n_ranks; k++)
            lost += row->ranks[k].waited_ns;
        verdict_find(&c, &v);
        if (strncmp(v.text, row->text, strlen(row->text)) != 0)
            fail_msg("row %zu says \"%s\"", i, v.text);
        assert_int_equal(v.kind, row->kind);
        assert_int_equal(v.stage, row->stage);
        assert_int_equal(v.rank, row->rank);
        assert_int_equal(v.worker, row->one - 1); /* VERDICT_NO_WORKER */
        assert_int_equal(v.lost_ns, lost);
        assert_int_equal(v.cores_short, row->cores_short);
        assert_true(strlen(v.text) < VERDICT_LATEST_MAX - 1); /* nothing is cut off */
    }
}

/* Numbers that make no sense are not divided by, and do not overflow. */
TEST(test_nonsense)
{
    static const struct verdict_rank ranks[] = {
        {UINT64_MAX, 0, UINT64_MAX, UINT64_MAX}, {0, UINT64_MAX, 0, 1}, {1, 1, UINT64_MAX, 8}};
    static const struct verdict_worker workers[] = {
        {UINT64_MAX, UINT64_MAX}, {0, 0}, {1, 0, 0, 0, UINT64_MAX}};
    struct verdict v;

    for (size_t n = 0; n <= ARRAY_SIZE(ranks); n++) {
        for (size_t w = 0; w <= ARRAY_SIZE(workers); w++) {
            struct verdict_case c = {
                .ranks = ranks, .n_ranks = n, .workers = workers, .n_workers = w};
            verdict_find(&c, &v);
            assert_true(*v.text);
            c.span_ns = UINT64_MAX;
            verdict_find(&c, &v);
            assert_true(*v.text);
            c.store = (struct verdict_store){0, UINT64_MAX, 1, UINT64_MAX};
            verdict_find(&c, &v);
            assert_true(*v.text);
        }
    }
}
