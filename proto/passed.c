#include "proto/passed.h"
#include "proto/common/load.h"

#include <endian.h>
#include <errno.h>

enum { RUN_BYTES = 20 /* of two numbers, at most */ };

static bool passed_bit(const struct passed *passed, uint64_t at)
{
    return passed->words[at / 64] >> at % 64 & 1;
}

bool passed_has(const struct passed *passed, uint64_t step)
{
    uint64_t at = step - passed->head;

    return step < passed->head || (at <= DL_BOUND_BYPASS && passed_bit(passed, at));
}

/* The head comes, and one after another what has come behind it. */
static void passed_move_head(struct passed *passed)
{
    do {
        for (unsigned i = 0; i < PASSED_WORDS; i++)
            passed->words[i] =
                passed->words[i] >> 1 | (i + 1 < PASSED_WORDS ? passed->words[i + 1] << 63 : 0);
        passed->head++;
    } while (passed_bit(passed, 0));
}

bool passed_add(struct passed *passed, uint64_t step)
{
    uint64_t at = step - passed->head;

    if (passed_has(passed, step) || at > DL_BOUND_BYPASS)
        return false;
    if (at == 0)
        passed_move_head(passed);
    else
        passed->words[at / 64] |= UINT64_C(1) << at % 64;
    return true;
}

uint64_t passed_place(const struct passed *passed, uint64_t step)
{
    uint64_t place = step - passed->head, end = min_u64(place, DL_BOUND_BYPASS + 1);

    for (uint64_t at = 0; at < end; at++)
        place -= passed_bit(passed, at);
    return place;
}

uint64_t passed_find(const struct passed *passed, uint64_t place)
{
    uint64_t at = 0;

    for (; at <= DL_BOUND_BYPASS; at++) {
        if (passed_bit(passed, at))
            continue;
        if (place == 0)
            break;
        place--;
    }
    return passed->head + at + place;
}

uint32_t passed_count(const struct passed *passed)
{
    uint32_t n = 0;

    for (unsigned i = 0; i < PASSED_WORDS; i++)
        n += (uint32_t)__builtin_popcountll(passed->words[i]);
    return n;
}

bool passed_agree(const struct passed *a, const struct passed *b, uint64_t step)
{
    for (uint64_t i = 0; i <= DL_BOUND_BYPASS; i++)
        if (passed_has(a, step + i) != passed_has(b, step + i))
            return false;
    return true;
}

size_t passed_write(const struct passed *passed, uint8_t ret[static PASSED_BYTES])
{
    size_t n = PASSED_WORDS;

    while (n > 0 && passed->words[n - 1] == 0)
        n--;
    for (size_t i = 0; i < n; i++)
        store_le64(ret + i * sizeof(uint64_t), passed->words[i]);
    return n * sizeof(uint64_t);
}

bool passed_read(uint64_t head, struct dl_span bytes, struct passed *ret)
{
    struct passed passed = {.head = head};
    size_t n = bytes.len / sizeof(uint64_t);

    if (bytes.len % sizeof(uint64_t) > 0 || n > PASSED_WORDS)
        return false;
    for (size_t i = 0; i < n; i++)
        passed.words[i] = load_le64(bytes.data + i * sizeof(uint64_t));
    *ret = passed;
    return !passed_bit(&passed, 0) && (n == 0 || passed.words[n - 1] != 0);
}

/* ---- journals -------------------------------------------------------------------------------- */

void journal_deinit(struct journal *journal)
{
    buffer_deinit(&journal->runs);
    *journal = (struct journal){0};
}

static size_t journal_put(uint64_t number, uint8_t *ret)
{
    size_t n = 0;

    for (; number >= 0x80; number >>= 7)
        ret[n++] = (uint8_t)(number | 0x80);
    ret[n++] = (uint8_t)number;
    return n;
}

static int journal_put_run(uint64_t place, uint64_t repeat, struct dl_buffer *ret)
{
    uint8_t bytes[RUN_BYTES];
    size_t n = journal_put(place, bytes);

    n += journal_put(repeat, bytes + n);
    return buffer_append(ret, bytes, n);
}

int journal_add(struct journal *journal, uint64_t place)
{
    int r = 0;

    if (journal->repeat > 0 && journal->place == place) {
        journal->repeat++;
        return 0;
    }
    if (journal->runs.len + 2 * RUN_BYTES > DL_MAX_JOURNAL_BYTES)
        return -E2BIG;
    if (journal->repeat > 0)
        r = journal_put_run(journal->place, journal->repeat, &journal->runs);
    if (r < 0)
        return r;
    journal->place = place;
    journal->repeat = 1;
    return 0;
}

/* A number and how many bytes it has; 0: it is none. */
static size_t journal_get(struct dl_span bytes, uint64_t *ret)
{
    *ret = 0;
    for (size_t i = 0; i < bytes.len && i < RUN_BYTES / 2; i++) {
        uint64_t bits = bytes.data[i] & 0x7F;

        if (i == 9 && bits > 1)
            return 0;
        *ret |= bits << 7 * i;
        if (bytes.data[i] < 0x80)
            return i > 0 && bits == 0 ? 0 : i + 1;
    }
    return 0;
}

bool journal_peek(struct journal_reader *reader, uint64_t *ret_place)
{
    struct dl_span *rest = &reader->rest;

    if (reader->repeat == 0) {
        size_t n = journal_get(*rest, &reader->place);
        struct dl_span behind = {rest->data + n, rest->len - n};
        size_t m = n > 0 ? journal_get(behind, &reader->repeat) : 0;

        if (m == 0 || reader->repeat == 0 || reader->place > DL_MAX_BYPASS) {
            reader->repeat = 0;
            return false;
        }
        *rest = (struct dl_span){behind.data + m, behind.len - m};
    }
    *ret_place = reader->place;
    return true;
}

void journal_take(struct journal_reader *reader)
{
    reader->repeat--;
}

bool journal_is_sound(struct dl_span runs)
{
    struct journal_reader reader = {.rest = runs};
    uint64_t place;

    while (journal_peek(&reader, &place))
        reader.repeat = 0;
    return reader.rest.len == 0;
}

int journal_cut(struct dl_span runs, uint64_t skip, struct dl_buffer *ret)
{
    struct journal_reader reader = {.rest = runs};
    uint64_t place;
    int r = 0;

    for (; r == 0 && journal_peek(&reader, &place); reader.repeat = 0) {
        uint64_t passed = min_u64(skip, reader.repeat);

        skip -= passed;
        if (reader.repeat > passed)
            r = journal_put_run(place, reader.repeat - passed, ret);
    }
    return r;
}

int journal_write(const struct journal *journal, struct dl_buffer *ret)
{
    int r = buffer_append(ret, journal->runs.data, journal->runs.len);

    if (r == 0 && journal->repeat > 0)
        r = journal_put_run(journal->place, journal->repeat, ret);
    return r;
}

bool journal_pass(struct journal_reader *reader, uint64_t *left, struct passed *passed)
{
    uint64_t place;

    while (*left > 0 && journal_peek(reader, &place)) {
        bool plain = place == 0 && passed_count(passed) == 0; /* as most of them are */
        uint64_t n = plain ? min_u64(*left, reader->repeat) : 1;

        if (plain)
            passed->head += n;
        else if (!passed_add(passed, passed_find(passed, place)))
            return false;
        reader->repeat -= n;
        *left -= n;
    }
    return true;
}
