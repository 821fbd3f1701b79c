/*
 * Fuzzer: text → YAML → loader spec → canonical form → bytes → spec again. Whatever is accepted
 * must come back the same from its own canonical form, or daemon and worker would not mean the same
 * loader.
 */
#include "tests/fuzz/fuzz.h"

#include "proto/spec.h"
#include "proto/yaml.h"

/* An error has a code that fits and says something. */
static void expect_told(int r, const struct dl_error *err)
{
    FUZZ_ASSERT(r < 0 && err->code == -r && err->message[0]);
}

static void check_canonical(const struct dl_spec *spec)
{
    _cleanup_(value_deinit) struct value canonical = {0};
    _cleanup_(value_deinit) struct value wire = {0};
    _cleanup_(value_deinit) struct value canonical_again = {0};
    _cleanup_(spec_deinit) struct dl_spec again = {0};
    _cleanup_(buffer_deinit) struct dl_buffer packed = {0};
    _cleanup_(buffer_deinit) struct dl_buffer packed_again = {0};
    uint64_t before, after;

    FUZZ_ASSERT(spec_to_value(spec, &canonical) == 0);
    FUZZ_ASSERT(value_pack(&canonical, &packed) == 0);
    FUZZ_ASSERT(value_unpack(packed.data, packed.len, &wire, NULL) == 0);
    FUZZ_ASSERT(value_equal(&canonical, &wire));
    FUZZ_ASSERT(spec_from_value(&wire, NULL, &again, NULL) == 0);
    FUZZ_ASSERT(spec_to_value(&again, &canonical_again) == 0);
    FUZZ_ASSERT(value_pack(&canonical_again, &packed_again) == 0);
    FUZZ_ASSERT(packed.len == packed_again.len &&
                memcmp(packed.data, packed_again.data, packed.len) == 0);
    FUZZ_ASSERT(!spec_differs(spec, &again, NULL));
    FUZZ_ASSERT(spec_fingerprint(spec, &before) == 0);
    FUZZ_ASSERT(spec_fingerprint(&again, &after) == 0);
    FUZZ_ASSERT(before == after);
    /* The names of the last release say the same. */
    FUZZ_ASSERT(spec_to_former(&wire) == 0 && spec_from_former(&wire) == 0);
    FUZZ_ASSERT(value_equal(&canonical, &wire));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_(value_deinit) struct value v = {0};
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    _cleanup_(buffer_deinit) struct dl_buffer packed = {0};
    struct dl_error err = {0};

    int r = yaml_parse((const char *)data, size, "fuzz", &v, &err);
    if (r < 0) {
        expect_told(r, &err);
        return 0;
    }
    /* What the parser takes, a message can carry. */
    FUZZ_ASSERT(value_pack(&v, &packed) == 0);
    FUZZ_ASSERT(value_scan(packed.data, packed.len, NULL) == 0);

    r = spec_from_value(&v, "/base/of/paths", &spec, &err);
    if (r < 0) {
        expect_told(r, &err);
        FUZZ_ASSERT(spec_from_former(&v) == 0); /* of what any client may send */
        FUZZ_ASSERT(value_pack(&v, &packed) == 0);
    } else {
        check_canonical(&spec);
    }
    return 0;
}
