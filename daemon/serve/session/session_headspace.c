/* A session that asks how much faster a loader's trainers could be: the answer takes a while. */
#include "daemon/serve/session/session_private.h"

#include <errno.h>

int session_ask_headspace(struct session *s, const struct dl_msg_headspace *msg,
                          struct dl_error *err)
{
    _cleanup_free_ char *name = span_dup(msg->loader);
    struct loader *loader = NULL;

    if (s->asker.loader)
        return dl_error_set(err, EBUSY, "headspace",
                            "this session waits for another answer to that already");
    if (msg->steps == 0)
        return dl_error_set(err, EINVAL, "steps", "it takes 1 step or more to measure");
    int r = s->o.events->find_open(s->o.context, s, name, &loader, err);
    if (r == 0)
        r = loader_headspace(loader, &s->asker, (uint32_t)msg->steps, err);
    if (r == 0)
        s->asker_request = msg->request;
    return r;
}

static int set_seconds(struct value *map, const char *key, double ns)
{
    return value_set_float(map, key, ns / 1e9);
}

static int set_spread(struct value *map, const char *key, const struct headspace_spread *spread)
{
    struct value *inner;
    int r = value_set(map, key, &inner);

    if (r < 0)
        return r;
    inner->type = VALUE_MAP;
    if ((r = set_seconds(inner, "mean_s", spread->mean_ns)) < 0 ||
        (r = set_seconds(inner, "quarter_s", spread->quartile_ns[0])) < 0 ||
        (r = set_seconds(inner, "half_s", spread->quartile_ns[1])) < 0)
        return r;
    return set_seconds(inner, "three_quarters_s", spread->quartile_ns[2]);
}

static int set_all(struct value *map, const struct headspace_result *result)
{
    char words[HEADSPACE_WORDS];
    int r;

    headspace_words(result, words);
    if ((r = value_set_string(map, "headspace", words)) < 0 ||
        (r = value_set_float(map, "speedup", result->speedup)) < 0 ||
        (r = value_set_float(map, "by_waiting", result->by_waiting)) < 0 ||
        (r = value_set_uint(map, "steps", result->steps)) < 0 ||
        (r = value_set_uint(map, "watched_steps", result->watched)) < 0 ||
        (r = value_set_uint(map, "ranks", result->ranks)) < 0 ||
        (r = value_set_uint(map, "bursts", result->bursts)) < 0 ||
        (r = value_set_float(map, "ahead", result->ahead)) < 0 ||
        (r = set_spread(map, "as_is", &result->as_is)) < 0)
        return r;
    return set_spread(map, "perfect", &result->perfect);
}

void session_measured(struct headspace_asker *asker, const struct headspace_result *result,
                      const struct dl_error *err)
{
    struct session *s = container_of(asker, struct session, asker);
    _cleanup_(value_deinit)
    struct value v = {.type = VALUE_MAP};
    struct dl_error failed = {0};
    int r = 0;

    if (!err && set_all(&v, result) < 0)
        r = dl_error_set(&failed, ENOMEM, "headspace", "out of memory");
    else if (!err)
        r = session_send_info(s, s->asker_request, &v, &failed);
    if (err || r < 0)
        session_send_error(s, s->asker_request, err ? err : &failed);
}
