/*
 * Weights of single samples that change while they are drawn: before each START the client brings
 * the daemon the tables that the epoch needs. Weights are kept in files, from which they are loaded
 * again (proto/shared/weight_files.h).
 */
#include "client/internal.h"
#include "proto/shared/weight_files.h"

int sample_weights_bring_table(struct dl_client *client, const struct weight_table *table,
                               struct dl_error *err)
{
    const struct dl_message msg = {.number = DL_MSG_TABLE,
                                   .table = {.samples = table->n, .sum = table->sum}};
    int fd = weight_table_memfd(table->weights, table->n);

    if (fd < 0)
        return dl_error_set(err, -fd, "weights", "no memory to pass them to the daemon: %s",
                            strerror(-fd));
    return connection_send_fd(&client->conn, &msg, fd);
}

/* The daemon has them if it sent the list, or accepted a START of that epoch or an earlier one. */
static bool sample_weights_are_there(const struct dl_epoch *epoch)
{
    const struct dl_loader *loader = epoch->loader;

    return loader->weights.sent_to == loader->client->incarnation + 1 &&
           epoch->number >= loader->weights.from;
}

int sample_weights_bring(struct dl_epoch *epoch, struct dl_error *err)
{
    struct dl_loader *loader = epoch->loader;
    _cleanup_(mix_changes_unrefp) struct mix_changes *list = NULL;
    char dir[PATH_MAX];
    uint32_t first;

    if (!loader->weights.known || loader->weights.list.len == 0 ||
        mix_changes_read(weights_of(loader), &list) < 0 || !list->of_samples ||
        epoch->number == DL_RESUME || sample_weights_are_there(epoch))
        return 0;
    weight_files_dir(dir);
    int r = weight_files_fill(dir, list, epoch->number, err);
    uint32_t end = mix_changes_of_epoch(list, epoch->number, &first);
    for (uint32_t i = first; r == 0 && i < end; i++)
        r = sample_weights_bring_table(loader->client, list->items[i].table, err);
    return r;
}
