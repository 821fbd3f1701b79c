/* Whose job a free thread takes: rows of what comes and ends, and what runs in which order. */
#include "tests/lib/harness.h"

#include "daemon/serve/loader/crew_turns.h"

enum { USERS = 6 };

struct play {
    struct crew_turns turns;
    struct crew_place places[USERS];
    unsigned waiting[USERS];
    char ran[64];
    size_t n_ran;
};

static void play_run(struct play *play)
{
    struct crew_place *place;

    while ((place = crew_turns_next(&play->turns))) {
        size_t user = (size_t)(place - play->places);

        assert_true(user < USERS && play->waiting[user] > 0);
        if (--play->waiting[user] == 0)
            crew_turns_wait_no_more(&play->turns, place);
        play->ran[play->n_ran++] = (char)('a' + user);
        assert_true(play->turns.running <= play->turns.threads);
        assert_true(place->running <= play->turns.limit);
    }
}

/* Small letters: a job of that user's comes; large ones: it ends. Commas are for the eye. */
static void play_event(struct play *play, char event)
{
    size_t user = (size_t)((event | 0x20) - 'a');

    if (event == ',')
        return;
    assert_true(user < USERS);
    if (event & 0x20) {
        play->waiting[user]++;
        crew_turns_wait(&play->turns, &play->places[user]);
    } else {
        crew_turns_end(&play->turns, &play->places[user]);
    }
    play_run(play);
}

TEST(test_who_runs)
{
    static const struct {
        uint64_t threads, limit;
        const char *events, *want;
    } rows[] = {
        {4, 2, "a", "a"},
        {4, 2, "aaaa", "aa"},              /* the limit of one */
        {4, 2, "aaaa,A", "aaa"},           /* and whose end makes room */
        {4, 1, "aaa,b", "ab"},             /* another limit */
        {4, 4, "aaaaa", "aaa"},            /* never all */
        {4, 4, "aaaaa,b", "aaab"},         /* the last one is for who has none */
        {4, 2, "aaabbb", "aab"},           /* two users' leave one free, */
        {4, 2, "aaabbb,c", "aabc"},        /* which a third one takes, */
        {4, 2, "aaabbb,ccd", "aabc"},      /* and then all wait; */
        {4, 2, "aaabbb,ccd,A", "aabcd"},   /* who has none comes first, */
        {4, 2, "aaabbb,ccd,AB", "aabcdb"}, /* and who has had a turn the longest ago, */
        {4, 2, "aaabbb,cd,e,AA", "aabcde"},
        {4, 2, "aaabbb,cd,e,AAB", "aabcdea"},
        {2, 2, "aaa,b", "ab"},
        {2, 2, "aaa,A,A", "aaa"},
        {1, 2, "aabb", "a"}, /* where there is but one, in turns */
        {1, 2, "aabb,A", "ab"},
        {1, 2, "aabb,ABAB", "abab"},
        {4, 2, "abcdef,A", "abcde"},
        {4, 2, "abcdef,AB", "abcdef"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct play play = {.turns = {.threads = rows[i].threads, .limit = rows[i].limit}};

        for (const char *event = rows[i].events; *event; event++)
            play_event(&play, *event);
        assert_string_equal(play.ran, rows[i].want);
    }
}

/* Somebody without a job has a thread as soon as one is free, no matter who else waits, and for how
 * long.
 */
TEST(test_who_comes_late)
{
    struct play play = {.turns = {.threads = 4, .limit = 2}};

    for (const char *event = "aaaaaaabbbbbbbcccccccc"; *event; event++)
        play_event(&play, *event);
    assert_string_equal(play.ran, "aabc");
    for (const char *event = "dAdDdDdD"; *event; event++)
        play_event(&play, *event);
    assert_string_equal(play.ran, "aabcdddd");
}

TEST(test_who_wants_nothing_any_more)
{
    struct play play = {.turns = {.threads = 1, .limit = 1}};

    for (const char *event = "abc"; *event; event++)
        play_event(&play, *event);
    play.waiting[1] = 0;
    crew_turns_wait_no_more(&play.turns, &play.places[1]);
    crew_turns_wait_no_more(&play.turns, &play.places[1]); /* said twice */
    play_event(&play, 'A');
    assert_string_equal(play.ran, "ac");
    assert_null(play.turns.waiting);
}
