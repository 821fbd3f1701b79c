#include "daemon/data/decode/tokenizer/pretokenize.h"

#include "daemon/data/decode/tokenizer/chars.h"

static int pretokenize_from(struct pretokenizer *pre, unsigned step, const struct piece *piece);

static int pretokenize_part(struct pretokenizer *pre, unsigned step, const struct piece *whole,
                            size_t start, size_t end)
{
    if (start >= end)
        return 0;
    return pretokenize_from(pre, step + 1,
                            &(struct piece){.text = whole->text + start,
                                            .n = end - start,
                                            .begins = whole->begins && start == 0});
}

/* ---- matches, and what is between, become pieces --------------------------------------------- */

struct pre_split {
    struct pretokenizer *pre;
    const struct piece *whole;
    unsigned step;
    size_t start; /* of the piece that is pending */
    size_t end;
    bool pending;
    bool was_match; /* the segment before this one */
};

/* The pending piece goes; start..end is pending in its place. */
static int pretokenize_defer(struct pre_split *split, size_t start, size_t end)
{
    int r = split->pending
                ? pretokenize_part(split->pre, split->step, split->whole, split->start, split->end)
                : 0;

    split->pending = true;
    split->start = start;
    split->end = end;
    return r;
}

/* The next segment: a match, or what lies between two. */
static int pretokenize_segment(struct pre_split *split, size_t start, size_t end, bool match)
{
    const struct pre_step *step = &split->pre->steps[split->step];
    bool was_match = split->was_match;
    int r = 0;

    match = match != step->invert;
    split->was_match = match;
    switch (step->behavior) {
    case SPLIT_REMOVED:
        return match ? 0 : pretokenize_part(split->pre, split->step, split->whole, start, end);
    case SPLIT_CONTIGUOUS:
        if (match != was_match || !split->pending)
            return pretokenize_defer(split, start, end);
        split->end = end;
        return 0;
    case SPLIT_MERGED_WITH_PREVIOUS:
        if (!match || was_match || !split->pending)
            return pretokenize_defer(split, start, end);
        split->end = end;
        return 0;
    case SPLIT_MERGED_WITH_NEXT:
        if (match || !was_match || !split->pending)
            return pretokenize_defer(split, start, end);
        split->end = end;
        return 0;
    default:
        r = pretokenize_part(split->pre, split->step, split->whole, start, end);
    }
    return r;
}

static int pretokenize_finish(struct pre_split *split)
{
    return split->pending ? pretokenize_defer(split, 0, 0) : 0;
}

/* ---- what matches ---------------------------------------------------------------------------- */

/* A match at start..end, behind what was seen up to *done. */
static int pretokenize_match(struct pre_split *split, size_t *done, size_t start, size_t end)
{
    int r = start > *done ? pretokenize_segment(split, *done, start, false) : 0;

    *done = end;
    return r < 0 ? r : pretokenize_segment(split, start, end, true);
}

static int pretokenize_by_pattern(struct pre_split *split, size_t *done)
{
    const struct piece *whole = split->whole;
    struct pattern *pattern = split->pre->steps[split->step].pattern;
    size_t at = 0, start, end;
    bool any = false;
    int r;

    while (at <= whole->n &&
           (r = pattern_find(pattern, whole->text, whole->n, at, &start, &end)) > 0) {
        /* An empty match right behind another one is none. */
        if (start == end && any && start == *done) {
            size_t bytes = 1;
            if (at < whole->n)
                (void)char_classes_at(whole->text + at, &bytes);
            at += bytes;
            continue;
        }
        any = true;
        if ((r = pretokenize_match(split, done, start, end)) < 0)
            return r;
        at = end;
    }
    return at > whole->n ? 0 : r;
}

static int pretokenize_by_text(struct pre_split *split, size_t *done)
{
    const struct piece *whole = split->whole;
    const char *text = split->pre->steps[split->step].text;
    size_t n = strlen(text);
    int r = 0;

    while (r == 0 && n > 0) {
        const uint8_t *found = memmem(whole->text + *done, whole->n - *done, text, n);
        if (!found)
            break;
        size_t start = (size_t)(found - whole->text);
        r = pretokenize_match(split, done, start, start + n);
    }
    return r;
}

static int pretokenize_by_class(struct pre_split *split, size_t *done)
{
    const struct piece *whole = split->whole;
    uint8_t class = split->pre->steps[split->step].class;
    int r = 0;

    for (size_t at = 0, bytes; r == 0 && at < whole->n; at += bytes)
        if (char_classes_at(whole->text + at, &bytes) & class)
            r = pretokenize_match(split, done, at, at + bytes);
    return r;
}

static int pretokenize_split(struct pretokenizer *pre, unsigned step, const struct piece *whole)
{
    struct pre_split split = {.pre = pre, .whole = whole, .step = step};
    size_t done = 0;
    int r;

    switch (pre->steps[step].kind) {
    case PRE_PATTERN:
        r = pretokenize_by_pattern(&split, &done);
        break;
    case PRE_CLASS:
        r = pretokenize_by_class(&split, &done);
        break;
    default: /* TEXT, META */
        r = pretokenize_by_text(&split, &done);
    }
    if (r == 0 && done < whole->n)
        r = pretokenize_segment(&split, done, whole->n, false);
    return r < 0 ? r : pretokenize_finish(&split);
}

/* ---- the other steps ------------------------------------------------------------------------- */

/* The last step: words are known a few ahead, so that what is known of them is fetched meanwhile.
 */
static int pretokenize_scan_words(struct pretokenizer *pre, enum scan scan,
                                  const struct piece *whole)
{
    enum { AHEAD = 16 };
    size_t starts[AHEAD + 1] = {0};
    int r = 0;

    while (r == 0 && starts[0] < whole->n) {
        unsigned n = 0;
        for (; n < AHEAD && starts[n] < whole->n; n++) {
            starts[n + 1] = scan_next(scan, whole->text, whole->n, starts[n]);
            pre->expect(pre->owner, whole->text + starts[n], starts[n + 1] - starts[n]);
        }
        for (unsigned i = 0; r == 0 && i < n; i++)
            r = pre->word(pre->owner, whole->text + starts[i], starts[i + 1] - starts[i]);
        starts[0] = starts[n];
    }
    return r;
}

static int pretokenize_scan(struct pretokenizer *pre, unsigned step, const struct piece *whole)
{
    enum scan scan = pre->steps[step].scan;
    int r = 0;

    if (step + 1 == pre->n && pre->expect)
        return pretokenize_scan_words(pre, scan, whole);
    for (size_t at = 0, end; r == 0 && at < whole->n; at = end) {
        end = scan_next(scan, whole->text, whole->n, at);
        r = pretokenize_part(pre, step, whole, at, end);
    }
    return r;
}

static int pretokenize_runs(struct pretokenizer *pre, unsigned step, const struct piece *whole)
{
    size_t start = 0, at = 0, bytes;
    uint8_t was = CHAR_SPACE;
    int r = 0;

    for (; r == 0 && at < whole->n; at += bytes) {
        uint8_t classes = char_classes_at(whole->text + at, &bytes);
        uint8_t is = classes & CHAR_WORD ? CHAR_WORD : classes & CHAR_SPACE;
        if (is == was)
            continue;
        if (was != CHAR_SPACE)
            r = pretokenize_part(pre, step, whole, start, at);
        start = at;
        was = is;
    }
    return r < 0 || was == CHAR_SPACE ? r : pretokenize_part(pre, step, whole, start, at);
}

static int pretokenize_prefix(struct pretokenizer *pre, unsigned step, const struct piece *whole)
{
    struct growing_bytes *own = &pre->steps[step].own;

    if (whole->text[0] == ' ')
        return pretokenize_from(pre, step + 1, whole);
    own->n = 0;
    if (growing_bytes_add(own, " ", 1) < 0 || growing_bytes_add(own, whole->text, whole->n) < 0)
        return -ENOMEM;
    return pretokenize_from(
        pre, step + 1, &(struct piece){.text = own->data, .n = own->n, .begins = whole->begins});
}

static int pretokenize_meta(struct pretokenizer *pre, unsigned step, const struct piece *whole)
{
    struct pre_step *meta = &pre->steps[step];
    struct growing_bytes *own = &meta->own;
    const char *mark = meta->text;
    size_t n = strlen(mark);
    bool marked = whole->text[0] == ' ' || (whole->n >= n && memcmp(whole->text, mark, n) == 0);
    bool prepend = meta->prepend == META_ALWAYS || (meta->prepend == META_FIRST && whole->begins);
    int r = 0;

    own->n = 0;
    if (prepend && !marked)
        r = growing_bytes_add(own, mark, n);
    for (size_t at = 0; r == 0 && at < whole->n; at++)
        r = whole->text[at] == ' ' ? growing_bytes_add(own, mark, n)
                                   : growing_bytes_add(own, whole->text + at, 1);
    if (r < 0)
        return r;
    struct piece changed = {.text = own->data, .n = own->n, .begins = whole->begins};
    return meta->split ? pretokenize_split(pre, step, &changed)
                       : pretokenize_from(pre, step + 1, &changed);
}

static int pretokenize_from(struct pretokenizer *pre, unsigned step, const struct piece *piece)
{
    if (step == pre->n)
        return pre->word(pre->owner, piece->text, piece->n);
    switch (pre->steps[step].kind) {
    case PRE_SCAN:
        return pretokenize_scan(pre, step, piece);
    case PRE_RUNS:
        return pretokenize_runs(pre, step, piece);
    case PRE_PREFIX:
        return pretokenize_prefix(pre, step, piece);
    case PRE_META:
        return pretokenize_meta(pre, step, piece);
    default:
        return pretokenize_split(pre, step, piece);
    }
}

int pretokenize(struct pretokenizer *pre, const struct piece *piece)
{
    return piece->n > 0 ? pretokenize_from(pre, 0, piece) : 0;
}
