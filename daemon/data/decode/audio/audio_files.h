/* Which files are sounds, by their names. */
#ifndef DL_DATA_AUDIO_FILES_H
#define DL_DATA_AUDIO_FILES_H

#include "daemon/data/files/class_list.h"

extern const struct class_files audio_files;

#endif
