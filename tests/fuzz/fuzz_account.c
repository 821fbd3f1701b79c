/*
 * What nodes tell each other of samples that are left out: whatever the bytes are, what is taken of
 * them is written and read again as the same, and can be counted and shown.
 */
#include "daemon/cluster/progress/account.h"

#include "proto/common/bytes.h"

#include "tests/fuzz/fuzz.h"

static void look_at(const struct account_entry *entry, const struct progress_point *end)
{
    char text[ACCOUNT_TEXT_MAX];
    struct account_range range;

    FUZZ_ASSERT(entry->id != 0 && entry->what.local > 0 && entry->what.node[0]);
    if (!account_missing(&entry->what, end, &range))
        return;
    FUZZ_ASSERT(range.from < range.to && range.steps > 0);
    FUZZ_ASSERT(account_samples(&entry->what, &range, 10) > 0);
    account_text(&entry->what, &range, text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0};
    _cleanup_free_ char *text = span_dup((struct dl_span){data, len});
    struct account_entry entry;
    struct progress_point ended;
    const char *at = text;

    if (!account_read_begin(&at, &ended))
        return 0;
    account_begin(&ended, &bytes);
    uint32_t n = 0, again = 0;
    for (; account_read_next(&at, &entry); n++) {
        account_add(&entry, &bytes);
        look_at(&entry, &ended);
    }
    if (buffer_append(&bytes, "", 1) < 0)
        return 0;
    at = (const char *)bytes.data;
    FUZZ_ASSERT(account_read_begin(&at, &ended));
    while (account_read_next(&at, &entry))
        again++;
    FUZZ_ASSERT(*at == 0 && again == n);
    return 0;
}
