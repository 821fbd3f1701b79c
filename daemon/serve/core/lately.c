#include "daemon/serve/core/lately.h"

#include "daemon/base/memory.h"

#include <math.h>

/* ---- one rank -------------------------------------------------------------------------------- */

static uint16_t lately_units(uint64_t ns)
{
    return (uint16_t)((min_u64(ns, LATELY_BIN_NS) + LATELY_UNIT_NS / 2) / LATELY_UNIT_NS);
}

/* The line ends with `bin`; what lies between says nothing. */
static void lately_line_advance(struct lately_line *line, uint64_t bin)
{
    uint64_t gone = bin - min_u64(line->bin, bin);

    for (uint64_t i = 0; i < min_u64(gone, LATELY_BINS); i++) {
        size_t at = (bin - i) % LATELY_BINS;

        line->waited[at] = line->read[at] = 0;
    }
    line->bin = max_u64(line->bin, bin);
}

/* The first bin that a line still has, or one that has what happened at `from`. */
static uint64_t lately_first(uint64_t last, uint64_t from)
{
    return max_u64(from / LATELY_BIN_NS, last - min_u64(last, LATELY_BINS - 1));
}

/* Moves what exceeds a bin to the bins before it. */
static void lately_line_spill(struct lately_line *line, uint64_t bin, uint64_t ns)
{
    for (uint64_t first = lately_first(line->bin, 0); ns >= LATELY_UNIT_NS; bin--) {
        size_t at = bin % LATELY_BINS;
        uint16_t room = line->read[at] - line->waited[at];
        uint16_t some = (uint16_t)min_u64(ns / LATELY_UNIT_NS, room);

        line->waited[at] += some;
        ns -= some * LATELY_UNIT_NS;
        if (bin == first)
            return;
    }
}

void lately_line_add(struct lately_line *line, uint64_t from, uint64_t to, uint64_t waited_ns)
{
    if (to <= from)
        return;
    double share = fmin(1, (double)waited_ns / (double)(to - from));

    lately_line_advance(line, to / LATELY_BIN_NS);
    uint64_t first = lately_first(line->bin, from);
    for (uint64_t bin = first; bin <= to / LATELY_BIN_NS; bin++) {
        uint64_t begin = max_u64(from, bin * LATELY_BIN_NS);
        uint64_t end = min_u64(to, (bin + 1) * LATELY_BIN_NS);
        size_t at = bin % LATELY_BINS;
        uint16_t full = lately_units(LATELY_BIN_NS);

        line->read[at] = (uint16_t)min_u64(line->read[at] + lately_units(end - begin), full);
        line->waited[at] = (uint16_t)min_u64(
            line->waited[at] + lately_units((uint64_t)(share * (double)(end - begin))),
            line->read[at]);
    }
    if (waited_ns > to - from)
        lately_line_spill(line, first, waited_ns - (to - from));
}

bool lately_line_at(const struct lately_line *line, uint64_t bin, uint64_t *ret_read,
                    uint64_t *ret_waited)
{
    size_t at = bin % LATELY_BINS;

    if (bin > line->bin || line->bin - bin >= LATELY_BINS || line->read[at] == 0)
        return false;
    *ret_read = line->read[at] * LATELY_UNIT_NS;
    *ret_waited = line->waited[at] * LATELY_UNIT_NS;
    return true;
}

void lately_line_look(struct lately_line *line, struct lately_mark *mark,
                      const struct lately_look *look)
{
    uint64_t from = max_u64(mark->at_ns, look->begun_ns);

    if (look->now <= from)
        return;
    uint64_t waited = look->waited_ns - min_u64(mark->waited_ns, look->waited_ns);
    if (waited > 0) {
        waited -= min_u64(mark->presumed_ns, waited);
        mark->presumed_ns = 0;
    } else if (look->empty && look->delivered == mark->delivered) {
        waited = look->now - from;
        mark->presumed_ns += waited;
    }
    lately_line_add(line, from, look->now, waited);
    mark->at_ns = look->now;
    mark->waited_ns = look->waited_ns;
    mark->delivered = look->delivered;
}

/* ---- of a loader as a whole ------------------------------------------------------------------ */

static void lately_totals_advance(struct lately_totals *totals, uint64_t bin)
{
    uint64_t gone = bin - min_u64(totals->bin, bin);

    for (uint64_t i = 0; i < min_u64(gone, LATELY_BINS); i++) {
        totals->batches[(bin - i) % LATELY_BINS] = 0;
        totals->bytes[(bin - i) % LATELY_BINS] = 0;
    }
    totals->bin = max_u64(totals->bin, bin);
}

/* How much of `all`, which came evenly, was there when that share of the time was over. */
static uint64_t lately_part(uint64_t all, double share)
{
    return share >= 1 ? all : share <= 0 ? 0 : (uint64_t)((double)all * share);
}

void lately_totals_look(struct lately_totals *totals, uint64_t now, uint64_t batches,
                        uint64_t bytes)
{
    uint64_t from = totals->at_ns ? min_u64(totals->at_ns, now) : now;
    uint64_t more = batches - min_u64(totals->batches_then, batches);
    uint64_t more_bytes = bytes - min_u64(totals->bytes_then, bytes);
    double span = now > from ? (double)(now - from) : 1;

    if (!totals->at_ns)
        totals->first = now / LATELY_BIN_NS;
    lately_totals_advance(totals, now / LATELY_BIN_NS);
    for (uint64_t bin = lately_first(totals->bin, from); bin <= now / LATELY_BIN_NS; bin++) {
        double then = ((double)max_u64(bin * LATELY_BIN_NS, from) - (double)from) / span;
        double share =
            bin == now / LATELY_BIN_NS ? 1 : (double)((bin + 1) * LATELY_BIN_NS - from) / span;
        size_t at = bin % LATELY_BINS;

        totals->batches[at] += (uint32_t)(lately_part(more, share) - lately_part(more, then));
        totals->bytes[at] += lately_part(more_bytes, share) - lately_part(more_bytes, then);
    }
    totals->at_ns = now;
    totals->batches_then = batches;
    totals->bytes_then = bytes;
}

bool lately_totals_at(const struct lately_totals *totals, uint64_t bin, uint64_t *ret_batches,
                      uint64_t *ret_bytes)
{
    if (!totals->at_ns || bin < totals->first || bin > totals->bin ||
        totals->bin - bin >= LATELY_BINS)
        return false;
    *ret_batches = totals->batches[bin % LATELY_BINS];
    *ret_bytes = totals->bytes[bin % LATELY_BINS];
    return true;
}

/* ---- all ranks of a loader ------------------------------------------------------------------- */

static void lately_book_drop(struct lately_book *book, struct lately_rank *rank)
{
    HASH_DELETE(hh, book->ranks, rank);
    if (book->account)
        quota_return(book->account, QUOTA_OVERHEAD, sizeof *rank);
    free(rank);
}

/* Drops the abandoned line that was left first. */
static bool lately_book_make_room(struct lately_book *book)
{
    struct lately_rank *rank, *next, *oldest = NULL;

    if (HASH_COUNT(book->ranks) < LATELY_RANKS)
        return true;
    HASH_ITER (hh, book->ranks, rank, next) {
        if (!rank->stream && (!oldest || rank->at_ns < oldest->at_ns))
            oldest = rank;
    }
    if (oldest)
        lately_book_drop(book, oldest);
    return oldest;
}

static struct lately_rank *lately_book_add(struct lately_book *book, const struct lately_key *key)
{
    struct lately_rank *rank;

    /* Losing a line is not a refusal worth counting. */
    if (!lately_book_make_room(book) ||
        (book->account && (quota_check(book->account, QUOTA_OVERHEAD, sizeof *rank, NULL) < 0 ||
                           quota_charge(book->account, QUOTA_OVERHEAD, sizeof *rank, NULL) < 0)))
        return NULL;
    rank = must_alloc(sizeof *rank);
    rank->key = *key;
    HASH_ADD(hh, book->ranks, key, sizeof rank->key, rank);
    return rank;
}

struct lately_rank *lately_book_join(struct lately_book *book, const struct lately_key *key,
                                     const struct stream *stream, uint64_t now)
{
    struct lately_rank *rank;

    HASH_FIND(hh, book->ranks, key, sizeof *key, rank);
    if (!rank)
        rank = lately_book_add(book, key);
    if (!rank)
        return NULL;
    rank->stream = stream;
    rank->at_ns = now;
    return rank;
}

void lately_rank_leave(struct lately_rank *rank, const struct stream *stream)
{
    if (rank && rank->stream == stream)
        rank->stream = NULL;
}

void lately_book_tidy(struct lately_book *book, uint64_t now)
{
    struct lately_rank *rank, *next;

    HASH_ITER (hh, book->ranks, rank, next) {
        if (rank->stream)
            rank->at_ns = now;
        else if (now - min_u64(rank->at_ns, now) > LATELY_KEEP_NS)
            lately_book_drop(book, rank);
    }
}

void lately_book_deinit(struct lately_book *book)
{
    struct lately_rank *rank, *next;

    HASH_ITER (hh, book->ranks, rank, next)
        lately_book_drop(book, rank);
}
