#include "tests/cluster/probe.h"

#include "daemon/cluster/store/c10d.h"
#include "daemon/cluster/store/etcd.h"

#include <stdio.h>

/* ---- the input ------------------------------------------------------------------------------ */

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
    struct probe_input *input = handle->data;

    (void)size;
    *buf = uv_buf_init(input->line + input->len, (unsigned)(sizeof input->line - 1 - input->len));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct probe_input *input = stream->data;
    char *end;

    (void)buf;
    if (n < 0) {
        input->ended(input->owner);
        uv_close((uv_handle_t *)stream, NULL);
        return;
    }
    input->len += (size_t)n;
    while ((end = memchr(input->line, '\n', input->len))) {
        size_t taken = (size_t)(end - input->line) + 1;

        *end = 0;
        input->command(input->owner, input->line);
        input->len -= taken;
        memmove(input->line, end + 1, input->len);
    }
}

int probe_input_open(uv_loop_t *loop, struct probe_input *input)
{
    int r = uv_pipe_init(loop, &input->pipe, 0);

    if (r == 0)
        r = uv_pipe_open(&input->pipe, STDIN_FILENO);
    if (r < 0)
        return r;
    input->pipe.data = input;
    return uv_read_start((uv_stream_t *)&input->pipe, on_alloc, on_read);
}

/* ---- the backend ---------------------------------------------------------------------------- */

static const char *setting(const char *name)
{
    const char *value = getenv(name);

    return value && *value ? value : NULL;
}

static uint64_t number(const char *name)
{
    const char *value = setting(name);

    return value ? strtoull(value, NULL, 10) : 0;
}

static void on_said(void *context, enum c10d_saying what, const char *text)
{
    (void)context;
    printf("host %s: %s\n", what == C10D_TROUBLE ? "bad" : "good", text);
}

static int open_c10d(uv_loop_t *loop, struct backend **ret, struct dl_error *err)
{
    const char *hosting = setting("PROBE_HOSTING");
    struct c10d_options options = {.loop = loop,
                                   .endpoint = setting("PROBE_ENDPOINTS"),
                                   .timeout_ns = number("PROBE_TIMEOUT_MS") * 1000000,
                                   .said = on_said};

    if (hosting && strcmp(hosting, "no") != 0)
        options.hosting = strcmp(hosting, "yes") == 0 ? C10D_HOST_YES : C10D_HOST_AUTO;
    return c10d_new(&options, ret, err);
}

static void on_renewed(void *context)
{
    (void)context;
    printf("renewed\n");
}

static int open_etcd(uv_loop_t *loop, struct backend **ret, struct dl_error *err)
{
    struct etcd_options options = {
        .loop = loop,
        .endpoints = setting("PROBE_ENDPOINTS"),
        .user = setting("PROBE_USER"),
        .password = setting("PROBE_PASSWORD"),
        .ca = setting("PROBE_CA"),
        .cert = setting("PROBE_CERT"),
        .key = setting("PROBE_KEY"),
        .timeout_ns = number("PROBE_TIMEOUT_MS") * 1000000,
        .run = setting("PROBE_RUN"),
        .keep_s = number("PROBE_KEEP_S"),
        .renewed = on_renewed,
    };

    return etcd_new(&options, ret, err);
}

int probe_backend(uv_loop_t *loop, struct backend **ret, struct dl_error *err)
{
    const char *name = setting("PROBE_BACKEND");

    return name && strcmp(name, "c10d") == 0 ? open_c10d(loop, ret, err)
                                             : open_etcd(loop, ret, err);
}
