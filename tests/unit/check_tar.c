/*
 * check_tar raw|decode SHARD...: prints what one replica gets from the shards, for real_tar.py to
 * compare: a line "KEY<tab>FIELD<tab>KIND<tab>BYTES" for each field, KIND being string, bytes,
 * tensor or container, and BYTES in hexadecimal digits; or "error<tab>PATH<tab>MESSAGE".
 */
#include "daemon/data/base/dataset.h"

#include <stdio.h>

static const char *kind_name(uint16_t kind)
{
    switch (kind) {
    case TREE_STRING:
        return "string";
    case TREE_BYTES:
        return "bytes";
    case TREE_TENSOR:
        return "tensor";
    default:
        return "container";
    }
}

static void print_sample(const struct sample *sample)
{
    const struct tree_node *nodes = sample->tree.nodes, *end = nodes + sample->tree.count;

    for (const struct tree_node *node = nodes + 2; node < end; node = tree_skip(node)) {
        const uint8_t *data = sample->data[node - nodes];
        printf("%.*s\t%.*s\t%s\t", (int)nodes[1].nbytes, (const char *)sample->data[1],
               (int)node->key_len, sample->tree.keys + node->key_off, kind_name(node->kind));
        for (uint64_t i = 0; i < node->nbytes; i++)
            printf("%02x", data[i]);
        printf("\n");
    }
}

static int print_all(struct dataset *ds)
{
    struct replica_params params = {.world = 1, .workers = 1};
    struct dataset_iter *it = NULL;
    struct arena arena = {0};
    struct sample sample = {.arena = &arena};
    struct dl_error err = {0};
    int r = ds->ops->iterate(ds, &params, &it, &err);

    while (r == 0 && (r = it->ops->next(it, &sample, &err)) != DATASET_END) {
        if (r < 0)
            printf("error\t%s\t%s\n", err.path, err.message);
        else
            print_sample(&sample);
        sample_clear(&sample);
        arena_clear(&arena);
        r = 0;
    }
    if (it)
        it->ops->close(it);
    sample_deinit(&sample);
    arena_deinit(&arena);
    return r < 0;
}

int main(int argc, char **argv)
{
    struct spec_file *files = calloc((size_t)argc, sizeof *files);
    struct spec_dataset spec = {.kind = DATASET_TAR,
                                .files = files,
                                .image = {.transform = TRANSFORM_NONE, .layout = LAYOUT_HWC}};
    struct data_env env = {0};
    struct dataset *ds = NULL;
    struct dl_error err = {0};

    if (!files || argc < 3)
        return 2;
    spec.decode = strcmp(argv[1], "decode") == 0;
    for (int i = 2; i < argc; i++)
        files[spec.n_files++].path = argv[i];
    int failed = dataset_open(&spec, &env, &ds, &err) < 0;
    free(files);
    if (failed)
        printf("error\t%s\t%s\n", err.path, err.message);
    else
        failed = print_all(ds);
    dataset_close(ds);
    return failed;
}
