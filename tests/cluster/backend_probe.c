/*
 * A backend by hand: commands on standard input, a line each, and what comes of them on standard
 * output.
 *
 *   get KEY               N TOKEN VALUE, or N 0 if there is none
 *   set KEY TOKEN VALUE   likewise, N won TOKEN VALUE if it was done
 *   watch KEY             from then on "changed", whenever it may have
 *   health                health ENDPOINT ANSWERS CALLS FAILURES
 *
 * N counts the calls. What failed is "N error CODE TEXT". The end of input ends it.
 */
#include "daemon/cluster/etcd.h"

#include <errno.h>
#include <stdio.h>

enum { CALLS_MAX = 4096 };

struct probe {
    uv_loop_t loop;
    uv_pipe_t input;
    struct backend *backend;
    char line[65536];
    size_t len;
    unsigned calls;
    unsigned numbers[CALLS_MAX]; /* of the calls, for their answers */
};

static void on_done(void *owner, const struct backend_answer *answer)
{
    unsigned number = *(unsigned *)owner;

    if (answer->status < 0)
        printf("%u error %d %s: %s\n", number, answer->error->code, answer->error->path,
               answer->error->message);
    else
        printf("%u %s%llu %.*s\n", number, answer->won ? "won " : "",
               (unsigned long long)answer->token, (int)answer->data.len,
               (const char *)answer->data.data);
}

static void on_changed(void *owner)
{
    printf("changed\n");
}

static void health(const struct probe *probe)
{
    struct backend_health health;

    backend_health(probe->backend, &health);
    printf("health %s %d %d %d\n", health.endpoint, health.answers, (int)health.calls,
           (int)health.failures);
}

static void command(struct probe *probe, char *line)
{
    const char *verb = strsep(&line, " "), *key = strsep(&line, " ");
    unsigned *call;

    if (strcmp(verb, "health") == 0) {
        health(probe);
        return;
    }
    if (strcmp(verb, "watch") == 0) {
        if (!backend_watch(probe->backend, key, on_changed, NULL))
            printf("cannot watch\n");
        return;
    }
    if (probe->calls == CALLS_MAX)
        abort();
    call = &probe->numbers[probe->calls];
    *call = ++probe->calls;
    if (strcmp(verb, "get") == 0) {
        backend_get(probe->backend, key, on_done, call);
    } else {
        const char *token = strsep(&line, " ");
        struct dl_span data = {(const uint8_t *)line, strlen(line)};

        backend_set(probe->backend, key, strtoull(token, NULL, 10), data, on_done, call);
    }
}

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
    struct probe *probe = handle->data;

    *buf = uv_buf_init(probe->line + probe->len, (unsigned)(sizeof probe->line - 1 - probe->len));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct probe *probe = stream->data;
    char *end;

    if (n < 0) {
        probe->backend = backend_free(probe->backend);
        uv_close((uv_handle_t *)stream, NULL);
        return;
    }
    probe->len += (size_t)n;
    while ((end = memchr(probe->line, '\n', probe->len))) {
        size_t taken = (size_t)(end - probe->line) + 1;

        *end = 0;
        command(probe, probe->line);
        probe->len -= taken;
        memmove(probe->line, end + 1, probe->len);
    }
}

static const char *setting(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

static int open_backend(struct probe *probe, struct dl_error *err)
{
    const char *timeout = setting("PROBE_TIMEOUT_MS"), *keep = setting("PROBE_KEEP_S");
    struct etcd_options options = {
        .loop = &probe->loop,
        .endpoints = setting("PROBE_ENDPOINTS"),
        .user = setting("PROBE_USER"),
        .password = setting("PROBE_PASSWORD"),
        .ca = setting("PROBE_CA"),
        .cert = setting("PROBE_CERT"),
        .key = setting("PROBE_KEY"),
        .timeout_ns = timeout ? strtoull(timeout, NULL, 10) * 1000000 : 0,
        .keep_s = keep ? strtoull(keep, NULL, 10) : 0,
    };

    return etcd_new(&options, &probe->backend, err);
}

int main(void)
{
    static struct probe probe;
    struct dl_error err = {0};

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (uv_loop_init(&probe.loop) < 0)
        return 1;
    if (open_backend(&probe, &err) < 0) {
        printf("error %d %s: %s\n", err.code, err.path, err.message);
        return 1;
    }
    if (uv_pipe_init(&probe.loop, &probe.input, 0) < 0 || uv_pipe_open(&probe.input, 0) < 0)
        return 1;
    probe.input.data = &probe;
    uv_read_start((uv_stream_t *)&probe.input, on_alloc, on_read);
    uv_run(&probe.loop, UV_RUN_DEFAULT);
    return uv_loop_close(&probe.loop) < 0;
}
