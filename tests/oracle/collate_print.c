/*
 * Prints the batches that collate makes of samples, for comparison with another implementation.
 *
 * Reads one JSON object a line, {"unbatched": bool, "samples": [...]}, samples as
 * tests/lib/batch_text.h has them, and answers each with one line: the batch as it has it, or
 * {"refused": message}.
 */
#include "proto/segment_layout.h"
#include "tests/lib/batch_text.h"

enum { SAMPLES = 64 };

static int print_made(struct collate *c, const struct batch_layout *layout)
{
    _cleanup_free_ void *slot = aligned_alloc(SLOT_ALIGN, align_up(layout->used, SLOT_ALIGN));

    if (!slot)
        return -ENOMEM;
    collate_write(c, slot);
    if (tree_check((const char *)slot + layout->tree_off, layout->tree_len, layout->tree_count,
                   layout->used, NULL) < 0)
        return -EBADMSG;
    return print_batch(stdout, slot, layout) ? 0 : -EBADMSG;
}

static void print_refusal(const struct dl_error *err)
{
    fputs("{\"refused\": ", stdout);
    print_string(stdout, err->message, strlen(err->message));
    fputs("}", stdout);
}

static int answer(const struct value *unbatched, const struct value *list)
{
    struct dl_spec spec = {.batch_size = unbatched->boolean ? 0 : SAMPLES,
                           .collate.kind = COLLATE_DEFAULT};
    uint64_t numbers[SAMPLES];
    struct sample samples[SAMPLES] = {0};
    struct arena arena = {0};
    struct batch_layout layout;
    struct collate *c = NULL;
    struct dl_error err = {0};
    size_t bad;
    int r = 0;

    for (uint32_t i = 0; i < list->count && r == 0; i++) {
        numbers[i] = i;
        samples[i].arena = &arena;
        r = sample_from_value(&samples[i], NULL, &list->items[i]);
    }
    if (r == 0)
        r = collate_new(&spec, &(struct data_env){0}, &c, &err);
    if (r == 0 && collate_measure(c, samples, numbers, list->count, NULL, SLOT_HEADER_BYTES,
                                  &layout, &bad, &err) == 0)
        r = print_made(c, &layout);
    else if (r == 0)
        print_refusal(&err);
    putchar('\n');
    collate_free(c);
    for (uint32_t i = 0; i < list->count; i++)
        sample_deinit(&samples[i]);
    arena_deinit(&arena);
    return r;
}

int main(void)
{
    _cleanup_free_ char *line = NULL;
    size_t room = 0;

    while (getline(&line, &room, stdin) > 0) {
        _cleanup_(value_deinit) struct value v = {0};
        struct dl_error err = {0};
        const struct value *list, *unbatched;
        if (yaml_parse(line, strlen(line), "line", &v, &err) < 0 ||
            !(list = value_get(&v, "samples")) || !(unbatched = value_get(&v, "unbatched")) ||
            list->count < 1 || list->count > SAMPLES || answer(unbatched, list) < 0) {
            fprintf(stderr, "collate_print: %s: %s: %s\n", line, err.path, err.message);
            return 1;
        }
    }
    return 0;
}
