/*
 * Fuzzer: bytes → value → bytes → value. What is accepted must come back equal, and what the scan
 * refuses must not get to msgpack-c. A spec is read from whatever comes out, as the daemon does.
 * The same bytes are a page of a list, too.
 */
#include "tests/fuzz/fuzz.h"

#include "proto/pages.h"
#include "proto/spec.h"

/* What one page gives, two give twice. */
static void try_pages(const uint8_t *data, size_t size)
{
    _cleanup_(buffer_deinit) struct dl_buffer whole = {0};
    _cleanup_(value_deinit) struct value once = {0};
    _cleanup_(value_deinit) struct value twice = {0};
    struct dl_error err = {0};
    int r = pages_unpack(data, size, &once, &err);

    FUZZ_ASSERT(r == 0 || (err.code == -r && err.message[0]));
    for (int i = 0; i < 2; i++)
        if (pages_join(&whole, data, size) < 0)
            return;
    if (r < 0)
        return;
    FUZZ_ASSERT(once.type == VALUE_ARRAY);
    FUZZ_ASSERT(pages_unpack(whole.data, whole.len, &twice, NULL) == 0);
    FUZZ_ASSERT(twice.count == 2 * once.count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_(value_deinit) struct value v = {0};
    _cleanup_(value_deinit) struct value again = {0};
    _cleanup_(value_deinit) struct value copy = {0};
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    _cleanup_(buffer_deinit) struct dl_buffer packed = {0};
    struct dl_error err = {0};
    size_t used = 0;

    try_pages(data, size);
    if (value_scan(data, size, &used) == 0)
        FUZZ_ASSERT(used > 0 && used <= size);
    int r = value_unpack(data, size, &v, &err);
    if (r < 0) {
        FUZZ_ASSERT(err.code == -r && err.message[0]);
        return 0;
    }
    FUZZ_ASSERT(used == size);
    FUZZ_ASSERT(value_pack(&v, &packed) == 0);
    FUZZ_ASSERT(value_unpack(packed.data, packed.len, &again, NULL) == 0);
    FUZZ_ASSERT(value_equal(&v, &again));
    FUZZ_ASSERT(value_copy(&v, &copy) == 0 && value_equal(&v, &copy));
    r = spec_from_value(&v, "/base", &spec, &err);
    FUZZ_ASSERT(r == 0 || (r < 0 && err.code == -r));
    return 0;
}
