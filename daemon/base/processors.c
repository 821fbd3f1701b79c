#include "daemon/base/processors.h"

#include "daemon/base/group_dirs.h"

#include <sched.h>
#include <stdlib.h>

enum { MOST = 4096 }; /* processors of a machine, as the kernel has it at most */

/* "max 100000", or "50000 100000": µs of processor time in each period of µs; v1 has two files, and
 * -1 for no limit. */
static bool processors_read_quota(const char *dir, bool unified, double *ret_us, double *ret_of_us)
{
    char text[GROUP_TEXT_MAX], *rest;

    if (unified) {
        if (!group_read_text(dir, "/cpu.max", text))
            return false;
        *ret_us = (double)strtoull(text, &rest, 10);
        *ret_of_us = (double)strtoull(rest, NULL, 10);
        return rest != text;
    }
    *ret_us = (double)group_read_number(dir, "/cpu.cfs_quota_us");
    *ret_of_us = (double)group_read_number(dir, "/cpu.cfs_period_us");
    return *ret_us < (double)GROUP_NO_NUMBER && *ret_of_us < (double)GROUP_NO_NUMBER;
}

static void processors_consider(void *least, const char *dir, bool unified)
{
    double us, of_us, *cpus = least;

    if (processors_read_quota(dir, unified, &us, &of_us) && us > 0 && of_us > 0 &&
        us / of_us < *cpus)
        *cpus = us / of_us;
}

static double processors_allowed(void)
{
    cpu_set_t *set = CPU_ALLOC(MOST);
    int n = 0;

    if (set && sched_getaffinity(0, CPU_ALLOC_SIZE(MOST), set) == 0)
        n = CPU_COUNT_S(CPU_ALLOC_SIZE(MOST), set);
    CPU_FREE(set);
    return n > 0 ? n : 1;
}

double processors_read(const char *root)
{
    double cpus = processors_allowed();

    group_dirs_visit(root, "cpu", processors_consider, &cpus);
    return cpus;
}
