/*
 * struct dl_epoch_options of programs that were built for another release: a shorter one that says
 * nothing of its size, the one of this release, and longer ones of releases to come.
 */
#include "tests/unit/fake_daemon.h"

#include <stddef.h>

/* What a later release might have. */
struct later_options {
    struct dl_epoch_options known;
    uint64_t unknown;
};

static const struct row {
    size_t size;
    uint64_t unknown;
    int want;
    const char *why;
} rows[] = {
    {0, 0, 0, NULL},
    {0, 7, 0, NULL}, /* it is not even there */
    {sizeof(struct dl_epoch_options), 7, 0, NULL},
    {sizeof(struct later_options), 0, 0, NULL},
    {sizeof(struct later_options), 7, -E2BIG, "options: they say more than this library knows"},
    {offsetof(struct dl_epoch_options, local_world), 0, -EINVAL, "options: they have a size that"},
    {1, 0, -EINVAL, "options: they have a size that"},
};

static void assert_says(const char *text, const struct row *row)
{
    if (row->why && !strstr(text, row->why))
        fail_msg("'%s' does not say '%s'", text, row->why);
}

static struct later_options options_of(const struct row *row)
{
    return (struct later_options){
        .known = {.size = row->size, .world = 2, .local_world = 2, .expected_steps = 40},
        .unknown = row->unknown};
}

TEST(test_start)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct later_options o = options_of(&rows[i]);
        struct fake f;

        fake_connect(&f);
        fake_open(&f);
        if (rows[i].want == 0) {
            struct dl_message msg = fake_started(&f, 10);
            fake_send(&f, &msg);
        }
        assert_int_equal(dl_epoch_start(f.loader, &o.known, &f.epoch), rows[i].want);
        assert_says(dl_client_error(f.client), &rows[i]);
        if (rows[i].want == 0) {
            const struct dl_msg_start start = fake_expect(&f, DL_MSG_START).start;
            assert_int_equal(start.world, 2);
            assert_int_equal(start.expected, rows[i].size ? 40 : 0);
        }
        fake_end(&f);
    }
}

TEST(test_state)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct later_options o = options_of(&rows[i]);
        struct fake f;
        size_t len = 0;

        fake_connect(&f);
        fake_open(&f);
        assert_int_equal(dl_loader_state(f.loader, &o.known, NULL, &len),
                         rows[i].want ? rows[i].want : -ENOSPC);
        if (rows[i].want)
            assert_says(dl_client_error(f.client), &rows[i]);
        fake_end(&f);
    }
}

/* What is filled in: nothing of what the program does not have, nor of what is not known here. */
TEST(test_filled_in)
{
    char job[DL_JOB_BYTES], why[256];

    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "4", 1);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        for (int mesh = 0; mesh < 2; mesh++) {
            struct later_options o = options_of(&rows[i]);
            int r = mesh ? dl_epoch_options_set_mesh(&o.known, "dp=4", 1, 0, why, sizeof why)
                         : dl_epoch_options_from_env(&o.known, 0, job, why, sizeof why);

            assert_int_equal(r, rows[i].want ? -EINVAL : 0);
            if (r < 0)
                assert_says(why, &rows[i]);
            assert_int_equal(o.known.world, r < 0 ? 2 : 4);
            assert_int_equal(o.known.rank, r < 0 ? 0 : 1);
            assert_int_equal(o.known.size, rows[i].size);
            assert_int_equal(o.unknown, rows[i].unknown);
        }
    }
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
}
