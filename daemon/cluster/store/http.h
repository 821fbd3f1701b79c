/*
 * Requests over HTTP(S) on the daemon's loop, by libcurl: nothing here blocks or has a thread of
 * its own but the resolver's. Connections are kept and used again. No proxy; no redirection, unless
 * a request says so.
 *
 * Main thread only. Callbacks come from the loop, never from inside a call; after http_cancel() or
 * http_free() none comes.
 */
#ifndef DL_HTTP_H
#define DL_HTTP_H

#include "daemon/base/networks.h"
#include "proto/codec.h"

#include <uv.h>

enum {
    HTTP_BODY_MAX = 4 * 1024 * 1024, /* bytes of an answer, */
    HTTP_HEADERS_MAX = 256 * 1024,   /* and of the lines before it, where somebody wants them */
};

struct http_options {
    uv_loop_t *loop;
    /* Of https; files in PEM, as all here borrowed for the call. NULL: the system's authorities,
     * no certificate of its own. */
    const char *ca, *cert, *key;
    const char *owner;             /* for errors: what wants it; static */
    uint32_t kept;                 /* connections that are kept; 0: libcurl's choice */
    const struct networks *denied; /* whose addresses are not connected to; NULL: none */
};

struct http_answer {
    int status;          /* of HTTP; 0: there was none, and `why` says so */
    const char *why;     /* "connection refused", ... */
    bool lasts;          /* of that: asking again does not help */
    bool is_late;        /* that there was none in the request's time */
    struct dl_span body; /* borrowed for the call; of a stream what came last */
};

struct http_request {
    const char *url;      /* sent as it is: a path with "." or ".." too */
    const char *body;     /* by POST; NULL: none, by GET */
    size_t body_bytes;    /* of it; 0: a NUL ends it */
    const char *type;     /* of the body; NULL: JSON */
    const char *method;   /* another one than these, static; NULL: none */
    const char *token;    /* of the Authorization header; NULL: none */
    char *const *headers; /* n_headers further lines, "Name: value" */
    uint32_t n_headers;
    /* To where the answer says, up to 5 times, from https to https alone. Another host gets no
     * header Authorization, but all others. */
    bool redirected;
    uint64_t timeout_ns; /* until the answer is whole; 0: a stream, which has no end */
    uint32_t silent_s;   /* when nothing has come for so long, it fails; 0: it does not */
    /* A line of the answer's headers, its end included; NULL: nobody wants them. */
    void (*header)(void *owner, struct dl_span line);
    /* Some of it is there, all since the last that was taken (bytes), which does not come again. */
    size_t (*some)(void *owner, struct dl_span data);
    void (*done)(void *owner, const struct http_answer *answer);
    void *owner;
};

struct http;
struct http_call;

int _nodiscard_ http_new(const struct http_options *options, struct http **ret,
                         struct dl_error *err);
/* Its calls are cancelled. NULL is fine; returns NULL. */
struct http *http_free(struct http *http);

/* All is copied. -EINVAL: libcurl does not take it, or the token is too long. */
int _nodiscard_ http_send(struct http *http, const struct http_request *request,
                          struct http_call **ret);
/* NULL is fine; returns NULL. */
struct http_call *http_cancel(struct http_call *call);

#endif
