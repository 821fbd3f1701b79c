/*
 * Plug-ins: datasets and collate functions from shared libraries. <dloader-plugin.h>, which they
 * are written against, is the other side and states the contract.
 *
 * A plug-in is loaded only from below env->plugins, links resolved, and only if it can only have
 * been put there by root or the worker's own user: the file belongs to one of them, and neither it
 * nor a directory between it and the allowed one is writable by others. Its code runs as the
 * worker's own: the process is not protected from it. Its results are checked all the same, so that
 * a mistake is an error with the plug-in's name and not a broken batch.
 *
 * Errors have the plug-in's path in err->path, or the place in the spec. Not thread-safe; may block
 * on the disk, and for as long as the plug-in likes.
 */
#ifndef DL_DATA_PLUGIN_H
#define DL_DATA_PLUGIN_H

#include "daemon/data/base/dataset.h"

/* Collating by a plug-in: collate.path, opened with collate.config. `env` is borrowed. */
struct plugin_collate;
int _nodiscard_ plugin_collate_open(const struct spec_collate *spec, const struct data_env *env,
                                    struct plugin_collate **ret, struct dl_error *err);
struct plugin_collate *plugin_collate_close(struct plugin_collate *collate); /* NULL is fine */

/*
 * Makes one batch of samples[0..n), n ≥ 1, in the empty `ret`, which is then laid out as it is. Its
 * leaves lie in the arena of `ret`, in the plug-in, or in the samples. A failure concerns the whole
 * batch.
 */
int _nodiscard_ plugin_collate(struct plugin_collate *collate, const struct sample *samples,
                               const uint64_t *numbers, size_t n, struct sample *ret,
                               struct dl_error *err);

#endif
