#include "daemon/serve/session/door.h"

#include "daemon/base/credentials.h"

enum { LET_IN_AT_ONCE = 8, LET_IN_NS = TURN_NS };

static bool door_has_left(int fd)
{
    char unused;

    return recv(fd, &unused, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void door_on_accepted(void *context, int fd)
{
    struct door *door = context;
    _cleanup_fd_ int sock = fd;
    struct dl_error err = {0};

    door->known = credentials_peer(sock, &door->last, &err) == 0;
    if (!door->known)
        log_about(LOG_WARNING, &(struct log_fields){LOG_EVENT_CONNECTION_REFUSED},
                  "a connection was refused: %s", err.message);
    else if (!door_has_left(sock))
        door->o.came(door->o.context, steal_fd(&sock), &door->last);
}

static void door_charge(struct door *door, uint64_t began, uint64_t now)
{
    /* What takes longer waited for the processor, mostly. */
    uint64_t took = min_u64(now - began, TURN_LONG_NS);

    allowance_charge(&door->time, took, now);
    if (!door->known)
        return;
    scheduler_let_in(door->o.scheduler, door->last.uid, took);
    quota_add_loop_time(quota_account(door->o.quota, door->last.uid), took);
}

static void door_on_rested(uv_timer_t *timer)
{
    struct door *door = timer->data;

    listener_pause(door->listener, false);
}

/* The kernel's queue is not even looked at. */
static void door_rest(struct door *door, uint64_t now)
{
    uint64_t due = allowance_due(&door->time, now);

    if (due <= now || !door->listener)
        return;
    listener_pause(door->listener, true);
    uv_timer_start(&door->rest, door_on_rested, (due - now) / 1000000 + 1, 0);
}

static uint64_t door_let_in(void *context, uint64_t now)
{
    struct door *door = context;
    uint64_t ends = now + LET_IN_NS;

    for (int n = 0; n < LET_IN_AT_ONCE && now < ends && door->listener; n++) {
        uint64_t began = now;

        door->known = false;
        if (!listener_let_in(door->listener))
            break;
        now = uv_hrtime();
        door_charge(door, began, now);
    }
    door_rest(door, now);
    return uv_hrtime();
}

static void door_on_waiting(void *context)
{
    struct door *door = context;

    scheduler_knock(door->o.scheduler);
}

int door_open(struct door *door, const struct door_options *options, struct dl_error *err)
{
    *door = (struct door){.o = *options};
    int r = listener_new(options->loop, options->config, options->passed, door_on_accepted, door,
                         &door->listener, err);

    if (r < 0)
        return r;
    uv_timer_init(options->loop, &door->rest);
    door->rest.data = door;
    listener_ask(door->listener, door_on_waiting);
    scheduler_set_door(options->scheduler, door_let_in, door);
    return 0;
}

void door_close(struct door *door)
{
    if (!door->listener)
        return;
    door->listener = listener_free(door->listener);
    uv_close((uv_handle_t *)&door->rest, NULL);
}
