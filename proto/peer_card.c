#include "proto/peer_card.h"

#include <inttypes.h>
#include <stdio.h>

enum { PEER_CARD_DIGITS = 20 };

static const char PEER_HEX[] = "0123456789abcdef", PEER_HOST[] = "0123456789abcdefABCDEF.:[]";

/* The next word, of certain characters; false: it has others, or is too long. */
static bool peer_card_word(const char **at, const char *of, char *ret, size_t size)
{
    size_t len = strspn(*at, of);

    if (len == 0 || len >= size || ((*at)[len] != ' ' && (*at)[len] != '\0'))
        return false;
    memcpy(ret, *at, len);
    ret[len] = '\0';
    *at += len + ((*at)[len] == ' ');
    return true;
}

static bool peer_card_number(const char **at, uint64_t *ret)
{
    char digits[PEER_CARD_DIGITS + 1];

    if (!peer_card_word(at, "0123456789", digits, sizeof digits))
        return false;
    *ret = 0;
    for (const char *digit = digits; *digit; digit++)
        if (mul_overflows(*ret, 10, ret) || add_overflows(*ret, (uint64_t)(*digit - '0'), ret))
            return false;
    return true;
}

bool peer_card_read(struct dl_span text, struct peer_card *ret)
{
    char copy[PEER_CARD_MAX];
    const char *at = copy;
    uint64_t version;

    *ret = (struct peer_card){0};
    if (text.len == 0 || text.len >= sizeof copy)
        return false;
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    return strlen(copy) == text.len && peer_card_number(&at, &version) && version == 1 &&
           peer_card_word(&at, PEER_HOST, ret->address, sizeof ret->address) &&
           peer_card_number(&at, &ret->uid) && peer_card_number(&at, &ret->room) &&
           peer_card_word(&at, PEER_HEX, ret->token, sizeof ret->token) &&
           strlen(ret->token) == sizeof ret->token - 1 && *at == '\0' && at[-1] != ' ';
}

void peer_card_write(const struct peer_card *card, char ret[static PEER_CARD_MAX])
{
    snprintf(ret, PEER_CARD_MAX, "1 %s %" PRIu64 " %" PRIu64 " %s", card->address, card->uid,
             card->room, card->token);
}
