/*
 * Batches of tokens without a length pass: `batch: {tokens: …, lengths: lazy}`.
 *
 * Batches of tokens otherwise need every length before step 0. Here the order is cut into *windows*
 * of a fixed number of samples, `tokens.lazy`, and a window's rows are packed as soon as its own
 * lengths are known. So the first step waits for one window, however long the epoch is.
 *
 * The rule. Window w is positions w · lazy … (w + 1) · lazy − 1 of the sampler's order: any of them
 * is found without those before. Its samples, and those that the window before has left, are packed
 * as in plan_tokens.h: the longest first, each into the row with the least room for it. The
 * emptiest of the rows is not a row yet: its samples begin the next window, so that no row is half
 * empty where a window ends. The last window keeps all, and so does the last of each LAZY_CHAIN.
 * The other rows are shuffled, keyed by seed, epoch and w. `fill` says otherwise: with first fit
 * each sample of the order goes into the first row of the window with room for it; with next fit a
 * row ends where the next sample has no room, and with cut that sample goes on in the next row: of
 * these two the last row begins the next window, and nothing is shuffled.
 *
 * Without `pack` a row is a whole padded batch of one rank. With `sorted` a window is sorted by
 * length, and cut from the shortest on, as many samples as fit; with `bucket` each bucket's samples
 * by themselves, tokens div P(U) in each; with `in turn` in the order, and nothing is shuffled.
 * What does not fill a batch begins the next window, but for the same windows as above: there it is
 * cut by length, across buckets. So batches of one step need not be of one bucket: which rows are a
 * step depends on the world, but a row does not. All have at most `tokens`.
 *
 * Rows, one window's behind the other's, are a sequence that depends on the order and the lengths
 * alone: not on the world, the workers, or who measured what, and when. Step k of all ranks is rows
 * base + k · G … base + (k + 1) · G − 1, where G = world · tokens / row_length (world without
 * `pack`) and `base` is what other world sizes took before, each G of its own a step. So ranks have
 * equally many steps without a word between them, a change of the world deals the same rows in the
 * same order, and how many rows the windows had so far (the *journal*: `made.rows` and, of each
 * window, where they end) says where any step lies. At the end of the epoch the rows that do not
 * fill a step are emitted or dropped as elsewhere.
 *
 * A mixture by tokens. How many samples of each child a window has depends on their lengths: at
 * each position comes the child that is furthest behind of its share of all tokens before
 * (sampler_mix_tokens.c), not of an estimate. So at each window's end each child has had its share
 * to within about the longest sample, but for samples that begin the next window. Positions cannot
 * be found without those before, and the only mark is the beginning.
 *
 * Nothing here measures. The caller asks which samples the next window has, puts their lengths in
 * place, and has the window cut; the loader (serve/loader/loader_windows.c) does so one window
 * ahead of the steps that are being made. plan_prepare() does all of it at once, where all lengths
 * are known: with a cache of lengths, without a daemon, and in `dlctl`. The plan is the same.
 *
 * To resume at step k is to cut the windows up to it again: 0.1 µs a sample where their lengths are
 * known, else they are measured once more, and not one behind them is. A *mark* shortens that: the
 * first window of a chain, to which none before it has left anything, and how many rows those have.
 * A plan that is given a mark begins there, and has the steps from then on. It is what a state
 * needs of all that lies before it.
 */
#ifndef DL_PLAN_LAZY_H
#define DL_PLAN_LAZY_H

#include "proto/history.h"

struct plan;
struct mix_changes;

enum { LAZY_CHAIN = 16 /* windows that leave each other samples; marks are multiples of it */ };

/* Whether it is cut window by window: not by plan_prepare(), but by the functions below. */
bool plan_is_lazy(const struct plan *plan);

/* In place of plan_prepare(): 0, or -ENOMEM. A window is cut after another from then on, and steps
 * are those of the windows that were cut: plan_steps() of them. */
int _nodiscard_ plan_begin(struct plan *plan);

/* The last mark at or before that step, which was cut. */
struct lazy_mark plan_mark(const struct plan *plan, uint64_t step);

/* The first step that a plan of these parameters has, because of its mark. */
struct plan_params;
uint64_t plan_first_step(const struct plan_params *params);

/*
 * Weights of a mixture that change while it is read (mix_changes.h), where all epochs are one order
 * (MIX_STOP_NEVER). plan_change(): from position plan_known() on, at most, those of that list,
 * whose changes before it are the plan's; what was cut stays. 0, or -EINVAL or -ENOMEM, and nothing
 * has changed. A change that is ahead is placed by the plan itself, where the first window begins
 * that has no row before the change's: at the same position for every world, worker and resume.
 * plan_changes_now() is then another list.
 */
int _nodiscard_ plan_change(struct plan *plan, struct mix_changes *changes);
struct mix_changes *plan_changes_now(const struct plan *plan);
uint64_t plan_known(const struct plan *plan); /* positions of the epoch that cannot change */

/* The first row of that step of all ranks; and how many the windows so far have, those before a
 * mark among them. */
uint64_t plan_row(const struct plan *plan, uint64_t step);
uint64_t plan_rows_so_far(const struct plan *plan);

/* Every window was cut: the epoch has no further steps. */
bool plan_is_whole(const struct plan *plan);

/* Windows that were cut, or lie before the mark; and the steps there were before the last one of
 * them. */
uint64_t plan_windows(const struct plan *plan);
uint64_t plan_steps_before_window(const struct plan *plan);

/* The samples whose lengths plan_cut_window() needs, to `ret`, which has room for `tokens.lazy` of
 * them: those of the next window, in order, or some of a mixture's. How many; 0: the plan is whole.
 */
size_t plan_window(struct plan *plan, uint64_t *ret);

/* Their lengths are in place: cuts the next window; or, of a mixture by tokens, none yet, where
 * more lengths show to be needed. 0, or -ENOMEM. About 0.1 µs a sample. */
int _nodiscard_ plan_cut_window(struct plan *plan);

#endif
