/* Megatron's indexed datasets: both views, lengths, and files that are wrong in one place. */
#include "daemon/data/collate/lengths.h"
#include "daemon/data/kinds/kinds.h"
#include "daemon/data/kinds/megatron/megatron_index.h"
#include "tests/unit/data_files.h"
#include "tests/unit/fail_open.h"
#include "tests/unit/taken.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DOCUMENTS = 4, TOKENS = 9, IDX_BYTES = 34 + 5 * 12 + (DOCUMENTS + 1) * 8 };

static const struct sample_key key;
static struct spec_file file;

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

/* `name` as a spec may have it: with an extension, or without. */
static struct spec_dataset spec_of(const char *name, enum megatron_view view)
{
    static char path[4200];

    snprintf(path, sizeof path, "%s/%s", harness_tmpdir(), name);
    file.path = path;
    return (struct spec_dataset){.kind = DATASET_MEGATRON,
                                 .files = &file,
                                 .n_files = 1,
                                 .view = view,
                                 .sequence_length = view == MEGATRON_SAMPLES ? 3 : 0,
                                 .widen = WIDEN_INT64};
}

/* The tokens from `first` on. */
static void expect_document(struct dataset *ds, uint64_t d, uint64_t n, int64_t first)
{
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};

    assert_int_equal(ds->ops->get(ds, &key, d, &sample, NULL), 0);
    assert_int_equal(sample.tree.count, 2);
    assert_int_equal(sample.tree.nodes[1].dtype, DL_DTYPE_INT64);
    assert_int_equal(sample.tree.nodes[1].shape[0], n);
    for (uint64_t i = 0; i < n; i++) {
        int64_t token;
        memcpy(&token, (const char *)sample.data[1] + 8 * i, sizeof token);
        assert_int_equal(token, first + (int64_t)i);
    }
    sample_deinit(&sample);
    arena_deinit(&arena);
}

TEST(test_documents)
{
    static const char *const names[] = {"corpus", "corpus.bin", "corpus.idx"};
    uint32_t lengths[DOCUMENTS];
    uint64_t bad;

    write_corpus("corpus", IDX_BYTES);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct spec_dataset spec = spec_of(names[i], MEGATRON_DOCUMENTS);
        struct dataset *ds = must_open(&spec);
        struct dl_error err = {0};
        assert_int_equal(ds->length, DOCUMENTS);
        expect_document(ds, 0, 3, 100);
        expect_document(ds, 1, 2, 103);
        expect_document(ds, 2, 4, 105);
        expect_document(ds, 3, 0, 0);
        assert_name(ds, 2, ".idx: document 2");
        assert_int_equal(dataset_known_lengths(ds, NULL, 0, DOCUMENTS, lengths, &bad, NULL), 0);
        assert_memory_equal(lengths, ((uint32_t[]){3, 2, 4, 0}), sizeof lengths);
        struct arena arena = {0};
        struct sample sample = {.arena = &arena};
        assert_int_equal(ds->ops->get(ds, &key, DOCUMENTS, &sample, &err), -ERANGE);
        sample_deinit(&sample);
        dataset_close(ds);
    }
}

TEST(test_samples)
{
    struct spec_dataset spec = spec_of("windows", MEGATRON_SAMPLES);
    uint64_t indices[] = {1, 0, 2};
    int64_t tokens[6], labels[6];
    uint16_t narrow[2][3];
    void *wide_rows[] = {tokens, labels}, *narrow_rows[] = {narrow[0], narrow[1]};
    struct dl_error err = {0};
    size_t bad;

    write_corpus("windows", IDX_BYTES);
    struct dataset *ds = must_open(&spec);
    assert_int_equal(ds->length, 2); /* 9 tokens: the third has no label for its last one */
    assert_true(dataset_is_fixed(ds));
    assert_name(ds, 1, "/windows.idx: token 3");
    assert_int_equal(ds->ops->read_rows(ds, &key, indices, 2, wide_rows, &bad, NULL), 0);
    assert_memory_equal(tokens, ((int64_t[]){103, 104, 105, 100, 101, 102}), sizeof tokens);
    assert_memory_equal(labels, ((int64_t[]){104, 105, 106, 101, 102, 103}), sizeof labels);
    assert_int_equal(ds->ops->read_rows(ds, &key, indices, 3, wide_rows, &bad, &err), -ERANGE);
    assert_int_equal(bad, 2);
    dataset_close(ds);

    spec.widen = WIDEN_NONE;
    ds = must_open(&spec);
    assert_int_equal(ds->schema.nodes[1].dtype, DL_DTYPE_UINT16);
    assert_int_equal(ds->ops->read_rows(ds, &key, indices, 1, narrow_rows, &bad, NULL), 0);
    assert_memory_equal(narrow[1], ((uint16_t[]){104, 105, 106}), sizeof narrow[1]);
    dataset_close(ds);

    spec.sequence_length = 100;
    ds = must_open(&spec);
    assert_int_equal(ds->length, 0);
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
    struct spec_dataset spec = spec_of("nowhere", MEGATRON_DOCUMENTS);
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -ENOENT);
    assert_non_null(strstr(err.path, "/nowhere.bin"));
    write_corpus("cut", IDX_BYTES - 1);
    spec = spec_of("cut", MEGATRON_DOCUMENTS);
    assert_int_equal(dataset_open(&spec, &anywhere, &ds, &err), -EINVAL);
    assert_non_null(strstr(err.path, "/cut.idx"));
}

/* Each allocation of ours fails once, while it is opened and all samples are made. */
TEST(test_memory)
{
    struct spec_dataset spec = spec_of("memory", MEGATRON_DOCUMENTS);

    write_corpus("memory", IDX_BYTES);
    expect_memory_failures(&spec, 3);
}
