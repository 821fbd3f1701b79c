/* Whose session is heard next: first between users, by the time that they have used, then between a
 * user's sessions. */
#include "tests/lib/harness.h"

#include "daemon/serve/session/turns.h"

enum { SESSIONS = 6 };

/* Sessions 0 to 5, of users by letter: "aab" is two of a's and one of b's. */
struct bed {
    struct turns turns;
    struct turn sessions[SESSIONS];
    unsigned n;
    uint64_t now;
};

static void begin(struct bed *bed, const char *users)
{
    *bed = (struct bed){.n = (unsigned)strlen(users)};
    for (unsigned i = 0; i < bed->n; i++)
        turns_add(&bed->turns, &bed->sessions[i], (uint32_t)users[i]);
}

static void end(struct bed *bed)
{
    for (unsigned i = 0; i < bed->n; i++) {
        turns_remove(&bed->turns, &bed->sessions[i]);
        turns_remove(&bed->turns, &bed->sessions[i]);
    }
    assert_null(bed->turns.users);
    assert_null(bed->turns.waiting);
}

/* The session whose turn it is, as a digit, after that of `ns`; '.': nobody's. */
static char take(struct bed *bed, uint64_t ns)
{
    struct turn *turn = turns_next(&bed->turns, bed->now);

    if (!turn)
        return '.';
    assert_false(turn->waits);
    bed->now += ns;
    turns_charge(&bed->turns, turn->user, ns, bed->now);
    return (char)('0' + (turn - bed->sessions));
}

/*
 * Each session waits again at once after its turn, which takes as long as `costs` says of it: the
 * order of turns.
 */
TEST(test_orders)
{
    static const struct {
        const char *users;
        uint64_t costs[SESSIONS];
        const char *want;
    } rows[] = {
        {"a", {1}, "00000000"},
        {"aaa", {1, 9, 1}, "01201201"},           /* a user's own: each in its turn */
        {"ab", {1, 1}, "01010101"},               /* users: likewise */
        {"aaaab", {1, 1, 1, 1, 1}, "0414243404"}, /* however many sessions one has */
        {"ab", {3, 1}, "01110111"},               /* who takes longer has fewer turns */
        {"aaabbc", {1, 1, 1, 1, 1, 1}, "035145235"},
        {"ab", {1000, 1}, "0111111111"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char order[16] = {0};
        struct bed bed;

        begin(&bed, rows[i].users);
        for (unsigned k = 0; k < bed.n; k++)
            turns_wait(&bed.turns, &bed.sessions[k]);
        for (size_t k = 0; k < strlen(rows[i].want); k++) {
            struct turn *turn = turns_next(&bed.turns, 0);
            size_t at = (size_t)(turn - bed.sessions);

            order[k] = (char)('0' + at);
            turns_charge(&bed.turns, turn->user, rows[i].costs[at], 0);
            turns_wait(&bed.turns, turn);
        }
        assert_string_equal(order, rows[i].want);
        end(&bed);
    }
}

/* Who comes now has saved nothing up, and who has been greedy is not excused by a pause. */
TEST(test_pauses)
{
    struct bed bed;

    begin(&bed, "ab");
    turns_wait(&bed.turns, &bed.sessions[0]);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(take(&bed, 10), '0');
        turns_wait(&bed.turns, &bed.sessions[0]);
    }
    /* b comes after 100 turns of a: it is next, and then they alternate. */
    turns_wait(&bed.turns, &bed.sessions[1]);
    for (unsigned i = 0; i < 10; i++) {
        char first = take(&bed, 10), second = take(&bed, 10);

        assert_true((first == '0' && second == '1') || (first == '1' && second == '0'));
        turns_wait(&bed.turns, &bed.sessions[0]);
        turns_wait(&bed.turns, &bed.sessions[1]);
    }
    /* A long turn of a's, and a pause: b has its turns first. */
    while (take(&bed, 1000) != '0')
        turns_wait(&bed.turns, &bed.sessions[1]);
    turns_wait(&bed.turns, &bed.sessions[1]);
    turns_wait(&bed.turns, &bed.sessions[0]);
    assert_int_equal(take(&bed, 1), '1');
    end(&bed);
}

/* A user who waits twice has one turn; one who is gone has none. */
TEST(test_who_waits)
{
    struct bed bed;

    begin(&bed, "aab");
    assert_int_equal(take(&bed, 1), '.');
    for (unsigned i = 0; i < 3; i++) {
        turns_wait(&bed.turns, &bed.sessions[i]);
        turns_wait(&bed.turns, &bed.sessions[i]);
    }
    turns_remove(&bed.turns, &bed.sessions[0]);
    assert_int_equal(take(&bed, 1), '1');
    turns_remove(&bed.turns, &bed.sessions[2]);
    assert_int_equal(take(&bed, 1), '.');
    end(&bed);
}

/* After a long turn its user pauses for those who are there, though nobody waits; a user who is
 * alone does not. */
TEST(test_long_turns)
{
    static const struct {
        const char *users;
        uint64_t ns, pause;
    } rows[] = {
        {"a", 10 * TURN_LONG_NS, 0},
        {"aa", 10 * TURN_LONG_NS, 0},
        {"ab", TURN_LONG_NS, 0},
        {"ab", TURN_LONG_NS + 1, 4 * (TURN_LONG_NS + 1)},
        {"abc", 10 * TURN_LONG_NS, 80 * TURN_LONG_NS},
        {"abcdef", 10 * TURN_LONG_NS, 160 * TURN_LONG_NS},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct bed bed;

        begin(&bed, rows[i].users);
        assert_int_equal(turns_due(&bed.turns), UINT64_MAX);
        turns_wait(&bed.turns, &bed.sessions[0]);
        assert_int_equal(take(&bed, rows[i].ns), '0');
        turns_wait(&bed.turns, &bed.sessions[0]);
        if (rows[i].pause > 0) {
            assert_int_equal(turns_due(&bed.turns), bed.now + rows[i].pause);
            bed.now += rows[i].pause - 1;
            assert_int_equal(take(&bed, 1), '.');
            bed.now++;
        }
        assert_true(turns_due(&bed.turns) <= bed.now);
        assert_int_equal(take(&bed, 1), '0');
        end(&bed);
    }
}

/* Who pauses holds up nobody else. */
TEST(test_pauses_are_ones_own)
{
    struct bed bed;

    begin(&bed, "ab");
    turns_wait(&bed.turns, &bed.sessions[0]);
    assert_int_equal(take(&bed, 10 * TURN_LONG_NS), '0');
    turns_wait(&bed.turns, &bed.sessions[0]);
    for (unsigned i = 0; i < 100; i++) {
        turns_wait(&bed.turns, &bed.sessions[1]);
        assert_true(turns_due(&bed.turns) <= bed.now);
        assert_int_equal(take(&bed, 1), '1');
    }
    assert_int_equal(take(&bed, 1), '.');
    end(&bed);
}

/* Who was paused while another went on does not make up for all of it afterwards. */
TEST(test_credit_is_bounded)
{
    enum { SHORT = 1000 };
    unsigned in_a_row = 0;
    struct bed bed;

    begin(&bed, "ab");
    turns_wait(&bed.turns, &bed.sessions[0]);
    turns_wait(&bed.turns, &bed.sessions[1]);
    bed.sessions[0].user->pause_ns = 5000 * (uint64_t)TURN_CREDIT_NS;
    while (bed.now < bed.sessions[0].user->pause_ns) {
        assert_int_equal(take(&bed, TURN_LONG_NS), '1');
        turns_wait(&bed.turns, &bed.sessions[1]);
    }
    while (take(&bed, SHORT) == '0') {
        turns_wait(&bed.turns, &bed.sessions[0]);
        in_a_row++;
    }
    assert_true(in_a_row <= TURN_CREDIT_NS / SHORT + 1);
    assert_true(in_a_row > 0);
    end(&bed);
}

/* Of 1,000 turns: how many session 0 had, the others being those of session 1 and of the door, at
 * which user `comes` knocks again and again. Each turn takes `ns`. */
static unsigned turns_beside_door(const char *users, uint32_t comes, uint64_t ns)
{
    struct turn door;
    unsigned had = 0;
    struct bed bed;

    begin(&bed, users);
    turns_add_door(&bed.turns, &door);
    for (unsigned i = 0; i < 1000; i++) {
        turns_wait(&bed.turns, &door);
        for (unsigned k = 0; k < bed.n; k++)
            turns_wait(&bed.turns, &bed.sessions[k]);
        struct turn *turn = turns_next(&bed.turns, 0);
        if (turn == &door)
            turns_let_in(&bed.turns, comes, ns);
        else
            turns_charge(&bed.turns, turn->user, ns, 0);
        had += turn == &bed.sessions[0];
    }
    turns_remove(&bed.turns, &door);
    end(&bed);
    return had;
}

/* Who connects without end has that time counted with all else: another user has half of the turns,
 * whether sessions of those connections are there or not. */
TEST(test_door)
{
    assert_in_range(turns_beside_door("a", 'b', 10), 499, 501);
    assert_in_range(turns_beside_door("ab", 'b', 10), 499, 501);
    assert_in_range(turns_beside_door("a", 'a', 10), 400, 600); /* one's own */
    /* b, who comes, and c, who says much: a third for each. */
    assert_in_range(turns_beside_door("abc", 'b', 10), 332, 335);
}

/* Nobody waits for ever at the door, whatever else the user who came last does. */
TEST(test_door_has_its_turn)
{
    unsigned passed = 0;
    struct turn door;
    struct bed bed;

    begin(&bed, "ab");
    turns_add_door(&bed.turns, &door);
    turns_let_in(&bed.turns, 'b', 1);
    for (unsigned i = 0; i < 300; i++) {
        turns_wait(&bed.turns, &door);
        turns_wait(&bed.turns, &bed.sessions[0]);
        turns_wait(&bed.turns, &bed.sessions[1]);
        struct turn *turn = turns_next(&bed.turns, bed.now);
        passed += turn == &door;
        if (turn == &door)
            turns_let_in(&bed.turns, 'b', 1);
        else
            turns_charge(&bed.turns, turn->user, turn == &bed.sessions[1] ? 10 : 1, bed.now);
    }
    turns_remove(&bed.turns, &door);
    assert_true(passed >= 10);
    end(&bed);
}
