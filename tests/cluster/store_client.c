/*
 * The daemon's TCPStore client by itself, as tests start it:
 *
 *   store_client HOST PORT DIALECT      DIALECT: 0 to be found out, 1, 2
 *
 * For each line "OP KEY VALUE SECOND NUMBER TIMEOUT_MS" of standard input ("-": empty) says
 * "DIALECT ok ANSWER" or "DIALECT error CODE TEXT".
 */
#include "daemon/cluster/store/tcpstore_client.h"

#include <inttypes.h>
#include <stdio.h>

struct asked {
    uv_loop_t *loop;
    struct tcpstore_client *client;
    enum tcpstore_op op;
    bool answered;
};

static const char *const replies[TCPSTORE_OPS] = {
#define OP(NAME, v1, v2, request, reply) [TCPSTORE_##NAME] = (reply),
#include "daemon/cluster/store/tcpstore_ops.def"
#undef OP
};

static void on_answer(void *owner, const struct tcpstore_answer *answer)
{
    struct asked *asked = owner;
    struct tcpstore_fields fields = answer->fields;
    int dialect = (int)tcpstore_client_dialect(asked->client);

    asked->answered = true;
    uv_stop(asked->loop); /* an answer by a timer does not end uv_run() otherwise */
    if (answer->status < 0) {
        printf("%d error %d %s: %s\n", dialect, -answer->status, answer->error->path,
               answer->error->message);
    } else if (*replies[asked->op] == 'v') {
        struct dl_span span = tcpstore_take_span(&fields);
        printf("%d ok %.*s\n", dialect, (int)span.len, (const char *)span.data);
    } else if (*replies[asked->op] == 'i') {
        printf("%d ok %" PRId64 "\n", dialect, tcpstore_take_i64(&fields));
    } else if (*replies[asked->op] == 'b') {
        printf("%d ok %u\n", dialect, (unsigned)fields.at[0]);
    } else {
        printf("%d ok\n", dialect);
    }
    fflush(stdout);
}

static bool find_op(const char *name, enum tcpstore_op *ret)
{
    for (int op = 0; op < TCPSTORE_OPS; op++) {
        *ret = (enum tcpstore_op)op;
        if (strcmp(tcpstore_op_name(*ret), name) == 0)
            return true;
    }
    return false;
}

static struct dl_span word(const char *text)
{
    return span_str(strcmp(text, "-") == 0 ? "" : text);
}

static bool ask(uv_loop_t *loop, struct tcpstore_client *client, const char *line)
{
    char op[32], key[512], value[4096], second[4096];
    struct asked asked = {.loop = loop, .client = client};
    struct tcpstore_question question = {.times = 1};

    if (sscanf(line, "%31s %511s %4095s %4095s %" SCNd64 " %" SCNu64, op, key, value, second,
               &question.number, &question.timeout_ms) != 6 ||
        !find_op(op, &asked.op))
        return false;
    const struct dl_span keys[] = {word(key)};
    const struct dl_span values[] = {word(value), word(second)};
    question.op = asked.op;
    question.keys = keys;
    question.values = values;
    if (tcpstore_client_ask(client, &question, on_answer, &asked) < 0)
        return false;
    while (!asked.answered)
        uv_run(loop, UV_RUN_ONCE);
    return true;
}

int main(int argc, char **argv)
{
    char line[9000];
    uv_loop_t loop;
    int status = 0;

    if (argc != 4 || uv_loop_init(&loop) < 0)
        return 2;
    const struct tcpstore_client_options options = {
        .loop = &loop,
        .host = argv[1],
        .port = (uint16_t)strtoul(argv[2], NULL, 10),
        .dialect = (enum tcpstore_dialect)strtol(argv[3], NULL, 10),
    };
    struct tcpstore_client *client = tcpstore_client_new(&options);
    if (!client)
        return 2;
    while (status == 0 && fgets(line, sizeof line, stdin))
        status = ask(&loop, client, line) ? 0 : 2;
    tcpstore_client_free(client);
    uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) == 0 ? status : 1;
}
