/*
 * What says it is etcd: whatever the bytes are, each reader refuses them or gives what it promises.
 * The first byte says how the rest is read.
 */
#include "daemon/cluster/store/etcd_json.h"

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

static void read_list(struct dl_span body)
{
    struct etcd_list list;
    struct etcd_kv kv;

    if (etcd_read_list(body, 3, &list, &kv) < 0) {
        FUZZ_ASSERT(!list.items && !kv.data.data);
        return;
    }
    for (uint32_t i = 0; i < list.n; i++)
        FUZZ_ASSERT(list.items[i].name);
    etcd_list_deinit(&list);
    buffer_deinit(&kv.data);
}

static void read_watch(struct dl_span body)
{
    struct dl_buffer value = {0};
    bool goes_on;

    (void)!etcd_read_watch(body, &goes_on, &value);
    buffer_deinit(&value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct dl_span body = {data + 1, len - 1};
    char text[64] = "", *token;
    bool yes;

    if (len == 0)
        return 0;
    switch (data[0] % 9) {
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
        read_watch(body);
        break;
    case 7:
        read_kv(body, etcd_read_put);
        break;
    case 8:
        read_list(body);
        break;
    default:
        FUZZ_ASSERT(etcd_read_error(body, text, sizeof text) <= 1000);
    }
    return 0;
}
