#include "daemon/base/memory.h"
#include "daemon/cluster/world/members_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Reads without news after which it asks the next node in front. */
enum { SIGHTS_SAME_MAX = 4, SIGHTS_LINE_BYTES = 64 };

static bool sights_are_told(const struct members *m)
{
    return m->state == MEMBERS_IN && m->sums && m->n_nodes > SIGHTS_NODES_MAX;
}

static void sights_key(const struct members *m, uint32_t whose, char ret[static BACKEND_KEY_MAX])
{
    (void)snprintf(ret, BACKEND_KEY_MAX, "sight/%s/%" PRIu32, m->id, whose);
}

/* ---- told ----------------------------------------------------------------------------------- */

static void sights_on_told(void *owner, const struct backend_answer *answer)
{
    struct members *m = owner;

    m->sights.telling = false;
    if (answer->status == 0)
        m->sights.token = answer->token;
}

static void sights_add_line(struct dl_buffer *out, const char *what, uint64_t number)
{
    char line[SIGHTS_LINE_BYTES];
    int len = snprintf(line, sizeof line, "%s %016" PRIx64 "\n", what, number);

    must_append(out, line, (size_t)len);
}

/* Lines such as "look 00000000000000c8", by which it is another each time, and then, of each node
 * that is late, "late 0f52a1b2c3d4e5f6". */
static void sights_write(const struct members *m, struct dl_buffer *out)
{
    uint32_t late = 0;

    sights_add_line(out, "by", member_id(m->member));
    sights_add_line(out, "look", m->sights.told);
    for (uint32_t i = 0; i < m->n_nodes; i++)
        if (i != m->self && members_watch_is_late(m, m->nodes[i].id) && late++ <= SIGHTS_LATE_MAX)
            sights_add_line(out, "late", m->nodes[i].id);
}

void sights_tick(struct members *m)
{
    struct sights *s = &m->sights;
    uint64_t looked_ns = member_looked_ns(m->member);
    _cleanup_(buffer_deinit) struct dl_buffer text = {0};
    char key[BACKEND_KEY_MAX];

    if (!sights_are_told(m) || m->self >= RDZV_FRONT || !m->shared_loaders || s->telling ||
        looked_ns == s->told_ns)
        return;
    s->telling = true;
    s->told_ns = looked_ns;
    s->told++;
    sights_write(m, &text);
    sights_key(m, m->self, key);
    backend_set(m->backend, key, s->token, (struct dl_span){text.data, text.len}, sights_on_told,
                m);
}

/* ---- read ----------------------------------------------------------------------------------- */

/* Of that node in front nothing was read. */
static void sights_turn_to(struct sights *s, uint32_t whose)
{
    s->whose = whose;
    s->same = 0;
    s->read_ns = 0;
    s->text.len = 0;
}

void sights_enter_round(struct members *m)
{
    sights_turn_to(&m->sights, 0);
    m->sights.seen_ns = 0;
    m->sights.token = 0; /* the key may be another */
}

static bool sights_take_line(const char **at, const char *what, uint64_t *ret)
{
    size_t len = strlen(what);
    char *end;

    if (strncmp(*at, what, len) != 0 || (*at)[len] != ' ')
        return false;
    *ret = strtoull(*at + len + 1, &end, 16);
    if (end != *at + len + 1 + 16 || *end != '\n')
        return false;
    *at = end + 1;
    return true;
}

static bool sights_read(struct sights *s, struct dl_span data)
{
    _cleanup_free_ char *text = data.len > 0 ? span_dup(data) : NULL;
    const char *at = text;
    uint64_t number;
    uint32_t n = 0;

    if (!text || !sights_take_line(&at, "by", &number) || !sights_take_line(&at, "look", &number))
        return false;
    for (; sights_take_line(&at, "late", &number); n++)
        if (n < SIGHTS_LATE_MAX)
            s->late[n] = number;
    s->n_late = n;
    return *at == '\0';
}

/* What is another than at the last read was written since that was asked for. */
static void sights_take(struct sights *s, struct dl_span data)
{
    bool same = s->read_ns > 0 && data.len == s->text.len &&
                (data.len == 0 || memcmp(data.data, s->text.data, data.len) == 0);
    uint64_t before_ns = s->read_ns;

    s->read_ns = s->asked_ns;
    if (same && ++s->same == SIGHTS_SAME_MAX)
        sights_turn_to(s, s->whose + 1);
    if (same)
        return;
    s->same = 0;
    s->text.len = 0;
    must_append(&s->text, data.data, data.len);
    if (before_ns > 0 && sights_read(s, data))
        s->seen_ns = before_ns;
}

static void sights_on_read(void *owner, const struct backend_answer *answer)
{
    struct members *m = owner;
    uint64_t before_ns = m->sights.seen_ns;

    m->sights.asking = false;
    if (answer->status < 0)
        return;
    sights_take(&m->sights, answer->data);
    if (m->sights.seen_ns != before_ns && !m->ending)
        m->events->changed(m->context);
}

void sights_ask(struct members *m)
{
    struct sights *s = &m->sights;
    uint64_t now = uv_hrtime();
    char key[BACKEND_KEY_MAX];

    if (!sights_are_told(m) || m->self < RDZV_FRONT || s->whose >= RDZV_FRONT) {
        if (now - member_looked_ns(m->member) > m->poll_ns)
            member_look(m->member);
        return;
    }
    if (s->asking || now - s->asked_ns < m->poll_ns)
        return;
    s->asking = true;
    s->asked_ns = now;
    sights_key(m, s->whose, key);
    backend_get(m->backend, key, sights_on_read, m);
}

uint64_t sights_seen_ns(const struct members *m)
{
    return m->sights.seen_ns;
}

bool sights_is_late(const struct members *m, uint64_t id)
{
    const struct sights *s = &m->sights;

    for (uint32_t i = 0; i < s->n_late && i < SIGHTS_LATE_MAX; i++)
        if (s->late[i] == id)
            return true;
    return s->n_late > SIGHTS_LATE_MAX;
}

void sights_deinit(struct members *m)
{
    buffer_deinit(&m->sights.text);
}
