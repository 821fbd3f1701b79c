#include "daemon/serve/session/turns.h"

#include "daemon/base/memory.h"

#include <assert.h>

#include <utlist.h>

static struct turn_user *turns_find(const struct turns *turns, uint32_t uid)
{
    struct turn_user *user;

    HASH_FIND(hh, turns->users, &uid, sizeof uid, user);
    return user;
}

void turns_add(struct turns *turns, struct turn *turn, uint32_t uid)
{
    struct turn_user *user = turns_find(turns, uid);

    if (!user) {
        user = must_alloc(sizeof *user);
        user->uid = uid;
        HASH_ADD(hh, turns->users, uid, sizeof user->uid, user);
    }
    user->sessions++;
    *turn = (struct turn){.user = user};
}

void turns_add_door(struct turns *turns, struct turn *turn)
{
    *turn = (struct turn){.user = &turns->door};
}

void turns_remove(struct turns *turns, struct turn *turn)
{
    struct turn_user *user = turn->user;

    if (!user)
        return;
    turns_wait_no_more(turns, turn);
    assert(user == &turns->door || user->sessions > 0);
    turn->user = NULL;
    if (user == &turns->door || --user->sessions > 0)
        return;
    assert(!user->first);
    HASH_DEL(turns->users, user);
    free(user);
}

void turns_wait(struct turns *turns, struct turn *turn)
{
    struct turn_user *user = turn->user;

    if (turn->waits)
        return;
    if (!user->first) {
        user->used_ns = max_u64(user->used_ns, turns->floor_ns);
        DL_APPEND(turns->waiting, user);
    }
    DL_APPEND(user->first, turn);
    turn->waits = true;
}

void turns_wait_no_more(struct turns *turns, struct turn *turn)
{
    struct turn_user *user = turn->user;

    if (!turn->waits)
        return;
    turn->waits = false;
    DL_DELETE(user->first, turn);
    if (!user->first)
        DL_DELETE(turns->waiting, user);
}

struct turn *turns_next(struct turns *turns, uint64_t now_ns)
{
    uint64_t oldest = turns->most_ns - min_u64(turns->most_ns, TURN_CREDIT_NS);
    struct turn_user *user, *least = NULL;
    struct turn *turn;

    DL_FOREACH (turns->waiting, user) {
        user->used_ns = max_u64(user->used_ns, oldest); /* a paused user has no claim to more */
        if (user->pause_ns <= now_ns && (!least || user->used_ns < least->used_ns))
            least = user;
    }
    if (!least)
        return NULL;
    turns->floor_ns = max_u64(turns->floor_ns, least->used_ns);
    turn = least->first;
    assert(turn && turn->waits && turn->user == least);
    turns_wait_no_more(turns, turn);
    return turn;
}

void turns_add_time(struct turns *turns, struct turn_user *user, uint64_t ns)
{
    user->used_ns += ns;
    turns->most_ns = max_u64(turns->most_ns, user->used_ns);
}

void turns_charge(struct turns *turns, struct turn_user *user, uint64_t ns, uint64_t now_ns)
{
    uint64_t others = HASH_COUNT(turns->users) - 1;

    turns_add_time(turns, user, ns);
    if (ns > TURN_LONG_NS)
        user->pause_ns = now_ns + ns * TURN_PAUSE * min_u64(others, TURN_OTHERS_MAX);
}

/* A user whose connections are all gone at once is not in a list: only the door is charged. */
void turns_let_in(struct turns *turns, uint32_t uid, uint64_t ns)
{
    struct turn_user *user = turns_find(turns, uid);

    turns_add_time(turns, &turns->door, ns);
    if (!user)
        return;
    turns_add_time(turns, user, ns);
    turns->door.used_ns = max_u64(turns->door.used_ns, user->used_ns);
}

uint64_t turns_due(const struct turns *turns)
{
    const struct turn_user *user;
    uint64_t due = UINT64_MAX;

    DL_FOREACH (turns->waiting, user)
        due = min_u64(due, user->pause_ns);
    return due;
}
