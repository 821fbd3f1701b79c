/* What the daemon keeps of a loader's indexes: which, who pays, and when they go. */
#include "daemon/serve/ring/indexes.h"
#include "proto/common/sealed.h"
#include "tests/unit/spec_text.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { KIB = 1 << 10, MIB = 1 << 20 };

struct fixture {
    struct config_share share;
    struct budget budget;
    struct quota *quota;
    struct payer payer;
    struct index_list list;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->share = (struct config_share){.bytes = 64 * MIB};
    budget_init(&f->budget, &f->share);
    f->quota = quota_new(&(struct config_limits){.bytes = 4 * MIB, .descriptors = 3});
    f->payer = (struct payer){quota_account(f->quota, 1000), &f->budget};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    index_list_deinit(&f->list);
    assert_int_equal(f->budget.in_use + f->budget.promised, 0);
    quota_free(f->quota); /* asserts that all is returned */
    free(f);
    return 0;
}

static int add(struct fixture *f, const char *place, uint32_t form, uint64_t bytes,
               struct dl_error *err)
{
    _cleanup_free_ uint8_t *data = calloc(1, bytes);
    int fd = sealed_new("index", data, bytes);

    assert_true(data && fd >= 0);
    return index_list_add(&f->list, &f->payer, span_str(place), form, fd, err);
}

TEST(test_kept_and_paid_for, setup, teardown)
{
    struct fixture *f = *state;

    assert_int_equal(add(f, "dataset", 1, MIB, NULL), 0);
    assert_int_equal(add(f, "dataset.datasets.0", 1, 2 * MIB, NULL), 0);
    assert_int_equal(f->list.n, 2);
    assert_string_equal(f->list.items[1].place, "dataset.datasets.0");
    assert_int_equal(quota_in_use(f->payer.account, QUOTA_BYTES), 3 * MIB);
    assert_int_equal(quota_in_use(f->payer.account, QUOTA_DESCRIPTORS), 2);
    assert_int_equal(f->budget.promised, 0); /* it is there */
    /* The first one stays. */
    assert_int_equal(add(f, "dataset", 1, 3 * MIB, NULL), 0);
    assert_int_equal(f->list.n, 2);
    assert_int_equal(add(f, "dataset", 2, KIB, NULL), 0);
    assert_int_equal(f->list.n, 3);
}

TEST(test_refused, setup, teardown)
{
    struct fixture *f = *state;
    struct dl_error err = {0};
    int fds[2];

    assert_int_equal(add(f, "dataset", 1, 5 * MIB, &err), -EDQUOT);
    assert_string_equal(err.path, "limits.bytes");
    assert_int_equal(f->list.n, 0);
    for (uint32_t form = 0; form < 3; form++)
        assert_int_equal(add(f, "dataset", form, KIB, &err), 0);
    assert_int_equal(add(f, "dataset", 3, KIB, &err), -EDQUOT);
    assert_string_equal(err.path, "limits.descriptors");

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    const int bad[] = {fds[0], fds[1], memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(index_list_add(&f->list, &f->payer, span_str("dataset"), 9, bad[i], &err),
                         -EPROTO);
        assert_true(fcntl(bad[i], F_GETFD) < 0); /* closed */
    }
}

TEST(test_who_has_some)
{
    static const struct {
        const char *dataset;
        uint32_t wanted;
    } rows[] = {
        {"{kind: range, length: 4}", 0},
        {"{kind: imagefolder, paths: a}", 1},
        {"{kind: audiofolder, paths: a}", 1},
        {"{kind: tfrecord, paths: a}", 1},
        {"{kind: tar, paths: a.tar, index: auto}", 1},
        {"{kind: tar, paths: a.tar, index: a.json}", 0},
        {"{kind: tar, paths: a.tar}", 0},
        {"{kind: concat, datasets: [{kind: imagefolder, paths: a}, {kind: subset, indices: [1], "
         "dataset: {kind: imagefolder, paths: b}}]}",
         2},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_(spec_deinit) struct dl_spec spec = {0};
        char text[512];

        snprintf(text, sizeof text, "{dataset: %s}", rows[i].dataset);
        expect_spec(text, &spec);
        assert_int_equal(index_list_wanted(&spec.dataset), rows[i].wanted);
    }
}
