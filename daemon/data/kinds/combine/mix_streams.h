/*
 * Iterable datasets mixed by weights: each replica of the mixture reads the replicas of its
 * datasets in the order of daemon/plan/mix_order.h, so that each has its share of any samples of
 * the replica to within one. A dataset that ends begins again, with other seeds; its length need
 * not be known.
 *
 *   MIX_STOP_FIRST  the replica ends at the turn of a dataset that has ended
 *   MIX_STOP_ALL    the same, once all have ended, or lost their weight
 *   MIX_STOP_NEVER  at its part of the epoch's `length`; the next epoch continues the order and
 *                   the schedule, and begins the datasets anew
 *
 * A bad sample uses its turn. A dataset that is empty in a replica, or when it begins again, gives
 * a bad sample at each turn.
 *
 * If some datasets save their state, and the others can skip, so does the mixture:
 * mix_streams_state.c.
 */
#ifndef DL_DATA_MIX_STREAMS_H
#define DL_DATA_MIX_STREAMS_H

#include "daemon/data/kinds/combine/combine.h"
#include "daemon/plan/mix_order.h"
#include "daemon/plan/mix_replica.h"

struct mix_streams {
    struct dataset base;
    struct dataset **parts; /* owned, n of them */
    uint32_t *leaves;       /* owned; datasets before each part, mixtures in this one not counted */
    char *place;            /* owned; in the spec */
    uint32_t n;
    struct mix_schedule schedule; /* its points are owned, and their weights */
    struct mix_point *points;     /* those, to be freed */
    enum mix_stop stop;
    uint64_t length; /* MIX_STOP_NEVER */
};

struct mix_stream {
    struct dataset_iter *it; /* owned; NULL: to be begun */
    uint64_t cycle;          /* how often it has begun again */
    uint64_t count;          /* of its samples in this cycle */
    bool through;            /* it has ended once */
};

struct mix_streams_iter {
    struct dataset_iter base;
    const struct mix_streams *mix; /* borrowed */
    struct replica_params params;  /* without a state */
    struct mix_order order;        /* owned */
    uint64_t first;                /* position of the order where the epoch begins */
    uint64_t end;                  /* samples, if the replica does not end before */
    uint64_t position;             /* samples so far */
    bool ended;
    uint32_t last;              /* part of the last sample */
    struct mix_stream *streams; /* owned; of each part */
};

/* The part's replica in its present cycle, from its first sample, or behind what a state has. */
int _nodiscard_ mix_streams_begin(struct mix_streams_iter *mi, uint32_t i, struct dl_span state,
                                  struct dl_error *err);

/* As dataset_iter_ops.save, where all but the states of the parts is `mi`'s own. */
int mix_streams_save(struct mix_streams_iter *mi, uint8_t *buf, size_t room, size_t *ret_len,
                     enum dataset_state_loss *ret_lost, struct dl_error *err);
/* Of a replica at its beginning; -EINVAL: the state is not one of such a mixture. */
int _nodiscard_ mix_streams_resume(struct mix_streams_iter *mi, struct dl_span state,
                                   struct dl_error *err);

#endif
