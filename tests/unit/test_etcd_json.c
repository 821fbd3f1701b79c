/* What is said to etcd and what it says, by what was seen of a real one, 3.4.23 and 3.5.30. */
#include "tests/lib/harness.h"

#include "daemon/cluster/store/etcd_json.h"

#include <errno.h>

#define HEADER "\"header\":{\"cluster_id\":\"1\",\"revision\":\"9\",\"raft_term\":\"2\"}"
#define KV                                                                                     \
    "\"kvs\":[{\"key\":\"L2s=\",\"create_revision\":\"2\",\"mod_revision\":\"7\",\"version\":" \
    "\"1\","                                                                                   \
    "\"value\":\"c3RhdGUtMQ==\"}],\"count\":\"1\""

static struct dl_span span(const char *text)
{
    return (struct dl_span){(const uint8_t *)text, strlen(text)};
}

static void expect(char *body, const char *want)
{
    assert_string_equal(body, want);
    free(body);
}

TEST(test_requests)
{
    const struct backend_note other = {.key = "/m", .data = span("o")};
    const struct backend_note note = {.key = "/l", .data = span("n"), .next = &other};

    expect(etcd_range_body("/dloader/rdzv/job1"), "{\"key\":\"L2Rsb2FkZXIvcmR6di9qb2Ix\"}");
    expect(etcd_txn_body("/k", 0, span("s"), 0, NULL),
           "{\"compare\":[{\"key\":\"L2s=\",\"target\":\"MOD\",\"result\":\"EQUAL\","
           "\"mod_revision\":\"0\"}],\"success\":[{\"requestPut\":{\"key\":\"L2s=\","
           "\"value\":\"cw==\",\"lease\":\"0\"}}],\"failure\":[{\"requestRange\":{\"key\":"
           "\"L2s=\"}}]}");
    char *body = etcd_txn_body("/k", 18446744073709551615U, span("st"), 77, &note);
    assert_non_null(strstr(body, "\"mod_revision\":\"18446744073709551615\""));
    assert_non_null(strstr(body, "\"value\":\"c3Q=\",\"lease\":\"77\""));
    assert_non_null(strstr(body, "{\"key\":\"L2w=\",\"value\":\"bg==\",\"lease\":\"77\"}"));
    assert_non_null(strstr(body, "{\"key\":\"L20=\",\"value\":\"bw==\",\"lease\":\"77\"}"));
    free(body);
    expect(etcd_put_body("/k", span("s"), 7, "/l"),
           "{\"success\":[{\"requestPut\":{\"key\":\"L2s=\",\"value\":\"cw==\",\"lease\":\"7\"}},"
           "{\"requestRange\":{\"key\":\"L2w=\"}}]}");
    expect(etcd_list_body("/k/", NULL), "{\"success\":[{\"requestRange\":{\"key\":\"L2sv\","
                                        "\"range_end\":\"L2sw\"}}]}");
    expect(etcd_drop_body("/k"), "{\"key\":\"L2s=\"}");
    expect(etcd_compact_body(9), "{\"revision\":\"9\"}");
    expect(etcd_watch_body("/k"),
           "{\"create_request\":{\"key\":\"L2s=\",\"progress_notify\":true}}");
    expect(etcd_grant_body(77, 30), "{\"ID\":\"77\",\"TTL\":\"30\"}");
    expect(etcd_keepalive_body(1353509783930645519U), "{\"ID\":\"1353509783930645519\"}");
    expect(etcd_user_body("me", "a\"b"), "{\"name\":\"me\",\"password\":\"a\\\"b\"}");
}

/* What is zero is left out, numbers are strings, or numbers. */
TEST(test_values)
{
    static const struct {
        const char *body, *data;
        int r;
        uint64_t revision, written;
        bool is_txn, won;
        uint64_t created;
    } rows[] = {
        {"{" HEADER "," KV "}", "state-1", 0, 7, 0, false, false, 2},
        {"{" HEADER "}", "", 0, 0, 0, false, false},
        {"{" HEADER ",\"kvs\":[]}", "", 0, 0, 0, false, false},
        {"{" HEADER ",\"kvs\":[{\"mod_revision\":7}]}", "", 0, 7, 0, false, false},
        {"{" HEADER ",\"kvs\":[{\"mod_revision\":0}]}", "", -EBADMSG, 0, 0, false, false},
        {"{" HEADER ",\"kvs\":[{\"mod_revision\":-7}]}", "", -EBADMSG, 0, 0, false, false},
        {"{" HEADER ",\"kvs\":[{\"mod_revision\":\"7\",\"value\":\"YQ\"}]}", "", -EBADMSG, 0, 0,
         false, false},
        {"{" HEADER ",\"kvs\":[{\"mod_revision\":\"7\",\"value\":\"Y===\"}]}", "", -EBADMSG, 0, 0,
         false, false},
        {"{" HEADER ",\"kvs\":[{\"mod_revision\":\"7\",\"value\":9}]}", "", -EBADMSG, 0, 0, false,
         false},
        {"{" HEADER ",\"kvs\":[{\"mod_revision\":7,\"create_revision\":\"x\"}]}", "", -EBADMSG, 0,
         0, false, false},
        {"{" KV "}", "", -EBADMSG, 0, 0, false, false},
        {"[]", "", -EBADMSG, 0, 0, false, false},
        {"", "", -EBADMSG, 0, 0, false, false},
        {"{" HEADER ",\"succeeded\":true,\"responses\":[{\"response_put\":{}}]}", "", 0, 0, 9, true,
         true},
        {"{" HEADER ",\"responses\":[{\"response_range\":{" HEADER "," KV "}}]}", "state-1", 0, 7,
         0, true, false, 2},
        {"{" HEADER ",\"responses\":[{\"response_range\":{" HEADER "}}]}", "", 0, 0, 0, true,
         false},
        {"{" HEADER "}", "", -EBADMSG, 0, 0, true, false},
        {"{\"header\":{},\"succeeded\":true}", "", -EBADMSG, 0, 0, true, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct etcd_kv kv;
        int r = rows[i].is_txn ? etcd_read_txn(span(rows[i].body), &kv)
                               : etcd_read_range(span(rows[i].body), &kv);

        if (r != rows[i].r)
            fail_msg("row %zu: %d", i, r);
        if (r < 0)
            continue;
        assert_int_equal(kv.revision, rows[i].revision);
        assert_int_equal(kv.created, rows[i].created);
        assert_int_equal(kv.won, rows[i].won);
        assert_int_equal(kv.written, rows[i].written);
        assert_int_equal(kv.data.len, strlen(rows[i].data));
        if (kv.data.len > 0)
            assert_memory_equal(kv.data.data, rows[i].data, kv.data.len);
        buffer_deinit(&kv.data);
    }
}

TEST(test_leases_and_users)
{
    bool alive;
    char *token;

    assert_int_equal(etcd_read_grant(span("{" HEADER ",\"ID\":\"77\",\"TTL\":\"5\"}")), 0);
    assert_int_equal(etcd_read_grant(span("{" HEADER "}")), -EBADMSG);
    assert_int_equal(
        etcd_read_keepalive(span("{\"result\":{" HEADER ",\"ID\":\"77\",\"TTL\":\"5\"}}"), &alive),
        0);
    assert_true(alive);
    /* It is gone, with status 200. */
    assert_int_equal(etcd_read_keepalive(span("{\"result\":{" HEADER ",\"ID\":\"77\"}}"), &alive),
                     0);
    assert_false(alive);
    assert_int_equal(etcd_read_keepalive(span("{}"), &alive), -EBADMSG);
    assert_int_equal(etcd_read_user(span("{" HEADER ",\"token\":\"abc.9\"}"), &token), 0);
    assert_string_equal(token, "abc.9");
    free(token);
    assert_int_equal(etcd_read_user(span("{" HEADER ",\"token\":\"\"}"), &token), -EBADMSG);
}

TEST(test_lists)
{
    static const char text[] =
        "{" HEADER ",\"succeeded\":true,\"responses\":[{\"response_range\":{" HEADER
        ",\"kvs\":[{\"key\":\"L2svYQ==\",\"mod_revision\":\"7\",\"value\":\"c3Q=\"},"
        "{\"key\":\"L2svYg==\",\"mod_revision\":\"8\"}],\"count\":\"2\"}},"
        "{\"response_range\":{" HEADER "," KV "}}]}";
    static const char *const bad[] = {
        "{" HEADER "}", "[]", "{\"succeeded\":true}",
        "{" HEADER ",\"succeeded\":true,\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":7,"
        "\"mod_revision\":7}]}}]}",
        "{" HEADER ",\"succeeded\":true,\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":"
        "\"L2s=\",\"mod_revision\":7}]}}]}"};
    struct etcd_list list;
    struct etcd_kv kv;

    assert_int_equal(etcd_read_list(span(text), strlen("/k/"), &list, &kv), 0);
    assert_int_equal(list.n, 2);
    assert_int_equal(list.revision, 9);
    assert_string_equal(list.items[0].name, "a");
    assert_int_equal(list.items[0].data.len, 2);
    assert_string_equal(list.items[1].name, "b");
    assert_int_equal(list.items[1].data.len, 0);
    assert_int_equal(kv.revision, 7);
    etcd_list_deinit(&list);
    buffer_deinit(&kv.data);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(etcd_read_list(span(bad[i]), strlen("/k/"), &list, &kv), -EBADMSG);
    assert_int_equal(
        etcd_read_put(span("{" HEADER ",\"succeeded\":true,\"responses\":[{"
                           "\"response_put\":{}},{\"response_range\":{" HEADER "," KV "}}]}"),
                      &kv),
        0);
    assert_int_equal(kv.created, 2);
    buffer_deinit(&kv.data);
    assert_int_equal(etcd_read_put(span("{" HEADER "}"), &kv), -EBADMSG);
}

TEST(test_watch)
{
    static const struct {
        const char *line;
        int r;
        bool goes_on;
        const char *value;
    } rows[] = {
        {"{\"result\":{" HEADER ",\"events\":[{\"kv\":{\"value\":\"YQ==\"}},{\"kv\":{\"value\":"
         "\"c3Q=\"}}]}}",
         0, true, "st"},
        {"{\"result\":{" HEADER ",\"events\":[{\"type\":\"DELETE\",\"kv\":{\"key\":\"L2s=\"}}]}}",
         0, true, ""},
        {"{\"result\":{" HEADER ",\"created\":true}}", 0, true, ""},
        {"{\"result\":{" HEADER ",\"events\":[{\"kv\":{\"lease\":\"4242\"}}]}}", 0, true, ""},
        {"{\"result\":{" HEADER ",\"canceled\":true,\"compact_revision\":\"5\"}}", 0, false, ""},
        {"{\"error\":{\"grpc_code\":14,\"http_code\":503,\"message\":\"transport is closing\"}}", 0,
         false, ""},
        {"hello", -EBADMSG, false, ""},
    };
    _cleanup_(buffer_deinit) struct dl_buffer value = {0};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        bool goes_on = false;

        assert_int_equal(etcd_read_watch(span(rows[i].line), &goes_on, &value), rows[i].r);
        assert_int_equal(goes_on, rows[i].goes_on);
        assert_int_equal(value.len, strlen(rows[i].value));
        if (value.len > 0)
            assert_memory_equal(value.data, rows[i].value, value.len);
    }
}

TEST(test_errors)
{
    static const struct {
        const char *body, *text;
        int code;
    } rows[] = {
        {"{\"error\":\"etcdserver: requested lease not found\",\"message\":\"etcdserver: requested "
         "lease not found\",\"code\":5}",
         "etcdserver: requested lease not found", ETCD_NOT_FOUND},
        {"{\"error\":\"etcdserver: lease already exists\",\"message\":\"etcdserver: lease already "
         "exists\",\"code\":9}",
         "etcdserver: lease already exists", ETCD_PRECONDITION},
        {"{\"code\":16,\"message\":\"etcdserver: invalid auth token\"}",
         "etcdserver: invalid auth token", ETCD_UNAUTHENTICATED},
        {"{\"error\":{\"grpc_code\":14,\"message\":\"transport is closing\"}}",
         "transport is closing", ETCD_UNAVAILABLE},
        {"{\"error\":\"too large\",\"code\":8}", "too large", 8},
        {"404 page not found", "", -1},
        {"{}", "", -1},
        {"{\"message\":\"x\",\"code\":5000}", "x", -1},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char text[64] = "";

        assert_int_equal(etcd_read_error(span(rows[i].body), text, sizeof text), rows[i].code);
        assert_string_equal(text, rows[i].text);
    }
}
