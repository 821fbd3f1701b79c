/* An epoch in the cluster's world, when that becomes another: told, cut off, and followed. */
#include "tests/unit/fake_daemon.h"

#include "proto/position.h"

#include <errno.h>
#include <pthread.h>

/* ---- what the daemon says ---- */

static struct dl_message in_world(struct fake *f, uint64_t rank, uint64_t world, uint64_t first,
                                  struct dl_span before)
{
    struct dl_message msg = fake_started(f, 20);

    msg.started.rank = rank;
    msg.started.world = world;
    msg.started.first = first;
    msg.started.before = before;
    return msg;
}

static void start_with(struct fake *f, uint32_t follow, uint32_t left_out)
{
    struct dl_message msg = in_world(f, 3, 4, 0, (struct dl_span){0});

    fake_send(f, &msg);
    assert_int_equal(dl_epoch_start(f->loader,
                                    &(struct dl_epoch_options){.rank = 1,
                                                               .world = DL_WORLD_CLUSTER,
                                                               .credits = 8,
                                                               .follow = follow,
                                                               .left_out = left_out},
                                    &f->epoch),
                     0);
    msg = fake_expect(f, DL_MSG_PLACE);
    assert_int_equal(msg.place.loader, FAKE_LOADER);
    assert_int_equal(msg.place.world, 0);
    msg = fake_expect(f, DL_MSG_START);
    assert_int_equal(msg.start.rank, 1);
    assert_int_equal(msg.start.world, 0);
    fake_segment(f);
}

/* Rank 3 of 4, from the beginning. */
static void run_with(struct fake *f, uint32_t follow, uint32_t left_out)
{
    *f = (struct fake){0};
    fake_connect(f);
    fake_open(f);
    start_with(f, follow, left_out);
}

static void run_in(struct fake *f, uint32_t follow)
{
    run_with(f, follow, DL_LEFT_OUT_ERROR);
}

/* The same, and its steps are counted there: to be unmapped. */
static struct rank_position *run_counted(struct fake *f, uint32_t follow)
{
    struct dl_message msg = {.number = DL_MSG_POSITION};
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_int_equal(ftruncate(fd, POSITION_BYTES), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, FAKE_ALL_SEALS), 0);
    struct rank_position *ret =
        mmap(NULL, POSITION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(ret, MAP_FAILED);
    *f = (struct fake){0};
    fake_connect(f);
    fake_open(f);
    msg.position =
        (struct dl_msg_position){.request = fake_next_request(f), .bytes = POSITION_BYTES};
    fake_send_fd(f, &msg, fd);
    close(fd);
    start_with(f, follow, DL_LEFT_OUT_ERROR);
    return ret;
}

static void tell_changed(struct fake *f, bool at_once)
{
    struct dl_message msg = {.number = DL_MSG_FAULT};

    msg.fault = (struct dl_msg_fault){.stream = FAKE_STREAM,
                                      .step = UINT64_MAX,
                                      .code = ESTALE,
                                      .final = 1,
                                      .path = span_str("world"),
                                      .message = span_str("changed: b has left"),
                                      .at_once = at_once};
    fake_send(f, &msg);
}

static void expect_changed(struct fake *f)
{
    struct dl_batch *batch;

    assert_int_equal(dl_epoch_next(f->epoch, -1, &batch), DL_E_WORLD_CHANGED);
    assert_int_equal(dl_client_is_usable(f->client), 1);
    assert_int_equal(dl_epoch_next(f->epoch, -1, &batch), DL_END);
}

static void expect_state(struct fake *f, const char *part)
{
    uint8_t token[DL_STATE_MAX];
    size_t len = sizeof token;
    char json[4096];

    assert_int_equal(dl_epoch_state(f->epoch, token, &len), 0);
    assert_true(dl_state_json(token, len, json, sizeof json) > 0);
    if (!strstr(json, part))
        fail_msg("%s is not in %s", part, json);
}

static void tell_left_out(struct fake *f)
{
    struct dl_message msg = {.number = DL_MSG_FAULT};

    msg.fault = (struct dl_msg_fault){.stream = FAKE_STREAM,
                                      .step = UINT64_MAX,
                                      .code = ENOTRECOVERABLE,
                                      .final = 1,
                                      .path = span_str("epoch"),
                                      .message = span_str("0 ends, and up to 20 of its samples")};
    fake_send(f, &msg);
}

/* ---- told ---- */

/* In place of the end, behind all that was delivered: as an error, a warning, or not at all. */
TEST(test_left_out)
{
    for (uint32_t how = DL_LEFT_OUT_ERROR; how <= DL_LEFT_OUT_IGNORE; how++) {
        struct dl_batch *batch;
        struct fake f;

        run_with(&f, 1, how);
        fake_deliver(&f, 0, 2);
        tell_left_out(&f);
        for (uint64_t step = 0; step < 2; step++)
            fake_next(&f, step);
        if (how == DL_LEFT_OUT_ERROR) {
            assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), DL_E_LEFT_OUT);
            assert_string_equal(dl_client_error(f.client),
                                "epoch: 0 ends, and up to 20 of its samples");
        }
        assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), DL_END);
        const char *warning = dl_epoch_warning(f.epoch);
        if (how == DL_LEFT_OUT_WARN)
            assert_string_equal(warning, "0 ends, and up to 20 of its samples");
        else
            assert_null(warning);
        fake_end(&f);
    }
}

TEST(test_place)
{
    struct history history = {.n = 1, .stretches = {{4, 5}}};
    uint8_t before[HISTORY_BYTES];
    struct fake f = {0};
    struct dl_message msg;

    fake_connect(&f);
    fake_open(&f);
    msg = in_world(&f, 7, 8, 2, (struct dl_span){before, history_write(&history, before)});
    msg.started.epoch = 9;
    fake_send(&f, &msg);
    /* A rank that is new: where the others are. */
    assert_int_equal(
        dl_epoch_start(f.loader,
                       &(struct dl_epoch_options){.epoch = DL_RESUME, .world = DL_WORLD_CLUSTER},
                       &f.epoch),
        0);
    assert_int_equal(dl_epoch_number(f.epoch), 9);
    assert_int_equal(dl_epoch_first(f.epoch), 2);
    assert_int_equal(dl_epoch_rank(f.epoch), 7);
    assert_int_equal(dl_epoch_world(f.epoch), 8);
    assert_int_equal(dl_epoch_changes(f.epoch), 0);
    expect_state(&f, "\"world\": 8, \"steps\": 2");
    expect_state(&f, "[{\"world\": 4, \"steps\": 5}]");
    fake_end(&f);
}

TEST(test_behind_what_was_delivered)
{
    struct fake f;

    run_in(&f, 0);
    fake_deliver(&f, 0, 3);
    tell_changed(&f, false);
    for (uint64_t step = 0; step < 3; step++)
        fake_next(&f, step);
    expect_changed(&f);
    expect_state(&f, "\"world\": 4, \"steps\": 3");
    fake_end(&f);
}

/* What was loaded ahead is not given out, nor released before the stream has stopped. */
static void cut_off(uint64_t steps)
{
    struct dl_message msg;
    struct fake f;

    run_in(&f, 0);
    fake_deliver(&f, 0, steps);
    fake_next(&f, 0);
    tell_changed(&f, true); /* which is heard before the next one is given out */
    expect_changed(&f);
    expect_state(&f, "\"world\": 4, \"steps\": 1");
    f.epoch = dl_epoch_end(f.epoch);
    do {
        msg = fake_receive(&f);
        if (msg.number == DL_MSG_RELEASE) {
            uint64_t step;
            memcpy(&step, msg.release.steps.data, sizeof step);
            assert_int_equal(step, 0);
        }
    } while (msg.number != DL_MSG_STOP);
    fake_expect(&f, DL_MSG_RELEASE);
    fake_end(&f);
}

TEST(test_cut_off)
{
    cut_off(3);
    cut_off(8);
}

/* Once all was given out, or the epoch has ended, it means nothing; until then it counts. */
TEST(test_cut_off_at_the_end)
{
    struct dl_batch *batch;
    struct fake f;

    for (unsigned ended = 0; ended < 3; ended++) {
        run_in(&f, 0);
        fake_deliver(&f, 0, 8);
        for (uint64_t step = 0; step < 8; step++)
            fake_next(&f, step);
        fake_deliver(&f, 8, 16);
        for (uint64_t step = 8; step < 16; step++)
            fake_next(&f, step);
        fake_deliver(&f, 16, 20);
        fake_finish(&f);
        for (uint64_t step = 16; step < (ended ? 20 : 18); step++)
            fake_next(&f, step);
        if (ended)
            assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), DL_END);
        if (ended == 2)
            f.epoch = dl_epoch_end(f.epoch);
        tell_changed(&f, true);
        assert_int_equal(dl_client_dispatch(f.client), 0);
        if (ended == 1)
            assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), DL_END);
        else if (!ended)
            expect_changed(&f);
        if (f.epoch)
            expect_state(&f, ended ? "\"epoch\": 1" : "\"steps\": 18");
        fake_end(&f);
    }
}

/* What the daemon has read is what the rank has used, whenever it looks. */
TEST(test_position_is_counted)
{
    struct dl_batch *batch;
    struct fake f;
    struct rank_position *position = run_counted(&f, 0);

    fake_deliver(&f, 0, 3);
    assert_int_equal(atomic_load(&position->word), 0);
    fake_next(&f, 0);
    assert_int_equal(atomic_load(&position->word), 1);
    fake_next(&f, 1);
    assert_int_equal(position_close(position), 2);
    assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), -EAGAIN); /* it is about to hear why */
    assert_int_equal(dl_epoch_next(f.epoch, 1000, &batch), -ETIMEDOUT);
    assert_int_equal(position_close(position), 2);
    tell_changed(&f, true);
    expect_changed(&f);
    expect_state(&f, "\"world\": 4, \"steps\": 2");
    munmap(position, POSITION_BYTES);
    fake_end(&f);
}

TEST(test_positions_that_are_none)
{
    struct dl_message msg = {.number = DL_MSG_POSITION};
    struct fake f;

    for (unsigned i = 0; i < 4; i++) {
        int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        assert_int_equal(ftruncate(fd, i == 0 ? 8192 : POSITION_BYTES), 0);
        if (i != 1)
            assert_int_equal(fcntl(fd, F_ADD_SEALS, FAKE_ALL_SEALS), 0);
        f = (struct fake){0};
        fake_connect(&f);
        fake_open(&f);
        msg.position = (struct dl_msg_position){.request = fake_next_request(&f) + (i == 2),
                                                .bytes = POSITION_BYTES - (i == 3)};
        fake_send_fd(&f, &msg, fd);
        close(fd);
        assert_int_equal(dl_epoch_start(f.loader,
                                        &(struct dl_epoch_options){.world = DL_WORLD_CLUSTER},
                                        &f.epoch),
                         -EPROTO);
        fake_end(&f);
    }
}

TEST(test_refused_options)
{
    static const struct dl_epoch_options bad[] = {
        {.world = DL_WORLD_CLUSTER, .follow = 3},
        {.world = 4, .follow = 1},
        {.epoch = DL_RESUME, .world = 4},
        {.epoch = DL_RESUME, .world = DL_WORLD_CLUSTER, .step = 1},
    };
    struct fake f = {0};

    fake_connect(&f);
    fake_open(&f);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(dl_epoch_start(f.loader, &bad[i], &f.epoch), -EINVAL);
    fake_end(&f);
}

TEST(test_places_that_are_none)
{
    static const uint8_t odd[16] = {0};
    struct dl_message msg;
    struct fake f;

    for (unsigned i = 0; i < 3; i++) {
        f = (struct fake){0};
        fake_connect(&f);
        fake_open(&f);
        msg = in_world(&f, i == 0 ? 4 : 3, 4, 0, (struct dl_span){odd, i == 1 ? sizeof odd : 0});
        msg.started.epoch = i == 2;
        fake_send(&f, &msg);
        assert_int_equal(dl_epoch_start(f.loader,
                                        &(struct dl_epoch_options){.epoch = i == 2 ? 2 : 0,
                                                                   .world = DL_WORLD_CLUSTER},
                                        &f.epoch),
                         -EPROTO);
        fake_end(&f);
    }
}

/* ---- followed ---- */

/* Answers the next START, which the epoch sends by itself. */
struct answer {
    struct fake *f;
    struct dl_message with; /* number 0: the daemon goes away instead */
    struct history before;  /* that START said */
    uint64_t rank, world;
    struct dl_msg_place place; /* what came before it */
    pthread_t thread;
};

/* As fake_receive(), for a thread: what the client says is waited for, and cmocka is left alone. */
static struct dl_message await_message(struct fake *f)
{
    struct dl_error err = {0};
    struct dl_message msg;
    struct dl_span payload;

    while (frame_reader_next(&f->in, &payload) == 0)
        if (poll(&(struct pollfd){.fd = f->sock, .events = POLLIN}, 1, -1) != 1 ||
            fdpass_recv(f->sock, &f->in, MSG_DONTWAIT) <= 0)
            abort();
    if (message_decode(payload.data, payload.len, FROM_CLIENT, &msg, &err) < 0)
        abort();
    return msg;
}

static void *answer_start(void *data)
{
    struct answer *answer = data;
    struct dl_message msg;

    do {
        msg = await_message(answer->f);
        if (msg.number == DL_MSG_PLACE)
            answer->place = msg.place;
    } while (msg.number != DL_MSG_START);
    if (!history_read(msg.start.before, &answer->before))
        abort();
    answer->rank = msg.start.rank;
    answer->world = msg.start.world;
    if (answer->with.number == 0)
        shutdown(answer->f->sock, SHUT_RDWR);
    else
        fake_send(answer->f, &answer->with);
    if (answer->with.number == DL_MSG_STARTED && answer->with.started.world == 4)
        fake_deliver(answer->f, 1, 3);
    else if (answer->with.number == DL_MSG_STARTED)
        fake_deliver(answer->f, 0, 2);
    return NULL;
}

/* `by_hand`: the user is told, and waits for the world; else next() does it. */
static void follow(bool at_once, bool by_hand)
{
    struct fake f;
    struct answer answer = {.f = &f};

    run_in(&f, !by_hand);
    fake_deliver(&f, 0, 3);
    for (uint64_t step = 0; step < (at_once ? 2 : 3); step++)
        fake_next(&f, step);
    answer.with = in_world(&f, 5, 6, 0, (struct dl_span){0});
    uint8_t before[HISTORY_BYTES];
    struct history history = {.n = 1, .stretches = {{4, at_once ? 2 : 3}}};
    answer.with.started.before = (struct dl_span){before, history_write(&history, before)};
    assert_int_equal(dl_epoch_wait_world(f.epoch), 0); /* it is there */
    assert_int_equal(dl_epoch_rank(f.epoch), 3);
    tell_changed(&f, at_once);
    if (at_once)
        assert_int_equal(dl_client_dispatch(f.client), 0);
    if (by_hand)
        expect_changed(&f);
    assert_int_equal(pthread_create(&answer.thread, NULL, answer_start, &answer), 0);
    struct dl_batch *batch = NULL;
    if (by_hand)
        assert_int_equal(dl_epoch_wait_world(f.epoch), 0);
    else
        assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), 0);
    pthread_join(answer.thread, NULL);
    if (by_hand) {
        assert_int_equal(dl_epoch_rank(f.epoch), 5);
        assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), 0);
    }
    assert_int_equal(dl_batch_step(batch), 0);
    assert_int_equal(answer.rank, 1);
    assert_int_equal(answer.world, 0);
    assert_int_equal(answer.place.rank, 3);
    assert_int_equal(answer.place.world, 4);
    assert_true(history_equal(&answer.before, &history));
    assert_int_equal(dl_epoch_rank(f.epoch), 5);
    assert_int_equal(dl_epoch_world(f.epoch), 6);
    assert_int_equal(dl_epoch_changes(f.epoch), 1);
    expect_state(&f, "\"world\": 6, \"steps\": 1");
    fake_end(&f);
}

TEST(test_follows)
{
    follow(false, false);
    follow(true, false);
}

TEST(test_waits_for_the_world)
{
    struct fake f = {0};

    follow(false, true);
    follow(true, true);
    fake_connect(&f);
    fake_open(&f);
    fake_start(&f, 1, 1);
    assert_int_equal(dl_epoch_wait_world(f.epoch), -EINVAL); /* of a world that was given */
    fake_end(&f);
}

/* The daemon was started again, and by then the others are in the next epoch: this one ends, and
 * is none of the protocol's errors. */
TEST(test_others_are_further)
{
    struct fake f;
    struct answer answer = {.f = &f};
    struct dl_batch *batch = NULL;

    run_in(&f, 1);
    fake_deliver(&f, 0, 3);
    fake_next(&f, 0);
    answer.with = in_world(&f, 5, 6, 0, (struct dl_span){0});
    answer.with.started.epoch = 1;
    assert_int_equal(pthread_create(&answer.thread, NULL, answer_start, &answer), 0);
    tell_changed(&f, true);
    assert_int_equal(dl_client_dispatch(f.client), 0);
    assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), DL_END);
    pthread_join(answer.thread, NULL);
    assert_int_equal(dl_client_is_usable(f.client), 1);
    assert_int_equal(dl_epoch_number(f.epoch), 1);
    assert_string_equal(
        dl_epoch_warning(f.epoch),
        "epoch 0 ends early for this rank: the other nodes are in epoch 1, and what "
        "was left of its share is not loaded");
    assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), DL_END);
    f.epoch = dl_epoch_end(f.epoch);
    fake_end(&f);
}

/* Likewise where the epoch is asked for by a state. */
TEST(test_starts_where_the_others_are)
{
    struct dl_message msg;
    struct fake f = {0};

    fake_connect(&f);
    fake_open(&f);
    msg = in_world(&f, 1, 2, 0, (struct dl_span){0});
    msg.started.epoch = 1;
    fake_send(&f, &msg);
    assert_int_equal(
        dl_epoch_start(f.loader, &(struct dl_epoch_options){.step = 5, .world = DL_WORLD_CLUSTER},
                       &f.epoch),
        0);
    assert_int_equal(dl_epoch_number(f.epoch), 1);
    assert_int_equal(dl_epoch_first(f.epoch), 0);
    fake_end(&f);
}

/* A rank that does not want another world gets what is left of its own, and is told behind that. */
TEST(test_catches_up)
{
    struct history history = {.n = 1, .stretches = {{4, 1}}};
    uint8_t before[HISTORY_BYTES];
    size_t len = history_write(&history, before);

    for (unsigned same = 0; same < 2; same++) {
        struct fake f;
        struct answer answer = {.f = &f};
        struct dl_batch *batch = NULL;

        run_in(&f, DL_FOLLOW_SAME);
        fake_deliver(&f, 0, 3);
        fake_next(&f, 0);
        answer.with = same ? in_world(&f, 3, 4, 1, (struct dl_span){0})
                           : in_world(&f, 5, 6, 0, (struct dl_span){before, len});
        assert_int_equal(pthread_create(&answer.thread, NULL, answer_start, &answer), 0);
        tell_changed(&f, true);
        assert_int_equal(dl_client_dispatch(f.client), 0);
        assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), same ? 0 : DL_E_WORLD_CHANGED);
        pthread_join(answer.thread, NULL);
        assert_true(history_equal(&answer.before, &history));
        if (same)
            assert_int_equal(dl_batch_step(batch), 1);
        else
            assert_string_equal(dl_client_error(f.client), "world: changed: b has left");
        if (!same)
            assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), DL_END);
        assert_int_equal(dl_epoch_changes(f.epoch), 0);
        expect_state(&f, same ? "\"world\": 4, \"steps\": 2" : "[{\"world\": 4, \"steps\": 1}]");
        fake_end(&f);
    }
}

TEST(test_cannot_follow)
{
    struct fake f;
    struct answer answer = {.f = &f, .with = {.number = DL_MSG_ERROR}};

    run_in(&f, 1);
    fake_deliver(&f, 0, 3);
    fake_next(&f, 0);
    answer.with.error = (struct dl_msg_error){.request = fake_next_request(&f),
                                              .code = ETIMEDOUT,
                                              .path = span_str("rendezvous.timeouts.join"),
                                              .message = span_str("c is missing")};
    assert_int_equal(pthread_create(&answer.thread, NULL, answer_start, &answer), 0);
    tell_changed(&f, true);
    assert_int_equal(dl_client_dispatch(f.client), 0);
    struct dl_batch *batch = NULL;
    assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), DL_E_WORLD_CHANGED);
    pthread_join(answer.thread, NULL);
    assert_string_equal(dl_client_error(f.client),
                        "world: changed, and this rank cannot follow (rendezvous.timeouts.join: c "
                        "is missing); start the epoch again from its state");
    assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), DL_END);
    f.epoch = dl_epoch_end(f.epoch); /* the stream was stopped already */
    fake_expect_silence(&f);
    fake_end(&f);
}

/* The session ends meanwhile: the epoch is the loader's still, and ends with it. */
TEST(test_ends_while_it_follows)
{
    struct fake f;
    struct answer answer = {.f = &f};
    struct dl_batch *batch = NULL;

    for (unsigned ended = 0; ended < 2; ended++) {
        run_in(&f, 1);
        fake_deliver(&f, 0, 3);
        fake_next(&f, 0);
        assert_int_equal(pthread_create(&answer.thread, NULL, answer_start, &answer), 0);
        tell_changed(&f, true);
        assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), -ECONNRESET);
        pthread_join(answer.thread, NULL);
        assert_int_equal(dl_client_is_usable(f.client), 0);
        assert_ptr_equal(f.loader->epochs, f.epoch);
        assert_int_equal(dl_epoch_next(f.epoch, -1, &batch), -ECONNRESET);
        if (ended)
            f.epoch = dl_epoch_end(f.epoch);
        fake_end(&f);
    }
}
