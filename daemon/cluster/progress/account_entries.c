/* What nodes tell each other of samples that are left out, as text. */
#include "daemon/cluster/progress/account.h"

#include "daemon/base/memory.h"

#include "proto/common/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { ACCOUNT_LINE_MAX = 256 };

static void account_put(struct dl_buffer *out, const char *text)
{
    must_append(out, text, strlen(text));
}

static void account_put_point(struct dl_buffer *out, const char *word,
                              const struct progress_point *point)
{
    account_put(out, word);
    progress_point_write(point, out);
}

void account_begin(const struct progress_point *ended, struct dl_buffer *out)
{
    account_put(out, "1\n");
    account_put_point(out, "ended", ended);
}

void account_add(const struct account_entry *entry, struct dl_buffer *out)
{
    const struct account_absence *what = &entry->what;
    char line[ACCOUNT_LINE_MAX];

    (void)snprintf(line, sizeof line, "gone %" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n",
                   entry->id, what->first, what->local, what->world, what->node);
    account_put(out, line);
    account_put_point(out, "from", &what->from);
    if (what->has_to)
        account_put_point(out, "to", &what->to);
    if (entry->said) {
        (void)snprintf(line, sizeof line, "said %" PRIu64 "\n", entry->said_epoch);
        account_put(out, line);
    }
}

/* ---- reading: it is a stranger's ------------------------------------------------------------ */

static bool account_take_number(const char **at, int base, uint64_t *ret)
{
    char first = **at, *end;
    bool digit = (first >= '0' && first <= '9') || (base == 16 && first >= 'a' && first <= 'f');

    if (!digit)
        return false;
    errno = 0;
    *ret = strtoull(*at, &end, base);
    *at = end;
    return errno == 0 && (**at == ' ' || **at == '\n');
}

/* To the end of the line, which has to fit, and can be shown. */
static bool account_take_name(const char **at, char *ret, size_t size)
{
    const char *end = strchr(*at, '\n');
    size_t len = end ? (size_t)(end - *at) : 0;

    if (len == 0 || len >= size || !utf8_text((const uint8_t *)*at, len))
        return false;
    for (size_t i = 0; i < len; i++)
        if ((uint8_t)(*at)[i] < 0x20 || (*at)[i] == 0x7f)
            return false;
    memcpy(ret, *at, len);
    ret[len] = '\0';
    *at = end + 1;
    return true;
}

static bool account_take_ranks(const char **at, struct account_absence *ret)
{
    uint64_t *const numbers[] = {&ret->first, &ret->local, &ret->world};

    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        if (!progress_take_text(at, " ") || !account_take_number(at, 10, numbers[i]) ||
            *numbers[i] > DL_MAX_WORLD_SIZE)
            return false;
    return ret->local > 0 && ret->first + ret->local <= ret->world;
}

bool account_read_begin(const char **at, struct progress_point *ret_ended)
{
    return progress_take_text(at, "1\nended") && progress_point_read(at, ret_ended);
}

bool account_read_next(const char **at, struct account_entry *ret)
{
    struct account_absence *what = &ret->what;

    *ret = (struct account_entry){0};
    if (!progress_take_text(at, "gone ") || !account_take_number(at, 16, &ret->id) ||
        ret->id == 0 || !account_take_ranks(at, what) || !progress_take_text(at, " ") ||
        !account_take_name(at, what->node, sizeof what->node) || !progress_take_text(at, "from") ||
        !progress_point_read(at, &what->from))
        return false;
    what->has_to = progress_take_text(at, "to");
    if (what->has_to && !progress_point_read(at, &what->to))
        return false;
    ret->said = progress_take_text(at, "said ");
    return !ret->said ||
           (account_take_number(at, 10, &ret->said_epoch) && progress_take_text(at, "\n"));
}
