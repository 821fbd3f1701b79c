/*
 * Files of the daemon's machine, for a worker at a helper whose machine does not have them: to the
 * worker this is the process that fetches (proto/remote_wire.h), and each of its questions becomes
 * one or more for the stand-in (near_files.h). A file that the worker maps comes in the blocks that
 * it reads, and those that it says it will read come before (far_blocks.h); they go with those that
 * it drops.
 *
 * Pure but for files in memory; packets and messages are far.c's. The worker is not trusted, and
 * gets nothing that the stand-in does not give.
 */
#ifndef DL_HELPER_FAR_FILES_H
#define DL_HELPER_FAR_FILES_H

#include "daemon/helper/far_blocks.h"
#include "daemon/helper/near_files.h"

enum far_files_state {
    FAR_FILES_IDLE,   /* the worker asks nothing */
    FAR_FILES_TO_ASK, /* its question has one for the stand-in */
    FAR_FILES_ASKED,  /* that is asked, or what it needs comes already */
};

/* What the stand-in was asked: blocks of a file, or, n 0, something for the worker's question. */
struct far_ask {
    struct far_range range;
    uint64_t most; /* bytes of the answer */
};

struct far_files {
    int sock;        /* owned; to the worker */
    uint64_t memory; /* that files of it may take */
    enum far_files_state state;
    struct remote_question question; /* while it is not IDLE */
    struct far_range needed;         /* of REMOTE_NEED */
    bool waited;                     /* not all of that was there */
    struct far_blocks blocks;
    int whole; /* owned; a file that is read whole, so far, or -1; then: */
    uint64_t at;
    struct remote_answer described;        /* what its first part said of it */
    struct far_ask asks[NEAR_FILES_ASKED]; /* a ring, the oldest at begin: not answered yet */
    uint64_t begin, end;
    uint8_t *part; /* owned; NEAR_FILES_MOST bytes, once one has come */
    struct dl_msg_h_part head;
};

/* The worker's end of the socket is the caller's. */
int _nodiscard_ far_files_init(struct far_files *files, uint64_t memory, int *ret_worker);
void far_files_deinit(struct far_files *files); /* fine on one that is all zero but for sock -1 */

/* Reads packets of the worker's up to a question, if there are any. -EPROTO: it is none. */
int _nodiscard_ far_files_read(struct far_files *files);
/* What the stand-in is to be asked next. False: nothing now. */
bool far_files_ask(struct far_files *files, struct dl_msg_h_read *ret);
/* It answers the oldest: *ret is where the bytes that follow go, if any do. -EBADMSG: nothing was
 * asked, or they are more than was. */
int _nodiscard_ far_files_on_part(struct far_files *files, const struct dl_msg_h_part *msg,
                                  uint8_t **ret);
/* They are there. */
int _nodiscard_ far_files_take(struct far_files *files);

#endif
