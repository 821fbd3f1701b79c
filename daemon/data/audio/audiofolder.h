/* A folder of sounds: WAV, FLAC, Ogg and MP3, a folder for each class. audiofolder.c says what is
 * read.
 */
#ifndef DL_DATA_AUDIOFOLDER_H
#define DL_DATA_AUDIOFOLDER_H

#include "daemon/data/dataset.h"

int _nodiscard_ audiofolder_open(const struct spec_dataset *spec, const char *place,
                                 const struct data_env *env, struct dataset **ret,
                                 struct dl_error *err);

#endif
