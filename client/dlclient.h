/*
 * libdlclient: read batches from dloaderd.
 *
 *   struct dl_client *client;  struct dl_loader *loader;  struct dl_epoch *epoch;
 *   struct dl_batch *batch;
 *
 *   dl_client_connect(&client, NULL, "mytrainer")
 *   dl_loader_open_file(client, "fashion.yaml", &loader)
 *   dl_epoch_start(loader, &(struct dl_epoch_options){.epoch = 0}, &epoch)
 *   while ((r = dl_epoch_next(epoch, -1, &batch)) == 0) {
 *           struct dl_tensor image;
 *           dl_batch_tensor(batch, "image", &image);
 *           ... image.data, image.shape ...           read in place, no copy
 *   }
 *   r == DL_END, or a negative errno and dl_client_error(client)
 *
 * Concepts. A *loader* is a dataset with its sampler, batching and workers; clients that open the
 * same name share it. An *epoch* is one rank's pass over it. A *batch* is a *lease* on a slot of
 * the daemon's shared memory: it may be read until the next dl_epoch_next() on the same epoch,
 * which releases it, or, if dl_batch_pin() has pinned it, until dl_batch_release().
 *
 * Errors. Every function that can fail returns a negative errno; the text of dl_client_error() then
 * says what failed and where. After a fatal error (no daemon came back, or the protocol was
 * violated) every later call on that client returns the same errno. If a daemon is killed,
 * restarted or upgraded, the client only pauses: see dl_client_set_reconnect().
 *
 * Threads. The library starts no threads, installs no signal handlers, prints nothing, and has no
 * globals except what dl_set_interrupt() sets, for the calling thread alone. A client and all that
 * was opened from it belong to one thread at a time; different clients are independent. The deleter
 * of a DLPack tensor may run in any thread, also after the client was closed. A child made by
 * fork() must not use its parent's clients; while it lives, it has their memory mapped, which stays
 * charged to the user.
 *
 * Memory. Tensors are C-contiguous, 64-byte aligned, in the machine's byte order, mapped read-only
 * unless the spec says `memory: {writable: true}`. Strings and bytes are in the same memory,
 * without NUL. With `shard.mode: dispatch` tensors are rows of larger ones, and only aligned to
 * their elements.
 */
#ifndef DLCLIENT_H
#define DLCLIENT_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DL_API __attribute__((visibility("default")))
#else
#define DL_API
#endif

/* Version of this header; dl_version() returns the library's at run time, such as "0.2.0". */
#define DL_CLIENT_API_VERSION 1
DL_API const char *dl_version(void);

/* Not an error: the epoch has no more batches. */
#define DL_END 1

/* The cluster's world, in which the epoch was started, has changed. See dl_epoch_start(). */
#define DL_E_WORLD_CHANGED (-ESTALE)
/* At the end of such an epoch: some of its samples are not known to have been used. */
#define DL_E_LEFT_OUT (-ENOTRECOVERABLE)

/* An unknown count: an iterable dataset need not say how many samples it has. */
#define DL_UNKNOWN UINT64_MAX

struct dl_client;
struct dl_loader;
struct dl_epoch;
struct dl_batch;

/* ---- session ------------------------------------------------------------------------------- */

/*
 * Connects to the daemon at `socket_path`; NULL: $DLOADER_SOCKET, else the user's own daemon
 * ($XDG_RUNTIME_DIR/dloaderd/socket) if it listens, else /run/dloaderd/socket. `agent` names the
 * program in `dlctl sessions`; it may be NULL. Blocks until the daemon has answered, at most ten
 * seconds. The daemon must be this user's, root's, the user dloaderd's, or of the user that
 * $DLOADER_DAEMON_USER names.
 *
 * On failure *ret is still set, to a client that only has the error text, unless memory ran out
 * (-ENOMEM, *ret NULL). Close it with dl_client_close() in either case. -ENOENT, -ECONNREFUSED: no
 * daemon there; -ENAMETOOLONG: the path does not fit a socket address; -EACCES; -EPERM: another
 * user's daemon; -EPROTONOSUPPORT, -EPROTO: another protocol version; -ETIMEDOUT.
 */
DL_API int dl_client_connect(struct dl_client **ret, const char *socket_path, const char *agent);

/*
 * A client without a daemon, for loaders whose spec says `workers: {count: 0}`: dl_epoch_next()
 * makes their batches in this process, with the same bytes in the same order, and loads nothing
 * ahead; see WITHOUT WORKERS in dlclient(3). A client with a daemon opens such a loader in the same
 * way, so this is only needed if there is no daemon. -ENOMEM.
 *
 * The loading is in a separate module, dlclient-local.so, which is opened when it is needed:
 * $DLOADER_LOCAL_MODULE, else beside the library, else where it was installed.
 */
DL_API int dl_client_connect_local(struct dl_client **ret);

/*
 * Ends the session and frees the client, its loaders, epochs and batches; NULL is allowed. While
 * DLPack tensors live, their mappings and leases stay, and with them the session in the daemon,
 * until the last one is deleted. Always returns NULL.
 */
DL_API struct dl_client *dl_client_close(struct dl_client *client);

/* The text of the last failure: "batch.size: -3 is not a positive integer". "" if none. Valid until
 * the next call on this client. dl_client_error_path() returns only its place ("batch.size"), which
 * may be "". */
DL_API const char *dl_client_error(const struct dl_client *client);
DL_API const char *dl_client_error_path(const struct dl_client *client);

/*
 * The whole report of the last failure, if its text is only a summary: for a step that failed in
 * Python code, type, message and traceback in many lines. Up to 65536 bytes; "" without a report.
 * Valid as long as the text.
 */
DL_API const char *dl_client_error_detail(const struct dl_client *client);

/*
 * 0 after a fatal error in any call: every later call then returns that error, and only
 * dl_client_close() is left. 1 otherwise, also after an error that was not fatal.
 */
DL_API int dl_client_is_usable(const struct dl_client *client);

/*
 * For language bindings, whose signal handlers run between calls: while a function of libdlclient
 * waits in the calling thread, it calls `check` after each signal and at least every 100 ms. If
 * that returns nonzero, the function fails with -EINTR, and the session cannot be used any more.
 * NULL: no check. It must not call libdlclient.
 */
DL_API void dl_set_interrupt(int (*check)(void *data), void *data);

/*
 * Sets a progress function. While opening a loader waits for the daemon's workers, which list
 * folders, index files, or measure samples, `tell` is called up to five times a second with `done`
 * of `all`; UINT64_MAX: the total is unknown. `what` tells a user what is counted ("lengths",
 * "images found"), and is valid for the call; when it changes, another stage has begun. Quick
 * stages may be reported once, or not at all. NULL: no reports. It must not call libdlclient.
 */
DL_API void dl_client_set_progress(struct dl_client *client,
                                   void (*tell)(void *data, uint64_t done, uint64_t all,
                                                const char *what),
                                   void *data);

/*
 * How long the client waits for another daemon at the same path after its own has ended. Calls that
 * need one wait, within their timeouts, open the loaders again, and start the epochs where they
 * were: no batch is lost or repeated, and received batches stay valid. By default 30 seconds, or
 * $DLOADER_RECONNECT, in seconds; 0: not at all. After that the client fails with -ECONNRESET; with
 * -ESTALE if the next daemon finds another dataset, number of steps or seed. The client does not
 * wait for a daemon that it started itself (--private), nor for the first one (see
 * dl_client_connect()). While a daemon shuts down, opening a loader and starting an epoch also wait
 * for the next one.
 */
DL_API void dl_client_set_reconnect(struct dl_client *client, uint64_t timeout_ns);

/*
 * For the caller's event loop. Poll this descriptor for reading (it never changes); when it is
 * readable, call dl_client_dispatch(), which reads once and never blocks, then dl_epoch_next() with
 * timeout 0 until it returns -EAGAIN: several batches can come at once. Without a daemon the
 * descriptor is -1, which poll() ignores, and dispatching does nothing.
 */
DL_API int dl_client_fd(struct dl_client *client);
DL_API int dl_client_dispatch(struct dl_client *client);

/*
 * A view of the daemon as msgpack (proto/PROTOCOL.md lists the keys): "status", "loaders",
 * "epochs", "workers", "ring", "sessions", "users", "quarantine", "members", "times", "trace",
 * "mixtures", "lately", "slowest", "remote", "specs"; all but "status", "members" and "remote" are
 * lists of any length, a snapshot of one moment. *ret_data is owned by the client and valid until
 * its next call; -EINVAL if another daemon took over before a long list was complete. `control`
 * verbs: "stop", "drain", "reload", "close-run"; -EPERM unless the daemon's own user or root asks;
 * -ENOTCONN without a daemon. If a daemon does not answer within 30 seconds, the client gives up:
 * -ETIMEDOUT, fatal.
 */
DL_API int dl_client_query(struct dl_client *client, const char *view, const void **ret_data,
                           size_t *ret_len);
DL_API int dl_client_control(struct dl_client *client, const char *verb);

/*
 * Measures how much faster the trainers of an open loader would be if loading took no time, as
 * msgpack (proto/PROTOCOL.md lists the keys). It watches `steps` steps of each rank (1 to 10000),
 * and then as many whose batches come in bursts; no batch is left out or repeated. Returns when
 * that is done, however long the trainers take; closing the client's socket ends the call early.
 * -ENOENT: no loader of that name; -ENODATA: nobody reads it; -ENOBUFS: fewer than 3 batches are
 * loaded ahead; -EBUSY; -ETIME; -ETIMEDOUT; -ECANCELED.
 */
DL_API int dl_client_headspace(struct dl_client *client, const char *loader, uint32_t steps,
                               const void **ret_data, size_t *ret_len);

/*
 * Gives an open loader `workers` worker processes, up to 256, from now on, also while it is read:
 * its batches stay the same. 0: as many as the daemon finds useful (workers.count: auto). The
 * answer, msgpack: `loader`, `workers`, `automatic` and `before`. -ENOENT: no loader of that name;
 * -EINVAL: its batches depend on the number of workers; -EDQUOT, -ENOMEM: limits or memory.limit
 * allow no more; -EAGAIN: it is not open yet. The daemon has to be of this release or later.
 */
DL_API int dl_client_resize(struct dl_client *client, const char *loader, uint32_t workers,
                            const void **ret_data, size_t *ret_len);

/*
 * Sets new weights of a mixture (dataset.kind mix) that is being read, for all its ranks from one
 * later step of an epoch on. Each dataset is named by its number in the spec, from 0 ("1"), or by
 * its name in the view "mixtures"; all must be named. CHANGING WEIGHTS in dlclient(3) has the rules
 * and errors.
 *
 * `epoch` and `step`: the first step with the new weights, the same for all ranks; DL_UNKNOWN: in
 * the current epoch, the first step that no rank has planned yet. In a cluster's world each node is
 * to be given the same step. dl_loader_mix() sets both to the
 * actual place. dl_client_mix() is for a loader that other clients of the same user have opened, by
 * its name (the daemon's user and root: of any user); its answer is msgpack.
 */
struct dl_mix_weight {
    const char *dataset; /* its number or name; UTF-8 */
    double weight;
};
DL_API int dl_client_mix(struct dl_client *client, const char *loader,
                         const struct dl_mix_weight *weights, size_t n, uint64_t epoch,
                         uint64_t step, const void **ret_data, size_t *ret_len);
DL_API int dl_loader_mix(struct dl_loader *loader, const struct dl_mix_weight *weights, size_t n,
                         uint64_t *epoch, uint64_t *step);

/*
 * Sets new weights of single samples for a sampler of kind weighted that is being read, for all its
 * ranks from one later step of an epoch on: weights[0..n), one for each sample of the dataset,
 * float64, finite, not negative, not all 0. Copied before it returns. Each state written from here
 * on contains only their checksum; the weights are kept in a file, which resuming needs. See
 * CHANGING WEIGHTS in dlclient(3). `epoch` and `step` as for dl_loader_mix().
 */
DL_API int dl_client_weights(struct dl_client *client, const char *loader, const double *weights,
                             size_t n, uint64_t epoch, uint64_t step, const void **ret_data,
                             size_t *ret_len);
DL_API int dl_loader_weights(struct dl_loader *loader, const double *weights, size_t n,
                             uint64_t *epoch, uint64_t *step);

/*
 * Registers a Python host (proto/PROTOCOL.md, Life of a Python host): a process that starts the
 * workers of a loader of this session whose spec then says
 * `dataset: {kind: python, host: <number>}`.
 *
 * `channel` is a Unix stream socket whose other end the host has; the caller owns it, and keeps it
 * open as long as the host is to live. The host gets its connection to the daemon over it, as a
 * descriptor with one byte, and another whenever the client has another daemon; it ends when the
 * channel does. A client that may reconnect to another daemon has a copy of the channel until the
 * loader is closed. `number` is not 0. Does not wait until the daemon has read of it. -ENOTSUP: a
 * client without a daemon; -EBADF; -EPIPE: the host has ended; -EINVAL.
 */
DL_API int dl_client_bring_host(struct dl_client *client, int channel, uint64_t number);

/*
 * For a child made by fork(): closes the child's descriptors of its parent's client, which would
 * keep the session alive after the parent has ended. The parent's session continues. The child may
 * then only call dl_client_close() on the client, or nothing. Memory of batches stays mapped. NULL
 * is allowed.
 */
DL_API void dl_client_abandon(struct dl_client *client);

/*
 * Page-locks this session's shared memory for CUDA, both what is mapped now and what will be, until
 * it is unmapped: a GPU then copies from it directly. libcuda is looked up at run time; the calling
 * thread's CUDA context is used, or, without one, the primary context of device 0. -ENOTSUP: no
 * libcuda, or no device; -EIO: CUDA refused, and the text has its name for the error. Memory that
 * was locked stays locked, and everything else works as before. If a later segment cannot be
 * locked, no more are; calling this again says why. Private memory is not locked.
 *
 * dl_pin_check(): whether there are libcuda and a device, without touching one: 0, or -ENOTSUP or
 * -EIO as above and one line that says why not, cut to `size` bytes.
 */
DL_API int dl_client_pin(struct dl_client *client);
DL_API int dl_pin_check(char *why, size_t size);

/*
 * Whether loaders opened from here on have writable batches if their spec does not set
 * memory.writable: 1, or 0 (the default). If a loader is already open, the client that opened it
 * first has decided; see dl_batch_is_writable().
 */
DL_API void dl_client_set_writable(struct dl_client *client, int writable);

/*
 * Whether the daemon finds the number of workers of loaders opened from here on if their spec does
 * not set workers.count, as if it said auto: 1, or 0 (the default). If a loader is already open,
 * the client that opened it first has decided.
 */
DL_API void dl_client_set_automatic(struct dl_client *client, int automatic);

/*
 * The seed of loaders opened from here on whose spec sets no seed, instead of a random one; only
 * its lower 53 bits count. If ranks had several daemons that each drew another seed, their shares
 * would be of different orders: some samples would come twice, and others not at all. 0 will do, as
 * in PyTorch's DistributedSampler. In the world of a cluster the nodes agree on a seed themselves.
 */
DL_API void dl_client_set_seed(struct dl_client *client, uint64_t seed);

/* ---- loader -------------------------------------------------------------------------------- */

/*
 * Opens a loader by its spec: YAML or JSON text, or just the name of an open loader (in quotes, if
 * it contains ": "). Relative paths in it start from `base` (NULL: the current directory). Blocks
 * until the workers have opened the dataset, at most ten minutes. dl_loader_open_file() reads the
 * text from a file, whose directory is the base. -EINVAL: the spec; -EPERM: it names code that this
 * daemon does not run for its user, or has crashed the daemon twice (see dloaderd(8)); -ETIMEDOUT:
 * storage hangs; -ENOENT and others: its files. The text says which and why.
 */
DL_API int dl_loader_open(struct dl_client *client, const char *spec, size_t len, const char *base,
                          struct dl_loader **ret);
DL_API int dl_loader_open_file(struct dl_client *client, const char *path, struct dl_loader **ret);

/*
 * Stops its epochs, releases their batches, including pinned ones, and frees it; NULL is allowed.
 * While DLPack tensors of it live, their memory stays, but no worker waits for this loader. Returns
 * NULL.
 */
DL_API struct dl_loader *dl_loader_close(struct dl_loader *loader);

DL_API const char *dl_loader_name(const struct dl_loader *loader);
DL_API uint64_t dl_loader_length(const struct dl_loader *loader);     /* samples, or DL_UNKNOWN */
DL_API uint64_t dl_loader_batch_size(const struct dl_loader *loader); /* at most; 0: not batched */
DL_API int dl_loader_is_iterable(const struct dl_loader *loader);     /* 1: steps may be left out */
DL_API uint32_t dl_loader_replicas(const struct dl_loader *loader);   /* shard.replicas; 1: none */
DL_API uint64_t dl_loader_seed(const struct dl_loader *loader);       /* given, or drawn */
DL_API uint64_t dl_loader_fingerprint(const struct dl_loader *loader);
/* 1: its batches come in the order of their steps; 0: they may pass others (workers.bypass). */
DL_API int dl_loader_in_order(const struct dl_loader *loader);

/* ---- epoch --------------------------------------------------------------------------------- */

/* Which consumer's batches are loaded first if workers or memory do not suffice for all consumers
 * of a loader: a lower priority gets what the higher ones leave. Of several loaders whose workers
 * want the same processors, each has a part by its consumers' priority. */
enum dl_priority { DL_PRIORITY_NORMAL, DL_PRIORITY_HIGH, DL_PRIORITY_LOW };

/* At the end of an epoch in the cluster's world, if nodes that are gone have left samples out:
 * dl_epoch_next() returns DL_E_LEFT_OUT before DL_END; or dl_epoch_warning() says so; or neither.
 */
enum dl_left_out { DL_LEFT_OUT_ERROR, DL_LEFT_OUT_WARN, DL_LEFT_OUT_IGNORE };

/* What dl_epoch_next() does when the cluster's world has changed: it returns DL_E_WORLD_CHANGED; it
 * continues in the new one; or it continues while rank and world size stay the same, and otherwise
 * returns DL_E_WORLD_CHANGED. */
enum dl_follow { DL_FOLLOW_NOT, DL_FOLLOW_ANY, DL_FOLLOW_SAME };

struct dl_epoch_options {
    size_t size;    /* sizeof(struct dl_epoch_options); 0: fields behind `reserved` are not there */
    uint64_t epoch; /* number of the epoch, from 0; with the seed it determines the order */
    uint32_t rank;  /* this consumer, 0 ≤ rank < world */
    uint32_t world; /* number of consumers; 0 = 1; or DL_WORLD_CLUSTER */
    uint64_t step;  /* first step wanted: 0, or where a former run stopped */
    uint32_t credits; /* most batches loaded ahead; 0: prefetch × workers + 1 of the spec */
    uint32_t follow;  /* enum dl_follow, with DL_WORLD_CLUSTER: what to do when that has changed */

    /* Continues from here instead: the state of any rank, by dl_epoch_state() or
     * dl_epoch_whole_state(); epoch and step are then 0. NULL: from the step above. */
    const void *state;
    size_t state_len;
    const char *job; /* name of the ranks' training job, or NULL; see below */
    /* With a step of an iterable dataset, and no state: what dl_epoch_whole_state() wrote after the
     * token. NULL: nothing. */
    const void *dataset_states;
    size_t dataset_states_len;
    uint32_t priority; /* enum dl_priority; if batches are dispatched, all ranks have that of the
                        * one that comes first */
    uint32_t left_out; /* enum dl_left_out */
    /* For trainers on this node that read the same batches, those of rank `rank` of `world`, as the
     * ranks of one tensor, pipeline or context parallel group do: number of this trainer, and how
     * many they are (at most 1024). Each gets all batches and acknowledges them itself; they are
     * loaded once. 0 and 0: it is alone or, if the spec has shard.replicas, `rank` and `world`
     * count replicas. See dl_epoch_options_set_mesh(). */
    uint32_t replica, replicas;
    /* If the spec has shard.replicas: the number of ranks on each node, which are consecutive. A
     * group of replicas may then span several nodes, each of which loads its batches once. 0: all
     * ranks are on this node. */
    uint32_t local_world;
    uint32_t reserved; /* 0 */
    /* Steps of this rank in the epoch, if the client is the sampler or the dataset has no length:
     * `dlctl top` and others then show how much is left. A wrong number does no harm; 0: unknown */
    uint64_t expected_steps;
    /* Where batches may pass others (workers.bypass): what dl_epoch_journal() wrote in another run
     * of this epoch of the rank. The batches come in that order, as far as it goes, and then as
     * they are ready. With a state of that run, from there on. NULL: as they are ready. */
    const void *journal;
    size_t journal_len;
};

enum { DL_JOB_BYTES = 129 }; /* of a job's name, at most, with its NUL */

/* As epoch, with step 0: where the job's rank stopped; in the cluster, where other nodes are. */
#define DL_RESUME UINT64_MAX

/* Instead of a number of consumers: as many as the nodes have agreed on (rendezvous in
 * dloaderd.conf(5)); `rank` is then the rank among those of the daemon's node. */
#define DL_WORLD_CLUSTER UINT32_MAX

/*
 * Starts loading. NULL options: epoch 0, one rank. Does not wait for the first batch.
 *
 * With DL_RESUME a trainer of a named job continues at the first step that it has not acknowledged
 * by releasing its batch; dl_epoch_number() and dl_epoch_first() say where that is. With
 * DL_WORLD_CLUSTER this waits until the nodes have met; dl_epoch_rank() and dl_epoch_world() then
 * return the place. JOBS and CLUSTERS in dlclient(3) say what holds for either, and what
 * dl_epoch_next() returns when nodes join or leave. -EINVAL: the options, or another rank is more
 * than an epoch away; -EBUSY: another session reads as this rank; -ENOENT: nothing is known of the
 * job's rank; -ESTALE: another number of ranks left the job; -ENOTSUP: there is no cluster;
 * -ETIMEDOUT: nodes or trainers are missing, and the text says which.
 */
DL_API int dl_epoch_start(struct dl_loader *loader, const struct dl_epoch_options *options,
                          struct dl_epoch **ret);

/* Which options the caller has set, even to 0. */
enum { DL_GIVEN_RANK = 1, DL_GIVEN_WORLD = 2, DL_GIVEN_JOB = 4 };

/*
 * Fills in what is not `given` (a mask of the above) from the environment of launchers: `rank` and
 * `world`, both or neither, or `rank` on this node if the given world is DL_WORLD_CLUSTER;
 * `local_world`; and the job's name, which is written to `job`, of DL_JOB_BYTES, and is then
 * options->job. "Variables of launchers" in dlclient(3) lists them. Unset variables leave their
 * options unchanged. -EINVAL, with a line in `why`, cut to `size` bytes, that names the variable,
 * and nothing changed: one of two is missing, or one is not a number within its bounds. `why` may
 * be NULL with size 0.
 */
DL_API int dl_epoch_options_from_env(struct dl_epoch_options *options, unsigned given, char *job,
                                     char *why, size_t size);

/*
 * Sets `rank`, `world`, `replica` and `replicas` by a mesh of ranks: "dp=4,tp=2", the dimension
 * whose ranks are furthest apart first, as in torch.distributed's init_device_mesh(). Ranks that
 * differ in dp, dp_replicate, dp_shard, ddp, fsdp or data have different samples; those that differ
 * only in tp, pp, cp or sp read the same batches. `rank`: this rank's number in the mesh;
 * `local_world`: the number of ranks on each node, which are consecutive; 0: all are on this one.
 * If a group spans several nodes, each node loads its batches once. -EINVAL, with a line in `why`,
 * cut to `size` bytes, and nothing changed: the text is not a mesh, or has no such rank. `why` may
 * be NULL with size 0. Thread-safe.
 */
DL_API int dl_epoch_options_set_mesh(struct dl_epoch_options *options, const char *mesh,
                                     uint32_t rank, uint32_t local_world, char *why, size_t size);

/*
 * The next batch, in the order of the steps, or as they become ready if the spec says
 * `workers: {in_order: false}`. Always releases the previous batch, unless it is pinned.
 * timeout_ns: < 0 waits as long as necessary, 0 does not wait. 0 and *ret: a batch, valid until the
 * next call on this epoch; DL_END: no more; -EAGAIN (timeout 0) or -ETIMEDOUT: not ready yet;
 * -ENOMEM: memory.limit has no room until this client releases pinned batches; -ENODATA: the client
 * is the sampler, and has to feed more; else an error. If dl_client_is_usable() returns 1 after it,
 * the error was that of this one step ("worker 1 was killed by SIGSEGV …"), and the next call
 * continues with the next step, or returns DL_END after the last. A step's own EAGAIN, ETIMEDOUT or
 * ENODATA comes as -EIO.
 */
DL_API int dl_epoch_next(struct dl_epoch *epoch, int64_t timeout_ns, struct dl_batch **ret);

/*
 * The client as the sampler (`sampler: {kind: client}`): the fed indices are the order of the
 * epoch. Each rank feeds its own, also while batches are received; an index may be repeated. Never
 * blocks: -EAGAIN when twice `credits` steps were fed and not yet returned by dl_epoch_next().
 *
 * dl_epoch_feed() makes batches of batch.size indices, and returns how many it took, as write()
 * does. dl_epoch_feed_batch() takes one step's, 1 to batch.size of them (1 if it is null): 0. The
 * two may be mixed, but not inside a batch. dl_epoch_feed_end(): nothing follows; an incomplete
 * batch is then the last one, or is left out if the spec has batch.drop_last. -EINVAL: the loader
 * has a sampler of its own, the end was fed, or an incomplete batch waits; or a wrong size.
 */
DL_API int64_t dl_epoch_feed(struct dl_epoch *epoch, const uint64_t *indices, size_t n);
DL_API int dl_epoch_feed_batch(struct dl_epoch *epoch, const uint64_t *indices, size_t n);
DL_API int dl_epoch_feed_end(struct dl_epoch *epoch);

/* Its number, and the first step that it returns, if there is one. */
DL_API uint64_t dl_epoch_number(const struct dl_epoch *epoch);
DL_API uint64_t dl_epoch_first(const struct dl_epoch *epoch);

/* Its rank, and the number of ranks: from the options, or as the nodes have agreed. */
DL_API uint32_t dl_epoch_rank(const struct dl_epoch *epoch);
DL_API uint32_t dl_epoch_world(const struct dl_epoch *epoch);

/* How often the epoch has followed the cluster to another world (DL_FOLLOW_ANY): the results of the
 * two functions above, and of dl_epoch_first(), dl_epoch_steps(), dl_epoch_samples() and
 * dl_batch_step(), may have changed with the last batch from dl_epoch_next(). */
DL_API uint32_t dl_epoch_changes(const struct dl_epoch *epoch);

/*
 * After DL_E_WORLD_CHANGED, without options.follow: waits for the next world, in which the epoch
 * then continues as the same object. dl_epoch_rank() and dl_epoch_world() return the new place
 * before the first batch there, so that a process group can be rebuilt. Returns at once if the
 * world has not changed. A rank that lacks steps of the previous world gets those first, and then
 * DL_E_WORLD_CHANGED once more. Errors as dl_epoch_start(); -EINVAL: the epoch is not in the
 * cluster's world, or its ranks have orders of their own.
 */
DL_API int dl_epoch_wait_world(struct dl_epoch *epoch);

/* Totals of this rank; DL_UNKNOWN: the iterable dataset has no length, the client feeds, or a
 * daemon takes lengths while the epoch is read (batch.lengths). */
DL_API uint64_t dl_epoch_steps(const struct dl_epoch *epoch);
DL_API uint64_t dl_epoch_samples(const struct dl_epoch *epoch);

/*
 * Something that a user should know, although nothing failed ("the dataset has more samples than
 * its length says"): one line of text with the remedy, or NULL. Each warning is returned once; of
 * several since the last call only the last is kept. Owned by the epoch, valid until this is called
 * again or the epoch ends. Call it after each dl_epoch_next().
 */
DL_API const char *dl_epoch_warning(struct dl_epoch *epoch);

/* The step whose error the last dl_epoch_next() returned; DL_UNKNOWN: none, or of no single step.
 */
DL_API uint64_t dl_epoch_failed_step(const struct dl_epoch *epoch);

/*
 * Bytes of shared memory held by pinned batches of the epoch's loader, and by DLPack tensors alone:
 * this client's use of memory.limit beyond its current batches. Deleters that ran in other threads
 * are counted.
 */
DL_API uint64_t dl_epoch_held_bytes(const struct dl_epoch *epoch);

/* Nanoseconds this epoch's dl_epoch_next() calls spent waiting for a batch. */
DL_API uint64_t dl_epoch_wait_ns(const struct dl_epoch *epoch);

/*
 * The state of an epoch: a token of its position, from which another process can continue with
 * options.state, on another machine, with another number of ranks. See STATES in dlclient(3).
 *
 * dl_epoch_state() covers the batches that dl_epoch_next() returned, including the current one, and
 * steps that failed; after DL_END it is the beginning of the next epoch. *len is the size of `buf`,
 * DL_STATE_MAX unless weights were changed, then that of the state; -ENOSPC: it is the size needed.
 * Where batches may pass others (workers.bypass, workers.in_order: false) it is that of this rank
 * alone, and says which ones came; -ENOTSUP within such an epoch of an iterable dataset, or of a
 * client that is the sampler. dl_epoch_whole_state() writes the token at
 * `step`, DL_UNKNOWN being the current one, and behind it what an iterable dataset says of its own
 * position; dl_epoch_has_dataset_state() is 1 once it has said anything.
 */
#define DL_STATE_MAX 1023
DL_API int dl_epoch_state(struct dl_epoch *epoch, void *buf, size_t *len);
DL_API int dl_epoch_whole_state(struct dl_epoch *epoch, uint64_t step, void *buf, size_t *len);
DL_API int dl_epoch_has_dataset_state(const struct dl_epoch *epoch);

/*
 * Where batches may pass others: the order in which those of this epoch came, from its first step
 * or from the state that it continues, for options.journal. *len is the size of `buf`, then that of
 * the journal: some bytes for each batch that was passed, at most 512 KiB more than a state;
 * -ENOSPC: it is the size needed. -ENOTSUP: the batches come in the order of their steps, as a
 * state says, or nobody knows it.
 */
DL_API int dl_epoch_journal(struct dl_epoch *epoch, void *buf, size_t *len);

/*
 * dl_loader_state() writes the token of the place in `options`; with options.state that state's
 * place for `world`, at `step`, if it is not 0. dl_loader_find_state() returns where a state
 * continues with this number of ranks, or why it cannot. dl_state_json() describes a token as one
 * line of JSON: returns its length, as snprintf() does; -EINVAL, -EPROTONOSUPPORT: not a state, or
 * of another version.
 */
DL_API int dl_loader_state(struct dl_loader *loader, const struct dl_epoch_options *options,
                           void *buf, size_t *len);
DL_API int dl_loader_find_state(struct dl_loader *loader, const void *state, size_t len,
                                uint32_t world, uint64_t *ret_epoch, uint64_t *ret_step);
DL_API int dl_state_json(const void *state, size_t len, char *buf, size_t size);

/* Ends it early or after DL_END: releases its unpinned batches and frees it. Returns NULL. */
DL_API struct dl_epoch *dl_epoch_end(struct dl_epoch *epoch);

/* ---- batch --------------------------------------------------------------------------------- */

DL_API uint64_t dl_batch_step(const struct dl_batch *batch);
DL_API uint64_t dl_batch_bytes(const struct dl_batch *batch); /* of its tensors and text together */

/* The sample indices, in the order of the rows; *ret_n of them. */
DL_API const uint64_t *dl_batch_indices(const struct dl_batch *batch, size_t *ret_n);

/*
 * How many of its last samples are repeats of samples that some rank already has, so that all ranks
 * get equally many (shard.even). Metrics over an epoch leave them out. 0 without ranks, and for an
 * iterable dataset.
 */
DL_API uint32_t dl_batch_repeated(const struct dl_batch *batch);

/*
 * For a loader whose batches are measured in tokens (batch.tokens): the length in tokens of each
 * sample in the batch, after any cut, in the order of the indices; and how many tokens the batch
 * takes, padding included. They are the batch's memory, like its indices. -ENODATA, and nothing is
 * written: the loader's batches are measured in samples.
 */
DL_API int dl_batch_lengths(const struct dl_batch *batch, const uint32_t **ret_lengths,
                            size_t *ret_n, uint64_t *ret_padded);

/* Numbers as in proto/dtype.def. */
enum dl_type {
    DL_BOOL = 1,
    DL_UINT8,
    DL_INT8,
    DL_UINT16,
    DL_INT16,
    DL_UINT32,
    DL_INT32,
    DL_UINT64,
    DL_INT64,
    DL_FLOAT16,
    DL_BFLOAT16,
    DL_FLOAT32,
    DL_FLOAT64,
    DL_COMPLEX64,
    DL_COMPLEX128,
};

/* A view of one tensor; copies of it are valid as long as the batch is. */
struct dl_tensor {
    const void *data;
    uint64_t nbytes;
    uint64_t shape[8]; /* elements; the batch dimension first */
    uint32_t ndim;
    uint32_t dtype; /* enum dl_type */
};
DL_API const char *dl_type_name(uint32_t dtype); /* "float32"; "?" if unknown */
DL_API size_t dl_type_bytes(uint32_t dtype);     /* of one element; 0 if unknown */

/* The tensor at `path`: keys and positions joined by dots ("image", "pair.0"); NULL or "" for a
 * batch that is one tensor. -ENOENT: no such path; -EINVAL: it is a dict, list or tuple, or text.
 */
DL_API int dl_batch_tensor(struct dl_batch *batch, const char *path, struct dl_tensor *ret);

/*
 * The part of a sequence of `length` tokens that one of `parts` context parallel ranks has, as
 * tokens first to first + count - 1: a view of the batch, for every tensor with that dimension,
 * `position_ids` too. CONTIGUOUS: one stretch. ZIGZAG: two, the part-th from the start and the
 * part-th from the end of 2 · parts of them, which balances the work of all ranks if tokens only
 * see earlier ones. Returns how many stretches; -EINVAL: `part` is not below `parts`, or `length`
 * is not a multiple of `parts` or, for ZIGZAG, of 2 · parts. Thread-safe.
 */
enum dl_sequence { DL_SEQUENCE_CONTIGUOUS, DL_SEQUENCE_ZIGZAG };
struct dl_stretch {
    uint64_t first;
    uint64_t count;
};
DL_API int dl_sequence_part(uint64_t length, uint32_t part, uint32_t parts, enum dl_sequence how,
                            struct dl_stretch ret[2]);

/*
 * Text: a string (UTF-8) or bytes of each sample, so a list of them; or a single one, if the batch
 * is an uncollated sample. dl_batch_text() returns string `i` of the text at `path`, in place, not
 * NUL-terminated; dl_batch_text_count() how many there are: the length of the list, which can be 0,
 * or 1. dl_batch_node_text() takes the number of a node; its count is in struct dl_node. -ENOENT:
 * no such path; -EINVAL: no text there, or no string `i`; -EPROTO: an offset in shared memory leads
 * out of the batch. Then only that string is lost; the session stays usable.
 */
DL_API int dl_batch_text(struct dl_batch *batch, const char *path, uint64_t i, const char **ret,
                         size_t *ret_len);
DL_API int dl_batch_text_count(struct dl_batch *batch, const char *path, uint64_t *ret);
DL_API int dl_batch_node_text(struct dl_batch *batch, uint32_t node, uint64_t i, const char **ret,
                              size_t *ret_len);

/* The tree, node by node, in preorder. */
enum dl_node_kind {
    DL_NODE_TENSOR = 1,
    DL_NODE_DICT,
    DL_NODE_LIST,
    DL_NODE_TUPLE,
    DL_NODE_STRING, /* UTF-8 */
    DL_NODE_BYTES,
    DL_NODE_OBJECT, /* a Python object: its first child is its pickle, DL_NODE_BYTES; then the
                     * tensors that the pickle refers to */
};
struct dl_node {
    enum dl_node_kind kind;
    uint32_t children; /* direct ones; they follow */
    uint32_t depth;    /* 0 = the root */
    uint32_t key_len;
    const char *key;         /* of a dict's child, not NUL-terminated; else NULL */
    struct dl_tensor tensor; /* zero unless it is one */

    /* For text; else zero. */
    uint64_t count;   /* strings in it */
    uint32_t is_list; /* 1: a list of them, even of one or none; 0: a single one */
    uint32_t reserved;
    /* All of it. For a list: count + 1 numbers uint64_t, of which i and i + 1 are the beginning and
     * end of string i after these numbers, then the strings. Unchecked, unlike dl_batch_text().
     * NULL for a list of which this rank has only some strings (shard.mode dispatch), although
     * text_nbytes is the full size: dl_batch_node_text() reads them. */
    const void *text;
    uint64_t text_nbytes;
};
DL_API uint32_t dl_batch_nodes(const struct dl_batch *batch);
DL_API int dl_batch_node(struct dl_batch *batch, uint32_t i, struct dl_node *ret);

/* Keeps the batch beyond the next dl_epoch_next() and dl_epoch_end(), until dl_batch_release() or
 * dl_loader_close(). Its credit is returned at once; memory.limit bounds how many can be pinned. */
DL_API int dl_batch_pin(struct dl_batch *batch);

/*
 * Copies the batch into private, writable memory of this process and ends its lease: it no longer
 * counts towards memory.limit, and otherwise stays as it was, valid as long as before. Earlier
 * pointers into it are invalid. The current batch of a job keeps its slot until it is released,
 * since that acknowledges it. -EBUSY: DLPack tensors of it live already; -ENOMEM.
 */
DL_API int dl_batch_detach(struct dl_batch *batch);

/*
 * 1: the batch can be held for any time, by a pin or by tensors, and this client can still receive
 * all others: enough of the memory is left, and a slot of the batch's segment. 0: detach it unless
 * it is sure to be released soon.
 */
DL_API int dl_batch_may_keep(const struct dl_batch *batch);

/* 1: its tensors can be written to: `memory: {writable: true}`, or private memory. */
DL_API int dl_batch_is_writable(const struct dl_batch *batch);

/*
 * Releases the batch; it and its pointers are then invalid. Only needed for pinned batches, or to
 * release one early. NULL is allowed. Returns NULL. While DLPack tensors of it live, the memory
 * stays until the last is deleted.
 */
DL_API struct dl_batch *dl_batch_release(struct dl_batch *batch);

/*
 * The tensor at `path` as a DLPack managed tensor (struct DLManagedTensor of dlpack.h v0.8, device
 * kDLCPU): the consumer calls its deleter. It holds the batch itself, independently of pin and
 * release, and of the end of epoch, loader and client. -ENOENT, -EINVAL as dl_batch_tensor().
 * dl_batch_node_dlpack() takes the number of a node. -EINVAL: no such node, or no tensor.
 */
struct DLManagedTensor;
DL_API int dl_batch_dlpack(struct dl_batch *batch, const char *path, struct DLManagedTensor **ret);
DL_API int dl_batch_node_dlpack(struct dl_batch *batch, uint32_t i, struct DLManagedTensor **ret);

#ifdef __cplusplus
}
#endif

#endif
