#include "daemon/serve/base/journal.h"

#include <errno.h>

#if HAVE_SYSTEMD

#include <stdio.h>
#include <sys/stat.h>

#define SD_JOURNAL_SUPPRESS_LOCATION /* it would be this file's, always */
#include <systemd/sd-journal.h>

bool journal_is_stderr(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    char ours[64];
    struct stat st;

    if (!stream || fstat(STDERR_FILENO, &st) < 0)
        return false;
    snprintf(ours, sizeof ours, "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    return strcmp(stream, ours) == 0;
}

int journal_send(const struct iovec *fields, int n)
{
    return sd_journal_sendv(fields, n);
}

#else

bool journal_is_stderr(void)
{
    return false;
}

int journal_send(const struct iovec *fields, int n)
{
    (void)fields, (void)n;
    return -ENOSYS;
}

#endif
