/*
 * Whom etcd's requests go to, and who asks: the endpoints of one etcd, of which one is asked now,
 * and the user. Main thread only.
 */
#ifndef DL_ETCD_CLIENT_H
#define DL_ETCD_CLIENT_H

#include "daemon/cluster/store/etcd.h"
#include "daemon/cluster/store/http.h"

struct etcd_client {
    struct http *http;                   /* owned */
    char *endpoints[ETCD_ENDPOINTS_MAX]; /* owned; "http://host:port" */
    unsigned n, current;
    char *user, *password; /* owned; may be NULL */
    char *token;           /* owned: of the user who has logged in; NULL: has not */
};

/* 0; -EINVAL, with what there is to be deinitialised. */
int _nodiscard_ etcd_client_init(struct etcd_client *client, const struct etcd_options *options,
                                 struct dl_error *err);
/* Other endpoints, and the password, from the next request on. -EINVAL: it stays as it is. */
int _nodiscard_ etcd_client_move(struct etcd_client *client, const char *endpoints,
                                 const char *password, struct dl_error *err);
/* Its requests are cancelled. */
void etcd_client_deinit(struct etcd_client *client);

/* The endpoint that is asked now; and from now on the next is. */
const char *etcd_client_here(const struct etcd_client *client);
void etcd_client_turn(struct etcd_client *client);

/* Asks it. `body` is consumed, and may be NULL, where there is no such JSON; `request` is whole but
 * for what is said here. -EINVAL: it cannot be asked. */
int _nodiscard_ etcd_client_post(struct etcd_client *client, const char *path, char *body,
                                 struct http_request request, struct http_call **ret);

/* What is wrong with an answer: gRPC's number of it, or -1, and it in words. False: nothing, it is
 * one to work with. */
bool etcd_client_failed(const struct http_answer *with, int *ret_code, char *text, size_t size);
/* Whether another endpoint may do better: this one was not there, or said that it cannot now. */
bool etcd_client_may_turn(const struct http_answer *with, int code);
/* Whether that says that etcd does not know the token any more, which lived in its memory. */
bool etcd_client_token_lost(const struct etcd_client *client, int code, const char *text);

#endif
