/* What the configuration says of the rendezvous. */
#include "daemon/base/log.h"
#include "daemon/cluster/world/members_private.h"
#include "proto/spec_table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define SECOND ((uint64_t)1000000000)

enum { ID_MAX = 128 };

/* What is asked more often than each millisecond is no store. */
static const uint64_t QUICKEST_OF_ONE_MISSED = RDZV_POLLS_OF_ONE_MISSED * SECOND / 1000;

void members_name_self(const struct config_rendezvous *config, char ret[RDZV_NAME_MAX])
{
    char host[256] = "";

    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(ret, RDZV_NAME_MAX, "%.*s", RDZV_NAME_MAX - 1,
                   *config->node ? config->node
                   : *host       ? host
                                 : "node");
}

static int members_config_check_name(const char *path, const char *text, size_t max,
                                     struct dl_error *err)
{
    size_t len = strlen(text);

    if (len == 0)
        return dl_error_set(err, EINVAL, path,
                            "is missing: give the same one on all nodes of a "
                            "run");
    if (len > max)
        return dl_error_set(err, EINVAL, path, "has %zu bytes, more than the maximum of %zu", len,
                            max);
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~' || text[i] == '/')
            return dl_error_set(err, EINVAL, path,
                                "\"%s\" has other characters than letters, digits and marks "
                                "other than /",
                                text);
    return 0;
}

/* It ends in a slash, as what the daemon puts behind it does not begin with one. */
static int members_config_check_prefix(const char *text, struct dl_error *err)
{
    static const char path[] = "rendezvous.prefix";
    size_t len = strlen(text);

    if (len < 2 || text[0] != '/' || text[len - 1] != '/')
        return dl_error_set(err, EINVAL, path,
                            "\"%s\" does not begin and end with a slash, as /dloader/ does", text);
    if (len >= BACKEND_PREFIX_MAX)
        return dl_error_set(err, EINVAL, path, "has %zu bytes, more than the maximum of %d", len,
                            BACKEND_PREFIX_MAX - 1);
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return dl_error_set(err, EINVAL, path,
                                "\"%s\" has other characters than letters, digits and marks", text);
    return 0;
}

struct rdzv_settings members_settings(const struct config_rendezvous *config)
{
    struct rdzv_settings set = RDZV_DEFAULTS;

    set.min = (uint32_t)config->nodes.min;
    set.max = (uint32_t)config->nodes.max;
    set.missed = (uint32_t)config->heartbeat.missed;
    set.join_ns = config->timeouts.join;
    set.last_call_ns = config->timeouts.last_call;
    set.close_ns = config->timeouts.close;
    set.beat_ns = config->heartbeat.interval;
    set.poll_ns = min_u64(set.poll_ns,
                          set.missed == 1 ? set.beat_ns / RDZV_POLLS_OF_ONE_MISSED : set.beat_ns);
    return set;
}

uint64_t members_fence_ns(const struct config_rendezvous *config)
{
    struct rdzv_settings set = members_settings(config);

    return config->fence ? config->fence : rdzv_silence(&set);
}

static int members_config_check_numbers(const struct config_rendezvous *config,
                                        struct dl_error *err)
{
    const struct {
        const char *path;
        uint64_t value, min, max;
    } numbers[] = {
        {"rendezvous.local_ranks", config->local_ranks, 1, RDZV_LOCAL_MAX},
        {"rendezvous.nodes.max", config->nodes.max, 1, RDZV_NODES_MAX},
        {"rendezvous.nodes.min", config->nodes.min, 1, config->nodes.max},
        {"rendezvous.heartbeat.missed", config->heartbeat.missed, 1, 1000},
    };
    const struct {
        const char *path;
        uint64_t value;
    } times[] = {
        {"rendezvous.timeouts.join", config->timeouts.join},
        {"rendezvous.timeouts.last_call", config->timeouts.last_call},
        {"rendezvous.timeouts.close", config->timeouts.close},
        {"rendezvous.timeouts.read", config->timeouts.read},
        {"rendezvous.heartbeat.interval", config->heartbeat.interval},
        {"rendezvous.fence", members_fence_ns(config)},
    };

    char said[SPEC_DURATION_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        if (numbers[i].value < numbers[i].min || numbers[i].value > numbers[i].max)
            return dl_error_set(err, EINVAL, numbers[i].path,
                                "%" PRIu64 " is not from %" PRIu64 " to %" PRIu64, numbers[i].value,
                                numbers[i].min, numbers[i].max);
    format_duration(config->keep, said);
    if (config->keep != 0 && (config->keep < 60 * SECOND || config->keep > 3660 * 86400 * SECOND))
        return dl_error_set(err, EINVAL, "rendezvous.keep", "%s is not 0, nor from 1m to 87840h",
                            said);
    for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
        format_duration(times[i].value, said);
        if (times[i].value < SECOND / 1000 || times[i].value > 30 * 86400 * SECOND)
            return dl_error_set(err, EINVAL, times[i].path, "%s is not from 1ms to 720h", said);
    }
    format_duration(config->heartbeat.interval, said);
    if (config->heartbeat.missed == 1 && config->heartbeat.interval < QUICKEST_OF_ONE_MISSED)
        return dl_error_set(err, EINVAL, "rendezvous.heartbeat.interval",
                            "%s is not from 8ms, where not one may be missed", said);
    return 0;
}

/* Other than what a reload takes over. */
static bool members_config_differs(const struct config_rendezvous *a,
                                   const struct config_rendezvous *b)
{
    return a->backend != b->backend || a->host != b->host || strcmp(a->id, b->id) != 0 ||
           strcmp(a->prefix, b->prefix) != 0 || strcmp(a->node, b->node) != 0 ||
           a->local_ranks != b->local_ranks || memcmp(&a->nodes, &b->nodes, sizeof a->nodes) != 0 ||
           memcmp(&a->timeouts, &b->timeouts, sizeof a->timeouts) != 0 ||
           memcmp(&a->heartbeat, &b->heartbeat, sizeof a->heartbeat) != 0 || a->fence != b->fence ||
           a->keep != b->keep || strcmp(a->user, b->user) != 0 ||
           (a->backend == CONFIG_BACKEND_C10D && strcmp(a->endpoint, b->endpoint) != 0);
}

int members_reload(struct members *m, const struct config_rendezvous *before,
                   const struct config_rendezvous *now, struct dl_error *err)
{
    bool differs = members_config_differs(before, now);
    int r = 0;

    if (differs)
        log_warning("rendezvous: of the changes to the configuration, only those of etcd's "
                    "endpoint and password take effect before the next start");
    if (m && before->backend == CONFIG_BACKEND_ETCD && now->backend == CONFIG_BACKEND_ETCD &&
        (strcmp(before->endpoint, now->endpoint) != 0 ||
         strcmp(before->password, now->password) != 0)) {
        r = members_backend_move(m, now, err);
        if (r == 0)
            log_info("rendezvous %s: the store is now at %s", m->id, now->endpoint);
    }
    return r;
}

int members_check_name(const char *path, const char *text, struct dl_error *err)
{
    return members_config_check_name(path, text, ID_MAX, err);
}

int members_check(const struct config_rendezvous *config, bool for_helpers, struct dl_error *err)
{
    bool alone = for_helpers && !*config->id;
    char name[RDZV_NAME_MAX];

    if (config->backend == CONFIG_BACKEND_NONE)
        return 0;
    int r = members_backend_check(config, err);
    members_name_self(config, name);
    if (r == 0 && !alone)
        r = members_check_name("rendezvous.id", config->id, err);
    if (r == 0)
        r = members_config_check_prefix(config->prefix, err);
    if (r == 0)
        r = members_config_check_name("rendezvous.node", *config->node ? config->node : name,
                                      RDZV_NAME_MAX - 1, err);
    return r < 0 ? r : members_config_check_numbers(config, err);
}
