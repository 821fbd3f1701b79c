/*
 * A session's changes of the weights of a mixture or of samples, and its client's lists of such
 * changes: MIX, WEIGHTS, CHANGES, CHANGED.
 */
#include "daemon/base/row.h"
#include "daemon/serve/session/session_private.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* ---- datasets by their names ----------------------------------------------------------------- */

/* The last part of a path, without a slash behind it. */
static const char *session_mix_last_part(const char *label)
{
    const char *slash = strrchr(label, '/');

    return slash && slash[1] ? slash + 1 : label;
}

static bool session_mix_is_number(const char *name, uint32_t n, uint32_t *ret)
{
    char text[16];

    for (uint32_t i = 0; i < n; i++) {
        (void)snprintf(text, sizeof text, "%u", i);
        if (strcmp(name, text) == 0) {
            *ret = i;
            return true;
        }
    }
    return false;
}

/* Its number; or what `dlctl mixtures` calls it, whole or the last part of it, if it is the only
 * one. */
static int session_mix_find(const struct spec_dataset *mix, const char *name, uint32_t *ret,
                            struct dl_error *err)
{
    uint32_t found = 0;

    if (session_mix_is_number(name, mix->n_datasets, ret))
        return 0;
    for (uint32_t i = 0; i < mix->n_datasets; i++) {
        const char *label = spec_dataset_label(&mix->datasets[i]);

        if (strcmp(name, label) != 0 && strcmp(name, session_mix_last_part(label)) != 0)
            continue;
        found++;
        *ret = i;
    }
    if (found == 1)
        return 0;
    if (found > 1)
        return dl_error_set(err, EINVAL, name,
                            "is the name of %u datasets; give their numbers, 0 to %u, as in dlctl "
                            "mixtures",
                            found, mix->n_datasets - 1);
    return dl_error_set(err, EINVAL, name,
                        "is not a dataset of the mix; give its number, 0 to %u, or its name, as in "
                        "dlctl mixtures",
                        mix->n_datasets - 1);
}

static int session_mix_lack(const struct spec_dataset *mix, uint32_t i, struct dl_error *err)
{
    return dl_error_set(err, EINVAL, "weights",
                        "there is none for dataset %u (%s); give one for each, 0 to leave it out",
                        i, spec_dataset_label(&mix->datasets[i]));
}

static int session_mix_read_weights(const struct dl_spec *spec, const struct value *v,
                                    double *weights, struct dl_error *err)
{
    const struct spec_dataset *mix = &spec->dataset;
    bool given[DL_BOUND_MIX_CHILDREN] = {false};
    uint32_t child = 0;

    if (mix->kind != DATASET_MIX)
        return dl_error_set(err, EINVAL, spec->name,
                            "its dataset is not a mix, and has no weights of datasets");
    if (v->type != VALUE_MAP)
        return dl_error_set(err, EINVAL, "weights",
                            "is not a mapping of datasets, by number or name, to weights");
    for (uint32_t i = 0; i < v->count; i++) {
        int r = session_mix_find(mix, v->items[i].key, &child, err);

        if (r < 0)
            return r;
        if (given[child])
            return dl_error_set(err, EINVAL, v->items[i].key, "dataset %u has two weights", child);
        given[child] = true;
        weights[child] = value_real(&v->items[i]);
        if (!(weights[child] >= 0))
            return dl_error_set(err, EINVAL, v->items[i].key,
                                "its weight is not a finite, non-negative number");
        weights[child] = weights[child] == 0 ? 0 : weights[child]; /* no -0 */
    }
    for (uint32_t i = 0; i < mix->n_datasets; i++)
        if (!given[i])
            return session_mix_lack(mix, i, err);
    return 0;
}

/* ---- on several nodes ------------------------------------------------------------------------ */

/* Sample weights that were missing here. */
static void session_mix_give_table(struct shared_loader *shared, const struct loader_change *change)
{
    if (loader_give_table(given_weights_latest(shared), change))
        given_weights_again(shared);
}

/* For people of all nodes: the change by its step and its weights. */
static void session_mix_describe(const struct loader *loader, const struct loader_change *change,
                                 char ret[static GIVEN_TEXT_MAX / 2])
{
    uint32_t n = change->table ? 0 : loader_spec(loader)->dataset.n_datasets;
    size_t room = GIVEN_TEXT_MAX / 2;
    size_t at = (size_t)snprintf(ret, room, "from step %" PRIu64 " of epoch %" PRIu64 " on",
                                 change->step, change->epoch);

    if (change->table)
        (void)snprintf(ret + at, room - at, " weights %016" PRIx64, change->table->sum);
    for (uint32_t i = 0; i < n && at < room; i++)
        at += (size_t)snprintf(ret + at, room - at, "%s%.6g", i > 0 ? ", " : " weights ",
                               change->weights[i]);
}

/* 0, with its place; 1: a former change has yet to be compared. All nodes may say the same, one
 * after the other, and a node may say it again. */
static int session_mix_in_cluster(struct loader *loader, struct shared_loader *shared,
                                  uint64_t asked, struct loader_change *change,
                                  struct dl_error *err)
{
    _cleanup_(mix_changes_unrefp) struct mix_changes *list = NULL;
    char text[GIVEN_TEXT_MAX / 2];

    int r = loader_check_change(loader, change, err);

    if (r < 0)
        return r;
    session_mix_give_table(shared, change);
    if (loader_has_change(loader, given_weights_latest(shared), change)) {
        given_weights_again(shared);
        return 0;
    }
    r = given_weights_wait(shared, asked, err);
    if (r == 0)
        r = loader_make_change(loader, given_weights_latest(shared), change, &list, err);
    if (r != 0)
        return r;
    session_mix_describe(loader, change, text);
    return given_weights_give(shared, list, text, err);
}

static int session_mix_change(struct session *s, struct loader *loader,
                              struct loader_change *change, struct dl_error *err)
{
    uint32_t n;
    struct shared_loader *shared = s->o.events->find_shared(s->o.context, loader, &n);

    if (n == 1)
        return session_mix_in_cluster(loader, shared, s->asked ? s->asked : uv_hrtime(), change,
                                      err);
    if (n > 1)
        return dl_error_set(err, EBUSY, loader_spec(loader)->name,
                            "is read by %u jobs in the cluster's world, which are at different "
                            "positions; try again when only one of them reads it",
                            n);
    if (loader_is_in_cluster(loader))
        return dl_error_set(err, EAGAIN, loader_spec(loader)->name,
                            "no client reads it now, but ranks may come back; try again when "
                            "they have");
    return loader_mix(loader, change, err);
}

/* ---- MIX ------------------------------------------------------------------------------------- */

static int session_mix_answer(struct session *s, uint64_t request, const struct loader *loader,
                              const struct loader_change *change, struct dl_error *err)
{
    uint32_t n = loader_spec(loader)->dataset.n_datasets;
    assert(change->weights && n > 0);
    _cleanup_(value_deinit) struct value v = {0};
    struct row row = row_begin(&v);

    row_string(&row, "loader", loader_spec(loader)->name);
    row_uint(&row, "epoch", change->epoch);
    row_uint(&row, "step", change->step);
    if (!mix_is_ahead(change->position))
        row_uint(&row, "position", change->position);
    struct value *weights = row_list(&row, "weights");
    for (uint32_t i = 0; i < n && row.r == 0; i++) {
        struct row inner = row_push(weights);

        row_uint(&inner, "child", i);
        row_string(&inner, "dataset",
                   spec_dataset_label(&loader_spec(loader)->dataset.datasets[i]));
        row_real(&inner, "weight", change->weights[i]);
        row.r = inner.r;
    }
    if (row.r < 0)
        return dl_error_set(err, ENOMEM, "weights", "out of memory");
    return session_send_info(s, request, &v, err);
}

int session_mix(struct session *s, const struct dl_msg_mix *msg, struct dl_error *err)
{
    _cleanup_free_ char *name = span_dup(msg->loader);
    _cleanup_(value_deinit) struct value v = {0};
    double weights[DL_BOUND_MIX_CHILDREN];
    struct loader_change change = {.epoch = msg->epoch, .step = msg->step, .weights = weights};
    struct loader *loader = NULL;

    if (!name)
        return dl_error_set(err, ENOMEM, "loader", "out of memory");
    int r = s->o.events->find_open(s->o.context, s, name, &loader, err);
    if (r == 0)
        r = value_unpack(msg->weights.data, msg->weights.len, &v, err);
    if (r == 0)
        r = session_mix_read_weights(loader_spec(loader), &v, weights, err);
    if (r == 0)
        r = session_mix_change(s, loader, &change, err);
    return r != 0 ? r : session_mix_answer(s, msg->request, loader, &change, err);
}

/* ---- WEIGHTS --------------------------------------------------------------------------------- */

static int session_mix_answer_weights(struct session *s, uint64_t request,
                                      const struct loader *loader,
                                      const struct loader_change *change, struct dl_error *err)
{
    char sum[17];
    assert(change->table);
    _cleanup_(value_deinit) struct value v = {0};
    struct row row = row_begin(&v);

    (void)snprintf(sum, sizeof sum, "%016llx", (ull)change->table->sum);
    row_string(&row, "loader", loader_spec(loader)->name);
    row_uint(&row, "epoch", change->epoch);
    row_uint(&row, "step", change->step);
    row_uint(&row, "position", change->position);
    row_uint(&row, "samples", change->table->n);
    row_string(&row, "weights", sum);
    if (row.r < 0)
        return dl_error_set(err, ENOMEM, "weights", "out of memory");
    return session_send_info(s, request, &v, err);
}

int session_weights(struct session *s, const struct dl_msg_weights *msg, struct dl_error *err)
{
    _cleanup_free_ char *name = span_dup(msg->loader);
    _cleanup_(weight_table_unrefp) struct weight_table *table = NULL;
    struct loader *loader = NULL;

    if (!name)
        return dl_error_set(err, ENOMEM, "loader", "out of memory");
    int r = session_tables_take(s, msg->sum, &table, err);
    struct loader_change change = {.epoch = msg->epoch, .step = msg->step, .table = table};
    if (r == 0)
        r = s->o.events->find_open(s->o.context, s, name, &loader, err);
    if (r == 0)
        r = session_mix_change(s, loader, &change, err);
    if (r == 1)
        return 1; /* until then the tables stay */
    session_tables_drop(s);
    return r < 0 ? r : session_mix_answer_weights(s, msg->request, loader, &change, err);
}

/* ---- what clients know ----------------------------------------------------------------------- */

static void session_mix_forget(struct session *s)
{
    s->changes = mix_changes_unref(s->changes);
    s->changes_of = 0;
    session_tables_drop(s);
}

int session_keep_changes(struct session *s, const struct dl_msg_changes *msg, struct dl_error *err)
{
    s->changes = mix_changes_unref(s->changes);
    int r = mix_changes_read(msg->changes, &s->changes);

    if (r == -ENOMEM)
        return dl_error_set(err, ENOMEM, "CHANGES", "out of memory");
    if (r < 0)
        return dl_error_set(err, EPROTO, "CHANGES", "%zu bytes are not changed weights",
                            msg->changes.len);
    s->changes_of = msg->loader;
    return 0;
}

/* In the cluster's world all nodes share one list. 1: the epoch's length is not known yet. */
static int session_mix_bring_shared(struct session *s, struct loader *loader,
                                    struct shared_loader *shared, const struct dl_msg_start *msg,
                                    const struct stream_params *params, struct mix_changes *known,
                                    struct dl_error *err)
{
    struct mix_changes *list = given_weights_list(shared);
    int r = loader_holds_epoch(loader, params->epoch, given_weights_hold(shared))
                ? given_weights_wait(shared, s->asked ? s->asked : uv_hrtime(), err)
                : 0;

    if (r != 0)
        return r;
    if (list && known)
        mix_changes_share_tables(list, known);
    r = session_tables_give(s, list, err);
    return r < 0 ? r : loader_share_changes(loader, params, msg->told, known, list, err);
}

int session_bring_changes(struct session *s, struct opened *opened, const struct dl_msg_start *msg,
                          const struct stream_params *params, struct shared_loader *shared,
                          struct dl_error *err)
{
    struct loader *loader = opened->user.loader;
    struct mix_changes *known = s->changes_of == msg->loader ? s->changes : NULL;
    int r = 0;

    if (known)
        mix_changes_share_tables(known, loader_changes(loader));
    r = session_tables_give(s, known, err);
    if (r == 0 && shared && loader_weights_can_change(loader))
        r = session_mix_bring_shared(s, loader, shared, msg, params, known, err);
    else if (r == 0 && msg->told && params->epoch != EPOCH_RESUME)
        r = loader_bring_changes(loader, params, known, err);
    if (r == 1)
        return 1; /* until then the client's list is kept */
    if (r == 0 && !mix_changes_equal(known, loader_changes(loader)))
        session_changed(&opened->user);
    session_mix_forget(s);
    return r;
}

void session_changed(struct loader_user *user)
{
    struct opened *opened = container_of(user, struct opened, user);
    _cleanup_(buffer_deinit) struct dl_buffer bytes = {0};

    if (opened->session->version < 4 &&
        mix_changes_ahead(loader_changes(user->loader)) != UINT64_MAX)
        return; /* it cannot read such a loader */
    if (mix_changes_write(loader_changes(user->loader), &bytes) < 0)
        return; /* out of memory: the client's states keep the former list, and will be refused */
    session_send(opened->session,
                 &(struct dl_message){
                     .number = DL_MSG_CHANGED,
                     .changed = {.loader = opened->id, .changes = {bytes.data, bytes.len}}});
}
