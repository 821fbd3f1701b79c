/*
 * Asking for other weights: of the datasets of a mixture, or of single samples.
 */
#include "client/internal.h"
#include "proto/shared/weight_files.h"
#include "proto/value.h"

#include <errno.h>

static int mix_pack(struct dl_client *client, const struct dl_mix_weight *weights, size_t n,
                    struct dl_buffer *ret)
{
    _cleanup_(value_deinit)
    struct value map = {.type = VALUE_MAP};
    int r = 0;

    for (size_t i = 0; r == 0 && i < n; i++) {
        if (!weights[i].dataset || !*weights[i].dataset)
            return client_fail(client, EINVAL, "weights", "number %zu has no dataset's name", i);
        if (value_get(&map, weights[i].dataset))
            return client_fail(client, EINVAL, weights[i].dataset, "has two weights");
        r = value_set_float(&map, weights[i].dataset, weights[i].weight);
    }
    if (r == 0)
        r = value_pack(&map, ret);
    return r < 0 ? client_fail(client, -r, "weights", "cannot be sent: %s", strerror(-r)) : 0;
}

int dl_client_mix(struct dl_client *client, const char *loader, const struct dl_mix_weight *weights,
                  size_t n, uint64_t epoch, uint64_t step, const void **ret_data, size_t *ret_len)
{
    _cleanup_(buffer_deinit)
    struct dl_buffer packed = {0};
    struct dl_message msg = {.number = DL_MSG_MIX};
    int r = client_begin(client);

    if (r == 0 && (!loader || !*loader || strlen(loader) > DL_MAX_NAME_BYTES))
        r = client_fail(client, EINVAL, "loader", "a loader's name has 1 to %llu bytes",
                        (unsigned long long)DL_MAX_NAME_BYTES);
    if (r == 0 && (n == 0 || n > DL_MAX_MIX_CHILDREN))
        r = client_fail(client, EINVAL, "weights", "%zu weights, but a mix has 1 to %llu datasets",
                        n, (unsigned long long)DL_MAX_MIX_CHILDREN);
    if (r == 0)
        r = mix_pack(client, weights, n, &packed);
    if (r < 0)
        return r;
    msg.mix.loader = span_str(loader);
    msg.mix.epoch = epoch;
    msg.mix.step = step;
    msg.mix.weights = (struct dl_span){packed.data, packed.len};
    r = client_ask(client, &msg, &msg.mix.request, REQUEST_TIMEOUT);
    if (r < 0)
        return r;
    *ret_data = client->answer.data;
    *ret_len = client->answer.len;
    return 0;
}

int weights_read_answer(struct dl_client *client, const void *data, size_t len, uint64_t *epoch,
                        uint64_t *step)
{
    _cleanup_(value_deinit)
    struct value view = {0};

    if (value_unpack(data, len, &view, NULL) < 0)
        return client_fail(client, ENOMEM, "", "no memory for the daemon's answer");
    *epoch = value_count(value_get(&view, "epoch"));
    *step = value_count(value_get(&view, "step"));
    return 0;
}

int weights_begin(struct dl_loader *loader)
{
    int r = client_begin(loader->client);

    if (r == 0 && loader->local)
        r = client_fail(loader->client, ENOTSUP, "workers.count",
                        "0 loads in this process alone, and other ranks would go on with the old "
                        "weights; write 1 or more");
    return r;
}

int dl_loader_mix(struct dl_loader *loader, const struct dl_mix_weight *weights, size_t n,
                  uint64_t *epoch, uint64_t *step)
{
    const void *data;
    size_t len;
    int r = weights_begin(loader);

    if (r == 0)
        r = dl_client_mix(loader->client, loader->name, weights, n, *epoch, *step, &data, &len);
    return r < 0 ? r : weights_read_answer(loader->client, data, len, epoch, step);
}

/* A copy, with one way to write 0, that a sampler may have. */
static int mix_copy_table(struct dl_client *client, const double *weights, size_t n,
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
static int mix_hand_over(struct dl_client *client, const struct weight_table *table)
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
        r = sample_weights_bring_table(client, table, &err);
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
        r = mix_copy_table(client, weights, n, &table);
    if (r == 0)
        r = mix_hand_over(client, table);
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
