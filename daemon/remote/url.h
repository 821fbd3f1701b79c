/* The parts of an http or https URL that the place and the settings read. Pure. */
#ifndef DL_REMOTE_URL_H
#define DL_REMOTE_URL_H

#include "proto/common/base.h"

struct url_parts {
    char *origin; /* owned: scheme and host in small letters, without the scheme's own port */
    const char
        *rest; /* borrowed from the URL: what follows the authority; "" or from "/", "?", "#" */
};

/* NULL: done. Else what is wrong, in words that finish "URL: …"; "" is: out of memory. */
const char *url_split(const char *url, struct url_parts *ret);

#endif
