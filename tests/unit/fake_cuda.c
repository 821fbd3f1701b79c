/*
 * A libcuda.so.1 that notes what it is asked, for test_client_pin: as many devices as
 * $FAKE_CUDA_DEVICES says, and the call of $FAKE_CUDA_FAILS fails with error 2, or with that behind
 * its name, as in cuInit=100.
 */
#include "tests/unit/fake_cuda.h"

#include <stdlib.h>
#include <string.h>

static struct fake_cuda notes;
static char context, other_context;

__attribute__((visibility("default"))) struct fake_cuda *fake_cuda_notes(void)
{
    return &notes;
}

static int outcome(const char *name)
{
    const char *fails = getenv("FAKE_CUDA_FAILS");

    size_t len = strlen(name);

    if (!fails || strncmp(fails, name, len) != 0)
        return 0;
    return fails[len] == '=' ? atoi(fails + len + 1) : fails[len] == '\0' ? 2 : 0;
}

#define CUDA(name, ...)                                           \
    __attribute__((visibility("default"))) int name(__VA_ARGS__); \
    int name(__VA_ARGS__)

CUDA(cuInit, unsigned flags)
{
    notes.inits++;
    return outcome("cuInit");
}

CUDA(cuDeviceGetCount, int *ret)
{
    const char *devices = getenv("FAKE_CUDA_DEVICES");

    *ret = devices ? atoi(devices) : 1;
    return outcome("cuDeviceGetCount");
}

CUDA(cuGetErrorName, int code, const char **ret)
{
    *ret = "CUDA_ERROR_OUT_OF_MEMORY";
    return code == 2 ? 0 : 1;
}

CUDA(cuCtxGetCurrent, void **ret)
{
    *ret = notes.has_context ? &other_context : NULL;
    return outcome("cuCtxGetCurrent");
}

CUDA(cuCtxPushCurrent_v2, void *pushed)
{
    notes.pushed++;
    notes.strangers += pushed != (notes.has_context ? &other_context : &context);
    return outcome("cuCtxPushCurrent_v2");
}

CUDA(cuCtxPopCurrent_v2, void **ret)
{
    notes.pushed--;
    *ret = NULL;
    return 0;
}

CUDA(cuDevicePrimaryCtxRetain, void **ret, int device)
{
    int r = outcome("cuDevicePrimaryCtxRetain");

    notes.retained += r == 0;
    *ret = &context;
    return r;
}

CUDA(cuDevicePrimaryCtxRelease_v2, int device)
{
    notes.retained--;
    return 0;
}

CUDA(cuMemHostRegister_v2, void *base, size_t bytes, unsigned flags)
{
    int r = outcome("cuMemHostRegister_v2");

    if (r == 0) {
        notes.registered++;
        notes.base = base;
        notes.bytes = bytes;
        notes.flags = flags;
    }
    return r;
}

CUDA(cuMemHostUnregister, void *base)
{
    volatile const char *first = base;

    (void)*first; /* still mapped */
    notes.registered--;
    return 0;
}
