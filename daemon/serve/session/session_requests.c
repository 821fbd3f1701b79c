#include "daemon/base/blame.h"
#include "daemon/base/memory.h"
#include "daemon/serve/session/session_private.h"

#include <assert.h>
#include <errno.h>

static int session_requests_unknown(struct dl_error *err, const char *what, uint64_t id)
{
    return dl_error_set(err, EPROTO, what, "there is no %s %llu in this session", what, (ull)id);
}

static struct client_stream *session_requests_find_stream(struct session *s, uint64_t id,
                                                          struct dl_error *err)
{
    uint32_t key = (uint32_t)id;
    struct client_stream *cs;

    HASH_FIND(hh, s->streams, &key, sizeof key, cs);
    assert(!cs || (cs->session == s && cs->id == key));
    if (cs) /* what follows is its loader's */
        (void)blame_swap(cs->opened->user.blame);
    else
        session_requests_unknown(err, "stream", id);
    return cs;
}

static struct opened *session_requests_find_opened(struct session *s, uint64_t id,
                                                   struct dl_error *err)
{
    uint32_t key = (uint32_t)id;
    struct opened *opened;

    HASH_FIND(hh, s->opened, &key, sizeof key, opened);
    assert(!opened || (opened->session == s && opened->id == key));
    if (opened && opened->user.loader)
        (void)blame_swap(opened->user.blame);
    else if (!opened)
        session_requests_unknown(err, "loader", id);
    return opened;
}

static int session_requests_handle_hello(struct session *s, const struct dl_msg_hello *msg,
                                         struct dl_error *err)
{
    if (msg->version < DL_PROTOCOL_OLDEST)
        return dl_error_set(
            err, EPROTONOSUPPORT, "version",
            "the client speaks version %llu of the protocol, this daemon " DL_PROTOCOL_SPOKEN
            "; install the same release of both",
            (ull)msg->version);
    s->agent = span_dup(msg->agent);
    s->version = (uint32_t)min_u64(msg->version, DL_PROTOCOL_VERSION);
    session_send(s, &(struct dl_message){.number = DL_MSG_WELCOME,
                                         .welcome = {.version = s->version,
                                                     .agent = span_str("dloaderd " DLOADER_VERSION),
                                                     .session = s->o.id,
                                                     .life = s->o.life}});
    return 0;
}

/* When the current request first arrived. */
static uint64_t session_requests_asked(const struct session *s)
{
    return s->asked ? s->asked : uv_hrtime();
}

/* Finds the cluster's world, and the place in it of this node's rank. */
static int session_requests_find_place(struct session *s, const struct opened *opened,
                                       struct stream_params *params, struct shared_loader **ret,
                                       struct resume_place *ret_place, struct dl_error *err)
{
    const struct loader *loader = opened->user.loader;
    const struct shared_loader_request request = {
        .identity = loader_identity(loader),
        .job = params->job,
        .known = s->changes_of == opened->id ? s->changes : NULL,
        .fixed = loader_core(loader)->iterable || loader_identity(loader)->order == STATE_CLIENT,
        .local = params->rank,
        .asked = session_requests_asked(s),
        .account = s->account,
        .name = loader_spec(loader)->name,
        .batch = spec_most_samples(loader_spec(loader)),
        .resume = {.epoch = params->epoch,
                   .step = params->first,
                   .before = params->before,
                   .local = params->rank,
                   .former = opened->former}};
    int r = s->o.events->place(s->o.context, &request, ret, ret_place, err);

    if (r != 0)
        return r;
    params->rank += ret_place->first;
    params->world = ret_place->world;
    params->epoch = ret_place->epoch;
    params->first = ret_place->step;
    params->before = ret_place->before;
    params->round = ret_place->round + 1;
    return 0;
}

/* How many steps an epoch has shows at its end: clients before version 4 took that for a sampler of
 * their own, and nodes of a cluster agree on where an epoch ends. */
static int session_requests_check_lazy(const struct session *s, const struct loader *loader,
                                       const struct dl_msg_start *msg, struct dl_error *err)
{
    if (loader_spec(loader)->batch.lengths != LENGTHS_LAZY)
        return 0;
    if (s->version < 4)
        return dl_error_set(
            err, EPROTONOSUPPORT, "batch.lengths",
            "lazy needs version 4 of the protocol, and the client speaks %u; install "
            "the same release of both, or leave lengths out",
            s->version);
    if (msg->world == 0)
        return dl_error_set(
            err, EINVAL, "batch.lengths",
            "lazy does not go with the cluster's world, whose nodes agree on the end of "
            "an epoch before it is known; give rank and world size, or leave lengths "
            "out");
    return 0;
}

/* Clients before version 4 take a slot's step for that of the batch. */
static int session_requests_check_parts(const struct session *s, const struct opened *opened,
                                        struct dl_error *err)
{
    if (!slices_cut(&opened->own.slices) || s->version >= 4)
        return 0;
    return dl_error_set(err, EPROTONOSUPPORT, "share.size",
                        "a part of a larger batch needs version 4 of the protocol, and the client "
                        "speaks %u; install the same release of both, or leave size out",
                        s->version);
}

/* Only where steps come in no order that the daemon knows: else it says which they are itself. */
static int session_requests_check_passed(const struct loader *loader,
                                         const struct dl_msg_start *msg, struct dl_error *err)
{
    const struct core *core = loader_core(loader);
    const char *path = msg->journal.len > 0 ? "journal" : "passed";
    const char *why = NULL;

    if (msg->passed.len == 0 && msg->journal.len == 0)
        return 0;
    if (spec_is_in_order(loader_spec(loader)))
        why = "batches of this loader come in the order of their steps; open one with "
              "workers.bypass, or with in_order: false";
    else if (core->iterable || loader_spec(loader)->sampler == SAMPLER_CLIENT)
        why = "it does not go with an iterable dataset, nor with a client that is the sampler";
    else if (msg->world == 0)
        why = "it does not go with the cluster's world; give rank and world size";
    return why ? dl_error_set(err, EINVAL, path, "%s", why) : 0;
}

/* What of START's stream is wanted, and where: 1 while other nodes have to be waited for. */
static int session_requests_read_start(struct session *s, const struct opened *opened,
                                       const struct dl_msg_start *msg, struct stream_params *ret,
                                       struct shared_loader **ret_shared,
                                       struct resume_place *ret_place, struct dl_error *err)
{
    *ret = (struct stream_params){.owner = s,
                                  .epoch = msg->epoch,
                                  .rank = msg->rank,
                                  .world = msg->world,
                                  .sharer = (uint32_t)msg->replica,
                                  .sharers = msg->replicas > 1 ? (uint32_t)msg->replicas : 0,
                                  .first = msg->step,
                                  .credits = (uint32_t)msg->credits,
                                  .expected = msg->expected,
                                  .mark = {msg->mark_window, msg->mark_rows},
                                  .slices = opened->own.slices,
                                  .priority = (enum stream_priority)msg->priority};
    memcpy(ret->job, msg->job.data, min_u64(msg->job.len, sizeof ret->job - 1));
    if (msg->replica >= max_u64(msg->replicas, 1))
        return dl_error_set(err, EINVAL, "replica",
                            "%llu is not below the number of replicas, %llu", (ull)msg->replica,
                            (ull)max_u64(msg->replicas, 1));
    if (msg->world == 0 && ret->sharers)
        return dl_error_set(err, EINVAL, "replicas",
                            "%u do not go with the cluster's world; give rank and world size, and "
                            "each node loads its own ranks",
                            ret->sharers);
    if (!history_read(msg->before, &ret->before))
        return dl_error_set(err, EPROTO, "before", "not a history of an epoch");
    if (!passed_read(msg->step, msg->passed, &ret->passed))
        return dl_error_set(err, EPROTO, "passed", "not the steps that have passed one");
    if (!journal_is_sound(msg->journal))
        return dl_error_set(err, EPROTO, "journal", "not a journal of steps");
    if (opened->user.leaving)
        return dl_error_set(err, EINVAL, "loader", "loader %llu was closed; open it again",
                            (ull)msg->loader);
    if (!opened->user.loader || !opened->user.answered)
        return dl_error_set(err, EAGAIN, "loader", "loader %llu is not open yet", (ull)msg->loader);
    int r = session_requests_check_lazy(s, opened->user.loader, msg, err);
    if (r == 0)
        r = session_requests_check_parts(s, opened, err);
    if (r == 0)
        r = session_requests_check_passed(opened->user.loader, msg, err);
    if (r == 0)
        r = s->o.events->may_start(s->o.context, err);
    if (r == 0 && ret->world == 0)
        r = session_requests_find_place(s, opened, ret, ret_shared, ret_place, err);
    if (r != 0)
        return r;
    if (ret->rank >= ret->world)
        return dl_error_set(err, EINVAL, "rank", "%llu is not below the world size %llu",
                            (ull)ret->rank, (ull)ret->world);
    if (ret->epoch == EPOCH_RESUME && ret->first > 0)
        return dl_error_set(err, EINVAL, "step", "%llu, but the daemon gives the step; send 0",
                            (ull)ret->first);
    return 0;
}

/* If steps come in any order, their number does not identify them. */
static void session_requests_share_position(struct session *s, struct client_stream *cs)
{
    int fd;

    if (!cs->shared || cs->stream->params.any_order)
        return;
    cs->position = position_new(&fd);
    if (!cs->position)
        return;
    session_queue(
        s,
        &(struct dl_message){.number = DL_MSG_POSITION,
                             .position = {.request = cs->request, .bytes = POSITION_BYTES}},
        fd);
    close_fdp(&fd);
}

/* States sent before START are for this one, even if it fails. */
static struct dataset_states session_requests_take_brought(struct session *s, struct opened *opened)
{
    struct dataset_states states = opened->dataset_states;

    if (states.n > 0)
        s->dataset_state_bytes = 0;
    opened->dataset_states = (struct dataset_states){0};
    opened->placed = false;
    opened->former = (struct former_place){0};
    return states;
}

static int session_requests_start_stream(struct session *s, const struct dl_msg_start *msg,
                                         struct dl_error *err)
{
    struct opened *opened = session_requests_find_opened(s, msg->loader, err);
    struct resume_place place = {.limit = UINT64_MAX};
    struct stream_params params;
    struct loader_extent extent;
    struct shared_loader *shared = NULL;

    if (!opened)
        return -err->code;
    int r = session_requests_read_start(s, opened, msg, &params, &shared, &place, err);
    if (r == 0)
        r = session_bring_changes(s, opened, msg, &params, shared, err);
    if (r > 0) /* it waits for other nodes, and what came before it for that */
        return r;
    bool placed = opened->placed;
    _cleanup_(dataset_states_deinit) struct dataset_states states =
        session_requests_take_brought(s, opened);
    if (r < 0)
        return r;
    struct client_stream *cs = must_alloc(sizeof *cs);
    r = loader_start(opened->user.loader, &params, cs, &cs->stream, &extent, err);
    if (r < 0) {
        free(cs);
        return r;
    }
    int paid = loader_bring_dataset_states(opened->user.loader, cs->stream, &states, err);
    if (paid < 0) {
        loader_end(opened->user.loader, cs->stream);
        free(cs);
        return paid;
    }
    cs->session = s;
    cs->opened = opened;
    cs->id = ++s->next_id;
    cs->request = msg->request;
    cs->cluster = msg->world == 0;
    cs->shared = shared;
    cs->local = msg->rank;
    cs->place = place;
    cs->stream->former_lease = msg->former_lease;
    if (msg->journal.len > 0)
        stream_follow(cs->stream, msg->journal);
    loader_resume(opened->user.loader, cs->stream, place.limit);
    if (shared)
        session_join_world(cs);
    if (placed)
        session_requests_share_position(s, cs);
    HASH_ADD(hh, s->streams, id, sizeof cs->id, cs);
    if (r == 0)
        session_answer_start(cs, &extent);
    return 0;
}

/* What a client feeds against the rules it can know is a violation. */
static int session_requests_handle_feed(struct session *s, const struct dl_msg_feed *msg,
                                        struct dl_error *err)
{
    struct client_stream *cs = session_requests_find_stream(s, msg->stream, err);
    uint32_t n = (uint32_t)(msg->indices.len / sizeof(uint64_t));

    if (!cs)
        return -err->code;
    const struct dl_spec *spec = loader_spec(cs->opened->user.loader);
    if (!cs->stream->params.fed)
        return dl_error_set(err, EPROTO, "sampler.kind",
                            "stream %llu has its own sampler; only sampler.kind client can be "
                            "fed",
                            (ull)msg->stream);
    /* Of Python, words may be the pickle of other keys than integers. */
    if (n > max_u64(spec->batch_size, 1) && spec->dataset.kind != DATASET_PYTHON)
        return dl_error_set(err, EPROTO, "indices", "%u for a step, but batch.size is %llu", n,
                            (ull)spec->batch_size);
    struct loader *loader = cs->opened->user.loader;
    if (cs->stream->phase == STREAM_STOPPED)
        return 0;
    int r = loader_feed(loader, cs->stream, msg->indices.data, n, msg->end, err);
    if (r == -EPROTO)
        return dl_error_set(err, EPROTO, "stream",
                            "stream %llu was fed beyond its end, or more than %llu steps ahead "
                            "for each of its %u credits",
                            (ull)msg->stream, (ull)DL_MAX_FEED_AHEAD, cs->stream->params.credits);
    if (r < 0) {
        loader_stop(loader, cs->stream);
        session_fault(cs->stream, UINT64_MAX, err, NULL, true);
    }
    return 0;
}

/* RELEASE and PIN. */
static int session_requests_handle_leases(struct session *s, uint64_t id, struct dl_span steps,
                                          bool pin, uint64_t waited, struct dl_error *err)
{
    struct client_stream *cs = session_requests_find_stream(s, id, err);
    uint64_t unknown;

    if (!cs)
        return -err->code;
    if (!loader_return(cs->opened->user.loader, cs->stream, steps, pin, waited, &unknown))
        return dl_error_set(err, EPROTO, "step",
                            "step %llu of stream %llu is not leased to this client", (ull)unknown,
                            (ull)id);
    if (cs->end_due)
        session_world_finish(cs);
    /* One that its client has stopped goes when its last lease is back. One that a broken loader
     * has ended is there until the client has done with it. */
    if (cs->stopped && stream_client_has(cs->stream) == 0)
        session_end_stream(s, cs);
    return 0;
}

/* What the client has of a daemon before this one becomes less. */
static int session_requests_handle_former_lease(struct session *s,
                                                const struct dl_msg_former_lease *msg,
                                                struct dl_error *err)
{
    struct client_stream *cs = session_requests_find_stream(s, msg->stream, err);

    if (!cs)
        return -err->code;
    if (msg->step < cs->stream->former_lease)
        return dl_error_set(err, EPROTO, "step", "step %llu of stream %llu was already released",
                            (ull)msg->step, (ull)msg->stream);
    cs->stream->former_lease = msg->step;
    return 0;
}

/* It goes when its last lease is back. */
static void session_requests_stop_stream(struct session *s, struct client_stream *cs)
{
    cs->stopped = true;
    session_leave_world(cs, true);
    loader_stop(cs->opened->user.loader, cs->stream);
    if (stream_client_has(cs->stream) == 0)
        session_end_stream(s, cs);
}

static int session_requests_handle_stop(struct session *s, const struct dl_msg_stop *msg,
                                        struct dl_error *err)
{
    struct client_stream *cs = session_requests_find_stream(s, msg->stream, err);

    if (!cs)
        return -err->code;
    session_requests_stop_stream(s, cs);
    return 0;
}

/* Does not check it: an OPEN that names it gets the error. */
static int session_requests_handle_host(struct session *s, const struct dl_msg_host *msg,
                                        struct dl_error *err)
{
    int sock = frame_reader_take_fd(&s->peer.reader);

    if (sock < 0)
        return dl_error_set(err, EPROTO, "HOST", "it came without its file descriptor");
    brought_add(&s->brought, msg->host, sock);
    return 0;
}

/* The client has begun to send those of another loader. */
static void session_requests_drop_dataset_states_but(struct session *s, const struct opened *keep)
{
    for (struct opened *opened = s->opened; opened; opened = opened->hh.next) {
        if (opened != keep)
            dataset_states_deinit(&opened->dataset_states);
    }
}

/* For the next START, even if it fails. */
static int session_requests_handle_dataset_state(struct session *s,
                                                 const struct dl_msg_dataset_state *msg,
                                                 struct dl_error *err)
{
    struct opened *opened = session_requests_find_opened(s, msg->loader, err);

    if (!opened)
        return -err->code;
    if (!opened->user.loader || !opened->user.answered)
        return session_requests_unknown(err, "loader", msg->loader), -err->code;
    if (opened->dataset_states.n == 0)
        session_requests_drop_dataset_states_but(s, opened);
    if (msg->worker >= max_u64(loader_spec(opened->user.loader)->workers, 1) ||
        !dataset_states_bring(&opened->dataset_states, (uint32_t)msg->worker, msg->record))
        return dl_error_set(
            err, EPROTO, "DATASET_STATE",
            "not a state of one of the loader's workers, or more than %u bytes in all",
            DATASET_STATES_MAX);
    s->dataset_state_bytes = opened->dataset_states.bytes;
    return 0;
}

/* For the next START, even if it fails. */
static int session_requests_handle_place(struct session *s, const struct dl_msg_place *msg,
                                         struct dl_error *err)
{
    struct opened *opened = session_requests_find_opened(s, msg->loader, err);

    if (!opened)
        return -err->code;
    if (msg->world > 0 && msg->rank >= msg->world)
        return dl_error_set(err, EPROTO, "rank", "%llu is not below the world size %llu",
                            (ull)msg->rank, (ull)msg->world);
    opened->placed = true;
    opened->former = (struct former_place){.rank = msg->rank, .world = msg->world};
    return 0;
}

/* Leases stay, as after STOP. */
static int session_requests_handle_leave(struct session *s, const struct dl_msg_leave *msg,
                                         struct dl_error *err)
{
    struct opened *opened = session_requests_find_opened(s, msg->loader, err);
    struct client_stream *cs;
    struct client_stream *next;

    if (!opened)
        return -err->code;
    if (!opened->user.loader || !opened->user.answered)
        return session_requests_unknown(err, "loader", msg->loader), -err->code;
    if (opened->user.leaving)
        return 0;
    HASH_ITER (hh, s->streams, cs, next) {
        if (cs->opened == opened)
            session_requests_stop_stream(s, cs);
    }
    loader_pump(opened->user.loader); /* others may want what was loaded for it */
    loader_leave(&opened->user);
    return 0;
}

static int session_requests_handle_close(struct session *s, const struct dl_msg_close *msg,
                                         struct dl_error *err)
{
    struct opened *opened = session_requests_find_opened(s, msg->loader, err);

    if (!opened)
        return -err->code;
    session_close_loader(s, opened);
    return 0;
}

/* The page of a value that begins with that row; *ret_next: the next page's first row, 0: it is the
 * last one. */
static int session_requests_send_page(struct session *s, uint64_t request, const struct value *v,
                                      uint32_t row, uint32_t *ret_next, struct dl_error *err)
{
    _cleanup_(buffer_deinit) struct dl_buffer packed = {0};

    if (pages_pack(v, row, &packed, ret_next) < 0 || packed.len > DL_MAX_FRAME_BYTES - 64)
        return dl_error_set(
            err, EMSGSIZE, "view",
            "one row is larger than a message: %llu bytes, %llu values; metrics by HTTP have no "
            "such limit (metrics.listen)",
            (ull)DL_MAX_FRAME_BYTES, (ull)DL_MAX_VALUE_NODES);
    session_send(s, &(struct dl_message){.number = DL_MSG_INFO,
                                         .info = {.request = request,
                                                  .value = {.data = packed.data, .len = packed.len},
                                                  .next = *ret_next}});
    return 0;
}

int session_send_info(struct session *s, uint64_t request, const struct value *v,
                      struct dl_error *err)
{
    uint32_t next;

    return session_requests_send_page(s, request, v, 0, &next, err);
}

/* Later pages of a view show the state at its first page. */
static int session_requests_handle_query(struct session *s, const struct dl_msg_query *msg,
                                         struct dl_error *err)
{
    _cleanup_free_ char *name = span_dup(msg->view);
    int r = 0;

    if (msg->row != 0 && msg->row != s->view_row)
        return dl_error_set(err, EINVAL, "row",
                            "%llu is not the row after the previous page; query the view from "
                            "row 0",
                            (ull)msg->row);
    if (msg->row == 0) {
        value_deinit(&s->view);
        r = s->o.events->view(s->o.context, s, name, &s->view, err);
    }
    if (r == 0)
        r = session_requests_send_page(s, msg->request, &s->view, (uint32_t)msg->row, &s->view_row,
                                       err);
    if (r < 0 || s->view_row == 0) {
        value_deinit(&s->view);
        s->view_row = 0;
    }
    s->view_bytes = s->view_row == 0 ? 0 : msg->row == 0 ? value_bytes(&s->view) : s->view_bytes;
    return r;
}

static int session_requests_handle_control(struct session *s, const struct dl_msg_control *msg,
                                           struct dl_error *err)
{
    _cleanup_(value_deinit) struct value v = {.type = VALUE_MAP};
    _cleanup_free_ char *verb = span_dup(msg->verb);
    int r = s->o.events->control(s->o.context, s, verb, err);

    if (r == 0 && value_set_string(&v, "done", verb) < 0)
        r = dl_error_set(err, ENOMEM, "", "out of memory");
    return r < 0 ? r : session_send_info(s, msg->request, &v, err);
}

static int session_requests_handle_resize(struct session *s, const struct dl_msg_resize *msg,
                                          struct dl_error *err)
{
    _cleanup_(value_deinit) struct value v = {.type = VALUE_MAP};
    _cleanup_free_ char *name = span_dup(msg->loader);
    struct loader *loader = NULL;

    int r = s->o.events->find_open(s->o.context, s, name, &loader, err);
    uint32_t before = loader ? pool_size(loader_pool(loader)) : 0;
    if (r == 0 && msg->workers > 0)
        r = loader_resize(loader, (uint32_t)msg->workers, err);
    if (r == 0)
        r = loader_set_automatic(loader, msg->workers == 0, err);
    if (r < 0)
        return r;
    if (value_set_string(&v, "loader", loader_spec(loader)->name) < 0 ||
        value_set_uint(&v, "workers", pool_size(loader_pool(loader))) < 0 ||
        value_set_bool(&v, "automatic", msg->workers == 0) < 0 ||
        value_set_uint(&v, "before", before) < 0)
        return dl_error_set(err, ENOMEM, "", "out of memory");
    return session_send_info(s, msg->request, &v, err);
}

/* Answers a refused request and returns 0; else returns the handler's result. */
static int session_requests_answer(struct session *s, uint64_t request, int r,
                                   const struct dl_error *err)
{
    if (r >= 0 || r == -EPROTO)
        return r;
    session_send_error(s, request, err);
    return 0;
}

int session_handle(struct session *s, const struct dl_message *m, struct dl_error *err)
{
    if (!s->agent && m->number != DL_MSG_HELLO)
        return dl_error_set(err, EPROTO, message_name(m->number), "HELLO must come first");
    switch (m->number) {
    case DL_MSG_HELLO:
        if (s->agent)
            return dl_error_set(err, EPROTO, "HELLO", "it was already sent");
        return session_requests_handle_hello(s, &m->hello, err);
    case DL_MSG_OPEN:
        return session_open(s, &m->open, err);
    case DL_MSG_HOST:
        return session_requests_handle_host(s, &m->host, err);
    case DL_MSG_DATASET_STATE:
        return session_requests_handle_dataset_state(s, &m->dataset_state, err);
    case DL_MSG_PLACE:
        return session_requests_handle_place(s, &m->place, err);
    case DL_MSG_CHANGES:
        return session_keep_changes(s, &m->changes, err);
    case DL_MSG_MIX:
        return session_requests_answer(s, m->mix.request, session_mix(s, &m->mix, err), err);
    case DL_MSG_TABLE:
        return session_tables_bring(s, &m->table, err);
    case DL_MSG_WEIGHTS:
        return session_requests_answer(s, m->weights.request, session_weights(s, &m->weights, err),
                                       err);
    case DL_MSG_START:
        return session_requests_answer(s, m->start.request,
                                       session_requests_start_stream(s, &m->start, err), err);
    case DL_MSG_RELEASE:
        return session_requests_handle_leases(s, m->release.stream, m->release.steps, false,
                                              m->release.waited, err);
    case DL_MSG_PIN:
        return session_requests_handle_leases(s, m->pin.stream, m->pin.steps, true, 0, err);
    case DL_MSG_FORMER_LEASE:
        return session_requests_handle_former_lease(s, &m->former_lease, err);
    case DL_MSG_FEED:
        return session_requests_handle_feed(s, &m->feed, err);
    case DL_MSG_STOP:
        return session_requests_handle_stop(s, &m->stop, err);
    case DL_MSG_CLOSE:
        return session_requests_handle_close(s, &m->close, err);
    case DL_MSG_LEAVE:
        return session_requests_handle_leave(s, &m->leave, err);
    case DL_MSG_QUERY:
        return session_requests_answer(s, m->query.request,
                                       session_requests_handle_query(s, &m->query, err), err);
    case DL_MSG_CONTROL:
        return session_requests_answer(s, m->control.request,
                                       session_requests_handle_control(s, &m->control, err), err);
    case DL_MSG_HEADSPACE:
        return session_requests_answer(s, m->headspace.request,
                                       session_ask_headspace(s, &m->headspace, err), err);
    case DL_MSG_RESIZE:
        return session_requests_answer(s, m->resize.request,
                                       session_requests_handle_resize(s, &m->resize, err), err);
    default:
        return dl_error_set(err, EPROTO, message_name(m->number), "a client must not send this");
    }
}
