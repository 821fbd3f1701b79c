/*
 * The keys that requests of s3:// and gs:// are signed with: those of the environment and of files,
 * or issued ones (daemon/remote/issuer.h), which are asked for anew before they end, while the old
 * ones still serve. Settings of the profile come with them.
 *
 * What is asked for here is the process's own business: no user's URL leads there, so that no
 * network is denied to it.
 *
 * Main thread only. `changed` comes from the loop, never from inside a call.
 */
#ifndef DL_FETCHER_KEYS_H
#define DL_FETCHER_KEYS_H

#include "daemon/remote/issuer.h"

#include <uv.h>

struct keys;

struct keys_options {
    uv_loop_t *loop;
    remote_getenv get;            /* of the environment */
    const char *ca;               /* of https; borrowed for the call; NULL: the system's */
    void (*changed)(void *owner); /* those that were awaited are there, or cannot be had */
    void *owner;
};

/* Reads the environment and the files. keys_check() says what is wrong there. */
int _nodiscard_ keys_new(const struct keys_options *options, struct keys **ret,
                         struct dl_error *err);
struct keys *keys_free(struct keys *keys); /* NULL is fine; returns NULL */

/* A negative errno: environment or files say what cannot be; nothing can be asked for then. */
int _nodiscard_ keys_check(const struct keys *keys, struct dl_error *err);
const struct remote_settings *keys_settings(const struct keys *keys); /* {0} if that fails */
/* A file that the profile names, with an identity's token; NULL: none. */
const char *keys_identity_file(const struct keys *keys);

/* 0: *ret are the keys, of which there may be none (anonymous); borrowed until the loop goes on.
 * 1: they are being asked for: `changed` comes. A negative errno: they cannot be had for now. */
int _nodiscard_ keys_take(struct keys *keys, bool is_google, const struct remote_credentials **ret,
                          struct dl_error *err);

/* Which keys these are: another number for others. */
uint64_t keys_number(const struct keys *keys);
/* A server has refused those of that number. True: there are others by now, or will be. */
bool keys_renew(struct keys *keys, uint64_t number);

/* Environment and files are read again. True: the settings in them are others by now, which takes a
 * new process; other keys are taken, and `changed` may not come for those that were awaited. */
bool keys_look(struct keys *keys);

/* When issued keys end at `until` (seconds since 1970): from when on others are asked for, and when
 * they are used no more. `chance`: any number. */
struct keys_times {
    int64_t renew, end;
};
struct keys_times keys_times_of(int64_t now, int64_t until, uint32_t chance);

#endif
