/* A connection to a helper, proven in both directions (proof.h). */
#ifndef DL_HELPER_REACH_H
#define DL_HELPER_REACH_H

#include "daemon/helper/link.h"

/* Owned strings; certificate, key and authority are as in struct tls_files. */
struct reach_place {
    char *address; /* HOST:PORT */
    char *secret;
    char *certificate, *key, *authority;
    char *interpreter; /* of this machine; "": no Python */
    bool any_versions; /* the helper's may have others */
    bool checksums;    /* it is asked for them */
    bool serves;       /* it may read this machine's files */
};

int _nodiscard_ reach_place_read(struct reach_place *ret, const struct dl_msg_w_reach *msg);
void reach_place_deinit(struct reach_place *place);

/* Blocks for LINK_PROVE_S at most. Negative errno with `err`, which names the address; else the
 * link is the caller's. */
int _nodiscard_ reach_helper(const struct reach_place *place, struct link *ret,
                             struct dl_error *err);

/* Of either end: small messages leave at once, and a connection that is cut is noticed. */
void reach_tune(int fd);

/* Of either end, once its link is there and until it has proven itself. Waits; -ETIMEDOUT when
 * `until` has come (clock_ns()). Without a certificate it does nothing. */
int _nodiscard_ reach_encrypt(struct link *link, const struct tls_files *files, bool accepts,
                              uint64_t until, struct dl_error *err);

#endif
