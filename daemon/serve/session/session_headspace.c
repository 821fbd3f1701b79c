/* A request for a loader's headspace: the answer takes a while. */
#include "daemon/base/row.h"
#include "daemon/serve/session/session_private.h"

#include <errno.h>

int session_ask_headspace(struct session *s, const struct dl_msg_headspace *msg,
                          struct dl_error *err)
{
    _cleanup_free_ char *name = span_dup(msg->loader);
    struct loader *loader = NULL;

    if (s->asker.loader)
        return dl_error_set(err, EBUSY, "headspace",
                            "this session already has such a request pending");
    if (msg->steps == 0)
        return dl_error_set(err, EINVAL, "steps", "give 1 step or more to measure");
    int r = s->o.events->find_open(s->o.context, s, name, &loader, err);
    if (r == 0)
        r = loader_headspace(loader, &s->asker, (uint32_t)msg->steps, err);
    if (r == 0)
        s->asker_request = msg->request;
    return r;
}

static void session_headspace_add_spread(struct row *row, const char *key,
                                         const struct headspace_spread *spread)
{
    struct row inner = row_under(row, key);

    row_real(&inner, "mean_s", spread->mean_ns / 1e9);
    row_real(&inner, "quarter_s", spread->quartile_ns[0] / 1e9);
    row_real(&inner, "half_s", spread->quartile_ns[1] / 1e9);
    row_real(&inner, "three_quarters_s", spread->quartile_ns[2] / 1e9);
    row->r = inner.r;
}

static int session_headspace_tell_all(struct value *ret, const struct headspace_result *result)
{
    struct row row = row_begin(ret);
    char words[HEADSPACE_WORDS];

    headspace_words(result, words);
    row_string(&row, "headspace", words);
    row_real(&row, "speedup", result->speedup);
    row_real(&row, "by_waiting", result->by_waiting);
    row_uint(&row, "steps", result->steps);
    row_uint(&row, "watched_steps", result->watched);
    row_uint(&row, "ranks", result->ranks);
    row_uint(&row, "bursts", result->bursts);
    row_real(&row, "ahead", result->ahead);
    session_headspace_add_spread(&row, "as_is", &result->as_is);
    session_headspace_add_spread(&row, "perfect", &result->perfect);
    return row.r;
}

void session_measured(struct headspace_asker *asker, const struct headspace_result *result,
                      const struct dl_error *err)
{
    struct session *s = container_of(asker, struct session, asker);
    _cleanup_(value_deinit) struct value v = {0};
    struct dl_error failed = {0};
    int r = 0;

    if (!err && session_headspace_tell_all(&v, result) < 0)
        r = dl_error_set(&failed, ENOMEM, "headspace", "out of memory");
    else if (!err)
        r = session_send_info(s, s->asker_request, &v, &failed);
    if (err || r < 0)
        session_send_error(s, s->asker_request, err ? err : &failed);
}
