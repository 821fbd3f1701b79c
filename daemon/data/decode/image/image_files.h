/* Which files are images, by their names. */
#ifndef DL_DATA_IMAGE_FILES_H
#define DL_DATA_IMAGE_FILES_H

#include "daemon/data/files/class_list.h"

extern const struct class_files image_files;

#endif
