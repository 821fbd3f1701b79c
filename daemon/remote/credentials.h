/*
 * Keys of s3:// and gs://, from the environment and from the text of AWS's two files.
 *
 * The environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN) comes first; then
 * the profile AWS_PROFILE, or "default", of the credentials file; then that of the config file.
 * HMAC keys of Google's come by the same names. Where the environment has no keys, AWS_ROLE_ARN and
 * AWS_WEB_IDENTITY_TOKEN_FILE, or role_arn and web_identity_token_file of the profile, come before
 * the profile's. A profile that gets its keys in another way (role_arn of another profile,
 * sso_session, credential_process, …) is refused by name, not taken for an anonymous one.
 *
 * Secrets are overwritten before they are freed, and are in no error.
 *
 * Source: "Configuration and credential file settings" of the AWS CLI User Guide, and "Shared
 * config and credentials files" of the AWS SDKs Reference Guide. Pure but for
 * remote_profile_read().
 */
#ifndef DL_REMOTE_CREDENTIALS_H
#define DL_REMOTE_CREDENTIALS_H

#include "daemon/remote/settings.h"
#include "proto/common/bytes.h"

/* Owned. Both keys or none: none is anonymous. */
struct remote_credentials {
    char *access_key;
    char *secret_key;
    char *session_token; /* may be NULL */
};
void remote_credentials_deinit(struct remote_credentials *credentials);          /* takes {0} */
bool remote_credentials_are_there(const struct remote_credentials *credentials); /* NULL: no */

struct remote_profile {
    struct remote_credentials credentials;
    char *region;   /* owned; NULL: not said */
    char *endpoint; /* owned; NULL: not said */
    /* Without keys: a file with a token for which STS gives those of a role; owned, NULL: none. */
    char *identity_file, *role;
    char *session; /* owned; NULL: not said */
};
void remote_profile_deinit(struct remote_profile *profile); /* takes {0} */

enum {
    REMOTE_PROFILE_BYTES = 1 << 20, /* of a file, at the most */
    REMOTE_SECRET_BYTES = 64 << 10, /* of a token */
};

/*
 * Of the two files' text, which may be empty. No keys anywhere: 0, and anonymous.
 * -EINVAL: half of a pair of keys, or a value that cannot stand in a header (err names the variable
 * or the profile's key); -ENOENT: no profile of the name in AWS_PROFILE; -ENOTSUP: its keys come in
 * another way; -ENOMEM. *ret is then empty.
 */
int _nodiscard_ remote_profile_from(remote_getenv get, void *of, struct dl_span credentials,
                                    struct dl_span config, struct remote_profile *ret,
                                    struct dl_error *err);

/*
 * The same, of the files AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name, or
 * $HOME/.aws/credentials and $HOME/.aws/config. It opens them with the rights of the process. Those
 * that are not there are empty. Another errno: one cannot be read, or is larger than
 * REMOTE_PROFILE_BYTES (-EFBIG). Blocks.
 */
int _nodiscard_ remote_profile_read(remote_getenv get, void *of, struct remote_profile *ret,
                                    struct dl_error *err);

/* Calls each() with the path of each file that these functions, and who asks an issuer for keys
 * (issuer.h), may read by the environment. Those that memory runs out for are left out. */
void remote_each_file(remote_getenv get, void *of, void (*each)(void *arg, const char *path),
                      void *arg);

/* The one token that a file has; owned by the caller. -ENOENT: it is not there; -EINVAL: it holds
 * something else, or nothing; other errnos as above. Blocks. */
int _nodiscard_ remote_secret_read(const char *path, char **ret, struct dl_error *err);

/*
 * Where the settings have no token of HF_TOKEN: the one that `hf auth login` has left in the file
 * HF_TOKEN_PATH names, or $HF_HOME/token, $XDG_CACHE_HOME/huggingface/token, or
 * $HOME/.cache/huggingface/token: the first whose variable is set. No such file: 0, and no token.
 * Errors as above, and -EINVAL: the file holds something else. Blocks.
 */
int _nodiscard_ remote_token_read(remote_getenv get, void *of, struct remote_settings *settings,
                                  struct dl_error *err);

#endif
