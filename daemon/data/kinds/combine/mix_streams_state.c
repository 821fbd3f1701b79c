/*
 * The state of one worker's replica of a mixture of iterable datasets, for the daemon to keep as
 * any dataset's (proto/dataset_state.h):
 *
 *   position u64 | ended u64 | for each dataset: cycle u64, count u64, flags u64, bytes u64, state
 *
 * A dataset without a state of its own skips `count` samples of the cycle when it is resumed.
 * Numbers are little-endian. What a client sends is checked here, but for the datasets' own bytes.
 */
#include "daemon/data/kinds/combine/mix_streams.h"
#include "proto/common/load.h"

#include <endian.h>
#include <errno.h>

enum {
    MIX_STREAMS_HEAD = 2 * sizeof(uint64_t),
    MIX_STREAMS_ITEM = 4 * sizeof(uint64_t),
};
enum mix_streams_flags {
    MIX_STREAMS_BEGUN = 1,
    MIX_STREAMS_THROUGH = 2,
    MIX_STREAMS_FLAGS = 3,
};

/* ---- writing --------------------------------------------------------------------------------- */

/* One dataset's state; *ret_len 0: it skips instead. */
static int mix_streams_state_save_part(struct mix_streams_iter *mi, uint32_t i, uint8_t *buf,
                                       size_t room, size_t *ret_len,
                                       enum dataset_state_loss *ret_lost, struct dl_error *err)
{
    struct dataset_iter *it = mi->streams[i].it;
    const struct dataset *part = mi->mix->parts[i];

    *ret_len = 0;
    if (!it || !part->saves_state)
        return 0;
    int r = it->ops->save(it, buf, room, ret_len, ret_lost, err);
    if (r == -ENOTSUP && part->can_skip)
        r = 0;
    return r;
}

static int mix_streams_state_write(struct mix_streams_iter *mi, uint32_t i, uint8_t *buf,
                                   size_t room, size_t *ret_len, enum dataset_state_loss *ret_lost,
                                   struct dl_error *err)
{
    const struct mix_stream *stream = &mi->streams[i];
    uint64_t flags =
        (stream->it ? MIX_STREAMS_BEGUN : 0U) | (stream->through ? MIX_STREAMS_THROUGH : 0U);
    size_t own = 0;

    if (room < MIX_STREAMS_ITEM) {
        *ret_lost = DATASET_STATE_TOO_LARGE;
        return 0;
    }
    int r = mix_streams_state_save_part(mi, i, buf + MIX_STREAMS_ITEM, room - MIX_STREAMS_ITEM,
                                        &own, ret_lost, err);
    if (r < 0 || *ret_lost != DATASET_STATE_SAVED)
        return r;
    store_le64(buf, stream->cycle);
    store_le64(buf + 8, stream->count);
    store_le64(buf + 16, flags);
    store_le64(buf + 24, own);
    *ret_len = MIX_STREAMS_ITEM + own;
    return 0;
}

int mix_streams_save(struct mix_streams_iter *mi, uint8_t *buf, size_t room, size_t *ret_len,
                     enum dataset_state_loss *ret_lost, struct dl_error *err)
{
    size_t len = MIX_STREAMS_HEAD;

    *ret_len = 0;
    if (room < len) {
        *ret_lost = DATASET_STATE_TOO_LARGE;
        return 0;
    }
    store_le64(buf, mi->position);
    store_le64(buf + 8, mi->ended);
    for (uint32_t i = 0; i < mi->mix->n; i++) {
        size_t more = 0;
        int r = mix_streams_state_write(mi, i, buf + len, room - len, &more, ret_lost, err);
        if (r < 0 || *ret_lost != DATASET_STATE_SAVED)
            return r;
        len += more;
    }
    *ret_len = len;
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int mix_streams_state_refuse(const struct mix_streams_iter *mi, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, mi->mix->place,
                        "the state is not one of a mix of these datasets; restart the epoch");
}

/* Where the dataset was, without a state of its own. */
static int mix_streams_state_skip(struct mix_streams_iter *mi, uint32_t i, struct dl_error *err)
{
    struct mix_stream *stream = &mi->streams[i];

    if (stream->count > 0 && !mi->mix->parts[i]->can_skip)
        return mix_streams_state_refuse(mi, err);
    int r = mix_streams_begin(mi, i, (struct dl_span){NULL, 0}, err);
    if (r < 0 || stream->count == 0)
        return r;
    return stream->it->ops->skip(stream->it, stream->count, NULL) < 0
               ? mix_streams_state_refuse(mi, err)
               : 0; /* at its end: its next turn finds that out */
}

static int mix_streams_state_read(struct mix_streams_iter *mi, uint32_t i, struct dl_span *state,
                                  struct dl_error *err)
{
    struct mix_stream *stream = &mi->streams[i];

    if (state->len < MIX_STREAMS_ITEM)
        return mix_streams_state_refuse(mi, err);
    uint64_t flags = load_le64(state->data + 16);
    uint64_t own = load_le64(state->data + 24);
    stream->cycle = load_le64(state->data);
    stream->count = load_le64(state->data + 8);
    stream->through = flags & MIX_STREAMS_THROUGH;
    *state = (struct dl_span){state->data + MIX_STREAMS_ITEM, state->len - MIX_STREAMS_ITEM};
    bool begun = flags & MIX_STREAMS_BEGUN;
    if (flags > MIX_STREAMS_FLAGS || own > state->len || stream->count > mi->position ||
        stream->cycle > mi->position || (own > 0 && !(begun && mi->mix->parts[i]->saves_state)))
        return mix_streams_state_refuse(mi, err);
    struct dl_span mine = {state->data, own};
    *state = (struct dl_span){state->data + own, state->len - own};
    if (!begun)
        return 0;
    return own > 0 ? mix_streams_begin(mi, i, mine, err) : mix_streams_state_skip(mi, i, err);
}

int mix_streams_resume(struct mix_streams_iter *mi, struct dl_span state, struct dl_error *err)
{
    int r = 0;

    if (state.len < MIX_STREAMS_HEAD)
        return mix_streams_state_refuse(mi, err);
    mi->position = load_le64(state.data);
    mi->ended = load_le64(state.data + 8) != 0;
    if (mi->position > mi->params.position || mi->position > mi->end)
        return mix_streams_state_refuse(mi, err);
    state = (struct dl_span){state.data + MIX_STREAMS_HEAD, state.len - MIX_STREAMS_HEAD};
    for (uint32_t i = 0; r == 0 && i < mi->mix->n; i++)
        r = mix_streams_state_read(mi, i, &state, err);
    if (r == 0 && state.len > 0)
        r = mix_streams_state_refuse(mi, err);
    return r;
}
