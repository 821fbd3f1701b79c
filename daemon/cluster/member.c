#include "daemon/cluster/member.h"

#include "daemon/base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

struct member {
    struct rdzv rdzv;
    struct backend *backend; /* owned */
    /* In the store: the state, its head, and where the cards are. */
    char key[BACKEND_KEY_MAX - 32], head_key[BACKEND_KEY_MAX - 16], cards_key[BACKEND_KEY_MAX - 16];
    const struct member_events *events;
    void *owner;
    uv_timer_t timer;
    struct rdzv_state state, next;
    bool has_state;
    uint64_t token; /* of what lies there; 0: nothing */
    enum rdzv_do asked;
    enum rdzv_do trouble; /* what the store failed to do; NOTHING: it works */
    struct dl_buffer bytes, head_bytes, page_bytes;
    struct rdzv_card *cards; /* owned: those looked at */
    uint32_t n_cards, cap_cards;
    uint64_t asked_ns, wrote_ns, read_ns, looked_ns;
    struct rdzv_out
        deferred; /* news that a request of the owner brought; the timer tells them at once */
};

static void member_on_timer(uv_timer_t *timer);
static void member_on_answer(void *owner, const struct backend_answer *answer);

/* ---- one step ------------------------------------------------------------------------------- */

static void member_card_key(const struct member *member, uint64_t id, char ret[BACKEND_KEY_MAX])
{
    (void)snprintf(ret, BACKEND_KEY_MAX, "%s%016" PRIx64, member->cards_key, id);
}

static struct dl_span member_span_of(const struct dl_buffer *buffer)
{
    return (struct dl_span){buffer->data, buffer->len};
}

static void member_post(struct member *member, const struct rdzv_card *card)
{
    char key[BACKEND_KEY_MAX];

    member_card_key(member, card->id, key);
    member->bytes.len = 0;
    rdzv_card_pack(card, &member->bytes);
    backend_put(member->backend, key, member_span_of(&member->bytes), member->head_key,
                member_on_answer, member);
}

static void member_page_key(const struct member *member, uint32_t page, char ret[BACKEND_KEY_MAX])
{
    (void)snprintf(ret, BACKEND_KEY_MAX, "%s/places/%" PRIu32, member->key, page);
}

/* Of the round that the write completes; the pages of one that was complete already are there. */
static uint32_t member_pages_due(const struct member *member)
{
    const struct rdzv_state *next = &member->next;
    bool was = member->has_state && member->token > 0 && member->state.stamp == next->stamp;

    if (!next->complete || was || !backend_notes_many(member->backend))
        return 0;
    return rdzv_pages(rdzv_state_count(next).members);
}

/* The head, and behind it the pages of places. */
static void member_write_notes(struct member *member, struct backend_note *notes,
                               char (*keys)[BACKEND_KEY_MAX], uint32_t pages)
{
    size_t ends[RDZV_PAGES_MAX + 1] = {0};

    member->head_bytes.len = member->page_bytes.len = 0;
    rdzv_head_pack(&member->next, &member->head_bytes);
    notes[0] = (struct backend_note){member->head_key, member_span_of(&member->head_bytes),
                                     pages > 0 ? &notes[1] : NULL};
    for (uint32_t i = 0; i < pages; i++) {
        rdzv_page_pack(&member->next, i, &member->page_bytes);
        ends[i + 1] = member->page_bytes.len;
        member_page_key(member, i, keys[i]);
    }
    for (uint32_t i = 0; i < pages; i++)
        notes[i + 1] =
            (struct backend_note){keys[i],
                                  {member->page_bytes.data + ends[i], ends[i + 1] - ends[i]},
                                  i + 1 < pages ? &notes[i + 2] : NULL};
}

static void member_write(struct member *member)
{
    uint32_t pages = member_pages_due(member);
    _cleanup_free_ struct backend_note *notes = must_alloc((pages + 1) * sizeof *notes);
    _cleanup_free_ char(*keys)[BACKEND_KEY_MAX] = must_alloc((pages + 1) * sizeof *keys);

    member->bytes.len = 0;
    rdzv_state_pack(&member->next, &member->bytes);
    member_write_notes(member, notes, keys, pages);
    backend_set_with(member->backend, member->key, member->token, member_span_of(&member->bytes),
                     notes, member_on_answer, member);
}

static void member_find(struct member *member, uint32_t members)
{
    char key[BACKEND_KEY_MAX];

    member_page_key(member, (uint32_t)(member->rdzv.self.id % rdzv_pages(members)), key);
    backend_get(member->backend, key, member_on_answer, member);
}

static void member_ask(struct member *member, const struct rdzv_out *out)
{
    member->asked = out->store;
    member->asked_ns = uv_hrtime();
    switch (out->store) {
    case RDZV_PEEK:
        backend_get(member->backend, member->head_key, member_on_answer, member);
        break;
    case RDZV_POST:
        member_post(member, &out->card);
        break;
    case RDZV_READ:
        backend_get(member->backend, member->key, member_on_answer, member);
        break;
    case RDZV_FIND:
        member_find(member, out->members);
        break;
    case RDZV_LOOK:
        backend_list(member->backend, member->cards_key, member->head_key, member_on_answer,
                     member);
        break;
    case RDZV_WRITE:
        member_write(member);
        break;
    case RDZV_NOTHING:
        break;
    }
}

static void member_drop(struct member *member, uint64_t id)
{
    char key[BACKEND_KEY_MAX];

    member_card_key(member, id, key);
    backend_forget(member->backend, key);
}

static void member_tell(struct member *member, const struct rdzv_out *out)
{
    const struct member_events *events = member->events;

    if (out->news == RDZV_ROUND) {
        struct rdzv_place place = rdzv_state_place(&member->state, member->rdzv.self.id);

        events->round(member->owner, &member->state, &place);
    } else if (out->news == RDZV_PLACED) {
        events->placed(member->owner, member->rdzv.round, &out->place);
    } else if (out->news == RDZV_OPENED || out->news == RDZV_EVICTED) {
        const char *why = out->why ? out->why : member->state.why;

        events->over(member->owner, out->news == RDZV_EVICTED,
                     why[0] ? why : "the run was restarted");
    } else if (out->news != RDZV_NO_NEWS) {
        events->ended(member->owner, out->news, out->error.code ? &out->error : NULL);
    }
}

/* What the machine makes of it. */
static void member_step(struct member *member, struct rdzv_event *event, struct rdzv_out *out)
{
    event->now = uv_hrtime();
    rdzv_step(&member->rdzv, event, &member->next, out);
    if (out->notice.code && member->events->notice)
        member->events->notice(member->owner, &out->notice);
}

static void member_act(struct member *member, const struct rdzv_out *out)
{
    uint64_t now = uv_hrtime();

    if (out->drops)
        member_drop(member, out->dropped);
    if (out->store != RDZV_NOTHING)
        member_ask(member, out);
    if (member->deferred.news != RDZV_NO_NEWS)
        uv_timer_start(&member->timer, member_on_timer, 0, 0);
    else if (out->wake == UINT64_MAX)
        uv_timer_stop(&member->timer);
    else
        uv_timer_start(&member->timer, member_on_timer,
                       out->wake > now ? (out->wake - now) / 1000000 + 1 : 0, 0);
}

/* What it wants; the news last, for the owner may be done with the member then. */
static void member_follow(struct member *member, const struct rdzv_out *out)
{
    member_act(member, out);
    member_tell(member, out);
}

static void member_tick(struct member *member, enum rdzv_event_type type)
{
    struct rdzv_event event = {.type = type};
    struct rdzv_out out;

    member_step(member, &event, &out);
    member_follow(member, &out);
}

static void member_on_timer(uv_timer_t *timer)
{
    struct member *member = container_of(timer, struct member, timer);
    struct rdzv_out deferred = member->deferred;

    if (deferred.news == RDZV_NO_NEWS) {
        member_tick(member, RDZV_TICK);
        return;
    }
    member->deferred.news = RDZV_NO_NEWS;
    uv_timer_start(timer, member_on_timer, 0, 0); /* and then what else there is to do */
    member_tell(member, &deferred);
}

/* NULL: the store has none, or none that this release can read: then the state says so. */
static const struct rdzv_head *member_read_head(struct dl_span data, struct rdzv_head *head)
{
    return data.len > 0 && rdzv_head_unpack(data, head) ? head : NULL;
}

static void member_on_changed(void *owner, struct dl_span data)
{
    struct rdzv_event event = {.type = RDZV_CHANGED};
    struct member *member = owner;
    struct rdzv_head head;
    struct rdzv_out out;

    event.head = member_read_head(data, &head);
    member_step(member, &event, &out);
    member_follow(member, &out);
}

/* A request of the owner. Its outcome comes later, from the loop. */
static void member_request(struct member *member, enum rdzv_event_type type, const char *reason)
{
    struct rdzv_event event = {.type = type, .reason = reason};
    struct rdzv_out out;

    member_step(member, &event, &out);
    if (out.news != RDZV_NO_NEWS)
        member->deferred = out;
    member_act(member, &out);
}

/* ---- the store ------------------------------------------------------------------------------ */

/* A store that is full, or has lost its quorum, may still be read: it is of use again when it does
 * what it failed to do. All writes are alike. */
static bool member_is_over(const struct member *member, enum rdzv_do done)
{
    bool writes = member->trouble == RDZV_POST || member->trouble == RDZV_WRITE;

    return writes ? done == RDZV_POST || done == RDZV_WRITE : true;
}

static void member_tell_trouble(struct member *member, const struct dl_error *trouble)
{
    bool was = member->trouble != RDZV_NOTHING;

    if (trouble ? was : !was || !member_is_over(member, member->asked))
        return;
    member->trouble = trouble ? member->asked : RDZV_NOTHING;
    if (member->events->store)
        member->events->store(member->owner, trouble);
}

/* The store works where it has a state that this release cannot read. */
static void member_on_failure(struct member *member, const struct dl_error *error)
{
    struct rdzv_event event = {.type = RDZV_FAILING, .error = error};
    struct rdzv_out out;

    member_tell_trouble(member, error->code == EPROTONOSUPPORT ? NULL : error);
    member_step(member, &event, &out);
    member_follow(member, &out);
}

static void member_on_head(struct member *member, const struct backend_answer *answer)
{
    struct rdzv_event event = {.type = RDZV_HEAD};
    struct rdzv_head head;
    struct rdzv_out out;

    member_tell_trouble(member, NULL);
    event.head = member_read_head(answer->data, &head);
    member_step(member, &event, &out);
    member_follow(member, &out);
}

static void member_on_found(struct member *member, const struct backend_answer *answer)
{
    struct rdzv_event event = {.type = RDZV_FOUND};
    struct rdzv_found found;
    struct rdzv_out out;

    member_tell_trouble(member, NULL);
    if (answer->data.len > 0 && rdzv_page_find(answer->data, member->rdzv.self.id, &found))
        event.found = &found;
    member_step(member, &event, &out);
    member_follow(member, &out);
}

/* A card that cannot be read is nobody's. */
static void member_read_cards(struct member *member, const struct backend_answer *answer)
{
    member->n_cards = 0;
    must_reserve(member->cards, member->cap_cards, answer->n);
    for (uint32_t i = 0; i < answer->n; i++) {
        struct rdzv_card *card = &member->cards[member->n_cards];
        bool is_next = rdzv_card_unpack(answer->items[i].data, card) &&
                       (member->n_cards == 0 || card[-1].id < card->id);

        member->n_cards += is_next;
    }
}

static void member_on_looked(struct member *member, const struct backend_answer *answer)
{
    struct rdzv_event event = {.type = RDZV_LOOKED};
    struct rdzv_head head;
    struct rdzv_out out;

    member_tell_trouble(member, NULL);
    member_read_cards(member, answer);
    event.cards = member->cards;
    event.n_cards = member->n_cards;
    event.head = member_read_head(answer->data, &head);
    if (member->has_state) {
        event.last = &member->state;
        event.state = member->token > 0 ? &member->state : NULL;
    }
    member_step(member, &event, &out);
    member_follow(member, &out);
}

static void member_on_nothing(struct member *member)
{
    struct rdzv_event event = {.type = RDZV_SEEN};
    struct rdzv_out out;

    if (member->has_state)
        event.last = &member->state;
    member_tell_trouble(member, NULL);
    member->token = 0;
    member_step(member, &event, &out);
    member_follow(member, &out);
}

static void member_tell_changed(struct member *member, const struct rdzv_state *before)
{
    const struct rdzv_state *now = &member->state;

    if (member->events->changed && !(before && before->seq == now->seq &&
                                     before->writer == now->writer && before->nonce == now->nonce))
        member->events->changed(member->owner, before, now);
}

/* The new state takes the old one's place before the owner hears of it. */
static void member_on_state(struct member *member, struct rdzv_state *state,
                            const struct backend_answer *answer)
{
    struct rdzv_event event = {.type = RDZV_SEEN, .won = answer->won, .state = state};
    struct rdzv_out out;

    if (member->has_state)
        event.last = &member->state;
    member_tell_trouble(member, NULL);
    member->token = answer->token;
    member_step(member, &event, &out);
    struct rdzv_state before = member->state;
    member->state = *state;
    member_tell_changed(member, member->has_state ? &before : NULL);
    member->has_state = true;
    rdzv_state_deinit(&before);
    member_follow(member, &out);
}

static void member_on_value(struct member *member, const struct backend_answer *answer)
{
    struct rdzv_state state = {0};
    struct dl_error err = {0};

    if (answer->token == 0)
        member_on_nothing(member);
    else if (rdzv_state_unpack(answer->data, &state, &err) < 0)
        member_on_failure(member, &err);
    else
        member_on_state(member, &state, answer);
}

/* What the store has done of the last request. */
static void member_note_done(struct member *member, const struct backend_answer *answer)
{
    if (member->asked == RDZV_POST || answer->won)
        member->wrote_ns = member->asked_ns;
    if (member->asked != RDZV_POST)
        member->read_ns = member->asked_ns;
    if (member->asked == RDZV_LOOK)
        member->looked_ns = member->asked_ns;
}

static void member_on_answer(void *owner, const struct backend_answer *answer)
{
    struct member *member = owner;

    if (answer->status < 0) {
        member_on_failure(member, answer->error);
        return;
    }
    member_note_done(member, answer);
    if (member->asked == RDZV_READ || member->asked == RDZV_WRITE)
        member_on_value(member, answer);
    else if (member->asked == RDZV_LOOK)
        member_on_looked(member, answer);
    else if (member->asked == RDZV_FIND)
        member_on_found(member, answer);
    else
        member_on_head(member, answer);
}

/* ---- the owner ------------------------------------------------------------------------------ */

void member_replace(struct member *member, uint64_t id)
{
    rdzv_replace(&member->rdzv, id);
}

void member_join(struct member *member)
{
    member_request(member, RDZV_JOIN, NULL);
}

void member_ready(struct member *member)
{
    member_request(member, RDZV_READY, NULL);
}

void member_leave(struct member *member)
{
    member_request(member, RDZV_LEAVE, NULL);
}

void member_close(struct member *member, const char *reason)
{
    member_request(member, RDZV_CLOSE, reason);
}

void member_list(struct member *member)
{
    rdzv_want_list(&member->rdzv);
    uv_timer_start(&member->timer, member_on_timer, 0, 0);
}

const struct rdzv_state *member_state(const struct member *member)
{
    return member->has_state ? &member->state : NULL;
}

uint64_t member_id(const struct member *member)
{
    return member->rdzv.self.id;
}

bool member_beat(const struct member *member, uint64_t id, uint64_t *ret_beat, uint64_t *ret_age)
{
    const struct rdzv *rdzv = &member->rdzv;
    const struct rdzv_peer *peer = rdzv_peer(rdzv, id);

    if (id == rdzv->self.id && rdzv->has_card) {
        *ret_beat = rdzv->card.beat;
        *ret_age = rdzv->clock - (rdzv->post_at - min_u64(rdzv->post_at, rdzv->set.beat_ns));
        return true;
    }
    if (!peer)
        return false;
    *ret_beat = peer->beat;
    *ret_age = rdzv->clock - peer->seen;
    return true;
}

uint64_t member_beat_age(const struct member *member, uint64_t id)
{
    const struct rdzv *rdzv = &member->rdzv;
    const struct rdzv_peer *peer = rdzv_peer(rdzv, id);

    if (id == rdzv->self.id)
        return 0;
    return peer ? rdzv->answered - min_u64(peer->seen, rdzv->answered) : UINT64_MAX;
}

void member_look(struct member *member)
{
    rdzv_look_soon(&member->rdzv);
    uv_timer_start(&member->timer, member_on_timer, 0, 0);
}

void member_read(struct member *member)
{
    rdzv_read_soon(&member->rdzv);
    uv_timer_start(&member->timer, member_on_timer, 0, 0);
}

uint64_t member_looked_ns(const struct member *member)
{
    return member->looked_ns;
}

uint64_t member_wrote_ns(const struct member *member)
{
    return member->wrote_ns;
}

uint64_t member_read_ns(const struct member *member)
{
    return member->read_ns;
}

static int member_check(const struct member_options *options, struct dl_error *err)
{
    size_t name = strlen(options->name), run = strlen(options->run);

    if (run == 0 || run > DL_MAX_NAME_BYTES)
        return dl_error_set(err, EINVAL, "rendezvous.id", "must have 1 to %d bytes",
                            (int)DL_MAX_NAME_BYTES);
    if (name == 0 || name >= RDZV_NAME_MAX)
        return dl_error_set(err, EINVAL, "rendezvous.node", "%s: must have 1 to %d bytes",
                            options->name, RDZV_NAME_MAX - 1);
    if (options->local > RDZV_LOCAL_MAX)
        return dl_error_set(err, EINVAL, "rendezvous.local_ranks",
                            "%u: a node can have %d at "
                            "most",
                            options->local, RDZV_LOCAL_MAX);
    return rdzv_settings_check(options->settings, err);
}

int member_new(const struct member_options *options, struct member **ret, struct dl_error *err)
{
    struct rdzv_node self = {.local = options->local};
    int r = member_check(options, err);

    if (r == 0 && uv_random(NULL, NULL, &self.id, sizeof self.id, 0, NULL) < 0)
        r = dl_error_set(err, EIO, "rendezvous", "the system provides no random numbers");
    if (r < 0) {
        backend_free(options->backend);
        return r;
    }
    struct member *member = must_alloc(sizeof *member);
    (void)snprintf(self.name, sizeof self.name, "%s", options->name);
    (void)snprintf(member->key, sizeof member->key, "rendezvous/%s", options->run);
    (void)snprintf(member->head_key, sizeof member->head_key, "%s/head", member->key);
    (void)snprintf(member->cards_key, sizeof member->cards_key, "%s/nodes/", member->key);
    member->backend = options->backend;
    member->events = options->events;
    member->owner = options->owner;
    (void)uv_timer_init(options->loop, &member->timer);
    bool watches = backend_watch(member->backend, member->head_key, member_on_changed, member);
    rdzv_init(&member->rdzv, options->settings, &self, !watches);
    if (options->events->placed && backend_notes_many(member->backend))
        rdzv_go_by_places(&member->rdzv);
    *ret = member;
    return 0;
}

static void member_on_closed(uv_handle_t *handle)
{
    struct member *member = container_of(handle, struct member, timer);

    rdzv_deinit(&member->rdzv);
    rdzv_state_deinit(&member->state);
    rdzv_state_deinit(&member->next);
    buffer_deinit(&member->bytes);
    buffer_deinit(&member->head_bytes);
    buffer_deinit(&member->page_bytes);
    free(member->cards);
    free(member);
}

struct member *member_free(struct member *member)
{
    if (!member)
        return NULL;
    member->backend = backend_free(member->backend);
    uv_close((uv_handle_t *)&member->timer, member_on_closed);
    return NULL;
}
