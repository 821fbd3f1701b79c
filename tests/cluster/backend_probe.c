/*
 * A backend by hand: commands on standard input, a line each, and what comes of them on standard
 * output.
 *
 *   get KEY               N TOKEN VALUE, or N 0 if there is none
 *   set KEY TOKEN VALUE   likewise, N won TOKEN VALUE if it was done
 *   watch KEY             from then on "changed", whenever it may have; with etcd also "renewed",
 *                         when it is not the same key any more
 *   health                health ENDPOINT ANSWERS CALLS FAILURES HERE
 *
 * N counts the calls. What failed is "N error CODE TEXT". The end of input ends it.
 */
#include "tests/cluster/probe.h"

#include <stdio.h>

enum { CALLS_MAX = 4096 };

struct probe {
    uv_loop_t loop;
    struct probe_input input;
    struct backend *backend;
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
    printf("health %s %d %d %d %d\n", health.endpoint, health.answers, (int)health.calls,
           (int)health.failures, health.here);
}

static void command(void *owner, char *line)
{
    struct probe *probe = owner;
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

static void on_end(void *owner)
{
    struct probe *probe = owner;

    probe->backend = backend_free(probe->backend);
}

int main(void)
{
    static struct probe probe;
    struct dl_error err = {0};

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (uv_loop_init(&probe.loop) < 0)
        return 1;
    if (probe_backend(&probe.loop, &probe.backend, &err) < 0) {
        printf("error %d %s: %s\n", err.code, err.path, err.message);
        return 1;
    }
    probe.input.command = command;
    probe.input.ended = on_end;
    probe.input.owner = &probe;
    if (probe_input_open(&probe.loop, &probe.input) < 0)
        return 1;
    uv_run(&probe.loop, UV_RUN_DEFAULT);
    return uv_loop_close(&probe.loop) < 0;
}
