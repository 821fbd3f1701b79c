/* The verdict of a run by table: from what the daemon's views said before and after. */
#include "client/dlctl/run/spent.h"
#include "tests/lib/harness.h"

#include "proto/yaml.h"

static const uint64_t S = 1000000000;

/* A run of ten seconds that waited for `waited` of them and got so many batches. */
struct row {
    const char *before, *after; /* the views: status, loaders, workers, times, remote */
    uint64_t waited, batches;
    const char *text; /* what it begins with; NULL: nothing is said */
    uint64_t worker;
};

#define REMOTE_VIEWS(pid, batches, workers, times, remote)                                     \
    "[{pid: " pid "}, [{name: other, batches: 7}, {name: a, batches: " batches "}], [" workers \
    "], [" times "], {" remote "}]"
#define VIEWS(pid, batches, workers, times) REMOTE_VIEWS(pid, batches, workers, times, "")
#define REMOTE_WORKER(fetch, remote)        "{loader: a, fetch_s: " fetch ", remote_s: " remote "}"
#define WORKER(fetch, collate)              "{loader: a, fetch_s: " fetch ", collate_s: " collate "}"
#define AWAY_WORKER(way, sent) \
    "{loader: a, fetch_s: 1, way_s: " way ", received_bytes: 9, sent_bytes: " sent "}"
#define OTHER_WORKER   "{loader: other, fetch_s: 100.5, collate_s: 3}"
#define TIME(stage, s) "{loader: a, rank: null, stage: " stage ", total_s: " s "}"
#define OTHER_TIMES                                               \
    "{loader: other, rank: null, stage: ready, total_s: 900.0}, " \
    "{loader: a, rank: 0, stage: ready, total_s: 900.0}"

static const struct row rows[] = {
    /* Both workers are busy, and fetch takes most of it: what was before the run is not in it. */
    {VIEWS("5", "100", WORKER("50.0", "50.0") "," WORKER("50.0", "50.0"), ""),
     VIEWS("5", "200", WORKER("59.0", "50.5") "," WORKER("59.0", "50.5"), ""), 9, 100,
     "loader-bound: the trainer waited 9.0 s for batches, 90 % of its time; 2 workers are busy for "
     "95 % of the time, and fetch takes 95 % of that",
     VERDICT_NO_WORKER},
    {VIEWS("5", "0", WORKER("0", "0") "," OTHER_WORKER "," WORKER("0", "0"), OTHER_TIMES),
     VIEWS("5", "100", WORKER("1.0", "8.0") "," OTHER_WORKER "," WORKER("1", "0"), OTHER_TIMES), 9,
     100,
     "loader-bound: the trainer waited 9.0 s for batches, 90 % of its time; worker 0 is busy "
     "with collate for 90 % of the time, and the others are not",
     0},
    /* More than there was time for: half of it was collating. */
    {VIEWS("5", "0", WORKER("0", "0"), ""), VIEWS("5", "100", WORKER("8.0", "8.0"), ""), 9, 100,
     "loader-bound: the trainer waited 9.0 s for batches, 90 % of its time; 1 worker is busy for "
     "100 % of the time, and fetch takes 50 % of that",
     VERDICT_NO_WORKER},
    /* It waited for memory most of the time, or for less of it. */
    {VIEWS("5", "0", WORKER("0", "0"), ""),
     VIEWS("5", "100, starved_s: 4.6, starved_by: memory.limit", WORKER("8.0", "0"), ""), 9, 100,
     "starved by memory: memory.limit leaves no room for the next batch", VERDICT_NO_WORKER},
    {VIEWS("5", "0, starved_s: 1.0, starved_by: user", WORKER("0", "0"), ""),
     VIEWS("5", "100, starved_s: 4.6, starved_by: memory.limit", WORKER("8.0", "0"), ""), 9, 100,
     "loader-bound: ", VERDICT_NO_WORKER},
    {VIEWS("5", "0", WORKER("0", "0"), ""),
     VIEWS("5", "100, starved_s: 9, starved_by: null", WORKER("8.0", "0"), ""), 9, 100,
     "loader-bound: ", VERDICT_NO_WORKER},
    {VIEWS("5", "0, starved_s: 5.0", WORKER("0", "0"), ""),
     VIEWS("5", "100, starved_s: 4.0", WORKER("8.0", "0"), ""), 9, 100, NULL, 0},
    /* It waited for a store, which is known by what it has done meanwhile; or a little. */
    {REMOTE_VIEWS("5", "0", REMOTE_WORKER("1", "1"), "",
                  "received_bytes: 1, requests: 7, throttled: 7"),
     REMOTE_VIEWS("5", "100", REMOTE_WORKER("9", "7"), "",
                  "received_bytes: 52428801, requests: 207, throttled: 7"),
     9, 100,
     "starved by storage: the trainer waited 9.0 s for batches, 90 % of its time; 1 worker waits "
     "for "
     "remote files for 75 % of what it does, and the store gives 5.0 MiB/s; ",
     VERDICT_NO_WORKER},
    {REMOTE_VIEWS("5", "0", REMOTE_WORKER("1", "1"), "",
                  "received_bytes: 1, requests: 7, throttled: 7"),
     REMOTE_VIEWS("5", "100", REMOTE_WORKER("9", "7"), "",
                  "received_bytes: 1, requests: 207, throttled: 31, held_back: 50"),
     9, 100,
     "throttled by the store: the trainer waited 9.0 s for batches, 90 % of its time; it refuses "
     "12 % "
     "of requests (status 503 or 429), so that 25 % were held back, and gives 0 B/s; ",
     VERDICT_NO_WORKER},
    {REMOTE_VIEWS("5", "0", REMOTE_WORKER("1", "1"), "",
                  "from_store_bytes: 10, from_memory_bytes: 0"),
     REMOTE_VIEWS("5", "100", REMOTE_WORKER("9", "7"), "",
                  "from_store_bytes: 11, from_memory_bytes: 5000"),
     9, 100,
     "loader-bound: the trainer waited 9.0 s for batches, 90 % of its time; 1 worker waits for 75 "
     "% of "
     "what it does to be given remote files that are held already",
     VERDICT_NO_WORKER},
    {VIEWS("5", "0", REMOTE_WORKER("0", "0"), ""), VIEWS("5", "100", REMOTE_WORKER("9", "4"), ""),
     9, 100, "loader-bound: ", VERDICT_NO_WORKER},
    {VIEWS("5", "0", REMOTE_WORKER("0", "null"), ""),
     VIEWS("5", "100", REMOTE_WORKER("9", "null"), ""), 9, 100,
     "loader-bound: ", VERDICT_NO_WORKER},
    /* What a helper was served came at the network's pace. */
    {VIEWS("5", "0", AWAY_WORKER("1.0", "9"), ""),
     VIEWS("5", "100", AWAY_WORKER("9.0", "10485769"), ""), 9, 100,
     "loader-bound: the trainer waited 9.0 s for batches, 90 % of its time; the network to helpers "
     "is full: it gives 1.0 MiB/s, and files that helpers are served are on their way for 80 %",
     VERDICT_NO_WORKER},
    {VIEWS("5", "0", AWAY_WORKER("9.0", "9"), ""),
     VIEWS("5", "100", AWAY_WORKER("9.5", "10485769"), ""), 9, 100,
     "loader-bound: the trainer waited 9.0 s for batches, 90 % of its time; workers are busy",
     VERDICT_NO_WORKER},
    /* Batches that are ready wait for others. */
    {VIEWS("5", "0", WORKER("0", "0"), TIME("ready", "1.0")),
     VIEWS("5", "100", WORKER("1.0", "0"), TIME("ready", "9.5") "," OTHER_TIMES), 5, 100,
     "loader-bound: the trainer waited 5.0 s for batches, 50 % of its time; batches that are ready "
     "wait for earlier ones",
     VERDICT_NO_WORKER},
    {VIEWS("5", "0", WORKER("0", "0"), ""), VIEWS("5", "100", WORKER("1.0", "0"), ""), 0, 100,
     "trainer-bound: ", VERDICT_NO_WORKER},
    {VIEWS("5", "0", WORKER("0", "0"), ""), VIEWS("5", "100", WORKER("9.0", "0"), ""), 0, 100,
     "healthy: ", VERDICT_NO_WORKER},
    /* Too few batches; another daemon; one that counts from 0 again; other workers; no worker. */
    {VIEWS("5", "0", WORKER("0", "0"), ""), VIEWS("5", "7", WORKER("9.0", "0"), ""), 9, 7, NULL, 0},
    {VIEWS("5", "0", WORKER("0", "0"), ""), VIEWS("6", "100", WORKER("9.0", "0"), ""), 9, 100, NULL,
     0},
    {VIEWS("5", "50", WORKER("0", "0"), ""), VIEWS("5", "40", WORKER("9.0", "0"), ""), 9, 100, NULL,
     0},
    {VIEWS("5", "0", WORKER("3.0", "0"), ""), VIEWS("5", "100", WORKER("2.0", "0"), ""), 9, 100,
     NULL, 0},
    {VIEWS("5", "0", WORKER("0", "3.0"), ""), VIEWS("5", "100", WORKER("9", "2.0"), ""), 9, 100,
     NULL, 0},
    {VIEWS("5", "0", WORKER("0", "0"), TIME("held", "5.0")),
     VIEWS("5", "100", WORKER("9.0", "0"), TIME("held", "4.0")), 9, 100, NULL, 0},
    {VIEWS("5", "0", WORKER("0", "0"), ""),
     VIEWS("5", "100", WORKER("9.0", "0") "," WORKER("9.0", "0"), ""), 9, 100, NULL, 0},
    {VIEWS("5", "0", "", ""), VIEWS("5", "100", "", ""), 9, 100, NULL, 0},
    /* Two loaders of that name, or none; and answers that are none. */
    {VIEWS("5", "0}, {name: a, batches: 3", WORKER("0", "0"), ""),
     VIEWS("5", "100", WORKER("9.0", "0"), ""), 9, 100, NULL, 0},
    {"[{pid: 5}, [], [], [], null]", VIEWS("5", "100", WORKER("9.0", "0"), ""), 9, 100, NULL, 0},
    {VIEWS("5", "0", WORKER("0", "0"), ""), "[null, null, null, null, null]", 9, 100, NULL, 0},
    {VIEWS("5", "0", WORKER("0", "0"), ""), "[{}, {}, 3, x, []]", 9, 100, NULL, 0},
    {VIEWS("5", "0", WORKER("0", "0"), "3, {stage: 7}, {loader: a, stage: x, rank: null}"),
     VIEWS("5", "100", WORKER("-5.0", "1e300"), "null"), 9, 100,
     "loader-bound: ", VERDICT_NO_WORKER},
};

static void read_views(const char *yaml, struct spent *ret)
{
    struct value all = {0};
    struct dl_error err = {0};

    assert_int_equal(yaml_parse(yaml, strlen(yaml), "", &all, &err), 0);
    assert_int_equal(all.count, SPENT_VIEWS);
    assert_int_equal(spent_read(all.items, "a", ret), 0);
    value_deinit(&all);
}

TEST(test_table)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct row *row = &rows[i];
        struct spent before = {0}, after = {0};
        struct verdict v = {0};

        read_views(row->before, &before);
        read_views(row->after, &after);
        bool said = spent_verdict(&before, &after, 10 * S, row->waited * S, row->batches, &v);
        if (said != !!row->text ||
            (said && (strncmp(v.text, row->text, strlen(row->text)) != 0 ||
                      v.worker != row->worker || v.lost_ns != row->waited * S)))
            fail_msg("row %zu: %s", i, said ? v.text : "nothing");
        spent_deinit(&before);
        spent_deinit(&after);
    }
}

/* A run that took no time, and one that waited for longer than it was there. */
TEST(test_bounds)
{
    struct spent before = {0}, after = {0};
    struct verdict v;

    read_views(rows[0].before, &before);
    read_views(rows[0].after, &after);
    assert_false(spent_verdict(&before, &after, 0, 0, 100, &v));
    assert_true(spent_verdict(&before, &after, S, UINT64_MAX, 100, &v));
    assert_int_equal(v.lost_ns, S);
    spent_deinit(&before);
    spent_deinit(&after);
}
