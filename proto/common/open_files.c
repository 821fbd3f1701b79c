#include "proto/common/open_files.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

const char *open_files_remedy(int code, char buffer[OPEN_FILES_REMEDY_MAX])
{
    struct rlimit limit;

    buffer[0] = '\0';
    if (code == ENFILE)
        (void)snprintf(buffer, OPEN_FILES_REMEDY_MAX,
                       "; the system has reached fs.file-max: raise it by sysctl");
    else if (code == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        (void)snprintf(buffer, OPEN_FILES_REMEDY_MAX,
                       "; RLIMIT_NOFILE of process %d is %llu: raise it by ulimit -n, or by "
                       "LimitNOFILE= in its unit",
                       (int)getpid(), (unsigned long long)limit.rlim_cur);
    return buffer;
}
