/*
 * What a program asks the daemon for, and INFO answers: views, verbs, a measurement, and other
 * weights, of the datasets of a mixture or of single samples.
 */
#include "client/internal.h"
#include "proto/shared/weight_files.h"
#include "proto/value.h"

#include <errno.h>

enum { RESIZE_SINCE = 4 /* version of the protocol */ };
enum { WORD_MAX = 32, HEADSPACE_STEPS_MAX = 10000 };

/* The first line of each: the latched error, or what is wrong with the word, or 0. */
static int ask_begin(struct dl_client *client, const char *what, const char *word, size_t max)
{
    size_t len = word ? strlen(word) : 0;
    int r = client_begin(client);

    if (r < 0 || (len > 0 && len <= max))
        return r;
    return client_fail(client, EINVAL, what, "'%.40s' has %zu bytes, not 1 to %zu",
                       word ? word : "", len, max);
}

static int ask_begin_loader(struct dl_client *client, const char *name)
{
    return ask_begin(client, "loader", name, DL_MAX_NAME_BYTES);
}

static int ask_need_daemon(struct dl_client *client)
{
    if (client->fd >= 0)
        return 0;
    return client_fail(client, ENOTCONN, "",
                       "this client has no daemon; connect with dl_client_connect()");
}

/* Sends the request, whose field *request is. The answer is then in client->answer; `has_more`:
 * behind what is there. */
static int ask_send(struct dl_client *client, struct dl_message *msg, uint64_t *request,
                    bool has_more, uint64_t timeout_ns)
{
    int r = ask_need_daemon(client);

    if (r < 0)
        return r;
    *request = connection_request(&client->conn);
    client->call = (struct call){.request = *request, .answer = DL_MSG_INFO, .has_more = has_more};
    return client_call(client, msg, timeout_ns);
}

/* `r` is of ask_send(). */
static int ask_give(struct dl_client *client, int r, const void **ret_data, size_t *ret_len)
{
    if (r < 0)
        return r;
    *ret_data = client->answer.data;
    *ret_len = client->answer.len;
    return 0;
}

int dl_client_query(struct dl_client *client, const char *view, const void **ret_data,
                    size_t *ret_len)
{
    struct dl_message msg = {.number = DL_MSG_QUERY};
    int r = ask_begin(client, "view", view, WORD_MAX);

    if (r < 0)
        return r;
    msg.query.view = span_str(view);
    do {
        r = ask_send(client, &msg, &msg.query.request, msg.query.row > 0, REQUEST_TIMEOUT);
        msg.query.row = client->call.next;
    } while (r == 0 && msg.query.row > 0);
    return ask_give(client, r, ret_data, ret_len);
}

int dl_client_control(struct dl_client *client, const char *verb)
{
    struct dl_message msg = {.number = DL_MSG_CONTROL};
    int r = ask_begin(client, "verb", verb, WORD_MAX);

    if (r < 0)
        return r;
    msg.control.verb = span_str(verb);
    return ask_send(client, &msg, &msg.control.request, false, REQUEST_TIMEOUT);
}

int dl_client_resize(struct dl_client *client, const char *loader, uint32_t workers,
                     const void **ret_data, size_t *ret_len)
{
    struct dl_message msg = {.number = DL_MSG_RESIZE};
    int r = ask_begin_loader(client, loader);

    if (r == 0 && workers > DL_MAX_WORKERS)
        r = client_fail(client, EINVAL, "workers", "%u, where a loader has %llu at most", workers,
                        (ull)DL_MAX_WORKERS);
    if (r == 0 && (r = ask_need_daemon(client)) == 0 && client->conn.version < RESIZE_SINCE)
        r = client_fail(client, ENOTSUP, loader, "the daemon is of an earlier release");
    if (r < 0)
        return r;
    msg.resize.loader = span_str(loader);
    msg.resize.workers = workers;
    r = ask_send(client, &msg, &msg.resize.request, false, REQUEST_TIMEOUT);
    return ask_give(client, r, ret_data, ret_len);
}

int dl_client_headspace(struct dl_client *client, const char *loader, uint32_t steps,
                        const void **ret_data, size_t *ret_len)
{
    struct dl_message msg = {.number = DL_MSG_HEADSPACE};
    int r = ask_begin_loader(client, loader);

    if (r == 0 && (steps == 0 || steps > HEADSPACE_STEPS_MAX))
        r = client_fail(client, EINVAL, "steps", "%u, where 1 to %d can be measured", steps,
                        HEADSPACE_STEPS_MAX);
    if (r < 0)
        return r;
    msg.headspace.loader = span_str(loader);
    msg.headspace.steps = steps;
    /* The trainer takes as long as it takes. */
    r = ask_send(client, &msg, &msg.headspace.request, false, DEADLINE_NONE);
    return ask_give(client, r, ret_data, ret_len);
}

/* ---- weights ---- */

static int ask_pack_weights(struct dl_client *client, const struct dl_mix_weight *weights, size_t n,
                            struct dl_buffer *ret)
{
    _cleanup_(value_deinit) struct value map = {.type = VALUE_MAP};
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
    _cleanup_(buffer_deinit) struct dl_buffer packed = {0};
    struct dl_message msg = {.number = DL_MSG_MIX};
    int r = ask_begin_loader(client, loader);

    if (r == 0 && (n == 0 || n > DL_MAX_MIX_CHILDREN))
        r = client_fail(client, EINVAL, "weights", "%zu weights, but a mix has 1 to %llu datasets",
                        n, (ull)DL_MAX_MIX_CHILDREN);
    if (r == 0)
        r = ask_pack_weights(client, weights, n, &packed);
    if (r < 0)
        return r;
    msg.mix.loader = span_str(loader);
    msg.mix.epoch = epoch;
    msg.mix.step = step;
    msg.mix.weights = (struct dl_span){packed.data, packed.len};
    r = ask_send(client, &msg, &msg.mix.request, false, REQUEST_TIMEOUT);
    return ask_give(client, r, ret_data, ret_len);
}

/* A copy, with one way to write 0, that a sampler may have. */
static int ask_copy_table(struct dl_client *client, const double *weights, size_t n,
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
static int ask_bring_table(struct dl_client *client, const struct weight_table *table)
{
    struct dl_error err = {0};
    char dir[PATH_MAX];

    int r = ask_need_daemon(client);
    if (r < 0)
        return r;
    weight_files_dir(dir);
    r = weight_files_store(dir, table->weights, table->n, &err);
    if (r == 0) {
        client_queue_pending(client);
        r = client_be_there(client);
    }
    if (r == 0)
        r = sample_weights_bring_table(client, table, &err);
    if (err.code)
        return client_fail_with(client, &err);
    return r < 0 ? client_fatal(client) : 0;
}

int dl_client_weights(struct dl_client *client, const char *loader, const double *weights, size_t n,
                      uint64_t epoch, uint64_t step, const void **ret_data, size_t *ret_len)
{
    _cleanup_(weight_table_unrefp) struct weight_table *table = NULL;
    struct dl_message msg = {.number = DL_MSG_WEIGHTS};
    int r = ask_begin_loader(client, loader);

    if (r == 0)
        r = ask_copy_table(client, weights, n, &table);
    if (r == 0)
        r = ask_bring_table(client, table);
    if (r < 0)
        return r;
    msg.weights.loader = span_str(loader);
    msg.weights.epoch = epoch;
    msg.weights.step = step;
    msg.weights.sum = table->sum;
    r = ask_send(client, &msg, &msg.weights.request, false, REQUEST_TIMEOUT);
    return ask_give(client, r, ret_data, ret_len);
}

/* What other ranks read, too, cannot be changed in this process alone. */
static int ask_need_shared(struct dl_loader *loader)
{
    int r = client_begin(loader->client);

    if (r == 0 && loader->local)
        r = client_fail(loader->client, ENOTSUP, "workers.count",
                        "0 loads in this process alone, and other ranks would go on with the old "
                        "weights; write 1 or more");
    return r;
}

/* The place that the daemon has answered with. */
static int ask_read_place(struct dl_client *client, uint64_t *epoch, uint64_t *step)
{
    _cleanup_(value_deinit) struct value view = {0};

    if (value_unpack(client->answer.data, client->answer.len, &view, NULL) < 0)
        return client_fail(client, ENOMEM, "", "no memory for the daemon's answer");
    *epoch = value_count(value_get(&view, "epoch"));
    *step = value_count(value_get(&view, "step"));
    return 0;
}

int dl_loader_mix(struct dl_loader *loader, const struct dl_mix_weight *weights, size_t n,
                  uint64_t *epoch, uint64_t *step)
{
    const void *data;
    size_t len;
    int r = ask_need_shared(loader);

    if (r == 0)
        r = dl_client_mix(loader->client, loader->name, weights, n, *epoch, *step, &data, &len);
    return r < 0 ? r : ask_read_place(loader->client, epoch, step);
}

int dl_loader_weights(struct dl_loader *loader, const double *weights, size_t n, uint64_t *epoch,
                      uint64_t *step)
{
    const void *data;
    size_t len;
    int r = ask_need_shared(loader);

    if (r == 0)
        r = dl_client_weights(loader->client, loader->name, weights, n, *epoch, *step, &data, &len);
    return r < 0 ? r : ask_read_place(loader->client, epoch, step);
}
