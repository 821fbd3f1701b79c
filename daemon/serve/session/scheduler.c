#include "daemon/serve/session/scheduler.h"

#include "daemon/base/memory.h"

#include <assert.h>
#include <time.h>

enum { LOOK_NS = 25 * 1000 }; /* of turns, until the loop looks after all else */

struct scheduler {
    struct turns turns;
    uint64_t (*go)(struct turn *turn, uint64_t now);
    struct turn door;
    uint64_t (*let_in)(void *context, uint64_t now);
    void *context;    /* of `let_in` */
    uv_check_t check; /* after the loop has heard from the kernel */
    uv_idle_t again;  /* while a turn is possible: the loop does not sleep */
    uv_timer_t pause; /* until a turn is possible */
    uint32_t handles;
};

static void scheduler_do_nothing(uv_idle_t *idle)
{
    (void)idle;
}

/* Turns are taken after the loop's next look at the kernel, which is not to wait for anything. */
static void scheduler_on_pause_over(uv_timer_t *timer)
{
    struct scheduler *scheduler = timer->data;

    uv_idle_start(&scheduler->again, scheduler_do_nothing);
}

/* Arranges when the loop runs the next turn. */
static void scheduler_arm(struct scheduler *scheduler, uint64_t now)
{
    uint64_t due = turns_due(&scheduler->turns);

    if (due <= now)
        uv_idle_start(&scheduler->again, scheduler_do_nothing);
    else
        uv_idle_stop(&scheduler->again);
    if (due > now && due != UINT64_MAX)
        uv_timer_start(&scheduler->pause, scheduler_on_pause_over, (due - now) / 1000000 + 1, 0);
}

static uint64_t scheduler_cpu_ns(void)
{
    struct timespec used;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

static uint64_t scheduler_take(struct scheduler *scheduler, struct turn *turn, uint64_t began,
                               uint64_t cpu)
{
    struct turn_user *user = turn->user;

    if (turn == &scheduler->door)
        return scheduler->let_in(scheduler->context, began);
    uint64_t now = scheduler->go(turn, began), took = now - began;
    if (took > TURN_LONG_NS) /* perhaps something else had the processor */
        took = min_u64(took, scheduler_cpu_ns() - cpu);
    turns_charge(&scheduler->turns, user, took, now);
    return now;
}

static void scheduler_on_check(uv_check_t *check)
{
    struct scheduler *scheduler = check->data;
    struct turns *turns = &scheduler->turns;
    struct turn *turn;

    if (!turns->waiting) {
        uv_idle_stop(&scheduler->again); /* the waiting session is gone */
        return;
    }
    uint64_t now = uv_hrtime(), ends = now + LOOK_NS, cpu = scheduler_cpu_ns();
    while (now < ends && (turn = turns_next(turns, now)))
        now = scheduler_take(scheduler, turn, now, cpu);
    scheduler_arm(scheduler, now);
}

struct scheduler *scheduler_new(uv_loop_t *loop, uint64_t (*go)(struct turn *turn, uint64_t now))
{
    struct scheduler *scheduler = must_alloc(sizeof *scheduler);

    scheduler->go = go;
    turns_add_door(&scheduler->turns, &scheduler->door);
    scheduler->check.data = scheduler->again.data = scheduler->pause.data = scheduler;
    uv_check_init(loop, &scheduler->check);
    uv_idle_init(loop, &scheduler->again);
    uv_timer_init(loop, &scheduler->pause);
    scheduler->handles = 3;
    uv_check_start(&scheduler->check, scheduler_on_check);
    uv_unref((uv_handle_t *)&scheduler->check);
    return scheduler;
}

static void scheduler_on_closed(uv_handle_t *handle)
{
    struct scheduler *scheduler = handle->data;

    if (--scheduler->handles == 0)
        free(scheduler);
}

struct scheduler *scheduler_free(struct scheduler *scheduler)
{
    if (!scheduler)
        return NULL;
    assert(!scheduler->turns.users);
    uv_close((uv_handle_t *)&scheduler->check, scheduler_on_closed);
    uv_close((uv_handle_t *)&scheduler->again, scheduler_on_closed);
    uv_close((uv_handle_t *)&scheduler->pause, scheduler_on_closed);
    return NULL;
}

void scheduler_add(struct scheduler *scheduler, struct turn *turn, uint32_t uid)
{
    turns_add(&scheduler->turns, turn, uid);
}

void scheduler_remove(struct scheduler *scheduler, struct turn *turn)
{
    turns_remove(&scheduler->turns, turn);
}

/* What takes longer waited for the processor, mostly. */
static uint64_t scheduler_bound(uint64_t ns)
{
    return min_u64(ns, TURN_LONG_NS);
}

void scheduler_charge(struct scheduler *scheduler, struct turn *turn, uint64_t ns)
{
    turns_add_time(&scheduler->turns, turn->user, scheduler_bound(ns));
}

void scheduler_set_door(struct scheduler *scheduler,
                        uint64_t (*let_in)(void *context, uint64_t now), void *context)
{
    scheduler->let_in = let_in;
    scheduler->context = context;
}

void scheduler_knock(struct scheduler *scheduler)
{
    turns_wait(&scheduler->turns, &scheduler->door);
    uv_idle_start(&scheduler->again, scheduler_do_nothing);
}

void scheduler_let_in(struct scheduler *scheduler, uint32_t uid, uint64_t ns)
{
    turns_let_in(&scheduler->turns, uid, scheduler_bound(ns));
}

bool scheduler_wait(struct scheduler *scheduler, struct turn *turn)
{
    turns_wait(&scheduler->turns, turn);
    uv_idle_start(&scheduler->again, scheduler_do_nothing); /* until the next look at turns */
    return turn->user->pause_ns > 0 && turn->user->pause_ns > uv_hrtime();
}
