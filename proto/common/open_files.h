/*
 * The limits on open files, in words, for a text about EMFILE or ENFILE. dl_error_set() appends
 * them unless the text already has them.
 */
#ifndef DL_OPEN_FILES_H
#define DL_OPEN_FILES_H

enum { OPEN_FILES_REMEDY_MAX = 160 }; /* bytes with the final NUL */

/* Names the limit, its value, and how to raise it; "" for other codes. Returns `buffer`. */
const char *open_files_remedy(int code, char buffer[OPEN_FILES_REMEDY_MAX]);

#endif
