/* Lengths of samples, in a word. */
#ifndef DL_TEST_LENGTHS_H
#define DL_TEST_LENGTHS_H

#include "daemon/data/collate/lengths.h"

/* `how`: one of the functions that take a struct lengths_wanted. */
#define LENGTHS(how, ds, leaf_, first_, n_, ret_, ret_bad, err)                                    \
    ({                                                                                             \
        struct lengths_wanted _w = {.leaf = (leaf_), .first = (first_), .n = (n_), .ret = (ret_)}; \
        int _r = how((ds), &_w, (err));                                                            \
        *(ret_bad) = _w.bad;                                                                       \
        _r;                                                                                        \
    })

#endif
