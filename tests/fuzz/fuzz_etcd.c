/*
 * What says it is etcd: whatever the bytes are, each reader refuses them or gives what it promises.
 * The first byte says how the rest is read.
 */
#include "daemon/cluster/etcd_json.h"

#include "tests/fuzz/fuzz.h"

static void read_kv(struct dl_span body, int (*reads)(struct dl_span, struct etcd_kv *))
{
    struct etcd_kv kv;
    int r = reads(body, &kv);

    FUZZ_ASSERT(r == 0 || !kv.data.data);
    FUZZ_ASSERT(r < 0 || !kv.won || (kv.written > 0 && kv.data.len == 0));
    FUZZ_ASSERT(r < 0 || kv.revision > 0 || kv.data.len == 0);
    if (r == 0)
        buffer_deinit(&kv.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct dl_span body = {data + 1, len - 1};
    char text[64] = "", *token;
    bool yes;

    if (len == 0)
        return 0;
    switch (data[0] % 7) {
    case 0:
        read_kv(body, etcd_read_range);
        break;
    case 1:
        read_kv(body, etcd_read_txn);
        break;
    case 2:
        (void)!etcd_read_grant(body);
        break;
    case 3:
        (void)!etcd_read_keepalive(body, &yes);
        break;
    case 4:
        if (etcd_read_user(body, &token) == 0) {
            FUZZ_ASSERT(token[0]);
            free(token);
        }
        break;
    case 5:
        (void)!etcd_read_watch(body, &yes);
        break;
    default:
        FUZZ_ASSERT(etcd_read_error(body, text, sizeof text) <= 1000);
    }
    return 0;
}
