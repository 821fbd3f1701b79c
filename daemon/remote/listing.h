/*
 * What a page of a list says, and where the next one begins: ListObjectsV2's XML of s3 and gs, and
 * the tree of hf in JSON.
 *
 * Entries are those whose key begins with the place's, and each is named by what follows the last
 * "/" of that: of s3://b/train/ and of s3://b/train/shard- the object train/shard-7.tar is
 * "shard-7.tar". So the place of a pattern is what precedes its first sign, and what the names are
 * compared with is the rest. The object that is called as the folder itself ("train/", as consoles
 * make it) is left out.
 *
 * Pages are untrusted: they are bounded, read without recursion, and refused as a whole if anything
 * in them cannot be. Names are bytes; they may be "..", and may have "/" in them where the list is
 * deep or the server strange.
 *
 * Source: ListObjectsV2 of Amazon's S3 API Reference; the Hub's API documentation. Pure.
 */
#ifndef DL_REMOTE_LISTING_H
#define DL_REMOTE_LISTING_H

#include "daemon/remote/answer.h"
#include "daemon/remote/place.h"
#include "proto/common/bytes.h"

/* Bytes of a page, at the most: 1,000 keys of the longest kind have less, in whatever way they are
 * written. */
enum { REMOTE_LISTING_BYTES = 8 << 20 };

struct remote_entry {
    char *name;       /* owned */
    char *etag;       /* owned: as the object's header has it, quotes included; NULL: not said */
    uint64_t size;    /* bytes; of a folder 0 */
    int64_t modified; /* seconds since 1970; -1: not said */
    bool is_directory;
};

struct remote_listing {
    struct remote_entry *entries; /* owned, in the server's order */
    uint32_t n;
    char *next; /* owned: for remote_page; NULL: this is the last page */
};
void remote_listing_deinit(struct remote_listing *listing); /* takes {0} */

/*
 * `headers` are those of the answer: of hf they say where the next page begins.
 * -EBADMSG: it is no such page, or not all of one; -EFBIG: larger than the bounds; -ENOTSUP: http
 * has no lists; -ENOMEM. *ret is then empty.
 */
int _nodiscard_ remote_listing_read(const struct remote_place *place, struct dl_span body,
                                    const struct remote_headers *headers,
                                    struct remote_listing *ret, struct dl_error *err);

#endif
