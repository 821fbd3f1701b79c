/* Times as servers write them, into seconds since 1970. Pure. */
#ifndef DL_REMOTE_DATE_H
#define DL_REMOTE_DATE_H

#include "proto/common/bytes.h"

/* "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, 5.6.7; no other form of it is sent any more); -1: it
 * is none. */
int64_t date_of_http(struct dl_span text);

/* "2009-10-12T17:50:30.000Z" (ISO 8601, in UTC, what is less than a second left out); -1: it is
 * none. */
int64_t date_of_iso(struct dl_span text);

#endif
