/* Segments that others still have when the daemon has done with them: charged until they let go. */
#include "daemon/serve/pool/retired.h"
#include "tests/lib/uv_threads.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

enum { MIB = 1 << 20, SLOT_BYTES = 1 << 20, BYTES = SEGMENT_HEADER_BYTES + SLOT_BYTES };

struct fixture {
    uv_loop_t loop;
    struct config_share share;
    struct budget budget;
    struct quota *quota;
    struct quota_account *account, *other;
    struct retired retired;
    bool ended;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->share = (struct config_share){.bytes = 16 * MIB};
    budget_init(&f->budget, &f->share);
    f->quota = quota_new(&(struct config_limits){.bytes = 12 * MIB, .descriptors = 1});
    f->account = quota_account(f->quota, 1000);
    f->other = quota_account(f->quota, 1001);
    retired_begin(&f->retired, &f->loop, &f->budget);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    if (!f->ended)
        retired_end(&f->retired);
    assert_int_equal(uv_run(&f->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    assert_int_equal(f->budget.in_use + f->budget.promised, 0);
    quota_free(f->quota); /* asserts that all is returned */
    free(f);
    return 0;
}

/* As the pool does, up to its clients: `client` is what they are sent. */
static struct segment *make(struct fixture *f, struct quota_account *account, bool writable,
                            int *client)
{
    struct segment *segment = NULL;
    struct dl_error err = {0};

    assert_int_equal(quota_charge(account, QUOTA_BYTES, BYTES, &err), 0);
    assert_int_equal(budget_take(&f->budget, BYTES, "eat less", &err), 0);
    budget_settle(&f->budget, BYTES);
    assert_int_equal(segment_new(1, 0, 1, SLOT_BYTES, writable, &segment, &err), 0);
    assert_int_equal(segment_seal(segment, &err), 0);
    if (client)
        assert_true((*client = fcntl(segment->fd, F_DUPFD_CLOEXEC, 0)) >= 0);
    return segment;
}

static void *map(int fd)
{
    void *view = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);

    assert_ptr_not_equal(view, MAP_FAILED);
    return view;
}

static void expect(const struct fixture *f, uint64_t bytes, uint64_t descriptors)
{
    assert_int_equal(quota_in_use(f->account, QUOTA_BYTES), bytes);
    assert_int_equal(quota_in_use(f->account, QUOTA_DESCRIPTORS), descriptors);
    assert_true(f->budget.in_use >= bytes);
}

TEST(test_what_nobody_has, setup, teardown)
{
    struct fixture *f = *state;

    for (int writable = 0; writable < 2; writable++) {
        retired_end_segment(&f->retired, make(f, f->account, writable, NULL), f->account, f);
        expect(f, 0, 0);
        assert_int_equal(retired_lately(&f->retired, f), 0);
    }
}

/* One that no client was ever sent: its worker could not map it. */
TEST(test_what_was_never_sealed, setup, teardown)
{
    struct fixture *f = *state;
    struct segment *segment = NULL;
    struct dl_error err = {0};

    assert_int_equal(quota_charge(f->account, QUOTA_BYTES, BYTES, &err), 0);
    assert_int_equal(budget_take(&f->budget, BYTES, "eat less", &err), 0);
    budget_settle(&f->budget, BYTES);
    assert_int_equal(segment_new(1, 0, 1, SLOT_BYTES, false, &segment, &err), 0);
    retired_end_segment(&f->retired, segment, f->account, f);
    expect(f, 0, 0);
}

TEST(test_mapped_and_open, setup, teardown)
{
    struct fixture *f = *state;
    int client;

    for (int writable = 0; writable < 2; writable++) {
        struct segment *segment = make(f, f->account, writable, &client);
        void *view = map(client);

        retired_end_segment(&f->retired, segment, f->account, f);
        expect(f, BYTES, 1);
        assert_int_equal(retired_lately(&f->retired, f), BYTES);
        assert_int_equal(retired_lately(&f->retired, state), 0);
        close(client);
        retired_look(&f->retired, f->account);
        expect(f, BYTES, 1); /* it is mapped still */
        munmap(view, BYTES);
        retired_forget(&f->retired, state);
        assert_int_equal(retired_lately(&f->retired, f), BYTES);
        retired_forget(&f->retired, f);
        assert_int_equal(retired_lately(&f->retired, f), 0);
        retired_look(&f->retired, f->other); /* not that one's */
        expect(f, BYTES, 1);
        retired_look(&f->retired, f->account);
        expect(f, 0, 0);
        assert_int_equal(retired_lately(&f->retired, f), 0);
    }
}

/* Descriptors that cannot be refused any more may be above the limit; nothing else is had then. */
TEST(test_above_the_limit, setup, teardown)
{
    struct fixture *f = *state;
    int clients[3];

    for (int i = 0; i < 3; i++)
        retired_end_segment(&f->retired, make(f, f->account, false, &clients[i]), f->account, f);
    expect(f, 3 * BYTES, 3);
    assert_int_equal(quota_charge(f->account, QUOTA_DESCRIPTORS, 1, NULL), -EDQUOT);
    close(clients[1]);
    retired_look(&f->retired, NULL);
    expect(f, 2 * BYTES, 2);
    close(clients[0]);
    close(clients[2]);
    retired_look(&f->retired, NULL);
    expect(f, 0, 0);
}

/* Nobody asks: it looks by itself, and stops when there is nothing to be looked for. */
TEST(test_it_looks_by_itself, setup, teardown)
{
    struct fixture *f = *state;
    int client;

    retired_end_segment(&f->retired, make(f, f->account, false, &client), f->account, f);
    assert_true(uv_is_active((uv_handle_t *)&f->retired.look));
    uv_run(&f->loop, UV_RUN_ONCE);
    expect(f, BYTES, 1);
    close(client);
    while (uv_run(&f->loop, UV_RUN_ONCE))
        ;
    expect(f, 0, 0);
    assert_false(uv_is_active((uv_handle_t *)&f->retired.look));
}

TEST(test_the_end, setup, teardown)
{
    struct fixture *f = *state;
    int clients[2];
    struct segment *later = make(f, f->account, false, &clients[0]);

    retired_end_segment(&f->retired, make(f, f->account, false, &clients[1]), f->account, f);
    retired_end(&f->retired);
    f->ended = true;
    expect(f, BYTES, 0);
    retired_end_segment(&f->retired, later, f->account, f);
    expect(f, 0, 0);
    close(clients[0]);
    close(clients[1]);
}
