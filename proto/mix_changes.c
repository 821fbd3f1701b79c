#include "proto/mix_changes.h"
#include "proto/common/load.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>

static const char MIX_CHANGES_MARK[8] = {'d', 'l', 'm', 'i', 'x', 'e', 'd', '1'};

enum { MIX_WORD = 8, MIX_TAIL_BYTES = 16 };

#define MIX_OF_SAMPLES UINT64_MAX /* in place of how many weights a change of a mixture has */

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

static size_t mix_changes_size(const struct mix_changes *form)
{
    size_t weights = form->of_samples ? 0 : form->n * sizeof(double);

    return sizeof(struct mix_changes) + form->n_changes * (sizeof(struct mix_change) + weights);
}

/* An empty one of that form. */
static struct mix_changes *mix_changes_new(const struct mix_changes *form)
{
    struct mix_changes *changes = calloc(1, mix_changes_size(form));

    if (!changes)
        return NULL;
    *changes = *form;
    changes->refs = 1;
    double *at = (double *)(void *)&changes->items[changes->n_changes];
    for (uint32_t i = 0; !changes->of_samples && i < changes->n_changes; i++, at += changes->n)
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
    if (!changes || --changes->refs > 0)
        return NULL;
    for (uint32_t i = 0; i < changes->n_changes; i++)
        weight_table_unref(changes->items[i].table);
    free(changes);
    return NULL;
}

static uint32_t mix_changes_count(const struct mix_changes *changes)
{
    return changes ? changes->n_changes : 0;
}

static void mix_changes_copy(const struct mix_changes *form, struct mix_change *to,
                             const struct mix_change *from)
{
    to->position = from->position;
    to->sum = from->sum;
    to->table = weight_table_ref(from->table);
    if (!form->of_samples)
        memcpy(to->weights, from->weights, form->n * sizeof *to->weights);
}

/* Of the form, the number of changes is filled in. */
static int mix_changes_insert(const struct mix_changes *changes, const struct mix_change *added,
                              struct mix_changes *form, struct mix_changes **ret)
{
    uint32_t before = 0, count = mix_changes_count(changes);

    while (before < count && changes->items[before].position < added->position)
        before++;
    bool replaces = before < count && changes->items[before].position == added->position;
    if (count - replaces == DL_BOUND_MIX_CHANGES)
        return -E2BIG;
    form->n_changes = count + !replaces;
    struct mix_changes *made = mix_changes_new(form);
    if (!made)
        return -ENOMEM;
    for (uint32_t i = 0; i < before; i++)
        mix_changes_copy(made, &made->items[i], &changes->items[i]);
    mix_changes_copy(made, &made->items[before], added);
    for (uint32_t i = before + 1; i < made->n_changes; i++)
        mix_changes_copy(made, &made->items[i], &changes->items[i - !replaces]);
    *ret = made;
    return 0;
}

int mix_changes_with(const struct mix_changes *changes, const struct mix_change *added, uint32_t n,
                     struct mix_changes **ret)
{
    return mix_changes_insert(changes, added, &(struct mix_changes){.n = n}, ret);
}

uint64_t mix_changes_ahead(const struct mix_changes *changes)
{
    uint32_t i = 0, n = mix_changes_count(changes);

    while (i < n && !mix_is_ahead(changes->items[i].position))
        i++;
    return i < n ? changes->items[i].position : UINT64_MAX;
}

int mix_changes_place(const struct mix_changes *changes, uint64_t position,
                      struct mix_changes **ret)
{
    uint64_t ahead = mix_changes_ahead(changes);
    struct mix_changes form = *changes;
    uint32_t n = 0, at;

    assert(ahead != UINT64_MAX && !changes->of_samples);
    for (at = 0; changes->items[at].position != ahead; at++)
        assert(changes->items[at].position <= position);
    bool replaces = at > 0 && changes->items[at - 1].position == position;
    form.n_changes -= replaces;
    struct mix_changes *made = mix_changes_new(&form);
    if (!made)
        return -ENOMEM;
    for (uint32_t i = 0; i < changes->n_changes; i++)
        if (!replaces || i != at - 1)
            mix_changes_copy(made, &made->items[n++], &changes->items[i]);
    made->items[at - replaces].position = position;
    *ret = made;
    return 0;
}

int mix_changes_before(struct mix_changes *changes, uint64_t position, struct mix_changes **ret)
{
    uint32_t count = mix_changes_count(changes);

    while (count > 0 && changes->items[count - 1].position >= position)
        count--;
    *ret = NULL;
    if (count == mix_changes_count(changes))
        *ret = mix_changes_ref(changes);
    if (count == 0 || *ret)
        return 0;
    struct mix_changes form = *changes;
    form.n_changes = count;
    struct mix_changes *made = mix_changes_new(&form);
    if (!made)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++)
        mix_changes_copy(made, &made->items[i], &changes->items[i]);
    *ret = made;
    return 0;
}

/* ---- of samples ------------------------------------------------------------------------------ */

int mix_changes_with_table(const struct mix_changes *changes, const struct mix_change *added,
                           uint64_t count, struct mix_changes **ret)
{
    const struct mix_change change = {
        .position = added->position, .sum = added->table->sum, .table = added->table};

    return mix_changes_insert(
        changes, &change,
        &(struct mix_changes){.n = (uint32_t)added->table->n, .of_samples = true, .count = count},
        ret);
}

uint32_t mix_changes_of_epoch(const struct mix_changes *changes, uint64_t epoch,
                              uint32_t *ret_first)
{
    uint32_t first = 0, end = mix_changes_count(changes);
    uint64_t begin, behind;

    *ret_first = 0;
    if (end == 0)
        return 0;
    if (mul_overflows(epoch, changes->count, &begin))
        begin = UINT64_MAX;
    if (add_overflows(begin, changes->count, &behind))
        behind = UINT64_MAX;
    while (end > 0 && changes->items[end - 1].position >= behind)
        end--;
    while (first + 1 < end && changes->items[first + 1].position <= begin)
        first++;
    *ret_first = first;
    return end;
}

void mix_changes_share_tables(struct mix_changes *changes, const struct mix_changes *with)
{
    for (uint32_t i = 0; i < mix_changes_count(changes); i++) {
        struct mix_change *change = &changes->items[i];

        if (!with)
            change->table = weight_table_unref(change->table);
        for (uint32_t k = 0; !change->table && k < mix_changes_count(with); k++)
            if (with->items[k].table && with->items[k].sum == change->sum && with->n == changes->n)
                change->table = weight_table_ref(with->items[k].table);
    }
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

static bool mix_changes_is_same(const struct mix_changes *a, const struct mix_change *of_a,
                                const struct mix_changes *b, const struct mix_change *of_b)
{
    if (a->n != b->n || a->of_samples != b->of_samples || a->count != b->count)
        return false;
    return a->of_samples ? of_a->sum == of_b->sum
                         : memcmp(of_a->weights, of_b->weights, a->n * sizeof *of_a->weights) == 0;
}

bool mix_changes_has(const struct mix_changes *all, const struct mix_changes *part, uint32_t i)
{
    const struct mix_change *change = &part->items[i];
    const struct mix_change *same = mix_changes_find(all, change->position);

    return same && mix_changes_is_same(part, change, all, same);
}

/* The first position in `part` whose change `all` lacks. */
static uint64_t mix_changes_first_lacking(const struct mix_changes *part,
                                          const struct mix_changes *all)
{
    for (uint32_t i = 0; i < mix_changes_count(part); i++)
        if (!mix_changes_has(all, part, i))
            return part->items[i].position;
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

bool mix_changes_is_placed(const struct mix_changes *changes, const struct mix_changes *placed)
{
    bool is = changes && placed && changes->n_changes == placed->n_changes;

    for (uint32_t i = 0; is && i < changes->n_changes; i++) {
        const struct mix_change *one = &changes->items[i], *other = &placed->items[i];

        is = mix_changes_is_same(changes, one, placed, other) &&
             (one->position == other->position ||
              (mix_is_ahead(one->position) && !mix_is_ahead(other->position)));
    }
    return is;
}

uint64_t mix_changes_bytes(const struct mix_changes *changes)
{
    return changes ? mix_changes_size(changes) : 0;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static int mix_changes_put(struct dl_buffer *to, uint64_t word)
{
    word = htole64(word);
    return buffer_append(to, &word, sizeof word);
}

static int mix_changes_put_one(struct dl_buffer *to, const struct mix_changes *changes,
                               const struct mix_change *change)
{
    int r = mix_changes_put(to, change->position);

    if (r == 0 && changes->of_samples)
        return mix_changes_put(to, change->sum);
    for (uint32_t i = 0; r == 0 && i < changes->n; i++) {
        uint64_t bits;

        memcpy(&bits, &change->weights[i], sizeof bits);
        r = mix_changes_put(to, bits);
    }
    return r;
}

int mix_changes_write(const struct mix_changes *changes, struct dl_buffer *ret)
{
    int r = changes && changes->of_samples ? mix_changes_put(ret, MIX_OF_SAMPLES) : 0;

    if (r == 0 && changes)
        r = mix_changes_put(ret, changes->n);
    if (r == 0 && changes && changes->of_samples)
        r = mix_changes_put(ret, changes->count);
    for (uint32_t i = 0; r == 0 && i < mix_changes_count(changes); i++)
        r = mix_changes_put_one(ret, changes, &changes->items[i]);
    return r;
}

static bool mix_changes_take_one(const uint8_t *at, const struct mix_changes *form,
                                 struct mix_change *ret)
{
    ret->position = load_le64(at);
    if (form->of_samples) {
        ret->sum = load_le64(at + MIX_WORD);
        return ret->position < MIX_POSITIONS;
    }
    for (uint32_t i = 0; i < form->n; i++) {
        uint64_t bits = load_le64(at + MIX_WORD * (1 + (size_t)i));

        memcpy(&ret->weights[i], &bits, sizeof bits);
        if (signbit(ret->weights[i])) /* a zero has only one encoding */
            return false;
    }
    bool known = ret->position < MIX_POSITIONS ||
                 (mix_is_ahead(ret->position) && ret->position < 2 * MIX_AHEAD);
    return known && mix_weights_check(ret->weights, form->n, "", NULL) == 0;
}

/* What stands before the first change, taken from `bytes`. */
static bool mix_changes_take_form(struct dl_span *bytes, struct mix_changes *ret)
{
    uint64_t n = bytes->len < MIX_WORD ? 0 : load_le64(bytes->data);
    size_t words = n == MIX_OF_SAMPLES ? 3 : 1;

    if (bytes->len < words * MIX_WORD)
        return false;
    *ret = (struct mix_changes){.of_samples = words == 3};
    if (ret->of_samples) {
        n = load_le64(bytes->data + MIX_WORD);
        ret->count = load_le64(bytes->data + 2 * MIX_WORD);
    }
    ret->n = (uint32_t)n;
    *bytes = (struct dl_span){bytes->data + words * MIX_WORD, bytes->len - words * MIX_WORD};
    return n > 0 && n <= (ret->of_samples ? UINT32_MAX : DL_MAX_MIX_CHILDREN) &&
           (!ret->of_samples || ret->count > 0);
}

int mix_changes_read(struct dl_span bytes, struct mix_changes **ret)
{
    struct mix_changes form;

    *ret = NULL;
    if (bytes.len == 0)
        return 0;
    if (!mix_changes_take_form(&bytes, &form))
        return -EINVAL;
    size_t each = MIX_WORD * (1 + (form.of_samples ? 1 : (size_t)form.n)), count = bytes.len / each;
    if (count == 0 || count > DL_MAX_MIX_CHANGES || bytes.len != count * each)
        return -EINVAL;
    form.n_changes = (uint32_t)count;
    _cleanup_(mix_changes_unrefp) struct mix_changes *made = mix_changes_new(&form);
    if (!made)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        if (!mix_changes_take_one(bytes.data + i * each, &form, &made->items[i]) ||
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

    if (state->len < MIX_TAIL_BYTES || memcmp(state->data + state->len - sizeof MIX_CHANGES_MARK,
                                              MIX_CHANGES_MARK, sizeof MIX_CHANGES_MARK) != 0)
        return bytes;
    uint64_t len = load_le64(state->data + state->len - MIX_TAIL_BYTES);
    if (len == 0 || len > state->len - MIX_TAIL_BYTES)
        return bytes;
    state->len -= MIX_TAIL_BYTES + len;
    return (struct dl_span){state->data + state->len, len};
}
