/* Linked before what daemon/cluster/rendezvous/rendezvous_release.c has: the formats of a release
 * that is yet to come. What its states are like as bytes is the same but for the number. */
#include "daemon/cluster/rendezvous/rendezvous_state.h"

const struct rdzv_formats RDZV_FORMATS = {.least = LEAST_FORMAT, .greatest = GREATEST_FORMAT};
