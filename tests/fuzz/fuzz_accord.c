/*
 * What nodes leave in the store of changed weights: whatever the bytes are, what is taken of them
 * is written and read again as the same, to the byte; and a node that sees them knows what to do
 * next.
 */
#include "daemon/cluster/progress/accord.h"

#include "tests/fuzz/fuzz.h"

static void look_at(struct accord_value *value)
{
    struct accord accord = {.self = 7};
    struct accord_value next;

    accord_enter(&accord, 3, false);
    accord_call(&accord);
    accord_seen(&accord, 1, value);
    FUZZ_ASSERT(accord_is_known(&accord) && value->number == 0);
    if (accord_next(&accord, true, &next) == ACCORD_WRITE)
        FUZZ_ASSERT(next.number == accord.seen.number + 1);
    accord_deinit(&accord);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    _cleanup_(buffer_deinit)
    struct dl_buffer bytes = {0};
    struct accord_value value;
    uint64_t reach;

    (void)!accord_reach_read((struct dl_span){data, len}, &reach);
    if (accord_value_read((struct dl_span){data, len}, &value) < 0)
        return 0;
    FUZZ_ASSERT(accord_value_write(&value, &bytes) == 0);
    FUZZ_ASSERT(bytes.len == len && memcmp(bytes.data, data, len) == 0);
    look_at(&value);
    return 0;
}
