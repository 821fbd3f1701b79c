/*
 * OPEN: its spec is read once, a long one by a thread, and nothing else of the session is heard
 * meanwhile. What other nodes, or a look at files, have to be waited for keeps what was read.
 */
#include "daemon/base/blame.h"
#include "daemon/base/memory.h"
#include "daemon/serve/session/session_private.h"

#include "proto/yaml.h"

#include <assert.h>
#include <errno.h>

#include <utlist.h>

enum { READ_AT_ONCE = 4096 }; /* bytes of a spec: a third of a millisecond */

struct opening {
    struct session *session; /* NULL: it has ended meanwhile */
    struct crew_job job;
    uint64_t blame; /* base/blame.h */
    uint64_t request;
    uint64_t seed;
    bool seeded;
    bool writable, automatic;
    char *base; /* owned */
    struct loader_wanted wanted;
    struct own_batches own;
    int r; /* of reading; then `why` */
    struct dl_error why;
    size_t len;
    uint8_t packed[];
};

static struct opening *session_open_copy(struct session *s, const struct dl_msg_open *msg)
{
    struct opening *opening = must_alloc(sizeof *opening + msg->spec.len);

    opening->session = s;
    opening->blame = blame_at();
    opening->request = msg->request;
    opening->seed = msg->seed;
    opening->seeded = msg->seeded;
    opening->writable = msg->writable;
    opening->automatic = msg->automatic;
    opening->base = must_have(span_dup(msg->base));
    opening->len = msg->spec.len;
    memcpy(opening->packed, msg->spec.data, msg->spec.len);
    return opening;
}

struct opening *opening_free(struct opening *opening)
{
    if (!opening)
        return NULL;
    free(opening->base);
    free(opening->wanted.name);
    spec_deinit(&opening->wanted.spec);
    free(opening);
    return NULL;
}

size_t opening_bytes(const struct opening *opening)
{
    return sizeof *opening + 2 * opening->len; /* with what was read of it */
}

/* ---- reading it, by a thread or not ---------------------------------------------------------- */

/* The spec as a value: a mapping as it is, text parsed. A plain string is a loader's name. */
static int session_open_parse(const struct opening *opening, struct value *ret,
                              struct dl_error *err)
{
    _cleanup_(value_deinit) struct value v = {0};
    int r = value_unpack(opening->packed, opening->len, &v, err);

    if (r == 0 && v.type == VALUE_STRING)
        return yaml_parse(v.string, strlen(v.string), "spec", ret, err);
    if (r == 0) {
        *ret = v;
        v = (struct value){0};
    }
    return r;
}

/* What the spec leaves to its client: a word, or (NULL) true. */
static int session_open_add(struct value *spec, const char *section, const char *key,
                            const char *word, struct dl_error *err)
{
    const struct value *said = spec->type == VALUE_MAP ? value_get(spec, section) : NULL;
    struct value *place;

    if (spec->type != VALUE_MAP || (said && (said->type != VALUE_MAP || value_get(said, key))))
        return 0; /* it is a name, sets it itself, or will be refused */
    struct value copy = {.type = VALUE_MAP};
    int r = said ? value_copy(said, &copy) : 0;
    if (r == 0)
        r = word ? value_set_string(&copy, key, word) : value_set_bool(&copy, key, true);
    if (r == 0 && (r = value_set(spec, section, &place)) == 0)
        value_move(&copy, place);
    value_deinit(&copy);
    return r < 0 ? dl_error_set(err, -r, "", "out of memory") : 0;
}

static int session_open_ask_writable(struct value *spec, struct dl_error *err)
{
    const struct value *shard = value_get(spec, "shard");
    const struct value *replicas = value_get(shard, "replicas");
    const struct value *window = value_get(value_get(spec, "share"), "window");

    if ((replicas && value_real(replicas) > 1) || (window && value_real(window) > 0))
        return 0; /* one would read what another has written */
    return session_open_add(spec, "memory", "writable", NULL, err);
}

/* The loader's spec is the one that jobs of other batch sizes have, too. */
static int session_open_take_common(struct opening *opening, struct dl_error *err)
{
    struct dl_spec *spec = &opening->wanted.spec;
    struct own_batches *own = &opening->own;

    if (!spec->share_size)
        return 0;
    own->slices = (struct slices){.n = (uint32_t)(spec->share_size / spec->batch_size),
                                  .size = (uint32_t)spec->batch_size,
                                  .drop_last = spec->drop_last};
    if (spec_fingerprint(spec, &own->fingerprint) < 0 || spec_parts(spec, own->parts) < 0)
        return dl_error_set(err, ENOMEM, "", "out of memory");
    *spec = spec_common(spec);
    return 0;
}

static int session_open_understand(struct opening *opening, struct dl_error *err)
{
    _cleanup_(value_deinit) struct value v = {0};
    int r = session_open_parse(opening, &v, err);

    if (r == 0 && opening->writable)
        r = session_open_ask_writable(&v, err);
    if (r == 0 && opening->automatic)
        r = session_open_add(&v, "workers", "count", "auto", err);
    if (r < 0)
        return r;
    if (v.type == VALUE_STRING) {
        opening->wanted.name = steal_ptr(v.string);
        return 0;
    }
    opening->wanted.named = value_get(&v, "name") != NULL;
    r = spec_from_value(&v, opening->base, &opening->wanted.spec, err);
    return r < 0 ? r : session_open_take_common(opening, err);
}

static void session_open_read(struct crew_job *job)
{
    struct opening *opening = container_of(job, struct opening, job);

    opening->r = session_open_understand(opening, &opening->why);
}

/* ---- the result ------------------------------------------------------------------------------ */

const struct dl_error *opening_waits(const struct opening *opening, const char **ret_name)
{
    if (opening->r < 0 || opening->why.code == 0)
        return NULL;
    *ret_name = opening->wanted.spec.name;
    return &opening->why;
}

/* For room, or (code 0) for what is not known yet. */
static void session_open_note_wait(const struct session *s, struct opening *opening,
                                   const struct dl_error *why)
{
    bool waited = opening->why.code != 0;

    opening->why = *why;
    if (why->code != 0 && !waited)
        log_loader(LOG_INFO, opening->wanted.spec.name, s->who.uid,
                   "%s: waits to be opened: %s: %s", opening->wanted.spec.name, why->path,
                   why->message);
}

int session_try_opening(struct session *s, struct opening *opening, uint64_t asked,
                        struct dl_error *err)
{
    BLAMING(opening->blame);
    struct loader *loader;
    int r = opening->r;

    if (r < 0)
        *err = opening->why;
    else
        r = s->o.events->find_loader(s->o.context, s, &opening->wanted,
                                     opening->seeded ? &opening->seed : NULL, asked, &loader, err);
    if (r < 0)
        session_send_error(s, opening->request, err);
    if (r == 1)
        session_open_note_wait(s, opening, err);
    if (r != 0)
        return r == 1;
    struct opened *opened = must_alloc(sizeof *opened);
    opened->session = s;
    opened->id = ++s->next_id;
    opened->request = opening->request;
    opened->own = opening->own;
    HASH_ADD(hh, s->opened, id, sizeof opened->id, opened);
    loader_share_pictures(loader, &s->pictures);
    loader_attach(loader, &opened->user);
    return 0;
}

/* Consumes what was read. 0, or negative with `err`: a violation. */
static int session_open_go_on(struct session *s, struct opening *opening, struct dl_error *err)
{
    struct dl_error refused = {0};
    uint64_t asked = uv_hrtime();

    if (session_try_opening(s, opening, asked, &refused) == 1)
        return session_keep_opening(s, opening, asked, err);
    opening_free(opening);
    return 0;
}

static void session_open_on_read(struct crew_job *job)
{
    struct opening *opening = container_of(job, struct opening, job);
    struct session *s = opening->session;
    struct dl_error err = {0};

    if (!s) {
        opening_free(opening);
        return;
    }
    assert(s->opening == opening);
    s->opening = NULL;
    if (s->ending) {
        opening_free(opening);
        return;
    }
    if (session_open_go_on(s, opening, &err) < 0)
        session_violates(s, &err);
    if (!s->ending)
        session_pump(s);
    session_flush(s);
    peer_mute(&s->peer, false);
}

int session_open(struct session *s, const struct dl_msg_open *msg, struct dl_error *err)
{
    if (HASH_COUNT(s->opened) >= DL_MAX_SESSION_LOADERS) {
        dl_error_set(err, EDQUOT, "loader",
                     "this session has %llu open, the most allowed; close some first",
                     (ull)DL_MAX_SESSION_LOADERS);
        session_send_error(s, msg->request, err);
        return 0;
    }
    struct opening *opening = session_open_copy(s, msg);
    if (msg->spec.len <= READ_AT_ONCE) {
        session_open_read(&opening->job);
        return session_open_go_on(s, opening, err);
    }
    assert(!s->opening); /* nothing is heard meanwhile */
    s->opening = opening;
    peer_mute(&s->peer, true);
    crew_start(s->o.crew, s->who.uid, &opening->job, session_open_read, session_open_on_read);
    return 0;
}

void session_forget_opening(struct session *s)
{
    struct opening *opening = steal_ptr(s->opening);

    if (opening && crew_cancel(&opening->job))
        opening_free(opening);
    else if (opening)
        opening->session = NULL; /* freed when it is read */
}
