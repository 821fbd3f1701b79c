/*
 * check_pieces MODEL MAX_LENGTH TEXT: prints the tokens of each line of the text, for
 * real_pieces.py to compare: one line a sample, ids separated by spaces. Status 77 where the
 * tokenizer was not built, 1 and a message for an error.
 */
#include "daemon/data/base/dataset.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static int print_sample(const struct sample *sample)
{
    const struct tree_node *node = &sample->tree.nodes[1];
    const int64_t *ids = sample->data[1];

    if (node->kind != TREE_TENSOR || node->dtype != DL_DTYPE_INT64 || node->ndim != 1)
        return -EINVAL;
    for (uint64_t i = 0; i < node->shape[0]; i++)
        printf("%s%" PRId64, i > 0 ? " " : "", ids[i]);
    putchar('\n');
    return 0;
}

static int print_all(struct dataset *ds, struct dl_error *err)
{
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    int r = 0;

    for (uint64_t i = 0; r == 0 && i < ds->length; i++) {
        r = dataset_get(ds, &(struct sample_key){0}, i, &sample, err);
        if (r == 0)
            r = print_sample(&sample);
        sample_clear(&sample);
        arena_clear(&arena);
    }
    sample_deinit(&sample);
    arena_deinit(&arena);
    return r;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    struct spec_file file = {.path = argv[3]};
    const struct spec_dataset spec = {.kind = DATASET_TEXT,
                                      .files = &file,
                                      .n_files = 1,
                                      .format = TEXT_AUTO,
                                      .tokenizer = TOKENIZER_SENTENCEPIECE,
                                      .model = argv[1],
                                      .max_length = strtoull(argv[2], NULL, 10)};
    const struct data_env anywhere = {0};
    struct dataset *ds = NULL;
    struct dl_error err = {0};
    int r = dataset_open(&spec, &anywhere, &ds, &err);

    if (r == -ENOTSUP)
        return 77;
    if (r == 0)
        r = print_all(ds, &err);
    dataset_close(ds);
    if (r < 0)
        fprintf(stderr, "check_pieces: %s: %s\n", err.path, err.message);
    return r < 0;
}
