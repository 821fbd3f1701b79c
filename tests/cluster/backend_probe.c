/*
 * A backend by hand: commands on standard input, a line each, and what comes of them on standard
 * output.
 *
 *   get KEY               N TOKEN VALUE, or N 0 if there is none
 *   set KEY TOKEN VALUE   likewise, N won TOKEN VALUE if it was done
 *   put KEY ASK VALUE     N TOKEN VALUE of what lies under ASK
 *   list PREFIX ASK       likewise, before it NAME=VALUE of each key and a bar
 *   drop KEY              N 0
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

static void show(unsigned number, const struct backend_answer *answer)
{
    printf("%u %s%llu ", number, answer->won ? "won " : "", (unsigned long long)answer->token);
    for (uint32_t i = 0; i < answer->n; i++)
        printf("%s=%.*s ", answer->items[i].name, (int)answer->items[i].data.len,
               (const char *)answer->items[i].data.data);
    printf("%s%.*s\n", answer->items ? "| " : "", (int)answer->data.len,
           (const char *)answer->data.data);
}

static void on_done(void *owner, const struct backend_answer *answer)
{
    unsigned number = *(unsigned *)owner;

    if (answer->status < 0)
        printf("%u error %d %s: %s\n", number, answer->error->code, answer->error->path,
               answer->error->message);
    else
        show(number, answer);
}

static void on_changed(void *owner, struct dl_span data)
{
    (void)owner, (void)data;
    printf("changed\n");
}

static void health(const struct probe *probe)
{
    struct backend_health health;

    backend_health(probe->backend, &health);
    printf("health %s %d %d %d %d\n", health.endpoint, health.answers, (int)health.calls,
           (int)health.failures, health.here);
}

static void ask(struct backend *backend, const char *verb, const char *key, char *line,
                unsigned *call)
{
    const char *second = line ? strsep(&line, " ") : NULL;

    if (strcmp(verb, "get") == 0)
        backend_get(backend, key, on_done, call);
    else if (strcmp(verb, "drop") == 0)
        backend_drop(backend, key, on_done, call);
    else if (strcmp(verb, "list") == 0)
        backend_list(backend, key, second, on_done, call);
    else if (strcmp(verb, "put") == 0)
        backend_put(backend, key, span_str(line), second, on_done, call);
    else
        backend_set(backend, key, strtoull(second, NULL, 10), span_str(line), on_done, call);
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
    ask(probe->backend, verb, key, line, call);
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
