/*
 * `dlctl fetch`: has the daemon read what an epoch reads, so that it holds the remote files of a
 * loader before somebody trains. It takes the batches of all the epoch, and drops them: no other
 * way reads just that, and finds out what cannot be read.
 */
#include "client/dlctl/ask.h"
#include "client/dlctl/options.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "client/dlctl/run/opening.h"
#include "proto/common/figures.h"
#include "proto/value.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* What is held may be so much below the limit when it is full: a part that is fetched at once. */
enum { WARM_FULL_BYTES = 4 << 20 };

/* Of the view `remote`. */
static const char *const warm_keys[] = {"requests",        "received_bytes",    "repeated",
                                        "failed",          "from_store_bytes",  "from_peers_bytes",
                                        "from_disk_bytes", "from_memory_bytes", "held_bytes",
                                        "limit_bytes",     "kept_bytes",        "kept_limit_bytes"};
enum warm_count {
    WARM_REQUESTS,
    WARM_RECEIVED,
    WARM_REPEATED,
    WARM_FAILED,
    WARM_FROM_STORE,
    WARM_FROM_PEERS,
    WARM_FROM_DISK,
    WARM_FROM_MEMORY,
    WARM_HELD, /* this and the next are as it is now */
    WARM_LIMIT,
    WARM_KEPT,
    WARM_KEPT_LIMIT,
    WARM_COUNTS
};

struct warm {
    const struct options *o;
    struct dl_client *client; /* owned */
    struct dl_loader *loader; /* owned by the client */
    struct dl_epoch *epoch;   /* owned */
    struct opening opening;
    struct progress progress;
    uint64_t before[WARM_COUNTS]; /* when it began */
    uint64_t now[WARM_COUNTS];
    uint64_t batches, samples;
    uint64_t bad; /* samples that were left out or replaced, before */
    double seconds;
};

static void warm_deinit(struct warm *warm)
{
    progress_end(&warm->progress);
    warm->epoch = dl_epoch_end(warm->epoch);
    dl_loader_close(warm->loader);
    dl_client_close(warm->client);
}

static uint64_t warm_more(const struct warm *warm, enum warm_count count)
{
    return warm->now[count] - min_u64(warm->before[count], warm->now[count]);
}

/* ---- the daemon's views --------------------------------------------------------------------- */

static int warm_look(struct warm *warm, uint64_t ret[static WARM_COUNTS])
{
    _cleanup_(value_deinit) struct value view = {0};
    int r = ask_view(warm->client, "remote", &view);

    for (size_t i = 0; i < WARM_COUNTS && r == 0; i++)
        ret[i] = value_count(value_get(&view, warm_keys[i]));
    return r;
}

static bool warm_is_ours(const struct warm *warm, const struct value *row, const char *key)
{
    const struct value *name = value_get(row, key);

    return name && name->type == VALUE_STRING &&
           strcmp(name->string, dl_loader_name(warm->loader)) == 0;
}

/* Samples that the loader has left out or replaced so far. */
static int warm_count_bad(struct warm *warm, uint64_t *ret)
{
    _cleanup_(value_deinit) struct value view = {0};
    int r = ask_view(warm->client, "loaders", &view);

    *ret = 0;
    for (uint32_t i = 0; r == 0 && view.type == VALUE_ARRAY && i < view.count; i++)
        if (warm_is_ours(warm, &view.items[i], "name"))
            *ret += value_count(value_get(&view.items[i], "bad"));
    return r;
}

/* -ENOENT with `err`: no file of the loader is remote. */
static int warm_check(struct warm *warm, struct dl_error *err)
{
    _cleanup_(value_deinit) struct value view = {0};
    int r = ask_view(warm->client, "workers", &view);

    for (uint32_t i = 0; r == 0 && view.type == VALUE_ARRAY && i < view.count; i++) {
        const struct value *waited = value_get(&view.items[i], "remote_s");

        if (warm_is_ours(warm, &view.items[i], "loader") && waited && waited->type != VALUE_NULL)
            return 0;
    }
    return r < 0 ? r
                 : dl_error_set(err, ENOENT, warm->o->operand,
                                "none of its files is remote (s3://, gs://, hf://, https://, "
                                "http://): there is nothing to fetch");
}

/* ---- reading -------------------------------------------------------------------------------- */

static int warm_begin(struct warm *warm)
{
    const struct dl_epoch_options options = {
        .size = sizeof options, .epoch = warm->o->epoch, .world = 1};
    int r = dl_client_connect(&warm->client, warm->o->socket, "dlctl fetch " DLOADER_VERSION);

    if (r == 0)
        r = warm_look(warm, warm->before);
    if (r < 0)
        return r;
    opening_begin(&warm->opening, warm->client, warm->o);
    r = open_operand(warm->client, warm->o->operand, &warm->loader);
    opening_end(&warm->opening);
    if (r == 0)
        r = warm_count_bad(warm, &warm->bad);
    return r < 0 ? r : dl_epoch_start(warm->loader, &options, &warm->epoch);
}

static int warm_draw(struct warm *warm)
{
    int r = warm_look(warm, warm->now);

    if (r == 0)
        progress_draw_fetched(&warm->progress, warm->batches, warm_more(warm, WARM_RECEIVED),
                              warm_more(warm, WARM_REQUESTS));
    return r;
}

static int warm_all(struct warm *warm)
{
    uint64_t begin = clock_ns();
    struct dl_batch *batch;
    int r;

    progress_begin(&warm->progress, dl_epoch_steps(warm->epoch), warm->o->quiet || warm->o->json);
    while ((r = dl_epoch_next(warm->epoch, -1, &batch)) == 0) {
        size_t samples;

        dl_batch_indices(batch, &samples);
        warm->batches++;
        warm->samples += samples;
        if (progress_due(&warm->progress) && (r = warm_draw(warm)) < 0)
            return r;
    }
    warm->seconds = (double)(clock_ns() - begin) / 1e9;
    if (r == DL_END && warm->progress.on && warm->progress.bar)
        r = warm_draw(warm); /* the last one may have been the first */
    else if (r == DL_END)
        r = warm_look(warm, warm->now);
    progress_end(&warm->progress);
    return r;
}

/* ---- what came of it ------------------------------------------------------------------------ */

/* In memory, or on disk. */
static bool warm_fits(const struct warm *warm)
{
    return warm->now[WARM_HELD] + WARM_FULL_BYTES <= warm->now[WARM_LIMIT] ||
           warm->now[WARM_KEPT] + WARM_FULL_BYTES <= warm->now[WARM_KEPT_LIMIT];
}

static int warm_report_json(const struct warm *warm)
{
    json_t *json = json_pack(
        "{s:o, s:o, s:o, s:o, s:f, s:b}", "loader", render_json_text(dl_loader_name(warm->loader)),
        "epoch", render_json_u64(warm->o->epoch), "batches", render_json_u64(warm->batches),
        "samples", render_json_u64(warm->samples), "seconds", warm->seconds, "fits",
        warm_fits(warm));

    for (int i = 0; i < WARM_COUNTS && json; i++) {
        uint64_t n = i < WARM_HELD ? warm_more(warm, i) : warm->now[i];

        if (json_object_set_new(json, warm_keys[i], render_json_u64(n)) < 0) {
            json_decref(json);
            json = NULL;
        }
    }
    return report_json(warm->o, json);
}

/* "1.2 GiB from the store by 3.4k requests in 12 s (100 MiB/s); 3.0 MiB were there" */
static int warm_report(const struct warm *warm)
{
    char store[UNITS_MAX], peers[UNITS_MAX], disk[UNITS_MAX], memory[UNITS_MAX], held[UNITS_MAX],
        limit[UNITS_MAX], rate[UNITS_MAX], seconds[UNITS_MAX];
    double received = (double)warm_more(warm, WARM_RECEIVED);

    if (warm->o->json)
        return warm_report_json(warm);
    format_bytes(received, store, sizeof store);
    format_bytes((double)warm_more(warm, WARM_FROM_PEERS), peers, sizeof peers);
    format_bytes((double)warm_more(warm, WARM_FROM_DISK), disk, sizeof disk);
    format_bytes((double)warm_more(warm, WARM_FROM_MEMORY), memory, sizeof memory);
    format_bytes((double)warm->now[WARM_HELD], held, sizeof held);
    format_bytes((double)warm->now[WARM_LIMIT], limit, sizeof limit);
    format_bytes(warm->seconds > 0 ? received / warm->seconds : 0, rate, sizeof rate);
    format_seconds(warm->seconds, seconds, sizeof seconds);
    printf("epoch %" PRIu64 ": %" PRIu64 " samples in %s\n", warm->o->epoch, warm->samples,
           seconds);
    printf("from the store: %s by %" PRIu64 " requests, %s/s; repeated %" PRIu64 "\n", store,
           warm_more(warm, WARM_REQUESTS), rate, warm_more(warm, WARM_REPEATED));
    if (warm_more(warm, WARM_FROM_PEERS) > 0)
        printf("from peers: %s\n", peers);
    printf("from disk: %s\nfrom memory: %s\n", disk, memory);
    printf("held: %s of %s%s\n", held, limit,
           warm_fits(warm) ? ""
                           : "; it is full: what was used longest ago has gone or goes next; "
                             "for more raise remote.held in dloaderd.conf, or set cache.size");
    return STATUS_DONE;
}

/* What could not be read, where the spec has it left out: the epoch continues, and this fails. */
static int warm_find_bad(struct warm *warm, struct dl_error *err)
{
    const char *name = dl_loader_name(warm->loader);
    uint64_t bad;
    int r = warm_count_bad(warm, &bad);

    if (r < 0 || bad <= warm->bad)
        return r;
    return dl_error_set(err, EIO, name,
                        "%" PRIu64 " of its samples could not be read, and are left out or "
                        "replaced; dlctl quarantine %s lists them",
                        bad - warm->bad, name);
}

int verb_fetch(const struct options *o)
{
    _cleanup_(warm_deinit) struct warm warm = {.o = o};
    struct dl_error err = {0};
    int r = warm_begin(&warm);

    if (r == 0)
        r = warm_check(&warm, &err);
    if (r == 0)
        r = warm_all(&warm);
    if (r == 0)
        r = warm_find_bad(&warm, &err);
    progress_end(&warm.progress);
    if (err.code)
        return report_error(o, &err);
    return r < 0 ? report_client(o, warm.client, r) : warm_report(&warm);
}
