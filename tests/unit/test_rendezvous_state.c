/* What nodes agree on: names, words for who is gone, and bytes. */
#include "tests/unit/rdzv_states.h"

#include <errno.h>

TEST(test_names)
{
    static const char *const order[] = {"",       "a",      "node1",    "node2",     "node7",
                                        "node7a", "node66", "node66-1", "node66-10", "nodf"};

    for (size_t i = 0; i < ARRAY_SIZE(order); i++)
        for (size_t k = 0; k < ARRAY_SIZE(order); k++) {
            int r = rdzv_name_compare(order[i], order[k]);

            assert_int_equal((r > 0) - (r < 0), (i > k) - (i < k));
        }
    assert_int_equal(rdzv_name_compare("n007", "n7"), 0);
}

/* How a node went, by what was seen before and after. */
TEST(test_gone)
{
    static const struct {
        const char *before, *now;
        uint64_t writes, writer, who;
        const char *why, *gone;
    } rows[] = {
        /* The new round says it, no matter which node wrote last. */
        {"3 complete 1 2 5", "4 open 1 5", 1, 2, 2, "node2 has left", "has left"},
        {"3 complete 1 2 5", "4 open 1 5", 3, 5, 2, "node2 has left", "has left"},
        {"3 complete 1 2 5", "4 open 1 5", 1, 1, 2, "node2 sent no heartbeat for 6 s",
         "sent no heartbeat for 6 s"},
        /* Of another, it says nothing of this one. */
        {"3 complete 1 2 5", "4 open 5", 2, 5, 1, "node2 has left",
         "has left, or sent no heartbeat"},
        {"3 complete 1 2 5", "4 open 5", 1, 5, 1, "node2 sent no heartbeat for 6 s",
         "sent no heartbeat, says node5"},
        {"3 complete 1 2 5", "4 open 5", 1, 5, 1, "node11 sent no heartbeat for 6 s",
         "sent no heartbeat, says node5"},
        /* Nor does the reason for a round that was open before. */
        {"4 open 1 2r 5r", "4 open 1 5r", 1, 5, 2, "node2 has left",
         "sent no heartbeat, says node5"},
        {"4 open 1 2r 5r", "4 open 1 5r", 1, 2, 2, "node3 has left", "has left"},
        {"4 open 1 2r 5r", "4 open 1 5r", 2, 2, 2, "", "has left, or sent no heartbeat"},
        /* Who waited leaves the round as it is. */
        {"3 complete 1 2 3w 5", "3 complete 1 2 5", 1, 3, 3, "", "has left"},
        {"3 complete 1 2 3w 5", "3 complete 1 2 5", 1, 1, 3, "", "sent no heartbeat, says node1"},
        {"3 complete 1 2 3w 5", "3 complete 1 2 5", 7, 1, 3, "", "has left, or sent no heartbeat"},
        /* The store was lost, and begins anew. */
        {"3 complete 1 2 5", "4 open 5", 1, 9, 1, "the store has lost its state",
         "has left, or sent no heartbeat"},
    };
    char why[RDZV_TEXT_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct rdzv_state before = make(rows[i].before), now = make(rows[i].now);

        now.seq = before.seq + rows[i].writes;
        now.writer = rows[i].writer;
        (void)snprintf(now.why, sizeof now.why, "%s", rows[i].why);
        rdzv_state_gone(&before, &now, rdzv_state_find(&before, rows[i].who), why);
        assert_string_equal(why, rows[i].gone);
        rdzv_state_deinit(&before);
        rdzv_state_deinit(&now);
    }
    struct rdzv_state before = make("3 complete 1 2 5"), now = make("4 open 3 5");
    memcpy(now.nodes[0].name, "node1", 6); /* in its stead */
    now.seq = before.seq + 1;
    now.writer = 5;
    rdzv_state_gone(&before, &now, rdzv_state_find(&before, 1), why);
    assert_string_equal(why, "was started again, says node5");
    rdzv_state_gone(&before, &now, rdzv_state_find(&before, 2), why);
    assert_string_equal(why, "sent no heartbeat, says node5");
    rdzv_state_deinit(&before);
    rdzv_state_deinit(&now);
}

static void check_blob(uint32_t format)
{
    _cleanup_(rdzv_state_deinit) struct rdzv_state from = make("9 complete 1 2 5 3w"), to = {0};
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0};
    struct dl_error err = {0};

    (void)snprintf(from.why, sizeof from.why, "%s", "node4 sent no heartbeat for 15 s");
    rdzv_state_find(&from, 2)->life = RDZV_NUMBER_MAX;
    from.format = format;
    rdzv_state_pack(&from, &bytes);
    assert_int_equal(rdzv_state_unpack((struct dl_span){bytes.data, bytes.len}, &to, &err), 0);
    assert_int_equal(to.n, 4);
    assert_string_equal(show(&to), "9 complete 1 2 3w 5");
    assert_string_equal(to.why, from.why);
    for (uint32_t i = 0; i < to.n; i++) {
        const struct rdzv_node *a = &from.nodes[i], *b = &to.nodes[i];

        assert_true(a->id == b->id && a->life == b->life && a->rank == b->rank &&
                    a->local == b->local && strcmp(a->name, b->name) == 0);
    }
    /* Cut anywhere, or with a byte too much, it is none. */
    for (size_t len = 0; len < bytes.len; len++)
        assert_int_equal(rdzv_state_unpack((struct dl_span){bytes.data, len}, &to, &err), -EBADMSG);
    assert_int_equal(buffer_append(&bytes, "", 1), 0);
    assert_int_equal(rdzv_state_unpack((struct dl_span){bytes.data, bytes.len}, &to, &err),
                     -EBADMSG);
    /* Of a later version it is told as one. */
    bytes.data[1] = 1;
    assert_int_equal(rdzv_state_unpack((struct dl_span){bytes.data, bytes.len}, &to, &err),
                     -EPROTONOSUPPORT);
    assert_non_null(strstr(err.message,
                           "is of format 1, and this release knows formats 2 to 4; run "
                           "a release on all nodes that knows the same"));
    bytes.data[1] = 5;
    assert_int_equal(rdzv_state_unpack((struct dl_span){bytes.data, bytes.len}, &to, &err),
                     -EPROTONOSUPPORT);
    assert_non_null(strstr(err.message, "format 5"));
    assert_null(to.nodes);
}

TEST(test_blob)
{
    for (uint32_t format = RDZV_FORMATS.least; format <= RDZV_FORMATS.greatest; format++)
        check_blob(format);
}

/* As many come, some of which wait: names begin alike, also in the middle of a character. */
static struct rdzv_state draw_state(uint64_t seed, uint32_t n)
{
    static const char *const names[] = {"node%u", "n\xc3\xa9%u", "n\xc3\xa8%u", "gpu-%u.rack"};
    struct rdzv_state drawn = {.format = RDZV_COLUMNS, .rules = rules(), .round = 3, .seq = 1};

    drawn.rules.max = RDZV_NODES_MAX;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t number = rdzv_mix(seed + i);
        struct rdzv_node node = {.id = rdzv_mix(number),
                                 .life = number % 5 == 0 ? number >> 2 : 0,
                                 .rank = number % 3 == 0 ? RDZV_NO_RANK : i,
                                 .local = 1 + number % 2,
                                 .member = number % 3 != 0,
                                 .ready = number % 7 != 0};

        (void)snprintf(node.name, sizeof node.name, names[seed % ARRAY_SIZE(names)], i / 2);
        assert_int_equal(rdzv_state_add(&drawn, &node), 0);
    }
    return drawn;
}

/* By columns a state is what it was. Whatever a byte of it becomes, nodes are by id, each once. */
TEST(test_columns)
{
    struct dl_error err;

    for (uint64_t seed = 0; seed < 200; seed++) {
        _cleanup_(rdzv_state_deinit) struct rdzv_state from = draw_state(seed * 1000,
                                                                         (uint32_t)(seed % 40)),
                                                       to = {0};
        _cleanup_(buffer_deinit) struct dl_buffer bytes = {0};

        rdzv_state_pack(&from, &bytes);
        const struct dl_span span = {bytes.data, bytes.len};
        assert_int_equal(rdzv_state_unpack(span, &to, &err), 0);
        assert_int_equal(to.n, from.n);
        for (uint32_t i = 0; i < to.n; i++)
            assert_memory_equal(&from.nodes[i], &to.nodes[i], sizeof to.nodes[i]);
        for (uint32_t i = 0; i < bytes.len; i++) {
            uint8_t was = bytes.data[i];

            bytes.data[i] = (uint8_t)rdzv_mix(seed + i);
            (void)!rdzv_state_unpack(span, &to, &err);
            for (uint32_t k = 1; k < to.n; k++)
                assert_true(to.nodes[k - 1].id < to.nodes[k].id);
            bytes.data[i] = was;
        }
        rdzv_state_deinit(&to);
    }
}

/* Of many nodes, as each of them reads them when an epoch begins. */
TEST(test_bytes_of_many)
{
    enum { MANY = 192 };
    size_t bytes[RDZV_COLUMNS + 1];

    for (uint32_t format = RDZV_SUMS; format <= RDZV_COLUMNS; format++) {
        struct rdzv_state from = draw_state(0, 0);
        struct dl_buffer out = {0};

        for (uint32_t i = 0; i < MANY; i++) {
            struct rdzv_node node = {
                .id = rdzv_mix(i + 1), .local = 8, .member = true, .ready = true};

            (void)snprintf(node.name, sizeof node.name, "node%u", i);
            node.rank = RDZV_NO_RANK;
            assert_int_equal(rdzv_state_add(&from, &node), 0);
        }
        rdzv_state_complete(&from);
        from.format = format;
        rdzv_state_pack(&from, &out);
        bytes[format] = out.len;
        buffer_deinit(&out);
        rdzv_state_deinit(&from);
    }
    printf("# %d nodes: %zu bytes one by one, %zu by columns\n", MANY, bytes[RDZV_SUMS],
           bytes[RDZV_COLUMNS]);
    assert_true(bytes[RDZV_COLUMNS] < MANY * 12 &&
                2 * bytes[RDZV_COLUMNS] < bytes[RDZV_SUMS] + MANY);
}

/* The array at that place has fixed length: with `more` values at its end, which lies at `end`. */
static void add_values(const struct dl_buffer *from, size_t at, size_t end, uint8_t more,
                       struct dl_span values, struct dl_buffer *to)
{
    const uint8_t head[] = {0xdc, 0, (uint8_t)((from->data[at] & 0x0f) + more)};

    to->len = 0;
    assert_int_equal(buffer_append(to, from->data, at), 0);
    assert_int_equal(buffer_append(to, head, sizeof head), 0);
    assert_int_equal(buffer_append(to, from->data + at + 1, end - at - 1), 0);
    assert_int_equal(buffer_append(to, values.data, values.len), 0);
    assert_int_equal(buffer_append(to, from->data + end, from->len - end), 0);
}

/* Those of a later release: a number, a text, an array of two, and a map in an array. */
static const uint8_t later[] = {7, 0xa2, 'a', 'b', 0x92, 1, 0xc0, 0x91, 0x81, 1, 0xa1, 'x'};
enum { LATER = 4 };

/* Fields at the end that this release does not know are stepped over, wherever they may be. */
TEST(test_later_fields)
{
    _cleanup_(rdzv_state_deinit) struct rdzv_state from = make("9 complete 1 2"), to = {0};
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0}, longer = {0};
    struct rdzv_card card = {
        .id = 5, .in = true, .name = "node", .formats = {.least = 2, .greatest = 7}, .replaces = 9};
    struct rdzv_card card_again;
    struct rdzv_head head;
    struct dl_error err = {0};
    const struct dl_span values = {later, sizeof later};

    rdzv_state_pack(&from, &bytes);
    add_values(&bytes, 0, bytes.len, LATER, values, &longer);
    assert_int_equal(rdzv_state_unpack((struct dl_span){longer.data, longer.len}, &to, &err), 0);
    assert_string_equal(show(&to), "9 complete 1 2");
    /* Of the last node. */
    size_t at = bytes.len - 1;
    while (bytes.data[at] != 0x96)
        at--;
    add_values(&bytes, at, bytes.len, LATER, values, &longer);
    assert_int_equal(rdzv_state_unpack((struct dl_span){longer.data, longer.len}, &to, &err), 0);
    assert_string_equal(show(&to), "9 complete 1 2");
    /* More than is there, or cut off. */
    add_values(&bytes, 0, bytes.len, LATER + 1, values, &longer);
    for (size_t len = longer.len - sizeof later; len <= longer.len; len++)
        assert_int_equal(rdzv_state_unpack((struct dl_span){longer.data, len}, &to, &err),
                         -EBADMSG);
    static const uint8_t many[] = {0xdd, 0xff, 0xff, 0xff, 0xff};
    add_values(&bytes, 0, bytes.len, 1, (struct dl_span){many, sizeof many}, &longer);
    assert_int_equal(rdzv_state_unpack((struct dl_span){longer.data, longer.len}, &to, &err),
                     -EBADMSG);

    bytes.len = 0;
    rdzv_head_pack(&from, &bytes);
    add_values(&bytes, 0, bytes.len, LATER, values, &longer);
    assert_true(rdzv_head_unpack((struct dl_span){longer.data, longer.len}, &head));
    assert_int_equal(head.round, 9);
    bytes.len = 0;
    rdzv_card_pack(&card, &bytes);
    add_values(&bytes, 0, bytes.len, LATER, values, &longer);
    assert_true(rdzv_card_unpack((struct dl_span){longer.data, longer.len}, &card_again));
    assert_string_equal(card_again.name, "node");
    assert_true(card_again.formats.least == 2 && card_again.formats.greatest == 7);
    assert_int_equal(card_again.replaces, 9);
    assert_false(rdzv_card_unpack((struct dl_span){longer.data, longer.len - 1}, &card_again));
}

/* Why an open round was opened; not said of a complete one, nor by an earlier release, whose head
 * is a field shorter. */
TEST(test_head)
{
    static const char why[] = "node4 sent no heartbeat for 15 s";
    _cleanup_(rdzv_state_deinit) struct rdzv_state from = make("9 complete 1 2");
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0};
    struct rdzv_head head;

    (void)snprintf(from.why, sizeof from.why, "%s", why);
    rdzv_head_pack(&from, &bytes);
    assert_true(rdzv_head_unpack((struct dl_span){bytes.data, bytes.len}, &head));
    assert_string_equal(head.why, "");
    bytes.data[0]--;
    assert_true(rdzv_head_unpack((struct dl_span){bytes.data, bytes.len - 1}, &head));
    assert_int_equal(head.round, 9);
    assert_string_equal(head.why, "");
    from.complete = false;
    bytes.len = 0;
    rdzv_head_pack(&from, &bytes);
    assert_true(rdzv_head_unpack((struct dl_span){bytes.data, bytes.len}, &head));
    assert_string_equal(head.why, why);
    assert_false(rdzv_head_unpack((struct dl_span){bytes.data, bytes.len - 1}, &head));
}

/* Ids of the nodes in front, of few and of many; of an earlier release the last of them alone: then
 * all that precede it may be in front. */
TEST(test_head_front)
{
    static const struct {
        const char *nodes;
        uint64_t front[RDZV_FRONT];
    } rows[] = {{"9 open", {0, 0, 0}},
                {"9 complete 4", {4, 4, 4}},
                {"9 complete 4 7", {4, 7, 7}},
                {"9 complete 4 7 8 9", {4, 7, 8}}};
    struct rdzv_head head, old;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(rdzv_state_deinit) struct rdzv_state from = make(rows[i].nodes);
        _cleanup_(buffer_deinit) struct dl_buffer bytes = {0};

        rdzv_head_pack(&from, &bytes);
        assert_true(rdzv_head_unpack((struct dl_span){bytes.data, bytes.len}, &head));
        assert_memory_equal(head.front, rows[i].front, sizeof head.front);
        bytes.data[0] -= RDZV_FRONT - 1;
        assert_true(
            rdzv_head_unpack((struct dl_span){bytes.data, bytes.len - (RDZV_FRONT - 1)}, &old));
        assert_int_equal(old.front[0], 0);
        assert_int_equal(old.front[RDZV_FRONT - 1], rows[i].front[RDZV_FRONT - 1]);
        for (uint64_t id = 1; id < 10; id++) {
            bool first = id == head.front[0] || id == head.front[1] || id == head.front[2];

            assert_int_equal(rdzv_head_is_in_front(&head, id), first);
            assert_int_equal(rdzv_head_is_in_front(&old, id), id <= old.front[RDZV_FRONT - 1]);
        }
    }
}

/* A card of a release that says nothing of formats: it knows 2. What makes no sense is no card. */
TEST(test_card_formats)
{
    static const struct {
        uint8_t least, greatest;
        bool reads;
    } rows[] = {{1, 1, true}, {2, 9, true}, {3, 2, false}, {0, 2, false}};
    struct rdzv_card card = {.id = 5, .in = true, .name = "node"}, again;
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0};

    rdzv_card_pack(&card, &bytes);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        bytes.data[bytes.len - 3] = rows[i].least;
        bytes.data[bytes.len - 2] = rows[i].greatest;
        assert_int_equal(rdzv_card_unpack((struct dl_span){bytes.data, bytes.len}, &again),
                         rows[i].reads);
        assert_true(!rows[i].reads || again.formats.greatest == rows[i].greatest);
    }
    assert_int_equal(bytes.data[0], 0x9c);
    bytes.data[0] = 0x9b; /* before a card said whom its node replaces */
    bytes.data[bytes.len - 3] = 2;
    assert_true(rdzv_card_unpack((struct dl_span){bytes.data, bytes.len - 1}, &again));
    assert_true(again.formats.greatest == 2 && again.replaces == 0);
    bytes.data[0] = 0x99; /* as it was before that */
    assert_true(rdzv_card_unpack((struct dl_span){bytes.data, bytes.len - 3}, &again));
    assert_true(again.formats.least == 2 && again.formats.greatest == 2);
    bytes.data[0] = 0x9a; /* one field more, of a release that never was */
    assert_true(rdzv_card_unpack((struct dl_span){bytes.data, bytes.len - 2}, &again));
    assert_true(again.formats.least == 2 && again.formats.greatest == 2);
}

/* Of many nodes, one of which waits: each member is on the page of its id, and on no other. */
TEST(test_pages)
{
    static const uint32_t counts[] = {1, RDZV_LISTED_MAX, RDZV_LISTED_MAX + 1, 250,
                                      RDZV_NODES_MAX - 1};
    static const uint32_t pages[] = {0, 0, 3, 21, 100};
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0};
    struct rdzv_found found;

    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        _cleanup_(rdzv_state_deinit) struct rdzv_state all = {
            .rules = {.min = 1, .max = counts[i]}, .round = 3, .nonce = 9};

        assert_int_equal(rdzv_pages(counts[i]), pages[i]);
        for (uint32_t k = 0; k <= counts[i]; k++) {
            struct rdzv_node node = {.id = 7 + 3 * (uint64_t)k, .life = k, .local = 1 + k % 3};

            node.ready = node.member = k != 2;
            (void)snprintf(node.name, sizeof node.name, "node%u", k);
            if (k != 2 || counts[i] > 2)
                assert_int_equal(rdzv_state_add(&all, &node), 0);
        }
        rdzv_state_complete(&all);
        for (uint32_t k = 0; k < pages[i] && k < 40; k++) {
            bytes.len = 0;
            rdzv_page_pack(&all, k, &bytes);
            const struct dl_span page = {bytes.data, bytes.len};
            for (uint32_t m = 0; m < all.n; m++) {
                const struct rdzv_node *node = &all.nodes[m];
                bool there = node->member && node->id % pages[i] == k;

                assert_int_equal(rdzv_page_find(page, node->id, &found), there);
                if (!there)
                    continue;
                struct rdzv_place place = rdzv_state_place(&all, node->id);
                assert_memory_equal(&found.place, &place, sizeof place);
                assert_int_equal(found.stamp, all.stamp);
                assert_int_equal(found.life, node->life);
                assert_int_equal(found.index, m);
                assert_false(
                    rdzv_page_find((struct dl_span){page.data, page.len - 1}, node->id, &found));
                m += m > 40 ? 97 : 0; /* each costs the time of all */
            }
        }
    }
}
