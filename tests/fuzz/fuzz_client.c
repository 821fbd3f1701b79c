/*
 * A hostile daemon against libdlclient: after WELCOME, OPENED and STARTED the input says what it
 * sends, what it writes into the shared memory, and what the user does meanwhile. The library may
 * refuse, never crash, hang or leak; what it hands out can be read to the last byte.
 *
 * Input: a sequence of an operation byte and its arguments, see the table in step(). Raw bytes go
 * into the socket as they are, so that the parser of frames is fuzzed in every state as well. The
 * last byte says, besides, whether the client is the sampler (32), or the dataset is iterable (64),
 * and in any order (128).
 */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/input.h"

#include "client/internal.h"
#include "proto/fdpass.h"
#include "proto/slot_fill.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum {
    STREAM = 3,
    SEGMENT = 5,
    SLOTS = 4,
    SLOT_BYTES = 8192,
    BYTES = SEGMENT_HEADER_BYTES + SLOTS * SLOT_BYTES,
    TREE_AT = 256,
    DATA_AT = 4096,
    STEPS = 40,
    CREDITS = 6,
    HELD_MAX = 8,
    ANSWERED_NS = 20 * 1000 * 1000,
    UNANSWERED_NS = 1000,
};

struct play {
    struct input input;
    int sock;
    int memfd;
    uint8_t *base;
    uint64_t sent;    /* steps delivered as they should be */
    uint64_t number;  /* of the epoch */
    uint32_t stream;  /* that batches are of */
    uint32_t segment; /* that they lie in */
    struct dl_client *client;
    struct dl_loader *loader;
    struct dl_epoch *epoch; /* NULL once ended */
    struct dl_batch *current;
    struct dl_batch *pinned[HELD_MAX];
    struct DLManagedTensor *tensors[HELD_MAX];
};

/* The first fields of what dl_batch_dlpack() gives. */
struct managed {
    const uint8_t *data;
    uint8_t rest[40];
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
};

/* Of a spec: its sections' fingerprints, in OPENED. */
/* One weight, 1, from position 5 on. */
static const uint64_t CHANGES[] = {1, 5, UINT64_C(0x3ff0000000000000)};
static const uint8_t PARTS[40];

/* ---- the daemon ---- */

static void send_bytes(struct play *p, const void *data, size_t len, int fd)
{
    uint8_t sink[4096];
    ssize_t n;

    while ((n = recv(p->sock, sink, sizeof sink, MSG_DONTWAIT)) > 0)
        ;
    if (len > 0)
        n = fdpass_send(p->sock, data, len, &fd, fd >= 0, MSG_DONTWAIT);
    (void)n; /* the client may have closed: nobody minds */
}

static void send_message(struct play *p, const struct dl_message *msg, int fd)
{
    struct dl_buffer out = {0};

    if (message_encode(msg, &out) == 0)
        send_bytes(p, out.data, out.len, fd);
    buffer_deinit(&out);
}

static void fill_slot(uint8_t *slot, uint64_t step, uint64_t epoch)
{
    struct slot_header *header = (struct slot_header *)(void *)slot;
    const uint64_t indices[2] = {step * 2, step * 2 + 1};
    struct tree tree = {0};

    FUZZ_ASSERT(slot_prepare(slot, SLOT_BYTES,
                             &(struct slot_task){.generation = step + 1,
                                                 .step = step,
                                                 .epoch = epoch,
                                                 .indices = indices,
                                                 .samples = 2}));
    if (tree_add(&tree, TREE_DICT, NULL, step % 2 ? 5 : 4) == 0 &&
        tree_add_tensor(&tree, "x", DL_DTYPE_FLOAT32, 2, (const uint64_t[]){2, 3}) == 0 &&
        tree_add_tensor(&tree, "y", DL_DTYPE_INT64, 1, (const uint64_t[]){2}) == 0 &&
        tree_add_text(&tree, TREE_BYTES, "s", 3 * 8 + 7) == 0 &&
        tree_add_text(&tree, TREE_STRING, "t", 3) == 0 &&
        (step % 2 == 0 ||
         (tree_add(&tree, TREE_OBJECT, "o", 2) == 0 &&
          tree_add_text(&tree, TREE_BYTES, NULL, 5) == 0 &&
          tree_add_tensor(&tree, NULL, DL_DTYPE_INT64, 1, (const uint64_t[]){2}) == 0))) {
        static const uint64_t numbers[] = {0, 3, 7};

        for (uint64_t i = 1; i < tree.count; i++)
            tree.nodes[i].offset =
                tree.nodes[i].kind == TREE_OBJECT ? 0 : DATA_AT + (i - 1) * TREE_ALIGN;
        tree.nodes[3].ndim = 1;
        tree.nodes[3].shape[0] = 2;
        memcpy(slot + tree.nodes[3].offset, numbers, sizeof numbers);
        header->tree_off = TREE_AT;
        header->tree_len = (uint32_t)tree_encoded_bytes(&tree);
        header->tree_count = tree.count;
        tree_encode(&tree, slot + TREE_AT);
    }
    tree_deinit(&tree);
}

static void send_segment(struct play *p, uint64_t change)
{
    struct dl_message msg = {.number = DL_MSG_SEGMENT};
    int fd = p->memfd;

    msg.segment.id = SEGMENT + (change >> 4 & 3);
    msg.segment.bytes = BYTES + (change >> 6 & 1);
    msg.segment.writable = change >> 3 & 1;
    if (change & 0x80) { /* one that fits, and is used from now on */
        p->segment = (uint32_t)msg.segment.id;
        memcpy(p->base + offsetof(struct segment_header, id), &p->segment, sizeof p->segment);
    }
    if ((change & 7) == 1) {
        fd = -1;
    } else if ((change & 7) == 2) {
        fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        FUZZ_ASSERT(fd >= 0 && ftruncate(fd, BYTES) == 0);
    }
    send_message(p, &msg, fd);
    if (fd != p->memfd)
        close_fdp(&fd);
}

/* One descriptor: the next step as it should be, then one field changed. */
static void send_deliver(struct play *p)
{
    struct dl_message msg = {.number = DL_MSG_DELIVER};
    uint8_t field = take(&p->input);
    struct dl_descriptor d = {
        .step = p->sent,
        .generation = p->sent + 1,
        .offset = slot_offset(SLOT_BYTES, (uint32_t)(p->sent % SLOTS)),
        .bytes = SLOT_BYTES,
        .segment = p->segment,
        .samples = 2,
    };
    uint64_t words[sizeof d / sizeof(uint64_t)];

    if (field < ARRAY_SIZE(words)) {
        memcpy(words, &d, sizeof d);
        words[field] += take_number(&p->input);
        memcpy(&d, words, sizeof d);
    } else if (!(field & 0x80)) {
        fill_slot(p->base + d.offset, p->sent, p->number); /* 0x80: what stood there before */
    }
    p->sent++;
    msg.deliver.stream = p->stream + (field >> 4 & 1);
    msg.deliver.descriptors = (struct dl_span){(const uint8_t *)&d, sizeof d};
    send_message(p, &msg, -1);
}

static void send_other(struct play *p)
{
    static const uint8_t nil = 0xC0;
    uint8_t kind = take(&p->input);
    uint64_t number = take_number(&p->input);
    struct dl_message msg = {0};

    switch (kind % 8) {
    case 0:
        msg.number = DL_MSG_FAULT;
        msg.fault.stream = p->stream;
        msg.fault.step = kind & 0x80 ? number : kind & 0x40 ? UINT64_MAX : p->sent++;
        msg.fault.code = kind >> 3 & 3;
        msg.fault.final = kind >> 5 & 1;
        msg.fault.detail = span_str(number & 1 ? "KeyError\n\x1b[m\xc2\x9b" : "");
        break;
    case 1:
        msg.number = DL_MSG_FINISHED;
        msg.finished.stream = kind & 8 ? p->stream : number;
        break;
    case 2:
        msg.number = DL_MSG_RETIRE;
        msg.retire.id = kind & 8 ? p->segment : number;
        break;
    case 3:
        msg.number = DL_MSG_ERROR;
        msg.error.request = number;
        msg.error.code = kind >> 3;
        break;
    case 4:
        msg.number = DL_MSG_INFO;
        msg.info.request = number;
        msg.info.value = (struct dl_span){&nil, 1};
        break;
    case 5:
        msg.number = DL_MSG_OPENED;
        msg.opened.request = number;
        msg.opened.loader = kind >> 3;
        msg.opened.credits = 1;
        msg.opened.parts = (struct dl_span){PARTS, sizeof PARTS};
        break;
    case 6:
        msg.number = DL_MSG_STARTED;
        msg.started.request = number;
        msg.started.stream = kind >> 3;
        msg.started.steps = STEPS;
        break;
    default:
        if ((kind & 0x60) == 0x60) { /* whole, or cut */
            msg.number = DL_MSG_CHANGED;
            msg.changed.loader = number;
            msg.changed.changes = (struct dl_span){(const uint8_t *)CHANGES, kind & 0x10 ? 24 : 16};
            break;
        }
        if (kind & 0x40) {
            msg.number = DL_MSG_WARNING;
            msg.warning.stream = p->stream + (kind >> 3 & 1);
            msg.warning.message = span_str(number & 1 ? "odd" : "even\x1b");
            break;
        }
        msg.number = DL_MSG_WELCOME;
        msg.welcome.version = number;
        break;
    }
    send_message(p, &msg, kind & 0x80 ? p->memfd : -1);
}

static void send_raw(struct play *p)
{
    size_t want = take(&p->input), len;
    const uint8_t *bytes = take_bytes(&p->input, want, &len);

    send_bytes(p, bytes, len, -1);
}

static void scribble(struct play *p)
{
    size_t low = take(&p->input), high = take(&p->input), at = low | high << 8,
           len = take(&p->input) % 16;

    while (len-- > 0)
        p->base[at++ % BYTES] = take(&p->input);
}

/* ---- the user ---- */

static uint64_t touch(const void *data, uint64_t bytes)
{
    const volatile uint8_t *byte = data;

    return bytes > 0 ? (uint64_t)byte[0] + byte[bytes - 1] : 0;
}

/* All of a text leaf that can be read, and a number past its end. */
static void read_text(struct dl_batch *batch, uint32_t i, const struct dl_node *node)
{
    const char *text;
    size_t len;

    if (node->text) /* else some of a list */
        touch(node->text, node->text_nbytes);
    FUZZ_ASSERT(node->count <= SLOT_BYTES);
    for (uint64_t s = 0; s <= node->count; s++) {
        int r = dl_batch_node_text(batch, i, s, &text, &len);

        FUZZ_ASSERT(s < node->count ? r == 0 || r == -EPROTO : r == -EINVAL);
        if (r == 0)
            touch(text, len);
    }
}

static void read_batch(struct dl_batch *batch)
{
    uint32_t nodes = dl_batch_nodes(batch);
    struct dl_tensor tensor;
    struct dl_node node;
    size_t samples;
    const uint64_t *indices = dl_batch_indices(batch, &samples);
    const uint32_t *lengths;
    uint64_t bytes = 0, padded;

    FUZZ_ASSERT(samples > 0);
    touch(indices, samples * sizeof *indices);
    if (dl_batch_lengths(batch, &lengths, &samples, &padded) == 0)
        touch(lengths, samples * sizeof *lengths);
    for (uint32_t i = 0; i < nodes; i++) {
        FUZZ_ASSERT(dl_batch_node(batch, i, &node) == 0);
        FUZZ_ASSERT(node.depth < DL_MAX_TREE_DEPTH + 1);
        touch(node.key, node.key_len);
        bytes += node.tensor.nbytes + node.text_nbytes;
        if (node.kind == DL_NODE_TENSOR)
            touch(node.tensor.data, node.tensor.nbytes);
        if (node.kind == DL_NODE_STRING || node.kind == DL_NODE_BYTES)
            read_text(batch, i, &node);
    }
    FUZZ_ASSERT(bytes == dl_batch_bytes(batch));
    if (dl_batch_tensor(batch, "x", &tensor) == 0)
        touch(tensor.data, tensor.nbytes);
    if (dl_batch_tensor(batch, "0.x.1.y", &tensor) == 0)
        touch(tensor.data, tensor.nbytes);
}

static void next_batch(struct play *p)
{
    struct dl_batch *batch = NULL;
    const char *warning;
    int r;

    if (!p->epoch)
        return;
    warning = dl_epoch_warning(p->epoch);
    if (warning)
        touch(warning, strlen(warning) + 1);
    p->current = NULL;
    r = dl_epoch_next(p->epoch, 0, &batch);
    FUZZ_ASSERT(r <= 0 || r == DL_END);
    if (r < 0)
        touch(dl_client_error_detail(p->client), strlen(dl_client_error_detail(p->client)) + 1);
    if (r < 0)
        FUZZ_ASSERT(dl_client_error(p->client) != NULL);
    if (r == 0) {
        read_batch(batch);
        if (dl_batch_step(batch) % 4 == 3 && dl_batch_detach(batch) == 0)
            read_batch(batch);
        FUZZ_ASSERT(dl_epoch_held_bytes(p->epoch) <= HELD_MAX * 2 * SLOT_BYTES * SLOTS);
        p->current = batch;
    }
}

static void pin(struct play *p, uint8_t i)
{
    i %= HELD_MAX;
    p->pinned[i] = dl_batch_release(p->pinned[i]);
    if (p->current && dl_batch_pin(p->current) == 0) {
        p->pinned[i] = p->current;
        p->current = NULL;
    }
}

static void drop_tensor(struct play *p, uint8_t i)
{
    struct managed *managed;

    if (!p->tensors[i])
        return;
    memcpy(&managed, &p->tensors[i], sizeof managed);
    touch(managed->data, 1);
    managed->deleter(p->tensors[i]);
    p->tensors[i] = NULL;
}

static void export_tensor(struct play *p, uint8_t i)
{
    i %= HELD_MAX;
    drop_tensor(p, i);
    if (!p->current)
        return;
    if (i & 1 && dl_batch_node_dlpack(p->current, i, &p->tensors[i]) < 0)
        p->tensors[i] = NULL;
    if (!(i & 1) && dl_batch_dlpack(p->current, "y", &p->tensors[i]) < 0)
        p->tensors[i] = NULL;
    if (i == HELD_MAX - 1 && !dl_batch_may_keep(p->current))
        FUZZ_ASSERT(dl_batch_detach(p->current) <= 0);
}

/* What the user of a sampler of his own says next. */
static void feed(struct play *p, uint8_t how)
{
    static const uint64_t indices[256];
    size_t n = take(&p->input);
    int64_t r;

    if (!p->epoch)
        return;
    if (how % 3 == 0)
        r = dl_epoch_feed(p->epoch, indices, n);
    else if (how % 3 == 1)
        r = dl_epoch_feed_batch(p->epoch, indices, n);
    else
        r = dl_epoch_feed_end(p->epoch);
    FUZZ_ASSERT(r <= (how % 3 == 0 ? (int64_t)n : 0));
}

static void end_epoch(struct play *p)
{
    p->current = NULL;
    p->epoch = dl_epoch_end(p->epoch);
}

/* How long a call waits: for an answer that lies there already, or for one that does not come. */
static void let_wait(struct play *p, bool answered)
{
    p->client->call_timeout = answered ? ANSWERED_NS : UNANSWERED_NS;
}

/* With an odd `how` it is answered: of a stream that was there before, or of a new one. */
static void start_epoch(struct play *p, uint8_t how)
{
    struct dl_epoch_options options = {.epoch = how >> 1, .credits = CREDITS};
    struct dl_message msg = {.number = DL_MSG_STARTED};

    if (p->epoch)
        return;
    if (how & 1) {
        p->stream += how >> 1 & 1;
        msg.started.request = p->client->conn.last_request + 1;
        msg.started.stream = p->stream;
        msg.started.steps = how & 4 ? DL_UNKNOWN : STEPS;
        send_message(p, &msg, -1);
    }
    let_wait(p, how & 1);
    if (dl_epoch_start(p->loader, &options, &p->epoch) < 0)
        p->epoch = NULL;
    let_wait(p, false);
    p->number = options.epoch;
    p->sent = 0;
}

static void bring_host(struct play *p)
{
    int channel[2];

    FUZZ_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) == 0);
    int r = dl_client_bring_host(p->client, channel[0], 7);
    FUZZ_ASSERT(r <= 0);
    close(channel[0]);
    close(channel[1]);
}

static void query(struct play *p, bool answered)
{
    static const uint8_t value[] = {0x93, 0xC0, 0x01, 0x02};
    struct dl_message msg = {.number = DL_MSG_INFO};
    const void *data;
    size_t len;

    if (answered) {
        msg.info.request = p->client->conn.last_request + 1;
        msg.info.value = (struct dl_span){value, sizeof value};
        send_message(p, &msg, -1);
    }
    let_wait(p, answered);
    if (dl_client_query(p->client, "ring", &data, &len) == 0)
        touch(data, len);
    let_wait(p, false);
}

static void step(struct play *p)
{
    uint8_t operation = take(&p->input);

    switch (operation % 16) {
    case 0:
    case 1:
        next_batch(p);
        break;
    case 2:
    case 3:
        send_deliver(p);
        break;
    case 4:
        send_segment(p, take(&p->input));
        break;
    case 5:
        send_other(p);
        break;
    case 6:
        if (operation >> 4 == 15)
            bring_host(p);
        send_raw(p);
        break;
    case 7:
        scribble(p);
        break;
    case 8:
        pin(p, operation >> 4);
        break;
    case 9:
        export_tensor(p, operation >> 4);
        break;
    case 10:
        drop_tensor(p, (operation >> 4) % HELD_MAX);
        break;
    case 11:
        p->current = dl_batch_release(p->current);
        break;
    case 12:
        if (operation >> 4 > 0)
            feed(p, operation >> 4);
        else
            FUZZ_ASSERT(dl_client_dispatch(p->client) <= 0);
        break;
    case 13:
        query(p, operation >> 4 & 1);
        break;
    case 14:
        end_epoch(p);
        break;
    default:
        start_epoch(p, operation >> 4);
        break;
    }
}

/* ---- before and after ---- */

static void make_segment(struct play *p)
{
    struct segment_header *header;

    p->memfd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    FUZZ_ASSERT(p->memfd >= 0 && ftruncate(p->memfd, BYTES) == 0);
    FUZZ_ASSERT(fcntl(p->memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    p->base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, p->memfd, 0);
    FUZZ_ASSERT(p->base != MAP_FAILED);
    header = (struct segment_header *)(void *)p->base;
    *header = (struct segment_header){.magic = SEGMENT_MAGIC,
                                      .version = SEGMENT_LAYOUT_VERSION,
                                      .id = SEGMENT,
                                      .bytes = BYTES,
                                      .slot_bytes = SLOT_BYTES,
                                      .slots = SLOTS};
}

static void begin(struct play *p)
{
    uint8_t kind = p->input.len > 0 ? p->input.data[p->input.len - 1] : 0;
    struct dl_epoch_options options = {.credits = CREDITS};
    struct dl_message msg = {.number = DL_MSG_WELCOME};
    int pair[2];

    FUZZ_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    p->sock = pair[0];
    make_segment(p);
    msg.welcome.version = DL_PROTOCOL_VERSION;
    send_message(p, &msg, -1);
    FUZZ_ASSERT(client_adopt(&p->client, pair[1], "fuzz", "fuzz", NS_PER_S) == 0);
    msg = (struct dl_message){.number = DL_MSG_OPENED};
    msg.opened.request = 1;
    msg.opened.credits = CREDITS;
    msg.opened.parts = (struct dl_span){PARTS, sizeof PARTS};
    msg.opened.batch = 2;
    msg.opened.iterable = kind >> 6 & 1;
    msg.opened.in_order = !(kind >> 7);
    msg.opened.order = kind >> 5 & 1 ? STATE_CLIENT : STATE_SEQUENTIAL;
    send_message(p, &msg, -1);
    FUZZ_ASSERT(dl_loader_open(p->client, "x", 1, "/", &p->loader) == 0);
    msg = (struct dl_message){.number = DL_MSG_STARTED};
    msg.started.request = 2;
    p->stream = msg.started.stream = STREAM;
    p->segment = SEGMENT;
    msg.started.steps = kind >> 5 & 3 ? DL_UNKNOWN : STEPS;
    send_message(p, &msg, -1);
    FUZZ_ASSERT(dl_epoch_start(p->loader, &options, &p->epoch) == 0);
    let_wait(p, false);
}

static void end(struct play *p)
{
    /* Half of the tensors outlive the client. */
    for (uint8_t i = 0; i < HELD_MAX; i += 2)
        drop_tensor(p, i);
    p->client = dl_client_close(p->client);
    for (uint8_t i = 1; i < HELD_MAX; i += 2)
        drop_tensor(p, i);
    munmap(p->base, BYTES);
    close_fdp(&p->memfd);
    close_fdp(&p->sock);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct play p = {.input = {data, len}};

    begin(&p);
    while (p.input.len > 0)
        step(&p);
    end(&p);
    return 0;
}
