#include "daemon/cluster/progress/agree.h"

#include "daemon/base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { AGREE_RETRY_MS = 250 };

struct agreement {
    struct agree_options o;
    char key[BACKEND_KEY_MAX + 1];
    char text[24]; /* of the proposal: as digits, for people who look into the store */
    uint64_t until;
    uv_timer_t retry;
};

static void agree_on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void agree_finish(struct agreement *a, uint64_t number, const struct dl_error *error)
{
    void (*done)(void *, uint64_t, const struct dl_error *) = a->o.done;
    void *owner = a->o.owner;

    uv_close((uv_handle_t *)&a->retry, agree_on_closed);
    done(owner, number, error);
}

static bool agree_read_number(struct dl_span data, uint64_t *ret)
{
    char text[24];
    char *end;

    if (data.len == 0 || data.len >= sizeof text || data.data[0] < '0' || data.data[0] > '9')
        return false;
    memcpy(text, data.data, data.len);
    text[data.len] = '\0';
    errno = 0;
    *ret = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

static void agree_propose(struct agreement *a);

static void agree_on_retry(uv_timer_t *timer)
{
    agree_propose(timer->data);
}

static void agree_on_answer(void *owner, const struct backend_answer *answer)
{
    struct agreement *a = owner;
    struct dl_error error = {0};
    uint64_t number = 0;

    if (answer->status < 0 && uv_hrtime() < a->until) {
        uv_timer_start(&a->retry, agree_on_retry, AGREE_RETRY_MS, 0);
        return;
    }
    if (answer->status < 0) {
        error = *answer->error;
    } else if (!agree_read_number(answer->data, &number)) {
        dl_error_set(&error, EBADMSG, a->key,
                     "the store's value is not a number; something "
                     "else uses this key");
    }
    agree_finish(a, number, error.code ? &error : NULL);
}

static void agree_propose(struct agreement *a)
{
    struct dl_span text = {(const uint8_t *)a->text, strlen(a->text)};

    backend_set(a->o.backend, a->key, 0, text, agree_on_answer, a);
}

struct agreement *agree(const struct agree_options *options)
{
    struct agreement *a = must_alloc(sizeof *a);

    a->o = *options;
    a->until = uv_hrtime() + options->timeout_ns;
    (void)snprintf(a->key, sizeof a->key, "%s", options->key);
    (void)snprintf(a->text, sizeof a->text, "%" PRIu64, options->proposal);
    uv_timer_init(options->loop, &a->retry);
    a->retry.data = a;
    agree_propose(a);
    return a;
}

struct agreement *agree_cancel(struct agreement *a)
{
    if (a)
        uv_close((uv_handle_t *)&a->retry, agree_on_closed);
    return NULL;
}
