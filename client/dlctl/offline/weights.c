/* `dlctl weights`: new weights of samples, from a .npy file, for a sampler that draws by them. */
#include "client/dlctl/ask.h"
#include "client/dlctl/offline/offline.h"
#include "client/dlctl/render.h"
#include "client/dlctl/report.h"
#include "daemon/data/kinds/arrays/array.h"
#include "proto/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static int weights_convert(const char *path, const struct array *array, double *ret,
                           struct dl_error *err)
{
    bool wide = array->dtype == DL_FLOAT64;

    if (array->ndim != 0 || (!wide && array->dtype != DL_FLOAT32))
        return dl_error_set(
            err, EINVAL, path,
            "is not an array of float64 or float32 with one axis, a weight for each "
            "sample");
    if (wide) {
        memcpy(ret, array->rows, array->count * sizeof *ret);
        return 0;
    }
    for (uint64_t i = 0; i < array->count; i++) {
        float weight;

        memcpy(&weight, array->rows + i * sizeof weight, sizeof weight);
        ret[i] = (double)weight;
    }
    return 0;
}

static int weights_read(const char *path, double **ret, uint64_t *ret_n, struct dl_error *err)
{
    struct array array = {0};
    int r = array_open_npy(path, &offline_env, &array, err);

    if (r < 0)
        return r;
    double *weights = malloc((array.count + 1) * sizeof *weights);
    r = weights ? weights_convert(path, &array, weights, err)
                : dl_error_set(err, ENOMEM, path, "%s", strerror(ENOMEM));
    *ret_n = array.count;
    array_deinit(&array);
    if (r < 0)
        free(weights);
    else
        *ret = weights;
    return r;
}

static void weights_print_text(const struct value *view)
{
    const struct value *loader = value_get(view, "loader"), *sum = value_get(view, "weights");

    printf("%s: from step %" PRIu64 " of epoch %" PRIu64 " on: %s, of %" PRIu64 " samples\n",
           loader && loader->type == VALUE_STRING ? loader->string : "",
           value_count(value_get(view, "step")), value_count(value_get(view, "epoch")),
           sum && sum->type == VALUE_STRING ? sum->string : "",
           value_count(value_get(view, "samples")));
}

int verb_weights(const struct options *o)
{
    _cleanup_(ask_end) struct dl_client *client = NULL;
    _cleanup_free_ double *weights = NULL;
    struct dl_error err = {0};
    const void *data = NULL;
    size_t len = 0;
    uint64_t n = 0;

    if (weights_read(o->more[0], &weights, &n, &err) < 0)
        return report_error(o, &err);
    int r = ask_connect(o, &client);
    if (r == 0)
        r = dl_client_weights(client, o->operand, weights, n, o->at_epoch, o->at, &data, &len);
    return ask_show(o, client, r, (struct dl_span){data, len}, weights_print_text);
}
