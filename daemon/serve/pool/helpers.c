#include "daemon/serve/pool/helpers.h"

#include "proto/limits.h"

uint32_t helpers_count(const struct config *config, const struct dl_spec *spec,
                       const struct python_run *python, bool foreign, const char **ret_why)
{
    *ret_why = NULL;
    if ((config->helpers.addresses.n == 0 && !*config->helpers.run) || spec->workers == 0 ||
        spec->helpers == 0)
        return 0;
    if (foreign)
        *ret_why = "it is another user's, whose rights helpers do not have";
    else if (python->host_number && !spec_sent(spec))
        *ret_why =
            "its dataset is an object of the trainer's own process, which other machines do "
            "not have; DataLoader(helpers=n) sends it, and dataset.object names one that they "
            "can import";
    else if (python_in_turn(spec) && !spec_sent(spec))
        *ret_why = "worker w makes steps w, w + N, w + 2 N of its N, as PyTorch's do, so that what "
                   "Python keeps between samples is the same; leave out collate.kind: python, or "
                   "write workers: {in_order: false}";
    else if (spec_is_remote(&spec->dataset) && python_runs(python))
        *ret_why = "its files are behind URLs, which Python's workers at helpers do not read";
    uint64_t most = config->helpers.count ? config->helpers.count : HELPERS_MOST;
    if (!config->helpers.count && spec->helpers < DL_MAX_WORKERS)
        most = spec->helpers;
    return *ret_why
               ? 0
               : (uint32_t)min_u64(min_u64(spec->helpers, most), DL_MAX_WORKERS - spec->workers);
}

bool helpers_are_sized(const struct config *config, const struct dl_spec *spec)
{
    return !config->helpers.count && spec->helpers == DL_MAX_WORKERS;
}

const char *helpers_address(const struct config *config, const struct config_dirs *found,
                            uint32_t helper, uint64_t attempt)
{
    const struct config_dirs *listed = &config->helpers.addresses;
    uint64_t n = (uint64_t)listed->n + found->n;
    /* Those that one helper has lost go to different ones. */
    uint64_t apart = attempt > 0 && n > 1 ? helper / n % (n - 1) : 0;
    uint64_t i = n > 0 ? (helper + attempt + apart) % n : 0;

    return n == 0 ? NULL : i < listed->n ? listed->paths[i] : found->paths[i - listed->n];
}
