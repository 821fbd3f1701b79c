/*
 * A trainer that survives, over the public library: writes what it receives to a file, one batch a
 * line, and goes on behind the file's last line when it is started again. A batch counts as
 * received once its line is there. When the daemon goes away and comes back the library goes on, or
 * the trainer itself does (`own`).
 *
 *     trainer SOCKET SPEC FILE [KEY=NUMBER...] [also=SPEC...] [job=NAME]
 *
 * Lines: "EPOCH STEP DIGEST INDEX...", the digest being that of `dlctl run --digest` over the one
 * batch; "EPOCH fault TEXT"; "EPOCH end". Exit status: 0; 1 with a text: something failed;
 * 3: what was held changed under its hands.
 *
 * Ranks of a job begin an epoch when all have ended the one before; their files differ in the
 * number behind the last dot. With `resume` a trainer that is started again asks the daemon where
 * it was, which must not be behind what it has. With `saves` it goes on with the state that it
 * saved last, in FILE.state, and forgets what it received since. Keys: see `keys` below. `also`:
 * loaders that are opened besides, of each of which one batch is taken, and then no more; memory
 * that is short, or ranks that wait, end these epochs.
 */
#include "client/dlclient.h"
#include "client/dlctl/run/digest.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>

enum { KEPT_MAX = 64, ALSO_MAX = 8, STEPS_MAX = 1 << 16, NAP_MS = 20, WAIT_MS = 1000 };

/* As dlpack.h v0.8 lays it out. */
struct DLManagedTensor {
    void *data;
    int32_t device[2];
    int32_t ndim;
    uint32_t dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
};

struct kept {
    struct dl_batch *batch;         /* pinned; or */
    struct DLManagedTensor *tensor; /* that holds its batch by itself */
    uint64_t nbytes;                /* of the tensor */
    char digest[DIGEST_TEXT];
};

struct trainer {
    const char *socket;
    const char *spec;
    const char *path;
    const char *job;
    const char *also[ALSO_MAX];
    size_t n_also;
    uint64_t epoch, epochs, rank, world, stop, credits, pause, pins, tensors, detach, poll, any,
        fed, own, resume, saves, recover, random;
    int connected;
    int resumed;
    int restored;
    int out; /* owned */
    struct dl_client *client;
    struct dl_loader *loader;
    struct dl_epoch *pass;
    struct dl_epoch *aside[ALSO_MAX]; /* epochs of `also`, not read on */
    uint64_t at;                      /* epoch */
    uint64_t step;                    /* the next one, or with `any` the first that is missing */
    uint8_t seen[STEPS_MAX];
    uint64_t base; /* of an epoch that is fed: the step that its first one is */
    uint64_t fed_to;
    int fed_all;
    struct kept kept[KEPT_MAX];
    size_t next_kept;
    uint8_t state[DL_STATE_MAX]; /* to go on with */
    size_t state_len;
    uint64_t unsaved; /* batches */
    char *line;       /* owned */
    size_t line_space;
};

static const struct {
    const char *name;
    size_t offset;
} keys[] = {
    {"epoch", offsetof(struct trainer, epoch)},     /* the first one */
    {"epochs", offsetof(struct trainer, epochs)},   /* how many; 1 */
    {"rank", offsetof(struct trainer, rank)},       /**/
    {"world", offsetof(struct trainer, world)},     /* 1 */
    {"stop", offsetof(struct trainer, stop)},       /* steps after which it leaves an epoch */
    {"credits", offsetof(struct trainer, credits)}, /**/
    {"pause", offsetof(struct trainer, pause)},     /* us at most before it takes a batch */
    {"pins", offsetof(struct trainer, pins)},       /* batches held pinned at most */
    {"tensors", offsetof(struct trainer, tensors)}, /* held by their tensors at most */
    {"detach", offsetof(struct trainer, detach)},   /* 1: some are copied */
    {"poll", offsetof(struct trainer, poll)},       /* 1: waits in a loop of its own */
    {"any", offsetof(struct trainer, any)},         /* 1: steps come in any order */
    {"fed", offsetof(struct trainer, fed)},         /* samples: it is the sampler of so many */
    {"own", offsetof(struct trainer, own)},         /* 1: it starts again what a daemon forgot */
    {"resume", offsetof(struct trainer, resume)},   /* 1: see above */
    {"saves", offsetof(struct trainer, saves)},     /* batches between two states that it saves */
    {"recover", offsetof(struct trainer, recover)}, /* s: how long it looks for a daemon again */
    {"random", offsetof(struct trainer, random)},   /* seed of its whims */
};

static uint64_t draw(struct trainer *t, uint64_t below)
{
    t->random ^= t->random << 13;
    t->random ^= t->random >> 7;
    t->random ^= t->random << 17;
    return below ? t->random % below : 0;
}

static void nap(uint64_t us)
{
    struct timespec ts = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};

    nanosleep(&ts, NULL);
}

static uint64_t seconds(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec;
}

/* ---- the file ------------------------------------------------------------------------------- */

static void note_line(struct trainer *t, const char *line)
{
    char *rest, *end;
    uint64_t epoch = strtoull(line, &rest, 10);
    uint64_t step = strtoull(rest, &end, 10);

    if (end > rest) {
        t->at = epoch;
        t->step = t->any ? 0 : step + 1;
        t->seen[step % STEPS_MAX] = 1;
    } else if (strcmp(rest, " end\n") == 0) {
        t->at = epoch + 1;
        t->step = 0;
        memset(t->seen, 0, sizeof t->seen);
    }
}

/* Where a former life left off; what it did not finish writing is cut off. */
static int open_file(struct trainer *t, const char *path)
{
    char *line = NULL;
    size_t space = 0;
    ssize_t n;
    off_t whole = 0;

    t->out = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    FILE *file = t->out < 0 ? NULL : fopen(path, "re");
    if (!file)
        return -errno;
    while ((n = getline(&line, &space, file)) > 0 && line[n - 1] == '\n') {
        whole += n;
        note_line(t, line);
    }
    free(line);
    fclose(file);
    return ftruncate(t->out, whole) < 0 ? -errno : 0;
}

static void write_line(struct trainer *t, size_t len)
{
    if (write(t->out, t->line, len) != (ssize_t)len) {
        perror("trainer: its file");
        exit(1);
    }
}

static int digest_of(struct dl_batch *batch, uint64_t step, char ret[DIGEST_TEXT])
{
    struct digest *digest;
    uint32_t nodes = dl_batch_nodes(batch);
    size_t n;
    const uint64_t *indices = dl_batch_indices(batch, &n);
    int r = digest_new(&digest);

    if (r < 0)
        return r;
    digest_batch(digest, step, indices, n, nodes);
    for (uint32_t i = 0; i < nodes && r == 0; i++) {
        struct dl_node node = {0};
        r = dl_batch_node(batch, i, &node);
        int text = node.kind == DL_NODE_STRING || node.kind == DL_NODE_BYTES;
        digest_node(digest,
                    &(struct digest_node){.kind = node.kind,
                                          .children = node.children,
                                          .key = node.key,
                                          .key_len = node.key_len,
                                          .dtype = node.tensor.dtype,
                                          .ndim = text ? node.is_list : node.tensor.ndim,
                                          .shape = text ? &node.count : node.tensor.shape,
                                          .data = text ? node.text : node.tensor.data,
                                          .nbytes = text ? node.text_nbytes : node.tensor.nbytes});
    }
    digest_text(digest, ret);
    digest_free(digest);
    return r;
}

static int write_batch(struct trainer *t, struct dl_batch *batch, uint64_t step)
{
    char digest[DIGEST_TEXT];
    size_t n, len;
    const uint64_t *indices = dl_batch_indices(batch, &n);
    int r = digest_of(batch, step, digest);

    if (r < 0)
        return r;
    if (t->line_space < 64 + 21 * n) {
        t->line_space = 64 + 21 * n;
        free(t->line);
        t->line = malloc(t->line_space);
        if (!t->line)
            return -ENOMEM;
    }
    len = (size_t)sprintf(t->line, "%" PRIu64 " %" PRIu64 " %s", t->at, step, digest);
    for (size_t i = 0; i < n; i++)
        len += (size_t)sprintf(t->line + len, " %" PRIu64, indices[i]);
    t->line[len++] = '\n';
    write_line(t, len);
    return 0;
}

static void write_word(struct trainer *t, const char *word, const char *text)
{
    dprintf(t->out, "%" PRIu64 " %s%s%.*s\n", t->at, word, *text ? " " : "",
            (int)strcspn(text, "\n"), text);
}

/* ---- batches that are held ------------------------------------------------------------------ */

static void check_same(const char *was, const char *is)
{
    if (strcmp(was, is) == 0)
        return;
    fprintf(stderr, "trainer: a batch that it holds changed: %s, was %s\n", is, was);
    exit(3);
}

static void tensor_text(const struct kept *kept, char ret[DIGEST_TEXT])
{
    const uint8_t *data = kept->tensor->data;
    uint64_t hash = 0xcbf29ce484222325;

    for (uint64_t i = 0; i < kept->nbytes; i++)
        hash = (hash ^ data[i]) * 0x100000001b3;
    snprintf(ret, DIGEST_TEXT, "%016" PRIx64, hash);
}

static void let_go(struct kept *kept)
{
    char digest[DIGEST_TEXT];

    if (kept->batch && digest_of(kept->batch, 0, digest) == 0)
        check_same(kept->digest, digest);
    if (kept->tensor) {
        tensor_text(kept, digest);
        check_same(kept->digest, digest);
        kept->tensor->deleter(kept->tensor);
    }
    dl_batch_release(kept->batch);
    *kept = (struct kept){0};
}

/* All of them, or those alone that do not outlive their client. */
static size_t let_all_go(struct trainer *t, int tensors)
{
    size_t n = 0;

    for (size_t i = 0; i < KEPT_MAX; i++) {
        struct kept *kept = &t->kept[i];
        n += kept->batch || kept->tensor;
        if (kept->batch || tensors)
            let_go(kept);
    }
    return n;
}

static size_t end_aside(struct trainer *t)
{
    size_t n = 0;

    for (size_t i = 0; i < ALSO_MAX; i++) {
        n += t->aside[i] != NULL;
        t->aside[i] = dl_epoch_end(t->aside[i]);
    }
    return n;
}

/* The first tensor of a batch, by itself; none: not kept. */
static int keep_tensor(struct dl_batch *batch, struct kept *kept)
{
    for (uint32_t i = 0; i < dl_batch_nodes(batch); i++) {
        struct dl_node node;
        int r = dl_batch_node(batch, i, &node);
        if (r < 0 || node.kind != DL_NODE_TENSOR)
            continue;
        r = dl_batch_node_dlpack(batch, i, &kept->tensor);
        if (r < 0)
            return r;
        kept->nbytes = node.tensor.nbytes;
        tensor_text(kept, kept->digest);
        break;
    }
    return 0;
}

static int keep(struct trainer *t, struct dl_batch *batch)
{
    uint64_t most = t->pins + t->tensors;
    uint64_t whim = draw(t, 4);

    if (t->detach && whim == 0)
        return dl_batch_detach(batch);
    if (most == 0 || whim > 1 || !dl_batch_may_keep(batch))
        return 0;
    struct kept *kept = &t->kept[t->next_kept++ % (most < KEPT_MAX ? most : KEPT_MAX)];
    let_go(kept);
    if (draw(t, most) < t->tensors)
        return keep_tensor(batch, kept);
    int r = dl_batch_pin(batch);
    if (r == 0 && (r = digest_of(batch, 0, kept->digest)) == 0)
        kept->batch = batch;
    return r;
}

/* ---- states --------------------------------------------------------------------------------- */

static void state_path(const struct trainer *t, const char *end, char ret[static PATH_MAX])
{
    snprintf(ret, PATH_MAX, "%s.state%s", t->path, end);
}

static int save(struct trainer *t, const void *state, size_t len)
{
    char path[PATH_MAX], new[PATH_MAX];

    state_path(t, "", path);
    state_path(t, ".new", new);
    t->unsaved = 0;
    FILE *file = fopen(new, "we");
    if (!file)
        return -errno;
    int r = fwrite(state, 1, len, file) == len ? 0 : -EIO;
    if (fclose(file) != 0 || (r == 0 && rename(new, path) != 0))
        r = -errno;
    return r;
}

/* Behind the batch that it has just written. */
static int save_batch(struct trainer *t)
{
    uint8_t state[DL_STATE_MAX];
    size_t len = sizeof state;

    if (!t->saves || ++t->unsaved < t->saves)
        return 0;
    int r = dl_epoch_state(t->pass, state, &len);
    return r < 0 ? r : save(t, state, len);
}

/* At the beginning of the next epoch, whether or not it has had all of this one. */
static int save_epoch(struct trainer *t)
{
    const struct dl_epoch_options next = {.epoch = t->at, .world = (uint32_t)t->world};
    uint8_t state[DL_STATE_MAX];
    size_t len = sizeof state;

    if (!t->saves)
        return 0;
    int r = dl_loader_state(t->loader, &next, state, &len);
    return r < 0 ? r : save(t, state, len);
}

/* Leaves the lines before a place. */
static int cut_file(struct trainer *t, uint64_t epoch, uint64_t step)
{
    FILE *file = fopen(t->path, "re");
    char *line = NULL;
    size_t space = 0;
    ssize_t n;
    off_t kept = 0;

    if (!file)
        return -errno;
    while ((n = getline(&line, &space, file)) > 0) {
        char *rest, *end;
        uint64_t in = strtoull(line, &rest, 10), at = strtoull(rest, &end, 10);
        if (in > epoch || (in == epoch && (end == rest || at >= step)))
            break;
        kept += n;
    }
    free(line);
    fclose(file);
    t->at = epoch;
    t->step = step;
    return ftruncate(t->out, kept) < 0 ? -errno : 0;
}

/* Goes back to the state that it saved last; without one, to the beginning. */
static int restore(struct trainer *t)
{
    char path[PATH_MAX];
    uint64_t epoch = t->epoch, step = 0;
    int r = 0;

    state_path(t, "", path);
    FILE *file = fopen(path, "re");
    t->restored = 1;
    if (file) {
        t->state_len = fread(t->state, 1, sizeof t->state, file);
        fclose(file);
        r = dl_loader_find_state(t->loader, t->state, t->state_len, (uint32_t)t->world, &epoch,
                                 &step);
    }
    return r < 0 ? r : cut_file(t, epoch, step);
}

/* ---- one epoch ------------------------------------------------------------------------------ */

/* The order that it feeds: every sample once, and another one in each epoch. */
static uint64_t fed_index(const struct trainer *t, uint64_t i)
{
    return (i * 7919 + 31 * t->at) % t->fed;
}

static int feed(struct trainer *t)
{
    uint64_t size = dl_loader_batch_size(t->loader);

    while (t->fed_to < t->fed) {
        uint64_t indices[256];
        size_t n = 0;
        while (n < size && n < 256 && t->fed_to + n < t->fed) {
            indices[n] = fed_index(t, t->fed_to + n);
            n++;
        }
        int r = dl_epoch_feed_batch(t->pass, indices, n);
        if (r < 0)
            return r == -EAGAIN ? 0 : r;
        t->fed_to += n;
    }
    if (t->fed_all)
        return 0;
    t->fed_all = 1;
    return dl_epoch_feed_end(t->pass);
}

static int next(struct trainer *t, struct dl_batch **ret)
{
    int r = dl_epoch_next(t->pass, t->poll ? 0 : -1, ret);

    while (t->poll && r == -EAGAIN) {
        struct pollfd fd = {.fd = dl_client_fd(t->client), .events = POLLIN};
        poll(&fd, 1, WAIT_MS);
        if ((r = dl_client_dispatch(t->client)) == 0)
            r = dl_epoch_next(t->pass, 0, ret);
    }
    return r;
}

static int take(struct trainer *t, struct dl_batch *batch)
{
    uint64_t step = t->base + dl_batch_step(batch);
    int r = 0;

    /* What it had not released when it was killed comes again. */
    if (t->any ? t->seen[step % STEPS_MAX] : t->resume && step < t->step)
        return 0;
    r = write_batch(t, batch, step);
    t->seen[step % STEPS_MAX] = 1;
    t->step = step + 1;
    if (r == 0)
        r = save_batch(t);
    return r < 0 ? r : keep(t, batch);
}

/* 0: go on; DL_END; or an error. */
static int one_step(struct trainer *t)
{
    struct dl_batch *batch;
    int r = t->fed ? feed(t) : 0;

    if (t->pause)
        nap(draw(t, t->pause));
    if (r == 0)
        r = next(t, &batch);
    if (r == 0)
        return take(t, batch);
    if ((r == -ENODATA && t->fed) || (r == -ENOMEM && let_all_go(t, 1) + end_aside(t) > 0))
        return 0;
    if (r < 0 && dl_client_is_usable(t->client)) {
        write_word(t, "fault", dl_client_error(t->client));
        return 0;
    }
    return r;
}

/*
 * Until all ranks of the job have ended the epoch before: no two of them may be further apart. They
 * may need what this one holds.
 */
static void await_peers(struct trainer *t)
{
    const char *dot = strrchr(t->path, '.');
    char path[4096], end[32];

    if (!dot || !t->job || t->at == t->epoch)
        return;
    let_all_go(t, 1);
    end_aside(t);
    snprintf(end, sizeof end, "%" PRIu64 " end\n", t->at - 1);
    for (uint64_t rank = 0; rank < t->world; rank++) {
        int ended = 0;
        snprintf(path, sizeof path, "%.*s.%" PRIu64, (int)(dot - t->path), t->path, rank);
        while (!ended) {
            char *line = NULL;
            size_t space = 0;
            FILE *file = fopen(path, "re");
            while (file && !ended && getline(&line, &space, file) > 0)
                ended = strcmp(line, end) == 0;
            free(line);
            if (file)
                fclose(file);
            if (!ended)
                nap(NAP_MS * 1000);
        }
    }
}

/* Where the daemon says that it was. Negative: an error; 1: it does not know. */
static int resume(struct trainer *t, struct dl_epoch_options options)
{
    options.epoch = DL_RESUME;
    options.step = 0;
    int r = dl_epoch_start(t->loader, &options, &t->pass);
    if (r == -ENOENT && dl_client_is_usable(t->client))
        return 1;
    if (r < 0)
        return r;
    uint64_t epoch = dl_epoch_number(t->pass), first = dl_epoch_first(t->pass);
    /* Where a worker of an iterable dataset has come to its end, its further steps do not exist,
     * and who has released the one before them is behind them. That none is lost its lines show.
     */
    if (epoch == t->at && (first <= t->step || dl_loader_is_iterable(t->loader)))
        return 0;
    /* It has left an epoch early, or released the last batch of one and not noted its end. */
    t->pass = dl_epoch_end(t->pass);
    if (epoch < t->at || (epoch == t->at + 1 && first == 0))
        return 1;
    fprintf(stderr,
            "trainer: it was at step %" PRIu64 " of epoch %" PRIu64 ", but has all before step "
            "%" PRIu64 " of epoch %" PRIu64 " only\n",
            first, epoch, t->step, t->at);
    exit(3);
}

static int leave_epoch(struct trainer *t)
{
    t->pass = dl_epoch_end(t->pass);
    write_word(t, "end", "");
    memset(t->seen, 0, sizeof t->seen);
    t->at++;
    t->step = 0;
    return save_epoch(t);
}

/* 0; or 1: the state was that of the epoch's end, which has not been noted yet. */
static int start_from_state(struct trainer *t, struct dl_epoch_options options)
{
    options.state = t->state;
    options.state_len = t->state_len;
    options.epoch = options.step = 0;
    int r = dl_epoch_start(t->loader, &options, &t->pass);
    if (r == 0)
        t->state_len = 0;
    return r < 0 ? r : dl_epoch_number(t->pass) != t->at;
}

static int one_epoch(struct trainer *t)
{
    if (t->any)
        t->step = 0;
    while (t->any && t->step < STEPS_MAX && t->seen[t->step])
        t->step++;
    struct dl_epoch_options options = {.epoch = t->at,
                                       .rank = (uint32_t)t->rank,
                                       .world = (uint32_t)t->world,
                                       .step = t->fed ? 0 : t->step,
                                       .credits = (uint32_t)t->credits,
                                       .job = t->job};
    int r = 1;

    await_peers(t);
    if (t->resume && !t->resumed && !t->fed && !t->any)
        r = resume(t, options);
    t->resumed = 1;
    if (t->state_len > 0 && (r = start_from_state(t, options)) == 1)
        return leave_epoch(t);
    if (r == 1)
        r = dl_epoch_start(t->loader, &options, &t->pass);
    t->base = t->fed ? t->step : 0;
    t->fed_to = t->base * dl_loader_batch_size(t->loader);
    t->fed_all = 0;
    while (r == 0 && (t->stop == 0 || t->step < t->stop))
        r = one_step(t);
    return r < 0 ? r : leave_epoch(t);
}

/* ---- sessions ------------------------------------------------------------------------------- */

static int open_also(struct trainer *t, size_t i)
{
    struct dl_loader *loader;
    struct dl_batch *batch;
    int r = dl_loader_open_file(t->client, t->also[i], &loader);

    if (r == 0)
        r = dl_epoch_start(loader, NULL, &t->aside[i]);
    if (r == 0)
        r = dl_epoch_next(t->aside[i], -1, &batch);
    if (r == -ENOMEM && let_all_go(t, 1) + end_aside(t) > 0)
        r = 0;
    return r;
}

static int attach(struct trainer *t)
{
    struct dl_client *client;
    struct dl_loader *loader;
    int r = dl_client_connect(&client, t->socket, "soak");

    t->client = client;
    t->connected = r == 0;
    if (r == 0 && (r = dl_loader_open_file(client, t->spec, &loader)) == 0)
        t->loader = loader;
    for (size_t i = 0; r == 0 && i < t->n_also; i++)
        r = open_also(t, i);
    return r;
}

static void detach(struct trainer *t)
{
    let_all_go(t, 0);
    t->client = dl_client_close(t->client);
    memset(t->aside, 0, sizeof t->aside);
    t->loader = NULL;
    t->pass = NULL;
}

/* Whether it is the daemon that is gone, and nothing else. */
static int is_lost(const struct trainer *t, int r)
{
    static const int codes[] = {ECONNRESET, EPIPE,     ENOTCONN, ECONNREFUSED,
                                ENOENT,     ETIMEDOUT, ESHUTDOWN};

    if (!t->client || dl_client_is_usable(t->client) || (t->connected && !t->own))
        return 0;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (r == -codes[i])
            return 1;
    }
    return 0;
}

static int train(struct trainer *t)
{
    uint64_t since = seconds();
    int r = 0;

    while (t->at < t->epoch + t->epochs) {
        uint64_t at = t->at, step = t->step;
        if (!t->client)
            r = attach(t);
        if (r == 0 && t->saves && !t->restored)
            r = restore(t);
        if (r == 0 && t->at < t->epoch + t->epochs)
            r = one_epoch(t);
        if (at != t->at || step != t->step)
            since = seconds();
        if (r < 0 && (!is_lost(t, r) || seconds() - since >= t->recover))
            return r;
        if (r < 0) {
            detach(t);
            nap(NAP_MS * 1000);
        }
        r = 0;
    }
    return 0;
}

static int read_options(struct trainer *t, char **words)
{
    for (; *words; words++) {
        char *value = strchr(*words, '=');
        size_t i = 0, len;

        if (!value)
            return -EINVAL;
        len = (size_t)(value - *words);
        if (len == 4 && strncmp(*words, "also", len) == 0 && t->n_also < ALSO_MAX) {
            t->also[t->n_also++] = value + 1;
            continue;
        }
        if (len == 3 && strncmp(*words, "job", len) == 0) {
            t->job = value + 1;
            continue;
        }
        while (i < ARRAY_SIZE(keys) &&
               (strlen(keys[i].name) != len || strncmp(keys[i].name, *words, len) != 0))
            i++;
        if (i == ARRAY_SIZE(keys))
            return -EINVAL;
        uint64_t number = strtoull(value + 1, NULL, 10);
        memcpy((char *)t + keys[i].offset, &number, sizeof number);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct trainer t = {.epochs = 1, .world = 1};

    if (argc < 4 || read_options(&t, argv + 4) < 0)
        return 2;
    t.socket = argv[1];
    t.spec = argv[2];
    t.path = argv[3];
    t.at = t.epoch;
    t.random = t.random * 2654435761 + 88172645463325252;
    int r = open_file(&t, argv[3]);
    if (r == 0)
        r = train(&t);
    if (r < 0)
        fprintf(stderr, "trainer: epoch %" PRIu64 ", step %" PRIu64 ": %s (%s)\n", t.at, t.step,
                t.client ? dl_client_error(t.client) : "", strerror(-r));
    /* Tensors may outlive their client. */
    if (t.random & 1)
        let_all_go(&t, 1);
    detach(&t);
    let_all_go(&t, 1);
    free(t.line);
    close(t.out);
    return r < 0;
}
