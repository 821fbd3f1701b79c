/*
 * Weights of single samples that change while they are drawn: dl_loader_weights() requests a
 * change, and before each START the client brings the daemon the tables that the epoch needs.
 * Weights are kept in files, from which they are loaded again (proto/shared/weight_files.h).
 */
#include "client/internal.h"
#include "proto/shared/weight_files.h"
#include "proto/value.h"

#include <errno.h>

/* ---- bringing -------------------------------------------------------------------------------- */

static struct dl_message sample_weights_message(const struct weight_table *table)
{
    return (struct dl_message){.number = DL_MSG_TABLE,
                               .table = {.samples = table->n, .sum = table->sum}};
}

/* `waits`: until the daemon takes it. 0; or a negative errno with `err`, or latched. */
static int sample_weights_bring_table(struct dl_client *client, const struct weight_table *table,
                                      bool waits, struct dl_error *err)
{
    _cleanup_fd_ int fd = weight_table_memfd(table->weights, table->n);

    if (fd < 0)
        return dl_error_set(err, -fd, "weights", "no memory to pass them to the daemon: %s",
                            strerror(-fd));
    const struct dl_message msg = sample_weights_message(table);
    return waits ? hosts_send_fd(client, &msg, fd, deadline_after(REQUEST_TIMEOUT))
                 : hosts_push_fd(client, &msg, fd);
}

/* The daemon has them if it sent the list, or accepted a START of that epoch or an earlier one. */
static bool sample_weights_are_there(const struct dl_epoch *epoch)
{
    const struct dl_loader *loader = epoch->loader;

    return loader->weights.sent_to == loader->client->incarnation + 1 &&
           epoch->number >= loader->weights.from;
}

int sample_weights_bring(struct dl_epoch *epoch, bool waits, struct dl_error *err)
{
    struct dl_loader *loader = epoch->loader;
    _cleanup_(mix_changes_unrefp)
    struct mix_changes *list = NULL;
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
        r = sample_weights_bring_table(loader->client, list->items[i].table, waits, err);
    return r;
}

/* ---- asking for a change --------------------------------------------------------------------- */

/* A copy, with one way to write 0, that a sampler may have. */
static int sample_weights_copy(struct dl_client *client, const double *weights, size_t n,
                               struct weight_table **ret)
{
    struct dl_error err = {0};

    if (n == 0 || n > UINT32_MAX || !weights)
        return client_fail(client, EINVAL, "weights", "%zu, where each of 1 to %u samples has one",
                           n, UINT32_MAX);
    double *copy = malloc(n * sizeof *copy);
    if (!copy)
        return client_fail(client, ENOMEM, "weights", "no memory for %zu of them", n);
    for (size_t i = 0; i < n; i++)
        copy[i] = weights[i] == 0 ? 0 : weights[i];
    int r = weight_table_check(copy, n, &err);
    if (r < 0) {
        free(copy);
        return client_fail_with(client, &err);
    }
    return weight_table_of(copy, n, ret) < 0
               ? client_fail(client, ENOMEM, "weights", "no memory for %zu of them", n)
               : 0;
}

/* Keeps the weights in a file, and brings them to the daemon. */
static int sample_weights_hand_over(struct dl_client *client, const struct weight_table *table)
{
    struct dl_error err = {0};
    char dir[PATH_MAX];

    if (client->fd < 0)
        return client_fail(client, ENOTCONN, "",
                           "this client has no daemon; connect with dl_client_connect()");
    weight_files_dir(dir);
    int r = weight_files_store(dir, table->weights, table->n, &err);
    if (r < 0)
        return client_fail_with(client, &err);
    client_queue_pending(client);
    r = reconnect_await(client, DEADLINE_NONE);
    if (r == 0)
        r = sample_weights_bring_table(client, table, true, &err);
    if (err.code)
        return client_fail_with(client, &err);
    return r < 0 ? client_fatal(client) : 0;
}

int dl_client_weights(struct dl_client *client, const char *loader, const double *weights, size_t n,
                      uint64_t epoch, uint64_t step, const void **ret_data, size_t *ret_len)
{
    _cleanup_(weight_table_unrefp)
    struct weight_table *table = NULL;
    struct dl_message msg = {.number = DL_MSG_WEIGHTS};
    int r = client_begin(client);

    if (r == 0 && (!loader || !*loader || strlen(loader) > DL_MAX_NAME_BYTES))
        r = client_fail(client, EINVAL, "loader", "a loader's name has 1 to %llu bytes",
                        (unsigned long long)DL_MAX_NAME_BYTES);
    if (r == 0)
        r = sample_weights_copy(client, weights, n, &table);
    if (r == 0)
        r = sample_weights_hand_over(client, table);
    if (r < 0)
        return r;
    msg.weights.loader = span_str(loader);
    msg.weights.epoch = epoch;
    msg.weights.step = step;
    msg.weights.sum = table->sum;
    r = client_ask(client, &msg, &msg.weights.request, REQUEST_TIMEOUT);
    if (r < 0)
        return r;
    *ret_data = client->answer.data;
    *ret_len = client->answer.len;
    return 0;
}

int dl_loader_weights(struct dl_loader *loader, const double *weights, size_t n, uint64_t *epoch,
                      uint64_t *step)
{
    const void *data;
    size_t len;
    int r = weights_begin(loader);

    if (r == 0)
        r = dl_client_weights(loader->client, loader->name, weights, n, *epoch, *step, &data, &len);
    return r < 0 ? r : weights_read_answer(loader->client, data, len, epoch, step);
}
