/*
 * Bad samples of a batch: those that their dataset refused while workers.on_error lets the batch
 * continue without them. The worker lists them behind the batch's last leaf; the daemon, or a
 * client that loads in its own process, reads and counts them. Pure.
 */
#ifndef DL_SLOT_BAD_H
#define DL_SLOT_BAD_H

#include "proto/common/error.h"
#include "proto/segment_layout.h"

enum {
    SLOT_BAD_MAX = 64, /* listed of one batch; the others are only counted */
    SLOT_BAD_TEXT = 496,
};

struct slot_bad {
    uint64_t index;    /* the sample; of an iterable dataset its number in the replica */
    uint32_t code;     /* positive errno */
    uint32_t position; /* its planned place in the task */
    char text[SLOT_BAD_TEXT];
};
_Static_assert(sizeof(struct slot_bad) == 512, "the slot layout is fixed");

struct bad_list {           /* all zero: empty */
    struct slot_bad *items; /* owned; min(n, SLOT_BAD_MAX) of them */
    uint32_t n;
};

/* Adds a sample with the error in `err`; 0, or -ENOMEM. */
int _nodiscard_ bad_list_add(struct bad_list *list, uint64_t index, uint64_t position,
                             const struct dl_error *err);
uint32_t bad_list_listed(const struct bad_list *list);
/*
 * How many of the last `tail` of a task's `planned` samples are in its batch, where bad ones are
 * left out. Those that are not listed are taken to be of the tail: it may be one too few then.
 */
uint32_t bad_list_left(const struct bad_list *list, uint32_t planned, uint32_t tail);
void bad_list_clear(struct bad_list *list); /* empty again; keeps its memory */
void bad_list_deinit(struct bad_list *list);

/* "samples 3: no such file; 9: ..." for a task that lost all its samples; cut to `len`. */
void bad_list_words(const struct bad_list *list, char *text, size_t len);

/*
 * Puts the list behind *used bytes of the slot and moves *used to its end. False if the slot is too
 * small; *used is then the size needed. An empty list takes no room.
 */
bool _nodiscard_ slot_put_bad(void *slot, uint64_t slot_bytes, const struct bad_list *list,
                              uint64_t *used);

/* The most room that a list needs in a slot, besides its batch. */
static inline uint64_t slot_bad_bytes(void)
{
    return SLOT_ALIGN + SLOT_BAD_MAX * sizeof(struct slot_bad);
}

/*
 * Copies the list out of the slot in which its batch was made: 0, -EINVAL (damaged or impossible),
 * -ENOMEM. Texts end with a NUL; their content is untrusted.
 */
int _nodiscard_ slot_read_bad(const void *slot, uint64_t slot_bytes, struct bad_list *ret);

#endif
