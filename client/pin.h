/*
 * Page-locks the ring so that a GPU can copy from it directly. libcuda is loaded when this is first
 * requested: the library has no other tie to CUDA and works without it.
 *
 * Counted, atomically: the client and every registered mapping hold references, since the last
 * tensor of a mapping may unregister it in any thread.
 */
#ifndef DL_CLIENT_PIN_H
#define DL_CLIENT_PIN_H

#include "proto/common/base.h"
#include "proto/common/error.h"

struct pin;

/*
 * libcuda ($DLOADER_LIBCUDA, else libcuda.so.1), initialized, in the thread's current context, or
 * else the primary one of device 0: 0 and one reference, or -ENOTSUP or -ENOMEM with `err` saying
 * why not.
 */
int _nodiscard_ pin_new(struct pin **ret, struct dl_error *err);

/* Whether there is a device at all, without a context on it: 0, or -ENOTSUP with `err`. */
int _nodiscard_ pin_check(struct dl_error *err);

struct pin *pin_ref(struct pin *pin);
struct pin *pin_unref(struct pin *pin); /* NULL is fine; returns NULL */

/* Page-locks memory until pin_unregister(): 0, or -EIO with CUDA's name for the error. */
int _nodiscard_ pin_register(struct pin *pin, void *base, uint64_t bytes, bool writable,
                             struct dl_error *err);
void pin_unregister(struct pin *pin, void *base); /* any thread */

#endif
