/*
 * Prints the batches of loaders whose samples are single integers, for comparison with another
 * implementation.
 *
 * Reads one loader spec a line, in JSON, with RANK/WORLD before it or as for one rank, and answers
 * each with one line: the batches of the first epoch, each as its numbers separated by spaces, and
 * +N where the last N are repeated, with a semicolon behind it. A batch that fails ends the program
 * with exit status 1 and a message.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "daemon/data/local.h"
#include "proto/yaml.h"

enum { SLOT_BYTES = 1 << 20 };

static _Alignas(64) char slot[SLOT_BYTES];

static int print_batch(uint32_t repeated, struct dl_error *err)
{
    const struct slot_header *header = (const void *)slot;
    const struct tree_node *node = (const void *)(slot + header->tree_off);
    const int64_t *numbers = (const void *)(slot + node->offset);

    if (header->tree_count != 1 || node->kind != TREE_TENSOR || node->dtype != DL_DTYPE_INT64)
        return dl_error_set(err, EINVAL, "dataset", "its samples are no single integers");
    for (uint64_t i = 0; i < node->nbytes / sizeof *numbers; i++)
        printf("%s%" PRId64, i > 0 ? " " : "", numbers[i]);
    if (repeated > 0)
        printf("+%" PRIu32, repeated);
    putchar(';');
    return 0;
}

static int print_epoch(struct local *local, uint32_t rank, uint32_t world, struct dl_error *err)
{
    const struct local_where where = {.rank = rank, .world = world};
    struct local_pass *pass;
    uint64_t step, used;
    int r = local_start(local, &where, &pass, err);

    if (r < 0)
        return r;
    while ((r = local_next(pass, slot, sizeof slot, &step, &used, err)) == 0)
        if ((r = print_batch(local_repeated(pass), err)) < 0)
            break;
    local_end(pass);
    return r < 0 ? r : 0;
}

static int answer(const char *line, struct dl_error *err)
{
    _cleanup_(value_deinit) struct value v = {0};
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    const struct data_env anywhere = {0};
    struct local *local;
    uint32_t rank = 0, world = 1;
    int r, prefix = 0;

    if (sscanf(line, "%" SCNu32 "/%" SCNu32 " %n", &rank, &world, &prefix) == 2)
        line += prefix;
    if ((r = yaml_parse(line, strlen(line), "line", &v, err)) < 0 ||
        (r = spec_from_value(&v, NULL, &spec, err)) < 0 ||
        (r = local_new(&spec, &anywhere, &local, err)) < 0)
        return r;
    r = print_epoch(local, rank, world, err);
    putchar('\n');
    local_free(local);
    return r;
}

int main(void)
{
    _cleanup_free_ char *line = NULL;
    size_t room = 0;

    while (getline(&line, &room, stdin) > 0) {
        struct dl_error err = {0};
        if (answer(line, &err) < 0) {
            fprintf(stderr, "loader_print: %s: %s: %s\n", line, err.path, err.message);
            return 1;
        }
    }
    return 0;
}
