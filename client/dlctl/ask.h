/* What the verbs that ask the daemon share: a session for as long as one runs, its views, and the
 * operand SPEC|NAME of those that read batches. */
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

/* Leaves only the rows of a view whose `key` is this loader's name; and whose user is `uid`, where
 * both are known; `uid`: NULL: of all users. */
void ask_keep_loader(struct value *view, const char *key, const char *name,
                     const struct value *uid);

/* The end of a verb that asked one thing: what that returned, and the answer, which `print` shows
 * where it is not to be JSON. Returns an exit status. */
int ask_show(const struct options *o, struct dl_client *client, int r, struct dl_span answer,
             void (*print)(const struct value *view));

/* True: a spec file, there or missing; false: the name of a loader. */
bool operand_is_file(const char *operand);

/*
 * Opens a spec file, there or missing, or else the loader that is open under this name: see
 * dlctl(1) for what tells them apart. *ret is the client's. A negative errno as dl_loader_open().
 */
int _nodiscard_ open_operand(struct dl_client *client, const char *operand, struct dl_loader **ret);

/* The loader of that name alone, which stands in quotes: "train.py: a" is a mapping else. */
int _nodiscard_ open_name(struct dl_client *client, const char *name, struct dl_loader **ret);

#endif
