#include "daemon/cluster/store/etcd_watch.h"

#include "daemon/base/memory.h"

#include "daemon/cluster/store/etcd_json.h"

/* Between a watch that broke and the next. */
enum { WATCH_AGAIN_MS = 500 };

struct etcd_watch {
    struct etcd_client *client;
    const char *key;
    backend_changed changed;
    void *owner;
    struct dl_buffer value; /* latest; empty: not known */
    struct http_call *call; /* owned */
    uv_timer_t again;       /* it is begun */
    uv_timer_t soon;        /* `changed` is said */
    unsigned open_handles;
};

static void etcd_watch_on_again(uv_timer_t *timer);

static void etcd_watch_on_soon(uv_timer_t *timer)
{
    struct etcd_watch *watch = timer->data;

    watch->changed(watch->owner, (struct dl_span){watch->value.data, watch->value.len});
}

static void etcd_watch_say_changed(struct etcd_watch *watch)
{
    uv_timer_start(&watch->soon, etcd_watch_on_soon, 0, 0);
}

/* Whole lines: something came of the key, or the watch has begun, or is over. */
static size_t etcd_watch_on_some(void *owner, struct dl_span data)
{
    struct etcd_watch *watch = owner;
    const uint8_t *end;
    size_t taken = 0;

    while ((end = memchr(data.data + taken, '\n', data.len - taken))) {
        size_t len = (size_t)(end - (data.data + taken));
        bool goes_on = false;
        int r = etcd_read_watch((struct dl_span){data.data + taken, len}, &goes_on, &watch->value);

        if (r < 0 || !goes_on)
            uv_timer_start(&watch->again, etcd_watch_on_again, WATCH_AGAIN_MS, 0);
        taken += len + 1;
        etcd_watch_say_changed(watch);
    }
    return taken;
}

static void etcd_watch_on_done(void *owner, const struct http_answer *with)
{
    struct etcd_watch *watch = owner;

    (void)with; /* a call that fails at this endpoint goes to the next, and so does this then */
    watch->call = NULL;
    watch->value.len = 0;
    uv_timer_start(&watch->again, etcd_watch_on_again, WATCH_AGAIN_MS, 0);
    etcd_watch_say_changed(watch);
}

static void etcd_watch_on_again(uv_timer_t *timer)
{
    struct etcd_watch *watch = timer->data;
    struct etcd_client *client = watch->client;
    struct http_request request = {
        .some = etcd_watch_on_some, .done = etcd_watch_on_done, .owner = watch};

    watch->call = http_cancel(watch->call);
    bool must_wait = client->user && !client->token; /* a call gets it one */
    if (must_wait ||
        etcd_client_post(client, "watch", etcd_watch_body(watch->key), request, &watch->call) < 0)
        uv_timer_start(&watch->again, etcd_watch_on_again, WATCH_AGAIN_MS, 0);
}

struct etcd_watch *etcd_watch_new(uv_loop_t *loop, struct etcd_client *client, const char *key,
                                  backend_changed changed, void *owner)
{
    struct etcd_watch *watch = must_alloc(sizeof *watch);

    watch->client = client;
    watch->key = key;
    watch->changed = changed;
    watch->owner = owner;
    (void)uv_timer_init(loop, &watch->again);
    (void)uv_timer_init(loop, &watch->soon);
    watch->again.data = watch->soon.data = watch;
    watch->open_handles = 2;
    uv_timer_start(&watch->again, etcd_watch_on_again, 0, 0);
    return watch;
}

static void etcd_watch_on_closed(uv_handle_t *handle)
{
    struct etcd_watch *watch = handle->data;

    if (--watch->open_handles > 0)
        return;
    buffer_deinit(&watch->value);
    free(watch);
}

struct etcd_watch *etcd_watch_free(struct etcd_watch *watch)
{
    if (!watch)
        return NULL;
    watch->call = http_cancel(watch->call);
    uv_close((uv_handle_t *)&watch->again, etcd_watch_on_closed);
    uv_close((uv_handle_t *)&watch->soon, etcd_watch_on_closed);
    return NULL;
}
