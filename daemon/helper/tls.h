/*
 * TLS 1.3 of a link whose ends both have certificates, by libssl, which is found at run time. Each
 * accepts any certificate of its `authority`, whatever name it has: the authority is one that is
 * made for these machines. The secret is proven besides (proof.h).
 */
#ifndef DL_HELPER_TLS_H
#define DL_HELPER_TLS_H

#include "proto/common/error.h"

struct tls;

/* Files in PEM; all three, or all "": without TLS. Borrowed. */
struct tls_files {
    const char *certificate, *key, *authority;
};

/* For a connection, which is borrowed and does not block; *ret is the caller's. `accepts`: it came
 * from the other end. Negative errno with `err`. */
int _nodiscard_ tls_new(const struct tls_files *files, int fd, bool accepts, struct tls **ret,
                        struct dl_error *err);
/* Fine on NULL; returns NULL. */
struct tls *tls_free(struct tls *tls);

/* Goes on with the handshake. -EAGAIN: once *ret_events have come (poll()); else 0, or a negative
 * errno with `err`. */
int _nodiscard_ tls_shake(struct tls *tls, short *ret_events, struct dl_error *err);

/* How many bytes: 0 for none now. Negative errno: -EPIPE at its end, -EKEYREJECTED for what is not
 * TLS, or an alert, as when this end's certificate is refused. */
int64_t _nodiscard_ tls_receive(struct tls *tls, void *to, uint64_t room);
int64_t _nodiscard_ tls_send(struct tls *tls, const void *data, uint64_t len);

#endif
