/*
 * Clients of the fuzzed daemon: what they say, right or wrong, and what they make of what they are
 * told. One that broke no rule must never be told that it did, nor be hung up on.
 */
#include "tests/fuzz/session_game.h"

#include "proto/fdpass.h"
#include "proto/weight_table.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>

/* ---- what a client is told ------------------------------------------------------------------ */

static struct told_stream *find_stream(const struct client *c, uint64_t id)
{
    for (uint32_t i = 0; i < STREAMS; i++) {
        if (c->streams[i].id == id)
            return (struct told_stream *)&c->streams[i];
    }
    return NULL;
}

static struct told_loader *find_told(struct client *c, uint64_t id)
{
    for (uint32_t i = 0; i < LOADERS; i++) {
        if (c->loaders[i].id == id)
            return &c->loaders[i];
    }
    return NULL;
}

static struct lease *find_lease(struct client *c, uint64_t stream, uint64_t step)
{
    for (uint32_t i = 0; i < HELD; i++) {
        if (c->leases[i].stream == stream && (stream == 0 || c->leases[i].step == step))
            return &c->leases[i];
    }
    return NULL;
}

static uint32_t count_leases(const struct client *c, uint32_t stream, bool pins)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < HELD; i++)
        n += c->leases[i].stream == stream && (pins || !c->leases[i].pinned);
    return n;
}

/* Exchanges one for the other; 0: a free place. */
static void put_segment(struct client *c, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < HELD; i++) {
        if (c->segments[i] == from) {
            c->segments[i] = to;
            return;
        }
    }
    FUZZ_ASSERT(!"a segment is told once, and retired once, and there are few");
}

static bool knows_segment(const struct client *c, uint32_t id)
{
    for (uint32_t i = 0; i < HELD; i++) {
        if (c->segments[i] == id)
            return true;
    }
    return false;
}

static bool shares_rows(const struct lease *lease, const struct dl_descriptor *d)
{
    return lease->first < d->first + d->samples && d->first < lease->first + lease->samples;
}

/*
 * Two ranks of one epoch have other rows of a slot. A rank has them twice if it was stopped with
 * them in its hands and came back.
 */
static bool may_share(const struct told_stream *other, const struct lease *lease,
                      const struct told_stream *stream, const struct dl_descriptor *d)
{
    return game_specs[stream->spec].dispatched && other->spec == stream->spec &&
           other->job == stream->job && other->epoch == stream->epoch &&
           other->world == stream->world && lease->step == d->step &&
           lease->generation == d->generation &&
           (other->rank == stream->rank ? other->stopped : !shares_rows(lease, d));
}

/* Nobody else may have the slot, and the client only once. */
static void check_alone(const struct game *g, const struct told_stream *stream,
                        const struct dl_descriptor *d)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        for (uint32_t k = 0; k < HELD; k++) {
            const struct lease *lease = &g->clients[i].leases[k];
            if (lease->stream == 0 || lease->segment != d->segment || lease->offset != d->offset)
                continue;
            const struct told_stream *other = find_stream(&g->clients[i], lease->stream);
            FUZZ_ASSERT(other && may_share(other, lease, stream, d));
        }
    }
}

static void hear_descriptor(const struct game *g, struct client *c, struct told_stream *stream,
                            const struct dl_descriptor *d)
{
    FUZZ_ASSERT(knows_segment(c, d->segment) && d->samples > 0 && d->samples <= 8);
    FUZZ_ASSERT(d->offset >= SEGMENT_HEADER_BYTES && d->bytes >= SLOT_HEADER_BYTES);
    FUZZ_ASSERT(d->first == 0 || game_specs[stream->spec].dispatched);
    check_alone(g, stream, d);
    FUZZ_ASSERT(stream->any_order || d->step >= stream->next);
    stream->next = d->step + 1;
    if (d->step < 64) {
        FUZZ_ASSERT(!(stream->seen & (uint64_t)1 << d->step));
        stream->seen |= (uint64_t)1 << d->step;
    }
    struct lease *lease = find_lease(c, 0, 0);
    FUZZ_ASSERT(lease);
    *lease = (struct lease){.stream = stream->id,
                            .step = d->step,
                            .offset = d->offset,
                            .generation = d->generation,
                            .segment = d->segment,
                            .first = d->first,
                            .samples = d->samples};
    FUZZ_ASSERT(count_leases(c, stream->id, false) <= stream->credits);
}

static void hear_deliver(const struct game *g, struct client *c, const struct dl_msg_deliver *msg)
{
    struct told_stream *stream = find_stream(c, msg->stream);

    FUZZ_ASSERT(stream && !stream->finished && !stream->stopped);
    for (size_t at = 0; at < msg->descriptors.len; at += sizeof(struct dl_descriptor)) {
        struct dl_descriptor d;
        memcpy(&d, msg->descriptors.data + at, sizeof d);
        hear_descriptor(g, c, stream, &d);
    }
}

/* It takes a credit until it is released, and has no slot. */
static void hear_fault(struct client *c, const struct dl_msg_fault *msg)
{
    struct told_stream *stream = find_stream(c, msg->stream);
    struct lease *lease = find_lease(c, 0, 0);

    FUZZ_ASSERT(stream && !stream->finished && !stream->stopped && lease);
    *lease = (struct lease){.stream = stream->id, .step = msg->step};
    FUZZ_ASSERT(count_leases(c, stream->id, false) <= stream->credits);
}

static void hear_end(struct client *c, uint64_t id)
{
    struct told_stream *stream = find_stream(c, id);

    FUZZ_ASSERT(stream && !stream->finished && !stream->stopped);
    stream->finished = true;
}

static void hear_retired(struct client *c, uint32_t id)
{
    for (uint32_t i = 0; i < HELD; i++)
        FUZZ_ASSERT(c->leases[i].stream == 0 || c->leases[i].segment != id);
    put_segment(c, id, 0);
}

static void hear_opened(struct client *c, const struct dl_msg_opened *msg)
{
    struct told_loader *loader = find_told(c, 0);
    int spec = which_spec((const char *)msg->label.data, msg->label.len);

    FUZZ_ASSERT(loader && !find_told(c, msg->loader)); /* no more are asked for */
    FUZZ_ASSERT(spec >= 0);
    *loader = (struct told_loader){.id = (uint32_t)msg->loader,
                                   .spec = spec,
                                   .credits = msg->credits,
                                   .any_order = !msg->in_order,
                                   .is_fed = spec == 3};
}

static void hear_started(struct client *c, const struct dl_msg_started *msg)
{
    struct told_stream *stream = find_stream(c, 0);

    FUZZ_ASSERT(stream && !find_stream(c, msg->stream));
    *stream = c->starting;
    stream->id = (uint32_t)msg->stream;
    stream->epoch = msg->epoch;
    stream->next = msg->first;
}

static void hear(const struct game *g, struct client *c, const struct dl_message *msg)
{
    switch (msg->number) {
    case DL_MSG_OPENED:
        hear_opened(c, &msg->opened);
        break;
    case DL_MSG_STARTED:
        hear_started(c, &msg->started);
        break;
    case DL_MSG_SEGMENT:
        FUZZ_ASSERT(!knows_segment(c, (uint32_t)msg->segment.id));
        put_segment(c, 0, (uint32_t)msg->segment.id);
        break;
    case DL_MSG_RETIRE:
        hear_retired(c, (uint32_t)msg->retire.id);
        break;
    case DL_MSG_DELIVER:
        hear_deliver(g, c, &msg->deliver);
        break;
    case DL_MSG_FAULT:
        if (msg->fault.final)
            hear_end(c, msg->fault.stream);
        else if (msg->fault.step != UINT64_MAX)
            hear_fault(c, &msg->fault);
        break;
    case DL_MSG_FINISHED:
        hear_end(c, msg->finished.stream);
        break;
    case DL_MSG_ERROR:
        FUZZ_ASSERT(msg->error.request != 0); /* it did nothing wrong */
        break;
    default:
        break;
    }
}

void hang_up(struct client *c)
{
    close_fdp(&c->sock);
    frame_reader_deinit(&c->reader);
    *c = (struct client){.sock = -1};
}

/* From now on it is only listened to for what a message is. */
void break_rules(struct client *c)
{
    c->at_fault = true;
    memset(c->leases, 0, sizeof c->leases);
}

void hear_all(const struct game *g, struct client *c)
{
    while (c->sock >= 0) {
        struct dl_span payload;
        struct dl_message msg;
        struct dl_error err = {0};
        ssize_t n = fdpass_recv(c->sock, &c->reader, MSG_DONTWAIT);
        int r;

        if (n == -EAGAIN)
            return;
        if (n <= 0) {
            FUZZ_ASSERT(c->at_fault); /* nobody else is hung up on */
            hang_up(c);
            return;
        }
        while ((r = frame_reader_next(&c->reader, &payload)) > 0) {
            FUZZ_ASSERT(message_decode(payload.data, payload.len, FROM_DAEMON, &msg, &err) == 0);
            int fd = msg.number == DL_MSG_SEGMENT ? frame_reader_take_fd(&c->reader) : -1;
            FUZZ_ASSERT(msg.number != DL_MSG_SEGMENT || fd >= 0);
            close_fdp(&fd);
            if (!c->at_fault)
                hear(g, c, &msg);
        }
        FUZZ_ASSERT(r == 0);
    }
}

/* ---- what a client does --------------------------------------------------------------------- */

static void say(struct client *c, const struct dl_message *msg)
{
    struct dl_buffer out = {0};

    if (message_encode(msg, &out) == 0)
        (void)!fdpass_send(c->sock, out.data, out.len, NULL, 0, MSG_DONTWAIT);
    buffer_deinit(&out);
    /* HELLO comes first, and once. */
    if (c->hello == (msg->number == DL_MSG_HELLO))
        break_rules(c);
    c->hello = true;
}

static void say_hello(struct client *c, uint8_t version)
{
    if (version > 2)
        break_rules(c);
    say(c, &(struct dl_message){.number = DL_MSG_HELLO,
                                .hello = {.version = version > 2    ? 0
                                                     : version == 2 ? DL_PROTOCOL_OLDEST
                                                                    : DL_PROTOCOL_VERSION,
                                          .agent = span_str("fuzz")}});
}

static void say_open(struct game *g, struct client *c, uint8_t which)
{
    uint32_t spec = which & 0x80 ? OLD_SPECS + (which & 1) : which % OLD_SPECS;

    if ((which & 0xA0) == 0xA0)
        spec = INDEX_SPEC;

    struct value v = {.type = VALUE_STRING, .string = (char *)game_specs[spec].text};
    char name[8];
    struct dl_buffer packed = {0};

    snprintf(name, sizeof name, "s%x", spec);
    if (which & 0x40)
        v.string = name;
    if (c->requests++ >= LOADERS)
        return; /* so that all that it may be told has a place */
    FUZZ_ASSERT(value_pack(&v, &packed) == 0);
    say(c, &(struct dl_message){.number = DL_MSG_OPEN,
                                .open = {.request = c->requests,
                                         .base = span_str("/"),
                                         .spec = {.data = packed.data, .len = packed.len}}});
    buffer_deinit(&packed);
    (void)g;
}

/* Of the job, if it is not '\0'; with `resume` where it has left off. */
static void say_start(struct game *g, struct client *c, uint8_t how, char job, bool resume)
{
    const struct told_loader *loader = &c->loaders[how % LOADERS];
    struct dl_message msg = {.number = DL_MSG_START,
                             .start = {.request = 1,
                                       .loader = loader->id,
                                       .epoch = resume ? EPOCH_RESUME : how >> 3 & 1,
                                       .world = 1 + (how >> 4 & 1),
                                       .rank = how >> 5 & 1,
                                       .credits = how >> 6,
                                       .former_lease = UINT64_MAX,
                                       .job = {(const uint8_t *)&job, job != '\0'}}};

    if (how >= 0xF8) { /* numbers of any size, of any loader */
        msg.start.loader = take(&g->input);
        msg.start.step = take_number(&g->input);
        msg.start.epoch = take_number(&g->input);
        msg.start.former_lease = take_number(&g->input);
        msg.start.priority = take_number(&g->input) % 3;
        loader = find_told(c, msg.start.loader);
    }
    if (!find_stream(c, 0))
        return;
    if (!loader || loader->id == 0)
        break_rules(c);
    else
        c->starting =
            (struct told_stream){.loader = loader->id,
                                 .spec = loader->spec,
                                 .job = job,
                                 .world = msg.start.world,
                                 .rank = msg.start.rank,
                                 .credits = msg.start.credits ? msg.start.credits : loader->credits,
                                 .any_order = loader->any_order,
                                 .is_fed = loader->is_fed};
    say(c, &msg);
}

static void drop_if_over(struct client *c, struct told_stream *stream)
{
    if (stream->stopped && count_leases(c, stream->id, true) == 0)
        *stream = (struct told_stream){0};
}

/* RELEASE or PIN of a lease it has; with `any`, of one that it may not have. */
static void say_lease(struct game *g, struct client *c, bool pin, bool any)
{
    struct lease *lease = &c->leases[take(&g->input) % HELD];
    uint64_t stream = lease->stream;
    uint64_t step = lease->step;

    if (any) {
        stream = take(&g->input);
        step = take_number(&g->input);
        lease = find_lease(c, stream, step);
    }
    if (!any && stream == 0)
        return;
    if (!lease || stream == 0 || (pin && lease->segment == 0))
        break_rules(c);
    const struct dl_span steps = {(const uint8_t *)&step, sizeof step};
    if (pin)
        say(c,
            &(struct dl_message){.number = DL_MSG_PIN, .pin = {.stream = stream, .steps = steps}});
    else
        say(c, &(struct dl_message){
                   .number = DL_MSG_RELEASE,
                   .release = {.stream = stream, .steps = steps, .waited = step << 24}});
    if (c->at_fault)
        return;
    if (pin) {
        lease->pinned = true;
    } else {
        *lease = (struct lease){0};
        drop_if_over(c, find_stream(c, stream));
    }
}

static void stop_told(struct client *c, struct told_stream *stream)
{
    stream->stopped = true;
    drop_if_over(c, stream);
}

static void say_stop(struct game *g, struct client *c, uint8_t how)
{
    struct told_stream *stream = &c->streams[how % STREAMS];
    uint64_t id = how >= 0xF0 ? take(&g->input) : stream->id;

    if (how < 0xF0 && id == 0)
        return;
    stream = find_stream(c, id);
    if (!stream || id == 0)
        break_rules(c);
    say(c, &(struct dl_message){.number = DL_MSG_STOP, .stop = {.stream = id}});
    if (!c->at_fault)
        stop_told(c, stream);
}

static void say_close(struct game *g, struct client *c, uint8_t how)
{
    struct told_loader *loader = &c->loaders[how % LOADERS];
    uint64_t id = how >= 0xF0 ? take(&g->input) : loader->id;

    if (how < 0xF0 && id == 0)
        return;
    loader = find_told(c, id);
    if (!loader || id == 0)
        break_rules(c);
    if (how & 8)
        say(c, &(struct dl_message){.number = DL_MSG_LEAVE, .leave = {.loader = id}});
    else
        say(c, &(struct dl_message){.number = DL_MSG_CLOSE, .close = {.loader = id}});
    for (uint32_t i = 0; !c->at_fault && i < STREAMS; i++) {
        struct told_stream *stream = &c->streams[i];
        if (stream->id == 0 || stream->loader != id)
            continue;
        for (uint32_t k = 0; !(how & 8) && k < HELD; k++) {
            if (c->leases[k].stream == stream->id)
                c->leases[k] = (struct lease){0};
        }
        stop_told(c, stream);
    }
    if (!(how & 8) && !c->at_fault)
        *loader = (struct told_loader){0};
}

/* Only of the loader that is fed, and no more than a batch. */
static void say_feed(struct game *g, struct client *c, uint8_t how)
{
    static const uint64_t indices[8] = {3, 1, 4, 1, 5, 9, 2, 6};
    uint64_t odd[8];
    struct told_stream *stream = &c->streams[how % STREAMS];
    size_t n = how >> 4 & 3;

    if (stream->id == 0)
        return;
    memcpy(odd, indices, sizeof odd);
    if (how & 0x40)
        odd[0] = take_number(&g->input);
    if (stream->fed >= DL_MAX_FEED_AHEAD * stream->credits) /* further it need not be fed */
        return;
    stream->fed++;
    if (!stream->is_fed || n > 3 || (stream->fed_end && !stream->stopped))
        break_rules(c);
    stream->fed_end |= how >> 7;
    say(c, &(struct dl_message){.number = DL_MSG_FEED,
                                .feed = {.stream = stream->id,
                                         .end = how >> 7,
                                         .indices = {(const uint8_t *)odd, n * sizeof *odd}}});
}

enum { TABLE_SAMPLES = 20 }; /* as the weighted loader's dataset has */

/* Weights of the input's bytes, some of which are none, and a memfd of them. */
static int make_table(struct game *g, bool sealed, double *weights)
{
    for (uint32_t i = 0; i < TABLE_SAMPLES; i++) {
        uint8_t byte = take(&g->input);
        weights[i] = byte < 0xF0 ? 1 + byte % 8 : 0xF8 - (double)byte;
    }
    return sealed ? weight_table_memfd(weights, TABLE_SAMPLES)
                  : memfd_create("not sealed", MFD_CLOEXEC);
}

/* TABLE, right or wrong: of another sum or number, not sealed, or without its descriptor. */
static uint64_t say_table(struct game *g, struct client *c, uint8_t how)
{
    enum { GOOD, OTHER_SUM, OTHER_NUMBER, NOT_SEALED, NO_DESCRIPTOR };
    double weights[TABLE_SAMPLES];
    int fd = make_table(g, how != NOT_SEALED, weights);
    uint64_t sum = weight_table_sum(weights, TABLE_SAMPLES) + (how == OTHER_SUM);
    struct dl_buffer out = {0};

    FUZZ_ASSERT(fd >= 0);
    if (how == NO_DESCRIPTOR || !c->hello)
        break_rules(c);
    FUZZ_ASSERT(message_encode(
                    &(struct dl_message){
                        .number = DL_MSG_TABLE,
                        .table = {.samples = TABLE_SAMPLES + (how == OTHER_NUMBER), .sum = sum}},
                    &out) == 0);
    (void)!fdpass_send(c->sock, out.data, out.len, &fd, how != NO_DESCRIPTOR, MSG_DONTWAIT);
    buffer_deinit(&out);
    close_fdp(&fd);
    c->hello = true;
    return sum;
}

/* For the next START alone, or with WEIGHTS: of a loader that has them, or none, from a step of an
 * epoch on; or with other weights of the mixture. */
static void say_changes(struct game *g, struct client *c, uint8_t how)
{
    uint8_t what = take(&g->input);
    uint64_t step = take_number(&g->input), epoch = what & 8 ? UINT64_MAX : what >> 4 & 1;
    struct dl_span loader = span_str(what & 0x40 ? "s0" : "sb");

    if (what & 0x80) { /* {"0": 2} */
        say(c, &(struct dl_message){.number = DL_MSG_MIX,
                                    .mix = {.request = 1,
                                            .loader = span_str("sc"),
                                            .epoch = epoch,
                                            .step = step,
                                            .weights = span_str("\x81\xa1"
                                                                "0\x02")}});
        return;
    }
    uint64_t sum = say_table(g, c, what & 7);
    if (c->sock >= 0 && !(how & 0x40))
        say(c, &(struct dl_message){
                   .number = DL_MSG_WEIGHTS,
                   .weights = {
                       .request = 1, .loader = loader, .epoch = epoch, .step = step, .sum = sum}});
}

static void say_other(struct game *g, struct client *c, uint8_t how)
{
    struct dl_message msg = {
        .number = DL_MSG_QUERY,
        .query = {.request = 1, .view = span_str(how & 8 ? "x" : "ring"), .row = how >> 7}};
    const uint8_t *raw;
    size_t len;

    switch (how & 7) {
    case 0:
        say(c, &msg);
        break;
    case 1:
        if ((how & 0x88) == 0x88) {
            say_changes(g, c, how);
            break;
        }
        msg = (struct dl_message){.number = DL_MSG_CONTROL,
                                  .control = {.request = 1, .verb = span_str("stop")}};
        if (how & 8)
            msg = (struct dl_message){
                .number = DL_MSG_HEADSPACE,
                .headspace = {.request = 1, .loader = span_str("s0"), .steps = how >> 4}};
        if ((how & 0x18) == 0x18)
            msg = (struct dl_message){
                .number = DL_MSG_RESIZE,
                .resize = {.request = 1, .loader = span_str("s0"), .workers = how >> 5}};
        if (how & 0x80) /* {"0": 1} */
            msg = (struct dl_message){.number = DL_MSG_MIX,
                                      .mix = {.request = 1,
                                              .loader = span_str("s0"),
                                              .step = how >> 4,
                                              .weights = span_str("\x81\xa1"
                                                                  "0\x01")}};
        say(c, &msg);
        break;
    case 2: /* without its descriptor */
        break_rules(c);
        say(c, &(struct dl_message){.number = DL_MSG_HOST, .host = {.host = how}});
        break;
    case 3: /* what only a daemon says */
        break_rules(c);
        say(c, &(struct dl_message){.number = DL_MSG_RETIRE, .retire = {.id = how}});
        break;
    case 4: /* bytes */
        break_rules(c);
        raw = take_bytes(&g->input, how >> 4, &len);
        (void)!fdpass_send(c->sock, raw, len, NULL, 0, MSG_DONTWAIT);
        break;
    case 5:
        (void)shutdown(c->sock, SHUT_WR);
        break_rules(c);
        break;
    case 6:
        say_start(g, c, take(&g->input), "xy"[how >> 3 & 1], how >> 4 & 1);
        break;
    default:
        hang_up(c);
        break;
    }
}

void play_client(struct game *g, struct client *c, uint8_t event)
{
    uint8_t how = take(&g->input);

    if (event == 0) {
        connect_client(g, c);
        return;
    }
    if (c->sock < 0)
        return;
    switch (event) {
    case 1:
        say_hello(c, how);
        break;
    case 2:
        say_open(g, c, how);
        break;
    case 3:
        say_start(g, c, how, '\0', false);
        break;
    case 4:
        say_lease(g, c, false, how >= 0xF0);
        break;
    case 5:
        say_lease(g, c, true, how >= 0xF0);
        break;
    case 6:
        say_stop(g, c, how);
        break;
    case 7:
        say_close(g, c, how);
        break;
    case 8:
        say_feed(g, c, how);
        break;
    default:
        say_other(g, c, how);
        break;
    }
}
