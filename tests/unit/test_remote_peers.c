/* Three nodes in one process, each with its own disk, memory and socket, and one store: whatever
 * order things come in, each block leaves the store once, and then never again; of an object that
 * was replaced each block once more; and when a node dies the others read on. By random schedules,
 * in which the test alone says when the store answers. */
#include "tests/lib/uv_threads.h"

#include "daemon/fetcher/desk.h"
#include "daemon/fetcher/promises.h"
#include "proto/fdpass.h"
#include "proto/peer_card.h"
#include "tests/lib/splitmix.h"
#include "tests/unit/remote_store.h"

#include <arpa/inet.h>
#include <sys/socket.h>

enum {
    BLOCK = REMOTE_BLOCK_BYTES,
    NODES = 3,
    BLOCKS = 37, /* of the object: two groups, and a part of one */
    SCHEDULES = 3,
    EPOCHS = 2,
};

#define PLENTY (UINT64_C(1) << 30)

static const uint64_t object_bytes = (BLOCKS - 1) * (uint64_t)BLOCK + 99;

/* A node, and its worker, which reads each block once, in an order of its own. */
struct node {
    char path[256], address[PEER_ADDRESS_MAX];
    int listener; /* the peers', once they are there */
    struct kept *kept;
    struct peers *peers;
    struct desk *desk; /* NULL: it is dead */
    int sock, fd;      /* of the worker; -1: it has ended, or has not mapped it */
    uint32_t object;
    uint64_t version, at;
    uint32_t order[BLOCKS];
};

struct cluster {
    uv_loop_t loop;
    struct node nodes[NODES];
    uint64_t random, version, room; /* of each node */
    uint32_t given[BLOCKS];         /* how often the store gave each, of this version */
};

static struct cluster cluster;

static uint64_t below(uint64_t n)
{
    return next_random(&cluster.random) % n;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static void node_listen(struct node *node)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;

    node->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(node->listener >= 0);
    assert_int_equal(bind(node->listener, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(node->listener, 64), 0);
    assert_int_equal(getsockname(node->listener, (struct sockaddr *)&address, &len), 0);
    snprintf(node->address, sizeof node->address, "127.0.0.1:%u", ntohs(address.sin_port));
}

static void node_begin(struct node *node)
{
    struct dl_error err = {0};

    snprintf(node->path, sizeof node->path, "%s/disk-XXXXXX", harness_tmpdir());
    assert_non_null(mkdtemp(node->path));
    node->sock = node->fd = -1;
    node->kept = kept_new(&cluster.loop, node->path, cluster.room);
    assert_int_equal(peers_new(&cluster.loop, node->kept, &store.tally, &node->peers, &err), 0);
    node->desk = desk_new(&cluster.loop, &store, node->kept, 64 * BLOCK);
    desk_set_peers(node->desk, node->peers);
    node_listen(node);
    peers_listen(node->peers, node->listener);
}

static void node_end(struct node *node)
{
    if (node->sock >= 0)
        close(node->sock);
    if (node->fd >= 0)
        close(node->fd);
    node->sock = node->fd = -1;
    node->desk = desk_free(node->desk);
    node->peers = peers_free(node->peers);
    node->kept = kept_free(node->kept);
}

static void tell_list(void)
{
    for (size_t self = 0; self < NODES; self++) {
        char text[1024];
        int len = snprintf(text, sizeof text, "self %016zx\n", self + 1);

        for (size_t i = 0; i < NODES; i++)
            len += snprintf(text + len, sizeof text - (size_t)len,
                            "node %016zx 1 %s %u %llu %032zx\n", i + 1, cluster.nodes[i].address,
                            geteuid(), (unsigned long long)cluster.room, i);
        peers_set_list(cluster.nodes[self].peers, span_str(text));
    }
}

/* ---- the store ------------------------------------------------------------------------------ */

static void answer_one(void)
{
    struct transfer *transfer = store.list;

    for (uint64_t skip = below(store.n); skip > 0; skip--)
        transfer = transfer->next;
    const struct transfer_order *order = &transfer->order;
    char etag[32];

    snprintf(etag, sizeof etag, "\"%llu\"", (unsigned long long)cluster.version);
    bool is_same = order->unless && strcmp(order->unless, etag) == 0;
    bool is_old = *order->etag && strcmp(order->etag, etag) != 0;
    for (uint64_t at = order->first; !is_same && !is_old && at <= order->last; at += BLOCK)
        cluster.given[at / BLOCK] += order->last - at >= BLOCK - 1 || at / BLOCK == BLOCKS - 1;
    give_bytes(transfer, 0, cluster.version, object_bytes);
}

/* ---- workers -------------------------------------------------------------------------------- */

static void ask(struct node *node, struct remote_question question)
{
    if (question.op == REMOTE_PAGED)
        snprintf(question.url, sizeof question.url, "s3://bucket/0");
    size_t bytes = offsetof(struct remote_question, url) + strlen(question.url) + 1;
    assert_int_equal(send(node->sock, &question, bytes, MSG_NOSIGNAL), bytes);
}

static uint64_t bytes_from(uint64_t block, uint64_t n)
{
    return min_u64(n * BLOCK, object_bytes - block * BLOCK);
}

static void ask_blocks(struct node *node, uint32_t op, uint64_t block, uint64_t n)
{
    ask(node, (struct remote_question){.op = op,
                                       .object = node->object,
                                       .first = block * BLOCK,
                                       .bytes = bytes_from(block, n)});
}

static void begin_worker(struct node *node)
{
    int pair[2];

    if (!node->desk)
        return;
    if (node->sock >= 0)
        close(node->sock);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    node->sock = pair[0];
    node->at = 0;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        uint64_t other = below(i + 1);
        node->order[i] = node->order[other];
        node->order[other] = i;
    }
    desk_add(node->desk, pair[1], 0);
    ask(node, (struct remote_question){.op = REMOTE_PAGED});
}

/* Now and then it says what it will need: many blocks at once. */
static void ask_next(struct node *node)
{
    if (node->at == BLOCKS)
        return;
    if (below(3) == 0) {
        uint64_t block = below(BLOCKS);
        ask_blocks(node, below(2) ? REMOTE_EXPECT : REMOTE_AHEAD, block, 1 + below(20));
    }
    ask_blocks(node, REMOTE_NEED, node->order[node->at], 1);
}

static void take_mapped(struct node *node, const struct remote_answer *answer, int fd)
{
    if (node->fd >= 0)
        close(node->fd);
    node->fd = fd;
    node->object = answer->object;
    node->version = (uint64_t)answer->modified;
    ask_next(node);
}

static void take_block(struct node *node)
{
    uint64_t block = node->order[node->at++];
    uint8_t byte = 0;

    assert_int_equal(pread(node->fd, &byte, 1, (off_t)(block * BLOCK + below(99))), 1);
    assert_int_equal(byte, content_at(0, node->version, block * BLOCK));
    ask_blocks(node, REMOTE_DROP, block, 1);
    ask_next(node);
}

/* False: it waits. */
static bool run_worker(struct node *node)
{
    struct remote_answer answer;
    int fd;

    if (node->sock < 0 ||
        fdpass_recv_packet(node->sock, &answer, sizeof answer, MSG_DONTWAIT, &fd) <= 0)
        return false;
    assert_int_equal(answer.code, 0);
    if (fd >= 0)
        take_mapped(node, &answer, fd);
    else
        take_block(node);
    return true;
}

/* ---- schedules ------------------------------------------------------------------------------ */

static void begin(uint64_t seed, uint64_t room)
{
    memset(&cluster, 0, sizeof cluster);
    cluster.random = seed;
    cluster.room = room;
    cluster.version = 1;
    store_begin();
    assert_int_equal(uv_loop_init(&cluster.loop), 0);
    for (size_t i = 0; i < NODES; i++)
        node_begin(&cluster.nodes[i]);
    tell_list();
}

static void end(void)
{
    for (size_t i = 0; i < NODES; i++)
        node_end(&cluster.nodes[i]);
    uv_run(&cluster.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&cluster.loop), 0);
    remote_settings_deinit(&store.settings);
}

static bool all_have_read(void)
{
    for (size_t i = 0; i < NODES; i++)
        if (cluster.nodes[i].desk && cluster.nodes[i].at < BLOCKS)
            return false;
    return true;
}

/* The store answers late: most of what may happen before has happened then. */
static void step(void)
{
    bool some = false;

    for (size_t i = 0; i < NODES; i++)
        some |= run_worker(&cluster.nodes[i]);
    if (!some && store.n > 0 && below(8) == 0) {
        answer_one();
        some = true; /* a worker may have its answer now, at a socket that the loop does not know */
    }
    uv_run(&cluster.loop, some || store.n > 0 ? UV_RUN_NOWAIT : UV_RUN_ONCE);
}

static uint64_t blocks_read(void)
{
    uint64_t n = 0;

    for (size_t i = 0; i < NODES; i++)
        n += cluster.nodes[i].at;
    return n;
}

/* An epoch; `then` happens in the middle of it. */
static void read_epoch(void (*then)(void))
{
    for (size_t i = 0; i < NODES; i++)
        begin_worker(&cluster.nodes[i]);
    while (!all_have_read()) {
        step();
        if (then && blocks_read() > BLOCKS) {
            then();
            then = NULL;
        }
    }
    assert_null(then);
}

static void check_given(uint32_t most, const char *when)
{
    for (uint32_t i = 0; i < BLOCKS; i++)
        if (cluster.given[i] < 1 || cluster.given[i] > most)
            fail_msg("%s: block %u has left the store %u times, not 1 to %u", when, i,
                     cluster.given[i], most);
}

TEST(test_once)
{
    for (uint64_t seed = 1; seed <= SCHEDULES; seed++) {
        begin(seed, PLENTY);
        for (int epoch = 0; epoch < EPOCHS; epoch++) {
            read_epoch(NULL);
            check_given(1, epoch ? "in the second epoch" : "in the first epoch");
        }
        assert_int_equal(remote_tally_read(&store.tally, REMOTE_PEERS_FAILED), 0);
        end();
    }
}

static uint32_t sum_given(void)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < BLOCKS; i++)
        sum += cluster.given[i];
    return sum;
}

/* Three nodes with room for a third each, one of which owns more by chance: what it has no room for
 * is at others. All need all at the same time. */
TEST(test_thirds)
{
    for (uint64_t seed = 1; seed <= SCHEDULES; seed++) {
        begin(seed, (BLOCKS / NODES + 2) * (uint64_t)(BLOCK + 4096));
        for (int epoch = 0; epoch < EPOCHS + 1; epoch++) {
            read_epoch(NULL);
            check_given(1, "a third each");
        }
        assert_int_equal(remote_tally_read(&store.tally, REMOTE_PEERS_FAILED), 0);
        end();
    }
}

/* Also by nodes that have it all, and hear of it one after another: nearly once. The first block
 * says to each what it is, and is dropped by it then. */
TEST(test_replaced)
{
    begin(1, PLENTY);
    read_epoch(NULL);
    cluster.version++;
    memset(cluster.given, 0, sizeof cluster.given);
    read_epoch(NULL);
    assert_in_range(cluster.given[0], 1, NODES);
    cluster.given[0] = 1;
    check_given(2, "replaced between two epochs");
    assert_in_range(sum_given(), BLOCKS, BLOCKS + BLOCKS / 8);
    end();
}

static void lose_one(void)
{
    node_end(&cluster.nodes[2]);
}

/* What it owned each of the others takes by itself. */
TEST(test_one_dies)
{
    begin(1, PLENTY);
    read_epoch(lose_one);
    read_epoch(NULL);
    check_given(NODES, "one has died");
    end();
}

/* ---- promises ------------------------------------------------------------------------------- */

static void on_over(void *owner)
{
    (*(int *)owner)++;
}

TEST(test_promises)
{
    int of_a = 0, of_b = 0, a, b;
    uv_loop_t loop;

    assert_int_equal(uv_loop_init(&loop), 0);
    struct promises *promises = promises_new(&loop);
    promises_make(promises, "x", 0, 4, &a);
    promises_make(promises, "x", 2, 4, &b); /* two of them are b's by now */
    for (uint64_t i = 0; i < 6; i++)
        (void)promises_wait(promises, "x", i, on_over, i < 2 ? &of_a : &of_b);
    assert_false(promises_have(promises, "x", 6) || promises_have(promises, "y", 0));
    promises_end_of(promises, &a);
    assert_true(of_a == 2 && of_b == 0);
    promises_end(promises, "x", 1, 2); /* of which one is none any more */
    assert_int_equal(of_b, 1);
    promises_end_of(promises, &a);
    promises_end_of(promises, &b);
    assert_int_equal(of_b, 4);
    assert_false(promises_have(promises, "x", 5));
    promises_free(promises);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}
