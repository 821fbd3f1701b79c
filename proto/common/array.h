/*
 * Arrays that grow. No state; any thread.
 */
#ifndef DL_ARRAY_H
#define DL_ARRAY_H

#include "proto/common/base.h"

/*
 * True: `array` has room for `need` items; `room`, of any unsigned type, says for how many. Both
 * grow as needed, and what is new is not zeroed. False: out of memory, and nothing has changed.
 */
#define array_reserve(array, room, need)                                              \
    ({                                                                                \
        uint64_t _need = (need), _had = (room), _more = _had + _had / 2 + 16, _bytes; \
        void *_grown = NULL;                                                          \
        _more = max_u64(_more, _need);                                                \
        if (_need > _had && (__typeof__(room))_more == _more &&                       \
            !mul_overflows(_more, sizeof *(array), &_bytes))                          \
            _grown = realloc((array), _bytes);                                        \
        if (_grown) {                                                                 \
            (array) = _grown;                                                         \
            (room) = (__typeof__(room))_more;                                         \
        }                                                                             \
        _need <= (room);                                                              \
    })

#endif
