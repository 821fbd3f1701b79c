/*
 * The client as the sampler: the order of an epoch, step by step, as the user says it.
 *
 * What may be fed is bounded by steps: at most DL_MAX_FEED_AHEAD for each credit are under way
 * between here and dl_epoch_next(). The daemon counts those it has not delivered, which are never
 * more. A batch that is not whole yet has a place among them, so that it can always be sent.
 */
#include "client/internal.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>

static uint64_t feeding_batch_size(const struct dl_epoch *epoch)
{
    return max_u64(epoch->loader->batch_size, 1);
}

static bool feeding_has_room(const struct dl_epoch *epoch)
{
    uint64_t ahead = epoch->feed.steps - epoch->received;

    assert(epoch->feed.steps >= epoch->received);
    return !epoch_rules_of(epoch)->is_over && ahead < DL_MAX_FEED_AHEAD * epoch->credits &&
           connection_unsent(&epoch->loader->client->conn) <= FEED_OUTPUT_MAX;
}

/* 0 if the user may feed more. */
static int feeding_check(struct dl_epoch *epoch)
{
    struct dl_client *client = epoch->loader->client;
    uint64_t size = epoch->loader->batch_size;
    int r = client_begin(client);

    if (r < 0)
        return r;
    if (!epoch->feed.on)
        return client_fail(client, EINVAL, "sampler.kind",
                           "this loader has its own sampler; only sampler.kind client can be fed");
    if (epoch->feed.ended)
        return client_fail(client, EINVAL, "sampler.kind", "the order has already ended");
    if (size > DL_MAX_FEED_INDICES)
        return client_fail(client, EINVAL, "batch.size",
                           "%llu is above %llu, the most indices of a step that a client feeds",
                           (ull)size, (ull)DL_MAX_FEED_INDICES);
    return 0;
}

/* The batch that is held is kept until it has arrived. */
static int feeding_keep_step(struct dl_epoch *epoch)
{
    struct feed *feed = &epoch->feed;
    struct fed *fed = malloc(sizeof *fed + feed->n_buffered * sizeof fed->indices[0]);

    if (!fed)
        return client_fail(epoch->loader->client, ENOMEM, "batch.size", "no memory for indices");
    fed->next = NULL;
    fed->n = feed->n_buffered;
    for (uint32_t i = 0; i < feed->n_buffered; i++)
        fed->indices[i] = htole64(feed->batch[i]);
    if (feed->tail)
        feed->tail->next = fed;
    else
        feed->head = fed;
    feed->tail = fed;
    if (!feed->unsent)
        feed->unsent = fed;
    return 0;
}

/* Keeps the buffered batch, complete or last, as the next step; without one, only the end. Sends
 * what the daemon may have. */
static int feeding_say(struct dl_epoch *epoch)
{
    struct feed *feed = &epoch->feed;
    int r = 0;

    if (feed->n_buffered > 0)
        r = epoch->local ? local_epoch_feed(epoch, feed->batch, feed->n_buffered)
                         : feeding_keep_step(epoch);
    if (r < 0)
        return r;
    if (epoch->local && feed->ended)
        local_table_of(epoch->loader)->feed_end(epoch->local);
    feed->steps += feed->n_buffered > 0;
    feed->n_buffered = 0;
    feed_catch_up(epoch);
    return 0;
}

/* Room for the indices of one step, at least `n` words; the buffer must be empty. */
static int feeding_need_batch(struct dl_epoch *epoch, size_t n)
{
    struct feed *feed = &epoch->feed;

    if (feed->batch && n <= feed->cap)
        return 0;
    n = n > feeding_batch_size(epoch) ? n : feeding_batch_size(epoch);
    free(feed->batch);
    feed->cap = 0;
    feed->batch = calloc(n, sizeof *feed->batch);
    if (!feed->batch)
        return client_fail(epoch->loader->client, ENOMEM, "batch.size", "no memory for indices");
    feed->cap = n;
    return 0;
}

/* The most words of one step: pickled keys are not one word a sample. */
static uint64_t feeding_words_max(const struct dl_epoch *epoch, const uint64_t *indices, size_t n)
{
    return n > 2 && indices[0] == SLOT_KEYS_MARK ? DL_MAX_FEED_INDICES : feeding_batch_size(epoch);
}

/* Nothing is fed: everything that is under way must be received before. */
static int feeding_is_full(struct dl_epoch *epoch)
{
    return client_fail(epoch->loader->client, EAGAIN, "",
                       "%llu steps were fed and not received yet; call dl_epoch_next()",
                       (ull)(epoch->feed.steps - epoch->received));
}

/* The latched error, or 0. */
static int feeding_flush(struct dl_epoch *epoch)
{
    struct dl_client *client = epoch->loader->client;

    return client_flush(client) < 0 ? client_fatal(client) : 0;
}

int64_t dl_epoch_feed(struct dl_epoch *epoch, const uint64_t *indices, size_t n)
{
    struct feed *feed = &epoch->feed;
    size_t taken = 0;
    int r = feeding_check(epoch);

    if (r == 0)
        r = feeding_need_batch(epoch, 1);
    while (r == 0 && taken < n && feeding_has_room(epoch)) {
        feed->batch[feed->n_buffered++] = indices[taken++];
        if (feed->n_buffered < feeding_batch_size(epoch))
            continue;
        r = feeding_say(epoch);
        if (r < 0) { /* no memory for it here: it is not taken */
            feed->n_buffered--;
            taken--;
        }
        /* Written as soon as there is much of it: what the daemon has read leaves room. */
        if (r == 0 && connection_unsent(&epoch->loader->client->conn) > FEED_OUTPUT_MAX)
            r = feeding_flush(epoch);
    }
    if (r == 0)
        r = feeding_flush(epoch);
    if (r < 0 && (taken == 0 || connection_check(&epoch->loader->client->conn) < 0))
        return r;
    return taken == 0 && n > 0 ? feeding_is_full(epoch) : (int64_t)taken;
}

int dl_epoch_feed_batch(struct dl_epoch *epoch, const uint64_t *indices, size_t n)
{
    struct feed *feed = &epoch->feed;
    struct dl_client *client = epoch->loader->client;
    int r = feeding_check(epoch);

    if (r < 0)
        return r;
    if (feed->n_buffered > 0)
        return client_fail(client, EINVAL, "indices",
                           "%u indices of dl_epoch_feed() wait for their batch of %llu: feed the "
                           "rest of it first",
                           feed->n_buffered, (ull)feeding_batch_size(epoch));
    if (n == 0 || n > feeding_words_max(epoch, indices, n))
        return client_fail(client, EINVAL, "indices", "%zu for a step, which has 1 to %llu", n,
                           (ull)feeding_batch_size(epoch));
    if (!feeding_has_room(epoch))
        return feeding_is_full(epoch);
    r = feeding_need_batch(epoch, n);
    if (r < 0)
        return r;
    memcpy(feed->batch, indices, n * sizeof *indices);
    feed->n_buffered = (uint32_t)n;
    r = feeding_say(epoch);
    if (r < 0) {
        feed->n_buffered = 0; /* nothing was taken */
        return r;
    }
    if (epoch->local)
        return 0;
    epoch_flush_if_due(epoch);
    return connection_check(&client->conn) < 0 ? client_fatal(client) : 0;
}

int dl_epoch_feed_end(struct dl_epoch *epoch)
{
    int r = feeding_check(epoch);

    if (r < 0)
        return r;
    if (epoch->loader->drop_last)
        epoch->feed.n_buffered = 0;
    epoch->feed.ended = true;
    if (!epoch_rules_of(epoch)->is_over)
        r = feeding_say(epoch);
    if (r < 0)
        epoch->feed.ended = false; /* so that the end is sent again */
    return r < 0 ? r : feeding_flush(epoch);
}
