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
 * which gives it back, or until dl_batch_release() if it was pinned by dl_batch_pin().
 *
 * Errors. Every function that can fail returns a negative errno; dl_client_error() then tells in
 * words what and where. After a fatal one (the daemon went away for good, the protocol was
 * violated) every later call on that client returns the same errno.
 *
 * A daemon that ends, killed, restarted or upgraded, is a pause and no more: see
 * dl_client_set_reconnect().
 *
 * Threads. None inside, no signal handlers, no output, and no globals but what dl_set_interrupt()
 * sets, which is the calling thread's own. A client and all that was opened from it belong to one
 * thread at a time; different clients are independent. The deleter of a DLPack tensor may run in
 * any thread, also after the client was closed. A child made by fork() may not use its parent's
 * clients; it has their memory mapped as long as it lives, which is charged to the user so long.
 *
 * Memory. Tensors are C-contiguous, 64-byte aligned, in the machine's byte order, mapped read-only
 * unless the spec says `memory: {writable: true}`. Strings and bytes lie there as well, without
 * NUL. With `shard.mode: dispatch` tensors are rows of larger ones, and aligned to their elements
 * alone.
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

/* Version of this header; dl_version() gives that of the library at run time: "0.1.0". */
#define DL_CLIENT_API_VERSION 1
DL_API const char *dl_version(void);

/* Not an error: the epoch has no more batches. */
#define DL_END 1

/* Of an epoch in the cluster's world: that is another one now. See dl_epoch_start(). */
#define DL_E_WORLD_CHANGED (-ESTALE)
/* Of such an epoch, at its end: samples of it are not known to have been used by anybody. */
#define DL_E_LEFT_OUT (-ENOTRECOVERABLE)

/* A count that nobody knows: an iterable dataset need not say how many samples it has. */
#define DL_UNKNOWN UINT64_MAX

struct dl_client;
struct dl_loader;
struct dl_epoch;
struct dl_batch;

/* ---- session ------------------------------------------------------------------------------- */

/*
 * Connects to the daemon at `socket_path`; NULL: $DLOADER_SOCKET, else the user's own
 * ($XDG_RUNTIME_DIR/dloaderd/socket) if it listens, else /run/dloaderd/socket. `agent` names the
 * program in `dlctl sessions`; NULL is fine. Blocks until the daemon has answered, ten seconds at
 * most.
 *
 * On failure *ret is still set, to a client that holds nothing but the error text, unless memory
 * ran out (-ENOMEM, *ret NULL). Close it with dl_client_close() in either case.
 * -ENOENT, -ECONNREFUSED: no daemon there; -ENAMETOOLONG: the path does not fit a socket address;
 * -EACCES; -EPROTO: another protocol version; -ETIMEDOUT.
 */
DL_API int dl_client_connect(struct dl_client **ret, const char *socket_path, const char *agent);

/*
 * A client without a daemon, for loaders whose spec says `workers: {count: 0}`: their batches are
 * made in this process, by dl_epoch_next() itself, with the same bytes in the same order. A client
 * with a daemon opens such a loader in the same way, so this is only needed where there is none.
 * -ENOMEM.
 *
 * Such a loader has no workers, no ring, and nothing is loaded ahead. dl_epoch_next() takes as long
 * as it takes, whatever its timeout, and dl_epoch_wait_ns() counts that. Batches lie in private
 * memory, which can be written to, and which is used again once they are given back; memory.limit
 * bounds what is held by pins and tensors. Plug-ins are loaded into this process, and log to its
 * standard error. Everything else is as with a daemon.
 * The loading is in a module of its own, dlclient-local.so, which is opened when it is needed:
 * $DLOADER_LOCAL_MODULE, else beside the library, else where it was installed.
 */
DL_API int dl_client_connect_local(struct dl_client **ret);

/*
 * Ends the session and frees the client, its loaders, epochs and batches; NULL is fine. While
 * DLPack tensors live, their mappings and leases stay, and with them the session in the daemon,
 * until the last one is deleted. Always returns NULL.
 */
DL_API struct dl_client *dl_client_close(struct dl_client *client);

/* The last failure's text: "batch.size: -3 is not a positive integer". "" if none. Valid until the
 * next call on this client. dl_client_error_path(): its place alone ("batch.size"), may be "". */
DL_API const char *dl_client_error(const struct dl_client *client);
DL_API const char *dl_client_error_path(const struct dl_client *client);

/*
 * The whole report of the last failure, where its text is only the gist: what dl_epoch_next() said
 * of a step that Python code failed at, type, message and traceback in many lines. Up to 65536
 * bytes; "" if there is none. Valid as long as the text.
 */
DL_API const char *dl_client_error_detail(const struct dl_client *client);

/*
 * 0 once a fatal error is latched, whatever call met it: every later call then returns it again,
 * and all that is left is dl_client_close(). 1 otherwise, also after an error that was not fatal.
 */
DL_API int dl_client_is_usable(const struct dl_client *client);

/*
 * For language bindings, whose signal handlers run between calls: while a function of libdlclient
 * waits in the calling thread, `check` is called after each signal and at least every 100 ms. When
 * it returns other than 0 the function fails with -EINTR, and the session is of no more use. NULL:
 * nobody is asked. It must not call libdlclient.
 */
DL_API void dl_set_interrupt(int (*check)(void *data), void *data);

/*
 * While opening a loader waits for the daemon's workers, which list folders, index files, or find
 * out how long the samples are, `tell` is called up to five times a second: `done` of `all` are,
 * UINT64_MAX: nobody knows of how many. `what` is counted, for people: "lengths", "images found";
 * valid for the call; another one: something else has begun. What is quick may be told of once, or
 * not at all. NULL: nobody is told. It must not call libdlclient.
 */
DL_API void dl_client_set_progress(struct dl_client *client,
                                   void (*tell)(void *data, uint64_t done, uint64_t all,
                                                const char *what),
                                   void *data);

/*
 * How long the client waits for another daemon at the same path when its own has ended: the calls
 * that need one wait, as long as their timeouts let them, open the loaders again, and start the
 * epochs where they were: no batch is lost, none comes twice, and what was received stays valid. By
 * default 30 seconds, or what $DLOADER_RECONNECT says, in seconds; 0: not at all. After that the
 * client fails with -ECONNRESET; with -ESTALE if the next daemon finds another dataset, number of
 * steps or seed. A daemon that is started by its client (--private) is not waited for, and neither
 * is the first one: that is dl_client_connect()'s business.
 * While a daemon shuts down, opening a loader and starting an epoch wait for the next one too.
 */
DL_API void dl_client_set_reconnect(struct dl_client *client, uint64_t timeout_ns);

/*
 * For the caller's own event loop: poll this descriptor for reading (it never changes), call
 * dl_client_dispatch() when it is readable, which reads once and never blocks, then
 * dl_epoch_next() with timeout 0 until it says -EAGAIN: several batches can come at once. Without a
 * daemon there is none: -1, which poll() passes over, and dispatching does nothing.
 */
DL_API int dl_client_fd(struct dl_client *client);
DL_API int dl_client_dispatch(struct dl_client *client);

/*
 * A view of the daemon as msgpack (proto/PROTOCOL.md lists the keys): "status", "loaders",
 * "epochs", "workers", "ring", "sessions", "users", "quarantine", "members", "times", "trace",
 * "mixtures", "lately", "slowest", "specs"; all but the first are lists of any length, of one
 * moment. *ret_data is owned by the client and valid until its next call; -EINVAL where another
 * daemon has come before a long list was there. `control` verbs: "stop", "drain", "reload",
 * "close-run"; -EPERM unless the daemon's own user or root asks; -ENOTCONN without a daemon. A
 * daemon that does not answer within 30 seconds is given up: -ETIMEDOUT, fatal.
 */
DL_API int dl_client_query(struct dl_client *client, const char *view, const void **ret_data,
                           size_t *ret_len);
DL_API int dl_client_control(struct dl_client *client, const char *verb);

/*
 * How much faster the trainers of an open loader would be if loading cost nothing, as msgpack
 * (proto/PROTOCOL.md lists the keys). It is tried out: `steps` steps of each rank (1 to 10000) are
 * watched, and then so many more of which batches come in bursts; no batch is left out or comes
 * twice. Returns when that is done, however long the trainers take; until then the client is in
 * this call, and closing its socket ends it. -ENOENT: no loader of that name; -ENODATA: nobody
 * reads it; -ENOBUFS: fewer than 3 batches are loaded ahead; -EBUSY; -ETIME; -ETIMEDOUT;
 * -ECANCELED.
 */
DL_API int dl_client_headspace(struct dl_client *client, const char *loader, uint32_t steps,
                               const void **ret_data, size_t *ret_len);

/*
 * New weights of a mixture (dataset.kind mix) that is being read, for all its ranks from one later
 * step of an epoch on: each of its datasets, by its number in the spec, from 0 ("1"), by what the
 * view "mixtures" calls it, or by the last part of that, if no other is called so. All have to be
 * named, with weight 0 where it is to be left out; a weight is finite, not negative, and 0 or at
 * least 1/16384 of the sum. They hold until they are changed again, in later epochs too, in place
 * of the spec's weights and schedule, and are part of each state that is written from here on.
 *
 * `epoch` and `step`: the first step with the new weights, of all ranks alike; DL_UNKNOWN: of the
 * epoch that is read, the first that no rank has planned yet. dl_loader_mix() sets both to where
 * it is. Where dataset.stop is first or all, or batches are measured in tokens, an epoch is known
 * as a whole: it is step 0 of one that no rank has started. Other clients hear of it before that
 * step. A second change of one step replaces the first.
 *
 * In a cluster's world it is for the ranks of all nodes, which agree on it: that takes a second or
 * two, and up to 25 s if a node or the store does not answer. It is enough that one rank asks; who
 * asks for what another one has asked for already gets the same answer.
 *
 * -EINVAL: no such dataset, no weights, or a step that a rank has planned: the text has the first
 * possible one; -EAGAIN: not all ranks of the world read it from this daemon, or of a cluster's
 * world nodes have not agreed: nothing was changed; -EBUSY: several worlds read it, or another node
 * has asked for another change at the same time; -ENOTSUP: its datasets are iterable, or it is read
 * in this process alone (workers.count 0); -E2BIG: 64 changes were made; -ENOENT: no loader of that
 * name.
 *
 * dl_client_mix() is for a loader of the user's that others have opened, by its name (the daemon's
 * user and root: of any user's); its answer, as msgpack, has the keys that proto/PROTOCOL.md lists.
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
 * New weights of single samples for a sampler of kind weighted that is being read, for all its
 * ranks from one later step of an epoch on: weights[0..n), one for each sample of the dataset,
 * float64, finite, not negative, not all 0. Copied before it returns. They hold until they are
 * changed again, in later epochs too, and are part of each state that is written from here on, by
 * their sum alone: they themselves are kept in a file in the directory $DLOADER_WEIGHTS, or
 * dloader/weights below $XDG_STATE_HOME or ~/.local/state, 8 bytes each, which whoever resumes from
 * such a state needs. Nobody removes it.
 *
 * With replacement, draws behind the step are by the new weights; without, what has not come in the
 * epoch is drawn again by them. In a cluster's world each node has to be given the same weights
 * with the same step, by one of its ranks; until it has them, its ranks go as far as that step, and
 * after 30 s there get -ENOENT. `epoch` and `step` as for dl_loader_mix(), and the same errors;
 * besides -EINVAL: the sampler is not weighted, or n is not the number of samples; -EDQUOT,
 * -ENOMEM: the daemon has no room for them; and those of writing a file.
 */
DL_API int dl_client_weights(struct dl_client *client, const char *loader, const double *weights,
                             size_t n, uint64_t epoch, uint64_t step, const void **ret_data,
                             size_t *ret_len);
DL_API int dl_loader_weights(struct dl_loader *loader, const double *weights, size_t n,
                             uint64_t *epoch, uint64_t *step);

/*
 * Brings a Python host (proto/PROTOCOL.md, Life of a Python host): a process that starts the
 * workers of a loader of this session whose spec then says `dataset: {kind: python, host:
 * <number>}`.
 *
 * `channel` is a Unix stream socket, whose other end the host has; it stays the caller's, who keeps
 * it open as long as the host shall live. The host gets its connection to the daemon over it, as a
 * descriptor with one byte, and another one whenever the client has another daemon; it ends when
 * the channel does. A client that may come to another daemon has a copy of the channel until the
 * loader is closed. `number` is not 0. Waits only for room in the socket to the daemon. -ENOTSUP: a
 * client without a daemon; -EBADF; -EPIPE: the host has ended; -EINVAL.
 */
DL_API int dl_client_bring_host(struct dl_client *client, int channel, uint64_t number);

/*
 * For a child made by fork(), of its parent's client: closes the descriptors that the child has of
 * it, which would keep the session alive when the parent is gone. The parent's session goes on. All
 * that is left for the child to do with the client is nothing at all, or dl_client_close(). Memory
 * of batches stays mapped. NULL is fine.
 */
DL_API void dl_client_abandon(struct dl_client *client);

/*
 * Page-locks the shared memory of this session for CUDA, all of it that is mapped and all that will
 * be, until it is unmapped: a GPU then copies out of it by itself. libcuda is looked for at run
 * time; the calling thread's CUDA context is used, or the primary one of device 0 if it has none.
 * -ENOTSUP: no libcuda, or no device; -EIO: CUDA refused, the text has its name for the error. What
 * was locked stays so, and everything else works as before. A segment that comes later and cannot
 * be locked ends the locking of others; calling it again says why. Private memory is not locked.
 *
 * dl_pin_check(): whether there is libcuda and a device, without touching one: 0, or -ENOTSUP and
 * one line of why not, cut to `size` bytes.
 */
DL_API int dl_client_pin(struct dl_client *client);
DL_API int dl_pin_check(char *why, size_t size);

/*
 * Whether loaders that are opened from here on shall have writable batches, where their spec does
 * not say memory.writable: 1, or 0 (the default). Of a loader that is open already whoever opened
 * it has decided; dl_batch_is_writable() tells.
 */
DL_API void dl_client_set_writable(struct dl_client *client, int writable);

/*
 * The seed of loaders that are opened from here on, in place of one that is drawn, where their spec
 * gives none; its lower 53 bits count. Ranks with several daemons, each of which draws another one,
 * would have shares of different orders: some samples twice, and some not at all. 0 will do, as for
 * PyTorch's DistributedSampler. In the world of a cluster the nodes agree on one by themselves.
 */
DL_API void dl_client_set_seed(struct dl_client *client, uint64_t seed);

/* ---- loader -------------------------------------------------------------------------------- */

/*
 * Opens a loader by its spec: YAML or JSON text, or only the name of one that is open already (in
 * quotes, if it holds ": ").
 * Relative paths in it start from `base` (NULL: the current directory). Blocks until the workers
 * have opened the dataset, ten minutes at most. dl_loader_open_file() reads the text from a file;
 * its directory is the base. -EINVAL: the spec, -EPERM: it names code that this daemon does not run
 * for its user, or has crashed the daemon twice (RIGHTS and CRASHES in dloaderd(8)), -ENOENT and
 * others: its files; the text says which and why.
 */
DL_API int dl_loader_open(struct dl_client *client, const char *spec, size_t len, const char *base,
                          struct dl_loader **ret);
DL_API int dl_loader_open_file(struct dl_client *client, const char *path, struct dl_loader **ret);

/*
 * Stops its epochs, gives their batches back, pinned ones too, frees it; NULL is fine. While DLPack
 * tensors of it live, their memory stays, but no worker waits for this loader. Returns NULL.
 */
DL_API struct dl_loader *dl_loader_close(struct dl_loader *loader);

DL_API const char *dl_loader_name(const struct dl_loader *loader);
DL_API uint64_t
dl_loader_length(const struct dl_loader *loader); /* samples in the dataset, or DL_UNKNOWN */
DL_API uint64_t dl_loader_batch_size(const struct dl_loader *loader); /* at most; 0: not batched */
DL_API int dl_loader_is_iterable(const struct dl_loader *loader);     /* 1: steps may be left out */
DL_API uint64_t dl_loader_seed(const struct dl_loader *loader);       /* given, or drawn */
DL_API uint64_t dl_loader_fingerprint(const struct dl_loader *loader);

/* ---- epoch --------------------------------------------------------------------------------- */

/* Of the consumers of a loader, whose batches are loaded first where its workers or its memory do
 * not suffice for all: a lower one gets what those above it leave. */
enum dl_priority { DL_PRIORITY_NORMAL, DL_PRIORITY_HIGH, DL_PRIORITY_LOW };

/* At the end of an epoch in the cluster's world, of which nodes that are gone have left samples
 * out: dl_epoch_next() says DL_E_LEFT_OUT before DL_END; dl_epoch_warning() does; or nobody. */
enum dl_left_out { DL_LEFT_OUT_ERROR, DL_LEFT_OUT_WARN, DL_LEFT_OUT_IGNORE };

/* What dl_epoch_next() does when the cluster's world has changed: it says so; it goes on in the new
 * one; or it goes on as long as the rank and the world are the same, and then says so. */
enum dl_follow { DL_FOLLOW_NOT, DL_FOLLOW_ANY, DL_FOLLOW_SAME };

struct dl_epoch_options {
    uint64_t epoch;   /* number of the pass, from 0; decides the order together with the seed */
    uint32_t rank;    /* this consumer, 0 ≤ rank < world */
    uint32_t world;   /* number of consumers; 0 = 1; or DL_WORLD_CLUSTER */
    uint64_t step;    /* first step wanted: 0, or where a former run left off */
    uint32_t credits; /* batches loaded ahead at most; 0: prefetch × workers + 1 of the spec */
    uint32_t follow; /* enum dl_follow, with DL_WORLD_CLUSTER: what it does when that has changed */

    /* Goes on from there instead: what dl_epoch_state() or dl_epoch_whole_state() gave, of any
     * rank; epoch and step are then 0. NULL: from the step above. */
    const void *state;
    size_t state_len;
    const char *job; /* name of the training job that the ranks are of, or NULL; see below */
    /* With a step of an iterable dataset, and no state: what dl_epoch_whole_state() wrote behind
     * the token. NULL: nothing. */
    const void *dataset_states;
    size_t dataset_states_len;
    uint32_t priority;   /* enum dl_priority; where batches are dispatched, that of the rank which
                          * comes first is all ranks' */
    uint32_t left_out;   /* enum dl_left_out */
    char job_found[129]; /* in place of `job`, if that is NULL: see dl_epoch_options_from_env() */
    /* Of trainers on this node that read the same batches, those of rank `rank` of `world`, as the
     * ranks of one tensor, pipeline or context parallel group do: which it is, and how many they
     * are (at most 1024). Each gets all batches, and acknowledges for itself; they are loaded once.
     * 0 and 0: it is alone, or, where the spec has shard.replicas, `rank` and `world` count
     * replicas. See dl_epoch_options_set_mesh(). */
    uint32_t replica, replicas;
    /* Where the spec has shard.replicas: ranks of each node, which follow each other; a group of
     * replicas may then be on several nodes, each of which loads its batches once. 0: all ranks are
     * on this one. */
    uint32_t local_world;
};

/* In the place of an epoch's number, with step 0: where the job's rank has left off, or, with
 * DL_WORLD_CLUSTER, where the other nodes are. */
#define DL_RESUME UINT64_MAX

/* In the place of a number of consumers: as many as the nodes that have met say (rendezvous in
 * dloaderd.conf(5)); `rank` is then the one among those of the daemon's node. */
#define DL_WORLD_CLUSTER UINT32_MAX

/*
 * Starts loading. NULL options: epoch 0, one rank. Does not wait for the first batch.
 *
 * Ranks that read the same loader have to agree: one that starts an epoch while another rank of as
 * many is in one more than one before or after it is refused (-EINVAL). Those of a job with a name
 * must also all say the same number of ranks, and no two sessions may read the same epoch as the
 * same rank (-EBUSY).
 *
 * A batch that is given back is acknowledged. When the trainer of such a job dies and comes back,
 * it can start DL_RESUME: it goes on at the first step that was not acknowledged, and what was
 * loaded ahead is there still; dl_epoch_number() and dl_epoch_first() say where that is. At an
 * epoch's end it is the beginning of the next. If none of the job's ranks reads when the first of
 * them comes back, all that are known resume at the same step: the first that one of them has not
 * acknowledged. Steps behind it are given again. The daemon keeps this as long as it keeps the
 * loader (linger in dloaderd.conf), not beyond its own end. One that follows it learns from the
 * ranks that reconnect where they are, and what they still hold of the one before is not passed
 * over; of an iterable dataset's epoch that had come to its end it knows nothing. Nor is it kept
 * where a rank is in an epoch that another number of ranks has begun: that is for a state. -ENOENT:
 * nothing is known of this rank.
 *
 * With DL_WORLD_CLUSTER it waits until the nodes have met, and trainers have asked for the loader
 * on each of them, as long as the daemon's rendezvous.timeouts.join says (-ETIMEDOUT: who is there,
 * and who is missing), and dl_epoch_rank() and dl_epoch_world() tell the place. A rank that is new
 * is where the others are in their epoch; one that names another epoch is refused (-EINVAL, which
 * says it), and DL_RESUME takes it, whatever it is; a rank that was there before goes on at the
 * first batch that it had not given back, or, if the others have left that epoch behind, in the
 * epoch where they are: dl_epoch_number() says it. What the nodes know of it is the job's: one of
 * another name starts over. -ENOTSUP: this daemon is alone.
 * When nodes come or go dl_epoch_next() says DL_E_WORLD_CHANGED, with the reason, once this rank
 * has had what it was to have in that world, and then DL_END. When a node is gone it does so at
 * once, unless options.follow is DL_FOLLOW_SAME: then it waits for the others, and goes on where
 * rank and world are the same again, or else to a step that all ranks have. The state of the epoch
 * then says how far it has come: started from it, with DL_WORLD_CLUSTER again, the epoch goes on in
 * the new world. A rank that lacks steps which others have had gets those first, as the rank that
 * it was, and then the error once more: so each sample of the epoch comes once, though no two ranks
 * were at the same step. With DL_FOLLOW_ANY dl_epoch_next() does all this by itself, waiting for it
 * longer than its timeout if need be; dl_epoch_changes() then counts up. Where the others have left
 * the epoch behind it ends, with a warning, and dl_epoch_number() says which one they are in. Not
 * so where ranks have orders of their own, over an iterable dataset or where the client is the
 * sampler.
 * An epoch's end waits, for rendezvous.fence at most, until no node is late with its heartbeat. If
 * the share of a node that is gone was not used to the end, as far as is known, DL_E_LEFT_OUT says
 * which steps of which ranks, and how many samples at most; options.left_out may turn that into a
 * warning.
 */
DL_API int dl_epoch_start(struct dl_loader *loader, const struct dl_epoch_options *options,
                          struct dl_epoch **ret);

/* Of the options: what the caller has set, 0 too. */
enum { DL_GIVEN_RANK = 1, DL_GIVEN_WORLD = 2, DL_GIVEN_JOB = 4 };

/*
 * Fills in what is not `given` (a mask of the above) from the environment, as launchers set it up:
 * `rank` and `world`, both or neither, of the first of these that has left its variables:
 *
 *   $RANK, $WORLD_SIZE: torchrun, Accelerate, DeepSpeed, Ray Train's TorchTrainer, PyTorchJob
 *   $OMPI_COMM_WORLD_RANK, …_SIZE: Open MPI; $MV2_COMM_WORLD_RANK, …_SIZE: MVAPICH2
 *   $PMI_RANK, $PMI_SIZE: MPICH, Intel MPI
 *   $SLURM_PROCID, $SLURM_STEP_NUM_TASKS: srun
 *   $PMIX_RANK, or $JOB_COMPLETION_INDEX of a Kubernetes Indexed Job, with $WORLD_SIZE
 *
 * In DL_WORLD_CLUSTER, which is then given, `rank` is from $LOCAL_RANK (with torchrun
 * --virtual-local-rank from $RANK, $GROUP_RANK and their sizes), $OMPI_COMM_WORLD_LOCAL_RANK,
 * $MV2_COMM_WORLD_LOCAL_RANK, $MPI_LOCALRANKID or $SLURM_LOCALID. A world of 1 that is given has
 * rank 0, and none is read.
 *
 * With $RANK and $WORLD_SIZE comes `local_world`, $LOCAL_WORLD_SIZE: torchrun's ranks of a node
 * follow each other. Where another launcher deals its ranks out so, the caller sets it.
 *
 * Where the place is found, `job_found` is the job's name, and `job` NULL: $TORCHELASTIC_RUN_ID,
 * but for "none", which is torchrun's word for a run without a name; or, not in a cluster,
 * "slurm-" with $SLURM_JOB_ID and $SLURM_STEP_ID. How often the job was restarted is no part of the
 * name. What is not set leaves its option as it was; a variable that has no part in it is not read.
 *
 * -EINVAL, with a line in `why`, cut to `size` bytes, that names the variable, and nothing changed:
 * one of two is missing, or one is no number within its bounds. `why` may be NULL with size 0.
 */
DL_API int dl_epoch_options_from_env(struct dl_epoch_options *options, unsigned given, char *why,
                                     size_t size);

/*
 * Sets `rank`, `world`, `replica` and `replicas` by a mesh of ranks: "dp=4,tp=2", the dimension
 * whose ranks are furthest apart first, as torch.distributed's init_device_mesh() numbers them.
 * Ranks that differ in dp, dp_replicate, dp_shard, ddp, fsdp or data have samples of their own;
 * those that differ in tp, pp, cp or sp alone read the same batches. `rank`: this one among all of
 * the mesh; `local_world`: ranks of each node, which follow each other; 0: all are on this one.
 * Where a group is on several nodes, each node loads its batches once.
 *
 * -EINVAL, with a line in `why`, cut to `size` bytes, and nothing changed: the text is no mesh, or
 * has no such rank. `why` may be NULL with size 0. Thread-safe.
 */
DL_API int dl_epoch_options_set_mesh(struct dl_epoch_options *options, const char *mesh,
                                     uint32_t rank, uint32_t local_world, char *why, size_t size);

/*
 * The next batch, in the order of the steps, or as they are ready where the spec says
 * `workers: {in_order: false}`; over an iterable dataset steps may be left out. Gives the one
 * before back, unless it is pinned: always, so that a single credit cannot stall. timeout_ns: < 0
 * waits as long as it takes, 0 does not wait. 0 and *ret: a batch, valid until the next call on
 * this epoch; DL_END: no more; -EAGAIN (timeout 0) or -ETIMEDOUT: not ready yet; -ENOMEM: there
 * is no memory within memory.limit for a further batch before this client lets go of some, which it
 * has pinned or got in epochs that it does not read on; -ENODATA: only of an epoch that is fed, see
 * dl_epoch_feed(); else an error. If dl_client_is_usable() says 1 after it, it was that of this one
 * step ("worker 1 was killed by SIGSEGV …"), and the next call goes on with the next step, or says
 * DL_END when it was the stream's last word. A step's own EAGAIN, ETIMEDOUT or ENODATA comes as
 * -EIO.
 */
DL_API int dl_epoch_next(struct dl_epoch *epoch, int64_t timeout_ns, struct dl_batch **ret);

/*
 * The client as the sampler, of a loader whose spec says `sampler: {kind: client}`: the order of
 * the epoch is what is fed, while batches are received. Each rank feeds its own; an index may come
 * twice. Never blocks. At most twice `credits` steps are under way, fed and not yet given out by
 * dl_epoch_next(); then nothing more is taken until it was called.
 *
 * dl_epoch_feed() takes the indices of a sampler and makes batches of batch.size of them. It
 * returns how many it took, from the first on: as with write(), fewer than `n` when no more have
 * room, and -EAGAIN when none has. dl_epoch_feed_batch() takes the indices of one step, 1 to
 * batch.size of them (1 where it is null), as a batch sampler gives them: 0, or -EAGAIN. The two
 * may be mixed, but not inside a batch. dl_epoch_feed_end() says that nothing follows; an
 * incomplete batch of dl_epoch_feed() is then the last one, or is left out where the spec says
 * batch.drop_last.
 *
 * dl_epoch_next() says -ENODATA, at once, when all steps that were fed are received and the end was
 * not said: feed more. DL_END comes after the last step once it was. An index that the dataset does
 * not have is an error of its step alone, which dl_epoch_next() gives.
 *
 * -EINVAL: the loader has a sampler of its own, the end was said before, an incomplete batch waits,
 * or `n` is no size of a batch. batch.size may be 65536 at most.
 */
DL_API int64_t dl_epoch_feed(struct dl_epoch *epoch, const uint64_t *indices, size_t n);
DL_API int dl_epoch_feed_batch(struct dl_epoch *epoch, const uint64_t *indices, size_t n);
DL_API int dl_epoch_feed_end(struct dl_epoch *epoch);

/* Its number, and the first step of it that this one gives, if there is such a step. */
DL_API uint64_t dl_epoch_number(const struct dl_epoch *epoch);
DL_API uint64_t dl_epoch_first(const struct dl_epoch *epoch);

/* The rank that it is of, and how many there are: as the options say, or what the nodes have
 * agreed on. */
DL_API uint32_t dl_epoch_rank(const struct dl_epoch *epoch);
DL_API uint32_t dl_epoch_world(const struct dl_epoch *epoch);

/* How often the epoch has followed the cluster to another world (DL_FOLLOW_ANY): what the two
 * above say, and dl_epoch_first(), dl_epoch_steps(), dl_epoch_samples() and dl_batch_step(), may
 * have changed with the batch that dl_epoch_next() gave last. */
DL_API uint32_t dl_epoch_changes(const struct dl_epoch *epoch);

/*
 * After DL_E_WORLD_CHANGED, without options.follow: waits for the next world, and the epoch goes on
 * there, as the same object: dl_epoch_rank() and dl_epoch_world() say where, before a batch is
 * taken there, so that a process group can be made again. It is what dl_epoch_state(),
 * dl_epoch_end() and dl_epoch_start() do together. At once, if the world has not changed. A rank
 * that lacks steps of the world before gets those first, and then DL_E_WORLD_CHANGED once more.
 * Errors as dl_epoch_start(); -EINVAL: the epoch is not in the cluster's world, or its ranks have
 * orders of their own.
 */
DL_API int dl_epoch_wait_world(struct dl_epoch *epoch);

/* Of this rank, in all; DL_UNKNOWN over an iterable dataset that does not say, or where the client
 * is the sampler. */
DL_API uint64_t dl_epoch_steps(const struct dl_epoch *epoch);
DL_API uint64_t dl_epoch_samples(const struct dl_epoch *epoch);

/*
 * What the daemon noticed and a user should know of, though nothing failed by it ("the dataset has
 * more samples than its length says"): one line of text with the remedy, or NULL. Each is given
 * once; of several that came since the last call only the last is kept. Owned by the epoch, valid
 * until this is called again or the epoch ends. Worth a look after each dl_epoch_next().
 */
DL_API const char *dl_epoch_warning(struct dl_epoch *epoch);

/* The step that the last dl_epoch_next() gave the error of; DL_UNKNOWN: none, or of no one step. */
DL_API uint64_t dl_epoch_failed_step(const struct dl_epoch *epoch);

/*
 * Bytes of shared memory that pinned batches of the epoch's loader hold, and those that only DLPack
 * tensors keep: what this client takes of memory.limit beyond its current batches. Deleters that
 * ran in other threads are counted.
 */
DL_API uint64_t dl_epoch_held_bytes(const struct dl_epoch *epoch);

/* Nanoseconds this epoch's dl_epoch_next() calls spent waiting for a batch. */
DL_API uint64_t dl_epoch_wait_ns(const struct dl_epoch *epoch);

/*
 * The state of an epoch: a token that says where it stands, so that another process, on another
 * machine, with another number of ranks, can go on from there. It is of all ranks: that of any one
 * serves all, once they were given equally many steps. A few hundred bytes of msgpack, at most
 * DL_STATE_MAX, with a version and a checksum; there is nothing secret in it, and no path. Weights
 * of a mixture that were changed while it was read (dl_loader_mix()) stand behind the token, 24
 * bytes and for each change 8 and 8 for each dataset; -ENOSPC: *len is what all of it takes.
 *
 * dl_epoch_state() writes that of the batches that dl_epoch_next() gave out, the current one
 * included, and of steps that failed. *len is the size of `buf`, then that of the token. Once
 * dl_epoch_next() has said DL_END it is the beginning of the next epoch. -ENOSPC; -ENOTSUP in the
 * midst of an epoch whose batches come in no order (workers.in_order: false).
 *
 * dl_epoch_start() with options.state goes on behind those batches, at the same cost at any place:
 * with as many ranks as the state says with the same steps that would have come; with another world
 * size each sample that is left comes once, and steps are counted from 0 again, as dl_epoch_steps()
 * and dl_batch_step() say. Where nothing is left for this rank, the next epoch is started; after a
 * world size that gave some ranks a step more than others, take the state of rank 0. -EINVAL, and
 * dl_client_error() says what differs: the state is of other data (its files are told by their
 * sizes and ends, wherever they lie), of a spec that says something else under dataset, sampler,
 * batch, collate or shard, of another seed; or damaged. workers, memory and name may differ.
 *
 * Over an iterable dataset the world size must stay, and workers.count, which decide which replica
 * has which samples; what was given out is passed over again, which dl_epoch_warning() tells of
 * where it takes time. A dataset that knows its own place (a plug-in with save_state(), a Python
 * one with state_dict()) spares that: dl_epoch_whole_state() writes the token at `step`, DL_UNKNOWN
 * being where the epoch stands, and behind it what the dataset says of each worker, up to 64 KiB
 * each; it goes wherever a token does. Of a step other than that it is at hand for a few batches
 * back; what lacks is passed over, as all is with the token alone. Where each rank has samples of
 * its own (shard.mode strided), what the dataset says is of this rank, and passed over by others.
 * dl_epoch_has_dataset_state() is 1 once the dataset has said anything. -ENOSPC: *len is what it
 * takes.
 *
 * Where the client is the sampler the world size must stay, too, and what is fed begins behind the
 * state's steps.
 *
 * dl_loader_state() writes the token of the place that `options` name, with any epoch, step and
 * world; with options.state that state's place for `world`, and `step`, if it is not 0, in its
 * stead. dl_loader_find_state() says where a state goes on with so many ranks, or why it does not.
 * dl_state_json() describes a token as one line of JSON: returns its length, which may be more than
 * `size` - 1, as snprintf() does, or -EINVAL, -EPROTONOSUPPORT: no state, or of another version.
 */
#define DL_STATE_MAX 1023
DL_API int dl_epoch_state(struct dl_epoch *epoch, void *buf, size_t *len);
DL_API int dl_epoch_whole_state(struct dl_epoch *epoch, uint64_t step, void *buf, size_t *len);
DL_API int dl_epoch_has_dataset_state(const struct dl_epoch *epoch);
DL_API int dl_loader_state(struct dl_loader *loader, const struct dl_epoch_options *options,
                           void *buf, size_t *len);
DL_API int dl_loader_find_state(struct dl_loader *loader, const void *state, size_t len,
                                uint32_t world, uint64_t *ret_epoch, uint64_t *ret_step);
DL_API int dl_state_json(const void *state, size_t len, char *buf, size_t size);

/* Ends it early or after DL_END: gives its unpinned batches back, frees it. Returns NULL. */
DL_API struct dl_epoch *dl_epoch_end(struct dl_epoch *epoch);

/* ---- batch --------------------------------------------------------------------------------- */

DL_API uint64_t dl_batch_step(const struct dl_batch *batch);
DL_API uint64_t dl_batch_bytes(const struct dl_batch *batch); /* of its tensors and text together */

/* The sample indices, in the order of the rows; *ret_n of them. */
DL_API const uint64_t *dl_batch_indices(const struct dl_batch *batch, size_t *ret_n);

/*
 * How many of its samples are there only so that all ranks get equally many (shard.even): the last
 * ones, which some rank has been given already. Metrics over an epoch leave them out. 0 without
 * ranks, and of an iterable dataset.
 */
DL_API uint32_t dl_batch_repeated(const struct dl_batch *batch);

/*
 * Of a loader whose batches are measured in tokens (batch.tokens): the length in tokens of each
 * sample as it is in the batch, that is cut where it was cut, in the order of the indices; and how
 * many tokens the batch takes, padding included. They are the batch's memory, as its indices are.
 * -ENODATA, and nothing is written: the loader's batches are measured in samples.
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

/* A view of one tensor; copies of it are fine as long as the batch is. */
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
 * What one of `parts` context parallel ranks has of a sequence of `length` tokens, as tokens first
 * to first + count - 1: a view of the batch, for every tensor with that dimension, `position_ids`
 * too. CONTIGUOUS: one stretch. ZIGZAG: two, the part-th from the start and the part-th from the
 * end of 2 · parts of them, so that all ranks have like work where tokens see those before them
 * only. Returns how many stretches; -EINVAL: `part` is not below `parts`, or `length` is no
 * multiple of as many. Thread-safe.
 */
enum dl_sequence { DL_SEQUENCE_CONTIGUOUS, DL_SEQUENCE_ZIGZAG };
struct dl_stretch {
    uint64_t first;
    uint64_t count;
};
DL_API int dl_sequence_part(uint64_t length, uint32_t part, uint32_t parts, enum dl_sequence how,
                            struct dl_stretch ret[2]);

/*
 * Text: a string (UTF-8) or bytes of each sample, so a list of them; or a single one, in a batch
 * that is one sample as it is. dl_batch_text() gives string `i` of the text at `path`, in place,
 * not NUL-terminated; dl_batch_text_count() how many there are: the length of the list, which can
 * be 0, or 1. dl_batch_node_text() is for a node by its number; its count is in struct dl_node.
 * -ENOENT: no such path; -EINVAL: no text there, or no string `i`; -EPROTO: what stands in shared
 * memory leads out of the batch. That one spoils the string alone; the session goes on.
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
    DL_NODE_OBJECT, /* of Python's: its first child is its pickle, DL_NODE_BYTES; then the tensors
                       that the pickle refers to */
};
struct dl_node {
    enum dl_node_kind kind;
    uint32_t children; /* direct ones; they follow */
    uint32_t depth;    /* 0 = the root */
    uint32_t key_len;
    const char *key;         /* of a dict's child, not NUL-terminated; else NULL */
    struct dl_tensor tensor; /* zero unless it is one */

    /* Of text; else zero. */
    uint64_t count;   /* strings in it */
    uint32_t is_list; /* 1: a list of them, even if of one or none; 0: a single one */
    uint32_t reserved;
    /* All of it: of a list count + 1 numbers uint64_t, of which i and i + 1 are the beginning and
     * end of string i after these numbers, then the strings. Unchecked, unlike dl_batch_text().
     * NULL of a list of which this rank has some strings alone (shard.mode dispatch), though
     * text_nbytes says how much it would be: dl_batch_node_text() reads them. */
    const void *text;
    uint64_t text_nbytes;
};
DL_API uint32_t dl_batch_nodes(const struct dl_batch *batch);
DL_API int dl_batch_node(struct dl_batch *batch, uint32_t i, struct dl_node *ret);

/* Keeps the batch beyond the next dl_epoch_next() and dl_epoch_end(), until dl_batch_release() or
 * dl_loader_close(). Its credit goes back at once; memory.limit bounds how many can be pinned. */
DL_API int dl_batch_pin(struct dl_batch *batch);

/*
 * Copies the batch into memory of this process alone, which can be written to, and ends its lease:
 * it takes nothing of memory.limit any more, and is otherwise as before, so valid as long as it
 * would have been. Pointers into it are not. The current batch of a job keeps its slot until it is
 * given back, since that acknowledges it. -EBUSY: DLPack tensors of it live already; -ENOMEM.
 */
DL_API int dl_batch_detach(struct dl_batch *batch);

/*
 * 1: the batch can be held for any time, by a pin or by tensors, and this client can still receive
 * all others: enough of the memory is left, and a slot of the segment that it lies in. 0: detach it
 * unless it is sure to be given back soon.
 */
DL_API int dl_batch_may_keep(const struct dl_batch *batch);

/* 1: its tensors can be written to: `memory: {writable: true}`, or private memory. */
DL_API int dl_batch_is_writable(const struct dl_batch *batch);

/*
 * Gives the batch back; it and its pointers are then invalid. Only needed for pinned batches, or to
 * give one back early. NULL is fine. Returns NULL. With DLPack tensors still alive the memory stays
 * until the last is deleted.
 */
DL_API struct dl_batch *dl_batch_release(struct dl_batch *batch);

/*
 * The tensor at `path` as a DLPack managed tensor (struct DLManagedTensor of dlpack.h v0.8, device
 * kDLCPU): the consumer calls its deleter. It holds the batch by itself: pin and release, and the
 * end of epoch, loader and client do not matter to it. -ENOENT, -EINVAL as dl_batch_tensor().
 */
struct DLManagedTensor;
DL_API int dl_batch_dlpack(struct dl_batch *batch, const char *path, struct DLManagedTensor **ret);

/* The same of node `i` of the tree. -EINVAL: no such node, or no tensor. */
DL_API int dl_batch_node_dlpack(struct dl_batch *batch, uint32_t i, struct DLManagedTensor **ret);

#ifdef __cplusplus
}
#endif

#endif
