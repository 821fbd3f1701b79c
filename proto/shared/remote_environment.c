#include "proto/shared/remote_environment.h"

#include <stdlib.h>

/* Its functions as our own: libdlclient links no libxxhash. */
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Where home directories have files of keys, these are the same for all processes of a user. */
static const char *const remote_environment_names[] = {"AWS_ENDPOINT_URL_S3",
                                                       "AWS_ENDPOINT_URL",
                                                       "AWS_PROFILE",
                                                       "AWS_ACCESS_KEY_ID",
                                                       "AWS_WEB_IDENTITY_TOKEN_FILE",
                                                       "AWS_ROLE_ARN",
                                                       "AWS_SHARED_CREDENTIALS_FILE",
                                                       "AWS_CONFIG_FILE",
                                                       "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE",
                                                       "HF_ENDPOINT",
                                                       "HF_TOKEN"};

uint64_t remote_environment(bool none)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < ARRAY_SIZE(remote_environment_names); i++) {
        const char *value = none ? NULL : getenv(remote_environment_names[i]);

        if (value && *value)
            sum += XXH3_64bits_withSeed(value, strlen(value), i + 1);
    }
    return sum | 1;
}
