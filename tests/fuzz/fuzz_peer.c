/*
 * What nodes say to each other of blocks of remote files: requests, answers, and the cards by which
 * they find each other. Whatever the bytes are: they are refused, or what comes out keeps within
 * its bounds, and written again is read as the same.
 *
 * Input: the first byte says what the rest is.
 */
#include "tests/fuzz/fuzz.h"

#include "daemon/remote/peer_wire.h"
#include "proto/peer_card.h"
#include "proto/remote_wire.h"

#include <errno.h>
#include <stdio.h>

static char *text_of(const uint8_t *data, size_t len)
{
    char *text = malloc(len + 1);

    FUZZ_ASSERT(text);
    if (len > 0)
        memcpy(text, data, len);
    text[len] = '\0';
    return text;
}

static void check_object(uint64_t bytes, int64_t modified, const char *etag)
{
    FUZZ_ASSERT(bytes <= INT64_MAX && modified >= -1 && strlen(etag) < REMOTE_ETAG_MAX);
}

/* The same request again, by the target that is written of it. */
static void check_again(const struct peer_request *request)
{
    const struct peer_ask *ask = &request->ask;
    char *target = peer_target(ask), *head = NULL;
    struct peer_request again;
    bool puts = peer_brings(ask->method);

    FUZZ_ASSERT(target);
    FUZZ_ASSERT(!strpbrk(target, " \r\n\""));
    FUZZ_ASSERT(asprintf(&head, "%s %s HTTP/1.1\r\n%s%s%sContent-Length: %llu\r\n\r\n",
                         peer_method_name(ask->method), target, puts ? "Dloader-Sum: " : "",
                         request->sum, puts ? "\r\n" : "",
                         (unsigned long long)request->length) > 0);
    FUZZ_ASSERT(peer_request_read(head, &again) == 0);
    FUZZ_ASSERT(again.ask.first == ask->first && again.ask.n == ask->n &&
                again.ask.bytes == ask->bytes && again.ask.modified == ask->modified &&
                strcmp(again.ask.etag, ask->etag) == 0 && strcmp(again.ask.where, ask->where) == 0);
    free(again.ask.where);
    free(head);
    free(target);
}

static void read_request(const uint8_t *data, size_t len)
{
    char *head = text_of(data, len);
    struct peer_request request;
    int r = peer_request_read(head, &request);

    FUZZ_ASSERT(r == 0 || r == -EBADMSG);
    FUZZ_ASSERT(r == 0 || !request.ask.where);
    if (r == 0) {
        const struct peer_ask *ask = &request.ask;

        check_object(ask->bytes, ask->modified, ask->etag);
        FUZZ_ASSERT(ask->n > 0 && ask->n <= PEER_BLOCKS_MAX);
        FUZZ_ASSERT(ask->first / PEER_BLOCKS_MAX == (ask->first + ask->n - 1) / PEER_BLOCKS_MAX);
        FUZZ_ASSERT(request.length <= PEER_BLOCKS_MAX * (uint64_t)REMOTE_BLOCK_BYTES);
        FUZZ_ASSERT(*ask->where && strlen(ask->where) < PEER_WHERE_MAX);
        bool puts = peer_brings(ask->method);
        FUZZ_ASSERT(puts == (request.length > 0) && puts == (*request.sum != '\0'));
        check_again(&request);
    }
    free(request.ask.where);
    free(head);
}

static void read_answer(const uint8_t *data, size_t len)
{
    struct peer_answer answer, again;
    char line[PEER_LINE_MAX], whole[2 * PEER_LINE_MAX];

    if (!peer_answer_read((struct dl_span){data, len}, &answer))
        return;
    FUZZ_ASSERT(answer.n <= PEER_BLOCKS_MAX && answer.modified >= -1);
    FUZZ_ASSERT(strlen(answer.proof) == PEER_PROOF_MAX - 1);
    peer_answer_write(&answer, line);
    snprintf(whole, sizeof whole, "%s %s", line, answer.proof);
    FUZZ_ASSERT(peer_answer_read(span_str(whole), &again));
    FUZZ_ASSERT(again.n == answer.n && again.wanted == answer.wanted &&
                again.bytes == answer.bytes && again.modified == answer.modified &&
                strcmp(again.etag, answer.etag) == 0 && strcmp(again.proof, answer.proof) == 0);
}

static void read_card(const uint8_t *data, size_t len)
{
    struct peer_card card, again;
    char text[PEER_CARD_MAX];

    if (!peer_card_read((struct dl_span){data, len}, &card))
        return;
    FUZZ_ASSERT(*card.address && !strpbrk(card.address, " \n/@"));
    FUZZ_ASSERT(strlen(card.token) == PEER_TOKEN_MAX - 1);
    peer_card_write(&card, text);
    FUZZ_ASSERT(!strchr(text, '\n') && peer_card_read(span_str(text), &again));
    FUZZ_ASSERT(strcmp(again.address, card.address) == 0 && again.uid == card.uid &&
                again.room == card.room && strcmp(again.token, card.token) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    switch (data[0] % 3) {
    case 0:
        read_request(data + 1, size - 1);
        break;
    case 1:
        read_answer(data + 1, size - 1);
        break;
    default:
        read_card(data + 1, size - 1);
    }
    return 0;
}
