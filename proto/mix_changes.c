#include "proto/mix_changes.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>

static const char MIX_CHANGES_MARK[8] = {'d', 'l', 'm', 'i', 'x', 'e', 'd', '1'};

enum { WORD = 8, TAIL_BYTES = 16 };

/* ---- weights --------------------------------------------------------------------------------- */

static const char *mix_weights_item(const char *place, uint32_t i, char ret[DL_ERROR_PATH_MAX])
{
    (void)snprintf(ret, DL_ERROR_PATH_MAX, "%.200s.%u", place, i);
    return ret;
}

int mix_weights_check(const double *weights, uint32_t n, const char *place, struct dl_error *err)
{
    char item[DL_ERROR_PATH_MAX];
    double sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (!(weights[i] >= 0) || isinf(weights[i]))
            return dl_error_set(err, EINVAL, mix_weights_item(place, i, item),
                                "%g is not a finite, non-negative number", weights[i]);
        sum += weights[i];
    }
    if (sum == 0)
        return dl_error_set(err, EINVAL, place, "all weights are 0; at least one must be positive");
    if (isinf(sum))
        return dl_error_set(err, EINVAL, place,
                            "their sum exceeds the largest float64; scale them down");
    for (uint32_t i = 0; i < n; i++)
        if (weights[i] > 0 && weights[i] / sum < 1.0 / DL_MIX_LEAST_SHARE)
            return dl_error_set(err, EINVAL, mix_weights_item(place, i, item),
                                "%g is less than 1/%d of the sum of the weights; write more, or 0",
                                weights[i], DL_MIX_LEAST_SHARE);
    return 0;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static size_t mix_changes_size(uint32_t n, uint32_t n_changes)
{
    return sizeof(struct mix_changes) +
           n_changes * (sizeof(struct mix_change) + n * sizeof(double));
}

static struct mix_changes *mix_changes_new(uint32_t n, uint32_t n_changes)
{
    struct mix_changes *changes = calloc(1, mix_changes_size(n, n_changes));

    if (!changes)
        return NULL;
    changes->refs = 1;
    changes->n = n;
    changes->n_changes = n_changes;
    double *at = (double *)(void *)&changes->items[n_changes];
    for (uint32_t i = 0; i < n_changes; i++, at += n)
        changes->items[i].weights = at;
    return changes;
}

struct mix_changes *mix_changes_ref(struct mix_changes *changes)
{
    if (changes)
        changes->refs++;
    return changes;
}

struct mix_changes *mix_changes_unref(struct mix_changes *changes)
{
    if (changes && --changes->refs == 0)
        free(changes);
    return NULL;
}

static uint32_t mix_changes_count(const struct mix_changes *changes)
{
    return changes ? changes->n_changes : 0;
}

static void mix_changes_copy(struct mix_change *to, const struct mix_change *from, uint32_t n)
{
    to->position = from->position;
    memcpy(to->weights, from->weights, n * sizeof *to->weights);
}

int mix_changes_with(const struct mix_changes *changes, const struct mix_change *added, uint32_t n,
                     struct mix_changes **ret)
{
    uint32_t before = 0, count = mix_changes_count(changes);

    while (before < count && changes->items[before].position < added->position)
        before++;
    bool replaces = before < count && changes->items[before].position == added->position;
    if (count - replaces == DL_BOUND_MIX_CHANGES)
        return -E2BIG;
    struct mix_changes *made = mix_changes_new(n, count + !replaces);
    if (!made)
        return -ENOMEM;
    for (uint32_t i = 0; i < before; i++)
        mix_changes_copy(&made->items[i], &changes->items[i], n);
    mix_changes_copy(&made->items[before], added, n);
    for (uint32_t i = before + 1; i < made->n_changes; i++)
        mix_changes_copy(&made->items[i], &changes->items[i - !replaces], n);
    *ret = made;
    return 0;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static const struct mix_change *mix_changes_find(const struct mix_changes *changes,
                                                 uint64_t position)
{
    for (uint32_t i = 0; i < mix_changes_count(changes); i++)
        if (changes->items[i].position == position)
            return &changes->items[i];
    return NULL;
}

/* The first position of `part` whose change `all` has not. */
static uint64_t mix_changes_first_lacking(const struct mix_changes *part,
                                          const struct mix_changes *all)
{
    for (uint32_t i = 0; i < mix_changes_count(part); i++) {
        const struct mix_change *change = &part->items[i];
        const struct mix_change *same = mix_changes_find(all, change->position);

        if (!same || part->n != all->n ||
            memcmp(same->weights, change->weights, part->n * sizeof *same->weights) != 0)
            return change->position;
    }
    return UINT64_MAX;
}

bool mix_changes_within(const struct mix_changes *part, const struct mix_changes *all)
{
    return mix_changes_first_lacking(part, all) == UINT64_MAX;
}

uint64_t mix_changes_differ_at(const struct mix_changes *a, const struct mix_changes *b)
{
    return min_u64(mix_changes_first_lacking(a, b), mix_changes_first_lacking(b, a));
}

bool mix_changes_equal(const struct mix_changes *a, const struct mix_changes *b)
{
    return mix_changes_differ_at(a, b) == UINT64_MAX;
}

uint64_t mix_changes_bytes(const struct mix_changes *changes)
{
    return changes ? mix_changes_size(changes->n, changes->n_changes) : 0;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static int mix_changes_put(struct dl_buffer *to, uint64_t word)
{
    word = htole64(word);
    return buffer_append(to, &word, sizeof word);
}

static uint64_t mix_changes_get(const uint8_t *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof word);
    return le64toh(word);
}

static int mix_changes_put_one(struct dl_buffer *to, const struct mix_change *change, uint32_t n)
{
    int r = mix_changes_put(to, change->position);

    for (uint32_t i = 0; r == 0 && i < n; i++) {
        uint64_t bits;

        memcpy(&bits, &change->weights[i], sizeof bits);
        r = mix_changes_put(to, bits);
    }
    return r;
}

int mix_changes_write(const struct mix_changes *changes, struct dl_buffer *ret)
{
    int r = changes ? mix_changes_put(ret, changes->n) : 0;

    for (uint32_t i = 0; r == 0 && i < mix_changes_count(changes); i++)
        r = mix_changes_put_one(ret, &changes->items[i], changes->n);
    return r;
}

static bool mix_changes_take_one(const uint8_t *at, uint32_t n, struct mix_change *ret)
{
    ret->position = mix_changes_get(at);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bits = mix_changes_get(at + WORD * (1 + (size_t)i));

        memcpy(&ret->weights[i], &bits, sizeof bits);
        if (signbit(ret->weights[i])) /* there is one way to write 0 */
            return false;
    }
    return ret->position < MIX_POSITIONS && mix_weights_check(ret->weights, n, "", NULL) == 0;
}

int mix_changes_read(struct dl_span bytes, struct mix_changes **ret)
{
    *ret = NULL;
    if (bytes.len == 0)
        return 0;
    uint64_t n = bytes.len < WORD ? 0 : mix_changes_get(bytes.data);
    if (n == 0 || n > DL_MAX_MIX_CHILDREN)
        return -EINVAL;
    size_t each = WORD * (1 + n), count = (bytes.len - WORD) / each;
    if (count == 0 || count > DL_MAX_MIX_CHANGES || bytes.len != WORD + count * each)
        return -EINVAL;
    _cleanup_(mix_changes_unrefp)
    struct mix_changes *made = mix_changes_new((uint32_t)n, (uint32_t)count);
    if (!made)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        if (!mix_changes_take_one(bytes.data + WORD + i * each, (uint32_t)n, &made->items[i]) ||
            (i > 0 && made->items[i].position <= made->items[i - 1].position))
            return -EINVAL;
    }
    *ret = steal_ptr(made);
    return 0;
}

int mix_changes_attach(struct dl_span bytes, struct dl_buffer *ret)
{
    int r = bytes.len > 0 ? buffer_append(ret, bytes.data, bytes.len) : 0;

    if (r == 0 && bytes.len > 0)
        r = mix_changes_put(ret, bytes.len);
    if (r == 0 && bytes.len > 0)
        r = buffer_append(ret, MIX_CHANGES_MARK, sizeof MIX_CHANGES_MARK);
    return r;
}

struct dl_span mix_changes_split(struct dl_span *state)
{
    struct dl_span bytes = {0};

    if (state->len < TAIL_BYTES || memcmp(state->data + state->len - sizeof MIX_CHANGES_MARK,
                                          MIX_CHANGES_MARK, sizeof MIX_CHANGES_MARK) != 0)
        return bytes;
    uint64_t len = mix_changes_get(state->data + state->len - TAIL_BYTES);
    if (len == 0 || len > state->len - TAIL_BYTES)
        return bytes;
    state->len -= TAIL_BYTES + len;
    return (struct dl_span){state->data + state->len, len};
}
