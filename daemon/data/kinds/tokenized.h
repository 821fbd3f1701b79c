/*
 * A dataset one of whose fields becomes tokens: what stands between the readers of kinds whose
 * samples have text (tar, mds, litdata, tfrecord, parquet, arrow, csv, lmdb) and the batch.
 *
 * The sample is the reader's, but that token_leaves.h's leaves stand where the field was: they are
 * in the same dict, at its place. A field is text, as a string or as bytes; of a chat it is a list
 * of messages, or JSON of one. A second text (dataset.second) becomes tokens by a second one of
 * these around the first: they stand under its own name. As of text, how many tokens a sample has
 * is found by making it.
 *
 * Not thread-safe. May block on the disk.
 */
#ifndef DL_DATA_TOKENIZER_TOKENIZED_H
#define DL_DATA_TOKENIZER_TOKENIZED_H

#include "daemon/data/base/dataset.h"

/* Whether the spec's samples are to be made into tokens here: text does it itself, but for a
 * second text. */
bool tokenized_is_asked_for(const struct spec_dataset *spec);

/* *ret, which the reader of `spec` opened, becomes one of tokens; on failure it is closed and NULL.
 * Errors as of token_leaves_open(), and of a field that dataset.fields leaves out. */
int _nodiscard_ tokenized_open(const struct spec_dataset *spec, const char *place,
                               const struct data_env *env, struct dataset **ret,
                               struct dl_error *err);

#endif
