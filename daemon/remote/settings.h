/*
 * What a user's environment says of remote storage, by the names that the tools of AWS and Hugging
 * Face read. Pure: it asks a function for the variables, so that they may be another process's.
 */
#ifndef DL_REMOTE_SETTINGS_H
#define DL_REMOTE_SETTINGS_H

#include "proto/common/error.h"

/* The value of an environment variable, borrowed until the next call; NULL: it is not set. */
typedef const char *(*remote_getenv)(const char *name, void *of);

struct remote_profile; /* credentials.h */

/* Texts owned; without their "may be NULL" they are never NULL after remote_settings_from(). */
struct remote_settings {
    char *endpoint;    /* of s3://; may be NULL: AWS's own */
    char *region;      /* of s3:// */
    char *gs_endpoint; /* of gs:// */
    char *hf_endpoint; /* of hf:// */
    char *hf_token;    /* secret; may be NULL */
};
void remote_settings_deinit(struct remote_settings *settings); /* wipes the token; takes {0} */

/*
 * endpoint:    AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, endpoint_url of the profile.
 * region:      AWS_REGION, AWS_DEFAULT_REGION, region of the profile, us-east-1.
 * hf_endpoint: HF_ENDPOINT, https://huggingface.co.    hf_token: HF_TOKEN.
 * gs_endpoint: CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE, https://storage.googleapis.com; AWS's
 *              variables do not change it, so that a MinIO in them gets no request for Google's
 *              buckets.
 * A variable that is empty counts as not set. `profile` may be NULL.
 * -EINVAL: one has a value that cannot be such (err names the variable, never a secret); -ENOMEM.
 */
int _nodiscard_ remote_settings_from(remote_getenv get, void *of,
                                     const struct remote_profile *profile,
                                     struct remote_settings *ret, struct dl_error *err);

#endif
