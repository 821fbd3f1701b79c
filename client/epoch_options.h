/*
 * struct dl_epoch_options of programs built for another release: fields are only added at its end,
 * and `size` says which of them the program has. Fields that it lacks are 0; fields unknown to this
 * library must be 0.
 */
#ifndef DL_CLIENT_EPOCH_OPTIONS_H
#define DL_CLIENT_EPOCH_OPTIONS_H

#include "client/dlclient.h"
#include "proto/common/base.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>

/* What a program has that says nothing: the struct as it was when `size` came. Never changes. */
#define EPOCH_OPTIONS_FIRST (offsetof(struct dl_epoch_options, reserved) + sizeof(uint32_t))

static_assert(offsetof(struct dl_epoch_options, expected_steps) == EPOCH_OPTIONS_FIRST &&
                  sizeof(struct dl_epoch_options) ==
                      EPOCH_OPTIONS_FIRST + sizeof(uint64_t) + sizeof(void *) + sizeof(size_t),
              "no padding, which programs do not set, and which a field would be put into");

static inline size_t epoch_options_size(const struct dl_epoch_options *o)
{
    return o->size ? o->size : EPOCH_OPTIONS_FIRST;
}

/* NULL means all 0. -EINVAL: shorter than in any release; -E2BIG: an unknown field is set. */
static inline int _nodiscard_ epoch_options_read(const struct dl_epoch_options *from,
                                                 struct dl_epoch_options *ret)
{
    size_t size = from ? epoch_options_size(from) : 0;

    *ret = (struct dl_epoch_options){0};
    if (!from)
        return 0;
    if (size < EPOCH_OPTIONS_FIRST)
        return -EINVAL;
    memcpy(ret, from, min_u64(size, sizeof *ret));
    ret->size = sizeof *ret;
    for (size_t i = sizeof *ret; i < size; i++)
        if (((const char *)from)[i])
            return -E2BIG;
    return ret->reserved ? -E2BIG : 0;
}

/* What was changed of those that were read. */
static inline void epoch_options_write(const struct dl_epoch_options *o,
                                       struct dl_epoch_options *ret)
{
    size_t size = ret->size;

    memcpy(ret, o, min_u64(epoch_options_size(ret), sizeof *o));
    ret->size = size;
}

static inline const char *epoch_options_why(int r)
{
    return r == -E2BIG
               ? "say more than this library knows: install the release that the program was "
                 "built for"
               : "have a size that is not that of a struct dl_epoch_options";
}

/* Where a refusal of what a program or its environment says is explained; `text` may be NULL with
 * size 0. */
struct why {
    char *text;
    size_t size;
};

/* -EINVAL. */
int options_refuse(const struct why *why, const char *format, ...) _printf_(2, 3);

#endif
