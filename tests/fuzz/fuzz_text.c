/*
 * Text of any bytes. The first byte chooses: blank lines counted or not, which tokenizer, and
 * whether samples are one field or several. The table of lines must have what a plain walk finds;
 * and lines of JSON become samples or errors, never more.
 */
#include "daemon/data/kinds/kinds.h"
#include "daemon/data/kinds/text/text_lines.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>

static bool blank(const uint8_t *at, const uint8_t *end)
{
    while (at < end && strchr(" \t\r\n", *at) && *at)
        at++;
    return at == end;
}

static void check_lines(const uint8_t *data, size_t size, bool skip_blank)
{
    struct line_table table = {0};
    uint64_t n = 0, number = 0;
    size_t at = size >= 3 && memcmp(data, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;

    FUZZ_ASSERT(line_table_make(data, size, skip_blank, &table) == 0);
    while (at < size) {
        size_t end = at;
        while (end < size && data[end] != '\n' && (skip_blank || data[end] != '\r'))
            end++;
        size_t next = end < size ? end + 1 : end;
        if (next < size && data[end] == '\r' && data[next] == '\n')
            next++;
        number++;
        if (!skip_blank || !blank(data + at, data + next)) {
            FUZZ_ASSERT(n < table.n);
            struct line line = line_at(&table, n);
            if (end < size && end > at && data[end - 1] == '\r')
                end--;
            FUZZ_ASSERT(line.text == data + at && line.bytes == end - at);
            FUZZ_ASSERT(line_number(&table, n) == number);
            n++;
        }
        at = next;
    }
    FUZZ_ASSERT(n == table.n);
    line_table_deinit(&table);
}

/* Through a file in memory, as they are really read. */
static void check_samples(const uint8_t *data, size_t size, enum tokenizer tokenizer, bool several)
{
    static struct spec_field fields[] = {{"a", "a"}, {"text", "text"}};
    static char path[64];
    static struct spec_file file = {.path = path};
    static FILE *scratch;
    struct spec_dataset spec = {.kind = DATASET_TEXT,
                                .files = &file,
                                .n_files = 1,
                                .format = TEXT_JSON,
                                .tokenizer = tokenizer,
                                .fields = several ? fields : NULL,
                                .n_fields = several ? 2 : 0};
    struct dataset *ds = NULL;
    struct dl_error err = {0};
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};

    if (!scratch) {
        scratch = tmpfile();
        FUZZ_ASSERT(scratch);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(scratch));
    }
    FUZZ_ASSERT(ftruncate(fileno(scratch), 0) == 0);
    FUZZ_ASSERT(pwrite(fileno(scratch), data, size, 0) == (ssize_t)size);
    int r = text_open(&spec, "dataset", &(struct data_env){0}, &ds, &err);
    FUZZ_ASSERT(r == -err.code);
    for (uint64_t i = 0; ds && i < ds->length; i++) {
        struct sample_key key = {0};
        r = dataset_get(ds, &key, i, &sample, &err);
        FUZZ_ASSERT(r == 0 || r == -err.code);
        FUZZ_ASSERT(r < 0 ||
                    (several ? sample.tree.count >= 3 : sample.tree.count == 2 && sample.data[1]));
        sample_clear(&sample);
        arena_clear(&arena);
    }
    dataset_close(ds);
    sample_deinit(&sample);
    arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    check_lines(data + 1, size - 1, data[0] & 1);
    check_samples(data + 1, size - 1, data[0] & 2 ? TOKENIZER_BYTES : TOKENIZER_NONE, data[0] & 4);
    return 0;
}
