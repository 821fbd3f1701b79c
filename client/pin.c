/*
 * CUDA's driver at run time: pin.h. The few functions of it are declared here, from NVIDIA's
 * documentation of the driver API, so that no header of theirs is needed.
 */
#include "client/pin.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>

/* CUresult, CUdevice: int. CUcontext: a pointer. */
struct cuda {
    int (*init)(unsigned flags);
    int (*device_count)(int *ret);
    int (*error_name)(int code, const char **ret);
    int (*context_current)(void **ret);
    int (*context_push)(void *context);
    int (*context_pop)(void **ret);
    int (*primary_retain)(void **ret, int device);
    int (*primary_release)(int device);
    int (*host_register)(void *base, size_t bytes, unsigned flags);
    int (*host_unregister)(void *base);
};

enum { CUDA_NO_DEVICE = 100 }; /* CUDA_ERROR_NO_DEVICE */

/* CU_MEMHOSTREGISTER_PORTABLE: for all contexts; _READ_ONLY: the device only reads. */
enum { REGISTER_PORTABLE = 0x01, REGISTER_READ_ONLY = 0x08 };

struct pin {
    atomic_uint refs;
    pid_t pid; /* a child cannot use what its parent opened of CUDA */
    struct cuda cuda;
    void *context;
    bool retained; /* it is device 0's primary one, and was retained by us */
};

/* ---- the library ---- */

static int pin_not_there(struct dl_error *err, const char *why)
{
    return dl_error_set(err, ENOTSUP, "memory.pin", "%s", why);
}

static const char *pin_name_of(const struct cuda *cuda, int code)
{
    const char *name = NULL;

    if (cuda->error_name && cuda->error_name(code, &name) == 0 && name)
        return name;
    return "an error of CUDA without a name";
}

static int pin_failed(const struct cuda *cuda, const char *what, int code, struct dl_error *err)
{
    return dl_error_set(err, code == CUDA_NO_DEVICE ? ENOTSUP : EIO, "memory.pin", "%s: %s", what,
                        pin_name_of(cuda, code));
}

/* Stores the function `name` in *ret, whatever its type. */
static bool pin_find(void *library, const char *name, void *ret)
{
    void *symbol = dlsym(library, name);

    memcpy(ret, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* libcuda is never unloaded: it has threads of its own. */
static int pin_load(struct cuda *cuda, struct dl_error *err)
{
    const char *env = secure_getenv("DLOADER_LIBCUDA");
    const char *path = env && env[0] ? env : "libcuda.so.1";
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    bool found;

    if (!lib) {
        const char *why = dlerror();

        return pin_not_there(err, why ? why : path);
    }
    *cuda = (struct cuda){0};
    found = pin_find(lib, "cuInit", &cuda->init) &&
            pin_find(lib, "cuDeviceGetCount", &cuda->device_count) &&
            pin_find(lib, "cuGetErrorName", &cuda->error_name) &&
            pin_find(lib, "cuCtxGetCurrent", &cuda->context_current) &&
            pin_find(lib, "cuCtxPushCurrent_v2", &cuda->context_push) &&
            pin_find(lib, "cuCtxPopCurrent_v2", &cuda->context_pop) &&
            pin_find(lib, "cuDevicePrimaryCtxRetain", &cuda->primary_retain) &&
            pin_find(lib, "cuDevicePrimaryCtxRelease_v2", &cuda->primary_release) &&
            pin_find(lib, "cuMemHostRegister_v2", &cuda->host_register) &&
            pin_find(lib, "cuMemHostUnregister", &cuda->host_unregister);
    dlclose(lib);
    return found ? 0
                 : dl_error_set(err, ENOTSUP, "memory.pin",
                                "%s is not CUDA's driver, or is "
                                "older than CUDA 11",
                                path);
}

/* Loaded, initialized, and a device is there. */
static int pin_open_cuda(struct cuda *cuda, struct dl_error *err)
{
    int n = 0;
    int r = pin_load(cuda, err);

    if (r < 0)
        return r;
    r = cuda->init(0);
    if (r != 0)
        return pin_failed(cuda, "cuInit", r, err);
    r = cuda->device_count(&n);
    if (r != 0)
        return pin_failed(cuda, "cuDeviceGetCount", r, err);
    return n > 0 ? 0 : pin_not_there(err, "CUDA has no device here");
}

int pin_check(struct dl_error *err)
{
    struct cuda cuda = {0};

    return pin_open_cuda(&cuda, err);
}

/* ---- pins ---- */

static int pin_find_context(struct pin *pin, struct dl_error *err)
{
    int r = pin->cuda.context_current(&pin->context);

    if (r != 0)
        return pin_failed(&pin->cuda, "cuCtxGetCurrent", r, err);
    if (pin->context)
        return 0;
    r = pin->cuda.primary_retain(&pin->context, 0);
    if (r != 0)
        return pin_failed(&pin->cuda, "cuDevicePrimaryCtxRetain", r, err);
    pin->retained = true;
    return 0;
}

int pin_new(struct pin **ret, struct dl_error *err)
{
    struct pin *pin = calloc(1, sizeof *pin);
    int r;

    if (!pin)
        return dl_error_set(err, ENOMEM, "memory.pin", "no memory");
    atomic_init(&pin->refs, 1);
    pin->pid = getpid();
    r = pin_open_cuda(&pin->cuda, err);
    if (r == 0)
        r = pin_find_context(pin, err);
    if (r < 0) {
        free(pin);
        return r;
    }
    *ret = pin;
    return 0;
}

struct pin *pin_ref(struct pin *pin)
{
    atomic_fetch_add_explicit(&pin->refs, 1, memory_order_relaxed); /* the caller holds one */
    return pin;
}

struct pin *pin_unref(struct pin *pin)
{
    if (!pin || atomic_fetch_sub_explicit(&pin->refs, 1, memory_order_acq_rel) > 1)
        return NULL;
    if (pin->retained && pin->pid == getpid())
        pin->cuda.primary_release(0);
    free(pin);
    return NULL;
}

int pin_register(struct pin *pin, void *base, uint64_t bytes, bool writable, struct dl_error *err)
{
    unsigned flags = REGISTER_PORTABLE | (writable ? 0 : REGISTER_READ_ONLY);
    void *popped;
    int r = pin->cuda.context_push(pin->context);

    if (r == 0) {
        r = pin->cuda.host_register(base, bytes, flags);
        pin->cuda.context_pop(&popped);
    }
    if (r == 0)
        return 0;
    return dl_error_set(
        err, EIO, "memory.pin", "%llu bytes of the ring cannot be page-locked: %s%s", (ull)bytes,
        pin_name_of(&pin->cuda, r),
        writable ? "; raise ulimit -l, or lower memory.limit" : "; memory.writable: true may help");
}

void pin_unregister(struct pin *pin, void *base)
{
    void *popped;

    if (pin->pid != getpid() || pin->cuda.context_push(pin->context) != 0)
        return; /* CUDA has ended, and all that it had locked is free */
    pin->cuda.host_unregister(base);
    pin->cuda.context_pop(&popped);
}
