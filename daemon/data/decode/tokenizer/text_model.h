/*
 * The tokenizer `sentencepiece` of text: its model, read from a file.
 *
 * Each process that opens the dataset has a copy of its own. Not thread-safe; opening may block on
 * the disk.
 */
#ifndef DL_DATA_TEXT_MODEL_H
#define DL_DATA_TEXT_MODEL_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/decode/tokenizer/sentencepiece.h"

/*
 * Reads the model that the dataset at `place` names. Errors name the file, or the key `tokenizer`
 * where this program has no SentencePiece (-ENOTSUP). To be freed by spm_free(). *ret_content: a
 * hash of the file.
 */
int _nodiscard_ text_model_open(const struct spec_dataset *spec, const char *place,
                                const struct data_env *env, struct spm_model **ret,
                                uint64_t *ret_content, struct dl_error *err);

#endif
