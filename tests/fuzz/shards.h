/*
 * What the fuzzers of MDS and litData share. An input is index.json, a NUL, and the first file that
 * it lists; each sample of the file is split into values that lie in it, and each value becomes
 * part of a sample or an error.
 */
#ifndef DL_FUZZ_SHARDS_H
#define DL_FUZZ_SHARDS_H

#include "daemon/data/field/field.h"
#include "daemon/data/files/shard_file.h"
#include "tests/fuzz/fuzz.h"

enum { SHARD_INPUT_MOST = 1 << 16, SHARD_SAMPLES_MOST = 100 };

struct shard_input {
    const uint8_t *text; /* of the index */
    size_t text_bytes;
    const uint8_t *file; /* NULL: there is none */
    size_t file_bytes;
};

static inline struct shard_input shard_input_of(const uint8_t *data, size_t size)
{
    const uint8_t *cut = size > 0 ? memchr(data, '\0', size) : NULL;
    struct shard_input in = {.text = data, .text_bytes = size};

    if (!cut)
        return in;
    in.text_bytes = (size_t)(cut - data);
    in.file = cut + 1;
    in.file_bytes = size - in.text_bytes - 1;
    return in;
}

/* A value that the format's own function adds to a sample. */
struct shard_value {
    const void *value;
    int (*add)(const void *value, const struct decoding *decoding, struct sample *ret,
               struct dl_error *err);
    uint32_t length; /* of a row: what the format says before it is read */
    bool is_row;
};

static inline void shard_value_check(const struct shard_value *value,
                                     const struct decoding *decoding)
{
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};

    sample_begin(&sample, TREE_LIST, NULL);
    int r = value->add(value->value, decoding, &sample, &err);
    FUZZ_ASSERT(r == 0 || sample.error < 0 || (r == -err.code && err.message[0]));
    if (value->is_row && r == 0)
        FUZZ_ASSERT(value->length == min_u64(sample.tree.nodes[1].shape[0], UINT32_MAX));
    sample_deinit(&sample);
    arena_deinit(&arena);
}

/* As a picture, where it is one, and as it is. */
static inline void shard_value_check_both(const struct shard_value *value)
{
    static struct fields fields = {.decode = true,
                                   .image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC}};
    static const struct sample_key key;
    const struct decoding decoding = {.fields = &fields, .key = &key};

    if (!fields.images)
        FUZZ_ASSERT(image_decoder_new(&fields.images, NULL) == 0);
    shard_value_check(value, &decoding);
    shard_value_check(value, NULL);
}

/* Calls `check` for each sample that the file has, `size` bytes at `at`. */
static inline void shard_check_samples(const uint8_t *data, uint64_t bytes, uint64_t samples,
                                       void (*check)(const void *index, const uint8_t *at,
                                                     uint64_t size),
                                       const void *index)
{
    struct dl_error err = {0};
    const uint8_t *at;
    uint64_t size;

    if (shard_file_check(data, bytes, samples, "fuzz", &err) < 0)
        return;
    for (uint64_t s = 0; s < samples && s < SHARD_SAMPLES_MOST; s++) {
        if (shard_file_find(data, bytes, s, "fuzz", &at, &size, &err) < 0)
            continue;
        FUZZ_ASSERT(at >= data && at + size <= data + bytes);
        check(index, at, size);
    }
}

#endif
