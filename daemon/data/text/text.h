/*
 * Text: a sample is a line, or a field of a line of JSON, of one or more files in their order.
 *
 * Or, of JSON, several fields of a line: each as json_field.h makes a leaf of it, under its name,
 * but the one that becomes tokens, whose leaves stand in its place.
 *
 * Without a tokenizer it is {"text": string}; a string of a plain file lies where it is mapped.
 * With one it is what token_leaves.h makes of the text. How many tokens `bytes` makes is known of
 * plain files, and of JSON found by parsing. Opening
 * reads the files once, to know where lines begin: about 2.3 bytes of memory for a line of usual
 * length (text_lines.h).
 */
#ifndef DL_DATA_TEXT_H
#define DL_DATA_TEXT_H

#include "daemon/data/dataset.h"

int _nodiscard_ text_open(const struct spec_dataset *spec, const char *place,
                          const struct data_env *env, struct dataset **ret, struct dl_error *err);

#endif
