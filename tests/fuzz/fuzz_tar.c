/*
 * Tar shards of any bytes. The first byte chooses: members decoded or not, and whether the headers'
 * checksums are made good first, without which nothing gets past them. Scanning ends, and goes
 * forward; what was found is made into a sample or refused; what was refused is refused again.
 */
#include "daemon/data/kinds/tar/tar_sample.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>

enum { LARGEST = 1 << 20 };

static const struct sample_key no_key;

/* In all blocks that may be headers. */
static void mend(uint8_t *data, size_t size)
{
    for (size_t at = 0; at + TAR_BLOCK <= size; at += TAR_BLOCK) {
        uint8_t *header = data + at;
        unsigned sum = 0;
        if (memcmp(header + 257, "ustar", 5) != 0)
            continue;
        memset(header + 148, ' ', 8);
        for (int i = 0; i < TAR_BLOCK; i++)
            sum += header[i];
        snprintf((char *)header + 148, 8, "%06o", sum);
    }
}

static void check_made(const struct tar_view *view, uint64_t begin, uint64_t end,
                       const struct fields *fields)
{
    const struct decoding decoding = {.fields = fields, .key = &no_key, .index = begin};
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};
    int r = tar_make(view, begin, &decoding, &sample, &err);

    FUZZ_ASSERT(r == 0 || (r < 0 && r == -err.code && err.message[0]));
    if (r == 0) {
        FUZZ_ASSERT(sample.tree.count >= 3 && sample.tree.nodes[0].kind == TREE_DICT);
        /* Bytes that are used in place lie in the sample's part of the file; unpacked ones in no
         * part of it. */
        for (uint32_t i = 2; i < sample.tree.count; i++) {
            const uint8_t *at = sample.data[i];
            if (sample.tree.nodes[i].kind == TREE_BYTES && at >= view->data &&
                at < view->data + view->bytes)
                FUZZ_ASSERT(at >= view->data + begin &&
                            at + sample.tree.nodes[i].nbytes <= view->data + end);
        }
    }
    sample_deinit(&sample);
    arena_deinit(&arena);
}

/* A member is the same from its headers alone, which are in memory of just their size. */
static void check_head(const struct tar_view *view, uint64_t at)
{
    uint64_t left = view->bytes - at, have = 0, want = 0;
    struct tar_reader whole, part;
    struct tar_member one, other;
    struct dl_error a = {0}, b = {0};

    do {
        have = want;
        _cleanup_free_ uint8_t *copy = malloc(max_u64(have, 1));
        FUZZ_ASSERT(copy);
        memcpy(copy, view->data + at, have);
        want = min_u64(tar_head_bytes(copy, have), left);
    } while (want > have);
    _cleanup_free_ uint8_t *head = malloc(max_u64(have, 1));
    FUZZ_ASSERT(head);
    memcpy(head, view->data + at, have);
    struct tar_view rest = {.path = view->path, .data = head, .bytes = left, .base = at};
    tar_reader_init(&whole, view, at);
    tar_reader_init(&part, &rest, 0);
    int r = tar_next(&whole, &one, &a);
    FUZZ_ASSERT(tar_next(&part, &other, &b) == r && strcmp(a.message, b.message) == 0);
    if (r == 0)
        FUZZ_ASSERT(one.size == other.size && one.odd == other.odd &&
                    strcmp(one.name, other.name) == 0 &&
                    one.data - view->data == other.data - head + (ptrdiff_t)at &&
                    whole.offset == at + part.offset);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct spec_image image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC};
    static struct image_decoder *decoder;
    struct dl_error err = {0}, again = {0};
    uint64_t offset = 0, begin = 0;
    int r;

    if (size == 0 || size > LARGEST)
        return 0;
    _cleanup_free_ uint8_t *copy = malloc(max_u64(size - 1, 1));
    FUZZ_ASSERT(copy);
    memcpy(copy, data + 1, size - 1);
    if (data[0] & 2)
        mend(copy, size - 1);
    if (!decoder)
        FUZZ_ASSERT(image_decoder_new(&decoder, NULL) == 0);
    struct fields fields = {.decode = data[0] & 1, .image = image, .images = decoder};
    struct tar_view view = {.path = "fuzz", .data = copy, .bytes = size - 1};
    while ((r = tar_scan(&view, &offset, &err)) == 0) {
        FUZZ_ASSERT(offset > begin && offset <= view.bytes);
        check_head(&view, begin);
        check_made(&view, begin, offset, &fields);
        begin = offset;
    }
    FUZZ_ASSERT(r == TAR_END || (r == -EINVAL && err.code == EINVAL && offset == begin));
    check_head(&view, begin);
    if (r < 0) {
        struct arena arena = {0};
        struct sample sample = {.arena = &arena};
        const struct decoding decoding = {.fields = &fields, .key = &no_key};
        FUZZ_ASSERT(tar_make(&view, begin, &decoding, &sample, &again) < 0);
        sample_deinit(&sample);
        arena_deinit(&arena);
    }
    return 0;
}
