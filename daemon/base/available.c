#include "daemon/base/available.h"

#include "daemon/base/group_dirs.h"

#include <stdio.h>

enum {
    /* Per cent of the last 10 s in which processes waited for memory: from here on it is worse
     * spent on batches that are loaded ahead. */
    PRESSURE_MOST = 40,
    RESERVE_LEAST_MIB = 8,
};

#define RESERVE_LEAST ((uint64_t)RESERVE_LEAST_MIB << 20)
#define RESERVE_MOST  ((uint64_t)1 << 30)
#define RESERVE_PART  16                  /* of the limit */
#define NO_LIMIT      ((uint64_t)1 << 60) /* v1 has a number for "no limit" */

/* ---- files ---------------------------------------------------------------------------------- */

/* The number behind `key` at the beginning of a line; GROUP_NO_NUMBER. */
static uint64_t available_find(const char *text, const char *key)
{
    size_t len = strlen(key);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0 && (line[len] == ' ' || line[len] == ':'))
            return strtoull(line + len + 1, NULL, 10);
    }
    return GROUP_NO_NUMBER;
}

/* ---- what leaves least ---------------------------------------------------------------------- */

static void available_name_place(struct available *least, const char *dir, const char *name)
{
    char path[PATH_MAX];

    group_join(dir, name, path);
    (void)snprintf(least->place, sizeof least->place, "%.*s", AVAILABLE_PLACE_MAX - 1, path);
}

/* `dir` and `name`: the file that has the limit. */
static void available_consider(struct available *least, uint64_t limit, uint64_t used,
                               const char *dir, const char *name)
{
    uint64_t reserve = max_u64(limit / RESERVE_PART, RESERVE_LEAST);
    uint64_t left = limit > used ? limit - used : 0;

    reserve = min_u64(reserve, RESERVE_MOST);
    least->total = min_u64(least->total, limit);
    left -= min_u64(left, reserve);
    if (left >= least->bytes)
        return;
    least->bytes = left;
    least->limit = limit;
    least->used = used;
    least->reserve = reserve;
    available_name_place(least, dir, name);
}

static void available_consider_pressure(struct available *least, const char *dir, const char *name)
{
    static const char some[] = "some avg10=";
    char text[GROUP_TEXT_MAX];

    if (least->pressure || !group_read_text(dir, name, text) ||
        strncmp(text, some, sizeof some - 1) != 0)
        return;
    unsigned long per_cent = strtoul(text + sizeof some - 1, NULL, 10);
    if (per_cent < PRESSURE_MOST)
        return;
    least->bytes = 0;
    least->pressure = (unsigned)per_cent;
    available_name_place(least, dir, name);
}

/* `idle`: pages of files used only once. Half of the active ones can be reclaimed, too. */
static uint64_t available_reclaimable(const char *dir, const char *idle, const char *busy)
{
    char text[GROUP_TEXT_MAX];

    if (!group_read_text(dir, "/memory.stat", text))
        return 0;
    uint64_t inactive = available_find(text, idle), active = available_find(text, busy);
    return (inactive == GROUP_NO_NUMBER ? 0 : inactive) +
           (active == GROUP_NO_NUMBER ? 0 : active / 2);
}

static void available_consider_unified(struct available *least, const char *dir)
{
    uint64_t max = group_read_number(dir, "/memory.max");
    uint64_t high = group_read_number(dir, "/memory.high");
    uint64_t used = group_read_number(dir, "/memory.current");

    if (min_u64(max, high) != GROUP_NO_NUMBER && used != GROUP_NO_NUMBER) {
        uint64_t files = available_reclaimable(dir, "inactive_file", "active_file");
        available_consider(least, min_u64(max, high), used - min_u64(used, files), dir,
                           max < high ? "/memory.max" : "/memory.high");
    }
    available_consider_pressure(least, dir, "/memory.pressure");
}

static void available_consider_v1(struct available *least, const char *dir)
{
    uint64_t limit = group_read_number(dir, "/memory.limit_in_bytes");
    uint64_t used = group_read_number(dir, "/memory.usage_in_bytes");

    if (limit >= NO_LIMIT || used == GROUP_NO_NUMBER)
        return;
    uint64_t files = available_reclaimable(dir, "total_inactive_file", "total_active_file");
    available_consider(least, limit, used - min_u64(used, files), dir, "/memory.limit_in_bytes");
}

static void available_consider_group(void *least, const char *dir, bool unified)
{
    (unified ? available_consider_unified : available_consider_v1)(least, dir);
}

static void available_consider_machine(struct available *least, const char *root)
{
    char text[GROUP_TEXT_MAX];

    if (!group_read_text(root, "/proc/meminfo", text))
        return;
    uint64_t total = available_find(text, "MemTotal"), left = available_find(text, "MemAvailable");
    if (total != GROUP_NO_NUMBER && left != GROUP_NO_NUMBER)
        available_consider(least, total * 1024, (total - min_u64(total, left)) * 1024,
                           "MemAvailable of ", "/proc/meminfo");
}

void available_read(const char *root, struct available *ret)
{
    *ret = (struct available){.bytes = GROUP_NO_NUMBER, .total = GROUP_NO_NUMBER};
    available_consider_machine(ret, root);
    group_dirs_visit(root, "memory", available_consider_group, ret);
    available_consider_pressure(ret, root, "/proc/pressure/memory");
}
