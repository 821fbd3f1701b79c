/*
 * AWS Signature Version 4, in headers: who asks is proven by an HMAC of the request with a key made
 * of the secret, the day, the region and the service. The secret itself is never sent.
 *
 * Sources: "Authenticating Requests: Using the Authorization Header" of Amazon's S3 API Reference,
 * and "Create a signed AWS API request" of its IAM User Guide. Of S3's own rules: the path is
 * encoded once and not normalised. Hashes are libcrypto's, found at run time. Pure but for
 * sigv4_crypto_find(); any thread.
 */
#ifndef DL_REMOTE_SIGV4_H
#define DL_REMOTE_SIGV4_H

#include "proto/common/bytes.h"

/* Functions of libcrypto, by their signatures there. */
struct sigv4_crypto {
    unsigned char *(*sha256)(const unsigned char *data, size_t len, unsigned char *ret);
    unsigned char *(*hmac)(const void *type, const void *key, int key_len,
                           const unsigned char *data, size_t len, unsigned char *ret,
                           unsigned *ret_len);
    const void *(*type_sha256)(void);
};

/* Those of this system's libcrypto.so.3 or .1.1; it stays loaded. False: there is none. */
bool sigv4_crypto_find(struct sigv4_crypto *ret);
/* What is said then, after "…: ". */
#define SIGV4_NO_CRYPTO                                                                           \
    "this system has no libcrypto.so.3, which signs requests; install it (libssl3 of Debian and " \
    "Ubuntu, openssl-libs of Fedora)"

/* SHA-256 of no bytes, in hexadecimal: the payload of a GET. */
#define SIGV4_EMPTY    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define SIGV4_UNSIGNED "UNSIGNED-PAYLOAD"

struct sigv4_pair {
    const char *name, *value; /* borrowed; not encoded */
};

enum { SIGV4_PAIRS_MAX = 16 };

/* All borrowed; what is signed may be in any order: of the headers Host and all x-amz-*. */
struct sigv4_request {
    const char *method;
    const char *path;                 /* not encoded; from "/" on */
    const struct sigv4_pair *query;   /* all of the URL's */
    const struct sigv4_pair *headers; /* those that are signed */
    uint32_t n_query, n_headers;      /* SIGV4_PAIRS_MAX at the most */
    const char *payload;              /* SIGV4_EMPTY, SIGV4_UNSIGNED, or another hash */
};

struct sigv4_signer {
    const struct sigv4_crypto *crypto;
    const char *access_key, *secret_key, *region, *service; /* borrowed */
    int64_t now;                                            /* seconds since 1970, UTC */
};

enum { SIGV4_TIME_MAX = 32 };

/* The value of x-amz-date: "20130524T000000Z". */
void sigv4_time(int64_t now, char ret[SIGV4_TIME_MAX]);

/* The canonical request, which servers say in SignatureDoesNotMatch; owned by the caller. NULL: out
 * of memory. */
char *sigv4_canonical(const struct sigv4_request *request);

/* The value of Authorization; owned by the caller. NULL: out of memory, or libcrypto fails. */
char *sigv4_authorization(const struct sigv4_request *request, const struct sigv4_signer *signer);

#endif
