/*
 * The report of an error as a Python worker leaves it in its slot: whatever stands there, the text
 * is UTF-8 for FAULT.detail, of a bounded length, and cannot steer a terminal; read again it is the
 * same.
 *
 * Input: where the error's text begins, how long it is, two bytes each; the length of the report,
 * four; how many times the rest is repeated, one; the rest of the slot. All little-endian.
 */
#include "tests/fuzz/fuzz.h"

#include "daemon/serve/pool/report.h"
#include "proto/common/utf8.h"

enum { HEAD = 9 };

static uint32_t number(const uint8_t *data, size_t bytes)
{
    uint32_t n = 0;

    while (bytes-- > 0)
        n = n << 8 | data[bytes];
    return n;
}

/* An owned slot of the header and `len` bytes so many times. */
static uint8_t *make_slot(const uint8_t *rest, size_t len, size_t times)
{
    uint8_t *slot = calloc(1, SLOT_HEADER_BYTES + len * times);

    FUZZ_ASSERT(slot);
    for (size_t i = 0; i < times && len > 0; i++)
        memcpy(slot + SLOT_HEADER_BYTES + i * len, rest, len);
    return slot;
}

static void check_text(const char *text, size_t len)
{
    FUZZ_ASSERT(len <= REPORT_MAX);
    for (size_t at = 0; at < len;) {
        const uint8_t *in = (const uint8_t *)text + at;
        size_t n = utf8_char(in, len - at);

        FUZZ_ASSERT(n > 0);
        FUZZ_ASSERT(n > 1 || (in[0] >= 0x20 && in[0] != 0x7F) || in[0] == '\n' || in[0] == '\t');
        FUZZ_ASSERT(n != 2 || in[0] != 0xC2 || in[1] >= 0xA0);
        at += n;
    }
}

/* What is clean stays what it is. */
static void read_again(const char *text, size_t len)
{
    uint8_t *slot = make_slot((const uint8_t *)text, len + 1, 1);
    struct slot_header header = {.error_off = SLOT_HEADER_BYTES - 1, .error_more = (uint32_t)len};

    memcpy(slot, &header, sizeof header);
    char *again = report_read(slot, SLOT_HEADER_BYTES + len + 1);
    FUZZ_ASSERT(len == 0 ? !again : again && strcmp(again, text) == 0);
    free(again);
    free(slot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct slot_header header = {0};

    if (len < HEAD)
        return 0;
    header.error_off = number(data, 2);
    header.error_len = number(data + 2, 2);
    header.error_more = number(data + 4, 4);
    size_t times = (size_t)data[8] + 1;
    uint8_t *slot = make_slot(data + HEAD, len - HEAD, times);
    memcpy(slot, &header, sizeof header);
    char *text = report_read(slot, SLOT_HEADER_BYTES + (len - HEAD) * times);
    if (text) {
        FUZZ_ASSERT(header.error_more > 0);
        check_text(text, strlen(text));
        read_again(text, strlen(text));
    }
    free(text);
    free(slot);
    return 0;
}
