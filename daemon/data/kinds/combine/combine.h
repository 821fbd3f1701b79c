/*
 * Datasets made of datasets: concat, subset, split; chain, of iterable ones; and mix, of either.
 *
 * Each of the first three maps its own indices to those of the datasets inside it, which copy their
 * samples straight to the caller's memory: a combinator adds arithmetic, but no copy. Indices are
 * translated in pieces of COMBINE_CHUNK, on the stack, each read once (another process may write to
 * the caller's).
 *
 * `place` is a dataset's place in the spec ("dataset.datasets.1"), for messages.
 */
#ifndef DL_DATA_COMBINE_H
#define DL_DATA_COMBINE_H

#include "daemon/data/base/dataset.h"

enum { COMBINE_CHUNK = 256 };

/* As concat_open(). `first`: the first part, which becomes the dataset's in any case; NULL: it is
 * opened, too. */
int _nodiscard_ concat_open_from(const struct spec_dataset *spec, const char *place,
                                 const struct data_env *env, struct dataset *first,
                                 struct dataset **ret, struct dl_error *err);

/* Refuses a dataset at `place` that cannot be read by index. */
int _nodiscard_ combine_check(const struct dataset *inner, const char *place, struct dl_error *err);

/* The leaves of a schema, as a combinator walks along them while it hands samples on. */
struct leaf_cursor {
    uint64_t *row_bytes; /* owned; of one sample, for each leaf */
    void **dst;          /* owned; where each leaf's next sample goes */
    uint32_t n;
};

/*
 * Makes `outer` a dataset of the same samples as `inner`: copies the schema, and measures it for
 * `cursor`. -ENOMEM.
 */
int _nodiscard_ combine_schema(const struct dataset *inner, struct dataset *outer,
                               struct leaf_cursor *cursor);
void leaf_cursor_deinit(struct leaf_cursor *cursor);

/* To the first of the samples that go to `dst`, and past `n` of them. */
void leaf_cursor_begin(struct leaf_cursor *cursor, void *const *dst);
void leaf_cursor_advance(struct leaf_cursor *cursor, uint64_t n);

#endif
