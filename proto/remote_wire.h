/*
 * The wire between workers and the fetcher, the daemon's process that reads remote objects: a
 * SOCK_SEQPACKET socket that the daemon gives to both. Each packet is one question or one answer. A
 * worker has one question open at a time; those without an answer may be sent at any time.
 * Both ends are of one build, on one machine: structs are sent as they are.
 *
 * Workers are not trusted: the fetcher checks each packet and drops a worker that sends a bad one.
 */
#ifndef DL_PROTO_REMOTE_WIRE_H
#define DL_PROTO_REMOTE_WIRE_H

#include "proto/common/base.h"

/* SERVED: the same, of files that are not behind URLs: all of the dataset's, by their paths. */
enum { REMOTE_WIRE_VERSION = 2, REMOTE_WIRE_SERVED = 1 << 16 | REMOTE_WIRE_VERSION };

enum remote_op {
    REMOTE_STAT = 1, /* what is at the URL: an object, a directory, or nothing */
    REMOTE_LIST,     /* names of a directory; answered with a memfd of remote_name */
    REMOTE_WHOLE,    /* the object, fetched whole; answered with a descriptor to be read */
    REMOTE_PAGED,    /* the object, of which parts will be wanted; with a descriptor to be mapped */
    REMOTE_NEED,     /* bytes of an object that REMOTE_PAGED gave, now */
    REMOTE_EXPECT,   /* bytes likewise, or of the object at the URL, soon; or, of a URL that ends in
                        a slash, REMOTE_LIST of what precedes it; no answer */
    REMOTE_DROP,     /* the asker reads these bytes no more, unless it asks again; no answer */
    REMOTE_CLOSE,    /* nothing more of this object; no answer */
    REMOTE_AHEAD,    /* as REMOTE_EXPECT, but later than all that is; in this order; no answer */
    REMOTE_ANEW,     /* REMOTE_AHEAD that was not begun is forgotten; no answer */
};

enum {
    REMOTE_ASKED_MAX = 4096,         /* bytes, with the 0 at the end */
    REMOTE_BLOCK_BYTES = 256 * 1024, /* fetched ranges begin and end on such a boundary */
    REMOTE_MESSAGE_MAX = 1024,       /* of an error, likewise with its 0 */
};

struct remote_question {
    uint32_t op;
    uint32_t object; /* REMOTE_NEED, _DROP, _CLOSE, _EXPECT and _AHEAD without a URL: the number
                        that came with it */
    uint64_t first;  /* byte; REMOTE_NEED, _EXPECT, _AHEAD, _DROP; or REMOTE_FROM_END */
    uint64_t bytes;  /* REMOTE_EXPECT, _AHEAD of a URL: may be more than there are */
    char url[REMOTE_ASKED_MAX]; /* as much of it as is sent, ended by a 0 */
};

/* REMOTE_EXPECT, _AHEAD of a URL: its last bytes, if it is known how many there are. */
#define REMOTE_FROM_END UINT64_MAX

enum remote_sort { REMOTE_OBJECT = 1, REMOTE_DIRECTORY };

struct remote_answer {
    int32_t code;      /* 0, or an errno: `message` says what is wrong and how to mend it */
    uint32_t sort;     /* enum remote_sort */
    uint32_t object;   /* REMOTE_PAGED: a number of it in later questions, another one each time */
    uint32_t window;   /* REMOTE_PAGED: blocks of all files that the asker may have in use */
    uint64_t bytes;    /* of the object, or of the memfd; REMOTE_NEED: there from `first` on */
    uint64_t identity; /* another one when the object is another: of its URL and ETag */
    int64_t modified;  /* seconds since 1970; 0: not known */
    bool waited;       /* REMOTE_NEED: it was not there yet, and more could have been on its way */
    char message[REMOTE_MESSAGE_MAX]; /* as much of it as is sent, ended by a 0 */
};

/* As much of it as is sent. */
static inline size_t remote_answer_bytes(const struct remote_answer *answer)
{
    return offsetof(struct remote_answer, message) + strlen(answer->message) + 1;
}

/* In the memfd of REMOTE_LIST, one after another, each at a multiple of 8 bytes. */
struct remote_name {
    uint64_t bytes;
    uint32_t sort;
    uint32_t name_bytes; /* without the 0 that ends it */
    char name[];
};

/* Whether `path` is a URL that the fetcher reads: a scheme of its own, and "://". Pure. */
static inline bool remote_is_url(const char *path)
{
    static const char *const schemes[] = {"s3://", "gs://", "hf://", "https://", "http://"};

    for (size_t i = 0; i < ARRAY_SIZE(schemes); i++) {
        if (strncmp(path, schemes[i], strlen(schemes[i])) == 0)
            return true;
    }
    return false;
}

#endif
