/* Of its own, so that a test can link a daemon of another release. */
#include "daemon/cluster/rendezvous/rendezvous_state.h"

const struct rdzv_formats RDZV_FORMATS = {.least = 2, .greatest = 4};
