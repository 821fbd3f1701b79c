/*
 * A worker on another machine.
 *
 *   trainer's machine                                        helper's machine
 *   daemon ─ queue, bell, slots ─ stand-in ═══ TCP ═══ far end ─ queue, bell, slots ─ worker
 *
 * The stand-in (near.h) is a process that the daemon takes for a worker: same messages, same
 * queues, same segments. The far end (far.h) is a process that a worker takes for its daemon. Each
 * is the other's half of a cable: what comes in as a task on the one side goes out as a task on the
 * other, and completions likewise. So the daemon's core schedules helpers as it does workers, and
 * its loop never touches a batch; deadlines, deaths and retries are those of workers; and the
 * worker that fills the batch is the same program. A batch's bytes go from the worker's slot into
 * the socket, and from the socket into the daemon's slot: nobody copies them in between.
 *
 * No batch lands twice. The stand-in alone has the daemon's slot mapped. When it ends, for whatever
 * reason, its segments are retired as those of any worker that died, and its tasks run elsewhere:
 * an answer that comes late finds a closed socket.
 *
 * The link is what both ends have in common: frames of proto/messages.def in both directions, the
 * H_* messages and four of a worker's, each a length and a payload as on any other socket; and
 * behind H_TASK and H_DONE the bytes that they announce. Nothing blocks. A link that is not proven
 * accepts LINK_UNPROVEN_BYTES in a frame.
 *
 *   far  → near  H_CHALLENGE   release, nonce
 *   near → far   H_PROOF       release, nonce, HMAC(secret, "near" and both nonces)
 *   far  → near  H_WELCOME     HMAC(secret, "far" and both nonces)
 *   near → far   H_OPEN        the spec, and what its files are on the trainer's machine
 *   far  → near  W_OPENING ... W_READY or W_FAILED, of the worker
 *   near → far   W_FORGET      of a stream over an iterable dataset
 *   near → far   H_TASK        LINK_AHEAD of them at most that are not done
 *   far  → near  H_SLOW        of the next of these, a sample that took long
 *   far  → near  H_DONE        in the order of the tasks
 *   far  → near  H_ALIVE       once a second while there is nothing else to say
 *
 * Who connects proves itself first: a stranger learns nothing that a secret could be guessed from.
 * What follows is neither encrypted nor proven without TLS, which is below all of it where both
 * have certificates (tls.h): who can change what the network carries can change batches. Both ends
 * have to be of one release, since another one may make other bytes.
 */
#ifndef DL_HELPER_LINK_H
#define DL_HELPER_LINK_H

#include "daemon/helper/tls.h"
#include "proto/codec.h"

enum {
    LINK_AHEAD = 4, /* tasks that the far end has at most */
    LINK_UNPROVEN_BYTES = 1024,
    LINK_AT_ONCE = 256 * 1024, /* of many bytes behind a frame, that this end is woken for */
    LINK_ALIVE_MS = 1000,
    LINK_PATIENCE_MS = 5000, /* without a word from the helper, and it counts as gone */
    LINK_PROVE_S = 10,       /* until both have proven themselves */
};

struct link {
    int fd;          /* owned; does not block */
    struct tls *tls; /* owned; NULL: bytes go as they are */
    uint32_t most;   /* bytes of a frame */
    /* What comes in. */
    uint8_t head[4];
    size_t have;         /* bytes of the head; all: the payload comes */
    struct dl_buffer in; /* the payload so far */
    uint64_t payload;    /* bytes that it has */
    uint8_t *raw;        /* borrowed: where bytes behind a frame go */
    uint64_t raw_left;
    bool raw_comes;
    uint64_t came; /* bytes of all that did */
    uint64_t low;  /* that it is woken for; 0: any */
    /* What goes out: `out`, then `body`. */
    struct dl_buffer out;
    size_t out_at;
    struct dl_span body; /* borrowed until it is sent */
};

enum link_news {
    LINK_NOTHING, /* the rest has not come yet */
    LINK_FRAME,   /* link_payload() has it */
    LINK_RAW,     /* the bytes of link_expect() are all there */
};

/* Consumes `fd`. */
void link_init(struct link *link, int fd);
void link_deinit(struct link *link);

/* Reads what there is, up to the next event. Negative errno: -EPIPE at its end, -EMSGSIZE for a
 * frame that is too long or empty. */
int _nodiscard_ link_read(struct link *link, enum link_news *ret);
/* Of LINK_FRAME, until the next link_read(). */
struct dl_span link_payload(const struct link *link);
/* After LINK_FRAME: bytes that are to follow, more than 0. `to` is borrowed until LINK_RAW. */
void link_expect(struct link *link, void *to, uint64_t bytes);

/* Queues a message; not while a body is on its way. */
int _nodiscard_ link_say(struct link *link, const struct dl_message *msg);
/* Bytes behind the last message: a copy, or borrowed until link_is_idle(). */
int _nodiscard_ link_add(struct link *link, struct dl_span bytes);
void link_add_body(struct link *link, struct dl_span bytes);
/* Sends as much as the socket takes. Negative errno. */
int _nodiscard_ link_write(struct link *link);
/* Bytes of messages, and of what was added to them, that the socket has not taken. */
static inline uint64_t link_unsent(const struct link *link)
{
    return link->out.len - link->out_at;
}
/* Everything is sent. */
bool link_is_idle(const struct link *link);

#endif
