/*
 * The one door to libsentencepiece, which is C++: a model in memory, and the ids it makes of a
 * text.
 *
 * sentencepiece.cc is compiled where the library is there, sentencepiece_none.c elsewhere. No
 * exception comes through. A model has room of its own for the ids it gives: it is not thread-safe,
 * but several may be used at once, each by its own thread. The library's parser is foreign and not
 * fuzzed here: a model that somebody made to do harm may crash who loads it.
 *
 * This header is C and C++, so it includes nothing of ours.
 */
#ifndef DL_DATA_TEXT_SENTENCEPIECE_H
#define DL_DATA_TEXT_SENTENCEPIECE_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SPM_WHY_MAX = 256 };

struct spm_model;

/* Whether there is a library behind this; if not, spm_load() says -ENOTSUP. */
bool spm_is_built(void);

/*
 * Makes *ret of the contents of a .model file, which are not needed afterwards. 0; -ENOMEM; or
 * -EINVAL with the library's own words in `why`, of SPM_WHY_MAX bytes: they are not a model.
 */
int spm_load(const void *bytes, size_t n, struct spm_model **ret, char *why);

/*
 * The ids of a text, without marks of its beginning and end; malformed UTF-8 is U+FFFD. They
 * stay until the next call. 0; -ENOMEM; or -EINVAL with words in `why`.
 */
int spm_encode(struct spm_model *model, const void *text, size_t n, const int **ret, size_t *ret_n,
               char *why);

void spm_free(struct spm_model *model); /* NULL is fine */

#ifdef __cplusplus
}
#endif

#endif
