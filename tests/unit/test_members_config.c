/* What the configuration says of the rendezvous: each value that cannot be, and what a user is
 * told. */
#include "tests/lib/harness.h"

#include "daemon/cluster/rendezvous/rendezvous.h"
#include "daemon/cluster/world/discovery.h"
#include "daemon/cluster/world/members.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Good as it is, but for what `text` says besides. */
static int check(const char *text, struct dl_error *err)
{
    char whole[512];
    struct config config = {0};

    (void)snprintf(whole, sizeof whole, "rendezvous: {%s}", text);
    const char *path = harness_text("members.conf", whole);
    if (config_load(path, &config, err) < 0)
        fail_msg("%s: %s: %s", whole, err->path, err->message);
    int r = members_check(&config.rendezvous, false, err);
    config_deinit(&config);
    return r;
}

TEST(test_bad)
{
    static const struct {
        const char *text, *path, *message;
    } rows[] = {
        {"backend: etcd, id: a", "rendezvous.endpoint", "is missing"},
        {"backend: c10d, id: a", "rendezvous.endpoint",
         "is missing: write where the TCPStore is, such as 10.0.0.1:29400"},
        {"backend: c10d, endpoint: \"a:1,b:2\", id: a", "rendezvous.endpoint", "a:1,b:2: is no"},
        {"backend: c10d, endpoint: \"a:0\", id: a", "rendezvous.endpoint", "a:0: has no port"},
        {"backend: c10d, endpoint: a, id: a, user: b", "rendezvous.backend", "has neither users"},
        {"backend: c10d, endpoint: a, id: a, tls: {ca: /b}", "rendezvous.backend", "nor TLS"},
        {"backend: etcd, endpoint: e", "rendezvous.id", "is missing"},
        {"backend: etcd, endpoint: e, id: \"a b\"", "rendezvous.id", "\"a b\" has other"},
        {"backend: etcd, endpoint: e, id: a/b", "rendezvous.id", "\"a/b\" has other"},
        {"backend: etcd, endpoint: e, id: a, prefix: \"\"", "rendezvous.prefix",
         "\"\" does not begin and end with a slash, as /dloader/ does"},
        {"backend: etcd, endpoint: e, id: a, prefix: team/", "rendezvous.prefix", "does not begin"},
        {"backend: c10d, endpoint: e, id: a, prefix: /team", "rendezvous.prefix", "does not begin"},
        {"backend: c10d, endpoint: e, id: a, prefix: /a team/", "rendezvous.prefix",
         "other characters"},
        {"backend: etcd, endpoint: e, id: a, prefix: "
         "/n234567890123456789012345678901234567890123456789012345678901234567890123456789"
         "012345678901234/",
         "rendezvous.prefix", "has 96 bytes, more than the maximum of 95"},
        {"backend: etcd, endpoint: e, id: a, node: \"b\\n\"", "rendezvous.node", "has other"},
        {"backend: etcd, endpoint: e, id: a, "
         "node: n234567890123456789012345678901234567890123456789012345678901234",
         "rendezvous.node", "has 64 bytes, more than the maximum of 63"},
        {"backend: etcd, endpoint: e, id: a, nodes: {min: 2}", "rendezvous.nodes.min",
         "2 is not from 1 to 1"},
        {"backend: etcd, endpoint: e, id: a, nodes: {max: 4097}", "rendezvous.nodes.max",
         "4097 is not from 1 to 4096"},
        {"backend: etcd, endpoint: e, id: a, local_ranks: 4097", "rendezvous.local_ranks",
         "4097 is not from 1 to 4096"},
        {"backend: etcd, endpoint: e, id: a, heartbeat: {missed: 1001}",
         "rendezvous.heartbeat.missed", "1001 is not from 1 to 1000"},
        {"backend: etcd, endpoint: e, id: a, heartbeat: {missed: 1, interval: 7ms}",
         "rendezvous.heartbeat.interval", "7ms is not from 8ms, where not one may be missed"},
        {"backend: etcd, endpoint: e, id: a, heartbeat: {interval: 0}",
         "rendezvous.heartbeat.interval", "0s is not from 1ms to 720h"},
        {"backend: etcd, endpoint: e, id: a, timeouts: {join: 721h}", "rendezvous.timeouts.join",
         "2595600s is not from 1ms to 720h"},
        {"backend: etcd, endpoint: e, id: a, keep: 59s", "rendezvous.keep",
         "59s is not 0, nor from 1m to 87840h"},
        {"backend: etcd, endpoint: e, id: a, keep: 87841h", "rendezvous.keep", "is not 0, nor"},
        {"backend: etcd, endpoint: e, id: a, timeouts: {last_call: 0}",
         "rendezvous.timeouts.last_call", "0s is not from 1ms"},
        {"backend: etcd, endpoint: e, id: a, timeouts: {close: 0}", "rendezvous.timeouts.close",
         "0s is not from 1ms"},
        {"backend: etcd, endpoint: e, id: a, timeouts: {read: 0}", "rendezvous.timeouts.read",
         "0s is not from 1ms"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct dl_error err = {0};

        assert_int_equal(check(rows[i].text, &err), -EINVAL);
        assert_string_equal(err.path, rows[i].path);
        if (!strstr(err.message, rows[i].message))
            fail_msg("%s: \"%s\" is not in \"%s\"", rows[i].text, rows[i].message, err.message);
    }
}

TEST(test_good)
{
    static const char *const texts[] = {
        "",
        "backend: none, id: \"a b\"",
        "backend: etcd, endpoint: e, id: a",
        "backend: c10d, endpoint: e, id: a",
        "backend: c10d, endpoint: \"[::1]:1\", id: a, host: yes",
        "backend: etcd, endpoint: e, id: a, node: b, nodes: {min: 1, max: 4096}, local_ranks: 4096",
        "backend: etcd, endpoint: e, id: a, heartbeat: {interval: 1ms, missed: 2}",
        "backend: etcd, endpoint: e, id: a, heartbeat: {interval: 8ms, missed: 1}",
        "backend: c10d, endpoint: e, id: a, timeouts: {read: 60s}",
        "backend: etcd, endpoint: e, id: a, keep: 0",
        "backend: etcd, endpoint: e, id: a, keep: 87840h",
        "backend: etcd, endpoint: e, id: a, keep: 1m",
        "backend: etcd, endpoint: e, id: a, timeouts: {join: 720h, last_call: 1ms, close: 1ms}"};

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct dl_error err = {0};

        if (check(texts[i], &err) < 0)
            fail_msg("%s: %s: %s", texts[i], err.path, err.message);
    }
}

/* What is not said is as PyTorch has it; and so it is where no configuration is read. */
TEST(test_defaults)
{
    const char *text = "rendezvous: {backend: etcd, endpoint: e, id: a}";
    const char *path = harness_text("members.conf", text);
    const struct rdzv_settings *set = &RDZV_DEFAULTS;
    const uint64_t second = 1000000000;
    struct config config = {0};
    struct dl_error err = {0};

    assert_int_equal(config_load(path, &config, &err), 0);
    const uint64_t is[] = {config.rendezvous.timeouts.join, config.rendezvous.timeouts.last_call,
                           config.rendezvous.timeouts.close, config.rendezvous.heartbeat.interval,
                           config.rendezvous.heartbeat.missed},
                   there[] = {set->join_ns, set->last_call_ns, set->close_ns, set->beat_ns,
                              set->missed},
                   theirs[] = {600 * second, 30 * second, 30 * second, 5 * second, 3};
    for (size_t i = 0; i < ARRAY_SIZE(is); i++) {
        assert_int_equal(is[i], theirs[i]);
        assert_int_equal(there[i], theirs[i]);
    }
    config_deinit(&config);
}

/* What a job's script has set for torchrun is there where nothing else is said. */
TEST(test_environment)
{
    static const struct {
        const char *address, *run; /* NULL: not set */
        const char *text;
        const char *endpoint, *id; /* id NULL: `endpoint` is the error's path, and */
        const char *message;
    } rows[] = {
        {"node1", "nine", "backend: etcd", "node1", "nine", NULL},
        {"10.0.0.1", "n-i_n.e:9", "backend: etcd", "10.0.0.1", "n-i_n.e:9", NULL},
        {"fd00::1", "nine", "backend: etcd", "[fd00::1]", "nine", NULL},
        {"[fd00::1]", "nine", "backend: etcd", "[fd00::1]", "nine", NULL},
        {"node1:29", "nine", "backend: etcd", "node1:29", "nine", NULL},
        {"node1", "nine", "backend: etcd, endpoint: \"e:1\", id: a", "e:1", "a", NULL},
        {"a b", "c d", "backend: etcd, endpoint: e, id: a", "e", "a", NULL},
        {"node1", "none", "backend: etcd, id: none", "node1", "none", NULL},
        {"node1", "nine", "backend: none", "", "", NULL},
        {"a b", "c d", "backend: none", "", "", NULL},
        {"node1", NULL, "backend: etcd", "node1", "", NULL},
        {"node1", "none", "backend: etcd", "node1", "", NULL},
        {NULL, "nine", "backend: etcd", "", "nine", NULL},
        {"a b", "nine", "backend: etcd", "rendezvous.endpoint", NULL,
         "is missing, and $MASTER_ADDR, \"a b\", is not an address"},
        {"a,b", "nine", "backend: etcd", "rendezvous.endpoint", NULL, "is not an address"},
        {"", "nine", "backend: etcd", "rendezvous.endpoint", NULL, "$MASTER_ADDR, \"\", is not"},
        {"node1", "a/b", "backend: etcd", "rendezvous.id", NULL,
         "is missing, and $TORCHELASTIC_RUN_ID, \"a/b\", cannot replace it: an id has up to 128 "
         "letters"},
        {"node1", "a b", "backend: etcd", "rendezvous.id", NULL, "$TORCHELASTIC_RUN_ID, \"a b\""},
        {"node1", "", "backend: etcd", "rendezvous.id", NULL, "$TORCHELASTIC_RUN_ID, \"\""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct config config = {0};
        struct dl_error err = {0};
        char text[256];

        (void)snprintf(text, sizeof text, "rendezvous: {%s}", rows[i].text);
        if (rows[i].address)
            setenv("MASTER_ADDR", rows[i].address, 1);
        if (rows[i].run)
            setenv("TORCHELASTIC_RUN_ID", rows[i].run, 1);
        int r = config_load(harness_text("members.conf", text), &config, &err);
        unsetenv("MASTER_ADDR");
        unsetenv("TORCHELASTIC_RUN_ID");
        if (!rows[i].id) {
            assert_int_equal(r, -EINVAL);
            assert_string_equal(err.path, rows[i].endpoint);
            if (!strstr(err.message, rows[i].message))
                fail_msg("\"%s\" is not in \"%s\"", rows[i].message, err.message);
            continue;
        }
        assert_int_equal(r, 0);
        assert_string_equal(config.rendezvous.endpoint, rows[i].endpoint);
        assert_string_equal(config.rendezvous.id, rows[i].id);
        config_deinit(&config);
    }
}

/* Who is alone has no ranks of a cluster, and shows all keys of the view, empty. */
TEST(test_alone)
{
    struct config_rendezvous none = {0};
    struct members_place place;
    struct members *members;
    struct value view = {0};
    struct dl_error err = {0};

    assert_int_equal(members_new(NULL, &none, NULL, NULL, &members, &err), 0);
    assert_null(members);
    assert_int_equal(members_place(NULL, 0, 0, &place, &err), -ENOTSUP);
    assert_int_equal(members_view(NULL, &view), 0);
    assert_string_equal(value_get(&view, "backend")->string, "none");
    assert_int_equal(value_get(&view, "nodes")->type, VALUE_ARRAY);
    assert_int_equal(value_get(&view, "world")->type, VALUE_NULL);
    value_deinit(&view);
    members_join(NULL, "");
    assert_null(members_end(NULL));
}

/* What is said of helpers.run. */
TEST(test_helpers_found)
{
    static const char secret[] = "0123456789abcdef\n";
    static const struct {
        bool secret;
        const char *run, *rendezvous, *path, *message;
    } rows[] = {
        {false, "\"\"", "backend: none", NULL, NULL},
        {true, "a", "backend: etcd, endpoint: e", NULL, NULL},
        {true, "a", "backend: c10d, endpoint: e", NULL, NULL},
        {true, "a", "backend: none", "helpers.run",
         "\"a\" is a name in a store, and there is none"},
        {false, "a", "backend: etcd, endpoint: e", "helpers.secret_file", "is not set"},
        {true, "a/b", "backend: etcd, endpoint: e", "helpers.run", "other characters"},
        {true, "a", "backend: etcd", "rendezvous.endpoint", "is missing"},
    };
    const char *file = harness_file("secret", secret, sizeof secret - 1);

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char text[1024];
        struct config config = {0};
        struct dl_error err = {0};

        (void)snprintf(text, sizeof text,
                       "{helpers: {run: %s, secret_file: \"%s\"}, "
                       "rendezvous: {%s}}",
                       rows[i].run, rows[i].secret ? file : "", rows[i].rendezvous);
        const char *path = harness_text("helpers.conf", text);
        assert_int_equal(config_load(path, &config, &err), 0);
        assert_int_equal(discovery_check(&config, &err), rows[i].path ? -EINVAL : 0);
        assert_string_equal(err.path, rows[i].path ? rows[i].path : "");
        if (rows[i].message && !strstr(err.message, rows[i].message))
            fail_msg("row %zu: %s", i, err.message);
        /* Only for helpers a store needs no run of nodes. */
        if (!rows[i].path && *config.helpers.run) {
            assert_int_equal(members_check(&config.rendezvous, true, &err), 0);
            assert_int_equal(members_check(&config.rendezvous, false, &err), -EINVAL);
            assert_string_equal(err.path, "rendezvous.id");
        }
        config_deinit(&config);
    }
}
