#include "daemon/serve/pool/sandbox.h"

#include <stdio.h>

enum sandbox_level sandbox_choose(const struct config *config, bool python, bool private,
                                  bool foreign)
{
    if (config->sandbox == CONFIG_SANDBOX_OFF)
        return SANDBOX_OFF;
    if (config->sandbox == CONFIG_SANDBOX_STRICT || !python || foreign)
        return SANDBOX_FULL;
    return private ? SANDBOX_OFF : SANDBOX_LIGHT;
}

void sandbox_describe(uint32_t parts, char ret[SANDBOX_WORDS])
{
    static const char *const words[] = {"calls", "files", "network", "signals"};
    size_t at = (size_t)snprintf(ret, SANDBOX_WORDS, "%s", parts ? "" : "off");

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (parts & 1u << i)
            at += (size_t)snprintf(ret + at, SANDBOX_WORDS - at, "%s%s", at ? ", " : "", words[i]);
    }
}

const char *sandbox_complaint(enum sandbox_level level, uint32_t parts)
{
    bool calls = parts & SANDBOX_CALLS;
    bool files = level != SANDBOX_FULL || parts & SANDBOX_FILES;

    if (level == SANDBOX_OFF || (calls && files))
        return NULL;
    if (calls)
        return "workers can read everything that the daemon can: this kernel has no Landlock";
    if (files)
        return "workers can make any system call: dloader-worker is without libseccomp "
               "(libseccomp2 of Debian, libseccomp of Fedora), or this kernel has no seccomp";
    return "workers are not confined: this kernel has no Landlock, and dloader-worker is "
           "without libseccomp (libseccomp2 of Debian, libseccomp of Fedora), or the kernel has "
           "no seccomp either";
}
