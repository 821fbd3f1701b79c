/*
 * Datasets made of datasets: concat, subset, split; chain, of iterable ones; and mix, of either.
 *
 * Each of the first three is a map from its own indices to those of the datasets inside it, which
 * copy their samples straight to where the caller wants them: a combinator adds arithmetic, no
 * copy. Indices are translated in pieces of COMBINE_CHUNK, each read once (the caller's may be
 * memory that another process writes to), on the stack.
 *
 * `place` is where a dataset stands in the spec ("dataset.datasets.1"), for messages.
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

/* Refuses a dataset at `place` that has no indices to be taken by. */
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
