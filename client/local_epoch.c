/*
 * Epochs of a loader whose batches are made in the client's own process: local.c.
 */
#include "client/internal.h"
#include "proto/shared/words.h"

#include <assert.h>
#include <errno.h>

/* A batch needs `need` bytes: all later ones get as much, and some more if there is plenty. */
static void local_enlarge(struct private_memory *memory, uint64_t need)
{
    uint64_t roomy = align_up(need + need / 4, SLOT_ALIGN);

    memory->slot_bytes = roomy <= memory->limit / 2 ? roomy : align_up(need, SLOT_ALIGN);
}

static void local_warn_of_passing(struct dl_epoch *epoch, const struct local_facts *facts)
{
    char text[512];

    if (!facts->iterable || facts->can_skip || epoch->first == 0 || epoch->saved_states.workers)
        return;
    words_passing(facts->label, epoch->first, facts->batch_size, text, sizeof text);
    epoch_set_warning(epoch, text);
}

int local_epoch_start(struct dl_epoch *epoch, uint32_t rank)
{
    struct dl_loader *loader = epoch->loader;
    struct local_start where = {.epoch = epoch->number,
                                .step = epoch->first,
                                .rank = rank,
                                .world = (uint32_t)epoch->world,
                                .before = &epoch->before,
                                .state = saved_states_first(epoch),
                                .changes = weights_of(loader)};
    struct local_extent extent;
    struct local_facts facts;
    struct dl_error err = {0};

    if (local_table_of(loader)->start(loader->local, &where, &epoch->local, &extent, &err) < 0)
        return client_fail_with(loader->client, &err);
    local_table_of(loader)->facts(loader->local, &facts);
    loader->weights.known = true;
    epoch->steps = extent.steps;
    epoch->samples = extent.samples;
    epoch->feed.on = facts.fed;
    local_warn_of_passing(epoch, &facts);
    epoch->next = loader->epochs;
    loader->epochs = epoch;
    return 0;
}

void local_epoch_end(struct dl_epoch *epoch)
{
    local_table_of(epoch->loader)->end(epoch->local);
    epoch->local = NULL;
}

int local_epoch_feed(struct dl_epoch *epoch, const uint64_t *indices, size_t n)
{
    struct dl_error err = {0};

    if (local_table_of(epoch->loader)->feed(epoch->local, indices, n, &err) < 0)
        return client_fail_with(epoch->loader->client, &err);
    return 0;
}

/* A step's own error, which must not be taken for what dl_epoch_next() says itself. */
static int local_step_failed(struct dl_epoch *epoch, struct dl_error *err)
{
    epoch->failed = epoch->first + epoch->received++;
    epoch->position = epoch->failed + 1;
    if (err->code == EAGAIN || err->code == ETIMEDOUT)
        err->code = EIO;
    return client_fail_with(epoch->loader->client, err);
}

/* The next batch in `mapping`: as the table's next(). */
static int local_make(struct dl_epoch *epoch, struct mapping *mapping, struct local_batch *ret,
                      struct dl_error *err)
{
    struct dl_loader *loader = epoch->loader;

    *ret = (struct local_batch){.slot = mapping->base, .bytes = mapping->bytes};
    int r = local_table_of(loader)->next(loader->local, epoch->local, ret, err);
    if (ret->warning)
        epoch_set_warning(epoch, ret->warning);
    if (r != -ENOBUFS)
        return r;
    if (align_up(ret->used, SLOT_ALIGN) > loader->memory.limit)
        return local_table_of(loader)->give_up(loader->local, epoch->local, ret, err);
    assert(ret->used > mapping->bytes);
    return -ENOBUFS;
}

/* Nothing is left to make, as far as is known without trying. */
static bool local_is_at_end(const struct dl_epoch *epoch)
{
    if (epoch->feed.on)
        return epoch->feed.ended && epoch->received == epoch->feed.steps;
    return !epoch->loader->iterable && epoch->received == epoch->steps - epoch->first;
}

/* 0 and a batch's memory, or what dl_epoch_next() says. */
static int local_load_batch(struct dl_epoch *epoch, struct mapping **ret,
                            struct local_batch *ret_batch)
{
    struct dl_loader *loader = epoch->loader;
    struct mapping *mapping = NULL;
    struct dl_error err = {0};
    int r;

    for (;;) {
        r = local_take_memory(loader, &mapping);
        if (r < 0)
            return local_is_at_end(epoch) ? DL_END : r;
        r = local_make(epoch, mapping, ret_batch, &err);
        if (r == 0)
            break;
        local_loader_give_back(loader, mapping);
        if (r == DL_END)
            return r;
        if (r == -ENODATA)
            return client_fail(loader->client, ENODATA, "",
                               "every step that was fed was received; feed more, or feed the end");
        if (r != -ENOBUFS)
            return local_step_failed(epoch, &err);
        local_enlarge(&loader->memory, ret_batch->used);
    }
    *ret = mapping;
    return 0;
}

static void local_warn_of_length(struct dl_epoch *epoch, uint32_t samples)
{
    const struct dl_loader *loader = epoch->loader;
    struct local_facts facts;
    char text[512];

    epoch->made += samples;
    if (!loader->iterable || epoch->length_reported || epoch->made <= loader->length)
        return;
    epoch->length_reported = true;
    local_table_of(loader)->facts(loader->local, &facts);
    words_too_many(facts.label, loader->length, epoch->made, text, sizeof text);
    epoch_set_warning(epoch, text);
}

int local_epoch_make(struct dl_epoch *epoch, struct entry *ret)
{
    const struct slot_header *header;
    struct local_batch made;
    uint64_t begin = clock_ns();
    int r;

    *ret = (struct entry){0};
    if (epoch->phase == EPOCH_OVER)
        return DL_END;
    r = local_load_batch(epoch, &ret->mapping, &made);
    epoch->wait_ns += clock_ns() - begin;
    if (r == DL_END) {
        epoch_apply(epoch, EPOCH_ENDED);
        epoch->outcome = EPOCH_HAD_ALL;
    }
    if (r != 0)
        return r;
    ret->slot = ret->mapping->base;
    header = (const struct slot_header *)(const void *)ret->slot;
    ret->descriptor = (struct dl_descriptor){.step = header->step,
                                             .generation = header->generation,
                                             .bytes = made.used,
                                             .samples = header->samples,
                                             .repeated = made.repeated};
    local_warn_of_length(epoch, header->samples - made.repeated);
    return 0;
}
