/*
 * Which steps a daemon may deliver: the next one of a loader in order, any later one of an iterable
 * dataset, any that has not come yet of a loader that is not in order.
 */
#include "tests/lib/row.h"
#include "tests/unit/fake_daemon.h"

enum { ITERABLE = 1, ANY_ORDER = 2, FED = 4 };

/* A running epoch from step `first` over a loader of this kind. */
static void run_kind(struct fake *f, int kind, uint64_t first, uint64_t steps)
{
    struct dl_epoch_options options = {.credits = 8, .step = first};
    struct dl_message msg;

    fake_connect(f);
    msg = fake_opened(f);
    msg.opened.iterable = kind & ITERABLE;
    msg.opened.in_order = !(kind & ANY_ORDER);
    msg.opened.length = kind & ITERABLE ? DL_UNKNOWN : 1000;
    if (kind & FED)
        msg.opened.order = STATE_CLIENT;
    fake_send(f, &msg);
    assert_int_equal(dl_loader_open(f->client, "x", 1, "/", &f->loader), 0);
    fake_expect(f, DL_MSG_OPEN);
    msg = fake_started(f, steps);
    msg.started.first = first;
    fake_send(f, &msg);
    assert_int_equal(dl_epoch_start(f->loader, &options, &f->epoch), 0);
    fake_expect(f, DL_MSG_START);
    fake_segment(f);
}

enum { LIST_END = -1 };

/* What the daemon says of each step: batches, F + step a fault; then FINISHED if `finish`. */
enum { F = 1000 };

static const struct {
    const char *name;
    int kind;
    uint64_t first, steps;
    int said[8];
    bool finish;
    const char *violation; /* NULL: all is well */
} rows[] = {
    {"in order", 0, 0, 3, {0, 1, 2, LIST_END}, true, NULL},
    {"from the middle", 0, 5, 7, {5, F + 6, LIST_END}, true, NULL},
    {"from the end", 0, 7, 7, {LIST_END}, true, NULL},
    {"from beyond the end", 0, 9, 7, {LIST_END}, true, NULL},
    {"one twice", 0, 0, 3, {0, 0, LIST_END}, false, "step 0 of stream 3 instead of step 1 of 3"},
    ROW("one left out", 0, 0, 3, {0, 2, LIST_END}, false,
        "step 2 of stream 3 instead of step 1 of 3"),
    {"one before the first", 0, 5, 7, {4, LIST_END}, false, "instead of step 5 of 7"},
    {"one too many", 0, 0, 1, {0, 1, LIST_END}, false, "instead of step 1 of 1"},
    {"too few", 0, 0, 3, {0, LIST_END}, true, "ends after 1 of the 3 steps from 0"},
    {"fed by nobody", FED, 0, DL_UNKNOWN, {0, LIST_END}, false, "instead of step 0 of 0"},
    {"fed, and never ended", FED, 0, DL_UNKNOWN, {LIST_END}, true, "ends before its order does"},

    {"planned meanwhile", 0, 0, DL_UNKNOWN, {0, 1, 2, LIST_END}, true, NULL},
    ROW("planned meanwhile, one twice", 0, 0, DL_UNKNOWN, {0, 0, LIST_END}, false,
        "instead of step 1"),
    ROW("planned meanwhile, one left out", 0, 0, DL_UNKNOWN, {0, 2, LIST_END}, false,
        "instead of step 1"),

    {"iterable", ITERABLE, 0, DL_UNKNOWN, {0, 1, 2, LIST_END}, true, NULL},
    {"iterable, some left out", ITERABLE, 0, DL_UNKNOWN, {1, 4, F + 9, 17, LIST_END}, true, NULL},
    {"iterable, none at all", ITERABLE, 0, DL_UNKNOWN, {LIST_END}, true, NULL},
    {"iterable, fewer than said", ITERABLE, 0, 10, {0, 3, LIST_END}, true, NULL},
    {"iterable, more than said", ITERABLE, 0, 3, {3, LIST_END}, true, NULL},
    ROW("iterable, one twice", ITERABLE, 0, DL_UNKNOWN, {4, 4, LIST_END}, false,
        "step 4 of stream 3 instead of step 5 or a later one"),
    ROW("iterable, a fault twice", ITERABLE, 0, DL_UNKNOWN, {F + 4, F + 4, LIST_END}, false,
        "FAULT: step 4 of stream 3 instead of step 5 or a later one"),
    {"iterable, back", ITERABLE, 0, DL_UNKNOWN, {4, 3, LIST_END}, false, "5 or a later one"},
    {"iterable, before the first", ITERABLE, 9, DL_UNKNOWN, {8, LIST_END}, false, "9 or a later"},

    {"any order", ANY_ORDER, 0, 4, {3, F + 0, 2, 1, LIST_END}, true, NULL},
    {"any order, from the middle", ANY_ORDER, 2, 4, {3, 2, LIST_END}, true, NULL},
    {"any order, held", ANY_ORDER, 0, 4, {3, 1, 3, LIST_END}, false, "step 3 of stream 3 came"},
    ROW("any order, a fault of one held", ANY_ORDER, 0, 4, {3, F + 3, LIST_END}, false,
        "FAULT: step 3 of stream 3 came"),
    {"any order, before the first", ANY_ORDER, 2, 4, {1, LIST_END}, false, "steps 2 to 3"},
    {"any order, behind the last", ANY_ORDER, 0, 4, {4, LIST_END}, false, "steps 0 to 3"},
    {"any order, too few", ANY_ORDER, 0, 4, {3, LIST_END}, true, "ends after 1 of the 4 steps"},
    {"any order, too many", ANY_ORDER, 0, 2, {F + 0, F + 1, F + 1, LIST_END}, false, "not one of"},
    {"any order, iterable", ANY_ORDER | ITERABLE, 0, DL_UNKNOWN, {7, 2, 9, LIST_END}, true, NULL},
    ROW("any order, iterable, held", ANY_ORDER | ITERABLE, 0, DL_UNKNOWN, {7, 2, 7, LIST_END},
        false, "step 7 of stream 3 came"),
};

static void say(struct fake *f, size_t row)
{
    for (const int *said = rows[row].said; *said != LIST_END; said++) {
        uint64_t step = (uint64_t)*said % F;

        if (*said >= F)
            fake_fault(f, step, EIO, false);
        else
            fake_deliver(f, step, step + 1);
    }
    if (rows[row].finish)
        fake_finish(f);
}

/* All is taken in before a batch is: what is held stays held. */
static void take_in(struct fake *f)
{
    while (dl_client_dispatch(f->client) == 0 &&
           poll(&(struct pollfd){.fd = f->client->fd, .events = POLLIN}, 1, 0) > 0)
        ;
}

static void expect_all(struct fake *f, size_t row)
{
    struct dl_batch *batch;

    for (const int *said = rows[row].said; *said != LIST_END; said++)
        if (*said >= F)
            assert_int_equal(dl_epoch_next(f->epoch, 0, &batch), -EIO);
        else
            fake_next(f, (uint64_t)*said);
    assert_int_equal(dl_epoch_next(f->epoch, 0, &batch), DL_END);
}

TEST(test_order)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct fake f;

        run_kind(&f, rows[i].kind, rows[i].first, rows[i].steps);
        say(&f, i);
        take_in(&f);
        if (!rows[i].violation) {
            if (connection_check(&f.client->conn) < 0)
                fail_msg("%s: '%s'", rows[i].name, f.client->conn.fatal.message);
            expect_all(&f, i);
        } else {
            if (dl_client_dispatch(f.client) != -EPROTO ||
                !strstr(dl_client_error(f.client), rows[i].violation))
                fail_msg("%s: '%s'", rows[i].name, dl_client_error(f.client));
        }
        fake_end(&f);
    }
}

TEST(test_unknown_counts)
{
    struct dl_message msg;
    struct fake f;

    fake_connect(&f);
    msg = fake_opened(&f);
    msg.opened.iterable = 1;
    msg.opened.length = UINT64_MAX;
    fake_send(&f, &msg);
    assert_int_equal(dl_loader_open(f.client, "x", 1, "/", &f.loader), 0);
    assert_true(dl_loader_length(f.loader) == DL_UNKNOWN);
    msg = fake_started(&f, UINT64_MAX);
    msg.started.samples = UINT64_MAX;
    fake_send(&f, &msg);
    assert_int_equal(dl_epoch_start(f.loader, NULL, &f.epoch), 0);
    assert_true(dl_epoch_steps(f.epoch) == DL_UNKNOWN);
    assert_true(dl_epoch_samples(f.epoch) == DL_UNKNOWN);
    fake_end(&f);
}

/* Not even once it was released: not while it is queued, in the user's hands, pinned or a
 * tensor's. */
TEST(test_delivered_once)
{
    enum { QUEUED, CURRENT, PINNED, EXPORTED, RELEASED };
    struct {
        uint8_t dl_tensor[48];
        void *manager_ctx;
        void (*deleter)(struct DLManagedTensor *self);
    } managed;

    for (int how = QUEUED; how <= RELEASED; how++) {
        struct DLManagedTensor *tensor = NULL;
        struct dl_batch *batch = NULL;
        struct fake f;

        run_kind(&f, ANY_ORDER | ITERABLE, 0, DL_UNKNOWN);
        fake_deliver(&f, 6, 7);
        if (how == QUEUED)
            take_in(&f);
        else
            batch = fake_next(&f, 6);
        if (how == PINNED || how == EXPORTED)
            assert_int_equal(dl_batch_pin(batch), 0);
        if (how == EXPORTED)
            assert_int_equal(dl_batch_dlpack(batch, "image", &tensor), 0);
        if (how == EXPORTED || how == RELEASED)
            dl_batch_release(batch);
        fake_deliver(&f, 6, 7);
        take_in(&f);
        assert_int_equal(connection_check(&f.client->conn), -EPROTO);
        if (tensor) {
            memcpy(&managed, tensor, sizeof managed);
            managed.deleter(tensor);
        }
        fake_end(&f);
    }
}

/* ---- warnings, and what is fatal ---- */

TEST(test_warning)
{
    const char *first, *second;
    struct fake f;

    run_kind(&f, ITERABLE, 0, DL_UNKNOWN);
    assert_null(dl_epoch_warning(f.epoch));
    fake_warn(&f, FAKE_STREAM, "more samples\nthan \x1b[1m length says");
    fake_deliver(&f, 0, 1);
    fake_next(&f, 0);
    first = dl_epoch_warning(f.epoch);
    assert_string_equal(first, "more samples?than ?[1m length says");
    /* The text stays while another one comes. */
    fake_warn(&f, FAKE_STREAM, "again");
    fake_deliver(&f, 1, 2);
    fake_next(&f, 1);
    assert_string_equal(first, "more samples?than ?[1m length says");
    second = dl_epoch_warning(f.epoch);
    assert_string_equal(second, "again");
    assert_null(dl_epoch_warning(f.epoch));
    fake_warn(&f, FAKE_STREAM, "");
    fake_finish(&f);
    assert_int_equal(dl_epoch_next(f.epoch, 0, &(struct dl_batch *){NULL}), DL_END);
    assert_string_equal(dl_epoch_warning(f.epoch), "");
    fake_end(&f);

    /* Of a stream that was stopped: nobody is there to hear it. */
    run_kind(&f, 0, 0, 10);
    f.epoch = dl_epoch_end(f.epoch);
    fake_warn(&f, FAKE_STREAM, "too late");
    assert_int_equal(dl_client_dispatch(f.client), 0);
    fake_end(&f);
}

/* A step's error leaves the client usable; the session's end does not, whatever its errno. */
TEST(test_usable)
{
    struct dl_message msg = {.number = DL_MSG_ERROR};
    struct dl_batch *batch;
    struct fake f;

    run_kind(&f, 0, 0, 10);
    assert_int_equal(dl_client_is_usable(f.client), 1);
    fake_fault(&f, 0, EPROTO, false);
    assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), -EPROTO);
    assert_int_equal(dl_client_is_usable(f.client), 1);
    assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), -EAGAIN);
    assert_int_equal(dl_client_is_usable(f.client), 1);
    msg.error.code = EIO;
    fake_send(&f, &msg);
    assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), -EIO);
    assert_int_equal(dl_client_is_usable(f.client), 0);
    fake_end(&f);
    assert_int_equal(dl_client_is_usable(NULL), 0);

    assert_true(dl_client_connect(&f.client, "/nowhere", NULL) < 0);
    assert_int_equal(dl_client_is_usable(f.client), 0);
    dl_client_close(f.client);
}

/* ---- the set of steps ---- */

TEST(test_set)
{
    enum { STEPS = 300, TURNS = 20000 };
    bool there[STEPS] = {false};
    struct step_set set = {0};
    uint64_t random = 1;
    size_t count = 0;

    assert_false(step_set_has(&set, 0));
    step_set_remove(&set, 0);
    for (int turn = 0; turn < TURNS; turn++) {
        random = random * 6364136223846793005U + 1442695040888963407U;
        uint64_t i = (random >> 33) % STEPS, step = i < STEPS / 2 ? i : UINT64_MAX - i;

        assert_int_equal(step_set_has(&set, step), there[i]);
        if (there[i])
            step_set_remove(&set, step);
        else
            assert_int_equal(step_set_add(&set, step), 0);
        there[i] = !there[i];
        count += there[i] ? 1 : SIZE_MAX;
        assert_int_equal(set.count, count);
    }
    for (uint64_t i = 0; i < STEPS; i++)
        assert_int_equal(step_set_has(&set, i < STEPS / 2 ? i : UINT64_MAX - i), there[i]);
    step_set_deinit(&set);
    assert_false(step_set_has(&set, 5));
}
