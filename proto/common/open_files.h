/*
 * The limits of open files, in words: what follows a text about EMFILE or ENFILE. dl_error_set()
 * appends it to texts that do not have it yet.
 */
#ifndef DL_OPEN_FILES_H
#define DL_OPEN_FILES_H

enum { OPEN_FILES_REMEDY_MAX = 160 }; /* bytes with the final NUL */

/* Whose limit it is, its value, and what raises it; "" for other codes. Returns `buffer`. */
const char *open_files_remedy(int code, char buffer[OPEN_FILES_REMEDY_MAX]);

#endif
