/* What of an accord lies in the store: a line that people can read, and the list. */
#include "daemon/cluster/progress/accord.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { ACCORD_LINE_MAX = 128 };

#define ACCORD_LINE "1 %" PRIu64 " %" PRIu64 " %016" PRIx64 " %" PRIu64 "\n"

void accord_value_deinit(struct accord_value *value)
{
    mix_changes_unref(value->list);
    *value = (struct accord_value){0};
}

static size_t accord_value_line(const struct accord_value *value, char ret[static ACCORD_LINE_MAX])
{
    return (size_t)snprintf(ret, ACCORD_LINE_MAX, ACCORD_LINE, value->number, value->born,
                            value->asker, value->asked);
}

int accord_value_write(const struct accord_value *value, struct dl_buffer *ret)
{
    char line[ACCORD_LINE_MAX];
    int r = buffer_append(ret, line, accord_value_line(value, line));

    return r < 0 ? r : mix_changes_write(value->list, ret);
}

/* There is one way to write each. */
static bool accord_value_take_line(struct dl_span bytes, struct accord_value *ret, size_t *ret_len)
{
    char line[ACCORD_LINE_MAX] = "", again[ACCORD_LINE_MAX];
    char *at = line + strlen("1 ");

    memcpy(line, bytes.data, min_u64(bytes.len, sizeof line - 1));
    if (strncmp(line, "1 ", strlen("1 ")) != 0)
        return false;
    ret->number = strtoull(at, &at, 10);
    ret->born = strtoull(at, &at, 10);
    ret->asker = strtoull(at, &at, 16);
    ret->asked = strtoull(at, &at, 10);
    *ret_len = accord_value_line(ret, again);
    return strncmp(line, again, *ret_len) == 0 && ret->number > 0;
}

int accord_value_read(struct dl_span bytes, struct accord_value *ret)
{
    size_t len;

    *ret = (struct accord_value){0};
    if (bytes.len == 0 || !accord_value_take_line(bytes, ret, &len))
        return -EINVAL;
    return mix_changes_read((struct dl_span){bytes.data + len, bytes.len - len}, &ret->list);
}

void accord_reach_write(uint64_t reach, char ret[static ACCORD_REACH_MAX])
{
    (void)snprintf(ret, ACCORD_REACH_MAX, "%" PRIu64, reach);
}

bool accord_reach_read(struct dl_span text, uint64_t *ret)
{
    char copy[ACCORD_REACH_MAX] = "", again[ACCORD_REACH_MAX];

    if (text.len == 0 || text.len >= sizeof copy)
        return false;
    memcpy(copy, text.data, text.len);
    *ret = strtoull(copy, NULL, 10);
    accord_reach_write(*ret, again);
    return strcmp(copy, again) == 0;
}
