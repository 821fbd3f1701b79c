/*
 * Journals: in which order the batches of an epoch came, as bytes that another run can follow.
 *
 * They are a mark, the length of a state (u32 little-endian), that state, which is the rank's place
 * before the first of them, their order (proto/passed.h), and a checksum of all before it (u64).
 */
#include "client/epoch_options.h"
#include "client/internal.h"
#include "proto/common/load.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>

static const char MARK[4] = "dlj1";

enum { HEAD_BYTES = sizeof MARK + sizeof(uint32_t), SUM_BYTES = sizeof(uint64_t) };

static int journal_append_all(const struct dl_epoch *epoch, struct dl_buffer *ret)
{
    const struct came *came = &epoch->came;
    struct state_token token = {.identity = epoch->loader->identity,
                                .epoch = epoch->number,
                                .world = epoch->world,
                                .steps = came->from,
                                .before = epoch->before,
                                .has_rank = true,
                                .rank = epoch->rank,
                                .passed = came->begin};
    uint8_t bytes[STATE_TOKEN_MAX];
    size_t len = 0;
    int r = state_token_write(&token, bytes, &len);
    uint32_t le = htole32((uint32_t)len);

    if (r < 0 || (r = buffer_append(ret, MARK, sizeof MARK)) < 0 ||
        (r = buffer_append(ret, &le, sizeof le)) < 0 || (r = buffer_append(ret, bytes, len)) < 0 ||
        (r = journal_write(&came->journal, ret)) < 0)
        return r;
    uint64_t sum = htole64(state_list_sum((struct dl_span){ret->data, ret->len}));
    return buffer_append(ret, &sum, sizeof sum);
}

int dl_epoch_journal(struct dl_epoch *epoch, void *buf, size_t *len)
{
    struct dl_client *client = epoch->loader->client;
    _cleanup_(buffer_deinit) struct dl_buffer all = {0};
    size_t room = *len;
    int r = client_begin(client);

    if (r < 0)
        return r;
    if (!came_is_kept(epoch) || epoch->came.lost)
        return client_fail(client, ENOTSUP, "journal", "there is none: %s",
                           epoch->came.lost
                               ? "a batch was passed by too many, or memory was lacking"
                               : "it is kept where batches may pass others (workers.bypass, or "
                                 "in_order: false), of a dataset with a length");
    if (journal_append_all(epoch, &all) < 0)
        return client_fail(client, ENOMEM, "", "no memory for a journal");
    *len = all.len;
    if (all.len > room)
        return client_fail(client, ENOSPC, "journal", "it needs %zu bytes, and the buffer has %zu",
                           all.len, room);
    memcpy(buf, all.data, all.len);
    return 0;
}

/* ---- followed -------------------------------------------------------------------------------- */

static int journal_split(struct dl_span all, struct dl_span *ret_token, struct dl_span *ret_runs)
{
    if (all.len < HEAD_BYTES + SUM_BYTES || memcmp(all.data, MARK, sizeof MARK) != 0)
        return -EINVAL;
    size_t summed = all.len - SUM_BYTES, rest = summed - HEAD_BYTES;
    uint32_t len = load_le32(all.data + sizeof MARK);
    if (len > rest ||
        load_le64(all.data + summed) != state_list_sum((struct dl_span){all.data, summed}))
        return -EINVAL;
    *ret_token = (struct dl_span){all.data + HEAD_BYTES, len};
    *ret_runs = (struct dl_span){all.data + HEAD_BYTES + len, rest - len};
    return journal_is_sound(*ret_runs) ? 0 : -EINVAL;
}

/* Whether it is of this rank's epoch, and leads to where that begins. */
static int journal_check_place(const struct dl_epoch *epoch, const struct state_token *token,
                               struct dl_span runs, struct dl_error *err)
{
    struct journal_reader reader = {.rest = runs};
    uint64_t left = epoch->begun - token->steps;
    struct passed passed = token->passed;

    if (token->epoch != epoch->number || token->world != epoch->world ||
        token->rank != epoch->rank || !history_equal(&token->before, &epoch->before))
        return dl_error_set(err, EINVAL, "journal",
                            "is of epoch %" PRIu64 ", rank %" PRIu64 " of %" PRIu64
                            ", and this is epoch %" PRIu64 ", rank %u of %u; each has its own",
                            token->epoch, token->rank, token->world, epoch->number, epoch->rank,
                            epoch->world);
    if (token->steps > epoch->begun || !journal_pass(&reader, &left, &passed) || left > 0 ||
        passed.head != epoch->came.now.head ||
        !passed_agree(&passed, &epoch->came.now, passed.head))
        return dl_error_set(err, EINVAL, "journal",
                            "does not lead to step %" PRIu64
                            ", where the epoch begins; pass that of the run whose state it is",
                            epoch->begun);
    return 0;
}

int journal_follow(struct dl_epoch *epoch, const struct dl_epoch_options *o)
{
    struct dl_client *client = epoch->loader->client;
    struct dl_span token_bytes, runs;
    struct state_token token;
    struct dl_error err = {0};

    if (!o->journal)
        return 0;
    if (!came_is_kept(epoch))
        return client_fail(client, EINVAL, "journal",
                           "batches of this loader come in an order of their own; open one with "
                           "workers.bypass, or with in_order: false, and a dataset with a length");
    if (o->epoch == DL_RESUME || o->world == DL_WORLD_CLUSTER)
        return client_fail(client, EINVAL, "journal",
                           "does not go with a place that only the daemon knows; give epoch, rank "
                           "and world size, or a state");
    if (journal_split((struct dl_span){o->journal, o->journal_len}, &token_bytes, &runs) < 0)
        return client_fail(client, EINVAL, "journal",
                           "is damaged, or not what dl_epoch_journal() wrote");
    int r = state_token_read(token_bytes.data, token_bytes.len, &token, &err);
    if (r == 0)
        r = state_token_check(&token, &epoch->loader->identity, &err);
    if (r == 0)
        r = journal_check_place(epoch, &token, runs, &err);
    if (r < 0)
        return client_fail_with(client, &err);
    if (came_lead(epoch, token.steps, &token.passed, runs) < 0)
        return client_fail(client, ENOMEM, "", "no memory for a journal");
    return 0;
}
