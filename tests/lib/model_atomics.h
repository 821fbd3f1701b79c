/* Includes after this have their atomic operations in tests/lib/memory_model.h. What they include
 * themselves has to be included before. */
#ifndef TESTS_MODEL_ATOMICS_H
#define TESTS_MODEL_ATOMICS_H

#include "tests/lib/memory_model.h"

#include <stdatomic.h>
#include <string.h>

#undef atomic_load
#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_or
#undef atomic_exchange_explicit
#undef atomic_compare_exchange_weak

#define _Atomic
#define memcpy(to, from, bytes)                    model_copy(to, from, bytes)
#define atomic_load(p)                             model_load(p, sizeof *(p), memory_order_seq_cst)
#define atomic_load_explicit(p, order)             model_load(p, sizeof *(p), order)
#define atomic_store_explicit(p, value, order)     model_store(p, sizeof *(p), value, order)
#define atomic_fetch_add_explicit(p, value, order) model_add(p, sizeof *(p), value, order)
#define atomic_fetch_or(p, value)                  model_or(p, sizeof *(p), value, memory_order_seq_cst)
#define atomic_exchange_explicit(p, value, order)  model_exchange(p, sizeof *(p), value, order)
#define atomic_compare_exchange_weak(p, expected, v) \
    model_compare_exchange(p, sizeof *(p), expected, v, memory_order_seq_cst, memory_order_seq_cst)

#define __atomic_load_n(p, order)           model_load(p, sizeof *(p), order)
#define __atomic_fetch_add(p, value, order) model_add(p, sizeof *(p), value, order)
#define __atomic_add_fetch(p, value, order) (model_add(p, sizeof *(p), value, order) + (value))
#define __atomic_compare_exchange_n(p, expected, v, weak, order, otherwise) \
    model_compare_exchange(p, sizeof *(p), expected, v, order, otherwise)

#endif
