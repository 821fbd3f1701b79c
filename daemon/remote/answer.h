/*
 * The headers of an answer, whether they are those that were asked for, and what an answer that is
 * none says. Source: RFC 9110; "Error responses" of Amazon's S3 API Reference; the Hub's headers as
 * huggingface_hub reads them. Pure; any thread.
 */
#ifndef DL_REMOTE_ANSWER_H
#define DL_REMOTE_ANSWER_H

#include "daemon/remote/place.h"
#include "proto/common/bytes.h"

#define REMOTE_UNKNOWN UINT64_MAX

enum {
    REMOTE_ETAG_MAX = 256, /* these three: bytes with the final NUL */
    REMOTE_CURSOR_MAX = 2048,
    REMOTE_WORDS_MAX = 256,
    REMOTE_ERROR_BYTES = 64 << 10, /* of an error's body, what there is any use in reading */
};

struct remote_headers {
    int status;                 /* 0: no line yet */
    uint64_t length;            /* Content-Length; REMOTE_UNKNOWN: not said */
    uint64_t first, last;       /* Content-Range; REMOTE_UNKNOWN: not said */
    uint64_t total;             /* there: of the whole object; REMOTE_UNKNOWN: not said, or "*" */
    char etag[REMOTE_ETAG_MAX]; /* ETag, quotes and W/ included; "": not said */
    int64_t modified;           /* Last-Modified, seconds since 1970; -1: not said */
    int64_t retry_after;        /* seconds from now; -1: not said */
    bool is_coded;              /* Content-Encoding: the bytes are not the object's */
    uint64_t linked_size;       /* hf: X-Linked-Size; REMOTE_UNKNOWN: not said */
    char linked_etag[REMOTE_ETAG_MAX]; /* hf: X-Linked-Etag: of the file, wherever its bytes lie */
    char commit[64];                   /* hf: X-Repo-Commit; "": not said */
    bool has_next;                     /* hf: Link has a rel="next" */
    char cursor[REMOTE_CURSOR_MAX];    /* hf: of that, decoded; "": it has none that fits */
    char region[64];                   /* s3: x-amz-bucket-region; "": not said */
    char words[REMOTE_WORDS_MAX];      /* hf: X-Error-Message; "": not said */
};
void remote_headers_init(struct remote_headers *headers);

/*
 * One line, as libcurl's CURLOPT_HEADERFUNCTION gives it, its end of line included or not. A status
 * line begins anew: after 100 Continue, and after a redirect, of which linked_size, linked_etag and
 * commit stay. Names are compared without their case. `now` is in seconds since 1970, for a date in
 * Retry-After.
 *
 * -EBADMSG: a status, length or range that is none or contradicts an earlier one: such an answer
 * cannot be used. Of all else, what is none or too long counts as not said.
 */
int _nodiscard_ remote_headers_line(struct remote_headers *headers, const char *line, size_t len,
                                    int64_t now);

/* Size and etag of the object, whichever header says them. REMOTE_UNKNOWN and "": none does. */
uint64_t remote_headers_size(const struct remote_headers *headers);
const char *remote_headers_etag(const struct remote_headers *headers); /* borrowed */

/* What a request for bytes has asked, as remote_request_bytes(). */
struct remote_range {
    uint64_t first, last; /* last UINT64_MAX: to the end */
    uint64_t total;       /* the object's size where it is known; else REMOTE_UNKNOWN */
    const char *etag;     /* where it is known, else NULL or "" */
};

/*
 * Whether these headers are those of the bytes that were asked for: that range, up to the object's
 * end if it ends earlier; or, with status 200 and no range, all, if no less was asked for. *ret_len
 * is how many bytes the body must have; REMOTE_UNKNOWN: as many as come.
 *
 * -ESTALE: the object is another one than before (size, etag, or status 412);
 * -ENOTSUP: the server gives the whole object where a part was asked for, or coded bytes;
 * -EBADMSG: another range;
 * -EIO: another status: remote_refusal() has the words.
 */
int _nodiscard_ remote_bytes_check(const struct remote_place *place,
                                   const struct remote_headers *headers,
                                   const struct remote_range *asked, uint64_t *ret_len,
                                   struct dl_error *err);

/* S3's error document. Texts are cut to their place; "": not said. */
struct remote_error {
    char code[64];
    char message[REMOTE_WORDS_MAX];
    char region[64]; /* the one that was expected */
};
bool remote_error_read(struct dl_span body, struct remote_error *ret); /* false: it is none */

/*
 * What an answer with an error says, for people: fills err by the status, the server's own words
 * and the remedy, and returns its negative errno. `body` may be empty (HEAD has none); `is_signed`:
 * the request had somebody's name.
 *
 * -ENOENT:  404, 410: there is no such object, bucket or repository, or none for this user;
 * -EACCES:  401, 403: err tells whether the request was signed;
 * -ESTALE:  412, 416: it has changed since its size or etag was read;
 * -EREMOTE: 301 and 307 of s3, and what names another region than the place's;
 * -EAGAIN:  408, 425, 429, 500, 502 to 504, and S3's codes for such: asking again may help;
 * -EIO:     all else.
 */
int _nodiscard_ remote_refusal(const struct remote_place *place,
                               const struct remote_headers *headers, struct dl_span body,
                               bool is_signed, struct dl_error *err);

#endif
