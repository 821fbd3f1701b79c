#include "daemon/worker/worker.h"

#include "daemon/data/collate/lengths.h"
#include "daemon/data/files/guard.h"
#include "daemon/data/files/reader.h"
#include "daemon/data/files/remote.h"
#include "daemon/data/files/shared_index.h"
#include "daemon/data/kinds/files_identity.h"
#include "daemon/data/kinds/index_files.h"
#include "daemon/worker/forked.h"
#include "daemon/worker/packed.h"
#include "daemon/worker/segments.h"
#include "daemon/worker/worker_socket.h"
#include "proto/common/clock.h"
#include "proto/queue.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum {
    /*
     * Waking the daemon costs a worker as much as a small batch. So while it has more tasks at
     * hand it may leave finished ones unannounced for about this long, as long as they are fewer
     * than those still to do: then the daemon refills in time. The first batch after a pause and
     * the last one before the next are announced at once.
     */
    ANNOUNCE_NS = 200 * 1000,
    TELL_NS = 200 * 1000 * 1000, /* between two words of how far the opening is */
    /* How often a worker that never runs out of tasks looks at its socket. */
    SOCKET_CHECK_NS = 1000 * 1000,
    /*
     * How often it looks whether files that it has open were written to: after a task that may have
     * been the last of its epoch, but not more often than this, nor for more than a part of the
     * time.
     */
    LOOK_NS = 1000 * 1000,
    LOOK_BUSY_NS = 500 * 1000 * 1000, /* while it never runs out of tasks */
    LOOK_PART = 20,
    EXPECT_BYTES = 4 * CACHE_LINE, /* header, and the first indices */
};

/* What a dataset is opened with, besides its spec. */
struct inputs {
    struct value roots, seen_as;
    struct value plugins;
    uint32_t *reader_ids; /* owned; user and groups of reader */
    struct reader reader;
    struct shared_indexes indexes;  /* until the dataset is open */
    struct index_files index_files; /* the same */
    struct data_env env; /* its arrays are owned; their strings are those of the values above */
};

struct worker {
    int sock;                     /* borrowed from the process */
    int task_bell;                /* owned; readable when tasks were put while we slept */
    int done_bell;                /* owned; written to wake the daemon */
    struct worker_queues *queues; /* owned mapping */
    struct frame_reader reader;
    const struct worker_engine *engine;
    void *dataset;            /* owned, the engine's; NULL until W_OPEN */
    uint64_t fingerprint;     /* of the lengths of its samples, or 0 */
    uint64_t expected;        /* number of the first task whose samples were not prefetched yet */
    bool looks;               /* at the files, just before it opens them: W_LOOK came */
    uint32_t sandbox;         /* which parts of it hold */
    struct inputs inputs;     /* owned; what the dataset borrows */
    struct guard guard;       /* of the files that it maps */
    struct segment *segments; /* owned array */
    uint32_t n_segments;
    uint64_t unannounced;           /* completions the daemon was not woken for */
    uint64_t unannounced_since;     /* ns; when the first of them was begun */
    bool rested;                    /* it waited for work since its last completion */
    uint64_t to_give_back;          /* tasks that wait behind one whose batch did not fit */
    uint64_t look_at;               /* ns; not before this are files looked at again */
    bool unlooked;                  /* a task was done since they were looked at */
    struct dl_error found;          /* what was found then and is not noted yet; code 0: nothing */
    bool noted;                     /* something was */
    uint64_t slow_ns[SLOW_SAMPLES]; /* of reported samples */
    struct data_progress opening;   /* of the dataset; reported until it is open */
    const char *opening_what;       /* static; reported last */
    uint64_t opening_told;          /* ns; when that was */
};

/* ---- talking to the daemon ------------------------------------------------------------------ */

static int worker_send_message(struct worker *w, const struct dl_message *msg)
{
    return worker_socket_send(w->sock, msg, -1);
}

static int worker_send_failed(struct worker *w, uint32_t segment, const struct dl_error *err)
{
    return worker_send_message(
        w, &(struct dl_message){.number = DL_MSG_W_FAILED,
                                .w_failed = {.segment = segment,
                                             .code = (uint64_t)err->code,
                                             .path = span_str(err->path),
                                             .message = span_str(err->message)}});
}

/* Of a new thing at once; a daemon that has gone away shows elsewhere. */
static void worker_tell_opening(void *owner, const char *what, uint64_t done, uint64_t all)
{
    struct worker *w = owner;
    uint64_t now = clock_ns();

    if (w->opening_what && strcmp(w->opening_what, what) == 0 && now - w->opening_told < TELL_NS)
        return;
    w->opening_what = what;
    w->opening_told = now;
    (void)worker_send_message(
        w, &(struct dl_message){.number = DL_MSG_W_OPENING,
                                .w_opening = {.done = done, .all = all, .what = span_str(what)}});
}

static void worker_turn_to(void *owner, const char *path)
{
    note_place(&((struct worker *)owner)->queues->note, path);
}

/* As shared_indexes.offer. */
static int worker_offer_index(void *owner, const char *place, uint32_t form, uint64_t key, int fd)
{
    return worker_socket_send(
        ((struct worker *)owner)->sock,
        &(struct dl_message){.number = DL_MSG_W_INDEXED,
                             .w_indexed = {.place = span_str(place), .form = form, .key = key}},
        fd);
}

static void worker_announce(struct worker *w)
{
    if (w->unannounced == 0)
        return;
    w->unannounced = 0;
    if (queue_must_wake(&w->queues->done))
        (void)eventfd_write(w->done_bell, 1);
}

/* ---- files that change ---------------------------------------------------------------------- */

/* False: the daemon has yet to read the last note. */
static bool worker_note_found(struct worker *w)
{
    if (!note_put(&w->queues->note, &w->found)) {
        w->unlooked = true;
        return false;
    }
    w->found.code = 0;
    return true;
}

static void worker_look(struct worker *w, uint64_t now)
{
    w->unlooked = false;
    while (w->found.code || guard_find_written(&w->guard, &w->found)) {
        if (!worker_note_found(w))
            break;
        w->noted = true;
    }
    w->look_at = now + max_u64(LOOK_NS, LOOK_PART * (clock_ns() - now));
}

/* While there is nothing to do. */
static void worker_look_idly(struct worker *w)
{
    w->noted = false;
    worker_look(w, clock_ns());
    if (w->noted && queue_must_wake(&w->queues->done))
        (void)eventfd_write(w->done_bell, 1);
}

/* How long it may sleep before it has to look; ms, -1: for ever. */
static int worker_sleep_ms(const struct worker *w)
{
    uint64_t now = w->unlooked ? clock_ns() : 0;

    if (!w->unlooked)
        return -1;
    return now < w->look_at ? (int)((w->look_at - now) / 1000000 + 1) : 0;
}

/* ---- messages ------------------------------------------------------------------------------- */

static int worker_map_queues(struct worker *w, uint64_t bytes)
{
    _cleanup_fd_ int fd = frame_reader_take_fd(&w->reader);

    w->task_bell = frame_reader_take_fd(&w->reader);
    w->done_bell = frame_reader_take_fd(&w->reader);
    if (w->done_bell < 0 || bytes != WORKER_QUEUES_BYTES)
        return -EPROTO;
    w->queues = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (w->queues == MAP_FAILED) {
        w->queues = NULL;
        return -errno;
    }
    forked_keep(w->queues, bytes);
    return 0;
}

static void worker_forget_pictures(struct data_env *env)
{
    for (uint32_t i = 0; i < env->n_pictures; i++) {
        pictures_cache_close(&env->pictures[i].cache);
        ids_cache_close(&env->pictures[i].ids);
        free(env->pictures[i].root);
    }
    free(env->pictures);
}

static void worker_inputs_deinit(struct inputs *inputs)
{
    worker_forget_pictures(&inputs->env);
    shared_indexes_deinit(&inputs->indexes);
    index_files_end(&inputs->index_files);
    free(inputs->env.roots);
    free(inputs->env.seen_as);
    free(inputs->env.plugins);
    free(inputs->reader_ids);
    value_deinit(&inputs->roots);
    value_deinit(&inputs->seen_as);
    value_deinit(&inputs->plugins);
    *inputs = (struct inputs){0};
}

/* -EPROTO: a reader without a user and a group. */
static int worker_read_reader(struct inputs *in, struct dl_span ids)
{
    uint32_t n = (uint32_t)(ids.len / sizeof(uint32_t));

    if (n == 0)
        return 0;
    in->reader_ids = n < 2 ? NULL : malloc(ids.len);
    if (!in->reader_ids)
        return n < 2 ? -EPROTO : -ENOMEM;
    memcpy(in->reader_ids, ids.data, ids.len);
    in->reader =
        (struct reader){.uid = in->reader_ids[0], .groups = in->reader_ids + 1, .n_groups = n - 1};
    in->env.reader = &in->reader;
    return 0;
}

/* Before a file of the dataset is read, and after what it may be is known. */
static void worker_close_in(struct worker *w, enum sandbox_level level, const struct dl_spec *spec)
{
    struct sandbox_files files;

    if (level != SANDBOX_FULL)
        return;
    sandbox_files_begin(&files);
    sandbox_files_allow_spec(&files, spec, &w->inputs.env);
    if (w->engine->allow)
        w->engine->allow(&files);
    w->sandbox |= sandbox_files_hold(&files);
}

/* In the cache, where it cannot look later. */
static void worker_find_indexes(struct worker *w, const struct dl_msg_w_open *msg,
                                const struct dl_spec *spec)
{
    struct inputs *in = &w->inputs;
    _cleanup_free_ char *cache = span_dup(msg->cache);

    if (cache && *cache)
        worker_turn_to(w, cache);
    index_files_begin(&in->index_files, cache ? cache : "", (uint32_t)msg->uid, &spec->dataset);
    in->env.index_files = &in->index_files;
}

/* A daemon that has gone away shows elsewhere. */
static void worker_tell_looked(struct worker *w, const struct dl_spec *spec)
{
    const struct dl_msg_w_looked looked = {.identity = files_identity(spec, &w->inputs.env)};

    (void)worker_send_message(w,
                              &(struct dl_message){.number = DL_MSG_W_LOOKED, .w_looked = looked});
}

static int worker_open_dataset(struct worker *w, const struct dl_msg_w_open *msg,
                               struct dl_error *err)
{
    _cleanup_(spec_deinit) struct dl_spec spec = {0};
    struct inputs *in = &w->inputs;
    int r;

    in->env.worker = (uint32_t)msg->worker;
    in->env.workers = (uint32_t)msg->workers;
    in->env.guard = &w->guard;
    in->env.remote = w->guard.remote;
    in->env.foreign = msg->foreign;
    if ((r = packed_roots_read(msg->roots, msg->seen_as, &in->roots, &in->seen_as, &in->env, err)) <
            0 ||
        (r = packed_strings_read(msg->plugins, &in->plugins, &in->env.plugins, &in->env.n_plugins,
                                 err)) < 0 ||
        (r = packed_spec_read(msg->spec, &spec, err)) < 0 ||
        (r = worker_read_reader(in, msg->reader)) < 0)
        return r;
    w->opening =
        (struct data_progress){.tell = worker_tell_opening, .turn_to = worker_turn_to, .owner = w};
    in->env.progress = &w->opening;
    worker_find_indexes(w, msg, &spec);
    worker_close_in(w, (enum sandbox_level)msg->sandbox, &spec);
    worker_turn_to(w, ""); /* others' code says nothing */
    in->indexes.offer = worker_offer_index;
    in->indexes.owner = w;
    in->env.indexes = &in->indexes;
    /* Before the dataset is opened: should the files change now, the next look finds it out. */
    if (w->looks)
        worker_tell_looked(w, &spec);
    /* Before the dataset is opened: should the files change now, the lengths are taken anew. */
    if (spec.batch.tokens)
        w->fingerprint = lengths_fingerprint(&spec.dataset, spec.batch.length_of, &in->env);
    in->env.seed = dataset_replica_seed(spec.seed, UINT64_MAX, 0, in->env.workers, in->env.worker);
    r = w->engine->open(&(struct worker_open){.spec = &spec, .env = &in->env}, &w->dataset, err);
    in->env.progress = NULL;
    in->env.indexes = NULL;
    in->env.index_files = NULL;
    shared_indexes_deinit(&in->indexes);
    index_files_end(&in->index_files);
    forked_end_copy();
    return r;
}

static int worker_handle_open(struct worker *w, const struct dl_msg_w_open *msg)
{
    struct dl_error err = {0};
    int r = w->queues ? -EPROTO : worker_map_queues(w, msg->queue_bytes);

    if (r < 0)
        return r;
    w->sandbox = sandbox_calls((enum sandbox_level)msg->sandbox, sandbox_landlock() > 0);
    if ((r = worker_open_dataset(w, msg, &err)) < 0) {
        if (!err.code)
            dl_error_set(&err, -r, "", "the worker could not open the dataset: %s", strerror(-r));
        return worker_send_failed(w, 0, &err);
    }
    (void)remote_waited_ns(w->guard.remote, true); /* no task has waited yet */
    const struct worker_opened opened = w->engine->describe(w->dataset);
    uint64_t sizes[DL_BOUND_MIX_CHILDREN];
    assert(opened.n_sizes <= DL_BOUND_MIX_CHILDREN);
    for (uint32_t i = 0; i < opened.n_sizes; i++)
        sizes[i] = htole64(opened.sizes[i]);
    return worker_send_message(
        w, &(struct dl_message){
               .number = DL_MSG_W_READY,
               .w_ready = {.length = opened.length,
                           .iterable = opened.is_iterable,
                           .slot_bytes = opened.slot_bytes,
                           .fingerprint = w->fingerprint,
                           .sandbox = w->sandbox,
                           .dataset = opened.content,
                           .leaps = opened.can_skip,
                           .sizes = {(const uint8_t *)sizes, opened.n_sizes * sizeof *sizes}}});
}

static int worker_handle_segment(struct worker *w, const struct dl_msg_w_segment *msg)
{
    _cleanup_fd_ int fd = frame_reader_take_fd(&w->reader);
    struct dl_error err = {0};
    int r = segments_add(&w->segments, &w->n_segments, msg, fd, &err);

    if (r < 0)
        return err.code ? worker_send_failed(w, (uint32_t)msg->id, &err) : r;
    return worker_send_message(
        w, &(struct dl_message){.number = DL_MSG_W_MAPPED, .w_mapped = {.id = msg->id}});
}

/* Without it, batches are the same but slower: a worker that cannot map it continues. A copy of the
 * process must not have it: see forked.h. */
static int worker_handle_arena(struct worker *w, struct dl_span root, uint64_t bytes, bool ids)
{
    struct data_env *env = &w->inputs.env;
    _cleanup_fd_ int fd = frame_reader_take_fd(&w->reader);
    struct data_pictures *grown =
        realloc(env->pictures, (env->n_pictures + 1) * sizeof *env->pictures);

    if (!grown)
        return -ENOMEM;
    env->pictures = grown;
    if (w->queues)
        return -EPROTO;
    struct data_pictures one = {.root = span_dup(root)};
    int r = !one.root ? -ENOMEM
            : ids     ? ids_cache_open(&one.ids, steal_fd(&fd), bytes)
                      : pictures_cache_open(&one.cache, steal_fd(&fd), bytes);
    if (r < 0) {
        fprintf(stderr, "dloader-worker: %s of %s are not kept: %s\n",
                ids ? "ids" : "decoded pictures", one.root ? one.root : "a file", strerror(-r));
        free(one.root);
        return r == -EPROTO ? r : 0;
    }
    if (ids)
        forked_keep(one.ids.arena, one.ids.bytes);
    else
        forked_keep(one.cache.arena, one.cache.bytes);
    env->pictures[env->n_pictures++] = one;
    return 0;
}

static int worker_handle_remote(struct worker *w, const struct dl_msg_w_remote *msg)
{
    _cleanup_fd_ int fd = frame_reader_take_fd(&w->reader);

    if (w->queues || w->guard.remote || fd < 0)
        return -EPROTO;
    w->inputs.env.served = msg->version == REMOTE_WIRE_SERVED;
    struct remote_offer offer = {w->inputs.env.served ? REMOTE_WIRE_VERSION : msg->version,
                                 msg->environment, steal_fd(&fd)};
    return remote_new(&offer, &w->guard, &w->guard.remote);
}

static int worker_handle_index(struct worker *w, const struct dl_msg_w_index *msg)
{
    _cleanup_fd_ int fd = frame_reader_take_fd(&w->reader);

    if (w->queues || fd < 0)
        return -EPROTO;
    return shared_indexes_add(&w->inputs.indexes, msg->place, (uint32_t)msg->form, steal_fd(&fd));
}

static int worker_handle_look(struct worker *w, const struct dl_msg_w_look *msg)
{
    _cleanup_(spec_deinit) struct dl_spec spec = {0};

    if (!w->queues) {
        w->looks = true;
        return 0;
    }
    int r = packed_spec_read(msg->spec, &spec, NULL);
    if (r < 0)
        return r;
    worker_tell_looked(w, &spec);
    return 0;
}

/* Samples of tasks that will come, to it or to others. */
static void worker_handle_expect(struct worker *w, const struct dl_msg_w_expect *msg)
{
    struct remote *remote = w->inputs.env.remote;

    if (!w->dataset || !remote || !w->engine->foresee)
        return;
    remote_look_ahead(remote, msg->anew);
    w->engine->foresee(w->dataset, msg->indices);
    remote_look_ahead_off(remote);
}

static int worker_handle_message(void *owner, const struct dl_message *msg)
{
    struct worker *w = owner;

    switch (msg->number) {
    case DL_MSG_W_OPEN:
        return worker_handle_open(w, &msg->w_open);
    case DL_MSG_W_PICTURES:
        return worker_handle_arena(w, msg->w_pictures.root, msg->w_pictures.bytes, false);
    case DL_MSG_W_IDS:
        return worker_handle_arena(w, msg->w_ids.model, msg->w_ids.bytes, true);
    case DL_MSG_W_INDEX:
        return worker_handle_index(w, &msg->w_index);
    case DL_MSG_W_REMOTE:
        return worker_handle_remote(w, &msg->w_remote);
    case DL_MSG_W_LOOK:
        return worker_handle_look(w, &msg->w_look);
    case DL_MSG_W_SEGMENT:
        return worker_handle_segment(w, &msg->w_segment);
    case DL_MSG_W_UNMAP:
        segments_drop(w->segments, &w->n_segments, msg->w_unmap.id);
        return 0;
    case DL_MSG_W_EXPECT:
        worker_handle_expect(w, &msg->w_expect);
        return 0;
    case DL_MSG_W_FORGET:
        if (w->dataset)
            w->engine->forget(w->dataset, (uint32_t)msg->w_forget.stream);
        forked_end_copy();
        return 0;
    default:
        return -EPROTO;
    }
}

/* Reads what the socket has. 0, or negative: -EPIPE when the daemon has gone. */
static int worker_handle_socket(struct worker *w)
{
    return worker_socket_read(w->sock, &w->reader, "dloader-worker", worker_handle_message, w);
}

/* ---- tasks ---------------------------------------------------------------------------------- */

/* What the next task will touch first was last written by another core: fetch it meanwhile. */
static void worker_expect(struct worker *w, const struct queue_task *next)
{
    uint64_t slot_bytes;
    const char *slot = segments_find_slot(w->segments, w->n_segments, next, &slot_bytes);

    for (size_t line = 0; slot && line < EXPECT_BYTES; line += CACHE_LINE)
        __builtin_prefetch(slot + line);
}

/* Samples of all tasks that wait, where they have to be fetched first. */
static void worker_expect_far(struct worker *w)
{
    struct queue_task task;
    uint64_t slot_bytes;

    if (!w->inputs.env.remote || !w->engine->expect)
        return;
    while (task_look(w->queues, &w->expected, &task)) {
        const void *slot = segments_find_slot(w->segments, w->n_segments, &task, &slot_bytes);
        if (slot)
            w->engine->expect(w->dataset, slot, slot_bytes);
    }
}

/* Nothing of the task's epoch follows by now. */
static bool worker_is_last(struct worker *w, const struct queue_task *task)
{
    const struct slot_header *slot, *next;
    struct queue_task after;
    uint64_t bytes;

    if (!task_peek(w->queues, &after))
        return true;
    slot = segments_find_slot(w->segments, w->n_segments, task, &bytes);
    next = segments_find_slot(w->segments, w->n_segments, &after, &bytes);
    return !slot || !next || slot->epoch != next->epoch;
}

static void worker_name_sample(const struct worker *w, struct slow_sample *what)
{
    char path[4096] = "";

    (void)w->engine->name(w->dataset, what->index, path, sizeof path);
    slow_watch_cut(path, what->name);
}

/* The time of its slow samples; and one that is among the slowest of this worker so far. */
static void worker_tell_slow(struct worker *w, const void *slot, uint64_t started)
{
    const struct slow_watch *watch = w->engine->slowest ? w->engine->slowest(w->dataset) : NULL;
    size_t least = 0;

    if (!watch || watch->began_ns < started) /* of a task before */
        return;
    slow_spend(&w->queues->slow, watch->slow_ns);
    if (watch->ns == 0)
        return;
    for (size_t i = 1; i < SLOW_SAMPLES; i++)
        least = w->slow_ns[i] < w->slow_ns[least] ? i : least;
    if (watch->ns <= w->slow_ns[least] || !slow_has_room(&w->queues->slow))
        return;
    struct slow_sample what = {.index = watch->index,
                               .epoch = ((const struct slot_header *)slot)->epoch,
                               .ns = watch->ns,
                               .together = watch->together};
    if (watch->name[0])
        memcpy(what.name, watch->name, sizeof what.name);
    else
        worker_name_sample(w, &what);
    if (slow_put(&w->queues->slow, &what))
        w->slow_ns[least] = watch->ns;
}

/* Before the daemon hears of a task: it may be the last of its epoch. */
static void worker_look_after(struct worker *w, const struct queue_task *task, uint64_t now)
{
    if (guard_is_empty(&w->guard))
        return;
    w->unlooked = true;
    if (now >= w->look_at && (now - w->look_at >= LOOK_BUSY_NS || worker_is_last(w, task)))
        worker_look(w, now);
}

static void worker_finish_task(struct worker *w, const struct queue_done *done, uint64_t started)
{
    uint64_t waiting = queue_count(&w->queues->tasks);

    /* Never full: the daemon has fewer tasks out than the queue has records. */
    (void)done_put(w->queues, done);
    if (w->unannounced++ == 0)
        w->unannounced_since = started;
    /* The next task will take about as long as this one: would it be done in time? */
    uint64_t age = started + 2 * done->cost_ns - w->unannounced_since;
    if (w->rested || w->unannounced >= waiting || age >= ANNOUNCE_NS)
        worker_announce(w);
    w->rested = false;
}

static uint64_t worker_run_task(struct worker *w, const struct queue_task *task, uint64_t started)
{
    struct queue_done done = {.task = task->task, .began_ns = started};
    struct queue_task next;
    struct dl_error err; /* unused: the text goes into the slot */
    uint64_t slot_bytes = 0;
    void *slot = segments_find_slot(w->segments, w->n_segments, task, &slot_bytes);
    int r = -EFAULT;

    if (task_peek(w->queues, &next))
        worker_expect(w, &next);
    worker_expect_far(w);
    if (slot)
        r = w->engine->fill(w->dataset, slot, slot_bytes, &done.bytes, &err);
    forked_end_copy();
    if (r == 0)
        done.samples = ((const struct slot_header *)slot)->samples;
    done.code = r == FETCH_END ? ENODATA : (uint32_t)-r;

    uint64_t ended = clock_ns();
    done.cost_ns = ended - started;
    done.collate_ns = slot ? w->engine->collate_ns(w->dataset) : 0;
    if (slot && w->engine->tell_python)
        w->engine->tell_python(w->dataset, &done);
    worker_look_after(w, task, ended);
    if (r == 0)
        worker_tell_slow(w, slot, started);
    slow_tell_remote(&w->queues->slow, remote_waited_ns(w->guard.remote, false));
    if (r == -ENOBUFS)
        w->to_give_back = queue_count(&w->queues->tasks);
    worker_finish_task(w, &done, started);
    return ended;
}

/* Whether the task waited behind a batch that did not fit: it goes back as it is, to come again
 * behind that one. Until then there is nothing to do but to map the larger slots. */
static bool worker_give_back(struct worker *w, const struct queue_task *task, uint64_t now)
{
    const struct queue_done done = {.task = task->task, .code = ENOBUFS, .began_ns = now};

    if (w->to_give_back == 0)
        return false;
    w->to_give_back--;
    worker_finish_task(w, &done, now);
    return true;
}

/* Runs queued tasks until the socket must be read. */
static void worker_run_tasks(struct worker *w)
{
    uint64_t most = w->inputs.env.remote ? 0 : SOCKET_CHECK_NS;
    uint64_t begun = clock_ns();
    uint64_t now = begun;
    struct queue_task task;

    worker_expect_far(w);
    while (now - begun <= most && task_take(w->queues, &task))
        if (!worker_give_back(w, &task, now))
            now = worker_run_task(w, &task, now);
}

/* Until no task is queued. What later ones read comes by the socket: before each one that may wait
 * for a server it is read. */
static int worker_work(struct worker *w)
{
    int r = w->inputs.env.remote && !queue_empty(&w->queues->tasks) ? worker_handle_socket(w) : 0;

    for (; r == 0; r = worker_handle_socket(w)) {
        worker_run_tasks(w);
        if (queue_empty(&w->queues->tasks))
            break;
    }
    return r;
}

static int worker_wait_for_work(struct worker *w)
{
    struct pollfd fds[2] = {{.fd = w->sock, .events = POLLIN},
                            {.fd = w->task_bell, .events = POLLIN}};
    eventfd_t count;

    if (w->queues && !queue_sleep(&w->queues->tasks))
        return 0;
    if (w->engine->rest)
        w->engine->rest();
    int n = poll(fds, w->queues ? 2 : 1, worker_sleep_ms(w));
    int code = n < 0 ? errno : 0;
    if (w->engine->rest)
        w->engine->wake();
    if (code != 0 && code != EINTR)
        return -code;
    if (n == 0)
        worker_look_idly(w);
    if (w->queues)
        queue_awake(&w->queues->tasks);
    if (fds[1].revents && w->queues)
        (void)eventfd_read(w->task_bell, &count);
    return fds[0].revents ? worker_handle_socket(w) : 0;
}

static void worker_leave_pictures(struct data_pictures *pictures)
{
    close_fdp(pictures->ids.arena ? &pictures->ids.fd : &pictures->cache.fd);
}

/* In a forked copy of this process: closes the worker's own descriptors. */
static void worker_leave(void *owner)
{
    struct worker *w = owner;

    close_fdp(&w->sock);
    close_fdp(&w->task_bell);
    close_fdp(&w->done_bell);
    for (uint32_t i = 0; i < w->inputs.env.n_pictures; i++)
        worker_leave_pictures(&w->inputs.env.pictures[i]);
    shared_indexes_deinit(&w->inputs.indexes);
    index_files_end(&w->inputs.index_files);
    frame_reader_deinit(&w->reader);
}

static void worker_deinit(struct worker *w)
{
    forked_end();
    for (uint32_t i = 0; i < w->n_segments; i++)
        munmap(w->segments[i].base, w->segments[i].bytes);
    free(w->segments);
    if (w->queues)
        munmap(w->queues, sizeof *w->queues);
    if (w->dataset)
        w->engine->close(w->dataset);
    guard_uninstall();
    w->guard.remote = remote_free(w->guard.remote);
    guard_deinit(&w->guard);
    worker_inputs_deinit(&w->inputs);
    frame_reader_deinit(&w->reader);
    close_fdp(&w->task_bell);
    close_fdp(&w->done_bell);
}

int worker_run(int sock, const struct worker_engine *engine)
{
    _cleanup_(worker_deinit) struct worker w = {
        .sock = sock, .task_bell = -1, .done_bell = -1, .engine = engine};
    int r = 0;

    guard_install(&w.guard);
    forked_begin(worker_leave, &w);
    while (r == 0) {
        if (w.dataset && (r = worker_work(&w)) < 0)
            break;
        worker_announce(&w);
        w.rested = true;
        r = worker_wait_for_work(&w);
    }
    return r == -EPIPE ? 0 : 1;
}
