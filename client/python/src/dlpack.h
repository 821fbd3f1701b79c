/*
 * The structures of dlpack.h v0.8, written from its published layout; what dl_batch_dlpack() gives.
 */
#ifndef DL_PYTHON_DLPACK_H
#define DL_PYTHON_DLPACK_H

#include <stdint.h>

enum { DLPACK_CPU = 1, DLPACK_CODE_UINT = 1 }; /* kDLCPU, kDLUInt */

struct DLTensor {
    void *data;
    int32_t device_type;
    int32_t device_id;
    int32_t ndim;
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides; /* in elements */
    uint64_t byte_offset;
};

struct DLManagedTensor {
    struct DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
};

_Static_assert(sizeof(struct DLTensor) == 48 && sizeof(struct DLManagedTensor) == 64,
               "the layout of dlpack.h v0.8 on a 64-bit machine");

#endif
