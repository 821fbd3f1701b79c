/* Megatron's indexed datasets: both views, lengths, and files that are wrong in one place. */
#include "daemon/data/collate/lengths.h"
#include "daemon/data/kinds/kinds.h"
#include "daemon/data/kinds/megatron/megatron_index.h"
#include "tests/lib/lengths.h"
#include "tests/unit/dataset_words.h"
#include "tests/unit/fail_open.h"

#include <sys/mman.h>

enum { DOCUMENTS = 4, TOKENS = 9, IDX_BYTES = 34 + 5 * 12 + (DOCUMENTS + 1) * 8 };

/* Five sequences of 3, 2, 0, 4, 0 tokens; document 1 has the second and the third of them, the last
 * one none. The tokens are 100, 101, ... */
static void make_megatron(uint8_t out[static IDX_BYTES])
{
    static const int32_t lengths[] = {3, 2, 0, 4, 0};
    static const int64_t offsets[] = {0, 6, 10, 10, 18}, bounds[] = {0, 1, 3, 5, 5};
    uint64_t head[] = {1, 5, DOCUMENTS + 1};

    memcpy(out, "MMIDIDX\0", 9);
    memcpy(out + 9, head, 8);
    out[17] = 8; /* uint16 */
    memcpy(out + 18, head + 1, 16);
    memcpy(out + 34, lengths, sizeof lengths);
    memcpy(out + 54, offsets, sizeof offsets);
    memcpy(out + 94, bounds, sizeof bounds);
}

static void write_corpus(const char *name, size_t idx_bytes)
{
    uint8_t idx[IDX_BYTES];
    uint16_t tokens[TOKENS];
    char path[64];

    make_megatron(idx);
    for (uint16_t i = 0; i < TOKENS; i++)
        tokens[i] = (uint16_t)(100 + i);
    snprintf(path, sizeof path, "%s.idx", name);
    harness_file(path, idx, idx_bytes);
    snprintf(path, sizeof path, "%s.bin", name);
    harness_file(path, tokens, sizeof tokens);
}

TEST(test_documents)
{
    static const char *const specs[] = {"{kind: megatron, paths: corpus}",
                                        "{kind: megatron, paths: corpus.bin}",
                                        "{kind: megatron, paths: corpus.idx}"};
    uint32_t lengths[DOCUMENTS];
    uint64_t bad;

    write_corpus("corpus", IDX_BYTES);
    for (size_t i = 0; i < ARRAY_SIZE(specs); i++)
        expect_dataset(specs[i], "{tokens:int64(3,)[100 101 102]} {tokens:int64(2,)[103 104]} "
                                 "{tokens:int64(4,)[105 106 107 108]} {tokens:int64(0,)}");
    struct dataset *ds = open_dataset(specs[0], &anywhere);
    assert_name(ds, 2, ".idx: document 2");
    assert_int_equal(LENGTHS(dataset_known_lengths, ds, NULL, 0, DOCUMENTS, lengths, &bad, NULL),
                     0);
    assert_memory_equal(lengths, ((uint32_t[]){3, 2, 4, 0}), sizeof lengths);
    dataset_close(ds);
}

TEST(test_samples)
{
    write_corpus("windows", IDX_BYTES);
    /* 9 tokens: the third has no label for its last one. */
    expect_dataset("{kind: megatron, paths: windows, view: samples, sequence_length: 3}",
                   "fixed {tokens:int64(3,)[100 101 102] labels:int64(3,)[101 102 103]} "
                   "{tokens:int64(3,)[103 104 105] labels:int64(3,)[104 105 106]}");
    expect_dataset(
        "{kind: megatron, paths: windows, view: samples, sequence_length: 4, widen: none}",
        "fixed {tokens:uint16(4,)[100 101 102 103] labels:uint16(4,)[101 102 103 104]} "
        "{tokens:uint16(4,)[104 105 106 107] labels:uint16(4,)[105 106 107 108]}");
    expect_dataset("{kind: megatron, paths: windows, view: samples, sequence_length: 100}",
                   "fixed");
    struct dataset *ds = open_dataset(
        "{kind: megatron, paths: windows, view: samples, sequence_length: 3}", &anywhere);
    assert_name(ds, 1, "/windows.idx: token 3");
    dataset_close(ds);
}

static void allow(uint8_t *idx, size_t at, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), first = at / page * page;

    assert_int_equal(mprotect(idx + first, at + bytes - first, PROT_READ | PROT_WRITE), 0);
}

/* An index of a million documents, of which no page can be read but those of its header and of the
 * last sequence: nothing else is looked at when it is opened. */
TEST(test_large_index)
{
    enum { N = 1000000, LENGTHS = 34, OFFSETS = LENGTHS + 4 * N, BOUNDS = OFFSETS + 8 * N };
    enum { BYTES = BOUNDS + 8 * (N + 1) };
    const uint64_t head[] = {1, N, N + 1}, last = 2 * (N - 1);
    const uint32_t length = 1;
    struct megatron_index index;
    struct dl_error err = {0};

    uint8_t *idx = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(idx, MAP_FAILED);
    allow(idx, 0, LENGTHS);
    allow(idx, LENGTHS + 4 * (N - 1), sizeof length);
    allow(idx, OFFSETS + 8 * (N - 1), sizeof last);
    memcpy(idx, "MMIDIDX\0", 9);
    memcpy(idx + 9, head, 8);
    idx[17] = 8;
    memcpy(idx + 18, head + 1, 16);
    memcpy(idx + LENGTHS + 4 * (N - 1), &length, sizeof length);
    memcpy(idx + OFFSETS + 8 * (N - 1), &last, sizeof last);
    assert_int_equal(megatron_index_parse(idx, BYTES, "file", 2 * N, &index, &err), 0);
    assert_int_equal(index.documents, N);
    munmap(idx, BYTES);
}

/* One change of the index each. */
TEST(test_bad_index)
{
    static const struct {
        size_t at;
        uint8_t byte;
        const char *says;
    } rows[] = {
        {0, 'X', "does not begin with MMIDIDX"},
        {9, 2, "version 2"},
        {17, 6, "tokens of type 6"},
        {17, 200, "tokens of type 200"},
        {18, 4, "do not fit its 4 sequences"},
        {25, 0x7F, "do not fit"},
        {33, 0xFF, "do not fit"},
        {34 + 16, 1, "the tokens end at byte 20"},
        {54 + 32, 17, "the tokens end at byte 17"},
    };
    struct megatron_index index;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint8_t idx[IDX_BYTES];
        struct dl_error err = {0};
        make_megatron(idx);
        idx[rows[i].at] = rows[i].byte;
        assert_int_equal(megatron_index_parse(idx, IDX_BYTES, "file", 2 * TOKENS, &index, &err),
                         -EINVAL);
        assert_error_has(&err, rows[i].says);
        assert_string_equal(err.path, "file");
    }
    for (size_t len = 0; len < IDX_BYTES; len++) {
        uint8_t idx[IDX_BYTES];
        make_megatron(idx);
        assert_int_equal(megatron_index_parse(idx, len, "file", 2 * TOKENS, &index, NULL), -EINVAL);
    }
}

/* What is not looked at when it is opened is found when its document is. */
TEST(test_bad_documents)
{
    static const struct {
        size_t at;
        uint8_t byte;
        uint64_t document;
    } rows[] = {
        {94, 9, 0},        /* bound beyond the sequences */
        {94 + 8, 7, 0},    /* likewise, at the end */
        {54 + 7, 0x80, 0}, /* offset beyond the file */
        {34 + 3, 0x80, 0}, /* negative length */
        {34 + 8, 50, 1},   /* ends beyond it */
        {54, 1, 0},        /* between two tokens */
    };
    uint64_t offset, tokens;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uint8_t idx[IDX_BYTES];
        struct megatron_index index;
        struct dl_error err = {0};
        make_megatron(idx);
        idx[rows[i].at] = rows[i].byte;
        assert_int_equal(megatron_index_parse(idx, IDX_BYTES, "file", 2 * TOKENS, &index, NULL), 0);
        int r = megatron_index_find(&index, rows[i].document, 2 * TOKENS, "file", &offset, &tokens,
                                    &err);
        if (rows[i].at == 54) { /* a whole number of tokens all the same */
            assert_int_equal(r, 0);
            continue;
        }
        assert_int_equal(r, -EINVAL);
        assert_error_has(&err, "the index is damaged");
    }
}

TEST(test_missing)
{
    expect_dataset("{kind: megatron, paths: nowhere}", "ENOENT nowhere.bin: ...");
    write_corpus("cut", IDX_BYTES - 1);
    expect_dataset("{kind: megatron, paths: cut}", "cut.idx: ...");
}

/* Each allocation of ours fails once, while it is opened and all samples are made. */
TEST(test_memory)
{
    write_corpus("memory", IDX_BYTES);
    expect_failures_of("{kind: megatron, paths: memory}", 3);
}
