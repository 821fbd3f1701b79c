/* What the verbs that ask the daemon share: a session for as long as one runs, and its views. */
#ifndef DLCTL_ASK_H
#define DLCTL_ASK_H

#include "client/dlclient.h"
#include "client/dlctl/options.h"
#include "proto/value.h"

/* As dl_client_connect(). */
int _nodiscard_ ask_connect(const struct options *o, struct dl_client **ret);
void ask_end(struct dl_client **client); /* for _cleanup_ */

/* One view; *ret is zeroed before the call. As dl_client_query(), or as value_unpack(). */
int _nodiscard_ ask_view(struct dl_client *client, const char *view, struct value *ret);

#endif
