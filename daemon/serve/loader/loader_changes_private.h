/* What loader_changes.c shares with loader_reach.c and loader_shared_changes.c. */
#ifndef DL_LOADER_CHANGES_PRIVATE_H
#define DL_LOADER_CHANGES_PRIVATE_H

#include "daemon/serve/loader/loader_private.h"

/* ---- loader_reach.c: how far it is read, and plans by another list */

bool changes_are_of_samples(const struct loader *loader);
/* Positions of an epoch. */
uint64_t changes_length(const struct loader *loader);
/* Each epoch has its own order, whose length depends on the weights. */
bool changes_count_epochs(const struct loader *loader);
/* An epoch is planned as a whole, or ranks know its length: weights change only with the next. */
bool changes_need_epochs(const struct loader *loader);
/* Its order is cut window by window, and all epochs are one: weights change behind what is cut. */
bool changes_go_by_windows(const struct loader *loader);
/* Where an epoch begins; those beyond all orders begin at their end. */
uint64_t changes_begin(const struct loader *loader, uint64_t epoch);
/* Where a step of all ranks begins in the order. */
uint64_t changes_position(const struct loader *loader, const struct plan *plan, uint64_t epoch,
                          uint64_t step);
/* It has a client, or one may come back; or it loads for such streams. */
bool changes_is_read(const struct stream *stream);
/* Behind all that the stream has planned. */
uint64_t changes_planned(const struct loader *loader, const struct stream *stream);
struct changes_reach {
    const struct stream *last;     /* of the latest epoch that is read; or NULL */
    const struct stream *furthest; /* whose plan `end` is of, where it goes by windows; or NULL */
    uint64_t end;                  /* positions before this one are planned */
    uint64_t rows;  /* and of that plan's epoch rows before this one; or readers have had them, and
                       windows are yet to be cut again up to there */
    uint64_t ranks; /* streams with a client, or parked */
};

/* Of a loader that goes by windows, the list's change that is ahead has its position in that epoch,
 * or other plans are to learn of it. */
void changes_take_placed(struct loader *loader, struct epoch *epoch);

struct changes_reach changes_look(const struct loader *loader);
/* The list has changed, and why: for the log, and for the clients. */
void changes_tell(struct loader *loader, const char *why);
/* All that is planned lies before what differs. */
int changes_set(struct loader *loader, struct mix_changes *list, struct dl_error *err);

/* ---- loader_changes.c */

int changes_check_kind(const struct loader *loader, bool of_samples, struct dl_error *err);
/* The first step of the plan at or behind the position; the number of steps if no step is. */
uint64_t changes_first_step(const struct loader *loader, const struct plan *plan, uint64_t epoch,
                            uint64_t position);
/* Where the first possible step is: in the epoch that is read, or at the beginning of a later one.
 */
void changes_find_first(const struct loader *loader, const struct changes_reach *reach,
                        struct loader_change *change);
/* Finds the position of the requested step. */
int changes_find_step(struct loader *loader, const struct changes_reach *reach,
                      struct loader_change *change, struct dl_error *err);
int changes_say_planned(const struct loader_change *change, const struct loader_change *first,
                        struct dl_error *err);
int changes_place(struct loader *loader, const struct changes_reach *reach,
                  struct loader_change *change, struct dl_error *err);
/* Drops expected streams, which may have planned beyond. */
void changes_drop_expected(struct loader *loader, uint64_t position);
/* Drops tables of epochs that are no longer read: they are large. A client that reads one again
 * brings them. */
void changes_let_go(struct loader *loader);
/* The list with that change, counted, by which its epoch can be planned. */
int changes_make_list(const struct loader *loader, const struct mix_changes *before,
                      const struct loader_change *change, struct mix_changes **ret,
                      struct dl_error *err);
/* Checks what depends only on the loader and its readers. */
int changes_check_wanted(const struct loader *loader, const struct loader_change *change,
                         struct changes_reach *ret, struct dl_error *err);
int changes_check_list(const struct loader *loader, const struct mix_changes *list,
                       struct dl_error *err);
bool changes_has_readers(const struct loader *loader);
/* Where the stream that is about to start begins. */
int changes_find_start(struct loader *loader, const struct stream_params *params, uint64_t *ret,
                       struct dl_error *err);

#endif
