/* Who connects is let in among the turns of sessions, and not at all if nothing came of it. */
#include "tests/lib/harness.h"
#include "tests/lib/uv_threads.h"

#include "daemon/serve/session/door.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

enum { PATIENCE_MS = 60 * 1000, MANY = 100 /* the queue has room for them */ };

static struct play {
    uv_loop_t loop;
    struct scheduler *scheduler;
    struct quota *quota;
    struct config config;
    struct door door;
    struct turn talker; /* of a user who always has something to say */
    unsigned talks;
    unsigned came;
    uid_t uid; /* of who came */
    uv_timer_t patience;
} play;

static uint64_t burn(uint64_t now, uint64_t ns)
{
    while (uv_hrtime() < now + ns)
        continue;
    return uv_hrtime();
}

static uint64_t go(struct turn *turn, uint64_t now)
{
    play.talks++;
    (void)scheduler_wait(play.scheduler, turn);
    return burn(now, TURN_NS);
}

static void on_came(void *context, int fd, const struct ucred *who)
{
    assert_ptr_equal(context, &play);
    play.came++;
    play.uid = who->uid;
    close(fd);
}

static void on_patience_over(uv_timer_t *timer)
{
    (void)timer;
    fail_msg("%u came, after %u turns of a session", play.came, play.talks);
}

static void begin(void)
{
    static char path[200];

    play = (struct play){0};
    snprintf(path, sizeof path, "%s/socket", harness_tmpdir());
    play.config.socket = path;
    play.config.socket_mode = 0600;
    play.config.socket_group = (char *)"";
    assert_int_equal(uv_loop_init(&play.loop), 0);
    play.scheduler = scheduler_new(&play.loop, go);
    play.quota = quota_new(&play.config.limits);
    uv_timer_init(&play.loop, &play.patience);
    uv_timer_start(&play.patience, on_patience_over, PATIENCE_MS, 0);
    struct dl_error err = {0};
    const struct door_options options = {.loop = &play.loop,
                                         .config = &play.config,
                                         .passed = -1,
                                         .scheduler = play.scheduler,
                                         .quota = play.quota,
                                         .came = on_came,
                                         .context = &play};
    assert_int_equal(door_open(&play.door, &options, &err), 0);
}

static void end(void)
{
    door_close(&play.door);
    door_close(&play.door);
    play.scheduler = scheduler_free(play.scheduler);
    uv_close((uv_handle_t *)&play.patience, NULL);
    uv_run(&play.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&play.loop), 0);
    play.quota = quota_free(play.quota);
}

static int knock(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(address.sun_path, play.config.socket, strlen(play.config.socket));
    assert_int_equal(connect(sock, (const struct sockaddr *)&address, sizeof address), 0);
    return sock;
}

static void knock_and_leave(unsigned n)
{
    while (n--)
        close(knock());
}

static void run_until_came(unsigned n)
{
    while (play.came < n)
        uv_run(&play.loop, UV_RUN_ONCE);
}

TEST(test_who_comes)
{
    begin();
    knock_and_leave(3);
    int stays = knock();
    knock_and_leave(3);
    int asks = knock();
    assert_int_equal(send(asks, "a", 1, 0), 1);
    close(asks); /* what it said is to be heard */
    run_until_came(2);
    assert_int_equal(play.uid, getuid());
    assert_true(quota_loop_ns(quota_account(play.quota, getuid())) > 0);
    close(stays);
    end();
}

/* However many come, a session has its turn after a few of them. */
TEST(test_session_beside)
{
    begin();
    scheduler_add(play.scheduler, &play.talker, getuid() + 1);
    (void)scheduler_wait(play.scheduler, &play.talker);
    knock_and_leave(MANY);
    int last = knock();
    run_until_came(1);
    assert_true(play.talks >= MANY / 8);
    close(last);
    scheduler_remove(play.scheduler, &play.talker);
    end();
}

/* The door rests: so much was used that nobody else is let in for a while. */
static void run_until_rest(int *ret_sock)
{
    *ret_sock = -1;
    do {
        close_fdp(ret_sock);
        unsigned came = play.came;

        allowance_charge(&play.door.time, ALLOWANCE_MOST_NS, uv_hrtime());
        *ret_sock = knock();
        run_until_came(came + 1);
    } while (!uv_is_active((uv_handle_t *)&play.door.rest));
}

/* Who comes then waits, and is let in by and by, though nothing else wakes the loop. */
TEST(test_rest)
{
    int first, second;

    begin();
    run_until_rest(&first);
    uint64_t now = uv_hrtime(), rests = allowance_due(&play.door.time, now) - now;
    unsigned came = play.came;
    second = knock();
    run_until_came(came + 1);
    /* It rested; a timer counts from the loop's time, which is a little earlier. */
    assert_true(uv_hrtime() - now >= rests / 2);
    close(first);
    close(second);
    end();
}

TEST(test_closed_at_rest)
{
    int first, second;

    begin();
    run_until_rest(&first);
    unsigned came = play.came;
    second = knock();
    end();
    assert_int_equal(play.came, came);
    close(first);
    close(second);
}
