/*
 * A model's template, from the files that it comes with: chat_template.jinja, or the chat_template
 * of a tokenizer_config.json or chat_template.json; and the special tokens that templates name, of
 * the tokenizer_config.json beside it.
 */
#ifndef DL_DATA_TOKENIZER_CHAT_FILE_H
#define DL_DATA_TOKENIZER_CHAT_FILE_H

#include "daemon/data/base/dataset.h"
#include "daemon/data/decode/jinja/jinja.h"

/* The file of the tokens, which need not be there; false: the template is in it, or is absent. */
bool chat_file_beside(const struct spec_dataset *spec, char ret[static DL_BOUND_PATH_BYTES]);

/* *ret_variables: bos_token and its like, and dataset.chat_args over them; owned by the caller, as
 * *ret is. May block. */
int _nodiscard_ chat_file_read(const struct spec_dataset *spec, const char *place,
                               const struct data_env *env, struct jinja **ret,
                               json_t **ret_variables, struct dl_error *err);

#endif
