/*
 * Files of this machine, for a helper whose machine does not have them, where helpers.serve says
 * so: those that the loader's spec names, and what lies below, or beside by a longer name; as the
 * daemon may read them (data_roots). One thread. Blocks on the disk.
 */
#ifndef DL_HELPER_NEAR_FILES_H
#define DL_HELPER_NEAR_FILES_H

#include "daemon/worker/packed.h"
#include "proto/codec.h"

enum {
    NEAR_FILES_MOST = 4 << 20, /* bytes of an answer */
    NEAR_FILES_ASKED = 4,      /* questions without an answer that a helper has at most */
};

enum near_files_what { NEAR_FILES_STAT, NEAR_FILES_LIST, NEAR_FILES_BYTES };

struct near_files {
    bool on;
    struct dl_spec spec;      /* owned */
    struct packed_env places; /* owned */
    char *path;               /* owned; of the file that was read last */
    int fd;                   /* owned; of that, while there is a path */
};

/* Into one that is all zero. Negative errno, perhaps with `err`. */
int _nodiscard_ near_files_open(struct near_files *files, const struct dl_msg_w_open *msg,
                                struct dl_error *err);
void near_files_deinit(struct near_files *files);

/* The answer, with what follows it in *ret_bytes, all zero at first, which is the caller's.
 * -EBADMSG: it is no question for this; -EACCES: it is one for another file, which is said. */
int _nodiscard_ near_files_read(struct near_files *files, const struct dl_msg_h_read *msg,
                                struct dl_msg_h_part *ret, struct dl_buffer *ret_bytes);

/* Whether the spec names it, in one of these ways. Pure. */
bool near_files_named(const struct spec_dataset *dataset, const char *path);

#endif
