/* Requests of nodes for blocks, their answers, proofs and cards: what is read of them, and what is
 * refused. */
#include "tests/lib/harness.h"

#include "daemon/remote/peer_wire.h"
#include "proto/peer_card.h"

#include <errno.h>
#include <stdio.h>

#define SUM "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static int read_request(const char *text, struct peer_request *ret)
{
    char *head = strdup(text);
    int r = peer_request_read(head, ret);

    ret->target = NULL;
    free(head);
    return r;
}

TEST(test_requests)
{
    static const struct {
        const char *text;
        uint64_t first, n, bytes;
        int64_t modified;
        const char *etag, *where;
        uint64_t length;
    } cases[] = {
        {"GET /blocks/1/3/2/1048577/17/%22a%22/b%2Fc HTTP/1.1\r\n\r\n", 3, 2, 1048577, 17, "\"a\"",
         "b/c", 0},
        {"GET /blocks/1/0/1/0/-/-/w HTTP/1.1\r\nAuthorization: Peer " SUM "\r\n\r\n", 0, 1, 0, -1,
         "", "w", 0},
        {"LOOK /blocks/1/0/1/0/-/-/w HTTP/1.1\r\n\r\n", 0, 1, 0, -1, "", "w", 0},
        {"PUT /blocks/1/4/1/1048577/-/e/w HTTP/1.1\r\ncontent-length: 1\r\nDLOADER-SUM:" SUM
         "\r\n\r\n",
         4, 1, 1048577, -1, "e", "w", 1},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct peer_request request;

        assert_int_equal(read_request(cases[i].text, &request), 0);
        assert_int_equal(request.ask.first, cases[i].first);
        assert_int_equal(request.ask.n, cases[i].n);
        assert_int_equal(request.ask.bytes, cases[i].bytes);
        assert_int_equal(request.ask.modified, cases[i].modified);
        assert_string_equal(request.ask.etag, cases[i].etag);
        assert_string_equal(request.ask.where, cases[i].where);
        assert_int_equal(request.length, cases[i].length);
        free(request.ask.where);
    }
}

TEST(test_bad_requests)
{
    static const char *const cases[] = {
        "",
        "GET",
        "GET /blocks/1/0/1/0/-/-/w HTTP/1.1\r\n",             /* no empty line */
        "GET /blocks/1/0/1/0/-/-/w HTTP/1.0\r\n\r\n",         /* another version */
        "POKE /blocks/1/0/1/0/-/-/w HTTP/1.1\r\n\r\n",        /* method */
        "GET /blocks/2/0/1/0/-/-/w HTTP/1.1\r\n\r\n",         /* and format */
        "GET /blocks/1/0/0/0/-/-/w HTTP/1.1\r\n\r\n",         /* no blocks */
        "GET /blocks/1/0/17/0/-/-/w HTTP/1.1\r\n\r\n",        /* too many */
        "GET /blocks/1/15/2/90000000/-/e/w HTTP/1.1\r\n\r\n", /* of two groups */
        "GET /blocks/1/4/1/1048576/-/e/w HTTP/1.1\r\n\r\n",   /* behind its end */
        "GET /blocks/1/0/1/5/-/-/w HTTP/1.1\r\n\r\n",         /* known, but for its ETag */
        "GET /blocks/1/0/1/0/-/e/w HTTP/1.1\r\n\r\n",         /* or its size */
        "GET /blocks/1/0/1/0/x/-/w HTTP/1.1\r\n\r\n",
        "GET /blocks/1/0/1/0/-/%0a/w HTTP/1.1\r\n\r\n",
        "GET /blocks/1/0/1/0/-/-/ HTTP/1.1\r\n\r\n",
        "GET /blocks/1/0/1/0/-/-/%00 HTTP/1.1\r\n\r\n",
        "GET /blocks/1/18446744073709551616/1/0/-/-/w HTTP/1.1\r\n\r\n",
        "GET /blocks/1/18446744073709551615/1/0/-/-/w HTTP/1.1\r\n\r\n",
        "GET /blocks/1/0/1/0/-/-/w HTTP/1.1\r\nno header\r\n\r\n",
        "GET /blocks/1/0/1/0/-/-/w HTTP/1.1\r\nContent-Length: 1\r\n\r\n",
        "GET /blocks/1/0/1/0/-/-/w HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET /blocks/1/0/1/0/-/-/w HTTP/1.1\r\nAuthorization: Bearer " SUM "\r\n\r\n",
        "GET /blocks/1/0/1/0/-/-/w HTTP/1.1\r\nAuthorization: Peer 00\r\n\r\n",
        "PUT /blocks/1/0/1/5/-/e/w HTTP/1.1\r\nContent-Length: 5\r\n\r\n", /* no sum */
        "POST /blocks/1/0/1/5/-/e/w HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
        "PUT /blocks/1/0/1/5/-/e/w HTTP/1.1\r\nContent-Length: 4\r\nDloader-Sum: " SUM "\r\n\r\n",
        "PUT /blocks/1/0/1/0/-/-/w HTTP/1.1\r\nContent-Length: 0\r\nDloader-Sum: " SUM "\r\n\r\n",
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct peer_request request;

        if (read_request(cases[i], &request) != -EBADMSG)
            fail_msg("taken: %s", cases[i]);
        assert_null(request.ask.where);
    }
}

TEST(test_target)
{
    struct peer_ask ask = {.first = 16,
                           .n = 16,
                           .bytes = 90000000,
                           .modified = -1,
                           .etag = "\"a b\"",
                           .where = "h s3://b/ä?"};
    char *target = peer_target(&ask), *head = NULL, *where = calloc(1, PEER_TARGET_MAX + 1);
    struct peer_request request;

    assert_string_equal(target,
                        "/blocks/1/16/16/90000000/-/%22a%20b%22/h%20s3%3A%2F%2Fb%2F%C3%A4%3F");
    assert_true(asprintf(&head, "GET %s HTTP/1.1\r\n\r\n", target) > 0);
    assert_int_equal(read_request(head, &request), 0);
    assert_string_equal(request.ask.where, ask.where);
    assert_string_equal(request.ask.etag, ask.etag);
    free(request.ask.where);
    free(head);
    free(target);
    ask.where = memset(where, 'x', PEER_TARGET_MAX);
    assert_null(peer_target(&ask));
    free(where);
}

TEST(test_answers)
{
    static const char *const bad[] = {
        "",
        "1",
        "17 0 5 - e " SUM,
        "1 2 5 - e " SUM,
        "1 0 x - e " SUM,
        "1 0 5 y e " SUM,
        "1 0 5 - e",
        "1 0 5 - e 00",
        "1 0 5 - e " SUM " ",
        "1 0 5 -  " SUM,
    };
    struct peer_answer answer;
    char line[PEER_LINE_MAX];

    assert_true(peer_answer_read(span_str("16 1 0 - - " SUM), &answer));
    assert_true(answer.n == 16 && answer.wanted && answer.bytes == 0 && answer.modified == -1);
    static const char zeroes[] = "16 1 0 - -\0\0 " SUM;
    assert_false(
        peer_answer_read((struct dl_span){(const uint8_t *)zeroes, sizeof zeroes - 1}, &answer));
    assert_false(peer_answer_read(span_str("16 1 0 - %2d " SUM), &answer));
    assert_true(peer_answer_read(span_str("2 0 300000 17 %22e%22 " SUM), &answer));
    assert_string_equal(answer.etag, "\"e\"");
    assert_string_equal(answer.proof, SUM);
    peer_answer_write(&answer, line);
    assert_string_equal(line, "2 0 300000 17 %22e%22");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (peer_answer_read(span_str(bad[i]), &answer))
            fail_msg("taken: %s", bad[i]);
}

/* As Python's hmac says it. */
TEST(test_proofs)
{
    struct sigv4_crypto crypto;
    char proof[PEER_PROOF_MAX], sum[PEER_PROOF_MAX];

    if (!sigv4_crypto_find(&crypto))
        return; /* built without */
    peer_sum(&crypto, (struct dl_span){0}, sum);
    assert_string_equal(sum, SIGV4_EMPTY);
    peer_prove(&crypto, "key", "The quick brown fox jumps over the lazy", "dog", proof);
    assert_string_equal(proof, "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8");
    assert_true(peer_proofs_same(proof, proof));
    assert_false(peer_proofs_same(proof, sum));
    assert_false(peer_proofs_same("", ""));
    assert_false(peer_proofs_same(proof, ""));
}

/* Each part of a request and of its answer is proven: with another one the proof is another. */
TEST(test_what_is_proven)
{
    static const struct peer_answer answers[] = {
        {.n = 1, .bytes = 9, .modified = -1, .etag = "\"e\""},
        {.n = 2, .bytes = 9, .modified = -1, .etag = "\"e\""},
        {.n = 1, .bytes = 8, .modified = -1, .etag = "\"e\""},
        {.n = 1, .bytes = 9, .modified = -1, .etag = "\"f\""},
    };
    struct sigv4_crypto crypto;
    char proofs[11][PEER_PROOF_MAX];
    size_t n = 0;

    if (!sigv4_crypto_find(&crypto))
        return; /* built without */
    peer_prove_ask(&crypto, "key", PEER_GET, "/x", "", proofs[n++]);
    peer_prove_ask(&crypto, "key", PEER_PUT, "/x", "", proofs[n++]);
    peer_prove_ask(&crypto, "key", PEER_POST, "/x", "", proofs[n++]);
    peer_prove_ask(&crypto, "key", PEER_GET, "/y", "", proofs[n++]);
    peer_prove_ask(&crypto, "key", PEER_GET, "/x", "sum", proofs[n++]);
    peer_prove_ask(&crypto, "yek", PEER_GET, "/x", "", proofs[n++]);
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++)
        peer_prove_answer(&crypto, "key", proofs[0], &answers[i], span_str("body"), proofs[n++]);
    peer_prove_answer(&crypto, "key", proofs[1], &answers[0], span_str("body"), proofs[n++]);
    assert_int_equal(n, ARRAY_SIZE(proofs));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            assert_int_equal(peer_proofs_same(proofs[i], proofs[k]), i == k);
}

TEST(test_cards)
{
#define TOKEN "0123456789abcdef0123456789abcdef"
    static const char *const bad[] = {
        "",
        "2 1.2.3.4:5 0 0 " TOKEN,
        "1 host:5 0 0 " TOKEN,
        "1 1.2.3.4:5\n 0 0 " TOKEN,
        "1 1.2.3.4:5 0 0 " TOKEN " ",
        "1 1.2.3.4:5 0 0 " TOKEN "0",
        "1 1.2.3.4:5 0 0",
        "1 1.2.3.4:5 0 18446744073709551616 " TOKEN,
        "1  0 0 " TOKEN,
    };
    struct peer_card card;
    char text[PEER_CARD_MAX];

    assert_true(peer_card_read(span_str("1 [fd00::5]:7070 1000 99 " TOKEN), &card));
    assert_string_equal(card.address, "[fd00::5]:7070");
    assert_true(card.uid == 1000 && card.room == 99);
    peer_card_write(&card, text);
    assert_string_equal(text, "1 [fd00::5]:7070 1000 99 " TOKEN);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (peer_card_read(span_str(bad[i]), &card))
            fail_msg("taken: %s", bad[i]);
}
