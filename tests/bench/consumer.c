/*
 * The benchmark's trainer: opens a loader spec through libdlclient as a stranger's program would,
 * runs epochs, touches each batch, and reports the times of every epoch as one line of JSON.
 *
 * An epoch's `seconds` run from before dl_epoch_start() until after dl_epoch_end(), so that the
 * cost of starting and ending is in its rate; `first_batch_s` from before dl_epoch_start() until
 * the first batch is in hand and touched. Each epoch has a number of its own: no order comes twice.
 *
 * With --lengths it counts tokens: those of the samples, and those that their batches take. With
 * --pause it rests after each batch, as a trainer computes, and looks at each wait by itself.
 * --rank and --world make it one of several, which are processes of their own; --replica and
 * --replicas one of those that read the same batches.
 */
#include "client/dlclient.h"
#include "tests/bench/bench.h"

struct options {
    const char *spec;
    const char *socket; /* may be NULL */
    uint64_t epochs;    /* of one run, at most; 0: by time alone */
    uint64_t epoch_offset;
    uint64_t rank;
    uint64_t world;
    uint64_t replica;
    uint64_t replicas;   /* 0: it reads its rank's batches alone */
    uint64_t batches;    /* of one epoch, at most; 0: all */
    double seconds;      /* no further epoch of a run is started after so long */
    unsigned touch;      /* an enum touch */
    const char *lengths; /* may be NULL: a uint32_t for each sample */
    double pause;        /* seconds, after each batch; below 0: none, and waits are not told */
    bool serve;
};

struct epoch_times {
    uint64_t number;
    uint64_t batches;
    uint64_t bytes;
    uint64_t tokens; /* of its samples */
    uint64_t padded; /* elements of its tokens, padding included */
    double seconds;
    double first_batch_s;
    double wait_s;
};

/* The epochs of a run, kept until it is over: printing inside it would be measured. */
struct run {
    struct epoch_times *epochs; /* owned */
    size_t n;
    size_t room;
    struct bench_waits waits;
    uint32_t *lengths; /* owned; of each sample of the dataset; NULL: tokens are not counted */
    size_t n_lengths;
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

/* The lengths that the batch tells, or, where it is measured in samples, those of the file. */
static int count_tokens(const struct run *run, struct dl_batch *batch, struct epoch_times *times)
{
    const uint32_t *lengths;
    const uint64_t *indices;
    struct dl_tensor tokens;
    uint64_t padded;
    size_t n;
    int r;

    r = dl_batch_tensor(batch, "tokens", &tokens);
    if (r < 0)
        return r;
    times->padded += tokens.nbytes / dl_type_bytes(tokens.dtype);
    r = dl_batch_lengths(batch, &lengths, &n, &padded);
    if (r == 0) {
        for (size_t i = 0; i < n; i++)
            times->tokens += lengths[i];
        return 0;
    }
    indices = dl_batch_indices(batch, &n);
    for (size_t i = 0; i < n; i++) {
        if (indices[i] >= run->n_lengths)
            return -ERANGE;
        times->tokens += run->lengths[indices[i]];
    }
    return 0;
}

/* Everything that is done with a batch but touching it. */
static bool tells_waits(const struct options *opt)
{
    return opt->pause >= 0;
}

static int look_at(struct run *run, const struct options *opt, struct dl_batch *batch, double wait,
                   struct epoch_times *times)
{
    int r = 0;

    times->bytes += dl_batch_bytes(batch);
    if (run->lengths)
        r = count_tokens(run, batch, times);
    if (tells_waits(opt) && r == 0) {
        r = bench_waits_add(&run->waits, wait);
        bench_rest(opt->pause);
    }
    return r;
}

static int consume(struct dl_epoch *epoch, const struct options *opt, double begun, struct run *run,
                   struct epoch_times *times)
{
    uint64_t most = opt->batches ? opt->batches : UINT64_MAX;

    while (times->batches < most) {
        struct dl_batch *batch;
        double asked = tells_waits(opt) ? bench_now_s() : 0;
        int r = dl_epoch_next(epoch, -1, &batch);
        double wait = tells_waits(opt) ? bench_now_s() - asked : 0;
        if (r == DL_END)
            return 0;
        if (r < 0 || (r = touch_batch(batch, opt->touch)) < 0)
            return r;
        if (times->batches++ == 0)
            times->first_batch_s = bench_now_s() - begun;
        r = look_at(run, opt, batch, wait, times);
        if (r < 0)
            return r;
    }
    return 0;
}

static int run_epoch(struct dl_loader *loader, const struct options *opt, uint64_t number,
                     struct run *run, struct epoch_times *times)
{
    struct dl_epoch_options epoch_options = {.epoch = number,
                                             .rank = (uint32_t)opt->rank,
                                             .world = (uint32_t)opt->world,
                                             .replica = (uint32_t)opt->replica,
                                             .replicas = (uint32_t)opt->replicas};
    struct dl_epoch *epoch = NULL;
    double begun = bench_now_s();
    int r = dl_epoch_start(loader, &epoch_options, &epoch);

    if (r < 0)
        return r;
    times->number = number;
    r = consume(epoch, opt, begun, run, times);
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

static void print_run(struct run *run)
{
    struct epoch_times sum = {0};

    for (size_t i = 0; i < run->n; i++) {
        sum.batches += run->epochs[i].batches;
        sum.bytes += run->epochs[i].bytes;
        sum.tokens += run->epochs[i].tokens;
        sum.padded += run->epochs[i].padded;
        sum.seconds += run->epochs[i].seconds;
        sum.wait_s += run->epochs[i].wait_s;
    }
    printf("{\"version\": \"%s\", \"batches\": %llu, \"bytes\": %llu, \"seconds\": %.9f, "
           "\"batches_per_s\": %.3f, \"wait_s\": %.9f, ",
           dl_version(), (unsigned long long)sum.batches, (unsigned long long)sum.bytes,
           sum.seconds, (double)sum.batches / sum.seconds, sum.wait_s);
    if (run->lengths)
        printf("\"tokens\": %llu, \"padded\": %llu, ", (unsigned long long)sum.tokens,
               (unsigned long long)sum.padded);
    bench_waits_print(&run->waits);
    fputs("\"epochs\": [", stdout);
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
    run->waits.n = 0;
    do {
        struct epoch_times *times = run_add(run);
        if (!times)
            return -ENOMEM;
        int r = run_epoch(loader, opt, (*epoch)++, run, times);
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
                    "                [--lengths FILE] [--pause S] [--rank R --world W]\n"
                    "                [--replica R --replicas N] [--serve]\n");
    return 2;
}

static bool parse_options(int argc, char **argv, struct options *opt)
{
    const struct bench_option options[] = {
        {"spec", .text = &opt->spec},
        {"socket", .text = &opt->socket},
        {"epochs", .number = &opt->epochs, .max = INT32_MAX},
        {"epoch-offset", .number = &opt->epoch_offset, .max = INT64_MAX},
        {"batches", .number = &opt->batches, .max = UINT64_MAX},
        {"seconds", .seconds = &opt->seconds},
        {"touch", .choice = &opt->touch, .names = bench_touches},
        {"lengths", .text = &opt->lengths},
        {"pause", .seconds = &opt->pause},
        {"rank", .number = &opt->rank, .max = UINT32_MAX},
        {"world", .number = &opt->world, .max = UINT32_MAX},
        {"replica", .number = &opt->replica, .max = UINT32_MAX},
        {"replicas", .number = &opt->replicas, .max = UINT32_MAX},
        {"serve", .flag = &opt->serve},
        {0},
    };

    return bench_parse(argc, argv, options) && opt->spec;
}

static int read_lengths(const char *path, struct run *run)
{
    FILE *file = fopen(path, "rbe");
    long bytes = -1;
    bool ok;

    if (!file)
        return -errno;
    if (fseek(file, 0, SEEK_END) == 0)
        bytes = ftell(file);
    rewind(file);
    run->n_lengths = bytes > 0 ? (size_t)bytes / sizeof *run->lengths : 0;
    run->lengths = calloc(run->n_lengths + 1, sizeof *run->lengths);
    ok = run->lengths &&
         fread(run->lengths, sizeof *run->lengths, run->n_lengths, file) == run->n_lengths;
    fclose(file);
    return ok ? 0 : -EIO;
}

/* The file of lengths has to be of the loader's dataset. */
static int open_loader(struct dl_client *client, const struct options *opt, struct run *run,
                       struct dl_loader **ret)
{
    int r = opt->lengths ? read_lengths(opt->lengths, run) : 0;

    if (r < 0)
        return fail(NULL, "read the lengths", r);
    r = dl_loader_open_file(client, opt->spec, ret);
    if (r < 0)
        return fail(client, "open the loader", r);
    if (run->lengths && run->n_lengths != dl_loader_length(*ret))
        return fail(NULL, "count tokens: there are other lengths than samples", -EINVAL);
    return 0;
}

/* Opens the spec and does the runs; says what went wrong. */
static int consumer(struct dl_client *client, const struct options *opt, struct run *run)
{
    struct dl_loader *loader = NULL;
    uint64_t epoch = opt->epoch_offset;
    int r = open_loader(client, opt, run, &loader);

    if (r < 0)
        return r;
    for (uint64_t i = 0; bench_next_run(opt->serve, i); i++) {
        if ((r = do_run(loader, opt, &epoch, run)) < 0)
            return fail(client, "run an epoch", r);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct options opt = {.touch = TOUCH_FIRST, .seconds = 0.5, .pause = -1, .world = 1};
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
    free(run.waits.seconds);
    free(run.lengths);
    return r < 0;
}
