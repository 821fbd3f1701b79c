/* Page-locking the ring for CUDA, with a libcuda of the tests' own. */
#include "tests/unit/fake_cuda.h"
#include "tests/unit/fake_daemon.h"

#include <dlfcn.h>

/* The fake library, its notes cleared. */
static struct fake_cuda *cuda(void)
{
    struct fake_cuda *(*notes)(void);
    void *lib = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_NODELETE);
    void *symbol;

    assert_non_null(lib);
    symbol = dlsym(lib, "fake_cuda_notes");
    assert_non_null(symbol);
    memcpy(&notes, &symbol, sizeof notes);
    dlclose(lib);
    *notes() = (struct fake_cuda){0};
    setenv("DLOADER_LIBCUDA", FAKE_CUDA, 1);
    unsetenv("FAKE_CUDA_FAILS");
    unsetenv("FAKE_CUDA_DEVICES");
    return notes();
}

/* The first fields of what dl_batch_dlpack() gives. */
struct managed {
    uint8_t tensor[48];
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
};

TEST(test_pin)
{
    struct fake_cuda *notes = cuda();
    struct DLManagedTensor *tensor;
    struct managed *managed;
    struct fake f;

    fake_connect(&f);
    fake_open(&f);
    fake_start(&f, 4, 10);
    assert_int_equal(dl_client_pin(f.client), 0); /* nothing is mapped yet */
    assert_int_equal(notes->registered, 0);
    assert_int_equal(notes->retained, 1);
    fake_segment(&f);
    fake_deliver(&f, 0, 1);
    assert_int_equal(dl_batch_node_dlpack(fake_next(&f, 0), 1, &tensor), 0);
    assert_int_equal(notes->registered, 1);
    assert_ptr_equal(notes->base, f.client->segments[0]->base);
    assert_int_equal(notes->bytes, FAKE_BYTES);
    assert_int_equal(notes->flags, 0x09); /* portable; read-only, as it is mapped */
    assert_int_equal(dl_client_pin(f.client), 0);
    assert_int_equal(notes->registered, 1); /* once is enough */

    /* The last tensor's mapping, and only that, ends it. */
    f.client = dl_client_close(f.client);
    assert_int_equal(notes->registered, 1);
    assert_int_equal(notes->retained, 1);
    memcpy(&managed, &tensor, sizeof managed);
    managed->deleter(tensor);
    assert_int_equal(notes->registered, 0);
    assert_int_equal(notes->retained, 0);
    assert_int_equal(notes->pushed, 0);
    assert_int_equal(notes->strangers, 0);
    fake_end(&f);
}

/* The thread's own context is used, and none retained; what is mapped already is locked at once. */
TEST(test_context)
{
    struct fake_cuda *notes = cuda();
    struct fake f;

    notes->has_context = 1;
    fake_run(&f, 4, 10);
    assert_int_equal(dl_client_dispatch(f.client), 0);
    f.client->segments[0]->writable = true;
    assert_int_equal(dl_client_pin(f.client), 0);
    assert_int_equal(notes->registered, 1);
    assert_int_equal(notes->flags, 0x01);
    assert_int_equal(notes->retained, 0);
    assert_int_equal(notes->strangers, 0);
    fake_end(&f);
    assert_int_equal(notes->registered, 0);
    assert_int_equal(notes->retained, 0);
}

TEST(test_refusals)
{
    static const struct {
        const char *cuda, *fails, *devices;
        int want;
        const char *text;
    } rows[] = {
        {"/nowhere/libcuda.so.1", NULL, NULL, -ENOTSUP, "/nowhere/libcuda.so.1"},
        {NO_PLUGIN, NULL, NULL, -ENOTSUP, "is not CUDA's driver"},
        {FAKE_CUDA, "cuInit", NULL, -EIO, "cuInit: CUDA_ERROR_OUT_OF_MEMORY"},
        {FAKE_CUDA, "cuInit=100", NULL, -ENOTSUP, "cuInit: an error of CUDA without a name"},
        {FAKE_CUDA, "cuDeviceGetCount", NULL, -EIO, "cuDeviceGetCount: CUDA_ERROR"},
        {FAKE_CUDA, NULL, "0", -ENOTSUP, "CUDA has no device here"},
        {FAKE_CUDA, "cuCtxGetCurrent", NULL, -EIO, "cuCtxGetCurrent: CUDA_ERROR"},
        {FAKE_CUDA, "cuDevicePrimaryCtxRetain", NULL, -EIO, "Retain: CUDA_ERROR"},
        {FAKE_CUDA, "cuCtxPushCurrent_v2", NULL, -EIO, "page-locked: CUDA_ERROR_OUT_OF_MEMORY"},
        {FAKE_CUDA, "cuMemHostRegister_v2", NULL, -EIO, "page-locked: CUDA_ERROR_OUT_OF_MEMORY"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct fake_cuda *notes = cuda();
        char why[256] = "unset", cut[4];
        struct fake f;
        int check;

        setenv("DLOADER_LIBCUDA", rows[i].cuda, 1);
        if (rows[i].fails)
            setenv("FAKE_CUDA_FAILS", rows[i].fails, 1);
        if (rows[i].devices)
            setenv("FAKE_CUDA_DEVICES", rows[i].devices, 1);
        fake_run(&f, 4, 10);
        assert_int_equal(dl_client_dispatch(f.client), 0);
        assert_int_equal(dl_client_pin(f.client), rows[i].want);
        if (!strstr(dl_client_error(f.client), rows[i].text))
            fail_msg("'%s' does not say '%s'", dl_client_error(f.client), rows[i].text);
        check = dl_pin_check(why, sizeof why);
        assert_int_equal(check, i < 6 ? rows[i].want : 0);
        assert_int_equal(strlen(why) > 0, check < 0);
        assert_int_equal(dl_pin_check(cut, sizeof cut), check);
        assert_true(strlen(cut) < sizeof cut);

        /* All else works. */
        fake_deliver(&f, 0, 1);
        fake_next(&f, 0);
        fake_end(&f);
        assert_int_equal(notes->retained + notes->registered, 0);
    }
}

/* A segment that comes later and cannot be locked is one that is not locked. */
TEST(test_later)
{
    struct fake_cuda *notes = cuda();
    struct fake f;

    fake_connect(&f);
    fake_open(&f);
    fake_start(&f, 4, 10);
    assert_int_equal(dl_client_pin(f.client), 0);
    setenv("FAKE_CUDA_FAILS", "cuMemHostRegister_v2", 1);
    fake_segment(&f);
    fake_deliver(&f, 0, 1);
    fake_next(&f, 0);
    assert_int_equal(notes->registered, 0);
    assert_int_equal(notes->retained, 0);
    assert_int_equal(dl_client_pin(f.client), -EIO);
    unsetenv("FAKE_CUDA_FAILS");
    assert_int_equal(dl_client_pin(f.client), 0);
    assert_int_equal(notes->registered, 1);
    fake_end(&f);
    assert_int_equal(notes->registered, 0);
}
