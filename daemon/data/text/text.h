/*
 * Text: a sample is a line, or a field of a line of JSON, of one or more files in their order.
 *
 * Without a tokenizer it is {"text": string}; a string of a plain file lies where it is mapped.
 * With the tokenizer `bytes` it is {"tokens": int64 [n]}, its bytes, 0..255, at most max_length of
 * them if that is given; they need not be UTF-8 then. How many they are is known of plain files,
 * and of JSON found by parsing. With `sentencepiece` they are the ids that the model makes of the
 * whole of it, of which the first max_length are kept. With `huggingface` they are those of a
 * tokenizer.json (tokenizer.h); max_length cuts the text's own, and special tokens stay. Opening
 * reads the files once, to know where lines begin: about 2.3 bytes of memory for a line of usual
 * length (text_lines.h).
 */
#ifndef DL_DATA_TEXT_H
#define DL_DATA_TEXT_H

#include "daemon/data/dataset.h"

int _nodiscard_ text_open(const struct spec_dataset *spec, const char *place,
                          const struct data_env *env, struct dataset **ret, struct dl_error *err);

#endif
