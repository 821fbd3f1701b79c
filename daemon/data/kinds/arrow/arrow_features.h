/* Metadata of Arrow's columns beyond their types: which are images or sounds, and which lists are
 * arrays. */
#ifndef DL_DATA_ARROW_FEATURES_H
#define DL_DATA_ARROW_FEATURES_H

#include "daemon/data/kinds/arrow/arrow_schema.h"
#include "proto/spec.h"

/*
 * Marks fields as the features say that Hugging Face's `datasets` keeps in a schema's metadata:
 * Image, Audio and Video are files, Array2D to Array5D lists of lists that are an array. Other JSON
 * is ignored.
 */
void arrow_features_mark(struct arrow_schema *schema);

/* Marks the columns that `spec` calls images or audio. -EINVAL with `err` naming `path`. */
int _nodiscard_ arrow_features_mark_media(struct arrow_schema *schema,
                                          const struct spec_dataset *spec, const char *path,
                                          struct dl_error *err);

#endif
