/* What workers ask the fetcher is answered, whatever order the store's answers come in and whatever
 * becomes of the objects meanwhile: by random schedules. */
#include "tests/lib/uv_threads.h"

#include "daemon/fetcher/desk.h"
#include "proto/fdpass.h"
#include "tests/lib/splitmix.h"
#include "tests/unit/remote_others.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

enum {
    BLOCK = REMOTE_BLOCK_BYTES,
    OBJECTS = 3,
    WORKERS = 3,
    FILES = 4, /* that a worker has mapped at once */
    STEPS = 300,
    SCHEDULES = 80,
    LIMIT = 8 * BLOCK,
    WINDOW = 4,
};

static const uint64_t sizes[OBJECTS] = {0, 3 * BLOCK + 5, 20 * BLOCK};

/* ---- what is in the store ------------------------------------------------------------------- */

struct file {
    size_t i;
    uint64_t version, blocks;
    uint32_t number;
    int fd;
};

struct worker {
    int sock;               /* -1: it has not come yet */
    uint32_t op;            /* the question that is open; 0: none */
    size_t i;               /* of that object, */
    uint64_t first, bytes;  /* REMOTE_NEED: of this block on, so many of */
    struct file *file;      /* that file */
    uint64_t came[OBJECTS]; /* versions when it came */
    struct file files[FILES];
    uint32_t n_files;
};

struct sim {
    uv_loop_t loop;
    struct desk *desk;
    struct kept *kept; /* nothing */
    uint64_t random;
    uint64_t versions[OBJECTS]; /* from 1 */
    struct worker workers[WORKERS];
    bool fails;    /* now and then a transfer does */
    uint32_t told; /* errors */
    bool waited;   /* as the last answer to REMOTE_NEED says */
};

static uint64_t below(struct sim *sim, uint64_t n)
{
    return next_random(&sim->random) % n;
}

static void give_page(struct transfer *transfer)
{
    struct remote_headers headers;
    char page[256];
    int len = snprintf(page, sizeof page,
                       "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>%zu/x"
                       "</Key><Size>7</Size></Contents></ListBucketResult>",
                       object_of(transfer->order.place->url));

    remote_headers_init(&headers);
    headers.status = 200;
    end_transfer(transfer, &(struct transfer_result){.headers = &headers,
                                                     .body = {(const uint8_t *)page, (size_t)len}});
}

/* Another node has blocks of the version that is asked for, or of any that ever was; or some of
 * them, or none, or they may be on disk by now. */
static void answer_peer(struct sim *sim)
{
    struct peer_call *call = others.list;
    struct peer_result result = {.modified = -1};
    static uint8_t content[TRANSFER_BYTES_MAX];
    char etag[REMOTE_ETAG_MAX];
    uint64_t version;

    if (others.n == 0)
        return;
    for (uint64_t skip = below(sim, others.n); skip > 0; skip--)
        call = call->next;
    struct peer_call ended = *call;
    peer_call_cancel(call);
    result.n = 1 + below(sim, ended.n);
    result.again = below(sim, 4) == 0;
    if (*ended.etag)
        version = strtoull(ended.etag + 1, NULL, 10);
    else
        version = 1 + below(sim, sim->versions[ended.i]);
    if (!result.again && sizes[ended.i] > 0 && below(sim, 3) > 0) {
        uint64_t begin = ended.first * BLOCK,
                 end = min_u64(sizes[ended.i], begin + result.n * BLOCK);

        snprintf(etag, sizeof etag, "\"%llu\"", (unsigned long long)version);
        for (uint64_t at = begin; at < end; at += BLOCK)
            memset(content + (at - begin), content_at(ended.i, version, at),
                   min_u64(BLOCK, end - at));
        result = (struct peer_result){.n = result.n,
                                      .data = {content, end - begin},
                                      .bytes = sizes[ended.i],
                                      .etag = etag,
                                      .modified = (int64_t)version};
    } else if (!result.again && below(sim, 2)) {
        result.chain = others_chain(&others, result.n);
    }
    ended.done(ended.owner, &result);
}

static void answer_transfer(struct sim *sim)
{
    struct transfer *transfer = store.list;

    if (store.n == 0)
        return;
    for (uint64_t skip = below(sim, store.n); skip > 0; skip--)
        transfer = transfer->next;
    size_t i = object_of(transfer->order.place->url);
    if (sim->fails && below(sim, 8) == 0)
        fail_transfer(transfer, below(sim, 2) ? -EIO : -ENOENT);
    else if (transfer->order.page)
        give_page(transfer);
    else
        give_bytes(transfer, i, sim->versions[i], sizes[i]);
}

/* ---- workers -------------------------------------------------------------------------------- */

static void add_worker_of(struct sim *sim, struct worker *worker, uint64_t loader)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    *worker = (struct worker){.sock = pair[0]};
    memcpy(worker->came, sim->versions, sizeof worker->came);
    desk_add(sim->desk, pair[1], loader);
}

static void add_worker(struct sim *sim, struct worker *worker)
{
    add_worker_of(sim, worker, 0);
}

static void remove_worker(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->n_files; i++)
        close(worker->files[i].fd);
    if (worker->sock >= 0)
        close(worker->sock);
    *worker = (struct worker){.sock = -1};
}

static void run_loop(struct sim *sim)
{
    for (int i = 0; i < 3; i++) /* handles that are closed take a round more */
        uv_run(&sim->loop, UV_RUN_NOWAIT);
}

static void send_question(struct sim *sim, const struct worker *worker,
                          const struct remote_question *question)
{
    size_t bytes = offsetof(struct remote_question, url) + strlen(question->url) + 1;

    assert_int_equal(send(worker->sock, question, bytes, MSG_NOSIGNAL), bytes);
    run_loop(sim);
}

static void ask_url(struct sim *sim, struct worker *worker, uint32_t op)
{
    struct remote_question question = {.op = op};

    size_t i = below(sim, OBJECTS);

    snprintf(question.url, sizeof question.url, "s3://bucket/%zu%s", i,
             op == REMOTE_EXPECT && below(sim, 3) == 0 ? "/" : "");
    if (op <= REMOTE_NEED) {
        worker->op = op;
        worker->i = i;
    }
    send_question(sim, worker, &question);
}

static void ask_blocks(struct sim *sim, struct worker *worker, uint32_t op)
{
    if (worker->n_files == 0)
        return;
    struct file *file = &worker->files[below(sim, worker->n_files)];
    uint64_t first = below(sim, file->blocks);
    struct remote_question question = {
        .op = op,
        .object = file->number,
        .first = first * BLOCK,
        .bytes = min_u64(sizes[file->i] - first * BLOCK, BLOCK * (1 + below(sim, 2)))};

    if (op == REMOTE_NEED) {
        worker->op = op;
        worker->first = first;
        worker->bytes = question.bytes;
        worker->file = file;
        worker->i = file->i;
    }
    send_question(sim, worker, &question);
}

static void close_file(struct sim *sim, struct worker *worker)
{
    if (worker->n_files == 0)
        return;
    struct file *file = &worker->files[--worker->n_files];
    close(file->fd);
    send_question(sim, worker,
                  &(struct remote_question){.op = REMOTE_CLOSE, .object = file->number});
}

static void take_action(struct sim *sim, struct worker *worker)
{
    if (worker->sock < 0) {
        add_worker(sim, worker);
        return;
    }
    switch (below(sim, worker->op ? 4 : 12)) {
    case 0:
        if (below(sim, 10) == 0)
            remove_worker(worker);
        break;
    case 1:
        ask_url(sim, worker, below(sim, 2) ? REMOTE_EXPECT : REMOTE_AHEAD);
        break;
    case 2:
        ask_blocks(sim, worker, below(sim, 2) ? REMOTE_EXPECT : REMOTE_AHEAD);
        break;
    case 3:
        if (!worker->op)
            ask_blocks(sim, worker, REMOTE_DROP);
        break;
    case 4:
        close_file(sim, worker);
        if (below(sim, 4) == 0)
            send_question(sim, worker, &(struct remote_question){.op = REMOTE_ANEW});
        break;
    case 5:
        ask_url(sim, worker, REMOTE_STAT);
        break;
    case 6:
        ask_url(sim, worker, REMOTE_LIST);
        break;
    case 7:
        ask_url(sim, worker, REMOTE_WHOLE);
        break;
    case 8:
        if (worker->n_files < FILES)
            ask_url(sim, worker, REMOTE_PAGED);
        break;
    default:
        ask_blocks(sim, worker, REMOTE_NEED);
    }
}

/* ---- answers -------------------------------------------------------------------------------- */

static bool receive(const struct worker *worker, struct remote_answer *ret, int *ret_fd)
{
    *ret_fd = -1;
    return worker->sock >= 0 &&
           fdpass_recv_packet(worker->sock, ret, sizeof *ret, MSG_DONTWAIT, ret_fd) > 0;
}

static void check_bytes(struct sim *sim, int fd, size_t i, uint64_t version, uint64_t first,
                        uint64_t bytes)
{
    for (int tries = 0; tries < 8 && bytes > 0; tries++) {
        uint64_t at = first + (tries == 0 ? 0 : tries == 1 ? bytes - 1 : below(sim, bytes));
        uint8_t byte = 0;

        assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
        assert_int_equal(byte, content_at(i, version, at));
    }
}

static void take_answer(struct sim *sim, struct worker *worker, const struct remote_answer *answer,
                        int fd)
{
    uint32_t op = worker->op;
    size_t i = worker->i;
    uint64_t version = (uint64_t)answer->modified;

    assert_int_not_equal(op, 0); /* one that is open */
    worker->op = 0;
    if (answer->code) {
        sim->told++;
        assert_true(sim->fails || answer->code == ESTALE);
        assert_true(answer->message[0] != '\0');
        return;
    }
    if (answer->sort == REMOTE_DIRECTORY) {
        assert_true(op == REMOTE_STAT || (op == REMOTE_LIST && fd >= 0 && answer->bytes > 0));
        return;
    }
    assert_int_equal(answer->sort, REMOTE_OBJECT);
    if (op == REMOTE_NEED) {
        sim->waited = answer->waited;
        assert_int_equal(version, worker->file->version);
        assert_in_range(answer->bytes, worker->bytes, max_u64(worker->bytes, WINDOW / 2 * BLOCK));
        check_bytes(sim, worker->file->fd, i, version, worker->first * BLOCK, answer->bytes);
        return;
    }
    assert_int_equal(answer->bytes, sizes[i]);
    assert_in_range(version, worker->came[i], sim->versions[i]);
    if (op == REMOTE_WHOLE)
        check_bytes(sim, fd, i, version, 0, sizes[i]);
    if (op == REMOTE_PAGED)
        assert_int_equal(answer->window, WINDOW);
    if (op == REMOTE_PAGED && sizes[i] > 0)
        worker->files[worker->n_files++] = (struct file){.i = i,
                                                         .version = version,
                                                         .blocks = (sizes[i] + BLOCK - 1) / BLOCK,
                                                         .number = answer->object,
                                                         .fd = dup(fd)};
}

static uint32_t count_open(struct sim *sim)
{
    uint32_t n = 0;

    for (size_t k = 0; k < WORKERS; k++) {
        struct remote_answer answer;
        struct worker *worker = &sim->workers[k];
        int fd;

        while (receive(worker, &answer, &fd)) {
            take_answer(sim, worker, &answer, fd);
            if (fd >= 0)
                close(fd);
        }
        n += worker->op != 0;
    }
    return n;
}

/* ---- schedules ------------------------------------------------------------------------------ */

static void begin(struct sim *sim, uint64_t seed)
{
    *sim = (struct sim){.random = seed, .fails = seed % 3 == 0};
    store_begin();
    assert_int_equal(uv_loop_init(&sim->loop), 0);
    sim->kept = kept_new(&sim->loop, "", 0);
    sim->desk = desk_new(&sim->loop, &store, sim->kept, LIMIT);
    others = (struct peers){.random = seed};
    desk_set_peers(sim->desk, seed % 2 ? &others : NULL);
    for (size_t i = 0; i < OBJECTS; i++)
        sim->versions[i] = 1;
    for (size_t k = 0; k < WORKERS; k++)
        sim->workers[k].sock = -1;
}

static void end(struct sim *sim)
{
    for (size_t k = 0; k < WORKERS; k++)
        remove_worker(&sim->workers[k]);
    run_loop(sim);
    sim->desk = desk_free(sim->desk); /* which asserts that nobody uses anything */
    sim->kept = kept_free(sim->kept);
    run_loop(sim);
    assert_int_equal(store.n, 0);
    assert_int_equal(others.n, 0);
    assert_int_equal(uv_loop_close(&sim->loop), 0);
    remote_settings_deinit(&store.settings);
}

/* Nobody waits for nothing: who has a question open waits for a transfer, or another node. */
static void check_progress(struct sim *sim, uint64_t seed)
{
    if (count_open(sim) > 0 && store.n + others.n == 0)
        fail_msg("schedule %llu: a worker waits, and nothing is under way",
                 (unsigned long long)seed);
}

static void take_step(struct sim *sim)
{
    switch (below(sim, 6)) {
    case 0:
    case 1:
        take_action(sim, &sim->workers[below(sim, WORKERS)]);
        break;
    case 2:
        if (below(sim, 12) == 0)
            sim->versions[below(sim, OBJECTS)]++;
        break;
    case 3:
        answer_peer(sim);
        break;
    default:
        answer_transfer(sim);
    }
    run_loop(sim);
}

TEST(test_schedules)
{
    struct sim sim;

    uint64_t asked = 0, brought = 0;

    for (uint64_t seed = 1; seed <= SCHEDULES; seed += harness_stride()) {
        begin(&sim, seed);
        for (int step = 0; step < STEPS; step++) {
            take_step(&sim);
            check_progress(&sim, seed);
        }
        while (store.n + others.n > 0) {
            answer_transfer(&sim);
            answer_peer(&sim);
            run_loop(&sim);
            check_progress(&sim, seed);
        }
        asked += others.asked;
        brought += others.brought;
        assert_int_equal(others.turns, 0);
        end(&sim);
    }
    assert_true(asked > 0 && brought > 0);
}

/* Two workers want to know what an object is; the second one came after it was asked for the first.
 */
TEST(test_asked_twice)
{
    struct sim sim;

    begin(&sim, 2);
    for (size_t k = 0; k < 2; k++) {
        add_worker(&sim, &sim.workers[k]);
        sim.workers[k].op = REMOTE_STAT;
        sim.workers[k].i = 1;
        send_question(&sim, &sim.workers[k],
                      &(struct remote_question){.op = REMOTE_STAT, .url = "s3://bucket/1"});
    }
    assert_int_equal(store.n, 1);
    answer_transfer(&sim);
    assert_int_equal(count_open(&sim), 1);
    assert_int_equal(store.n, 1); /* it may be another one by now */
    answer_transfer(&sim);
    assert_int_equal(count_open(&sim), 0);
    end(&sim);
}

/* Of one loader the second one has the first one's answer, when it comes later; of another loader
 * it has not. */
TEST(test_asked_by_a_loader)
{
    static const uint64_t loaders[WORKERS] = {7, 7, 8};
    struct sim sim;

    begin(&sim, 4);
    for (size_t k = 0; k < WORKERS; k++) {
        add_worker_of(&sim, &sim.workers[k], loaders[k]);
        sim.workers[k].op = REMOTE_WHOLE;
        sim.workers[k].i = 1;
        send_question(&sim, &sim.workers[k],
                      &(struct remote_question){.op = REMOTE_WHOLE, .url = "s3://bucket/1"});
        assert_int_equal(store.n, k != 1);
        while (store.n > 0)
            answer_transfer(&sim);
        assert_int_equal(count_open(&sim), 0);
    }
    end(&sim);
}

/* The second one expects a block while the first one's question is under way: what the object is by
 * then is asked, too, before the second one wants to know. */
TEST(test_expected_meanwhile)
{
    struct sim sim;
    struct remote_question question = {.op = REMOTE_STAT, .url = "s3://bucket/1"};

    begin(&sim, 2);
    for (size_t k = 0; k < 2; k++) {
        add_worker(&sim, &sim.workers[k]);
        send_question(&sim, &sim.workers[k], &question);
        question.op = REMOTE_EXPECT;
        question.bytes = BLOCK;
    }
    sim.workers[0].op = REMOTE_STAT;
    sim.workers[0].i = 1;
    assert_int_equal(store.n, 1);
    answer_transfer(&sim);
    assert_int_equal(count_open(&sim), 0);
    assert_int_equal(store.n, 2); /* the block, and that */
    answer_transfer(&sim);
    answer_transfer(&sim);
    sim.workers[1].op = question.op = REMOTE_STAT;
    sim.workers[1].i = 1;
    send_question(&sim, &sim.workers[1], &question);
    assert_int_equal(count_open(&sim), 0);
    end(&sim);
}

static void ask_block(struct sim *sim, struct worker *worker, uint32_t op, uint64_t block)
{
    send_question(
        sim, worker,
        &(struct remote_question){
            .op = op, .object = worker->files[0].number, .first = block * BLOCK, .bytes = BLOCK});
}

static void need_block(struct sim *sim, struct worker *worker, uint64_t block)
{
    worker->op = REMOTE_NEED;
    worker->first = block;
    worker->bytes = BLOCK;
    worker->file = &worker->files[0];
    worker->i = 2;
    ask_block(sim, worker, REMOTE_NEED, block);
}

/* One that is there. */
static void read_block(struct sim *sim, struct worker *worker, uint64_t block)
{
    need_block(sim, worker, block);
    assert_int_equal(count_open(sim), 0);
}

/* Of two workers that have mapped the object of 20 blocks; its first block is held then. */
static void begin_mapped(struct sim *sim)
{
    begin(sim, 2);
    for (size_t k = 0; k < 2; k++) {
        struct worker *worker = &sim->workers[k];

        add_worker(sim, worker);
        worker->op = REMOTE_PAGED;
        worker->i = 2;
        send_question(sim, worker,
                      &(struct remote_question){.op = REMOTE_PAGED, .url = "s3://bucket/2"});
        answer_transfer(sim);
        run_loop(sim);
        assert_int_equal(count_open(sim), 0);
        assert_int_equal(worker->n_files, 1);
    }
}

/* The only transfer is of that block; it is answered. */
static void answer_block(struct sim *sim, uint64_t block)
{
    assert_int_equal(store.n, 1);
    assert_int_equal(store.list->order.first, block * BLOCK);
    answer_transfer(sim);
    run_loop(sim);
}

/* What is ahead is fetched in its order, each worker's in turn, until a fourth of the memory has
 * what nobody has read yet; what is expected is fetched before it. */
TEST(test_ahead)
{
    struct sim sim;
    struct worker *a = &sim.workers[0], *b = &sim.workers[1];

    begin_mapped(&sim);
    ask_block(&sim, a, REMOTE_AHEAD, 5);
    ask_block(&sim, a, REMOTE_AHEAD, 7);
    ask_block(&sim, a, REMOTE_AHEAD, 9);
    ask_block(&sim, b, REMOTE_AHEAD, 15);
    answer_block(&sim, 5); /* it and the first one are a fourth */
    assert_int_equal(store.n, 0);
    ask_block(&sim, b, REMOTE_EXPECT, 12);
    answer_block(&sim, 12);
    read_block(&sim, a, 12);
    assert_int_equal(store.n, 0);
    read_block(&sim, a, 5);
    answer_block(&sim, 7);
    read_block(&sim, a, 7);
    answer_block(&sim, 15);
    ask_block(&sim, a, REMOTE_ANEW, 0);
    read_block(&sim, b, 15);
    assert_int_equal(store.n, 0); /* and not block 9 */
    end(&sim);
}

/* After a seek, and for whoever comes after a worker that has gone, there is the fourth of the
 * memory again: nobody comes for what was fetched before. */
TEST(test_ahead_anew)
{
    struct sim sim;
    struct worker *a = &sim.workers[0], *b = &sim.workers[1];

    begin_mapped(&sim);
    ask_block(&sim, a, REMOTE_AHEAD, 5);
    answer_block(&sim, 5);
    ask_block(&sim, a, REMOTE_AHEAD, 6);
    assert_int_equal(store.n, 0);
    ask_block(&sim, a, REMOTE_ANEW, 0);
    ask_block(&sim, a, REMOTE_AHEAD, 7);
    answer_block(&sim, 7);
    ask_block(&sim, a, REMOTE_AHEAD, 9);
    answer_block(&sim, 9);
    ask_block(&sim, b, REMOTE_AHEAD, 11);
    assert_int_equal(store.n, 0);
    remove_worker(a);
    run_loop(&sim);
    answer_block(&sim, 11);
    end(&sim);
}

/* Where there is room in memory, the store has no more to do for it than it has to answer. */
TEST(test_ahead_waits_for_requests)
{
    struct sim sim;
    struct worker *worker = &sim.workers[0];

    begin_mapped(&sim);
    read_block(&sim, worker, 0); /* all of the fourth is free */
    for (uint64_t block = 1; block <= STORE_ROOM; block++)
        ask_block(&sim, worker, REMOTE_EXPECT, 2 * block);
    assert_int_equal(store.n, STORE_ROOM);
    ask_block(&sim, worker, REMOTE_AHEAD, 1);
    assert_int_equal(store.n, STORE_ROOM);
    while (store.n > 0) { /* they are more than a fourth */
        answer_transfer(&sim);
        run_loop(&sim);
    }
    for (uint64_t block = 1; block <= STORE_ROOM; block++)
        read_block(&sim, worker, 2 * block);
    answer_block(&sim, 1);
    end(&sim);
}

/* Who reads in sequence asks for more at once when it had to wait; not where the link is full: what
 * it needs first would come later. */
TEST(test_waited)
{
    struct sim sim;
    struct worker *worker = &sim.workers[0];

    begin_mapped(&sim);
    need_block(&sim, worker, 3);
    answer_block(&sim, 3);
    assert_int_equal(count_open(&sim), 0);
    assert_true(sim.waited);
    read_block(&sim, worker, 3);
    assert_false(sim.waited);
    for (uint64_t block = 1; block <= STORE_ROOM; block++)
        ask_block(&sim, worker, REMOTE_EXPECT, 2 * block + 4);
    need_block(&sim, worker, 5);
    while (store.n > 0) {
        answer_transfer(&sim);
        run_loop(&sim);
    }
    assert_int_equal(count_open(&sim), 0);
    assert_false(sim.waited);
    end(&sim);
}

/* What is there, and said to be read later, is not what makes room for others. */
TEST(test_ahead_stays)
{
    struct sim sim;
    struct worker *worker = &sim.workers[0];

    begin_mapped(&sim);
    for (uint64_t block = 1; block <= 10; block++) {
        if (block == 8)
            ask_block(&sim, worker, REMOTE_AHEAD, 1);
        need_block(&sim, worker, block);
        answer_block(&sim, block);
        assert_int_equal(count_open(&sim), 0);
        ask_block(&sim, worker, REMOTE_DROP, block);
    }
    read_block(&sim, worker, 1);
    end(&sim);
}
