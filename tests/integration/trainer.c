/*
 * A trainer over the public library, which prints what it receives, one step a line: its epoch, its
 * number and its indices. It can hold batches by pins, and looks whether they stay what they were.
 *
 *     trainer SOCKET SPEC [key=value ...]
 *
 * SOCKET "": as the library finds it.
 * epoch ("resume": DL_RESUME), epochs, rank, world, step, credits, job: as in struct
 * dl_epoch_options, 1 epoch by default; of the first epoch it prints "at" and where it begins;
 * pause_us: after each batch; pins: batches that it holds beside the current one, the oldest of
 * which it then releases; channel: a descriptor, of the way to a host that is brought as
 * number 1. A batch that changed while it was held: exit status 3; another failure: 1, with its
 * text.
 */
#include "client/dlclient.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PINS_MAX = 256 };

struct options {
    uint64_t epoch, epochs, rank, world, step, credits, pause_us, pins, channel;
    const char *job;
};

struct held {
    struct dl_batch *batch;
    uint64_t sum;
};

struct trainer {
    struct options o;
    struct dl_client *client;
    struct dl_loader *loader;
    struct held held[PINS_MAX]; /* a ring */
    uint64_t pinned, released;  /* in all */
    uint64_t next;              /* epoch */
};

static int read_option(struct options *o, const char *text)
{
    const struct {
        const char *key;
        uint64_t *value;
    } keys[] = {
        {"epoch=", &o->epoch}, {"epochs=", &o->epochs},     {"rank=", &o->rank},
        {"world=", &o->world}, {"step=", &o->step},         {"credits=", &o->credits},
        {"pins=", &o->pins},   {"pause_us=", &o->pause_us}, {"channel=", &o->channel},
    };

    if (strncmp(text, "job=", 4) == 0) {
        o->job = text + 4;
        return 0;
    }
    if (strcmp(text, "epoch=resume") == 0) {
        o->epoch = DL_RESUME;
        return 0;
    }
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strncmp(text, keys[i].key, strlen(keys[i].key)) == 0) {
            *keys[i].value = strtoull(text + strlen(keys[i].key), NULL, 10);
            return 0;
        }
    return -1;
}

/* Of the bytes of all tensors, and the indices. */
static uint64_t sum_of(struct dl_batch *batch)
{
    uint64_t sum = dl_batch_step(batch) + 1;
    const uint64_t *indices;
    struct dl_node node;
    size_t n;

    indices = dl_batch_indices(batch, &n);
    for (size_t i = 0; i < n; i++)
        sum = sum * 31 + indices[i];
    for (uint32_t i = 0; i < dl_batch_nodes(batch); i++) {
        if (dl_batch_node(batch, i, &node) < 0)
            continue;
        for (uint64_t k = 0; k < node.tensor.nbytes; k++)
            sum = sum * 31 + ((const uint8_t *)node.tensor.data)[k];
    }
    return sum;
}

static void release_oldest(struct trainer *t)
{
    struct held *oldest = &t->held[t->released++ % PINS_MAX];

    if (sum_of(oldest->batch) != oldest->sum) {
        fprintf(stderr, "step %" PRIu64 " has changed while it was held\n",
                dl_batch_step(oldest->batch));
        exit(3);
    }
    dl_batch_release(oldest->batch);
}

static int hold(struct trainer *t, struct dl_batch *batch)
{
    int r = dl_batch_pin(batch);

    if (r < 0)
        return r;
    t->held[t->pinned++ % PINS_MAX] = (struct held){batch, sum_of(batch)};
    if (t->pinned - t->released > t->o.pins)
        release_oldest(t);
    return 0;
}

static void print_step(uint64_t epoch, const struct dl_batch *batch)
{
    size_t n;
    const uint64_t *indices = dl_batch_indices(batch, &n);

    printf("%" PRIu64 " %" PRIu64, epoch, dl_batch_step(batch));
    for (size_t i = 0; i < n; i++)
        printf(" %" PRIu64, indices[i]);
    printf("\n");
    fflush(stdout);
}

/* One epoch; t->next follows it. */
static int train(struct trainer *t, uint64_t number)
{
    struct dl_epoch_options options = {.epoch = number,
                                       .rank = (uint32_t)t->o.rank,
                                       .world = (uint32_t)t->o.world,
                                       .step = number == t->o.epoch ? t->o.step : 0,
                                       .credits = (uint32_t)t->o.credits,
                                       .job = t->o.job};
    struct dl_epoch *epoch;
    struct dl_batch *batch;
    int r = dl_epoch_start(t->loader, &options, &epoch);

    if (r == 0 && t->o.job && number == t->o.epoch) {
        printf("at %" PRIu64 " %" PRIu64 "\n", dl_epoch_number(epoch), dl_epoch_first(epoch));
        fflush(stdout);
    }
    if (r == 0)
        t->next = (number = dl_epoch_number(epoch)) + 1;
    while (r == 0 && (r = dl_epoch_next(epoch, -1, &batch)) == 0) {
        print_step(number, batch);
        if (t->o.pins > 0)
            r = hold(t, batch);
        if (t->o.pause_us > 0)
            usleep((useconds_t)t->o.pause_us);
    }
    if (r >= 0)
        dl_epoch_end(epoch);
    return r;
}

int main(int argc, char **argv)
{
    struct trainer t = {.o = {.epochs = 1, .world = 1}};
    int r;

    for (int i = 3; i < argc; i++)
        if (read_option(&t.o, argv[i]) < 0)
            return 2;
    if (argc < 3 || t.o.pins >= PINS_MAX)
        return 2;
    r = dl_client_connect(&t.client, argv[1][0] ? argv[1] : NULL, "trainer");
    if (r == 0 && t.o.channel)
        r = dl_client_bring_host(t.client, (int)t.o.channel, 1);
    if (r == 0)
        r = dl_loader_open_file(t.client, argv[2], &t.loader);
    t.next = t.o.epoch;
    for (uint64_t i = 0; i < t.o.epochs && r >= 0; i++)
        r = train(&t, t.next);
    while (r >= 0 && t.released < t.pinned)
        release_oldest(&t);
    if (r < 0)
        fprintf(stderr, "%s\n", dl_client_error(t.client));
    dl_client_close(t.client);
    return r < 0;
}
