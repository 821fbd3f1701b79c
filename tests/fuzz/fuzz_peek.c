/*
 * The class of a pickle, read from its opcodes: whatever the bytes are, there is an answer, and it
 * can be shown on a terminal. The same bytes give the same, and what follows STOP is not looked at.
 */
#include "tests/fuzz/fuzz.h"

#include "client/dlctl/batch/pickle.h"

static void check_name(const char *name, bool known)
{
    size_t len = strnlen(name, PICKLE_CLASS);

    FUZZ_ASSERT(len < PICKLE_CLASS);
    FUZZ_ASSERT(known == (len > 0));
    for (size_t i = 0; i < len; i++)
        FUZZ_ASSERT((uint8_t)name[i] > ' ' && name[i] != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char name[PICKLE_CLASS], again[PICKLE_CLASS];
    uint8_t *longer = malloc(len + 1);
    bool known = pickle_class(data, len, name);

    check_name(name, known);
    if (longer && known) {
        memcpy(longer, data, len);
        longer[len] = 0xff;
        FUZZ_ASSERT(pickle_class(longer, len + 1, again));
        FUZZ_ASSERT(strcmp(name, again) == 0);
    }
    free(longer);
    return 0;
}
