/*
 * What the files of libdlclient share above its machine (core/core.h). README.md says what is in
 * which; none calls one that stands above it there.
 */
#ifndef DL_CLIENT_INTERNAL_H
#define DL_CLIENT_INTERNAL_H

#include "client/core/core.h"
#include "client/local.h"
#include "proto/common/clock.h"

struct weight_table;

/* ---- client.c ---- */

/* A client on a connected socket (consumed), after HELLO and WELCOME. As dl_client_connect(). */
int client_adopt(struct dl_client **ret, int fd, const char *path, const char *agent,
                 uint64_t timeout_ns);
int client_connect(struct dl_client **ret, const char *path, const char *agent,
                   uint64_t timeout_ns);

/* ---- dial.c ---- */

/* 0 and a connected socket of a daemon's for this user, which does not block; or a negative errno
 * with `err`: -EAGAIN, the queue of connections was full for `wait_ns`, or a signal came. */
int _nodiscard_ client_dial(const char *path, uint64_t wait_ns, int *ret, struct dl_error *err);

/*
 * The daemon at *path; NULL: at $DLOADER_SOCKET; else the user's own, if it listens, since it may
 * run the user's code; else the system's, and *path is static, the environment's, or in `buf`.
 * Returns 0 and a connected socket, or the latched error. While the daemon's queue is full, this
 * waits in connect(), in turn: a client that only polled could find the queue full for ever.
 */
int _nodiscard_ client_find_daemon(struct connection *conn, char *buf, size_t size,
                                   uint64_t deadline, const char **path, int *ret);

/* ---- io.c ---- */

uint64_t deadline_after(uint64_t timeout_ns); /* saturates at DEADLINE_NONE */

/* Waits until `events` or the deadline: 0, -ETIMEDOUT, or another negative errno; -EINTR if the
 * check of dl_set_interrupt() asks for it. */
int _nodiscard_ wait_fd(int fd, short events, uint64_t deadline);

/* Writes as much queued output as the socket accepts now. 0 or the latched error. */
int _nodiscard_ client_flush(struct dl_client *client);

/* Reads once and handles what came: 1, 0 when nothing was there, or the latched error. */
int _nodiscard_ client_pump(struct dl_client *client);

/* Sends what is pending of the epoch where that is due. */
void epoch_flush_if_due(struct dl_epoch *epoch);

/* Both: writes and reads. */
int _nodiscard_ client_exchange(struct dl_client *client);

/* What a deadline adds to these results. */
enum { CLIENT_LATE = 2 };

/* Blocks until the socket is readable, or writable if output waits: 0, CLIENT_LATE, or latched.
 * While the client is away 0 may come earlier. */
int _nodiscard_ client_wait(struct dl_client *client, uint64_t deadline);

/* One turn of a call that waits: client_exchange(), and client_wait() if nothing came. */
int _nodiscard_ client_turn(struct dl_client *client, uint64_t deadline);

/* Blocks until the client is not away: 0, or the latched error. */
int _nodiscard_ client_be_there(struct dl_client *client);

/*
 * Sends `msg` and waits until client->call is answered. 0, the daemon's refusal (set as the last
 * error), or a latched error. A missing answer is latched, since it could arrive later and be
 * mistaken for another's. If the daemon ends meanwhile, the next one is asked.
 */
int _nodiscard_ client_call(struct dl_client *client, const struct dl_message *msg,
                            uint64_t timeout_ns);

/* ---- reconnect.c ---- */

/* A client that is away does what it can without waiting: 1, 0 when there was nothing, or the
 * latched error. */
int _nodiscard_ reconnect_turn(struct dl_client *client);

/* While there is no socket: puts a timer in its place. 0, or the latched error. */
int _nodiscard_ reconnect_arm(struct dl_client *client);

void reconnect_deinit(struct dl_client *client);

/* ---- world_change.c ---- */

/* next() says DL_E_WORLD_CHANGED: whether that ended the stream, and the epoch may continue. */
bool world_change_may_follow(struct dl_epoch *epoch);
/* 0: the epoch continues, in the new world or in what is left of the old one; or the error. */
int _nodiscard_ world_change_follow(struct dl_epoch *epoch);

/* ---- hosts.c ---- */

/* Queues the hosts for another daemon: 0, or a negative errno. Hosts that have ended are dropped;
 * *ret_ended is the number of one of them, or 0. */
int _nodiscard_ hosts_send(struct dl_client *client, struct brought_host **list,
                           uint64_t *ret_ended);
/* Moves the hosts that the spec of a loader just opened names from the client to the loader. */
void hosts_take(struct dl_loader *loader, const char *spec, size_t len);
struct brought_host *hosts_free(struct brought_host *list); /* returns NULL */

/* ---- lifetime.c ---- */

/* Tensors hold one batch fewer; the last one of a closed loader ends it. */
void loader_drop_tensor_owned(struct dl_loader *loader);
struct dl_loader *loader_free(struct dl_loader *loader); /* unlinks; sends nothing; returns NULL */
void loader_end_and_free(struct dl_loader *loader);      /* sends CLOSE */
struct dl_epoch *epoch_free(struct dl_epoch *epoch);     /* likewise */
void epoch_unlink(struct dl_epoch *epoch); /* of its loader's; nothing happens if it is not there */

/* ---- options.c ---- */

/* Converts the program's struct to this library's: 0, or the refusal as the last error. */
int _nodiscard_ epoch_take_options(struct dl_client *client, const struct dl_epoch_options *from,
                                   struct dl_epoch_options *ret);
/* How many ranks the options say, divided or not; 0 for the cluster's. */
uint64_t epoch_options_world(const struct dl_epoch_options *o);
/*
 * Converts a user's options, which count all trainers, to ranks of the samples: with
 * shard.replicas, consecutive ranks read the same batches, like a mesh whose last dimension has
 * that size. Only the user's options are divided, and only here: epochs, states and the daemon
 * count only ranks of the samples. 0, or the refusal.
 */
int _nodiscard_ epoch_divide_ranks(struct dl_loader *loader, struct dl_epoch_options *o);
/* 0, or the refusal of what the options say. */
int _nodiscard_ epoch_check_options(struct dl_client *client, const struct dl_epoch_options *o);
const char *epoch_options_job(const struct dl_epoch_options *o); /* "": no job */

/* ---- epoch.c ---- */

int _nodiscard_ epoch_start_remote(struct dl_epoch *epoch);

/* ---- sample_weights.c ---- */

/* Queues, before the CHANGES and START of an epoch, the tables that it needs and that the daemon
 * may not have. 0; a negative errno with `err` where they are not found, or latched. */
int _nodiscard_ sample_weights_bring(struct dl_epoch *epoch, struct dl_error *err);
/* One of them: the same. */
int _nodiscard_ sample_weights_bring_table(struct dl_client *client,
                                           const struct weight_table *table, struct dl_error *err);

/* ---- state.c ---- */

/* Where the options say that the epoch starts: a state's place, which must be one of this loader,
 * or their own. 0, or the refusal as the last error. */
int _nodiscard_ state_find_place(struct dl_loader *loader, const struct dl_epoch_options *o,
                                 struct state_place *ret);
/* The dataset's own states behind that state, which was found good. */
int _nodiscard_ state_take_dataset_states(struct dl_epoch *epoch, const struct dl_epoch_options *o);

/* ---- journal.c ---- */

/* The epoch, not started yet, takes the order of the journal in the options, if there is one. 0, or
 * the refusal as the last error. */
int _nodiscard_ journal_follow(struct dl_epoch *epoch, const struct dl_epoch_options *o);

/* ---- local.c, local_epoch.c ---- */

/* The local counterparts of loader.c, epoch.c and feed.c, for loaders of this process. */
int _nodiscard_ local_loader_open(struct dl_loader *loader, const char *spec, size_t len,
                                  const char *base);
void local_loader_close(struct dl_loader *loader);
static inline const struct local_table *local_table_of(const struct dl_loader *loader)
{
    return loader->client->table;
}
/* Memory for the next batch: 0, or -ENOMEM with words, after which nothing has changed. */
int _nodiscard_ local_take_memory(struct dl_loader *loader, struct mapping **ret);
void local_loader_give_back(struct dl_loader *loader, struct mapping *mapping); /* consumes it */
int _nodiscard_ local_epoch_start(struct dl_epoch *epoch, uint32_t rank);
void local_epoch_end(struct dl_epoch *epoch);
/* The next batch, made: 0 and *ret, or what dl_epoch_next() says. */
int _nodiscard_ local_epoch_make(struct dl_epoch *epoch, struct entry *ret);
int _nodiscard_ local_epoch_feed(struct dl_epoch *epoch, const uint64_t *indices, size_t n);
void local_unload(struct dl_client *client); /* the module, if it is loaded */

/* ---- batch.c ---- */

/* Ends the leases of batches that tensors have dropped. */
void client_drain(struct dl_client *client);
/* For the last time: tensors that are left keep their batches without the client. */
void client_drain_last(struct dl_client *client);

/* First line of every public call: takes reclaimed batches home; the latched error, or 0. */
int _nodiscard_ client_begin(struct dl_client *client);

/* Makes the batch of an entry, consuming its reference even on failure: 0, a latched error, or an
 * error of this step only (it has no rows for this rank), after which the client continues. */
int _nodiscard_ batch_new(struct dl_epoch *epoch, struct entry *entry, struct dl_batch **ret);

/* The user releases it: the lease ends, or stays for its DLPack tensors as a pin. */
void batch_give_back(struct dl_batch *batch);

/* ---- reclaim.c ---- */

struct reclaim *reclaim_new(int fd); /* consumes fd on success; NULL: out of memory */
struct reclaim *reclaim_ref(struct reclaim *reclaim);
struct reclaim *reclaim_unref(struct reclaim *reclaim); /* the last closes fd; returns NULL */

/* Any thread: drops a tensor's reference on a batch that was exported. */
void reclaim_drop(struct dl_batch *batch);

/* In a child made by fork(): its descriptor goes, and nothing else. */
void reclaim_abandon(struct reclaim *reclaim);
/* Client's thread: what came back, linked by dl_batch.dropped. reclaim_close(): for the last time;
 * later tensors end their batches by themselves. */
struct dl_batch *reclaim_take(struct reclaim *reclaim);
struct dl_batch *reclaim_close(struct reclaim *reclaim);

#endif
