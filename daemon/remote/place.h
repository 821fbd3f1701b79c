/*
 * Where a URL's object lies: which server is asked, for which path.
 *
 *   s3://BUCKET/KEY        Amazon's S3, or what speaks it at the settings' endpoint
 *   gs://BUCKET/KEY        Google's Cloud Storage, by its S3-compatible XML API and HMAC keys
 *   https://HOST/PATH      any web server; http:// likewise
 *   hf://datasets/OWNER/NAME@REVISION/PATH
 *                          a file of a repository of Hugging Face; spaces/ likewise; models/, or
 *                          nothing, for models. @REVISION is optional: main. It may be a branch, a
 *                          tag, a commit, refs/convert/NAME or refs/pr/NUMBER; other names with a
 *                          slash have %2F for it.
 *
 * A key of s3 and gs is taken byte by byte: spaces, = + * % ? #, UTF-8, "//", "." and ".." are
 * parts of its name, nothing is decoded. So is the path of hf, but "." and "..", which are refused.
 * A path of http is one of a URL: %XX stays; what no URL may have becomes %XX; "." and "..", as %2e
 * too, are refused, since servers and caches on the way read them in different ways.
 *
 * libcurl has to be set to CURLOPT_PATH_AS_IS, or it removes "." and ".." of keys from the URL, and
 * no signature fits any more.
 *
 * Sources: "Virtual hosting of buckets" and "Bucket naming rules" of Amazon's S3 User Guide;
 * RFC 3986; huggingface_hub's documentation of hf:// paths. Pure; any thread.
 */
#ifndef DL_REMOTE_PLACE_H
#define DL_REMOTE_PLACE_H

#include "daemon/remote/settings.h"
#include "proto/remote_wire.h"

enum remote_kind { REMOTE_S3, REMOTE_HTTP, REMOTE_HF };

enum { REMOTE_URL_MAX = 8192 }; /* bytes of a URL without the final NUL */

/* Texts owned. Any that is not said to be may not be NULL. */
struct remote_place {
    enum remote_kind kind; /* gs:// is REMOTE_S3, too */
    char *url;             /* as the user wrote it, for people */
    char *origin;   /* "https://HOST[:PORT]"; a port that the scheme has anyway is left out */
    char *base;     /* what precedes the key, as it is sent: from "/" to "/" */
    char *key;      /* the object, or the beginning of several; may be "". http: as it is sent */
    char *query;    /* http: as it is sent, without "?"; NULL: none, or another kind */
    char *region;   /* s3: what is signed with; other kinds: NULL */
    char *repo;     /* hf: "datasets/OWNER/NAME", and "OWNER/NAME" of models; other kinds: NULL */
    char *api;      /* hf: "datasets/OWNER/NAME", and "models/OWNER/NAME"; other kinds: NULL */
    char *revision; /* hf: decoded; other kinds: NULL */
};
void remote_place_deinit(struct remote_place *place); /* takes {0} */

/* "HOST[:PORT]" of the origin: what the header Host has; borrowed from the place. */
const char *remote_place_host(const struct remote_place *place);

/*
 * The bucket is a part of the host where it can be one and no endpoint is given; else it is the
 * first part of the path (an endpoint, dots, capitals, "_").
 * -EINVAL: it is no such URL, or has a user or password in it, which err does not repeat; err names
 * the URL, what is wrong and what to write; -ENOMEM. *ret is then empty.
 */
int _nodiscard_ remote_place_parse(const char *url, const struct remote_settings *settings,
                                   struct remote_place *ret, struct dl_error *err);

#endif
