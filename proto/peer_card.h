/*
 * What a node says of itself in the store that a run meets in, where it gives other nodes blocks of
 * remote files (daemon/fetcher/peers.h): "1 ADDRESS UID ROOM TOKEN". Pure.
 */
#ifndef DL_PROTO_PEER_CARD_H
#define DL_PROTO_PEER_CARD_H

#include "proto/common/bytes.h"

enum {
    PEER_ADDRESS_MAX = 64, /* "10.0.0.5:7070", "[fd00::5]:7070"; these: with the final NUL */
    PEER_TOKEN_MAX = 33,   /* hexadecimal digits */
    PEER_CARD_MAX = 192,
};

struct peer_card {
    char address[PEER_ADDRESS_MAX];
    uint64_t uid;
    uint64_t room;              /* bytes that it keeps on its disk at most */
    char token[PEER_TOKEN_MAX]; /* by which others prove that they have read this */
};

/* False: it is none, or of a later release. */
bool _nodiscard_ peer_card_read(struct dl_span text, struct peer_card *ret);
void peer_card_write(const struct peer_card *card, char ret[static PEER_CARD_MAX]);

#endif
