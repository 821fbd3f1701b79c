/*
 * Batches that outlive their daemon, of an epoch that a job's rank reads: the next daemon is told
 * of what was not released, so that the job goes on at none behind it.
 */
#include "tests/unit/next_daemon.h"

static void give_job(struct fake *f)
{
    free(f->epoch->job);
    f->epoch->job = strdup("nine");
}

static void expect_former_lease(struct fake *f, uint64_t step)
{
    struct dl_message msg = fake_expect(f, DL_MSG_FORMER_LEASE);

    assert_int_equal(msg.former_lease.stream, NEXT_STREAM);
    assert_int_equal(msg.former_lease.step, step);
}

/* Pinned, kept by a tensor, in hand and not given out yet: none is passed before it is released,
 * which is told as often as releases are. */
TEST(test_leases, setup, teardown)
{
    struct dl_batch *pinned;
    struct DLManagedTensor *tensor;
    struct fake f;

    run(&f, 0, 8);
    give_job(&f);
    fake_deliver(&f, 0, 6);
    pinned = fake_next(&f, 0);
    assert_int_equal(dl_batch_pin(pinned), 0);
    assert_int_equal(dl_batch_dlpack(fake_next(&f, 1), "image", &tensor), 0);
    fake_next(&f, 2);
    turn(&f);
    lose(&f);
    come_and_open(&f, 0);
    assert_int_equal(start_again(&f, 8, 6).start.former_lease, 0);
    segment_again(&f);
    dl_batch_release(pinned);
    fake_expect_silence(&f); /* as a release, it waits for company */
    fake_next(&f, 3);
    expect_former_lease(&f, 1);
    delete_tensor(tensor);
    fake_next(&f, 4);
    expect_former_lease(&f, 4);
    fake_next(&f, 5);
    expect_former_lease(&f, 5);
    deliver(&f, NEXT_STREAM, 6);
    fake_next(&f, 6);
    expect_former_lease(&f, UINT64_MAX);
    deliver(&f, NEXT_STREAM, 7);
    fake_next(&f, 7);
    expect_release(&f, 6); /* from here on it is as ever */
    fake_expect_silence(&f);
    fake_end(&f);
}

/* What the trainer has in its hands is not acknowledged, wherever it lies. */
TEST(test_lease_on_a_copy, setup, teardown)
{
    struct fake f;

    run(&f, 0, 4);
    give_job(&f);
    fake_deliver(&f, 0, 2);
    assert_int_equal(dl_batch_detach(fake_next(&f, 0)), 0);
    turn(&f);
    lose(&f);
    come_and_open(&f, 0);
    assert_int_equal(start_again(&f, 4, 2).start.former_lease, 0);
    segment_again(&f);
    fake_next(&f, 1);
    turn(&f);
    expect_former_lease(&f, 1);
    fake_end(&f);
}

/* Given back while no daemon is there, or held through several of them, or by no job. */
TEST(test_leases_of_whom, setup, teardown)
{
    for (int job = 0; job < 2; job++) {
        struct dl_batch *pinned[2];
        struct fake f;

        run(&f, 0, 8);
        if (job)
            give_job(&f);
        fake_deliver(&f, 0, 2);
        for (uint64_t step = 0; step < 2; step++)
            assert_int_equal(dl_batch_pin(pinned[step] = fake_next(&f, step)), 0);
        turn(&f);
        lose(&f);
        come_and_open(&f, 0);
        dl_batch_release(pinned[0]); /* START is on its way */
        assert_int_equal(start_again(&f, 8, 2).start.former_lease, job ? 0 : UINT64_MAX);
        if (job)
            expect_former_lease(&f, 1);
        deliver_there(&f, 2);
        fake_next(&f, 2);
        turn(&f);
        lose(&f);
        come(&f, NEXT_LIFE + 1);
        open_again(&f, 0);
        assert_int_equal(start_again(&f, 8, 3).start.former_lease, job ? 1 : UINT64_MAX);
        assert_int_equal(dl_batch_detach(pinned[1]), 0); /* a copy is no lease */
        if (job)
            expect_former_lease(&f, 2);
        f.epoch = dl_epoch_end(f.epoch);
        if (job)
            expect_former_lease(&f, UINT64_MAX);
        fake_expect(&f, DL_MSG_STOP);
        dl_batch_release(pinned[1]);
        fake_expect_silence(&f);
        fake_end(&f);
    }
}

/* An epoch of which all had come: it is asked for once more, so that the daemon knows of it. */
TEST(test_all_had_come, setup, teardown)
{
    for (int kind = 0; kind <= FED; kind += FED) {
        struct dl_batch *batch;
        struct fake f;

        run(&f, kind, 2);
        give_job(&f);
        if (kind == FED) {
            feed(&f, 0, 2);
            assert_int_equal(dl_epoch_feed_end(f.epoch), 0);
            turn(&f);
            expect_feed(&f, FAKE_STREAM, 0, 2, false);
            fake_expect(&f, DL_MSG_FEED);
        }
        fake_deliver(&f, 0, 2);
        fake_finish(&f);
        fake_next(&f, 0);
        fake_next(&f, 1);
        turn(&f);
        lose(&f);
        assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), DL_END); /* whoever is there */
        come_and_open(&f, kind == FED ? FED : 0);
        assert_int_equal(start_again(&f, kind == FED ? DL_UNKNOWN : 2, 2).start.former_lease,
                         UINT64_MAX);
        if (kind == FED)
            assert_int_equal(fake_expect(&f, DL_MSG_FEED).feed.end, 1);
        finish(&f);
        turn(&f);
        assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), DL_END);
        f.epoch = dl_epoch_end(f.epoch);
        fake_expect(&f, DL_MSG_STOP);
        assert_int_equal(dl_client_is_usable(f.client), 1);
        fake_end(&f);
    }
}

/* That the daemon does not have it is no harm. */
TEST(test_all_had_come_and_refused, setup, teardown)
{
    struct dl_batch *batch;
    struct fake f;

    run(&f, 0, 1);
    give_job(&f);
    fake_deliver(&f, 0, 1);
    fake_finish(&f);
    fake_next(&f, 0);
    turn(&f);
    for (uint64_t life = NEXT_LIFE; life < NEXT_LIFE + 2; life++) { /* each is asked, and once */
        lose(&f);
        come(&f, life);
        open_again(&f, 0);
        refuse(&f, fake_expect(&f, DL_MSG_START).start.request, EINVAL, "epoch");
        turn(&f);
        assert_false(client_is_away(f.client));
        fake_expect_silence(&f);
        assert_int_equal(dl_epoch_next(f.epoch, 0, &batch), DL_END);
    }
    f.epoch = dl_epoch_end(f.epoch);
    fake_expect_silence(&f);
    fake_end(&f);
}

/* The user is done with it before the daemon is: FINISHED comes behind its STOP. */
TEST(test_all_had_come_and_ended, setup, teardown)
{
    struct dl_batch *pinned;
    struct fake f;

    run(&f, 0, 1);
    give_job(&f);
    fake_deliver(&f, 0, 1);
    fake_finish(&f);
    assert_int_equal(dl_batch_pin(pinned = fake_next(&f, 0)), 0);
    turn(&f);
    lose(&f);
    come_and_open(&f, 0);
    assert_int_equal(start_again(&f, 1, 1).start.former_lease, 0);
    f.epoch = dl_epoch_end(f.epoch);
    fake_expect(&f, DL_MSG_STOP); /* and not a word of step 0: it is held still */
    finish(&f);
    turn(&f);
    assert_int_equal(dl_client_is_usable(f.client), 1);
    dl_batch_release(pinned);
    fake_expect_silence(&f);
    fake_end(&f);
}
