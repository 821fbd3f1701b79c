/*
 * Datasets that Megatron-LM's preprocess_data.py wrote: a .bin file of tokens, and its .idx file
 * (megatron_index.h). Two views of the same tokens:
 *
 *   documents   Sample d is document d: {"tokens": [its length]}.
 *   samples     Sample i is the sequence_length tokens from i · sequence_length on of all documents
 *               one after another, and those one further on: {"tokens": [L], "labels": [L]}. As
 *               GPTDataset cuts them where its documents are not shuffled: the loader's sampler
 *               shuffles samples instead. Nothing is made or kept for that, however many there are.
 *
 * Both files are mapped; of the index, what a sample needs is read with it. Tokens are widened to
 * int64 on their way to the batch unless the spec says otherwise.
 */
#ifndef DL_DATA_MEGATRON_H
#define DL_DATA_MEGATRON_H

#include "daemon/data/dataset.h"
#include "daemon/data/globs.h"

int _nodiscard_ megatron_open(const struct spec_dataset *spec, const char *place,
                              const struct data_env *env, struct dataset **ret,
                              struct dl_error *err);

/* Adds the two files, whether they are there or not. */
int _nodiscard_ megatron_list_files(const struct spec_dataset *spec, struct file_list *ret,
                                    struct dl_error *err);

#endif
