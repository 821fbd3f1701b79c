/*
 * The rendezvous, row by row: a state, an event, and what the node does with them. `me` is node 5;
 * the others are 1 to 4. Times are those of rendezvous.h, PyTorch's.
 */
#include "tests/unit/rdzv_states.h"

#include <errno.h>
#include <stdio.h>

/* ---- a node and its store ------------------------------------------------------------------- */

struct play {
    struct rdzv rdzv;
    struct rdzv_state next, seen, store;
    bool any, has_seen; /* the store has one; the node has seen one */
    struct rdzv_out out;
    enum rdzv_news news; /* since the store was last changed */
    uint64_t now, beats;
    uint64_t mute; /* node whose beat stands still; UINT64_MAX: all others' */
    uint64_t mute_beats;
};

static void begin(struct play *play)
{
    struct rdzv_settings set = settings();
    struct rdzv_node self = {.id = ME, .local = 1, .name = "node5"};

    *play = (struct play){.now = 1000 * SECOND};
    rdzv_init(&play->rdzv, &set, &self, false);
}

static void end(struct play *play)
{
    rdzv_deinit(&play->rdzv);
    rdzv_state_deinit(&play->next);
    rdzv_state_deinit(&play->seen);
    rdzv_state_deinit(&play->store);
}

static void step(struct play *play, struct rdzv_event event)
{
    event.now = play->now;
    rdzv_step(&play->rdzv, &event, &play->next, &play->out);
    if (play->out.news != RDZV_NO_NEWS)
        play->news = play->out.news;
}

static void owner(struct play *play, enum rdzv_event_type type)
{
    step(play, (struct rdzv_event){.type = type, .reason = "the end"});
}

/* Time passes as it does: with a tick each second, until the store is to be asked. */
static void pass(struct play *play, uint64_t seconds)
{
    for (uint64_t i = 0; i < seconds; i++) {
        play->now += SECOND;
        if (play->rdzv.want != RDZV_WANT_NOTHING)
            owner(play, RDZV_TICK);
    }
}

static void until_asked(struct play *play)
{
    for (unsigned i = 0; i < 400 && play->rdzv.doing == RDZV_NOTHING; i++) {
        play->now += SECOND / 10;
        owner(play, RDZV_TICK);
    }
    assert_true(play->rdzv.doing != RDZV_NOTHING);
}

static struct rdzv_head head_of(const struct rdzv_state *state)
{
    return (struct rdzv_head){.nonce = state->nonce,
                              .round = state->round,
                              .stamp = state->stamp,
                              .complete = state->complete,
                              .closed = state->closed[0],
                              .n = state->n,
                              .rules = state->rules};
}

/* Of each node of the state one; of a member that is ready it says so, for the round it is in. */
static uint32_t cards_of(struct play *play, struct rdzv_card *cards)
{
    const struct rdzv_rules same = rules();
    uint32_t n = 0;

    for (uint32_t i = 0; play->any && i < play->store.n; i++) {
        const struct rdzv_node *node = &play->store.nodes[i];

        if (node->id == ME)
            continue;
        cards[n] = (struct rdzv_card){.id = node->id,
                                      .life = node->life,
                                      .in = true,
                                      .ready = node->ready,
                                      .rules = rdzv_rules_hash(&same),
                                      .local = node->local,
                                      .formats = RDZV_FORMATS};
        cards[n].beat =
            play->mute == node->id || play->mute == UINT64_MAX ? play->mute_beats : ++play->beats;
        memcpy(cards[n++].name, node->name, sizeof node->name);
    }
    if (play->rdzv.has_card)
        cards[n++] = play->rdzv.card;
    return n;
}

/* What was asked is answered: news of it, and what the node writes. */
static void answer(struct play *play)
{
    struct rdzv_event event = {.type = RDZV_HEAD};
    const enum rdzv_do asked = play->rdzv.doing;
    struct rdzv_card cards[16];
    struct rdzv_head head;

    if (play->any) {
        head = head_of(&play->store);
        event.head = &head;
    }
    event.cards = cards;
    event.n_cards = cards_of(play, cards);
    if (asked == RDZV_READ || asked == RDZV_WRITE) {
        event.type = RDZV_SEEN;
        event.last = play->has_seen ? &play->seen : NULL;
        event.state = play->any ? &play->store : NULL;
        step(play, event);
        if (play->any)
            rdzv_state_copy(&play->store, &play->seen);
        play->has_seen |= play->any;
        return;
    }
    if (asked == RDZV_LOOK) {
        event.type = RDZV_LOOKED;
        event.last = play->has_seen ? &play->seen : NULL;
        event.state = play->has_seen && play->any ? &play->seen : NULL;
    }
    step(play, event);
}

static void put(struct play *play, const char *text)
{
    rdzv_state_deinit(&play->store);
    play->any = text != NULL;
    if (text)
        play->store = make(text);
    struct rdzv_node *me = rdzv_state_find(&play->store, ME);
    if (me)
        me->life = play->rdzv.self.life;
    play->news = RDZV_NO_NEWS;
}

/* That is there until the node has looked at it, and at the cards, or is out; what it writes. */
static const char *sees(struct play *play, const char *text)
{
    put(play, text);
    for (bool looked = false; !looked && play->rdzv.want != RDZV_WANT_NOTHING;) {
        until_asked(play);
        assert_true(play->rdzv.doing != RDZV_WRITE);
        looked = play->rdzv.doing == RDZV_LOOK;
        answer(play);
        if (play->out.store == RDZV_WRITE)
            return show(&play->next);
        looked &= !play->rdzv.again;
    }
    return "-";
}

/* The write was done. */
static void wins(struct play *play)
{
    assert_int_equal(play->rdzv.doing, RDZV_WRITE);
    play->any = play->has_seen = true;
    rdzv_state_copy(&play->next, &play->store);
    rdzv_state_copy(&play->next, &play->seen);
    step(play, (struct rdzv_event){.type = RDZV_SEEN, .won = true, .state = &play->seen});
}

/* Another was done before it. */
static void loses(struct play *play, const char *text)
{
    assert_int_equal(play->rdzv.doing, RDZV_WRITE);
    put(play, text);
    answer(play);
}

static void join(struct play *play)
{
    begin(play);
    owner(play, RDZV_JOIN);
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* What one who joins does with what is there. */
TEST(test_join)
{
    static const struct {
        const char *there, *written;
        enum rdzv_news news;
    } rows[] = {
        {NULL, "0 open 5r", RDZV_NO_NEWS},
        {"0 open", "0 open 5r", RDZV_NO_NEWS},
        {"7 open", "7 open 5r", RDZV_NO_NEWS},
        {"0 open 1r", "0 open 1r 5r", RDZV_NO_NEWS},
        {"0 open 1r 2r", "0 complete 1 2 5", RDZV_NO_NEWS}, /* full: complete at once */
        {"0 open 1r 2", "0 open 1r 2 5r", RDZV_NO_NEWS},    /* but not before all are ready */
        {"0 open 1r 2r 3", "0 open 1r 2r 3 5w", RDZV_NO_NEWS},
        {"4 complete 1 2", "4 complete 1 2 5w", RDZV_NO_NEWS},
        {"4 complete 1 2 3", "4 complete 1 2 3 5w", RDZV_NO_NEWS},
        {"4 complete 1 2 5w", "-", RDZV_NO_NEWS}, /* members let it in */
        {"0 open 1r 5", "0 open 1r 5r", RDZV_NO_NEWS},
        {"0 open 1r 5r", "-", RDZV_NO_NEWS},
        {"4 complete 1 2 5", "-", RDZV_ROUND},
        {"4 complete 1 5 2w", "5 open 1 2r 5", RDZV_ROUND}, /* in, and at once let others in */
        {"0 closed", "-", RDZV_CLOSED},
        {"4 closed 1 5", "-", RDZV_CLOSED},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct play play;

        join(&play);
        const char *written = sees(&play, rows[i].there);
        if (strcmp(written, rows[i].written) != 0 || play.news != rows[i].news)
            fail_msg("row %zu: %s becomes %s with news %d", i, rows[i].there, written,
                     (int)play.news);
        end(&play);
    }
}

/* With round 4 behind it (members 1, 2 and itself), what it does with what comes. */
TEST(test_in_a_round)
{
    static const struct {
        const char *there, *written;
        enum rdzv_news news;
    } rows[] = {
        {"4 complete 1 2 5", "-", RDZV_NO_NEWS},
        {"5 open 1 2 5", "-", RDZV_OPENED},
        {"5 open 1r 5", "-", RDZV_OPENED},
        {"6 open 1r 2r 5", "-", RDZV_OPENED},
        {"5 open 1r 2", "5 open 1r 2 5", RDZV_EVICTED},
        {"5 open 1 2 5n", "-", RDZV_EVICTED},             /* and let in again */
        {"5 open 1 2n 5n", "-", RDZV_EVICTED},            /* as another was */
        {"5 open 1 2n 5", "-", RDZV_OPENED},              /* it stayed */
        {"1 open 1n 2n 5n", "5 open 1 2 5", RDZV_OPENED}, /* the store has lost the rounds */
        {"5 complete 1 2", "5 complete 1 2 5w", RDZV_EVICTED},
        {"3 open 1r", "5 open 1 5", RDZV_EVICTED},         /* the store was set back */
        {"3 complete 1 2 5", "5 open 1 2 5", RDZV_OPENED}, /* likewise */
        {"5 complete 1 2 5", "6 open 1 2 5", RDZV_OPENED}, /* it never said it was ready for that */
        {"4 closed 1 2 5", "-", RDZV_CLOSED},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct play play;

        join(&play);
        sees(&play, "4 complete 1 2 5");
        assert_int_equal(play.news, RDZV_ROUND);
        const char *written = sees(&play, rows[i].there);
        if (strcmp(written, rows[i].written) != 0 || play.news != rows[i].news)
            fail_msg("row %zu: %s becomes %s with news %d", i, rows[i].there, written,
                     (int)play.news);
        assert_int_equal(play.rdzv.in_round, rows[i].news == RDZV_NO_NEWS);
        end(&play);
    }
}

TEST(test_leave_and_close)
{
    static const struct {
        const char *there, *written;
        enum rdzv_event_type request;
        enum rdzv_news news;
    } rows[] = {
        {"4 complete 1 2 5", "5 open 1 2", RDZV_LEAVE, RDZV_NO_NEWS},
        {"4 complete 5", "5 open", RDZV_LEAVE, RDZV_NO_NEWS},
        {"4 complete 1 2 3 5w", "4 complete 1 2 3", RDZV_LEAVE, RDZV_NO_NEWS},
        {"4 complete 1 2 5 3w", "5 open 1 2 3r", RDZV_LEAVE, RDZV_NO_NEWS},
        {"4 open 1r 2r 5r", "4 open 1r 2r", RDZV_LEAVE, RDZV_NO_NEWS},
        {"4 open 1r", "-", RDZV_LEAVE, RDZV_LEFT},
        {NULL, "-", RDZV_LEAVE, RDZV_LEFT},
        {"4 closed 1 5", "-", RDZV_LEAVE, RDZV_LEFT},
        {"4 complete 1 2 5", "4 closed 1 2 5", RDZV_CLOSE, RDZV_NO_NEWS},
        {"4 open", "4 closed", RDZV_CLOSE, RDZV_NO_NEWS},
        {NULL, "0 closed", RDZV_CLOSE, RDZV_NO_NEWS},
        {"4 closed 1", "-", RDZV_CLOSE, RDZV_CLOSED},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct play play;

        join(&play);
        sees(&play, "0 open");
        owner(&play, rows[i].request);
        loses(&play, "0 open 5r"); /* the answer that was under way */
        if (play.rdzv.doing == RDZV_WRITE)
            loses(&play, "0 open 5r");
        play.rdzv.lost = 0;
        const char *written = sees(&play, rows[i].there);
        if (strcmp(written, rows[i].written) != 0 || play.news != rows[i].news)
            fail_msg("row %zu: %s becomes %s with news %d", i, rows[i].there, written,
                     (int)play.news);
        end(&play);
    }
}

/* ---- time ----------------------------------------------------------------------------------- */

/* The round is complete when last call is over by this node's watch, not before. */
TEST(test_last_call)
{
    struct play play;

    join(&play);
    assert_string_equal(sees(&play, "0 open 1r"), "0 open 1r 5r");
    wins(&play);
    sees(&play, "0 open 1r 5r");
    uint64_t from = play.now;
    while (play.now < from + 28 * SECOND)
        assert_string_equal(sees(&play, "0 open 1r 5r"), "-");
    while (play.now < from + 32 * SECOND)
        pass(&play, 1);
    assert_string_equal(sees(&play, "0 open 1r 5r"), "0 complete 1 5");
    wins(&play);
    assert_int_equal(play.out.news, RDZV_ROUND);
    end(&play);
}

/* Node 1 counts on, node 2 stands still: 15 s after that was first seen, it is out. */
TEST(test_death)
{
    struct play play;

    join(&play);
    play.mute = 2;
    sees(&play, "4 complete 1 2 5");
    uint64_t first = play.now;
    const char *written = "-";
    while (strcmp(written, "-") == 0) {
        assert_true(play.now - first < 20 * SECOND);
        written = sees(&play, "4 complete 1 2 5");
    }
    assert_true(play.now - first > 15 * SECOND);
    assert_string_equal(written, "5 open 1 5");
    assert_string_equal(play.next.why, "node2 sent no heartbeat for 15 s");
    end(&play);
}

/* A silence is as many intervals as beats may be missed; of one, half an interval more. */
TEST(test_silence)
{
    static const struct {
        uint32_t missed;
        uint64_t ms;
    } rows[] = {{1, 7500}, {2, 10000}, {3, 15000}, {1000, 5000000}};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct rdzv_settings set = RDZV_DEFAULTS;

        set.missed = rows[i].missed;
        assert_int_equal(rdzv_silence(&set), rows[i].ms * (SECOND / 1000));
    }
}

/* An answer is of when it was asked for: that it came late says nothing of anybody's beat. */
TEST(test_late_answer)
{
    struct play play;

    join(&play);
    play.mute = UINT64_MAX;
    sees(&play, "4 complete 1 2 5");
    uint64_t first = play.now;
    while (play.now < first + 13 * SECOND)
        assert_string_equal(sees(&play, "4 complete 1 2 5"), "-");
    while (play.rdzv.doing != RDZV_LOOK) {
        if (play.rdzv.doing != RDZV_NOTHING)
            answer(&play);
        until_asked(&play);
    }
    assert_true(play.now < first + 15 * SECOND);
    pass(&play, 4);
    answer(&play);
    assert_int_not_equal(play.out.store, RDZV_WRITE);
    assert_string_not_equal(sees(&play, "4 complete 1 2 5"), "-");
    end(&play);
}

/* A node that did not run, had its clock set, or heard nothing from the store has no say. */
TEST(test_no_say)
{
    for (int how = 0; how < 3; how++) {
        struct play play;
        struct dl_error error = {.code = ETIMEDOUT, .message = "nobody answers"};

        join(&play);
        play.mute = UINT64_MAX;
        sees(&play, "4 complete 1 2 5");
        if (how == 0) { /* slept */
            play.now += 3600 * SECOND;
        } else if (how == 1) { /* set back */
            play.now -= 900 * SECOND;
        } else { /* the store was away */
            for (unsigned i = 0; i < 100; i++) {
                until_asked(&play);
                step(&play, (struct rdzv_event){.type = RDZV_FAILING, .error = &error});
            }
            pass(&play, 30);
        }
        for (unsigned i = 0; i < 10; i++)
            assert_string_equal(sees(&play, "4 complete 1 2 5"), "-");
        end(&play);
    }
}

/* On a machine so busy that this node naps between any two looks, a dead node is found dead all the
 * same, a few naps later; after each nap a live one has time for a beat. */
TEST(test_naps)
{
    const char *written = "-";
    struct play play;
    unsigned naps = 0;

    join(&play);
    play.mute = 2;
    sees(&play, "4 complete 1 2 5");
    for (; strcmp(written, "-") == 0 && naps < 20; naps++) {
        play.now += 60 * SECOND;
        owner(&play, RDZV_TICK);
        written = sees(&play, "4 complete 1 2 5");
        if (naps == 2) {
            play.mute = UINT64_MAX; /* node 1, too, has slept, and has not beaten since */
            assert_string_equal(sees(&play, "4 complete 1 2 5"), "-");
            play.mute = 2;
        }
    }
    if (strcmp(written, "5 open 1 5") != 0)
        fail_msg("after %u naps it writes %s", naps, written);
    assert_true(naps >= 6);
    end(&play);
}

/* Its own beat: a card once in five seconds, counted up. */
TEST(test_beat)
{
    struct play play;

    join(&play);
    sees(&play, "4 complete 1 2 5");
    uint64_t from = 0, beat = 0;
    for (unsigned posts = 0; posts < 4;) {
        until_asked(&play);
        if (play.rdzv.doing == RDZV_POST) {
            if (posts++ > 1) {
                assert_int_equal(play.out.card.beat, beat + 1);
                assert_true(play.now - from >= 5 * SECOND && play.now - from <= 6 * SECOND);
            }
            assert_true(play.out.card.in && play.out.card.id == ME);
            from = play.now;
            beat = play.out.card.beat;
        }
        answer(&play);
    }
    end(&play);
}

/* Two writes that were lost, one after another: the second is not tried again at once. */
TEST(test_lost_writes)
{
    struct play play;

    join(&play);
    assert_string_equal(sees(&play, "0 open 1r"), "0 open 1r 5r");
    loses(&play, "0 open 1r 2");
    assert_int_equal(play.out.store, RDZV_LOOK); /* the cards are as new as the state, at once */
    answer(&play);
    assert_int_equal(play.out.store, RDZV_WRITE);
    assert_string_equal(show(&play.next), "0 open 1r 2 5r");
    loses(&play, "0 open 1r 2");
    assert_true(play.rdzv.look_at >= play.rdzv.clock);
    assert_string_equal(sees(&play, "0 open 1r 2"), "0 open 1r 2 5r");
    end(&play);
}

/* ---- cards ---------------------------------------------------------------------------------- */

static void sees_card(struct play *play, const char *there, struct rdzv_card card,
                      const char *written)
{
    const struct rdzv_rules same = rules();
    struct rdzv_card cards[16];
    struct rdzv_head head;

    put(play, there);
    card.rules = card.rules ? card.rules : rdzv_rules_hash(&same);
    card.local = 1;
    if (card.formats.greatest == 0)
        card.formats = RDZV_FORMATS;
    (void)snprintf(card.name, sizeof card.name, "node%d", (int)card.id);
    for (bool looked = false; !looked;) {
        until_asked(play);
        head = head_of(&play->store);
        if (play->rdzv.doing != RDZV_LOOK || play->rdzv.read_nonce != head.nonce) {
            answer(play);
            continue;
        }
        uint32_t n = 0, had = cards_of(play, cards + 1);
        for (uint32_t i = 1; i <= had; i++)
            if (cards[i].id != card.id)
                cards[n++] = cards[i];
        uint32_t at = n;
        for (; at > 0 && cards[at - 1].id > card.id; at--)
            cards[at] = cards[at - 1];
        cards[at] = card;
        looked = true;
        step(play, (struct rdzv_event){.type = RDZV_LOOKED,
                                       .head = &head,
                                       .state = &play->seen,
                                       .last = &play->seen,
                                       .cards = cards,
                                       .n_cards = n + 1});
    }
    assert_string_equal(play->out.store == RDZV_WRITE ? show(&play->next) : "-", written);
}

/* What a node does for others, by what their cards say. */
TEST(test_cards)
{
    static const struct {
        const char *there;
        struct rdzv_card card;
        const char *written;
    } rows[] = {
        {"3 open 1r 5r", {.id = 2, .in = true}, "3 open 1r 2 5r"},
        {"3 open 1r 5r", {.id = 2, .in = true, .ready = true}, "3 complete 1 2 5"},
        {"3 complete 1 5", {.id = 2, .in = true, .ready = true}, "3 complete 1 2w 5"},
        {"3 open 1r 5r", {.id = 2, .in = false}, "-"},
        /* Other rules, or a beat that may be that of one who is gone. */
        {"3 open 1r 5r", {.id = 2, .in = true, .rules = 7}, "-"},
        {"3 open 1r 5r", {.id = 2, .in = true, .beat = 100}, "-"},
        /* No format in common. */
        {"3 open 1r 5r", {.id = 2, .in = true, .formats = {7, 8}}, "-"},
        {"3 open 1r 5r", {.id = 2, .in = true, .formats = {2, 8}}, "3 open 1r 2 5r"},
        /* It leaves. */
        {"3 open 1r 2 5r", {.id = 2}, "3 open 1r 5r"},
        {"3 complete 1 2 5", {.id = 2}, "4 open 1 5"},
        {"3 complete 1 2 5", {.id = 2, .life = 1}, "4 open 1 5"}, /* and in another life, too */
        /* Ready for this round: not for another, nor by what it said before this one. */
        {"3 open 1r 2 5r",
         {.id = 2, .in = true, .ready = true, .ready_for = 4},
         "3 complete 1 2 5"},
        {"3 open 1r 2 5r", {.id = 2, .in = true, .ready = true, .ready_for = 3}, "-"},
        {"3 open 1r 2 5r", {.id = 2, .in = true, .ready = true}, "-"},
        /* It came anew. */
        {"3 complete 1 2 5", {.id = 2, .in = true, .life = 1}, "4 open 1 2 5"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct play play;

        join(&play);
        sees_card(&play, rows[i].there, rows[i].card, rows[i].written);
        end(&play);
    }
}

/* The further back a node is, the more rarely it looks; in front it does so in each poll. */
TEST(test_who_looks)
{
    static const struct {
        uint64_t id;
        unsigned least, most; /* looks in a minute */
    } rows[] = {{1, 40, 90}, {3, 40, 90}, {10, 1, 8}, {60, 0, 2}};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct rdzv_settings set = settings();
        struct rdzv_state there = {.round = 3, .complete = true, .stamp = 77, .nonce = 1};
        struct rdzv_card cards[64] = {{0}};
        struct rdzv_head head;
        struct rdzv rdzv;
        struct rdzv_out out;
        unsigned looks = 0;

        set.max = 64;
        there.rules = rdzv_rules_of(&set);
        for (uint32_t k = 0; k < 64; k++) {
            struct rdzv_node node = {.id = k + 1, .local = 1, .member = true, .ready = true};

            (void)snprintf(node.name, sizeof node.name, "node%u", k);
            assert_int_equal(rdzv_state_add(&there, &node), 0);
            there.nodes[k].rank = k;
            cards[k] = (struct rdzv_card){.id = k + 1, .in = true, .local = 1};
            cards[k].rules = rdzv_rules_hash(&there.rules);
            cards[k].formats = RDZV_FORMATS;
        }
        head = head_of(&there);
        rdzv_init(&rdzv, &set, &(struct rdzv_node){.id = rows[i].id, .local = 1}, false);
        struct rdzv_event event = {.type = RDZV_JOIN};
        for (uint64_t tenth = 0; tenth < 700; tenth++) {
            event.now = SECOND + tenth * SECOND / 10;
            rdzv_step(&rdzv, &event, &there, &out);
            for (uint32_t k = 0; k < 64; k++)
                cards[k].beat = tenth;
            looks += out.store == RDZV_LOOK && tenth >= 100;
            event = (struct rdzv_event){.type = RDZV_TICK,
                                        .state = &there,
                                        .last = &there,
                                        .head = &head,
                                        .cards = cards,
                                        .n_cards = 64};
            if (out.store != RDZV_NOTHING)
                event.type = out.store == RDZV_READ   ? RDZV_SEEN
                             : out.store == RDZV_LOOK ? RDZV_LOOKED
                                                      : RDZV_HEAD;
        }
        if (looks < rows[i].least || looks > rows[i].most)
            fail_msg("node %d looks %u times in a minute", (int)rows[i].id, looks);
        rdzv_deinit(&rdzv);
        rdzv_state_deinit(&there);
    }
}

/* ---- errors --------------------------------------------------------------------------------- */

TEST(test_errors)
{
    struct dl_error bad = {.code = EBADMSG, .path = "rendezvous", .message = "no state"};
    struct dl_error away = {.code = ETIMEDOUT, .message = "10.0.0.1:2379 did not answer for 2 s"};
    struct play play;

    /* Other settings than those that are there. */
    for (int what = 0; what < 2; what++) {
        join(&play);
        put(&play, "0 open 1r");
        if (what == 0)
            play.store.rules.max = 9;
        else
            play.store.rules.missed = 9;
        while (play.news == RDZV_NO_NEWS) {
            until_asked(&play);
            assert_int_not_equal(play.rdzv.doing, RDZV_POST); /* it leaves nothing there */
            answer(&play);
        }
        assert_int_equal(play.news, RDZV_FAILED);
        assert_string_equal(play.out.error.path,
                            what == 0 ? "rendezvous.nodes" : "rendezvous.heartbeat");
        assert_non_null(strstr(play.out.error.message,
                               what == 0 ? "2 to 3, but the other nodes have 2 to 9"
                                         : "5 s and missed 3, but the other nodes have 5 s and 9"));
        end(&play);
    }
    /* No state at all. */
    join(&play);
    until_asked(&play);
    step(&play, (struct rdzv_event){.type = RDZV_FAILING, .error = &bad});
    assert_int_equal(play.news, RDZV_FAILED);
    assert_string_equal(play.out.error.message, "no state");
    end(&play);
    /* No store. */
    join(&play);
    while (play.news == RDZV_NO_NEWS) {
        if (play.rdzv.doing != RDZV_NOTHING)
            step(&play, (struct rdzv_event){.type = RDZV_FAILING, .error = &away});
        pass(&play, 1);
        assert_true(play.now < 1700 * SECOND);
    }
    assert_true(play.now >= 1600 * SECOND);
    assert_int_equal(play.news, RDZV_FAILED);
    assert_string_equal(play.out.error.path, "rendezvous.timeouts.join");
    assert_non_null(strstr(play.out.error.message, "10.0.0.1:2379 did not answer for 2 s"));
    end(&play);
}

TEST(test_settings)
{
    static const struct {
        struct rdzv_settings set;
        int want;
    } rows[] = {
        {{1, 1, 3, 600 * SECOND, 30 * SECOND, 30 * SECOND, 5 * SECOND, SECOND}, 0},
        {{0, 1, 3, 600 * SECOND, 30 * SECOND, 30 * SECOND, 5 * SECOND, SECOND}, -EINVAL},
        {{3, 2, 3, 600 * SECOND, 30 * SECOND, 30 * SECOND, 5 * SECOND, SECOND}, -EINVAL},
        {{1, 4097, 3, 600 * SECOND, 30 * SECOND, 30 * SECOND, 5 * SECOND, SECOND}, -EINVAL},
        {{1, 1, 0, 600 * SECOND, 30 * SECOND, 30 * SECOND, 5 * SECOND, SECOND}, -EINVAL},
        {{1, 1, 1, 600 * SECOND, 30 * SECOND, 30 * SECOND, 5 * SECOND, SECOND}, -EINVAL},
        {{1, 1, 1, 600 * SECOND, 30 * SECOND, 30 * SECOND, 8 * SECOND, SECOND}, 0},
        {{1, 1, 3, 0, 30 * SECOND, 30 * SECOND, 5 * SECOND, SECOND}, -EINVAL},
        {{1, 1, 3, 600 * SECOND, 30 * SECOND, 30 * SECOND, 5 * SECOND, 6 * SECOND}, -EINVAL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_error err = {0};

        assert_int_equal(rdzv_settings_check(&rows[i].set, &err), rows[i].want);
        assert_int_equal(err.code, -rows[i].want);
    }
    assert_int_equal(rdzv_settings_check(&RDZV_DEFAULTS, NULL), 0);
}
