/*
 * Nodes by hand: COUNT members of a run in one process, each with a backend of its own (probe.h).
 *
 *   member_probe RUN COUNT MIN MAX LAST_CALL_MS
 *
 * Says what each is told: "I round R rank K of N first F world W", "I over", "I evicted", "I left",
 * "I closed TEXT", "I failed TEXT"; and is ready again at once. Takes "join I", "leave I",
 * "close I WHY", "members I" (the nodes it sees, a line each). The end of input ends it. Beats are
 * quicker than those of the defaults, unless PROBE_SLOW is set. As many files are open as may be.
 */
#include "daemon/cluster/member.h"
#include "tests/cluster/probe.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

enum { COUNT_MAX = 1024 };

struct node {
    unsigned number;
    struct member *member;
    uint64_t told; /* the round, and one more */
};

struct probe {
    uv_loop_t loop;
    struct probe_input input;
    struct node nodes[COUNT_MAX];
    unsigned count;
};

static void on_placed(void *owner, uint64_t round, const struct rdzv_place *place)
{
    struct node *node = owner;

    if (node->told != round + 1)
        printf("%u round %" PRIu64 " rank %u of %u first %" PRIu64 " world %" PRIu64 "\n",
               node->number, round, place->rank, place->nodes, place->first, place->world);
    node->told = round + 1;
}

static void on_round(void *owner, const struct rdzv_state *state, const struct rdzv_place *place)
{
    on_placed(owner, state->round, place);
}

static void on_over(void *owner, bool evicted, const char *why)
{
    struct node *node = owner;

    printf("%u %s %s\n", node->number, evicted ? "evicted" : "over", why);
    member_ready(node->member);
}

static void on_ended(void *owner, enum rdzv_news how, const struct dl_error *err)
{
    static const char *const names[] = {
        [RDZV_CLOSED] = "closed", [RDZV_FAILED] = "failed", [RDZV_LEFT] = "left"};
    const struct node *node = owner;

    printf("%u %s %s%s%s\n", node->number, names[how], err ? err->path : "", err ? ": " : "",
           err ? err->message : "");
}

static const struct member_events events = {
    .placed = on_placed, .round = on_round, .over = on_over, .ended = on_ended};

static void show_members(const struct member *member)
{
    const struct rdzv_state *state = member_state(member);

    for (uint32_t i = 0; state && i < state->n; i++)
        printf("member %s %s\n", state->nodes[i].name,
               state->nodes[i].member ? "member" : "waiting");
    printf("members %u\n", state ? state->n : 0);
}

static void command(void *owner, char *line)
{
    const struct probe *probe = owner;
    const char *verb = strsep(&line, " "), *number = strsep(&line, " ");
    struct member *member = probe->nodes[strtoul(number, NULL, 10)].member;

    if (strcmp(verb, "join") == 0)
        member_join(member);
    else if (strcmp(verb, "leave") == 0)
        member_leave(member);
    else if (strcmp(verb, "close") == 0)
        member_close(member, line);
    else
        show_members(member);
}

static void on_end(void *owner)
{
    struct probe *probe = owner;

    for (unsigned i = 0; i < probe->count; i++)
        probe->nodes[i].member = member_free(probe->nodes[i].member);
}

static int open_node(struct probe *probe, char **argv, unsigned number)
{
    struct rdzv_settings settings = RDZV_DEFAULTS;
    struct member_options options = {.loop = &probe->loop,
                                     .run = argv[1],
                                     .settings = &settings,
                                     .local = 2,
                                     .events = &events,
                                     .owner = &probe->nodes[number]};
    const char *prefix = getenv("PROBE_NAME");
    struct dl_error err = {0};
    char name[32];

    settings.min = (uint32_t)strtoul(argv[3], NULL, 10);
    settings.max = (uint32_t)strtoul(argv[4], NULL, 10);
    settings.last_call_ns = strtoull(argv[5], NULL, 10) * 1000000;
    if (!getenv("PROBE_SLOW")) {
        settings.poll_ns = 500000000;
        settings.beat_ns = 1000000000;
        settings.missed = 8;
    }
    (void)snprintf(name, sizeof name, "%s%u", prefix ? prefix : "node", number);
    options.name = name;
    probe->nodes[number].number = number;
    int r = probe_backend(&probe->loop, &options.backend, &err);
    if (r == 0)
        r = member_new(&options, &probe->nodes[number].member, &err);
    if (r < 0)
        printf("error %s: %s\n", err.path, err.message);
    return r;
}

/* Each node has connections of its own. */
static void open_many(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv)
{
    static struct probe probe;

    open_many();

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 6 || uv_loop_init(&probe.loop) < 0)
        return 2;
    probe.count = (unsigned)strtoul(argv[2], NULL, 10);
    if (probe.count > COUNT_MAX)
        return 2;
    for (unsigned i = 0; i < probe.count; i++)
        if (open_node(&probe, argv, i) < 0)
            return 1;
    probe.input.command = command;
    probe.input.ended = on_end;
    probe.input.owner = &probe;
    if (probe_input_open(&probe.loop, &probe.input) < 0)
        return 1;
    uv_run(&probe.loop, UV_RUN_DEFAULT);
    return uv_loop_close(&probe.loop) < 0;
}
