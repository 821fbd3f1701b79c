/*
 * What daemons of one run say to each other about blocks of remote objects, by HTTP/1.1: a request
 * asks for blocks, brings some, or says that it does not bring what it was told is wanted; each has
 * one answer.
 *
 *   GET|LOOK|POST|PUT|DELETE /blocks/1/FIRST/N/BYTES/MODIFIED/ETAG/WHERE HTTP/1.1
 *   Authorization: Peer PROOF
 *   Dloader-Sum: SHA-256 of the body      of a POST or PUT
 *
 *   HTTP/1.1 200 OK, 404 Not Found, ...
 *   Dloader-Peer: N WANTED BYTES MODIFIED ETAG PROOF
 *
 * N blocks from FIRST on, of one group (placement.h), of the object that WHERE says, which has
 * BYTES, MODIFIED and ETAG; where they are asked for BYTES may be 0 and ETAG "-": whichever object
 * is there, and the answer says which. ETAG and WHERE are percent-encoded.
 *
 *   GET     200 has as many blocks as are there one after another, from FIRST on. 404: N of them
 * are not there, and either somebody else brings them now, and they are to be asked for again
 *           (PEER_COMING), or it is this one's turn to bring them here or elsewhere, and then to
 * say so (WANTED 1). BYTES says how much room there is (PEER_PAGE), and whether they would be kept
 * instead of others (PEER_BY_ORDER). LOOK    the same, and nobody's turn. POST    brings blocks to
 * be kept if there is room: 200, the first N were; 404, none. PUT     brings blocks to be kept
 * instead of others. DELETE  ends the turn. It ends by itself of blocks that come.
 *
 * An earlier release answers LOOK and POST with 400: it has none, and no room.
 *
 * A PROOF is an HMAC with the token of the node that is asked, of the method, the target and the
 * sum of the body; that of an answer is of the request's proof besides. The token lies in the store
 * that the run meets in, and never goes over the wire. So who has a token has read that store; an
 * answer is to this request and by that node, as whole as it was sent. Who listens in reads what is
 * sent, and can repeat it: an answer that it has heard, or blocks that were brought before, which
 * are then of an object that nobody takes for another one.
 *
 * Pure but for peer_wire's libcrypto, which is found by sigv4_crypto_find(). Any thread.
 */
#ifndef DL_REMOTE_PEER_WIRE_H
#define DL_REMOTE_PEER_WIRE_H

#include "daemon/remote/answer.h"
#include "daemon/remote/sigv4.h"
#include "proto/peer_card.h"

enum {
    PEER_BLOCKS_MAX = 16,        /* of one request */
    PEER_PROOF_MAX = 65,         /* with the final NUL */
    PEER_LINE_MAX = 1024,        /* of an answer */
    PEER_WHERE_MAX = 8 * 1024,   /* decoded */
    PEER_TARGET_MAX = 28 * 1024, /* encoded */
    PEER_HEAD_MAX = 32 * 1024,   /* of a request: its lines, the empty one included */
};

/* What is not there; of the room, whole pages. */
enum peer_absent {
    PEER_COMING = 1,
    PEER_BY_ORDER = 2,
    PEER_PAGE = 4096,
};

enum peer_method { PEER_GET, PEER_PUT, PEER_DELETE, PEER_POST, PEER_LOOK };

static inline bool peer_brings(enum peer_method method)
{
    return method == PEER_PUT || method == PEER_POST;
}

/* Blocks, and of what. */
struct peer_ask {
    enum peer_method method;
    uint64_t first, n; /* blocks */
    uint64_t bytes;    /* of the object; 0: not known */
    int64_t modified;  /* -1: not known */
    char etag[REMOTE_ETAG_MAX];
    char *where; /* of a request that was read: owned */
};

struct peer_request {
    struct peer_ask ask;
    uint64_t length; /* of its body */
    char sum[PEER_PROOF_MAX], proof[PEER_PROOF_MAX];
    const char *target; /* borrowed from what was read, ended there by a NUL */
};

struct peer_answer {
    uint64_t n;
    bool wanted;
    uint64_t bytes;
    int64_t modified;
    char etag[REMOTE_ETAG_MAX];
    char proof[PEER_PROOF_MAX];
};

/* How many bytes those blocks have, of an object whose size is known. */
uint64_t peer_ask_bytes(const struct peer_ask *ask);

/* The target; owned by the caller. NULL: out of memory, or too long. */
char *peer_target(const struct peer_ask *ask);

/* A request's lines, the empty one included, ended by a NUL; written to. -EBADMSG: they are none.
 * -ENOMEM. Owned: ask.where. */
int _nodiscard_ peer_request_read(char *head, struct peer_request *ret);

/* The value of the header Dloader-Peer, without the proof. */
void peer_answer_write(const struct peer_answer *answer, char ret[static PEER_LINE_MAX]);
/* With it, as it was sent; false: it is none. `line` is borrowed, and need not end. */
bool _nodiscard_ peer_answer_read(struct dl_span line, struct peer_answer *ret);

/* In hexadecimal. */
void peer_sum(const struct sigv4_crypto *crypto, struct dl_span body, char ret[PEER_PROOF_MAX]);
/* Of two texts with a space between. */
void peer_prove(const struct sigv4_crypto *crypto, const char *token, const char *a, const char *b,
                char ret[PEER_PROOF_MAX]);
/* What a request proves, whose body has that sum, "" if it has none; and what the answer to one of
 * that proof does. */
void peer_prove_ask(const struct sigv4_crypto *crypto, const char *token, enum peer_method method,
                    const char *target, const char *sum, char ret[PEER_PROOF_MAX]);
const char *peer_method_name(enum peer_method method);
void peer_prove_answer(const struct sigv4_crypto *crypto, const char *token, const char *asked,
                       const struct peer_answer *answer, struct dl_span body,
                       char ret[PEER_PROOF_MAX]);
/* Takes as long whether or not they are. */
bool peer_proofs_same(const char *a, const char *b);

#endif
