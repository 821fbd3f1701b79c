/*
 * Index files of Energon, DALI and wids, of any bytes, for a shard of four samples; and compressed
 * data of any bytes. What is taken says places in the shard, one behind another.
 */
#include "daemon/data/files/unpack.h"
#include "daemon/data/kinds/tar/tar_index.h"
#include "daemon/data/kinds/tar/tar_sample.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/make_tar.h"

#include <errno.h>

enum { LARGEST = 1 << 16, UNPACKED = 1 << 20 };

static void check_places(const uint8_t *data, size_t size, const struct tar_view *view)
{
    static const struct fields fields;
    static const struct decoding decoding = {.fields = &fields};
    struct tar_index index = {0};
    struct dl_error err = {0};
    int r = tar_index_parse(data, size, "fuzz", view, &index, &err);

    FUZZ_ASSERT(r == 0 || (r == -EINVAL && err.code == EINVAL && err.message[0] && !index.blocks));
    for (uint64_t i = 0; i < index.n; i++) {
        struct arena arena = {0};
        struct sample sample = {.arena = &arena};
        uint64_t offset = tar_index_offset(&index, i);
        FUZZ_ASSERT(offset < view->bytes && (i == 0 || offset > tar_index_offset(&index, i - 1)));
        (void)!tar_make(view, offset, &decoding, &sample, &err);
        sample_deinit(&sample);
        arena_deinit(&arena);
    }
    tar_index_deinit(&index);
}

static void check_unpacked(const uint8_t *data, size_t size)
{
    enum compression by = compression_of(data, size);
    struct dl_error err = {0};
    uint8_t *out = NULL;
    uint64_t bytes = 0;

    if (by == COMPRESSION_NONE)
        return;
    int r = unpack(by, data, size, UNPACKED, "fuzz", &out, &bytes, &err);
    FUZZ_ASSERT(r == 0 || (r == -err.code && err.message[0]));
    if (r == 0)
        FUZZ_ASSERT(bytes <= UNPACKED && out);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tar_file tar;
    struct tar_counts counts = {0};
    uint64_t n;

    if (size > LARGEST)
        return 0;
    if (!tar.data) {
        tar = tar_new();
        for (int i = 0; i < 4; i++)
            tar_text(&tar, (const char *[]){"a.cls", "a.txt", "b.cls", "c.cls"}[i], "1");
        tar_end(&tar);
    }
    struct tar_view view = {.path = "shard", .data = tar.data, .bytes = tar.len};
    check_places(data, size, &view);
    check_unpacked(data, size);
    if (tar_counts_parse(data, size, "fuzz", &counts, NULL) == 0)
        (void)!tar_counts_find(&counts, "/x/a.tar", &n);
    tar_counts_deinit(&counts);
    return 0;
}
