/*
 * The configuration: each key of config.def with values that are good, and each wrong value with
 * the whole message that a user gets for it.
 */
#include "tests/unit/config_case.h"

#include <errno.h>
#include <stdio.h>

/* ---- good values ---------------------------------------------------------------------------- */

static void expect_defaults(const struct config *config)
{
    assert_string_equal(config->socket, "/run/dloaderd/socket");
    assert_int_equal(config->socket_mode, 0600);
    assert_string_equal(config->socket_group, "");
    assert_int_equal(config->data_roots.n, 0);
    assert_int_equal(config->plugins.n, 0);
    assert_int_equal(config->site.objects.n, 0);
    assert_int_equal(config->site.plugins.n, 0);
    assert_string_equal(config->worker, "");
    assert_int_equal(config->python.n, 0);
    assert_int_equal(config->python_path.n, 0);
    assert_int_equal(config->python_timeout, 120000000000);
    assert_int_equal(config->open_timeout, 300000000000);
    assert_int_equal(config->linger, 60000000000);
    assert_int_equal(config->drain_timeout, 5000000000);
    assert_int_equal(config->log_level, LOG_INFO);
    assert_int_equal(config->sandbox, CONFIG_SANDBOX_DEFAULT);
    assert_int_equal(config->remote.denied.n, 1);
    assert_non_null(strstr(config->remote.denied.paths[0], "169.254.0.0/16, fe80::/10"));
    assert_string_equal(config->metrics.listen, "");
    assert_int_equal(config->limits.sessions, 256);
    assert_int_equal(config->limits.loaders, 64);
    assert_int_equal(config->limits.workers, 64);
    assert_int_equal(config->limits.cpus, 0);
    assert_int_equal(config->limits.bytes, (uint64_t)8 << 30);
    assert_int_equal(config->limits.memory.per_cent, 50);
    assert_int_equal(config->limits.memory.bytes, 0);
    assert_int_equal(config->limits.bandwidth, 0);
    assert_int_equal(config->limits.users.n, 0);
    assert_int_equal(config->limits.epochs, 1024);
    assert_int_equal(config->limits.leases, 65536);
    assert_int_equal(config->rendezvous.backend, CONFIG_BACKEND_NONE);
    assert_string_equal(config->rendezvous.endpoint, "");
    assert_int_equal(config->rendezvous.host, CONFIG_HOSTING_AUTO);
    assert_int_equal(config->rendezvous.nodes.min, 1);
    assert_int_equal(config->rendezvous.nodes.max, 1);
    assert_int_equal(config->rendezvous.timeouts.join, 600000000000);
    assert_int_equal(config->rendezvous.timeouts.last_call, 30000000000);
    assert_int_equal(config->rendezvous.timeouts.read, 5000000000);
    assert_int_equal(config->rendezvous.heartbeat.interval, 5000000000);
    assert_int_equal(config->rendezvous.heartbeat.missed, 3);
}

TEST(test_defaults)
{
    static const char *const empty[] = {"",   "\n",    " \r\n\t\n", "# nothing but a comment\n",
                                        "{}", "---\n", "null",      "limits: {}"};
    struct config config = {0};

    assert_int_equal(config_load(NULL, &config, NULL), 0);
    expect_defaults(&config);
    config_deinit(&config);
    for (size_t i = 0; i < ARRAY_SIZE(empty); i++) {
        config = load(empty[i]);
        expect_defaults(&config);
        config_deinit(&config);
    }
    config_deinit(&config);
}

/* "a.b: c" as sections: "a: {b: c}". */
static void nest(const char *key, const char *value, char *text, size_t size)
{
    size_t at = 0, depth = 0;

    for (; *key; key++) {
        depth += *key == '.';
        at += (size_t)snprintf(text + at, size - at, "%.*s", *key == '.' ? 3 : 1,
                               *key == '.' ? ": {" : key);
    }
    at += (size_t)snprintf(text + at, size - at, ": %s", value);
    while (depth-- > 0)
        at += (size_t)snprintf(text + at, size - at, "}");
}

/* Of these none does without the others. */
static bool needs_others(const char *key)
{
    return strcmp(key, "helpers.certificate") == 0 || strcmp(key, "helpers.key") == 0 ||
           strcmp(key, "helpers.authority") == 0;
}

/* A key alone leaves all others at their defaults. */
TEST(test_each_key_alone)
{
#define CONFIG(key, type, initial, meaning) #key,
    static const char *const keys[] = {
#include "daemon/base/config.def"
    };
#undef CONFIG
    static const char *const values[] = {"x",
                                         "\"0660\"",
                                         "[]",
                                         "{}",
                                         "1",
                                         "info",
                                         "strict",
                                         "etcd",
                                         "no",
                                         "\"[::1]:9400\"",
                                         "cgroup",
                                         "wait",
                                         "any",
                                         "/proc/version",
                                         "/proc/sys/kernel/random/boot_id"};

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        int taken = 0;

        for (size_t k = 0; k < ARRAY_SIZE(values); k++) {
            struct config config = {0};
            char text[128];

            nest(keys[i], values[k], text, sizeof text);
            taken += config_load(write_text(text), &config, NULL) == 0;
            config_deinit(&config);
        }
        /* Some fit, some do not. */
        if (needs_others(keys[i]) != (taken == 0) || taken == (int)ARRAY_SIZE(values))
            fail_msg("%s takes %d values", keys[i], taken);
    }
}

#define IN(field) offsetof(struct config, field), sizeof(((struct config *)0)->field)

static const struct {
    const char *text;
    size_t at, size;
    uint64_t want;
} numbers[] = {
    {"socket_mode: \"0600\"", IN(socket_mode), 0600},
    {"socket_mode: \"0\"", IN(socket_mode), 0},
    {"socket_mode: \"0000\"", IN(socket_mode), 0},
    {"socket_mode: \"777\"", IN(socket_mode), 0777},
    {"socket_mode: \"0000777\"", IN(socket_mode), 0777},
    {"socket_mode: \"0007\"", IN(socket_mode), 7},
    {"python_timeout: 5", IN(python_timeout), 5000000000},
    {"open_timeout: 7m", IN(open_timeout), 420000000000},
    {"drain_timeout: 250ms", IN(drain_timeout), 250000000},
    {"linger: 1h", IN(linger), 3600000000000},
    {"linger: 0", IN(linger), 0},
    {"linger: 0s", IN(linger), 0},
    {"linger: \"5\"", IN(linger), 5000000000},
    {"linger: 1.5s", IN(linger), 1500000000},
    {"linger: 90 s", IN(linger), 90000000000},
    {"linger: 2min", IN(linger), 120000000000},
    {"linger: 7us", IN(linger), 7000},
    {"linger: 7ns", IN(linger), 7},
    {"linger: 9223372035", IN(linger), 9223372035000000000},
    {"linger: 18446744073709551615ns", IN(linger), UINT64_MAX},
    {"{\"log_level\": \"error\"}", IN(log_level), LOG_ERROR}, /* JSON is YAML */
    {"log_level: warning", IN(log_level), LOG_WARNING},
    {"log_level: info", IN(log_level), LOG_INFO},
    {"log_level: debug", IN(log_level), LOG_DEBUG},
    {"sandbox: default", IN(sandbox), CONFIG_SANDBOX_DEFAULT},
    {"sandbox: strict", IN(sandbox), CONFIG_SANDBOX_STRICT},
    {"sandbox: off", IN(sandbox), CONFIG_SANDBOX_OFF},
    {"sandbox: \"off\"", IN(sandbox), CONFIG_SANDBOX_OFF},
    {"limits: {sessions: 1}", IN(limits.sessions), 1},
    {"limits: {loaders: 2}", IN(limits.loaders), 2},
    {"limits: {workers: 3}", IN(limits.workers), 3},
    {"limits: {leases: 5}", IN(limits.leases), 5},
    {"limits: {cpus: 6}", IN(limits.cpus), 6},
    {"limits: {bytes: 1.5MiB}", IN(limits.bytes), 3 << 19},
    {"limits: {bytes: 1}", IN(limits.bytes), 1},
    {"limits: {bytes: 1B}", IN(limits.bytes), 1},
    {"limits: {bytes: \"4096\"}", IN(limits.bytes), 4096},
    {"limits: {bytes: 2kB}", IN(limits.bytes), 2000},
    {"limits: {bytes: 2 KiB}", IN(limits.bytes), 2048},
    {"limits: {bytes: 1TiB}", IN(limits.bytes), (uint64_t)1 << 40},
    {"limits: {bytes: 0x10}", IN(limits.bytes), 16},
    {"limits: {bytes: 9223372036854775807}", IN(limits.bytes), INT64_MAX},
    {"limits: {memory: 1}", IN(limits.memory.bytes), 1},
    {"limits: {memory: 1}", IN(limits.memory.per_cent), 0},
    {"limits: {memory: 3MiB}", IN(limits.memory.bytes), 3 << 20},
    {"limits: {memory: 1%}", IN(limits.memory.per_cent), 1},
    {"limits: {memory: 100%}", IN(limits.memory.per_cent), 100},
    {"limits: {memory: \"7%\"}", IN(limits.memory.per_cent), 7},
    {"limits: {memory: \"7%\"}", IN(limits.memory.bytes), 0},
    {"rendezvous: {backend: etcd}", IN(rendezvous.backend), CONFIG_BACKEND_ETCD},
    {"rendezvous: {host: no}", IN(rendezvous.host), CONFIG_HOSTING_NO},
    {"rendezvous: {local_ranks: 8}", IN(rendezvous.local_ranks), 8},
    {"rendezvous: {nodes: {min: 2, max: 5}}", IN(rendezvous.nodes.min), 2},
    {"rendezvous: {nodes: {min: 2, max: 5}}", IN(rendezvous.nodes.max), 5},
    {"rendezvous: {timeouts: {join: 1m}}", IN(rendezvous.timeouts.join), 60000000000},
    {"rendezvous: {timeouts: {last_call: 2s}}", IN(rendezvous.timeouts.last_call), 2000000000},
    {"rendezvous: {timeouts: {close: 3s}}", IN(rendezvous.timeouts.close), 3000000000},
    {"rendezvous: {timeouts: {read: 4s}}", IN(rendezvous.timeouts.read), 4000000000},
    {"rendezvous: {heartbeat: {interval: 500ms}}", IN(rendezvous.heartbeat.interval), 500000000},
    {"rendezvous: {heartbeat: {missed: 9}}", IN(rendezvous.heartbeat.missed), 9},
};

TEST(test_numbers)
{
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        struct config config = load(numbers[i].text);
        uint64_t got = 0;

        memcpy(&got, (const char *)&config + numbers[i].at, numbers[i].size);
        if (got != numbers[i].want)
            fail_msg("%s: %llu", numbers[i].text, (unsigned long long)got);
        config_deinit(&config);
    }
}

#define AT(field) offsetof(struct config, field)

static const struct {
    const char *text;
    size_t at;
    const char *want;
} texts[] = {
    {"socket: /tmp/a socket", AT(socket), "/tmp/a socket"},
    {"socket_group: users", AT(socket_group), "users"},
    {"worker: /opt/worker", AT(worker), "/opt/worker"},
    {"rendezvous: {endpoint: 'a:1,b:2'}", AT(rendezvous.endpoint), "a:1,b:2"},
    {"rendezvous: {id: run}", AT(rendezvous.id), "run"},
    {"rendezvous: {node: n7}", AT(rendezvous.node), "n7"},
    {"rendezvous: {user: me}", AT(rendezvous.user), "me"},
    {"rendezvous: {password: secret}", AT(rendezvous.password), "secret"},
    {"rendezvous: {tls: {ca: /a}}", AT(rendezvous.tls.ca), "/a"},
    {"rendezvous: {tls: {certificate: /b}}", AT(rendezvous.tls.certificate), "/b"},
    {"rendezvous: {tls: {key: /c}}", AT(rendezvous.tls.key), "/c"},
    {"metrics: {listen: \"\"}", AT(metrics.listen), ""},
    {"metrics: {listen: \"127.0.0.1:9400\"}", AT(metrics.listen), "127.0.0.1:9400"},
    {"metrics: {listen: \"127.9.8.7:0\"}", AT(metrics.listen), "127.9.8.7:0"},
    {"metrics: {listen: \"[::1]:9400\"}", AT(metrics.listen), "[::1]:9400"},
    {"metrics: {listen: \"[::1]:65535\"}", AT(metrics.listen), "[::1]:65535"},
    {"metrics: {listen: \"[0:0::0:1]:1\"}", AT(metrics.listen), "[0:0::0:1]:1"},
    {"metrics: {listen: \"127.0.0.1:09400\"}", AT(metrics.listen), "127.0.0.1:09400"},
    {"metrics: {listen: /run/dloaderd/page}", AT(metrics.listen), "/run/dloaderd/page"},
};

/* Lists, each as its texts with blanks between them. */
static const struct {
    const char *text;
    size_t at;
    const char *want;
} lists[] = {
    {"data_roots: [/, /proc/self/root/usr/../tmp/.]", AT(data_roots), "/ /tmp"}, /* a link */
    {"plugins: [/, /usr]", AT(plugins), "/ /usr"},
    {"site: {objects: [\"a.b:C\", \"d:e.f\"]}", AT(site.objects), "a.b:C d:e.f"},
    {"site: {plugins: [/usr/../bin/sh]}", AT(site.plugins), "/usr/../bin/sh"}, /* as it stands */
    {"python: [/usr/bin/env, /bin/sh]", AT(python), "/usr/bin/env /bin/sh"},   /* a link, perhaps */
    {"python_path: [/usr/lib/..]", AT(python_path), "/usr"},
    {"remote: {denied: [10.0.0.0/8, \"::1/128\"]}", AT(remote.denied), "10.0.0.0/8 ::1/128"},
};

TEST(test_texts)
{
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct config config = load(texts[i].text);
        const char *text;

        memcpy(&text, (const char *)&config + texts[i].at, sizeof text);
        assert_string_equal(text, texts[i].want);
        config_deinit(&config);
    }
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        struct config config = load(lists[i].text);
        const struct config_dirs *list = (const void *)((const char *)&config + lists[i].at);
        char got[256] = "";

        for (uint32_t k = 0; k < list->n; k++)
            strcat(strcat(got, k > 0 ? " " : ""), list->paths[k]);
        assert_string_equal(got, lists[i].want);
        config_deinit(&config);
    }
}

TEST(test_data_roots_are_seen_elsewhere)
{
    struct config config =
        load("data_roots:\n- /usr/../tmp\n- {path: /usr/../tmp, seen_as: /data}\n"
             "- {seen_as: /none, path: /not/there}\n");

    assert_int_equal(config.data_roots.n, 3);
    assert_string_equal(config.data_roots.seen_as[0], "");
    assert_string_equal(config.data_roots.seen_as[1], "/data");
    assert_string_equal(config.data_roots.seen_as[2], "/none");
    assert_string_equal(config.data_roots.paths[1], "/tmp");
    assert_string_equal(config.data_roots.paths[2], "/not/there");
    config_deinit(&config);
}

/* ---- wrong values --------------------------------------------------------------------------- */

#define NOT_PLAIN                                                                         \
    " cannot be a path that clients see; write it without //, /. and /.., and without / " \
    "at its end"
#define NOT_STRING " is not a string"
#define NOT_ROOT                                                                              \
    "a mapping in it is not of two absolute directories, such as {path: /mnt/data, seen_as: " \
    "/data}"
#define NOT_MODE " is not an octal mode in quotes such as \"0660\""
#define NOT_LIST " is not a list of directories"
#define NOT_DIR  " is not an absolute directory"
/* Other machines reach it, and nobody has to say who they are. */
TEST(test_listening_for_others)
{
    static const char *const others[] = {"0.0.0.0:9400", "10.0.0.1:9400", "128.0.0.1:1",
                                         "[::]:9400", "[::ffff:127.0.0.1]:1"};
    char token[256], text[512], want[512];

    (void)snprintf(token, sizeof token, "%s", harness_file("token", "0123456789abcdef\n", 17));
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        struct config config;

        snprintf(text, sizeof text, "metrics: {listen: \"%s\"}", others[i]);
        snprintf(
            want, sizeof want,
            "\"%s\" is not a local address such as 127.0.0.1:9400 or [::1]:9400; other machines "
            "need a token: set metrics.token_file, or give them access through a proxy",
            others[i]);
        expect_refused(text, EINVAL, "metrics.listen", 0, want);
        snprintf(text, sizeof text, "metrics: {listen: \"%s\", token_file: %s}", others[i], token);
        config = load(text);
        assert_string_equal(config.metrics.token, "0123456789abcdef");
        config_deinit(&config);
    }
}

TEST(test_tokens)
{
    static const char *const wrong_tokens[] = {"0123456789abcde", "0123456789 abcdef",
                                               "0123456789abcd\303\251f", "0123456789abcdef\""};
    char token[256], text[512], want[512];

    for (size_t i = 0; i < ARRAY_SIZE(wrong_tokens); i++) {
        (void)snprintf(token, sizeof token, "%s", harness_text("token", wrong_tokens[i]));
        snprintf(text, sizeof text, "metrics: {token_file: %s}", token);
        snprintf(
            want, sizeof want,
            "the token in %s is not 16 to 512 letters, digits and -._~+/= long; make one with: "
            "openssl rand -hex 32",
            token);
        expect_refused(text, EINVAL, "metrics.token_file", 0, want);
    }
}

#define NOT_DURATION " is not a duration such as 30s or 500ms"
#define NOT_COUNT    " is not a positive integer"
#define NOT_SIZE     " is not a size such as 8GiB"
#define NOT_SHARE    " is not a size such as 8GiB, or a share such as 50%"
#define NOT_LEVEL    " is not one of error, warning, info, debug"
#define NOT_NETWORK  " is not a network such as 169.254.0.0/16 or fe80::/10, one of 64 at the most"
#define NOT_SANDBOX  " is not one of default, strict, off"
#define NOT_ADDRESS                                                                              \
    " is not an address such as 127.0.0.1:9400 or [::1]:9400, nor the path of a socket such as " \
    "/run/dloaderd/page"
#define NOT_OBJECT  " is not module:name, such as mypackage.data:Dataset"
#define NO_SETTING  "no such setting; dloaderd.conf(5) lists them"
#define MEANT(word) "no such setting; did you mean " word "? dloaderd.conf(5) lists them"

static const struct {
    const char *text;
    const char *path;
    uint32_t line;
    const char *message;
} wrong[] = {
    {"socket: 5", "socket", 1, "5" NOT_STRING},
    {"limits.sessions: 4", "limits.sessions", 1, NO_SETTING},
    {"sockets: /x", "sockets", 1, MEANT("socket")},
    {"limits: {sessionz: 1}", "limits.sessionz", 1, MEANT("limits.sessions")},
    {"workers: 4", "workers", 1, MEANT("limits.workers")},
    {"limits: {linger: 4s}", "limits.linger", 1, MEANT("linger")},
    {"rendezvous: {read: 4s}", "rendezvous.read", 1, MEANT("rendezvous.timeouts.read")},
    {"pin_memory: true", "pin_memory", 1,
     "no such setting; it belongs to a loader spec, as memory: {pin: true}"},
    {"colour: red", "colour", 1, NO_SETTING},
    {"socket: null", "socket", 1, "null" NOT_STRING},
    {"socket: [a]", "socket", 1, "a list" NOT_STRING},
    {"socket_group: {}", "socket_group", 1, "a mapping" NOT_STRING},
    {"\n\nworker: true", "worker", 3, "a boolean" NOT_STRING},
    {"worker: 1.5", "worker", 1, "a float" NOT_STRING},

    {"socket_mode: 0660", "socket_mode", 1, "660" NOT_MODE},
    {"socket_mode: 0o660", "socket_mode", 1, "432" NOT_MODE},
    {"socket_mode: \"0668\"", "socket_mode", 1, "\"0668\"" NOT_MODE},
    {"socket_mode: \"1777\"", "socket_mode", 1, "\"1777\"" NOT_MODE},
    {"socket_mode: \"\"", "socket_mode", 1, "\"\"" NOT_MODE},
    {"socket_mode: \"-1\"", "socket_mode", 1, "\"-1\"" NOT_MODE},
    {"socket_mode: \"+660\"", "socket_mode", 1, "\"+660\"" NOT_MODE},
    {"socket_mode: \" 660\"", "socket_mode", 1, "\" 660\"" NOT_MODE},
    {"socket_mode: \"660 \"", "socket_mode", 1, "\"660 \"" NOT_MODE},
    {"socket_mode: rw-rw----", "socket_mode", 1, "\"rw-rw----\"" NOT_MODE},
    {"socket_mode: \"7777777777777777777777777\"", "socket_mode", 1,
     "\"7777777777777777777777777\"" NOT_MODE},

    {"data_roots: /srv", "data_roots", 1, "\"/srv\"" NOT_LIST},
    {"data_roots: {a: b}", "data_roots", 1, "a mapping" NOT_LIST},
    {"data_roots: [srv]", "data_roots", 1, "\"srv\"" NOT_DIR},
    {"data_roots: [/, \"\"]", "data_roots", 1, "\"\"" NOT_DIR},
    {"data_roots: [/, 3]", "data_roots", 1, "3" NOT_DIR},
    {"plugins: /usr", "plugins", 1, "\"/usr\"" NOT_LIST},
    {"plugins: [lib]", "plugins", 1, "\"lib\"" NOT_DIR},
    {"site: 1", "site", 1, "an integer is not a mapping of settings"},
    {"site: {objects: \"a:b\"}", "site.objects", 1, "\"a:b\" is not a list of module:name"},
    {"site: {objects: [a]}", "site.objects", 1, "\"a\"" NOT_OBJECT},
    {"site: {objects: [\":b\"]}", "site.objects", 1, "\":b\"" NOT_OBJECT},
    {"site: {objects: [\"/a:b\"]}", "site.objects", 1, "\"/a:b\"" NOT_OBJECT},
    {"site: {objects: [{a: b}]}", "site.objects", 1, "a mapping" NOT_OBJECT},
    {"site: {plugins: /a.so}", "site.plugins", 1, "\"/a.so\" is not a list of files"},
    {"site: {plugins: [a.so]}", "site.plugins", 1, "\"a.so\" is not the absolute path of a file"},
    {"python: /usr/bin/env", "python", 1, "\"/usr/bin/env\" is not a list of programs"},
    {"python: [env]", "python", 1, "\"env\" is not the absolute path of a program"},
    {"python: [5]", "python", 1, "5 is not the absolute path of a program"},
    {"python_path: /usr", "python_path", 1, "\"/usr\"" NOT_LIST},
    {"python_timeout: soon", "python_timeout", 1, "\"soon\"" NOT_DURATION},
    {"limits: {full: maybe}", "limits.full", 1, "\"maybe\" is not one of refuse, wait"},
    {"limits: {bandwidth: 0}", "limits.bandwidth", 1, "0 is not a size such as 8GiB, or none"},
    {"limits: {bandwidth: fast}", "limits.bandwidth", 1,
     "\"fast\" is not a size such as 8GiB, or none"},
    {"limits: {charge: gid}", "limits.charge", 1, "\"gid\" is not one of uid, cgroup"},
    {"data_roots: [[/]]", "data_roots", 1, "a list" NOT_DIR},
    {"data_roots: [{path: /, seen_as: data}]", "data_roots", 1, NOT_ROOT},
    {"data_roots: [{path: /}]", "data_roots", 1, NOT_ROOT},
    {"data_roots: [{seen_as: /data}]", "data_roots", 1, NOT_ROOT},
    {"data_roots: [{path: /, seen_as: /data, x: 1}]", "data_roots", 1, NOT_ROOT},
    {"data_roots: [{path: 3, seen_as: /data}]", "data_roots", 1, NOT_ROOT},
    {"data_roots: [{path: /, seen_as: /}]", "data_roots", 1, "\"/\"" NOT_PLAIN},
    {"data_roots: [{path: /, seen_as: /a/}]", "data_roots", 1, "\"/a/\"" NOT_PLAIN},
    {"data_roots: [{path: /, seen_as: /a/../b}]", "data_roots", 1, "\"/a/../b\"" NOT_PLAIN},
    {"data_roots: [{path: /, seen_as: /a/..}]", "data_roots", 1, "\"/a/..\"" NOT_PLAIN},
    {"data_roots: [{path: /, seen_as: /a/.}]", "data_roots", 1, "\"/a/.\"" NOT_PLAIN},
    {"data_roots: [{path: /, seen_as: /a//b}]", "data_roots", 1, "\"/a//b\"" NOT_PLAIN},
    {"data_roots: [{path: /, seen_as: /a}, {path: /usr, seen_as: /a}]", "data_roots", 1,
     "/a is the path of two directories for clients; give each its own"},
    {"data_roots: [/a, {path: /usr, seen_as: /a}]", "data_roots", 1,
     "/a is the path of two directories for clients; give each its own"},
    {"data_roots: [{path: /usr, seen_as: /a}, /a]", "data_roots", 1,
     "/a is the path of two directories for clients; give each its own"},
    {"data_roots: [{path: /a, seen_as: /tmp}, /usr/../tmp]", "data_roots", 1,
     "/tmp is the path of two directories for clients; give each its own"},
    {"data_roots: [/usr/../tmp, {path: /a, seen_as: /tmp}]", "data_roots", 1,
     "/tmp is the path of two directories for clients; give each its own"},

    {"linger: -1", "linger", 1, "-1" NOT_DURATION},
    {"linger: -1s", "linger", 1, "\"-1s\"" NOT_DURATION},
    {"linger: 1.5", "linger", 1, "a float" NOT_DURATION},
    {"linger: 9223372036", "linger", 1, "9223372036" NOT_DURATION},
    {"linger: 18446744073709551616ns", "linger", 1, "\"18446744073709551616ns\"" NOT_DURATION},
    {"linger: 18446744073709551615", "linger", 1, "18446744073709551615" NOT_DURATION},
    {"drain_timeout: soon", "drain_timeout", 1, "\"soon\"" NOT_DURATION},
    {"drain_timeout: 3d", "drain_timeout", 1, "\"3d\"" NOT_DURATION},
    {"drain_timeout: \"\"", "drain_timeout", 1, "\"\"" NOT_DURATION},
    {"drain_timeout: []", "drain_timeout", 1, "a list" NOT_DURATION},

    {"log_level: loud", "log_level", 1, "\"loud\"" NOT_LEVEL},
    {"log_level: Info", "log_level", 1, "\"Info\"" NOT_LEVEL},
    {"log_level: 7", "log_level", 1, "7" NOT_LEVEL},
    {"remote: {denied: [10.0.0.1/8]}", "remote.denied", 1, "\"10.0.0.1/8\"" NOT_NETWORK},
    {"remote: {denied: [localhost]}", "remote.denied", 1, "\"localhost\"" NOT_NETWORK},
    {"remote: {denied: [10.0.0.0/8, 1]}", "remote.denied", 1, "1" NOT_NETWORK},
    {"remote: {denied: true}", "remote.denied", 1, "a boolean" NOT_NETWORK},
    {"sandbox: tight", "sandbox", 1, "\"tight\"" NOT_SANDBOX},
    {"sandbox: on", "sandbox", 1, "\"on\"" NOT_SANDBOX},
    {"sandbox: false", "sandbox", 1, "a boolean" NOT_SANDBOX},
    {"rendezvous: {backend: c10}", "rendezvous.backend", 1,
     "\"c10\" is not one of none, etcd, c10d"},
    /* A word of torchrun's. */
    {"rendezvous: {backend: etcd-v2}", "rendezvous.backend", 1,
     "\"etcd-v2\" is not a store of dloaderd, but torchrun's name for etcd by its API v2, which "
     "etcd 3.6 "
     "no longer has: write etcd, which is API v3"},
    {"rendezvous: {host: here}", "rendezvous.host", 1, "\"here\" is not one of auto, yes, no"},
    {"rendezvous: {host: true}", "rendezvous.host", 1, "a boolean is not one of auto, yes, no"},
    {"rendezvous: {nodes: 2}", "rendezvous.nodes", 1, "an integer is not a mapping of settings"},
    {"rendezvous: {nodes: {min: 0}}", "rendezvous.nodes.min", 1, "0 is not a positive integer"},
    {"rendezvous: {nodes.min: 1}", "rendezvous.nodes.min", 1, NO_SETTING},
    {"rendezvous: {nodes: {least: 1}}", "rendezvous.nodes.least", 1, NO_SETTING},
    {"sandbox: 1", "sandbox", 1, "1" NOT_SANDBOX},

    {"limits:\n  sessions: 0", "limits.sessions", 2, "0" NOT_COUNT},
    {"limits: {loaders: -3}", "limits.loaders", 1, "-3" NOT_COUNT},
    {"limits: {workers: \"3\"}", "limits.workers", 1, "\"3\"" NOT_COUNT},
    {"limits: {cpus: 0}", "limits.cpus", 1, "0" NOT_COUNT ", or auto"},
    {"limits: {cpus: all}", "limits.cpus", 1, "\"all\"" NOT_COUNT ", or auto"},
    {"limits: {leases: 2.0}", "limits.leases", 1, "a float" NOT_COUNT},
    {"limits: {leases: 9223372036854775808}", "limits.leases", 1, "9223372036854775808" NOT_COUNT},
    {"limits: {leases: null}", "limits.leases", 1, "null" NOT_COUNT},
    {"limits: {memory: 0}", "limits.memory", 1, "0" NOT_SHARE},
    {"limits: {memory: 0%}", "limits.memory", 1, "\"0%\"" NOT_SHARE},
    {"limits: {memory: 101%}", "limits.memory", 1, "\"101%\"" NOT_SHARE},
    {"limits: {memory: -5%}", "limits.memory", 1, "\"-5%\"" NOT_SHARE},
    {"limits: {memory: 50%x}", "limits.memory", 1, "\"50%x\"" NOT_SHARE},
    {"limits: {memory: half}", "limits.memory", 1, "\"half\"" NOT_SHARE},
    {"limits: {memory: true}", "limits.memory", 1, "a boolean" NOT_SHARE},
    {"limits: {bytes: 0}", "limits.bytes", 1, "0" NOT_SIZE},
    {"limits: {bytes: 0B}", "limits.bytes", 1, "\"0B\"" NOT_SIZE},
    {"limits: {bytes: 0.4B}", "limits.bytes", 1, "\"0.4B\"" NOT_SIZE},
    {"limits: {bytes: -1}", "limits.bytes", 1, "-1" NOT_SIZE},
    {"limits: {bytes: 8G}", "limits.bytes", 1, "\"8G\"" NOT_SIZE},
    {"limits: {bytes: 99999999TiB}", "limits.bytes", 1, "\"99999999TiB\"" NOT_SIZE},
    {"limits: {bytes: false}", "limits.bytes", 1, "a boolean" NOT_SIZE},

    {"metrics: {listen: 9400}", "metrics.listen", 1, "9400" NOT_ADDRESS},
    {"metrics: {listen: []}", "metrics.listen", 1, "a list" NOT_ADDRESS},
    {"metrics: {listen: \"9400\"}", "metrics.listen", 1, "\"9400\"" NOT_ADDRESS},
    {"metrics: {listen: \":9400\"}", "metrics.listen", 1, "\":9400\"" NOT_ADDRESS},
    {"metrics: {listen: \"[]:9400\"}", "metrics.listen", 1, "\"[]:9400\"" NOT_ADDRESS},
    {"metrics: {listen: \"[:9400\"}", "metrics.listen", 1, "\"[:9400\"" NOT_ADDRESS},
    {"metrics: {listen: \"[127.0.0.1]:1\"}", "metrics.listen", 1, "\"[127.0.0.1]:1\"" NOT_ADDRESS},
    {"metrics: {listen: \"::1:9400\"}", "metrics.listen", 1, "\"::1:9400\"" NOT_ADDRESS},
    {"metrics: {listen: \"localhost:9400\"}", "metrics.listen", 1,
     "\"localhost:9400\"" NOT_ADDRESS},
    {"metrics: {listen: \"127.0.0.1\"}", "metrics.listen", 1, "\"127.0.0.1\"" NOT_ADDRESS},
    {"metrics: {listen: \"127.0.0.1:\"}", "metrics.listen", 1, "\"127.0.0.1:\"" NOT_ADDRESS},
    {"metrics: {listen: \"127.0.0.1:65536\"}", "metrics.listen", 1,
     "\"127.0.0.1:65536\"" NOT_ADDRESS},
    {"metrics: {listen: \"127.0.0.1:009400\"}", "metrics.listen", 1,
     "\"127.0.0.1:009400\"" NOT_ADDRESS},
    {"metrics: {listen: \"127.0.0.1:-1\"}", "metrics.listen", 1, "\"127.0.0.1:-1\"" NOT_ADDRESS},
    {"metrics: {listen: \"127.0.0.1: 1\"}", "metrics.listen", 1, "\"127.0.0.1: 1\"" NOT_ADDRESS},
    {"metrics: {listen: \"http://127.0.0.1:1\"}", "metrics.listen", 1,
     "\"http://127.0.0.1:1\"" NOT_ADDRESS},
    {"metrics: {address: x}", "metrics.address", 1, NO_SETTING},

    {"limit: {bytes: 1}", "limit", 1, NO_SETTING},
    {"linger: 1s\nSocket: /x", "Socket", 2, MEANT("socket")},
    {"limits:\n  sessions: 4\n  byte: 1", "limits.byte", 3, MEANT("limits.bytes")},
    {"limits: {limits: {bytes: 1}}", "limits.limits", 1, NO_SETTING},
    {"limits: {\"\": 1}", "limits.", 1, NO_SETTING},
    {"\"\": 1", "", 1, NO_SETTING},
    {"data_roots.x: 1", "data_roots.x", 1, MEANT("data_roots")},
    {"limits: 5", "limits", 1, "an integer is not a mapping of settings"},
    {"linger: 1s\nlimits:\n", "limits", 2, "null is not a mapping of settings"},
    {"limits: [sessions]", "limits", 1, "a list is not a mapping of settings"},
};

TEST(test_wrong_values)
{
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        expect_refused(wrong[i].text, EINVAL, wrong[i].path, wrong[i].line, wrong[i].message);
}

/* The remedy is not pushed out by what was written. */
TEST(test_a_long_wrong_value)
{
    char text[4096];

    memset(text, 'x', sizeof text);
    memcpy(text, "linger: ", 8);
    text[sizeof text - 1] = '\0';
    char want[512];
    snprintf(want, sizeof want, "\"%.256s\"" NOT_DURATION, text + 8);
    expect_refused(text, EINVAL, "linger", 1, want);
}

TEST(test_a_long_key)
{
    char text[1024];
    char path[DL_ERROR_PATH_MAX];

    memset(text, 'k', sizeof text);
    memcpy(text + 1000, ": 1", 4);
    memset(path, 'k', sizeof path);
    path[sizeof path - 1] = '\0';
    expect_refused(text, EINVAL, path, 1, NO_SETTING);
}

TEST(test_wrong_data_roots)
{
    char text[4500];
    char message[4500];
    const char *file = harness_file("a_file", "x", 1);

    expect_refused("plugins: [/, /no/such/directory]", ENOENT, "plugins", 1,
                   "/no/such/directory: No such file or directory");
    expect_refused("site: {plugins: [/no/plugin.so]}", ENOENT, "site.plugins", 1,
                   "/no/plugin.so: No such file or directory");
    expect_refused("site: {plugins: [/usr]}", EINVAL, "site.plugins", 1, "/usr is not a file");
    struct config config = load("data_roots: [/no/such/directory]"); /* it may come later */
    assert_string_equal(config.data_roots.paths[0], "/no/such/directory");
    config_deinit(&config);
    expect_refused("python: [/usr/bin/env, /no/python]", ENOENT, "python", 1,
                   "/no/python cannot be executed: No such file or directory");
    expect_refused("python: [/usr]", EACCES, "python", 1, "/usr is not a program");
    snprintf(text, sizeof text, "data_roots: [%s]", file);
    snprintf(message, sizeof message, "%s: Not a directory", file);
    expect_refused(text, ENOTDIR, "data_roots", 1, message);
    snprintf(text, sizeof text, "data_roots: [%s/below]", file);
    snprintf(message, sizeof message, "%s/below: Not a directory", file);
    expect_refused(text, ENOTDIR, "data_roots", 1, message);
}
