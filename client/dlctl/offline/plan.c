/*
 * `dlctl plan`: the sample indices of each step, and what it shares with `check` (offline.h).
 *
 * Lines are formatted by hand into a fixed buffer and written as it fills: an epoch of any length
 * streams in constant memory.
 */
#include "daemon/plan/plan.h"
#include "client/dlctl/offline/offline.h"
#include "client/dlctl/report.h"
#include "client/dlctl/verbs.h"
#include "daemon/data/dataset.h"
#include "proto/yaml.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <sys/random.h>

enum { OUT_BYTES = 1 << 16, U64_DIGITS = 20 };

/* ---- the spec and its plan ------------------------------------------------------------------ */

static int read_text(const char *path, char **ret_text, size_t *ret_len, struct dl_error *err)
{
    _cleanup_free_ char *text = malloc(DL_MAX_SPEC_TEXT + 1);
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    size_t len = 0;
    ssize_t n = 0;

    if (fd < 0)
        return dl_error_set(err, errno, path, "%s", strerror(errno));
    if (!text)
        return dl_error_set(err, ENOMEM, path, "%s", strerror(ENOMEM));
    do {
        n = read(fd, text + len, DL_MAX_SPEC_TEXT + 1 - len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return dl_error_set(err, errno, path, "%s", strerror(errno));
        len += (size_t)n;
    } while (n != 0 && len <= DL_MAX_SPEC_TEXT);
    if (len > DL_MAX_SPEC_TEXT)
        return dl_error_set(err, EFBIG, path, "a loader spec has at most %" PRIu64 " bytes",
                            DL_MAX_SPEC_TEXT);
    *ret_text = steal_ptr(text);
    *ret_len = len;
    return 0;
}

/* The absolute directory of `path`, without links. */
static int directory_of(const char *path, char ret[PATH_MAX], struct dl_error *err)
{
    _cleanup_free_ char *copy = strdup(path);

    if (!copy || !realpath(dirname(copy), ret)) {
        int code = copy ? errno : ENOMEM;
        return dl_error_set(err, code, path, "its directory: %s", strerror(code));
    }
    return 0;
}

static int parse_spec(const char *path, struct dl_spec *ret, struct dl_error *err)
{
    _cleanup_(value_deinit)
    struct value value = {0};
    _cleanup_free_ char *text = NULL;
    char base[PATH_MAX];
    size_t len = 0;
    int r;

    r = read_text(path, &text, &len, err);
    if (r == 0)
        r = directory_of(path, base, err);
    if (r == 0)
        r = yaml_parse(text, len, path, &value, err);
    return r < 0 ? r : spec_from_value(&value, base, ret, err);
}

static char root_dir[] = "/";
static char *everywhere[] = {root_dir};
const struct data_env offline_env = {.plugins = everywhere, .n_plugins = 1};

int offline_spec(const struct options *o, struct dl_spec *ret, bool *ret_drawn,
                 struct dl_error *err)
{
    struct dl_spec spec = {0};
    bool draw;
    int r;

    r = parse_spec(o->operand, &spec, err);
    if (r < 0)
        return r;
    draw = !spec.has_seed;
    if (draw) {
        if (getrandom(&spec.seed, sizeof spec.seed, 0) != sizeof spec.seed) {
            spec_deinit(&spec);
            return dl_error_set(err, EIO, "seed", "cannot be drawn; give one in the spec");
        }
        spec.seed &= INT64_MAX; /* fits any JSON reader's integer */
        spec.has_seed = true;
    }
    *ret = spec;
    *ret_drawn = draw;
    return 0;
}

int offline_plan(const struct options *o, const struct dl_spec *spec, uint64_t length,
                 uint64_t epoch, struct plan **ret, struct dl_error *err)
{
    struct plan_params params = plan_params_of(spec, length);
    int r = spec_check_length(spec, length, err);

    if (r < 0)
        return r;
    params.epoch = epoch;
    params.world = o->world;
    r = plan_new(&params, ret);
    if (r == -ENOMEM && spec->order == ORDER_TORCH)
        return dl_error_set(err, ENOMEM, "sampler.order",
                            "torch takes memory for each sample of an epoch, more than there is; "
                            "write order: native");
    if (r < 0)
        return dl_error_set(err, -r, "dataset",
                            "%" PRIu64 " samples for %" PRIu64 " ranks cannot be planned: %s",
                            length, o->world, strerror(-r));
    return 0;
}

/* ---- lines ---------------------------------------------------------------------------------- */

struct out {
    size_t len;
    int error; /* negative errno of the first write that failed; later output is dropped */
    char data[OUT_BYTES];
};

static void out_flush(struct out *out)
{
    size_t at = 0;

    while (at < out->len && out->error == 0) {
        ssize_t n = write(STDOUT_FILENO, out->data + at, out->len - at);
        if (n >= 0)
            at += (size_t)n;
        else if (errno != EINTR)
            out->error = -errno;
    }
    out->len = 0;
}

/* Makes room for a short text or one number. */
static inline char *out_room(struct out *out, size_t len)
{
    assert(len <= OUT_BYTES);
    if (out->len + len > OUT_BYTES)
        out_flush(out);
    return out->data + out->len;
}

static inline void out_text(struct out *out, const char *text)
{
    size_t len = strlen(text);

    memcpy(out_room(out, len), text, len);
    out->len += len;
}

static inline void out_u64(struct out *out, uint64_t n)
{
    char digits[U64_DIGITS], *end = digits + U64_DIGITS, *p = end;

    do {
        *--p = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    memcpy(out_room(out, U64_DIGITS), p, (size_t)(end - p));
    out->len += (size_t)(end - p);
}

static void out_step(struct out *out, const struct options *o, uint64_t step, uint64_t rank,
                     const uint64_t *indices, size_t n)
{
    const char *gap = o->json ? "," : " ";

    out_text(out, o->json ? "{\"step\":" : "step ");
    out_u64(out, step);
    if (o->json || o->rank_all) {
        out_text(out, o->json ? ",\"rank\":" : " rank ");
        out_u64(out, rank);
    }
    out_text(out, o->json ? ",\"indices\":[" : ": ");
    for (size_t i = 0; i < n; i++) {
        if (i)
            out_text(out, gap);
        out_u64(out, indices[i]);
    }
    out_text(out, o->json ? "]}\n" : "\n");
}

/* Steps of the rank with the most of them, among those asked for. */
static uint64_t most_steps(const struct options *o, const struct plan *plan)
{
    uint64_t most = 0;

    if (!o->rank_all)
        return plan_steps(plan, o->rank);
    for (uint64_t rank = 0; rank < o->world; rank++)
        most = max_u64(most, plan_steps(plan, rank));
    return most;
}

static int write_steps(const struct options *o, struct plan *plan, uint64_t batch_size)
{
    _cleanup_free_ uint64_t *indices = calloc(max_u64(batch_size, 1), sizeof *indices);
    _cleanup_free_ struct out *out = malloc(sizeof *out);
    uint64_t end = most_steps(o, plan);
    uint64_t first = o->rank_all ? 0 : o->rank;
    uint64_t last = o->rank_all ? o->world - 1 : o->rank;

    if (!indices || !out)
        return -ENOMEM;
    out->len = 0;
    out->error = 0;
    if (end > o->from && end - o->from > o->steps)
        end = o->from + o->steps;
    for (uint64_t step = o->from; step < end && out->error == 0; step++) {
        for (uint64_t rank = first; rank <= last; rank++) {
            if (step < plan_steps(plan, rank))
                out_step(out, o, step, rank, indices, plan_step(plan, rank, step, indices));
        }
    }
    out_flush(out);
    return out->error;
}

static int dataset_length(const struct options *o, const struct dl_spec *spec, uint64_t *ret,
                          struct dl_error *err)
{
    struct dataset *ds = NULL;
    int r;

    if (o->has_length || (spec->dataset.kind == DATASET_RANGE && !spec->dataset.iterable)) {
        *ret = o->has_length ? o->length : spec->dataset.length;
        return 0;
    }
    r = dataset_open(&spec->dataset, &offline_env, &ds, err);
    if (r < 0)
        return r;
    if (dataset_is_iterable(ds))
        r = dl_error_set(err, EINVAL, "dataset.kind",
                         "an iterable dataset has no plan: its samples come in its own order");
    else if (spec->sampler == SAMPLER_CLIENT)
        r = dl_error_set(err, EINVAL, "sampler.kind", "client: only a client knows this order");
    *ret = ds->length;
    dataset_close(ds);
    return r;
}

static void plan_freep(struct plan **plan)
{
    *plan = plan_free(*plan);
}

int verb_plan(const struct options *o)
{
    _cleanup_(spec_deinit)
    struct dl_spec spec = {0};
    _cleanup_(plan_freep)
    struct plan *plan = NULL;
    struct dl_error err = {0};
    uint64_t length = 0, steps;
    bool drawn = false;
    int r;

    r = offline_spec(o, &spec, &drawn, &err);
    if (r == 0)
        r = dataset_length(o, &spec, &length, &err);
    if (r == 0)
        r = offline_plan(o, &spec, length, o->epoch, &plan, &err);
    if (r < 0)
        return report_error(o, &err);
    steps = most_steps(o, plan);
    if (o->from > steps) {
        dl_error_set(&err, EINVAL, "--from",
                     "%" PRIu64 " is past the end: this epoch has %" PRIu64 " steps", o->from,
                     steps);
        report_error(o, &err);
        return STATUS_USAGE;
    }
    if (drawn && spec.order != 0)
        report_seed(o, spec.seed);
    r = write_steps(o, plan, spec.batch_size);
    return r < 0 ? report_errno(o, r, "standard output") : STATUS_DONE;
}
