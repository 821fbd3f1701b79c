#include "daemon/helper/proof.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

int proof_nonce(char ret[static PROOF_NONCE_MAX])
{
    uint8_t random[(PROOF_NONCE_MAX - 1) / 2];

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return -EIO;
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(ret + 2 * i, 3, "%02x", random[i]);
    return 0;
}

static bool proof_is_nonce(const char *text)
{
    return strlen(text) == PROOF_NONCE_MAX - 1 && text[strspn(text, "0123456789abcdef")] == '\0';
}

void proof_make(const struct sigv4_crypto *crypto, const char *secret, const char *who,
                const char *near, const char *far, char ret[static PEER_PROOF_MAX])
{
    char both[2 * PROOF_NONCE_MAX];

    ret[0] = '\0';
    if (!proof_is_nonce(near) || !proof_is_nonce(far))
        return;
    snprintf(both, sizeof both, "%s %s", near, far);
    peer_prove(crypto, secret, who, both, ret);
}

bool proof_holds(const struct sigv4_crypto *crypto, const char *secret, const char *who,
                 const char *near, const char *far, struct dl_span proof)
{
    char right[PEER_PROOF_MAX];
    _cleanup_free_ char *given = span_dup(proof);

    proof_make(crypto, secret, who, near, far, right);
    return given && peer_proofs_same(right, given);
}

const char *proof_compare_releases(struct dl_span theirs)
{
    static const char own[] = DLOADER_VERSION;

    return theirs.len == strlen(own) && memcmp(theirs.data, own, theirs.len) == 0
               ? ""
               : "is of another release, which may make other bytes; install the same on both "
                 "machines";
}
