/*
 * What all of the machine does with a session: its last error, a message on its way, and which
 * epoch or segment a number means.
 */
#include "client/core/core.h"

#include <assert.h>
#include <stdio.h>

/* The text of client->error; a report belongs to the error before it. */
static void client_compose_error(struct dl_client *client)
{
    const struct dl_error *err = &client->error;

    free(client->detail);
    client->detail = NULL;

    snprintf(client->error_text, sizeof client->error_text, "%s%s%s", err->path,
             err->path[0] && err->message[0] ? ": " : "", err->message);
}

int client_fail(struct dl_client *client, int code, const char *path, const char *fmt, ...)
{
    char text[DL_ERROR_MESSAGE_MAX];
    va_list args;
    int r;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    r = dl_error_set(&client->error, code, path, "%s", text);
    client_compose_error(client);
    return r;
}

int client_fail_with(struct dl_client *client, const struct dl_error *err)
{
    assert(err->code > 0);
    client->error = *err;
    client_compose_error(client);
    return -err->code;
}

int client_fatal(struct dl_client *client)
{
    return client_fail_with(client, &client->conn.fatal);
}

void client_send(struct dl_client *client, const struct dl_message *msg)
{
    int r = connection_send(&client->conn, msg);

    /* All numbers, bounded by what the daemon sent: requests, which carry texts, go another way. */
    assert(r == 0 || r == connection_check(&client->conn));
}

int no_memory_for(struct dl_client *client, const struct dl_message *msg)
{
    return connection_fail(&client->conn, ENOMEM, "", "no memory to handle %s",
                           message_name(msg->number));
}

void epoch_set_warning(struct dl_epoch *epoch, const char *text)
{
    free(epoch->warning);
    epoch->warning = strdup(text);
}

struct dl_epoch *client_find_epoch(struct dl_client *client, uint32_t stream)
{
    for (struct dl_loader *loader = client->loaders; loader; loader = loader->next)
        for (struct dl_epoch *epoch = loader->epochs; epoch; epoch = epoch->next)
            if (!epoch->local && epoch_rules_of(epoch)->daemon_has_it && epoch->stream == stream)
                return epoch;
    return NULL;
}

uint32_t client_find_segment(const struct dl_client *client, uint64_t id)
{
    uint32_t i = client->n_segments;

    while (i > 0 && client->segments[i - 1]->id != id)
        i--;
    return i > 0 ? i - 1 : UINT32_MAX;
}
