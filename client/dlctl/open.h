/* The operand SPEC|NAME of the verbs that read batches from the daemon. */
#ifndef DLCTL_OPEN_H
#define DLCTL_OPEN_H

#include "proto/base.h"

struct dl_client;
struct dl_loader;

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
