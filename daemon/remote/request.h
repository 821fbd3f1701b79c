/*
 * The requests that a place is read by: bytes of an object, its head, a page of the list of what
 * lies below it. Each is a method, a URL and lines of headers, as they are sent.
 *
 * s3, gs: signed where there are credentials, by sigv4.h; x-amz-content-sha256 is that of no body.
 *         Host, x-amz-content-sha256, x-amz-date and x-amz-security-token alone are signed, so that
 *         a proxy may change others. A list is ListObjectsV2, without encoding-type: names come as
 *         XML has them, since servers disagree on what "+" is in an encoded one.
 *
 * hf:     "Authorization: Bearer" where the settings have a token. An object is asked for at
 *         /resolve/, which for large files redirects to another host; a list at /api/…/tree/.
 *
 * http:   nothing secret, and no lists.
 *
 * Source: GetObject, HeadObject and ListObjectsV2 of Amazon's S3 API Reference; RFC 9110; the Hub's
 * API documentation. Pure; any thread.
 */
#ifndef DL_REMOTE_REQUEST_H
#define DL_REMOTE_REQUEST_H

#include "daemon/remote/credentials.h"
#include "daemon/remote/place.h"
#include "daemon/remote/sigv4.h"

enum { REMOTE_HEADERS_MAX = 8 };

struct remote_request {
    const char *method; /* "GET"; static */
    char *url;          /* owned: https://…, encoded; to be sent as it is (CURLOPT_PATH_AS_IS) */
    char *headers[REMOTE_HEADERS_MAX]; /* owned: "Name: value"; libcurl adds Host */
    uint32_t n_headers;
    /* The first n_own are for this URL alone: they prove who asks, or are the validator of this
     * server's answer. On a redirect to another origin (scheme, host or port) only the others may
     * be sent. A signature holds for one URL: of s3 and gs no redirect can be followed by these
     * headers at all; where the origin stays the same, Authorization of hf may stay. */
    uint32_t n_own;
};
void remote_request_deinit(struct remote_request *request); /* wipes the headers; takes {0} */

/* Who asks, and when. All borrowed. */
struct remote_asker {
    const struct remote_settings *settings;
    const struct remote_credentials *credentials; /* of s3 and gs; NULL, or no keys: anonymous */
    const struct sigv4_crypto *crypto;            /* may be NULL where nothing is signed */
    int64_t now;                                  /* seconds since 1970, UTC */
};

/*
 * Bytes `first` to `last`, both included. `last` UINT64_MAX: to the end; from 0 on that is the
 * whole object, asked for without Range, which an object of no bytes would refuse. `etag`, as the
 * server wrote it, quotes included, may be NULL or "": If-Match then makes it refuse (412) another
 * version. A weak one ("W/…") is not sent, as it never matches, nor is any of hf, whose bytes come
 * from another server, with another etag.
 *
 * Both: -EINVAL: the place names no object, a first byte after the last, or text that cannot
 * stand in a header; -ENOTSUP: http has no lists; -ENOPKG: no libcrypto; -ENOMEM. *ret is then
 * empty.
 */
int _nodiscard_ remote_request_bytes(const struct remote_place *place,
                                     const struct remote_asker *asker, uint64_t first,
                                     uint64_t last, const char *etag, struct remote_request *ret,
                                     struct dl_error *err);

struct remote_page {
    const char *next; /* of the page before (listing.h); NULL: the first */
    uint32_t most;    /* entries; 0: as many as the server gives (1,000) */
    bool is_deep;     /* with all that lies in folders, too; else one level, folders as entries */
};

/* A page of what begins with the place's key: see listing.h. */
int _nodiscard_ remote_request_list(const struct remote_place *place,
                                    const struct remote_asker *asker,
                                    const struct remote_page *page, struct remote_request *ret,
                                    struct dl_error *err);

#endif
