/*
 * What a visitor says of themselves, in two headers. Whatever that is: only the token is the token,
 * and a name is this machine's only if it begins as one of its addresses, or localhost, does.
 *
 * Input: the header.
 */
#include "tests/fuzz/fuzz.h"

#include "daemon/serve/page/visitor.h"

#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const char token[] = "0123456789abcdef";
    char *text = calloc(1, len + 1);

    FUZZ_ASSERT(text);
    if (len > 0)
        memcpy(text, data, len);
    if (visitor_has_token(text, token))
        FUZZ_ASSERT(strncasecmp(text, "Bearer ", 7) == 0 && strcmp(text + 7, token) == 0);
    if (visitor_means_here(text))
        FUZZ_ASSERT(strncasecmp(text, "localhost", 9) == 0 || strncmp(text, "127.", 4) == 0 ||
                    *text == '[');
    free(text);
    return 0;
}
