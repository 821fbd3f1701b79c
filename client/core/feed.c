/*
 * The client as the sampler: the steps that it has fed, on their way to the daemon, and kept until
 * their batches have arrived. feeding.c takes them from the program.
 */
#include "client/core/core.h"

#include <assert.h>

bool feed_is_due(const struct dl_epoch *epoch)
{
    const struct feed *feed = &epoch->feed;

    return !feed->ended && feed->steps == epoch->received;
}

static void feed_send_step(struct dl_epoch *epoch, const struct fed *fed, bool end)
{
    struct feed *feed = &epoch->feed;
    struct dl_message msg = {.number = DL_MSG_FEED};

    msg.feed.stream = epoch->stream;
    msg.feed.end = feed->end_sent = end;
    if (fed)
        msg.feed.indices = (struct dl_span){.data = (const uint8_t *)fed->indices,
                                            .len = fed->n * sizeof *fed->indices};
    client_send(epoch->loader->client, &msg);
    epoch->n_feeds++;
}

static bool feed_may_send(const struct dl_epoch *epoch)
{
    return epoch->feed.ahead < DL_MAX_FEED_AHEAD * epoch->credits &&
           connection_unsent(&epoch->loader->client->conn) <= FEED_OUTPUT_MAX;
}

void feed_catch_up(struct dl_epoch *epoch)
{
    struct feed *feed = &epoch->feed;

    if (epoch->local || !epoch_rules_of(epoch)->daemon_sends)
        return;
    while (feed->unsent && feed_may_send(epoch)) {
        const struct fed *fed = feed->unsent;

        feed->unsent = fed->next;
        feed->ahead++;
        feed_send_step(epoch, fed, feed->ended && !fed->next);
    }
    if (feed->ended && !feed->end_sent && !feed->unsent)
        feed_send_step(epoch, NULL, true);
}

void feed_rewind(struct dl_epoch *epoch)
{
    struct feed *feed = &epoch->feed;

    feed->unsent = feed->head;
    feed->ahead = 0;
    feed->end_sent = false;
}

/* The first step that is kept is not needed any more. */
static void feed_drop_first(struct feed *feed)
{
    struct fed *fed = feed->head;

    assert(feed->first_buffered < feed->steps);
    if (feed->unsent == fed) /* a bad daemon delivered a step that it was not sent */
        feed->unsent = fed->next;
    feed->head = fed->next;
    if (!feed->head)
        feed->tail = NULL;
    feed->first_buffered++;
    free(fed);
}

void feed_arrived(struct dl_epoch *epoch)
{
    struct feed *feed = &epoch->feed;

    if (feed->ahead > 0)
        feed->ahead--;
    while (feed->head && feed->first_buffered < epoch->expected - epoch->first)
        feed_drop_first(feed);
}

void feed_deinit(struct feed *feed)
{
    while (feed->head)
        feed_drop_first(feed);
    free(feed->batch);
}

/*
 * Fed steps can wait and be sent together, since a message costs more than a small batch. The
 * daemon has half of what it may load ahead, less than a quarter waits here, and the user returns
 * at once: the daemon never waits for what is held back.
 */
bool feed_may_wait(const struct dl_epoch *epoch)
{
    uint64_t ahead = epoch->feed.steps - epoch->received;
    uint32_t waiting =
        epoch->n_feeds + epoch->n_releases + epoch->n_pins + epoch->n_former_returned;

    return epoch->hurried && !epoch->feed.ended && ahead >= epoch->credits / 2 + epoch->n_feeds &&
           waiting < epoch->credits / 4;
}
