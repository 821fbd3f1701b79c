#include "proto/common/base64.h"

/* -1 if `c` is not a base64 digit. */
static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

ssize_t base64_decode(const void *text, size_t len, uint8_t *ret)
{
    const char *at = text;
    ssize_t n = 0;

    if (len % 4 != 0)
        return -1;
    for (size_t i = 0; i < len; i += 4) {
        uint32_t bits = 0;
        unsigned pad = 0;

        for (size_t k = 0; k < 4; k++) {
            int digit = base64_digit(at[i + k]);

            if (at[i + k] == '=' && i + 4 == len && k >= 2)
                pad++;
            else if (digit < 0 || pad > 0)
                return -1;
            bits = bits << 6 | (digit < 0 ? 0 : (uint32_t)digit);
        }
        for (unsigned k = 0; k < 3 - pad; k++)
            ret[n++] = (uint8_t)(bits >> (16 - 8 * k));
    }
    return n;
}
