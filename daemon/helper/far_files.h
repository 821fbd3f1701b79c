/*
 * Files of the daemon's machine, for a worker at a helper whose machine does not have them: to the
 * worker this is the process that fetches (proto/remote_wire.h), and each of its questions becomes
 * one or more for the stand-in (near_files.h). A file that the worker maps comes in the blocks that
 * it reads, and goes with those that it drops. Nothing is read ahead.
 *
 * Pure but for files in memory; packets and messages are far.c's. The worker is not trusted, and
 * gets nothing that the stand-in does not give.
 */
#ifndef DL_HELPER_FAR_FILES_H
#define DL_HELPER_FAR_FILES_H

#include "proto/codec.h"
#include "proto/remote_wire.h"

enum far_files_state {
    FAR_FILES_IDLE,
    FAR_FILES_TO_ASK, /* far_files_ask() has what the stand-in is asked next */
    FAR_FILES_ASKED,
};

struct far_files {
    int sock;        /* owned; to the worker */
    uint64_t memory; /* that files of it may take */
    enum far_files_state state;
    struct remote_question question; /* while it is not IDLE */
    struct far_file *files;          /* owned array, of those that the worker maps */
    uint32_t n, last_number;
    int whole; /* owned; a file that is read whole, so far, or -1 */
    uint64_t whole_bytes, at;
    uint8_t *part; /* owned; H_PART_BYTES_MAX bytes, once one has come */
    struct dl_msg_h_part head;
};

/* The worker's end of the socket is the caller's. */
int _nodiscard_ far_files_init(struct far_files *files, uint64_t memory, int *ret_worker);
void far_files_deinit(struct far_files *files); /* fine on one that is all zero but for sock -1 */

/* Reads a packet of the worker's, if there is one. -EPROTO: it is none. */
int _nodiscard_ far_files_read(struct far_files *files);
/* Of TO_ASK, which is ASKED then. */
struct dl_msg_h_read far_files_ask(struct far_files *files);
/* It is answered: *ret is where the bytes that follow go, if any do. -EBADMSG: nothing was asked,
 * or they are more than an answer has. */
int _nodiscard_ far_files_on_part(struct far_files *files, const struct dl_msg_h_part *msg,
                                  uint8_t **ret);
/* They are there. */
int _nodiscard_ far_files_take(struct far_files *files);

#endif
