/*
 * Whether all nodes of a round are newcomers. Each says in the store of every round whether it
 * knows of any loader where an earlier round began. If none does, no daemon knows how far any rank
 * is, as after a restart of all of them, and what their ranks' clients say is all there is.
 *
 * Few have to know: those that ask read what all have said, and the first node, which removes what
 * earlier daemons have left there.
 */
#include "daemon/serve/base/memory.h"
#include "daemon/serve/world/shared_loader_private.h"

#include <stdio.h>
#include <utlist.h>

static const char NEWCOMERS_NEW[] = "new", NEWCOMERS_OLD[] = "old";

struct newcomers_word {
    struct newcomers_word *prev, *next; /* members.newcomers_words */
    struct members *members;
    struct allgather *allgather;
    uint64_t round;
    bool asks;
    uint32_t n; /* nodes */
};

static bool newcomers_are_all_of(const struct newcomers_word *word, const struct dl_span *values)
{
    for (uint32_t i = 0; i < word->n; i++)
        if (values[i].len != strlen(NEWCOMERS_NEW) ||
            memcmp(values[i].data, NEWCOMERS_NEW, values[i].len) != 0)
            return false;
    return true;
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
    free(word);
    if (counts && !m->ending)
        m->events->changed(m->context);
}

static void newcomers_say(struct members *m, bool asks)
{
    _cleanup_free_ struct allgather_node *nodes = must_alloc(m->n_nodes * sizeof *nodes);
    struct newcomers_word *word = must_alloc(sizeof *word);
    const char *text = m->is_newcomer ? NEWCOMERS_NEW : NEWCOMERS_OLD;
    char key[BACKEND_KEY_MAX];

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
                                        .value = {(const uint8_t *)text, strlen(text)},
                                        .timeout_ns = m->join_ns,
                                        .sums = m->sums,
                                        .done = newcomers_on_gathered,
                                        .owner = word};
    word->allgather = allgather_start(&options);
}

void newcomers_enter_round(struct members *m)
{
    const struct shared_loader *shared;

    m->is_newcomer = true;
    DL_FOREACH (m->shared_loaders, shared)
        if (progress_latest(&shared->progress))
            m->is_newcomer = false;
    m->newcomers = m->is_newcomer ? NEWCOMERS_UNKNOWN : NEWCOMERS_NOT_ALL;
    newcomers_say(m, m->self == 0);
}

bool newcomers_are_all(struct members *m)
{
    const struct newcomers_word *word;

    if (m->newcomers != NEWCOMERS_UNKNOWN)
        return m->newcomers == NEWCOMERS_ALL;
    DL_FOREACH (m->newcomers_words, word)
        if (word->asks && word->round == m->round)
            return false;
    newcomers_say(m, true);
    return false;
}

void newcomers_deinit(struct members *m)
{
    struct newcomers_word *word, *next;

    DL_FOREACH_SAFE (m->newcomers_words, word, next) {
        DL_DELETE(m->newcomers_words, word);
        allgather_cancel(word->allgather);
        free(word);
    }
}
