/*
 * Files behind URLs (s3://, gs://, hf://, https://, http://), for source.h: what the fetcher, a
 * process of the daemon's, has or gets (proto/remote_wire.h).
 *
 * A file that is read whole is fetched whole, and read from memory that the fetcher fills. One that
 * is mapped is mapped without its contents: memory that nobody has read yet is not readable, an
 * access raises SIGSEGV, and its handler asks the fetcher for that block and waits. So each kind of
 * dataset reads remote files by the code that it reads local ones with; what it says before
 * (remote_expect()) only makes the wait short, or none.
 *
 * What cannot be fetched reads as zeroes; guard_check() reports it, as it does a file that was cut.
 * One thread, one of these in a process. May block on the network.
 */
#ifndef DL_DATA_REMOTE_H
#define DL_DATA_REMOTE_H

#include "proto/common/error.h"
#include "proto/remote_wire.h"

#include <sys/stat.h>

struct guard;
struct remote;
struct remote_map;

/* What the daemon offers: a way to its fetcher, and what that is like. */
struct remote_offer {
    uint64_t version;
    uint64_t environment; /* as in W_REMOTE */
    int sock;
};

/* The offer's socket becomes the remote's, or is closed. `guard`: hears of what could not be read;
 * borrowed. *ret NULL: nothing can come of it, and remote_why_none() has the reason. -ENOMEM. */
int _nodiscard_ remote_new(const struct remote_offer *offer, struct guard *guard,
                           struct remote **ret);
/* Of a process without one. */
const char *remote_why_none(void);
/* No map is left. NULL is fine; returns NULL. */
struct remote *remote_free(struct remote *remote);

/* As stat(): type, size, an inode that is another one when the object is, and when it was modified.
 * -errno. */
int _nodiscard_ remote_stat(struct remote *remote, const char *url, struct stat *ret);

/* The whole file: a descriptor to be read from its beginning, the caller's. Errors name the URL. */
int _nodiscard_ remote_open(struct remote *remote, const char *url, int *ret_fd,
                            struct stat *ret_st, struct dl_error *err);

/* Maps it, of ret_st->st_size bytes; NULL if these are none. Errors name the URL. */
int _nodiscard_ remote_map(struct remote *remote, const char *url, const void **ret,
                           struct remote_map **ret_map, struct stat *ret_st, struct dl_error *err);
void remote_unmap(struct remote_map *map); /* NULL is fine */

/* What is in a directory: *ret_bytes of struct remote_name, the caller's to munmap(); NULL where
 * there is nothing. Errors name the URL. */
int _nodiscard_ remote_list(struct remote *remote, const char *url, void **ret, uint64_t *ret_bytes,
                            struct dl_error *err);

/* The file will be opened soon, once more if it was. */
void remote_expect_file(struct remote *remote, const char *url);

/* What is in that directory will be asked for soon: of many of them all at once. */
void remote_expect_list(struct remote *remote, const char *url);

/* It will be asked what is there, and these bytes will be read, soon; `first` may be
 * REMOTE_FROM_END. Of many files this is said before the first is opened: then all are asked for at
 * once. */
void remote_expect_part(struct remote *remote, const char *url, uint64_t first, uint64_t bytes);

/* What is expected from now on is for later: it waits for room, and for what is expected otherwise.
 * `off` ends that. With `anew`, what was expected for later, and not begun, is forgotten. */
void remote_look_ahead(struct remote *remote, bool anew);
void remote_look_ahead_off(struct remote *remote);

/* Of a sample whose size is not known yet: its beginning, and often all of it. */
enum { REMOTE_UNTOLD_BYTES = 64 * 1024 };

/* Bytes of a map will be read soon; of any other memory it does nothing. */
void remote_expect_memory(const void *at, uint64_t bytes);

extern bool remote_has_maps;
static inline void remote_expect(const void *at, uint64_t bytes)
{
    if (remote_has_maps)
        remote_expect_memory(at, bytes);
}

/* How long this process has waited for the fetcher, ns, since the last call with `anew`; of NULL,
 * 0.
 */
uint64_t remote_waited_ns(struct remote *remote, bool anew);

/* What could not be read since the last call, if anything: -EIO with `err`; 0. */
int remote_tell(struct remote *remote, struct dl_error *err);

#endif
