/*
 * Tensors as DLPack managed tensors: the structures of dlpack.h v0.8, written from its published
 * layout so that the library needs no header of another project.
 *
 * A tensor holds a reference on its batch and copies of shape and strides; its deleter may run in
 * any thread, before or after the client is closed.
 */
#include "client/internal.h"

#include <errno.h>

enum { DLPACK_CPU = 1 };

struct dlpack_device {
    int32_t type;
    int32_t id;
};

struct dlpack_dtype {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
};

struct dlpack_tensor {
    void *data;
    struct dlpack_device device;
    int32_t ndim;
    struct dlpack_dtype dtype;
    int64_t *shape;
    int64_t *strides; /* in elements */
    uint64_t byte_offset;
};

struct DLManagedTensor {
    struct dlpack_tensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
};
_Static_assert(sizeof(struct dlpack_tensor) == 48 && sizeof(struct DLManagedTensor) == 64,
               "the layout of dlpack.h v0.8 on a 64-bit machine");

struct export
{
    struct DLManagedTensor managed;
    struct dl_batch *batch; /* counted */
    int64_t shape[TREE_DIMS];
    int64_t strides[TREE_DIMS];
};

static void dlpack_delete_export(struct DLManagedTensor *managed)
{
    struct export *export = managed->manager_ctx;

    reclaim_drop(export->batch);
    free(export);
}

static void dlpack_fill(struct export *export, const struct dl_tensor *tensor)
{
    struct dlpack_tensor *t = &export->managed.dl_tensor;
    uint64_t stride = 1, next;

    for (uint32_t i = tensor->ndim; i-- > 0;) {
        export->shape[i] = (int64_t)tensor->shape[i];
        export->strides[i] = (int64_t)stride;
        /* Of an empty tensor no stride is ever used, but torch shows them; their bytes must only
         * not overflow. */
        if (!mul_overflows(stride, max_u64(tensor->shape[i], 1), &next) && next <= INT64_MAX)
            stride = next;
    }
    t->data = (void *)(uintptr_t)tensor->data;
    t->device = (struct dlpack_device){.type = DLPACK_CPU};
    t->ndim = (int32_t)tensor->ndim;
    t->dtype.code = (uint8_t)dtype_dlpack_code(tensor->dtype);
    t->dtype.bits = (uint8_t)(dtype_bytes(tensor->dtype) * 8);
    t->dtype.lanes = 1;
    t->shape = export->shape;
    t->strides = export->strides;
}

static int dlpack_export_tensor(struct dl_batch *batch, const char *path,
                                const struct dl_tensor *tensor, struct DLManagedTensor **ret)
{
    struct export *export = calloc(1, sizeof *export);

    if (!export)
        return client_fail(batch->client, ENOMEM, path, "no memory for a DLPack tensor");
    dlpack_fill(export, tensor);
    export->batch = batch;
    export->managed.manager_ctx = export;
    export->managed.deleter = dlpack_delete_export;
    if (!batch->reclaim)
        batch->reclaim = reclaim_ref(batch->client->reclaim);
    /* Relaxed: the caller owns the batch, so the count cannot reach zero meanwhile. */
    atomic_fetch_add_explicit(&batch->refs, 1, memory_order_relaxed);
    *ret = &export->managed;
    return 0;
}

int dl_batch_dlpack(struct dl_batch *batch, const char *path, struct DLManagedTensor **ret)
{
    struct dl_tensor tensor;
    int r = dl_batch_tensor(batch, path, &tensor);

    return r < 0 ? r : dlpack_export_tensor(batch, path, &tensor, ret);
}

int dl_batch_node_dlpack(struct dl_batch *batch, uint32_t i, struct DLManagedTensor **ret)
{
    struct dl_node node;
    int r = dl_batch_node(batch, i, &node);

    if (r < 0)
        return r;
    if (node.kind != DL_NODE_TENSOR)
        return client_fail(batch->client, EINVAL, "", "node %u is not a tensor", i);
    return dlpack_export_tensor(batch, "", &node.tensor, ret);
}
