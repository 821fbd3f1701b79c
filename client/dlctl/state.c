/* `dlctl state`, and the files with states that `dlctl run` reads and writes. */
#include "client/dlctl/state.h"

#include "client/dlctl/options.h"
#include "client/dlctl/report.h"
#include "proto/common/fd_io.h"
#include "proto/dataset_state.h"
#include "proto/mix_changes.h"
#include "proto/state_token.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

/* A token, and what the dataset of as many workers as there can be says. */
enum {
    FILE_MAX = DL_STATE_MAX + MIX_CHANGES_BYTES + 16 + 256 * (DATASET_STATE_MAX + 16) + 16,
    FILE_STEP = 64 * 1024
};

/* ---- files ---------------------------------------------------------------------------------- */

void state_file_deinit(struct state_file *file)
{
    free(file->bytes);
    *file = (struct state_file){0};
}

/* Up to FILE_STEP further bytes: 1; 0: there are none; or a negative errno. */
static int state_read_more(int fd, struct state_file *file)
{
    uint8_t *grown = realloc(file->bytes, file->len + FILE_STEP);

    if (!grown)
        return -ENOMEM;
    file->bytes = grown;
    int64_t n = fd_read_all(fd, grown + file->len, FILE_STEP);
    file->len += n > 0 ? (size_t)n : 0;
    return n < 0 ? (int)n : n > 0;
}

int state_file_read(const char *path, struct state_file *ret, struct dl_error *err)
{
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    _cleanup_(state_file_deinit) struct state_file file = {0};
    int r;

    if (fd < 0)
        return dl_error_set(err, errno, path, "%s", strerror(errno));
    do {
        r = state_read_more(fd, &file);
    } while (r > 0 && file.len <= FILE_MAX);
    if (r < 0)
        return dl_error_set(err, -r, path, "%s", strerror(-r));
    if (file.len == 0 || file.len > FILE_MAX)
        return dl_error_set(err, EINVAL, path, "is not a state of 1 to %d bytes", FILE_MAX);
    state_file_deinit(ret);
    *ret = file;
    file = (struct state_file){0};
    return 0;
}

int state_file_write(const char *path, const struct state_file *state, struct dl_error *err)
{
    char part[PATH_MAX];
    int n = snprintf(part, sizeof part, "%s.part", path);

    if (n < 0 || (size_t)n >= sizeof part)
        return dl_error_set(err, ENAMETOOLONG, path, "%s", strerror(ENAMETOOLONG));
    _cleanup_fd_ int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
    if (fd < 0)
        return dl_error_set(err, errno, part, "%s", strerror(errno));
    int r = fd_write_all(fd, state->bytes, state->len);
    if (r == 0 && fsync(fd) < 0 && errno != EINVAL) /* of what is no file: nothing to do */
        r = -errno;
    if (r == 0 && rename(part, path) < 0)
        r = -errno;
    if (r == 0)
        return 0;
    (void)unlink(part);
    return dl_error_set(err, -r, path, "%s", strerror(-r));
}

/* ---- telling -------------------------------------------------------------------------------- */

static void state_print_before(const struct history *before)
{
    printf("before   ");
    for (uint32_t i = 0; i < before->n; i++)
        printf("%s%" PRIu64 " steps of %" PRIu64 " ranks", i > 0 ? ", " : " ",
               before->stretches[i].steps, before->stretches[i].world);
    printf("%s\n", before->n > 0 ? "" : " nothing");
}

static void state_print_state(const struct state_token *token)
{
    const struct state_identity *identity = &token->identity;

    printf("epoch     %" PRIu64 "\nsteps     %" PRIu64 " of each of %" PRIu64 " ranks\n",
           token->epoch, token->steps, token->world);
    if (token->has_rank)
        printf("rank      %" PRIu64 ", to which %u batches came before one that was not ready\n",
               token->rank, passed_count(&token->passed));
    state_print_before(&token->before);
    printf("order     %s, seed %" PRIu64 "\n", state_order_name(identity->order), identity->seed);
    printf("dataset   %016" PRIx64, identity->dataset);
    if (identity->length != UINT64_MAX)
        printf(", %" PRIu64 " samples", identity->length);
    if (identity->workers > 0)
        printf(", iterable, read by %" PRIu64 " workers", identity->workers);
    printf("\nspec     ");
    for (unsigned i = 0; i < STATE_PARTS; i++)
        printf(" %s %016" PRIx64, state_part_name((enum state_part)i), identity->parts[i]);
    printf("\n");
}

/* What the dataset itself says, of how many workers. */
static void state_print_dataset_states(struct dl_span list)
{
    struct dl_span record;
    uint32_t worker, n = 0;
    size_t at = 0;

    while (dataset_state_list_next(list, &at, &worker, &record) > 0)
        n++;
    if (list.len > 0)
        printf("carried   the dataset's own states of %u workers, %zu bytes\n", n, list.len);
}

static void state_print_changes(const struct mix_changes *changes)
{
    for (uint32_t i = 0; changes && changes->of_samples && i < changes->n_changes; i++)
        printf("weights   from sample %" PRIu64 " on: %016" PRIx64 " of %" PRIu32 " samples\n",
               changes->items[i].position, changes->items[i].sum, changes->n);
    for (uint32_t i = 0; changes && !changes->of_samples && i < changes->n_changes; i++) {
        uint64_t from = changes->items[i].position;

        if (mix_is_ahead(from))
            printf("weights   from row %" PRIu32 " of epoch %" PRIu64 " on:", mix_ahead_row(from),
                   mix_ahead_epoch(from));
        else
            printf("weights   from sample %" PRIu64 " on:", from);
        for (uint32_t child = 0; child < changes->n; child++)
            printf(" %g", changes->items[i].weights[child]);
        printf("\n");
    }
}

int state_split(const char *path, struct dl_span *state, struct dl_span *ret_list,
                struct mix_changes **ret_changes, struct state_token *ret, struct dl_error *err)
{
    *ret_list = dataset_state_split(state);
    struct dl_span changes = mix_changes_split(state);
    int r = state_token_read(state->data, state->len, ret, err);

    if (r < 0)
        return dl_error_set(err, err->code, path, "%s", err->message);
    if (ret->changes != (changes.len > 0 ? state_list_sum(changes) : 0))
        return dl_error_set(err, EINVAL, path, "its changed weights are missing or damaged");
    r = mix_changes_read(changes, ret_changes);
    return r < 0 ? dl_error_set(err, -r, path, "its changed weights are invalid: %s", strerror(-r))
                 : 0;
}

int verb_state(const struct options *o)
{
    _cleanup_(mix_changes_unrefp) struct mix_changes *changes = NULL;
    _cleanup_(state_file_deinit) struct state_file file = {0};
    struct state_token token;
    struct dl_error err = {0};
    char json[STATE_JSON_MAX];
    int r = state_file_read(o->operand, &file, &err);

    struct dl_span state = {file.bytes, file.len}, list = {0};
    if (r == 0)
        r = state_split(o->operand, &state, &list, &changes, &token, &err);
    if (r < 0)
        return report_error(o, &err);
    if (o->json) {
        state_token_json(&token, json, sizeof json);
        printf("%s\n", json);
    } else {
        state_print_state(&token);
        state_print_changes(changes);
        state_print_dataset_states(list);
    }
    return STATUS_DONE;
}
