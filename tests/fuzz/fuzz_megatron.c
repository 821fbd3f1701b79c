/*
 * Megatron's index of any bytes, with a .bin file of as many bytes as the first two say. What is
 * taken says where each document's tokens are: in the file, or refused.
 */
#include "daemon/data/kinds/megatron/megatron_index.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>

enum { DOCUMENTS = 1000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct megatron_index index = {0};
    struct dl_error err = {0};

    if (size < 2)
        return 0;
    uint64_t bin_bytes = (uint64_t)data[0] << 8 | data[1], offset, tokens;
    int r = megatron_index_parse(data + 2, size - 2, "fuzz", bin_bytes, &index, &err);
    FUZZ_ASSERT(r == 0 || (r == -EINVAL && err.code == EINVAL && err.message[0]));
    for (uint64_t d = 0; r == 0 && d < index.documents && d < DOCUMENTS; d++) {
        int found = megatron_index_find(&index, d, bin_bytes, "fuzz", &offset, &tokens, &err);
        FUZZ_ASSERT(found == 0 || found == -EINVAL);
        if (found == 0)
            FUZZ_ASSERT(offset <= bin_bytes && tokens <= (bin_bytes - offset) / index.token_bytes);
    }
    return 0;
}
