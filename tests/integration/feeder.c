/*
 * A trainer that is its own sampler, over the public library: feeds the order that it reads from
 * standard input, one step's indices a line, and prints what it receives, one step a line: its
 * number and its indices, or "fault" and the error's text.
 *
 *     feeder SOCKET SPEC [batch|flat] [RANK WORLD CREDITS STOP_AFTER PAUSE_US]
 *
 * SOCKET "": without a daemon. "flat" feeds all indices in a row, some at a time, and leaves the
 * batches to the library. STOP_AFTER: batches received before it leaves the epoch and starts it
 * anew with the same order; 0: never. PAUSE_US: before each feeding. An order beyond the credits is
 * a failure of the library: exit status 3; another failure: 1, with its text.
 */
#include "client/dlclient.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1 << 20, STEPS_MAX = 4096, PIECE = 7 };

struct order {
    uint64_t *indices; /* owned; all in a row */
    size_t n;
    size_t ends[STEPS_MAX]; /* of each step */
    size_t steps;
};

struct run {
    struct dl_client *client;
    struct dl_epoch *epoch;
    const struct order *order;
    int flat;
    uint32_t credits;
    useconds_t pause;
    size_t fed;      /* steps, or indices if flat */
    size_t received; /* steps */
    int ended;
};

static int read_order(struct order *order)
{
    char *line = malloc(LINE_MAX_BYTES);

    while (line && fgets(line, LINE_MAX_BYTES, stdin) && order->steps < STEPS_MAX) {
        for (char *at = line, *end; *at && *at != '\n'; at = end + (*end == ' ')) {
            uint64_t *grown = realloc(order->indices, (order->n + 1) * sizeof *grown);
            if (!grown)
                break;
            order->indices = grown;
            order->indices[order->n++] = strtoull(at, &end, 10);
        }
        order->ends[order->steps++] = order->n;
    }
    free(line);
    return order->steps > 0 ? 0 : -EINVAL;
}

static int fail(const struct dl_client *client, int r)
{
    fprintf(stderr, "%s\n", client ? dl_client_error(client) : strerror(-r));
    return 1;
}

/* As much as has room: 0, or an error. */
static int feed(struct run *run)
{
    const struct order *order = run->order;
    size_t all = run->flat ? order->n : order->steps;
    int64_t r = 0;

    if (run->pause)
        usleep(run->pause);
    while (r >= 0 && run->fed < all) {
        if (run->flat) {
            size_t n = all - run->fed < PIECE ? all - run->fed : PIECE;
            r = dl_epoch_feed(run->epoch, order->indices + run->fed, n);
            run->fed += r > 0 ? (size_t)r : 0;
        } else {
            size_t from = run->fed ? order->ends[run->fed - 1] : 0;
            r = dl_epoch_feed_batch(run->epoch, order->indices + from,
                                    order->ends[run->fed] - from);
            run->fed += r == 0;
        }
        if (!run->flat && run->fed - run->received > 2UL * run->credits)
            exit(3);
    }
    if (r == -EAGAIN)
        return 0;
    if (r >= 0 && !run->ended) {
        run->ended = 1;
        r = dl_epoch_feed_end(run->epoch);
    }
    return r < 0 ? (int)r : 0;
}

static void print_step(struct dl_batch *batch)
{
    size_t n;
    const uint64_t *indices = dl_batch_indices(batch, &n);

    printf("%" PRIu64, dl_batch_step(batch));
    for (size_t i = 0; i < n; i++)
        printf(" %" PRIu64, indices[i]);
    printf("\n");
}

/* The whole epoch, or `stop` batches of it: DL_END, 0, or an error. */
static int iterate(struct run *run, size_t stop, int quiet)
{
    int r = 0;

    while (r == 0 && (stop == 0 || run->received < stop)) {
        struct dl_batch *batch;

        if (!run->ended && (r = feed(run)) < 0)
            return r;
        r = dl_epoch_next(run->epoch, -1, &batch);
        if (r == DL_END)
            return r;
        if (r == -ENODATA && !run->ended) {
            r = 0;
            continue;
        }
        run->received++;
        if (r < 0 && dl_client_is_usable(run->client)) {
            printf("fault %s\n", dl_client_error(run->client));
            r = 0;
        } else if (r == 0 && !quiet) {
            print_step(batch);
        }
    }
    return r;
}

int main(int argc, char **argv)
{
    struct order order = {0};
    struct run run = {.order = &order};
    struct dl_loader *loader;
    size_t number[5] = {0, 1, 0, 0, 0};
    int r;

    if (argc < 4 || read_order(&order) < 0)
        return 2;
    for (int i = 4; i < argc && i < 9; i++)
        number[i - 4] = strtoull(argv[i], NULL, 10);
    struct dl_epoch_options options = {
        .rank = (uint32_t)number[0], .world = (uint32_t)number[1], .credits = (uint32_t)number[2]};
    run.flat = strcmp(argv[3], "flat") == 0;
    run.credits = options.credits;
    run.pause = (useconds_t)number[4];
    r = argv[1][0] ? dl_client_connect(&run.client, argv[1], "feeder")
                   : dl_client_connect_local(&run.client);
    if (r == 0)
        r = dl_loader_open_file(run.client, argv[2], &loader);
    if (r == 0)
        r = dl_epoch_start(loader, &options, &run.epoch);
    if (r == 0 && number[3] > 0) {
        r = iterate(&run, number[3], 1);
        dl_epoch_end(run.epoch);
        run.fed = run.received = 0;
        run.ended = 0;
        if (r >= 0)
            r = dl_epoch_start(loader, &options, &run.epoch);
    }
    if (r >= 0)
        r = iterate(&run, 0, 0);
    int status = r < 0 ? fail(run.client, r) : 0;
    dl_client_close(run.client);
    free(order.indices);
    return status;
}
