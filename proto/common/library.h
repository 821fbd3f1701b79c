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
 * Opens the first library in `files` (NULL-terminated) that has all functions, and sets the
 * pointers to them. False if no library does. The library stays loaded. Any thread.
 */
bool library_find(const char *const *files, const struct library_function *functions, size_t n);

/*
 * "KILL" of SIGKILL, and "ENOENT" of its number, where the C library has the names: glibc does from
 * 2.32 on, and a wheel is linked for older ones. NULL if the C library cannot name it.
 */
const char *library_signal_name(int signal);
const char *library_errno_name(int code);

#endif
