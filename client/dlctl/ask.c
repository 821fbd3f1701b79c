#include "client/dlctl/ask.h"

#include "proto/pages.h"

int ask_connect(const struct options *o, struct dl_client **ret)
{
    return dl_client_connect(ret, o->socket, "dlctl " DLOADER_VERSION);
}

void ask_end(struct dl_client **client)
{
    *client = dl_client_close(*client);
}

int ask_view(struct dl_client *client, const char *view, struct value *ret)
{
    const void *data;
    size_t len;
    int r = dl_client_query(client, view, &data, &len);

    return r < 0 ? r : pages_unpack(data, len, ret, NULL);
}
