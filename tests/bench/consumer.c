/*
 * The benchmark's trainer: opens a loader spec through libdlclient as a stranger's program would,
 * runs epochs, touches each batch, and reports the times of every epoch as one line of JSON.
 *
 * An epoch's `seconds` run from before dl_epoch_start() until after dl_epoch_end(), so that the
 * cost of starting and ending is in its rate; `first_batch_s` from before dl_epoch_start() until
 * the first batch is in hand and touched. Each epoch has a number of its own: no order comes twice.
 */
#include "client/dlclient.h"
#include "tests/bench/bench.h"

#include <getopt.h>

struct options {
    const char *spec;
    const char *socket; /* may be NULL */
    uint64_t epochs;    /* of one run, at most; 0: by time alone */
    uint64_t epoch_offset;
    uint64_t batches; /* of one epoch, at most; 0: all */
    double seconds;   /* no further epoch of a run is started after so long */
    enum touch touch;
    bool serve;
};

struct epoch_times {
    uint64_t number;
    uint64_t batches;
    uint64_t bytes;
    double seconds;
    double first_batch_s;
    double wait_s;
};

/* The epochs of a run, kept until it is over: printing inside it would be measured. */
struct run {
    struct epoch_times *epochs; /* owned */
    size_t n;
    size_t room;
};

static struct epoch_times *run_add(struct run *run)
{
    if (run->n == run->room) {
        size_t room = run->room ? 2 * run->room : 64;
        struct epoch_times *grown = realloc(run->epochs, room * sizeof *grown);
        if (!grown)
            return NULL;
        run->epochs = grown;
        run->room = room;
    }
    run->epochs[run->n] = (struct epoch_times){0};
    return &run->epochs[run->n++];
}

static int fail(const struct dl_client *client, const char *what, int r)
{
    const char *text = client ? dl_client_error(client) : "";

    fprintf(stderr, "consumer: cannot %s: %s\n", what, *text ? text : strerror(-r));
    return r;
}

static int touch_batch(struct dl_batch *batch, enum touch touch)
{
    uint32_t nodes = touch == TOUCH_NONE ? 0 : dl_batch_nodes(batch);

    for (uint32_t i = 0; i < nodes; i++) {
        struct dl_node node;
        int r = dl_batch_node(batch, i, &node);
        if (r < 0)
            return r;
        if (node.kind == DL_NODE_TENSOR)
            bench_touch(node.tensor.data, node.tensor.nbytes, touch);
    }
    return 0;
}

static int consume(struct dl_epoch *epoch, const struct options *opt, double begun,
                   struct epoch_times *times)
{
    uint64_t most = opt->batches ? opt->batches : UINT64_MAX;

    while (times->batches < most) {
        struct dl_batch *batch;
        int r = dl_epoch_next(epoch, -1, &batch);
        if (r == DL_END)
            return 0;
        if (r < 0 || (r = touch_batch(batch, opt->touch)) < 0)
            return r;
        if (times->batches++ == 0)
            times->first_batch_s = bench_now_s() - begun;
        times->bytes += dl_batch_bytes(batch);
    }
    return 0;
}

static int run_epoch(struct dl_loader *loader, const struct options *opt, uint64_t number,
                     struct epoch_times *times)
{
    struct dl_epoch_options epoch_options = {.epoch = number, .world = 1};
    struct dl_epoch *epoch = NULL;
    double begun = bench_now_s();
    int r = dl_epoch_start(loader, &epoch_options, &epoch);

    if (r < 0)
        return r;
    times->number = number;
    r = consume(epoch, opt, begun, times);
    times->wait_s = (double)dl_epoch_wait_ns(epoch) * 1e-9;
    dl_epoch_end(epoch);
    times->seconds = bench_now_s() - begun;
    return r;
}

static void print_epoch(const struct epoch_times *t)
{
    printf("{\"epoch\": %llu, \"batches\": %llu, \"seconds\": %.9f, \"batches_per_s\": %.3f, "
           "\"first_batch_s\": %.9f, \"wait_s\": %.9f}",
           (unsigned long long)t->number, (unsigned long long)t->batches, t->seconds,
           (double)t->batches / t->seconds, t->first_batch_s, t->wait_s);
}

static void print_run(const struct run *run)
{
    struct epoch_times sum = {0};

    for (size_t i = 0; i < run->n; i++) {
        sum.batches += run->epochs[i].batches;
        sum.bytes += run->epochs[i].bytes;
        sum.seconds += run->epochs[i].seconds;
        sum.wait_s += run->epochs[i].wait_s;
    }
    printf("{\"version\": \"%s\", \"batches\": %llu, \"bytes\": %llu, \"seconds\": %.9f, "
           "\"batches_per_s\": %.3f, \"wait_s\": %.9f, \"epochs\": [",
           dl_version(), (unsigned long long)sum.batches, (unsigned long long)sum.bytes,
           sum.seconds, (double)sum.batches / sum.seconds, sum.wait_s);
    for (size_t i = 0; i < run->n; i++) {
        fputs(i ? ", " : "", stdout);
        print_epoch(&run->epochs[i]);
    }
    puts("]}");
    fflush(stdout);
}

/* One run: whole epochs until the time is over. *epoch is the next epoch's number. */
static int do_run(struct dl_loader *loader, const struct options *opt, uint64_t *epoch,
                  struct run *run)
{
    double begun = bench_now_s();

    run->n = 0;
    do {
        struct epoch_times *times = run_add(run);
        if (!times)
            return -ENOMEM;
        int r = run_epoch(loader, opt, (*epoch)++, times);
        if (r < 0)
            return r;
    } while (run->n != opt->epochs && bench_now_s() - begun < opt->seconds);
    print_run(run);
    return 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: consumer --spec FILE [--socket PATH] [--epochs N] [--seconds S]\n"
                    "                [--batches N] [--epoch-offset N] [--touch none|first|all]\n"
                    "                [--serve]\n");
    return 2;
}

static bool parse_options(int argc, char **argv, struct options *opt)
{
    static const struct option longs[] = {
        {"spec", required_argument, NULL, 'f'},
        {"socket", required_argument, NULL, 's'},
        {"epochs", required_argument, NULL, 'n'},
        {"epoch-offset", required_argument, NULL, 'e'},
        {"batches", required_argument, NULL, 'm'},
        {"seconds", required_argument, NULL, 't'},
        {"touch", required_argument, NULL, 'o'},
        {"serve", no_argument, NULL, 'S'},
        {0},
    };
    bool ok = true;

    for (int c; ok && (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        switch (c) {
        case 'f':
            opt->spec = optarg;
            break;
        case 's':
            opt->socket = optarg;
            break;
        case 'n':
            ok = bench_parse_u64(optarg, INT32_MAX, &opt->epochs);
            break;
        case 'e':
            ok = bench_parse_u64(optarg, INT64_MAX, &opt->epoch_offset);
            break;
        case 'm':
            ok = bench_parse_u64(optarg, UINT64_MAX, &opt->batches);
            break;
        case 't':
            ok = bench_parse_seconds(optarg, &opt->seconds);
            break;
        case 'o':
            ok = bench_parse_touch(optarg, &opt->touch);
            break;
        case 'S':
            opt->serve = true;
            break;
        default:
            ok = false;
        }
    }
    return ok && optind == argc && opt->spec;
}

/* Opens the spec and does the runs; says what went wrong. */
static int consumer(struct dl_client *client, const struct options *opt, struct run *run)
{
    struct dl_loader *loader = NULL;
    uint64_t epoch = opt->epoch_offset;
    int r = dl_loader_open_file(client, opt->spec, &loader);

    if (r < 0)
        return fail(client, "open the loader", r);
    for (uint64_t i = 0; bench_next_run(opt->serve, i); i++) {
        if ((r = do_run(loader, opt, &epoch, run)) < 0)
            return fail(client, "run an epoch", r);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct options opt = {.touch = TOUCH_FIRST, .seconds = 0.5};
    struct dl_client *client = NULL;
    struct run run = {0};
    int r;

    if (!parse_options(argc, argv, &opt))
        return usage();
    r = dl_client_connect(&client, opt.socket, "bench consumer");
    if (r < 0)
        fail(client, "connect", r);
    else
        r = consumer(client, &opt, &run);
    dl_client_close(client);
    free(run.epochs);
    return r < 0;
}
