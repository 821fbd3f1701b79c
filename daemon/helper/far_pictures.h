/* What is kept decoded (dataset.cache, dataset.shared), and ids of texts (dataset.ids), for all
 * workers of a helper. */
#ifndef DL_HELPER_FAR_PICTURES_H
#define DL_HELPER_FAR_PICTURES_H

#include "daemon/helper/far_worker.h"
#include "proto/spec.h"

/* Before the worker opens the dataset: it gets what the helper, which `asks` leads to, has for it
 * and those inside it. Waits for its answers. One that is refused leaves the worker without: its
 * samples are the same. Negative errno. */
int _nodiscard_ far_pictures_offer(int asks, const struct far_worker *worker,
                                   const struct spec_dataset *dataset);

#endif
