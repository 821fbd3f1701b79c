/*
 * Prints the samples of datasets of single integers, for comparison with another implementation.
 *
 * Reads one dataset a line, as a loader spec has it in JSON, and answers each with one line: all
 * samples in order, separated by spaces. Exit status 1 and a message for a dataset that cannot be
 * opened or has other samples.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "daemon/data/base/dataset.h"
#include "proto/yaml.h"

enum { PIECE = 1000 }; /* samples read at once */

static int print_samples(struct dataset *ds, struct dl_error *err)
{
    uint64_t indices[PIECE];
    int64_t samples[PIECE];
    void *dst[1] = {samples};
    size_t count, bad;

    if (ds->schema.count != 1 || ds->schema.nodes[0].dtype != DL_DTYPE_INT64 ||
        ds->schema.nodes[0].ndim != 0)
        return dl_error_set(err, EINVAL, "dataset", "its samples are no single integers");
    for (uint64_t begin = 0; begin < ds->length; begin += count) {
        count = min_u64(ds->length - begin, PIECE);
        for (size_t i = 0; i < count; i++)
            indices[i] = begin + i;
        int r = dataset_read_rows(ds, &(struct sample_key){0}, indices, count, dst, &bad, err);
        if (r < 0)
            return r;
        for (size_t i = 0; i < count; i++)
            printf("%s%" PRId64, begin + i > 0 ? " " : "", samples[i]);
    }
    putchar('\n');
    return 0;
}

static int answer(const char *line, struct dl_error *err)
{
    _cleanup_(value_deinit) struct value v = {0};
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    const struct data_env anywhere = {0};
    struct dataset *ds;
    int r;

    if ((r = yaml_parse(line, strlen(line), "line", &v, err)) < 0 ||
        (r = spec_from_value(&v, NULL, &spec, err)) < 0 ||
        (r = dataset_open(&spec.dataset, &anywhere, &ds, err)) < 0)
        return r;
    r = print_samples(ds, err);
    dataset_close(ds);
    return r;
}

int main(void)
{
    _cleanup_free_ char *line = NULL;
    size_t room = 0;

    while (getline(&line, &room, stdin) > 0) {
        struct dl_error err = {0};
        if (answer(line, &err) < 0) {
            fprintf(stderr, "dataset_print: %s: %s: %s\n", line, err.path, err.message);
            return 1;
        }
    }
    return 0;
}
