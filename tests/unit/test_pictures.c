/* The daemon's arenas of decoded pictures: who shares them, who pays, and when they go. */
#include "daemon/serve/ring/pictures.h"
#include "tests/unit/spec_text.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MIB = 1 << 20, ONE = 1000, ANOTHER = 1001 };

struct fixture {
    struct config_share share;
    struct budget budget;
    struct quota *quota;
    struct payer payer, other;
    struct pictures_set set;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->share = (struct config_share){.bytes = 64 * MIB};
    budget_init(&f->budget, &f->share);
    f->budget.look = pictures_set_settle;
    f->budget.looker = &f->set;
    f->quota = quota_new(&(struct config_limits){.bytes = 12 * MIB, .descriptors = 3});
    f->payer = (struct payer){quota_account(f->quota, ONE), &f->budget};
    f->other = (struct payer){quota_account(f->quota, ANOTHER), &f->budget};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    assert_null(f->set.head);
    assert_int_equal(f->budget.in_use + f->budget.promised, 0);
    quota_free(f->quota); /* asserts that all is returned */
    free(f);
    return 0;
}

#define FOLDER(root, cache) \
    "{kind: imagefolder, paths: " root ", transforms: [ToTensor], cache: " cache "}"

static int make(struct fixture *f, const struct payer *payer, const char *dataset,
                struct pictures_list *ret, struct dl_error *err)
{
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    char text[1024];

    snprintf(text, sizeof text, "{dataset: %s}", dataset);
    expect_spec(text, &spec);
    return pictures_list_make(&f->set, &spec.dataset, payer, ret, err);
}

TEST(test_who_shares, setup, teardown)
{
    struct fixture *f = *state;
    struct pictures_list one, again, theirs, elsewhere;

    assert_int_equal(make(f, &f->payer, FOLDER("a", "4MiB"), &one, NULL), 0);
    assert_int_equal(make(f, &f->payer, FOLDER("a", "8MiB"), &again, NULL), 0);
    assert_int_equal(make(f, &f->other, FOLDER("a", "5MiB"), &theirs, NULL), 0);
    assert_int_equal(make(f, &f->payer, FOLDER("b", "2MiB"), &elsewhere, NULL), 0);
    assert_ptr_equal(one.items[0], again.items[0]);
    assert_ptr_not_equal(one.items[0], theirs.items[0]);
    assert_int_equal(pictures_bytes(again.items[0]), 4 * MIB); /* the first one's wish */
    assert_string_equal(pictures_root(one.items[0]), "/base/a");
    assert_int_equal(quota_in_use(f->payer.account, QUOTA_BYTES), 6 * MIB);
    assert_int_equal(quota_in_use(f->other.account, QUOTA_BYTES), 5 * MIB);
    pictures_list_deinit(&one);
    assert_int_equal(quota_in_use(f->payer.account, QUOTA_BYTES), 6 * MIB);
    pictures_list_deinit(&again);
    assert_int_equal(quota_in_use(f->payer.account, QUOTA_BYTES), 2 * MIB);
    pictures_list_deinit(&theirs);
    pictures_list_deinit(&elsewhere);
}

/* A client's own host has that of the folder, no matter who made it; its session keeps it. */
TEST(test_a_host_shares, setup, teardown)
{
    struct fixture *f = *state;
    struct pictures_list folder, host, session = {0};

    assert_int_equal(make(f, &f->payer, FOLDER("a", "4MiB"), &folder, NULL), 0);
    assert_int_equal(
        make(f, &f->payer, "{kind: python, host: 7, paths: a, cache: 8MiB}", &host, NULL), 0);
    assert_int_equal(host.n, 1);
    assert_ptr_equal(host.items[0], folder.items[0]);
    pictures_list_share(&session, &host);
    pictures_list_share(&session, &folder);
    assert_int_equal(session.n, 1);
    pictures_list_deinit(&folder);
    pictures_list_deinit(&host);
    assert_int_equal(quota_in_use(f->payer.account, QUOTA_BYTES), 4 * MIB);
    assert_int_equal(
        make(f, &f->payer, "{kind: python, host: 8, paths: a, cache: 8MiB}", &host, NULL), 0);
    assert_ptr_equal(host.items[0], session.items[0]);
    pictures_list_deinit(&session);
    assert_int_equal(quota_in_use(f->payer.account, QUOTA_BYTES), 4 * MIB);
    pictures_list_deinit(&host);
    assert_int_equal(quota_in_use(f->payer.account, QUOTA_BYTES), 0);
}

TEST(test_datasets_in_datasets, setup, teardown)
{
    struct fixture *f = *state;
    struct pictures_list list, none;
    struct pictures_counts counts;
    uint64_t bytes;

    assert_int_equal(
        make(f, &f->payer,
             "{kind: concat, datasets: [" FOLDER("a", "1MiB") ", " FOLDER(
                 "b", "2MiB") ", {kind: subset, indices: [1], dataset: " FOLDER("a", "3MiB") "}]}",
             &list, NULL),
        0);
    assert_int_equal(list.n, 2);
    pictures_list_counts(&list, &counts, &bytes);
    assert_int_equal(bytes, 3 * MIB);
    assert_int_equal(counts.pictures + counts.hits + counts.misses, 0);
    pictures_list_deinit(&list);
    assert_int_equal(
        make(f, &f->payer, "{kind: parquet, paths: [x, y], shared: 2MiB}", &list, NULL), 0);
    pictures_list_counts(&list, &counts, &bytes);
    assert_int_equal(bytes, 2 * MIB);
    assert_string_equal(pictures_root(list.items[0]), "/base/x");
    pictures_list_deinit(&list);
    assert_int_equal(make(f, &f->payer, "{kind: parquet, paths: x}", &none, NULL), 0);
    assert_int_equal(none.n, 0);
    pictures_list_deinit(&none);
    assert_int_equal(make(f, &f->payer, "{kind: range, length: 5}", &none, NULL), 0);
    assert_int_equal(none.n, 0);
    pictures_list_deinit(&none);
}

#define TEXT(more) "{kind: text, paths: t, tokenizer: huggingface, model: m" more "}"

/* One for each tokenizer's file; the size that nobody asked for is no reason to refuse. */
TEST(test_ids, setup, teardown)
{
    struct fixture *f = *state;
    struct pictures_list list, other;
    struct dl_error err = {0};

    assert_int_equal(make(f, &f->payer, TEXT(", ids: 4MiB"), &list, NULL), 0);
    assert_int_equal(list.n, 1);
    assert_true(pictures_has_ids(list.items[0]));
    assert_string_equal(pictures_root(list.items[0]), "/base/m");
    assert_int_equal(make(f, &f->payer, TEXT(", ids: 2MiB"), &other, NULL), 0);
    assert_ptr_equal(other.items[0], list.items[0]);
    pictures_list_deinit(&other);
    pictures_list_deinit(&list);
    assert_int_equal(make(f, &f->payer, TEXT(", ids: 0"), &list, NULL), 0);
    assert_int_equal(list.n, 0);
    assert_int_equal(make(f, &f->payer, TEXT(""), &list, NULL), 0); /* 64 MiB, of 12 */
    assert_int_equal(list.n, 0);
    assert_int_equal(make(f, &f->payer, TEXT(", ids: 13MiB"), &list, &err), -EDQUOT);
    assert_string_equal(err.path, "limits.bytes");
    assert_int_equal(make(f, &f->payer, "{kind: text, paths: t, tokenizer: bytes}", &list, NULL),
                     0);
    assert_int_equal(list.n, 0);
}

TEST(test_limits, setup, teardown)
{
    static const struct {
        const char *dataset, *path;
    } rows[] = {
        {FOLDER("a", "13MiB"), "limits.bytes"},
        {"{kind: concat, datasets: [" FOLDER("a", "8MiB") ", " FOLDER("b", "8MiB") "]}",
         "limits.bytes"},
        {"{kind: concat, datasets: [" FOLDER("a", "1MiB") ", " FOLDER("b", "1MiB") ", " FOLDER(
             "c", "1MiB") ", " FOLDER("d", "1MiB") "]}",
         "limits.descriptors"},
    };
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct pictures_list list;
        struct dl_error err = {0};

        assert_int_equal(make(f, &f->payer, rows[i].dataset, &list, &err), -EDQUOT);
        assert_string_equal(err.path, rows[i].path);
        assert_int_equal(list.n, 0);
        assert_int_equal(quota_in_use(f->payer.account, QUOTA_BYTES), 0);
    }
    f->share.bytes = 2 * MIB;
    struct pictures_list list;
    struct dl_error err = {0};
    assert_int_equal(make(f, &f->payer, FOLDER("a", "3MiB"), &list, &err), -EDQUOT);
    assert_string_equal(err.path, "limits.memory");
    assert_non_null(strstr(err.message, "lower dataset.cache"));
    assert_int_equal(make(f, &f->payer, "{kind: parquet, paths: x, shared: 3MiB}", &list, &err),
                     -EDQUOT);
    assert_non_null(strstr(err.message, "lower dataset.shared"));
}

/* As a worker does: what it fills is no promise any more, and it cannot cut it off. */
TEST(test_a_worker_fills_it, setup, teardown)
{
    struct fixture *f = *state;
    struct pictures_list list;
    struct pictures_cache cache;
    struct pictures_counts counts;
    struct pictures_room room;
    const struct pictures_key key = {.ino = 1};
    uint64_t bytes;

    assert_int_equal(make(f, &f->payer, FOLDER("a", "4MiB"), &list, NULL), 0);
    assert_int_equal(f->budget.promised, 4 * MIB);
    int fd = dup(pictures_fd(list.items[0]));
    assert_int_equal(pictures_cache_open(&cache, fd, 4 * MIB), 0);
    assert_true(ftruncate(fd, MIB) < 0 && ftruncate(fd, 5 * MIB) < 0);
    assert_true(pictures_cache_take(&cache, &key, 1000, 500, &room));
    memset(room.pixels, 1, 1500000);
    assert_true(pictures_cache_publish(&cache, &room));
    pictures_list_counts(&list, &counts, &bytes);
    assert_int_equal(counts.pictures, 1);
    assert_true(counts.used_bytes > 1500000);
    pictures_set_settle(&f->set);
    assert_int_equal(f->budget.promised, 4 * MIB - counts.used_bytes);
    assert_int_equal(f->budget.in_use, 4 * MIB);
    pictures_cache_close(&cache);
    pictures_list_deinit(&list);
}
