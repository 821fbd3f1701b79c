/*
 * What the nodes of a round know of earlier ones. Each says in the store of every round of which
 * loaders it knows where an earlier round began; that it is new, if of none. A node that knows
 * nothing of a loader reports nothing of it before one of its ranks asks, and that rank may wait
 * for others in a collective: so no node waits for such a report as long as another one knows. If
 * none does, no daemon knows how far any rank is, as after a restart of all of them, and what their
 * ranks' clients say is all there is.
 *
 * Few have to read it: those that ask, and the first node, which removes what earlier daemons have
 * left there.
 */
#include "daemon/base/memory.h"
#include "daemon/cluster/world/shared_loader_private.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <utlist.h>
#include <xxhash.h>

static const char NEWCOMERS_NEW[] = "new", NEWCOMERS_OLD[] = "old";

struct newcomers_word {
    struct newcomers_word *prev, *next; /* members.newcomers_words */
    struct members *members;
    struct allgather *allgather;
    uint64_t round;
    bool asks;
    uint32_t n; /* nodes */
};

static bool newcomers_is_new(struct dl_span said)
{
    return said.len == strlen(NEWCOMERS_NEW) && memcmp(said.data, NEWCOMERS_NEW, said.len) == 0;
}

static bool newcomers_are_all_of(const struct newcomers_word *word, const struct dl_span *values)
{
    for (uint32_t i = 0; i < word->n; i++)
        if (!newcomers_is_new(values[i]))
            return false;
    return true;
}

static void newcomers_forget(struct members *m)
{
    for (uint32_t i = 0; i < m->n_said; i++)
        buffer_deinit(&m->said[i]);
    free(m->said);
    m->said = NULL;
    m->n_said = 0;
}

static void newcomers_keep(struct members *m, const struct dl_span *values, uint32_t n)
{
    newcomers_forget(m);
    m->said = must_alloc(n * sizeof *m->said);
    m->n_said = n;
    for (uint32_t i = 0; i < n; i++) {
        m->said[i] = (struct dl_buffer){0};
        must_append(&m->said[i], values[i].data, values[i].len);
    }
}

/* " " and a number by which a loader is known. */
enum { NEWCOMERS_LOADER = 17 };

static void newcomers_name(const char *key, char ret[static NEWCOMERS_LOADER + 1])
{
    (void)snprintf(ret, NEWCOMERS_LOADER + 1, " %016" PRIx64, XXH3_64bits(key, strlen(key)));
}

/* If not all have said it in time, somebody may know. */
static void newcomers_on_gathered(void *owner, const struct dl_span *values,
                                  const struct dl_error *error)
{
    struct newcomers_word *word = owner;
    struct members *m = word->members;
    bool counts = word->asks && word->round == m->round;

    DL_DELETE(m->newcomers_words, word);
    if (counts)
        m->newcomers =
            !error && newcomers_are_all_of(word, values) ? NEWCOMERS_ALL : NEWCOMERS_NOT_ALL;
    if (counts && !error)
        newcomers_keep(m, values, word->n);
    free(word);
    if (!counts || m->ending)
        return;
    shared_loaders_publish(m);
    m->events->changed(m->context);
}

static void newcomers_write(const struct members *m, struct dl_buffer *out)
{
    const struct shared_loader *shared;
    char name[NEWCOMERS_LOADER + 1];

    must_append(out, m->is_newcomer ? NEWCOMERS_NEW : NEWCOMERS_OLD,
                strlen(m->is_newcomer ? NEWCOMERS_NEW : NEWCOMERS_OLD));
    DL_FOREACH (m->shared_loaders, shared) {
        if (!progress_latest(&shared->progress))
            continue;
        newcomers_name(shared->key, name);
        must_append(out, name, NEWCOMERS_LOADER);
    }
}

static void newcomers_say(struct members *m, bool asks)
{
    _cleanup_free_ struct allgather_node *nodes = must_alloc(m->n_nodes * sizeof *nodes);
    struct newcomers_word *word = must_alloc(sizeof *word);
    _cleanup_(buffer_deinit) struct dl_buffer text = {0};
    char key[BACKEND_KEY_MAX];

    must_append(&text, m->word.data, m->word.len);
    (void)snprintf(key, sizeof key, "newcomers/%s", m->id);
    memcpy(nodes, m->nodes, m->n_nodes * sizeof *nodes);
    for (uint32_t i = 0; i < m->n_nodes; i++)
        nodes[i].wanted = asks;
    *word = (struct newcomers_word){.members = m, .round = m->round, .asks = asks, .n = m->n_nodes};
    DL_APPEND(m->newcomers_words, word);
    struct allgather_options options = {.loop = m->loop,
                                        .backend = m->backend,
                                        .key = key,
                                        .round = m->round,
                                        .nodes = nodes,
                                        .n = m->n_nodes,
                                        .self = m->self,
                                        .value = {text.data, text.len},
                                        .timeout_ns = m->join_ns,
                                        .sums = m->sums,
                                        .done = newcomers_on_gathered,
                                        .owner = word};
    word->allgather = allgather_start(&options);
}

void newcomers_enter_round(struct members *m, bool wanted)
{
    const struct shared_loader *shared;

    m->is_newcomer = true;
    DL_FOREACH (m->shared_loaders, shared)
        if (progress_latest(&shared->progress))
            m->is_newcomer = false;
    m->newcomers = NEWCOMERS_UNKNOWN;
    newcomers_forget(m);
    m->word.len = 0;
    newcomers_write(m, &m->word);
    newcomers_say(m, m->self == 0 || (wanted && !m->shared_loaders));
}

void newcomers_republish(struct members *m)
{
    if (m->state == MEMBERS_IN && m->word.len > 0)
        newcomers_say(m, false);
}

bool newcomers_are_heard(struct members *m)
{
    const struct newcomers_word *word;

    if (m->newcomers != NEWCOMERS_UNKNOWN)
        return true;
    DL_FOREACH (m->newcomers_words, word)
        if (word->asks && word->round == m->round)
            return false;
    newcomers_say(m, true);
    return false;
}

bool newcomers_are_all(struct members *m)
{
    return m->is_newcomer && newcomers_are_heard(m) && m->newcomers == NEWCOMERS_ALL;
}

/* An earlier release says no more than that it is not new. */
bool newcomers_knows(const struct members *m, uint32_t node, const char *key)
{
    char name[NEWCOMERS_LOADER + 1];

    assert(m->newcomers != NEWCOMERS_UNKNOWN);
    if (node >= m->n_said)
        return true;
    const struct dl_span said = {m->said[node].data, m->said[node].len};
    newcomers_name(key, name);
    return !newcomers_is_new(said) && (said.len <= strlen(NEWCOMERS_OLD) ||
                                       memmem(said.data, said.len, name, NEWCOMERS_LOADER));
}

void newcomers_deinit(struct members *m)
{
    struct newcomers_word *word, *next;

    newcomers_forget(m);
    buffer_deinit(&m->word);
    DL_FOREACH_SAFE (m->newcomers_words, word, next) {
        DL_DELETE(m->newcomers_words, word);
        allgather_cancel(word->allgather);
        free(word);
    }
}
