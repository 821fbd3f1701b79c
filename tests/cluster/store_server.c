/*
 * A TCPStore server by itself, as tests and the benchmark start it:
 *
 *   store_server [PORT [HOST [PEERS [STALL_MS]]]]
 *
 * Says "port N" when it listens, then "dropped PEER: WHY" for each it lets go; ends with its
 * standard input, and says then what it kept: "keys N waits N peers N".
 */
#include "daemon/cluster/store/tcpstore_server.h"

#include <inttypes.h>
#include <stdio.h>

static void on_dropped(void *context, const char *peer, const char *why)
{
    (void)context;
    printf("dropped %s: %s\n", peer, why);
    fflush(stdout);
}

static void on_input(uv_poll_t *poll, int status, int events)
{
    char bytes[64];

    (void)status, (void)events;
    if (read(STDIN_FILENO, bytes, sizeof bytes) <= 0)
        uv_stop(poll->loop);
}

int main(int argc, char **argv)
{
    struct dl_error err = {0};
    uv_loop_t loop;
    uv_poll_t input;
    struct tcpstore_server *server = NULL;
    struct tcpstore_server_options options = {.loop = &loop, .fd = -1, .dropped = on_dropped};
    struct tcpstore_counts counts;

    options.port = (uint16_t)(argc > 1 ? strtoul(argv[1], NULL, 10) : 0);
    options.host = argc > 2 && *argv[2] ? argv[2] : NULL;
    options.peers = (uint32_t)(argc > 3 ? strtoul(argv[3], NULL, 10) : 0);
    options.stall_ms = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;
    if (uv_loop_init(&loop) < 0)
        return 1;
    if (tcpstore_server_new(&options, &server, &err) < 0) {
        fprintf(stderr, "store_server: %s: %s\n", err.path, err.message);
        return 1;
    }
    printf("port %u\n", (unsigned)tcpstore_server_port(server));
    fflush(stdout);
    if (uv_poll_init(&loop, &input, STDIN_FILENO) < 0 ||
        uv_poll_start(&input, UV_READABLE, on_input) < 0)
        return 1;
    uv_run(&loop, UV_RUN_DEFAULT);

    counts = tcpstore_server_count(server);
    printf("keys %" PRIu64 " waits %" PRIu64 " peers %" PRIu64 "\n", counts.keys, counts.waits,
           counts.peers);
    tcpstore_server_free(server);
    uv_close((uv_handle_t *)&input, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) == 0 ? 0 : 1;
}
