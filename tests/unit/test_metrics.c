/* Samples by table: labels, sums, words, and views of any shape. */
#include "tests/lib/harness.h"

#include "proto/shared/metrics.h"
#include "proto/yaml.h"

#include <errno.h>

static size_t view_number(const char *name)
{
    size_t i = 0;

    while (metrics_views[i] && strcmp(metrics_views[i], name) != 0)
        i++;
    assert_non_null(metrics_views[i]);
    return i;
}

/* The text that one view makes, NUL-terminated; the caller's. */
static char *text_of(const char *view, const char *yaml)
{
    struct value views[METRICS_VIEWS] = {0};
    struct dl_buffer out = {0};
    struct dl_error err = {0};
    size_t at = view_number(view);
    char *text;

    assert_int_equal(yaml_parse(yaml, strlen(yaml), "", &views[at], &err), 0);
    assert_int_equal(metrics_write(views, &out), 0);
    value_deinit(&views[at]);
    text = strndup((const char *)out.data, out.len);
    buffer_deinit(&out);
    assert_non_null(text);
    return text;
}

struct row {
    const char *view, *yaml;
    const char *lines; /* that are not comments, all of them */
};

static const struct row rows[] = {
    {"status", "{}", ""},
    {"status", "[]", ""},
    {"status", "null", ""},
    {"status", "{version: 1.2.3, sessions: 4, uptime_s: 1.5, state: draining}",
     "dloader_info{version=\"1.2.3\"} 1\n"
     "dloader_uptime_seconds 1.5\n"
     "dloader_draining 1\n"
     "dloader_sessions 4\n"},
    {"status", "{version: 7, sessions: x, state: running}", "dloader_draining 0\n"},
    {"users",
     "[{uid: 0, refused: 3, overhead_bytes: 4096}, {uid: 60001, loop_s: 0.5, descriptors: 7}]",
     "dloader_user_refusals_total{uid=\"0\"} 3\n"
     "dloader_user_loop_seconds_total{uid=\"60001\"} 0.5\n"
     "dloader_user_overhead_bytes{uid=\"0\"} 4096\n"
     "dloader_user_descriptors{uid=\"60001\"} 7\n"},
    /* Ranks of a job together; tokens are not known. */
    {"mixtures",
     "[{loader: a, job: j, rank: 0, child: 1, dataset: f, samples: 3, due: 2.5, tokens: null}, "
     "{loader: a, job: j, rank: 1, child: 1, dataset: f, samples: 4, due: 4.5, tokens: null}]",
     "dloader_mixture_samples_total{loader=\"a\",job_name=\"j\",child=\"1\",dataset=\"f\"} 7\n"
     "dloader_mixture_due_total{loader=\"a\",job_name=\"j\",child=\"1\",dataset=\"f\"} 7\n"},
    /* What a loader is called may be any text. */
    {"loaders", "[{name: \"a\\\"b\\\\c\\nd\", batches: 12345678901234}]",
     "dloader_loader_batches_total{loader=\"a\\\"b\\\\c\\nd\"} 12345678901234\n"},
    /* Loaders of two users with the same name. */
    {"loaders", "[{name: a, faults: 2}, {name: b, faults: 5}, {name: a, faults: 3}]",
     "dloader_loader_faults_total{loader=\"a\"} 5\n"
     "dloader_loader_faults_total{loader=\"b\"} 5\n"},
    {"loaders",
     "[{name: a, verdict: 'idle; at the end it was healthy'}, {name: b, verdict: 'loader-bound: "
     "x'}, "
     "{name: c, verdict: null}]",
     "dloader_loader_verdict{loader=\"a\",verdict=\"idle\"} 1\n"
     "dloader_loader_verdict{loader=\"b\",verdict=\"loader-bound\"} 1\n"},
    {"epochs",
     "[{loader: a, job: j, rank: 3, world: 8, epoch: 2, steps: null, waited_s: 0.25}, "
     "{loader: a, job: j, rank: 3, world: 8, epoch: 9, waited_s: 1}]",
     "dloader_rank_epoch{loader=\"a\",job_name=\"j\",rank=\"3\",world=\"8\"} 2\n"
     "dloader_rank_wait_seconds_total{loader=\"a\",job_name=\"j\",rank=\"3\",world=\"8\"} 1.25\n"},
    {"times",
     "[{loader: a, rank: null, stage: held, batches: 3, total_s: 6, half_s: 1, p99_s: 4, "
     "python_total_s: null}, {loader: a, rank: null, stage: fetch, python_total_s: 0.5}, "
     "{loader: a, rank: 0, stage: held, batches: 2, total_s: 1, half_s: 1, p99_s: 1}]",
     "dloader_stage_seconds{loader=\"a\",stage=\"held\",quantile=\"0.5\"} 1\n"
     "dloader_stage_seconds{loader=\"a\",stage=\"held\",quantile=\"0.99\"} 4\n"
     "dloader_stage_seconds_sum{loader=\"a\",stage=\"held\"} 6\n"
     "dloader_stage_seconds_count{loader=\"a\",stage=\"held\"} 3\n"
     "dloader_stage_python_seconds_total{loader=\"a\",stage=\"fetch\"} 0.5\n"},
    {"ring", "[{loader: a, free: 1, leased: 2}, {loader: a, free: 10}, 7, [x]]",
     "dloader_slots{loader=\"a\",state=\"free\"} 11\n"
     "dloader_slots{loader=\"a\",state=\"leased\"} 2\n"},
    {"workers",
     "[{loader: a, worker: 1, fetch_s: 0.5, collate_s: 0.125, queued: 2, "
     "cpu_s: 0.75, memory_bytes: 4096}, {loader: a, worker: 2, cpu_s: null, sent_bytes: 7, "
     "received_bytes: 700, way_s: 0.25, round_trip_s: 0.001, samples_per_s: 12.5, step_share: "
     "0.25, "
     "restarts: 3}]",
     "dloader_worker_busy_seconds_total{loader=\"a\",worker=\"1\",stage=\"fetch\"} 0.5\n"
     "dloader_worker_busy_seconds_total{loader=\"a\",worker=\"1\",stage=\"collate\"} 0.125\n"
     "dloader_worker_cpu_seconds_total{loader=\"a\",worker=\"1\"} 0.75\n"
     "dloader_worker_memory_bytes{loader=\"a\",worker=\"1\"} 4096\n"
     "dloader_worker_samples_per_second{loader=\"a\",worker=\"2\"} 12.5\n"
     "dloader_worker_step_share{loader=\"a\",worker=\"2\"} 0.25\n"
     "dloader_worker_restarts_total{loader=\"a\",worker=\"2\"} 3\n"
     "dloader_worker_helper_bytes_total{loader=\"a\",worker=\"2\",direction=\"sent\"} 7\n"
     "dloader_worker_helper_bytes_total{loader=\"a\",worker=\"2\",direction=\"received\"} 700\n"
     "dloader_worker_helper_way_seconds_total{loader=\"a\",worker=\"2\"} 0.25\n"
     "dloader_worker_helper_round_trip_seconds{loader=\"a\",worker=\"2\"} 0.001\n"
     "dloader_worker_queued_tasks{loader=\"a\",worker=\"1\"} 2\n"},
    {"members",
     "{state: complete, round: 4, store: does not answer, world: null, "
     "nodes: [{node: n0, silence_s: 0.5}, {node: n1}]}",
     "dloader_cluster_store_up 0\n"
     "dloader_cluster_complete 1\n"
     "dloader_cluster_round 4\n"
     "dloader_cluster_node_silence_seconds{node=\"n0\"} 0.5\n"},
    {"remote",
     "{pid: 7, requests: 200, received_bytes: 4096, repeated: 24, throttled: 20, broken_off: 3, "
     "timed_out: 1, server_faults: 0, failed: 2, under_way: 5, waiting: 6, from_store_bytes: 1024, "
     "from_memory_bytes: 3072, objects: 9, held_bytes: 512, limit_bytes: 8192, hit_share: 0.75}",
     "dloader_remote_requests_total 200\n"
     "dloader_remote_repeated_requests_total 24\n"
     "dloader_remote_faults_total{cause=\"throttled\"} 20\n"
     "dloader_remote_faults_total{cause=\"broken_off\"} 3\n"
     "dloader_remote_faults_total{cause=\"timed_out\"} 1\n"
     "dloader_remote_faults_total{cause=\"server\"} 0\n"
     "dloader_remote_failed_requests_total 2\n"
     "dloader_remote_received_bytes_total 4096\n"
     "dloader_remote_given_bytes_total{source=\"store\"} 1024\n"
     "dloader_remote_given_bytes_total{source=\"memory\"} 3072\n"
     "dloader_remote_pending_requests{state=\"under_way\"} 5\n"
     "dloader_remote_pending_requests{state=\"waiting\"} 6\n"
     "dloader_remote_objects 9\n"
     "dloader_remote_held_bytes 512\n"
     "dloader_remote_held_limit_bytes 8192\n"},
    {"workers", "[{loader: a, worker: 1, remote_s: 0.5}, {loader: b, worker: 1, remote_s: null}]",
     "dloader_worker_remote_seconds_total{loader=\"a\",worker=\"1\"} 0.5\n"},
    /* Of a daemon that is alone. */
    {"members", "{backend: none, state: null, store: null, nodes: []}", ""},
};

TEST(test_rows)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char *text = text_of(rows[i].view, rows[i].yaml);
        char samples[4096] = "";
        char *rest = text;

        for (char *line; (line = strsep(&rest, "\n")) && *line;) {
            if (*line == '#')
                continue;
            strncat(samples, line, sizeof samples - strlen(samples) - 2);
            strcat(samples, "\n");
        }
        if (strcmp(samples, rows[i].lines) != 0)
            fail_msg("row %zu gives\n%s", i, samples);
        free(text);
    }
}

/* Each family says what it is, once, before its samples. */
TEST(test_families)
{
    char *text = text_of("status", "{sessions: 1}");
    const char *help = strstr(text, "# HELP dloader_sessions Clients that are connected.\n"
                                    "# TYPE dloader_sessions gauge\n"
                                    "dloader_sessions 1\n");

    assert_non_null(help);
    assert_null(strstr(help + 1, "# HELP dloader_sessions "));
    assert_non_null(strstr(text, "# TYPE dloader_stage_seconds summary\n"));
    free(text);
}

/* Many rows are no matter of their square. */
TEST(test_many)
{
    enum { MANY = 20000 };
    struct value views[METRICS_VIEWS] = {0};
    struct value *view = &views[view_number("epochs")];
    struct dl_buffer out = {0};

    for (uint64_t i = 0; i < MANY; i++) {
        struct value *row;
        assert_int_equal(value_push(view, &row), 0);
        assert_int_equal(value_set_string(row, "loader", "a"), 0);
        assert_int_equal(value_set_uint(row, "rank", i / 2), 0);
        assert_int_equal(value_set_uint(row, "samples", i), 0);
    }
    assert_int_equal(metrics_write(views, &out), 0);
    assert_true(out.len >
                MANY / 2 * strlen("dloader_rank_samples_total{loader=\"a\",rank=\"0\"} 1"));
    value_deinit(view);
    buffer_deinit(&out);
}
