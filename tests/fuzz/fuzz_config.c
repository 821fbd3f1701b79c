/*
 * Bytes as a configuration file: refused with a whole error, or a configuration in which every
 * value is possible, which reads the same again, and whose settings written out by hand give it
 * back.
 */
#include "tests/fuzz/fuzz.h"

#include "daemon/base/config.h"

#include <inttypes.h>
#include <sys/mman.h>

/* A file of these bytes, by a path that needs no file system. */
static int make_file(const void *data, size_t len, char *ret_path, size_t path_len)
{
    int fd = memfd_create("config", MFD_CLOEXEC);

    FUZZ_ASSERT(fd >= 0 && write(fd, data, len) == (ssize_t)len);
    snprintf(ret_path, path_len, "/proc/self/fd/%d", fd);
    return fd;
}

static void check_dirs(const struct config_dirs *dirs)
{
    FUZZ_ASSERT((dirs->n == 0) == (dirs->paths == NULL));
    for (uint32_t i = 0; i < dirs->n; i++)
        FUZZ_ASSERT(dirs->paths[i][0] == '/');
}

static void check(const struct config *config)
{
    FUZZ_ASSERT(config->socket && config->socket_group && config->worker);
    FUZZ_ASSERT(config->socket_mode <= 0777);
    FUZZ_ASSERT(config->limits.sessions > 0 && config->limits.sessions <= INT64_MAX);
    FUZZ_ASSERT(config->limits.loaders > 0 && config->limits.loaders <= INT64_MAX);
    FUZZ_ASSERT(config->limits.workers > 0 && config->limits.workers <= INT64_MAX);
    FUZZ_ASSERT(config->limits.epochs > 0 && config->limits.epochs <= INT64_MAX);
    FUZZ_ASSERT(config->limits.leases > 0 && config->limits.leases <= INT64_MAX);
    FUZZ_ASSERT(config->limits.bytes > 0);
    FUZZ_ASSERT(config->log_level == LOG_ERROR || config->log_level == LOG_WARNING ||
                config->log_level == LOG_INFO || config->log_level == LOG_DEBUG);
    FUZZ_ASSERT(config->sandbox <= CONFIG_SANDBOX_OFF);
    check_dirs(&config->data_roots);
    check_dirs(&config->plugins);
    check_dirs(&config->python);
    check_dirs(&config->python_path);
    check_dirs(&config->site.plugins);
    for (uint32_t i = 0; i < config->site.objects.n; i++)
        FUZZ_ASSERT(strchr(config->site.objects.paths[i], ':'));
}

static void expect_same_numbers(const struct config *a, const struct config *b)
{
    FUZZ_ASSERT(a->socket_mode == b->socket_mode && a->log_level == b->log_level);
    FUZZ_ASSERT(a->linger == b->linger && a->drain_timeout == b->drain_timeout);
    FUZZ_ASSERT(a->python_timeout == b->python_timeout && a->open_timeout == b->open_timeout);
    FUZZ_ASSERT(memcmp(&a->limits, &b->limits, sizeof a->limits) == 0);
}

static void expect_same_dirs(const struct config_dirs *a, const struct config_dirs *b)
{
    FUZZ_ASSERT(a->n == b->n);
    for (uint32_t i = 0; i < a->n; i++)
        FUZZ_ASSERT(strcmp(a->paths[i], b->paths[i]) == 0);
}

static void expect_same(const struct config *a, const struct config *b)
{
    expect_same_numbers(a, b);
    FUZZ_ASSERT(strcmp(a->socket, b->socket) == 0 && strcmp(a->worker, b->worker) == 0);
    FUZZ_ASSERT(strcmp(a->socket_group, b->socket_group) == 0);
    expect_same_dirs(&a->data_roots, &b->data_roots);
    expect_same_dirs(&a->plugins, &b->plugins);
    expect_same_dirs(&a->python, &b->python);
    expect_same_dirs(&a->python_path, &b->python_path);
    expect_same_dirs(&a->site.objects, &b->site.objects);
    expect_same_dirs(&a->site.plugins, &b->site.plugins);
}

static const char *level_name(enum log_level level)
{
    return level == LOG_ERROR     ? "error"
           : level == LOG_WARNING ? "warning"
           : level == LOG_INFO    ? "info"
                                  : "debug";
}

static void check_written_out(const struct config *config)
{
    const struct config_limits *limits = &config->limits;
    char text[1024];
    char path[64];
    struct config again = {0};
    int n = snprintf(text, sizeof text,
                     "socket_mode: \"%o\"\nlinger: %" PRIu64 "ns\ndrain_timeout: %" PRIu64
                     "ns\npython_timeout: %" PRIu64 "ns\nopen_timeout: %" PRIu64
                     "ns\nlog_level: %s\nlimits:\n  sessions: %" PRIu64 "\n  loaders: %" PRIu64
                     "\n  workers: %" PRIu64 "\n  bytes: %" PRIu64 "B\n  memory: %" PRIu64
                     "%s\n  leases: %" PRIu64 "\n",
                     config->socket_mode, config->linger, config->drain_timeout,
                     config->python_timeout, config->open_timeout, level_name(config->log_level),
                     limits->sessions, limits->loaders, limits->workers, limits->bytes,
                     limits->memory.per_cent ? limits->memory.per_cent : limits->memory.bytes,
                     limits->memory.per_cent ? "%" : "B", limits->leases);
    int fd = make_file(text, (size_t)n, path, sizeof path);

    FUZZ_ASSERT(config_load(path, &again, NULL) == 0);
    close(fd);
    expect_same_numbers(config, &again);
    config_deinit(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct config config = {0};
    struct config again = {0};
    struct dl_error err = {0};
    char path[64];
    int fd = make_file(data, len, path, sizeof path);
    int r = config_load(path, &config, &err);

    FUZZ_ASSERT(config_load(path, &again, NULL) == r);
    close(fd);
    if (r < 0) {
        FUZZ_ASSERT(err.code == -r && err.message[0]);
        FUZZ_ASSERT(!config.socket && !again.socket);
        return 0;
    }
    FUZZ_ASSERT(err.code == 0);
    check(&config);
    expect_same(&config, &again);
    check_written_out(&config);
    config_deinit(&config);
    config_deinit(&again);
    return 0;
}
