/*
 * Who issues keys of s3:// that last a while, where neither the environment nor a file has any:
 *
 *   web identity  AWS's STS, for a token that a file has (Kubernetes' service accounts)
 *   container     what a container's environment names (ECS, EKS Pod Identity)
 *   instance      EC2's metadata service, by its version 2: a session first, then the keys
 *
 * Sources: "AssumeRoleWithWebIdentity" of the STS API Reference; "Container credential provider" of
 * the AWS SDKs Reference Guide; "Use the Instance Metadata Service" of the EC2 User Guide. Pure;
 * any thread.
 */
#ifndef DL_REMOTE_ISSUER_H
#define DL_REMOTE_ISSUER_H

#include "daemon/remote/credentials.h"

enum remote_issuer_kind {
    ISSUER_NONE, /* the profile has keys, or nobody is asked: anonymous */
    ISSUER_WEB_IDENTITY,
    ISSUER_CONTAINER,
    ISSUER_INSTANCE,
};

/* Texts owned; NULL where the kind has none. */
struct remote_issuer {
    enum remote_issuer_kind kind;
    char *url;        /* of STS, of the container's keys, or the metadata service's origin */
    char *role;       /* web identity: its ARN, */
    char *session;    /* and a name */
    char *token_file; /* web identity, container (may be NULL): read before each request */
    char *token;      /* container: the same as text; secret; may be NULL */
};
void remote_issuer_deinit(struct remote_issuer *issuer); /* takes {0} */

/*
 * By the order of AWS's own tools: keys of the profile, web identity, the container, the instance;
 * AWS_EC2_METADATA_DISABLED=true leaves that out. STS is at AWS_ENDPOINT_URL_STS, AWS_ENDPOINT_URL
 * or sts.REGION.amazonaws.com, the metadata service at AWS_EC2_METADATA_SERVICE_ENDPOINT.
 * -EINVAL: a variable has a value that cannot be such; -EACCES: keys would go in clear to another
 * machine; -ENOMEM. *ret is then empty.
 */
int _nodiscard_ remote_issuer_choose(remote_getenv get, void *of,
                                     const struct remote_profile *profile,
                                     const struct remote_settings *settings,
                                     struct remote_issuer *ret, struct dl_error *err);

/* Only the instance has the first two. */
enum remote_issuer_step { ISSUER_SESSION, ISSUER_ROLE, ISSUER_KEYS };

enum { ISSUER_HEADERS_MAX = 2 };

/* Texts owned. */
struct remote_issuer_request {
    const char *method; /* static */
    char *url;
    char *headers[ISSUER_HEADERS_MAX];
    uint32_t n_headers;
    char *body; /* a form; NULL: none */
};
void remote_issuer_request_deinit(struct remote_issuer_request *request); /* wipes; takes {0} */

/* `secret`: the token of the file, or the instance's session; NULL: none yet. `role`: of the
 * instance, from ISSUER_ROLE. -EINVAL: one cannot stand in a header or URL; -ENOMEM. */
int _nodiscard_ remote_issuer_ask(const struct remote_issuer *issuer, enum remote_issuer_step step,
                                  const char *secret, const char *role,
                                  struct remote_issuer_request *ret, struct dl_error *err);

/* The answer to ISSUER_SESSION or ISSUER_ROLE: one line of text; owned by the caller. -EBADMSG. */
int _nodiscard_ remote_issuer_line(struct dl_span body, char **ret, struct dl_error *err);

struct remote_issued {
    struct remote_credentials credentials; /* owned */
    int64_t until;                         /* seconds since 1970; INT64_MAX: it does not say */
};

/* The answer to ISSUER_KEYS. -EACCES: it refuses, and err has its words; -EBADMSG: it is no such
 * answer; -ENOMEM. No secret is in err. */
int _nodiscard_ remote_issuer_take(const struct remote_issuer *issuer, int status,
                                   struct dl_span body, struct remote_issued *ret,
                                   struct dl_error *err);

#endif
