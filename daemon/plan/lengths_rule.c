#include "daemon/plan/lengths_rule.h"

#include "daemon/plan/plan.h"

#include <errno.h>
#include <inttypes.h>

int lengths_check_count(uint64_t n, struct dl_error *err)
{
    if (n <= UINT32_MAX)
        return 0;
    return dl_error_set(err, EFBIG, "batch.tokens",
                        "batches of tokens are planned for at most %" PRIu32
                        " samples, and the dataset has %" PRIu64 "; take a subset or a split of it",
                        UINT32_MAX, n);
}

struct lengths_rule lengths_rule_of(const struct dl_spec *spec)
{
    return (struct lengths_rule){.tokens = plan_params_of(spec, 0).tokens,
                                 .overlong = spec->batch.overlong};
}

uint32_t lengths_bin_of(uint32_t length)
{
    if (length <= 2)
        return length;
    uint32_t doubling = 31 - (uint32_t)__builtin_clz(length - 1); /* above 2^doubling */
    bool second = length > 3 * (1ULL << doubling) / 2;

    return 2 * doubling + 1 + second;
}

uint64_t lengths_bin_upper(uint32_t bin)
{
    if (bin <= 2)
        return bin;
    return bin % 2 == 1 ? 3 * (1ULL << (bin / 2)) / 2 : 1ULL << (bin / 2);
}

int lengths_check(const struct lengths_rule *rule, uint64_t first, const uint32_t *lengths,
                  uint64_t n, struct lengths_found *found, struct dl_error *err)
{
    struct plan_tokens tokens = rule->tokens;
    struct plan_lengths look;

    tokens.lengths = lengths;
    plan_look_at_lengths(&tokens, n, &look);
    found->overlong += look.overlong;
    found->empty += look.empty;
    for (uint64_t i = 0; i < n; i++)
        found->bins[lengths_bin_of(lengths[i])]++;
    if (rule->overlong != OVERLONG_ERROR || look.overlong == 0)
        return 0;
    return dl_error_set(err, EINVAL, "batch.overlong",
                        "sample %" PRIu64 " has %" PRIu32 " tokens, and a batch takes samples of "
                        "at most %" PRIu32 " (batch.max_length, batch.tokens); write overlong: "
                        "drop or truncate",
                        first + look.first_overlong, lengths[look.first_overlong],
                        plan_tokens_limit(&tokens));
}
