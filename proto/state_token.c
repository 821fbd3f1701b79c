#include "proto/state_token.h"

#include "proto/value.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* Its functions as our own: libdlclient links no libxxhash. */
#define XXH_INLINE_ALL
#include <xxhash.h>

/* What the sum takes: 0xcf and eight bytes. */
enum { SUM_BYTES = 9, UINT64_MARK = 0xcf };

static const char *const PARTS[STATE_PARTS] = {"dataset", "sampler", "batch", "collate", "shard"};
static const char *const ORDERS[STATE_ORDERS] = {"sequential", "torch", "native", "client"};

const char *state_part_name(enum state_part part)
{
    return PARTS[part];
}

const char *state_order_name(enum state_order order)
{
    return ORDERS[order];
}

/* ---- writing -------------------------------------------------------------------------------- */

static int state_token_set_parts(struct value *map, const uint64_t *parts)
{
    struct value *v;
    int r = value_set(map, "spec", &v);

    for (unsigned i = 0; r == 0 && i < STATE_PARTS; i++)
        r = value_set_uint(v, PARTS[i], parts[i]);
    return r;
}

static int state_token_push_uint(struct value *array, uint64_t number)
{
    struct value *item;
    int r = value_push(array, &item);

    if (r == 0)
        value_make_uint(item, number);
    return r;
}

static int state_token_set_before(struct value *map, const struct history *before)
{
    struct value *v;
    int r = value_set(map, "before", &v);

    if (r == 0)
        v->type = VALUE_ARRAY; /* also when there is nothing in it */
    for (uint32_t i = 0; r == 0 && i < before->n; i++) {
        r = state_token_push_uint(v, before->stretches[i].world);
        if (r == 0)
            r = state_token_push_uint(v, before->stretches[i].steps);
    }
    return r;
}

static int state_token_set_mark(struct value *map, const struct lazy_mark *mark)
{
    struct value *v;

    if (mark->window == 0)
        return 0;
    int r = value_set(map, "mark", &v);
    if (r == 0)
        r = state_token_push_uint(v, mark->window);
    if (r == 0)
        r = state_token_push_uint(v, mark->rows);
    return r;
}

static int state_token_set_passed(struct value *map, const struct state_token *token)
{
    const struct passed *passed = &token->passed;
    uint8_t bytes[PASSED_BYTES];
    struct value *v;

    if (!token->has_rank)
        return 0;
    int r = value_set_uint(map, "rank", token->rank);
    if (r == 0)
        r = value_set(map, "passed", &v);
    if (r == 0)
        r = state_token_push_uint(v, passed->head);
    for (size_t i = 0, n = passed_write(passed, bytes) / sizeof(uint64_t); r == 0 && i < n; i++)
        r = state_token_push_uint(v, passed->words[i]);
    return r;
}

static int state_token_set_all(struct value *map, const struct state_token *token)
{
    const struct state_identity *identity = &token->identity;
    int r;

    if ((r = value_set_uint(map, "state", STATE_TOKEN_VERSION)) < 0 ||
        (r = state_token_set_parts(map, identity->parts)) < 0 ||
        (r = value_set_uint(map, "dataset", identity->dataset)) < 0 ||
        (r = value_set_uint(map, "length", identity->length)) < 0 ||
        (r = value_set_string(map, "order", ORDERS[identity->order])) < 0 ||
        (r = value_set_uint(map, "seed", identity->seed)) < 0 ||
        (r = value_set_uint(map, "workers", identity->workers)) < 0 ||
        (r = value_set_uint(map, "epoch", token->epoch)) < 0 ||
        (r = value_set_uint(map, "world", token->world)) < 0 ||
        (r = value_set_uint(map, "steps", token->steps)) < 0 ||
        (r = state_token_set_passed(map, token)) < 0 ||
        (r = state_token_set_before(map, &token->before)) < 0 ||
        (r = state_token_set_mark(map, &token->mark)) < 0)
        return r;
    if (token->dataset_states && (r = value_set_uint(map, "carried", token->dataset_states)) < 0)
        return r;
    if (token->changes && (r = value_set_uint(map, "changes", token->changes)) < 0)
        return r;
    return value_set_uint(map, "sum", 0);
}

uint64_t state_list_sum(struct dl_span list)
{
    return max_u64(XXH3_64bits(list.data, list.len), 1);
}

static void state_token_put_sum(const uint8_t *data, size_t len, uint8_t ret[static SUM_BYTES])
{
    XXH64_canonical_t sum; /* big-endian, as msgpack has its numbers */

    XXH64_canonicalFromHash(&sum, XXH3_64bits(data, len));
    ret[0] = UINT64_MARK;
    memcpy(ret + 1, sum.digest, sizeof sum.digest);
}

int state_token_write(const struct state_token *token, uint8_t ret[static STATE_TOKEN_MAX],
                      size_t *ret_len)
{
    _cleanup_(value_deinit) struct value map = {.type = VALUE_MAP};
    _cleanup_(buffer_deinit) struct dl_buffer packed = {0};
    int r = state_token_set_all(&map, token);

    if (r == 0)
        r = value_pack(&map, &packed);
    if (r < 0)
        return r;
    size_t summed = packed.len - 1; /* the sum is one byte so far: 0 */
    if (summed + SUM_BYTES > STATE_TOKEN_MAX)
        return -EMSGSIZE;
    memcpy(ret, packed.data, summed);
    state_token_put_sum(ret, summed, ret + summed);
    *ret_len = summed + SUM_BYTES;
    return 0;
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool state_token_uint_of(const struct value *v, uint64_t *ret)
{
    if (v && v->type == VALUE_UINT)
        *ret = v->uinteger;
    else if (v && v->type == VALUE_INT && v->integer >= 0)
        *ret = (uint64_t)v->integer;
    else
        return false;
    return true;
}

static bool state_token_get_uint(const struct value *map, const char *key, uint64_t *ret)
{
    return state_token_uint_of(value_get(map, key), ret);
}

static bool state_token_get_parts(const struct value *map, uint64_t *ret)
{
    const struct value *v = value_get(map, "spec");
    bool all = v != NULL;

    for (unsigned i = 0; all && i < STATE_PARTS; i++)
        all = state_token_get_uint(v, PARTS[i], &ret[i]);
    return all;
}

static bool state_token_get_order(const struct value *map, enum state_order *ret)
{
    const struct value *v = value_get(map, "order");

    for (unsigned i = 0; v && v->type == VALUE_STRING && i < STATE_ORDERS; i++) {
        if (strcmp(v->string, ORDERS[i]) == 0) {
            *ret = (enum state_order)i;
            return true;
        }
    }
    return false;
}

static bool state_token_get_before(const struct value *map, struct history *ret)
{
    const struct value *v = value_get(map, "before");
    bool fits = v && v->type == VALUE_ARRAY && v->count % 2 == 0;

    for (uint32_t i = 0; fits && i < v->count; i += 2) {
        uint64_t world, steps;

        fits = state_token_uint_of(&v->items[i], &world) &&
               state_token_uint_of(&v->items[i + 1], &steps) && world > 0 &&
               world <= DL_MAX_WORLD_SIZE && history_add(ret, world, steps);
    }
    return fits;
}

static bool state_token_get_mark(const struct value *map, struct lazy_mark *ret)
{
    const struct value *v = value_get(map, "mark");

    return !v || (v->type == VALUE_ARRAY && v->count == 2 &&
                  state_token_uint_of(&v->items[0], &ret->window) &&
                  state_token_uint_of(&v->items[1], &ret->rows));
}

static bool state_token_get_passed(const struct value *map, struct state_token *ret)
{
    const struct value *v = value_get(map, "passed");
    struct passed *passed = &ret->passed;

    if (!v)
        return !value_get(map, "rank");
    ret->has_rank = true;
    bool fits = v->type == VALUE_ARRAY && v->count >= 1 && v->count <= 1 + PASSED_WORDS &&
                state_token_uint_of(&v->items[0], &passed->head) &&
                state_token_get_uint(map, "rank", &ret->rank);
    for (uint32_t i = 1; fits && i < v->count; i++)
        fits = state_token_uint_of(&v->items[i], &passed->words[i - 1]);
    return fits && ret->rank < ret->world && !(passed->words[0] & 1) &&
           passed->head <= ret->steps && passed->head + passed_count(passed) == ret->steps;
}

static bool state_token_get_all(const struct value *map, struct state_token *ret)
{
    struct state_identity *identity = &ret->identity;

    return state_token_get_parts(map, identity->parts) &&
           state_token_get_uint(map, "dataset", &identity->dataset) &&
           state_token_get_uint(map, "length", &identity->length) &&
           state_token_get_order(map, &identity->order) &&
           state_token_get_uint(map, "seed", &identity->seed) &&
           state_token_get_uint(map, "workers", &identity->workers) &&
           state_token_get_uint(map, "epoch", &ret->epoch) &&
           state_token_get_uint(map, "world", &ret->world) &&
           state_token_get_uint(map, "steps", &ret->steps) && ret->world > 0 &&
           ret->world <= DL_MAX_WORLD_SIZE && state_token_get_passed(map, ret) &&
           state_token_get_before(map, &ret->before) && state_token_get_mark(map, &ret->mark) &&
           (!value_get(map, "carried") ||
            state_token_get_uint(map, "carried", &ret->dataset_states)) &&
           (!value_get(map, "changes") || state_token_get_uint(map, "changes", &ret->changes));
}

static int state_token_no_state(struct dl_error *err)
{
    return dl_error_set(err, EINVAL, "state", "this is not a state of an epoch");
}

static int state_token_read_map(const struct value *map, struct state_token *ret,
                                struct dl_error *err)
{
    uint64_t version;

    if (!state_token_get_uint(map, "state", &version))
        return state_token_no_state(err);
    if (version != STATE_TOKEN_VERSION)
        return dl_error_set(err, EPROTONOSUPPORT, "state",
                            "is of version %" PRIu64 ", and this release knows version %d", version,
                            STATE_TOKEN_VERSION);
    return state_token_get_all(map, ret) ? 0 : state_token_no_state(err);
}

/* A token has only one valid encoding: any other was not written by us. */
static int state_token_check_form(const struct state_token *token, const void *data, size_t len,
                                  struct dl_error *err)
{
    uint8_t again[STATE_TOKEN_MAX];
    size_t again_len = 0;
    int r = state_token_write(token, again, &again_len);

    if (r == -ENOMEM)
        return dl_error_set(err, ENOMEM, "state", "out of memory");
    if (r < 0 || again_len != len || memcmp(again, data, len) != 0)
        return state_token_no_state(err);
    return 0;
}

int state_token_read(const void *data, size_t len, struct state_token *ret, struct dl_error *err)
{
    _cleanup_(value_deinit) struct value map = {0};
    struct state_token token = {0};
    uint8_t sum[SUM_BYTES];

    if (len <= SUM_BYTES || len > STATE_TOKEN_MAX ||
        ((const uint8_t *)data)[len - SUM_BYTES] != UINT64_MARK)
        return state_token_no_state(err);
    state_token_put_sum(data, len - SUM_BYTES, sum);
    if (memcmp(sum, (const uint8_t *)data + len - SUM_BYTES, SUM_BYTES) != 0)
        return dl_error_set(err, EINVAL, "state",
                            "is damaged, or not a state: its checksum is "
                            "wrong");
    int r = value_unpack(data, len, &map, NULL);
    if (r == -ENOMEM)
        return dl_error_set(err, ENOMEM, "state", "out of memory");
    if (r < 0)
        return state_token_no_state(err);
    r = state_token_read_map(&map, &token, err);
    if (r == 0)
        r = state_token_check_form(&token, data, len, err);
    if (r == 0)
        *ret = token;
    return r;
}

/* ---- what it is of -------------------------------------------------------------------------- */

static int state_token_check_spec(const struct state_identity *state,
                                  const struct state_identity *loader, struct dl_error *err)
{
    if (state->order != loader->order)
        return dl_error_set(err, EINVAL, "sampler.order",
                            "the state is of an epoch in order %s, this loader has %s",
                            ORDERS[state->order], ORDERS[loader->order]);
    for (unsigned i = 0; i < STATE_PARTS; i++)
        if (state->parts[i] != loader->parts[i])
            return dl_error_set(err, EINVAL, PARTS[i],
                                "the state is of a loader with another %s in its spec; open the "
                                "loader with that spec",
                                PARTS[i]);
    return 0;
}

static int state_token_check_data(const struct state_identity *state,
                                  const struct state_identity *loader, struct dl_error *err)
{
    if (state->length != loader->length)
        return dl_error_set(err, EINVAL, "dataset",
                            "has %" PRIu64 " samples, and the state is of one with %" PRIu64,
                            loader->length, state->length);
    if (state->dataset != loader->dataset)
        return dl_error_set(err, EINVAL, "dataset",
                            "the state is of other data: fingerprint %016" PRIx64
                            ", and this is %016" PRIx64 "; its files were changed or replaced",
                            state->dataset, loader->dataset);
    return 0;
}

int state_token_check(const struct state_token *token, const struct state_identity *loader,
                      struct dl_error *err)
{
    const struct state_identity *state = &token->identity;
    int r = state_token_check_spec(state, loader, err);

    if (r == 0)
        r = state_token_check_data(state, loader, err);
    if (r < 0)
        return r;
    if (state->seed != loader->seed)
        return dl_error_set(err, EINVAL, "seed",
                            "%" PRIu64 ", and the state has %" PRIu64 "; write seed: %" PRIu64
                            " in the spec",
                            loader->seed, state->seed, state->seed);
    if (token->steps > 0 && state->workers != loader->workers)
        return dl_error_set(err, EINVAL, "workers.count",
                            "%" PRIu64 ", and the state is of %" PRIu64
                            ": it decides which worker has which samples of an iterable dataset",
                            loader->workers, state->workers);
    return 0;
}

/* ---- where it continues --------------------------------------------------------------------- */

static int state_token_place_in_other_world(const struct state_token *token, uint64_t world,
                                            struct state_place *ret, struct dl_error *err)
{
    struct history *before = &ret->before;

    if (token->has_rank && (token->world > 1 || passed_count(&token->passed) > 0))
        return dl_error_set(err, EINVAL, "world",
                            "%" PRIu64 ", and the state is of %" PRIu64
                            "; batches may pass others, each rank's in its own order, so another "
                            "number of ranks cannot continue; continue with as many, or start the "
                            "next epoch",
                            world, token->world);
    if (token->identity.workers > 0 || token->identity.order == STATE_CLIENT)
        return dl_error_set(err, EINVAL, "world",
                            "%" PRIu64 ", and the state is of %" PRIu64
                            "; %s; continue with as many, or start the next epoch",
                            world, token->world,
                            token->identity.workers > 0
                                ? "an iterable dataset divides itself among ranks, so another "
                                  "number of ranks cannot continue it"
                                : "each rank's client is its sampler, with its own order");
    if (!history_add(before, token->world, token->steps))
        return dl_error_set(err, EINVAL, "world",
                            "%" PRIu64 ", and the state is of %" PRIu64
                            "; the world size has changed %u times in this epoch, the most "
                            "possible; continue with as many, or start the next epoch",
                            world, token->world, before->n);
    ret->step = 0;
    ret->has_rank = false;
    ret->passed = (struct passed){0};
    /* Nothing was given out since there were as many ranks as now. */
    if (before->n > 0 && before->stretches[before->n - 1].world == world)
        ret->step = ret->passed.head = before->stretches[--before->n].steps;
    return 0;
}

int state_token_check_rank(const struct state_token *token, uint64_t rank, struct dl_error *err)
{
    if (!token->has_rank || token->steps == 0 || rank == token->rank)
        return 0;
    return dl_error_set(err, EINVAL, "rank",
                        "%" PRIu64 ", and the state is of rank %" PRIu64
                        "; batches may pass others, each rank's in its own order, so each rank "
                        "needs its own state",
                        rank, token->rank);
}

int state_token_place(const struct state_token *token, uint64_t world, struct state_place *ret,
                      struct dl_error *err)
{
    *ret = (struct state_place){
        .epoch = token->epoch, .step = token->steps, .before = token->before, .mark = token->mark};
    ret->passed = token->passed;
    ret->has_rank = token->has_rank;
    ret->rank = token->rank;
    if (!token->has_rank)
        ret->passed.head = token->steps;
    if (world == token->world || (token->steps == 0 && token->before.n == 0))
        return 0;
    return state_token_place_in_other_world(token, world, ret, err);
}

/* ---- for people ----------------------------------------------------------------------------- */

struct state_token_text {
    char *start;
    size_t size;
    size_t len;
};

static void state_token_print(struct state_token_text *text, const char *format, ...)
    _printf_(2, 3);
static void state_token_print(struct state_token_text *text, const char *format, ...)
{
    size_t room = text->len < text->size ? text->size - text->len : 0;
    va_list args;

    va_start(args, format);
    int n = vsnprintf(room > 0 ? text->start + text->len : NULL, room, format, args);
    va_end(args);
    text->len += n > 0 ? (size_t)n : 0;
}

size_t state_token_json(const struct state_token *token, char *buf, size_t size)
{
    const struct state_identity *identity = &token->identity;
    struct state_token_text text = {.size = size};

    text.start = buf;
    state_token_print(&text, "{\"version\": %d, \"epoch\": %" PRIu64 ", \"world\": %" PRIu64,
                      STATE_TOKEN_VERSION, token->epoch, token->world);
    state_token_print(&text, ", \"steps\": %" PRIu64 ", \"before\": [", token->steps);
    for (uint32_t i = 0; i < token->before.n; i++)
        state_token_print(&text, "%s{\"world\": %" PRIu64 ", \"steps\": %" PRIu64 "}",
                          i > 0 ? ", " : "", token->before.stretches[i].world,
                          token->before.stretches[i].steps);
    state_token_print(&text,
                      "], \"seed\": %" PRIu64 ", \"order\": \"%s\", \"length\": ", identity->seed,
                      ORDERS[identity->order]);
    if (identity->length == UINT64_MAX)
        state_token_print(&text, "null");
    else
        state_token_print(&text, "%" PRIu64, identity->length);
    state_token_print(&text,
                      ", \"workers\": %" PRIu64 ", \"dataset\": \"%016" PRIx64 "\", \"spec\": {",
                      identity->workers, identity->dataset);
    for (unsigned i = 0; i < STATE_PARTS; i++)
        state_token_print(&text, "%s\"%s\": \"%016" PRIx64 "\"", i > 0 ? ", " : "", PARTS[i],
                          identity->parts[i]);
    state_token_print(&text, "}");
    if (token->has_rank)
        state_token_print(&text, ", \"rank\": %" PRIu64 ", \"passed\": %u", token->rank,
                          passed_count(&token->passed));
    if (token->mark.window > 0)
        state_token_print(&text, ", \"mark\": {\"window\": %" PRIu64 ", \"rows\": %" PRIu64 "}",
                          token->mark.window, token->mark.rows);
    if (token->dataset_states)
        state_token_print(&text, ", \"carried\": \"%016" PRIx64 "\"", token->dataset_states);
    if (token->changes)
        state_token_print(&text, ", \"changes\": \"%016" PRIx64 "\"", token->changes);
    state_token_print(&text, "}");
    return text.len;
}
