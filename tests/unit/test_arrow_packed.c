/* Arrow IPC: batches that are compressed, by today's writers and by those of old. */
#include "tests/unit/arrow_case.h"
#include "tests/unit/fail_open.h"

/* As LZ4's frame of one block that is not compressed; the sum is of the head's two bytes. */
static size_t make_frame(const uint8_t *data, uint32_t len, uint8_t *out)
{
    uint32_t block = len | 0x80000000;

    memcpy(out, "\x04\x22\x4d\x18\x60\x40\x82", 7);
    memcpy(out + 7, &block, 4);
    memcpy(out + 11, data, len);
    memset(out + 11 + len, 0, 4);
    return 15 + len;
}

/* Every other buffer by a frame, the others as they are, each behind its length. */
static const struct build_batch *packed_of(const struct build_batch *plain)
{
    static struct build_batch batch;

    batch = (struct build_batch){.n_nodes = plain->n_nodes};
    memcpy(batch.nodes, plain->nodes, sizeof batch.nodes);
    for (uint32_t i = 0; i < plain->n_buffers; i++) {
        const uint8_t *data = plain->body.data + plain->buffers[2 * i];
        int64_t len = plain->buffers[2 * i + 1], head = i % 2 ? -1 : len;
        uint8_t out[256];
        memcpy(out, &head, 8);
        memcpy(out + 8, data, (size_t)len);
        if (len == 0)
            build_buffer(&batch, NULL, 0);
        else if (i % 2 == 0)
            build_buffer(&batch, out, 8 + make_frame(data, (uint32_t)len, out + 8));
        else
            build_buffer(&batch, out, 8 + (size_t)len);
    }
    return &batch;
}

/* Batches that say they are compressed by `codec`: 0 lz4, 1 zstd. */
static struct build *packed_stream(const struct build_batch *batch, int codec, int batches)
{
    static struct build b, m;

    b.len = 0;
    build_add_schema(&b, types, COLUMNS, NULL);
    for (int i = 0; i < batches; i++) {
        m.len = 0;
        uint32_t root = build_root(&m, 3, batch->body.len), records = build_records(&m, batch, 2);
        build_ref(&m, root, 2, records);
        uint32_t compression = build_table(&m);
        build_int(&m, compression, 0, codec);
        build_ref(&m, records, 3, compression);
        build_message(&b, &m, &batch->body);
    }
    return &b;
}

TEST(test_compressed)
{
    struct build_batch bad = *packed_of(rows_of(false, 0));
    uint8_t *text = bad.body.data + bad.buffers[2 * 4];
    const struct build *packed = packed_stream(packed_of(rows_of(false, 0)), 0, 3);

    expect_built(packed, ", cache: 0", BOTH " " BOTH " " BOTH); /* one batch is kept at a time */
    expect_built(packed, ", cache: 1MiB", BOTH " " BOTH " " BOTH);
    expect_built(packed, ", fields: {x: tokens}", "{x:int32(2,)[7 8]} ...");
    expect_built(packed_stream(rows_of(false, 0), 0, 1), "",
                 "(t.arrow: ...does not have the buffers of its schema's...");
    text[8] ^= 1; /* of the frame's mark */
    expect_built(packed_stream(&bad, 0, 1), "",
                 "(t.arrow: ...has a buffer that cannot be unpacked; it is...");
    text[5] = 1; /* of its length */
    expect_built(packed_stream(&bad, 0, 1), "",
                 "(t.arrow: ...claims to unpack to more than its compressed bytes can...");
    text[5] = 0;
    expect_built(packed_stream(&bad, 1, 1), "", "(...t.arrow: ...unpack...");
    expect_built(packed_stream(rows_of(false, 0), 7, 1), "",
                 "(EOPNOTSUPP t.arrow: ...neither by LZ4's frames nor by zstd...");
}

/* A batch that says with a pair of words how it is compressed, as Arrow 0.17 did. */
static struct build *old_stream(const struct build_batch *batch, int version, const char *name,
                                const char *codec)
{
    static struct build b, m;

    b.len = m.len = 0;
    build_add_schema(&b, types, COLUMNS, NULL);
    uint32_t root = build_root(&m, 3, batch->body.len);
    build_int(&m, root, 0, version - 1);
    build_ref(&m, root, 2, build_records(&m, batch, 2));
    build_pair(&m, root, 4, name, codec);
    build_message(&b, &m, &batch->body);
    return &b;
}

TEST(test_compressed_by_old_writers)
{
    static const char key_of_old[] = "ARROW:experimental_compression";
    static const char refused[] = "...neither by LZ4...";
    static const struct {
        const char *key, *codec;
        int version;
        bool packed;
        const char *want;
    } rows[] = {
        {key_of_old, "LZ4", 4, true, BOTH},
        {key_of_old, "lz4", 4, true, BOTH},
        {key_of_old, "ZSTD", 4, true, "...unpack..."}, /* which it is not, or this build cannot */
        {key_of_old, "GZIP", 4, true, refused},
        {key_of_old, "", 4, true, refused},
        {key_of_old, "uncompressed", 4, false, refused},
        {key_of_old, "LZ4", 5, false, BOTH}, /* which Arrow ignores since 1.0 */
        {"ARROW:else", "LZ4", 4, false, BOTH},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct build_batch *plain = rows_of(false, 0);
        struct build *b = old_stream(rows[i].packed ? packed_of(plain) : plain, rows[i].version,
                                     rows[i].key, rows[i].codec);
        expect_built(b, "", rows[i].want);
    }
}

/* What is compressed as well: a length that is another one allocates nothing that cannot be. */
TEST(test_damaged_packed)
{
    struct build good = *packed_stream(packed_of(rows_of(true, 0)), 0, 1);

    for (size_t at = 0; at < good.len; at += harness_stride()) {
        static struct build bad;
        bad = good;
        bad.data[at] ^= at % 2 ? 0x81 : 0x10;
        read_damaged(&bad);
    }
}

/* Each allocation of ours fails once. */
TEST(test_out_of_memory)
{
    write_built("memory", packed_stream(packed_of(rows_of(false, 0)), 0, 2));
    expect_failures_of("{kind: arrow, paths: memory}", 10);
}
