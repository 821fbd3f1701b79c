/*
 * How a helper and a stand-in prove to each other that they know the run's secret, which never goes
 * over the wire: see link.h. The HMAC is libcrypto's, as of the proofs between daemons
 * (daemon/remote/peer_wire.h).
 */
#ifndef DL_HELPER_PROOF_H
#define DL_HELPER_PROOF_H

#include "daemon/remote/peer_wire.h"

enum { PROOF_NONCE_MAX = 65 }; /* with the final NUL */

/* Random, in hexadecimal. Negative errno. */
int _nodiscard_ proof_nonce(char ret[static PROOF_NONCE_MAX]);

/* `who`: "near" or "far". The nonces, of which either may be the peer's, are checked for form: ""
 * is returned as the proof of any other, which equals none. */
void proof_make(const struct sigv4_crypto *crypto, const char *secret, const char *who,
                const char *near, const char *far, char ret[static PEER_PROOF_MAX]);
/* Whether the peer's is that. */
bool proof_holds(const struct sigv4_crypto *crypto, const char *secret, const char *who,
                 const char *near, const char *far, struct dl_span proof);

/* What both have to be of; "" if they are. Else what to do about it, for messages. */
const char *proof_compare_releases(struct dl_span theirs);

#endif
