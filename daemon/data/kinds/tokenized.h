/*
 * A dataset with a field that becomes tokens: the layer between the readers of kinds whose samples
 * have text (tar, mds, litdata, tfrecord, parquet, arrow, csv, lmdb) and the batch.
 *
 * The sample is the reader's, with the field replaced by token_leaves.h's leaves, in the same dict
 * and place. A field is text, as a string or as bytes; of a chat it is a list of messages, or JSON
 * of one. A second text (dataset.second) becomes tokens by a second such dataset around the first,
 * under its own name. As with text, a sample's number of tokens is found by making it.
 *
 * Not thread-safe. May block on the disk.
 */
#ifndef DL_DATA_TOKENIZER_TOKENIZED_H
#define DL_DATA_TOKENIZER_TOKENIZED_H

#include "daemon/data/base/dataset.h"

/* Whether the spec's samples are tokenized here: text does it itself, except for a second text. */
bool tokenized_is_asked_for(const struct spec_dataset *spec);

/* *ret, which the reader of `spec` opened, becomes one of tokens; on failure it is closed and NULL.
 * Errors as of token_leaves_open(), and of a field that dataset.fields leaves out. */
int _nodiscard_ tokenized_open(const struct spec_dataset *spec, const char *place,
                               const struct data_env *env, struct dataset **ret,
                               struct dl_error *err);

#endif
