/*
 * What kind of object a pickle holds, read from its opcodes. Nothing is unpickled: no code of the
 * pickle's runs, nothing is imported, and what it would build is not built, only what class it
 * would be of is followed over the stack. Pure; the bytes are untrusted.
 *
 * The opcodes are those that protocols 4 and 5 write, and GLOBAL (CPython's pickletools.py
 * describes them all); the persistent ids ("t", i) and ("n", i) are those of proto/tree.h.
 */
#ifndef DLCTL_PICKLE_H
#define DLCTL_PICKLE_H

#include "proto/base.h"

enum {
    PICKLE_CLASS = 160,     /* bytes of a name at most, with its NUL; longer ones are not told */
    PICKLE_DEPTH = 1 << 16, /* objects on the stack at most */
    PICKLE_SCAN_MAX = 64u << 20, /* bytes: what is larger is not looked at */
};

/*
 * The class of the object as Python names it: "collections.Counter", "dict", "torch.Tensor". Of one
 * that a function makes, the function's name: "numpy.core.multiarray.scalar". Only printable
 * characters, UTF-8. False, and "", where it cannot be known: damaged, too deep, or no memory.
 */
bool pickle_class(const void *data, size_t len, char ret[PICKLE_CLASS]);

#endif
