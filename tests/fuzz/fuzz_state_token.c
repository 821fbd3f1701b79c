/*
 * State tokens: whatever the bytes are, they are refused in words, or a token that is written as
 * the same bytes again and has a place for any number of ranks, or a reason why not.
 *
 * Input: a token without its sum, which is made here: a fuzzer would never find one. The bytes are
 * also read as they are; and as a list of what datasets said (dataset_state.h), with an end made
 * here.
 */
#include "proto/dataset_state.h"
#include "proto/state_token.h"

#include "tests/fuzz/fuzz.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static void use(const struct state_token *token)
{
    static const uint64_t worlds[] = {1, 3, 1048576};
    char json[STATE_JSON_MAX];
    struct state_place place;
    struct dl_error err = {0};

    FUZZ_ASSERT(state_token_json(token, json, sizeof json) < sizeof json);
    FUZZ_ASSERT(state_token_check(token, &token->identity, &err) == 0);
    for (size_t i = 0; i < ARRAY_SIZE(worlds); i++) {
        int r = state_token_place(token, worlds[i], &place, &err);

        FUZZ_ASSERT(r == 0 || (err.code == -r && err.message[0]));
        FUZZ_ASSERT(r < 0 || (place.epoch == token->epoch && place.before.n <= DL_MAX_HISTORY));
    }
}

static void read_one(const uint8_t *data, size_t len)
{
    uint8_t again[STATE_TOKEN_MAX];
    struct state_token token;
    struct dl_error err = {0};
    size_t again_len;
    int r = state_token_read(data, len, &token, &err);

    if (r < 0) {
        FUZZ_ASSERT(err.code == -r && err.message[0]);
        return;
    }
    FUZZ_ASSERT(state_token_write(&token, again, &again_len) == 0);
    FUZZ_ASSERT(again_len == len && memcmp(again, data, len) == 0);
    use(&token);
}

/* Whatever is in a list lies in it, and is written as it was read. */
static void read_list(const uint8_t *data, size_t len)
{
    struct dl_buffer whole = {0};
    uint8_t head[DATASET_STATE_HEAD_BYTES];
    struct dl_span record;
    struct dataset_state state;
    uint32_t worker;
    size_t at = 0;

    if (buffer_append(&whole, data, len) < 0 || dataset_state_list_end(&whole) < 0)
        abort();
    struct dl_span rest = {whole.data, whole.len}, list = dataset_state_split(&rest);
    FUZZ_ASSERT(rest.len == 0 && list.len == whole.len);
    while (dataset_state_list_next(list, &at, &worker, &record) > 0) {
        FUZZ_ASSERT(at <= len && dataset_state_read(record, &state));
        dataset_state_write_head(&state, head);
        FUZZ_ASSERT(memcmp(head, record.data, sizeof head) == 0);
        FUZZ_ASSERT(state.state.data + state.state.len == whole.data + at);
    }
    buffer_deinit(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint8_t whole[2 * STATE_TOKEN_MAX] = {0};
    XXH64_canonical_t sum;

    read_one(data, len);
    read_list(data, len);
    if (len > STATE_TOKEN_MAX)
        return 0;
    XXH64_canonicalFromHash(&sum, XXH3_64bits(data, len));
    if (len > 0)
        memcpy(whole, data, len);
    whole[len] = 0xcf;
    memcpy(whole + len + 1, sum.digest, sizeof sum.digest);
    read_one(whole, len + 1 + sizeof sum.digest);
    return 0;
}
