/*
 * Functions of a library that is looked for at run time and not linked: a wheel cannot know what
 * the system that it comes to has.
 */
#ifndef DL_LIBRARY_H
#define DL_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

struct library_function {
    const char *name;
    void *ret; /* address of a pointer to such a function */
};

/*
 * Opens the first library of `files` (ends with NULL) that is there and sets the pointers to its
 * functions. False: none is there that has them all. The library stays loaded. Any thread.
 */
bool library_find(const char *const *files, const struct library_function *functions, size_t n);

#endif
