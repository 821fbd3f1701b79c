/*
 * The two orders of a shuffled epoch, each a permutation of 0..length-1.
 *
 * permute_torch is torch.randperm(length, generator=g) for g = torch.Generator().manual_seed(seed),
 * replayed only as far as asked; past the end of one permutation come the next ones from the same
 * g, as RandomSampler draws them. permute_native is a keyed permutation that computes any element
 * by itself. Both are pure functions of their parameters; neither is thread-safe (permute_native_at
 * is: it changes nothing).
 */
#ifndef DL_PLAN_PERMUTE_H
#define DL_PLAN_PERMUTE_H

#include "proto/common/base.h"

/*
 * From this length on, torch ≥ 2.0 shuffles with 64-bit draws and an algorithm whose first element
 * is known only at the end. Earlier versions had no such threshold.
 */
#define PERMUTE_TORCH_INSIDE_OUT_FROM UINT64_C(214748364)

struct permute_torch;

/*
 * `elements`: how many are wanted, of one permutation or several in a row; 0 if length is 0.
 * `inside_out_from` is PERMUTE_TORCH_INSIDE_OUT_FROM; tests lower it. At most 2^32 - 1.
 * Reserves 4 bytes of address space for each element of whole permutations, 8 in the inside-out
 * algorithm; memory is used as the shuffle proceeds. Returns 0 or -ENOMEM.
 */
int _nodiscard_ permute_torch_new(uint64_t length, uint64_t elements, uint64_t seed,
                                  uint64_t inside_out_from, struct permute_torch **ret);
struct permute_torch *permute_torch_free(struct permute_torch *perm); /* NULL is fine */

/* Of memory, when all is shuffled. */
uint64_t permute_torch_bytes(const struct permute_torch *perm);

/* Samples still to be shuffled before elements 0..end-1 are known. end ≤ elements. */
uint64_t permute_torch_missing(const struct permute_torch *perm, uint64_t end);

/* Shuffles until elements 0..end-1 are known. end ≤ elements. */
void permute_torch_extend(struct permute_torch *perm, uint64_t end);

/* i must lie below the largest `end` that permute_torch_extend() has had. */
uint64_t permute_torch_at(const struct permute_torch *perm, uint64_t i);

enum { PERMUTE_NATIVE_ROUNDS = 8 };

struct permute_native {
    uint64_t length;
    uint64_t tops;     /* values of an index's upper part: it lies in [0, tops) */
    unsigned low_bits; /* width of its lower part */
    struct {
        uint64_t add;
        uint64_t multiply; /* odd */
    } keys[PERMUTE_NATIVE_ROUNDS];
};

/* length < 2^63. Permutations of different lengths, seeds, epochs or cycles have nothing in common.
 */
void permute_native_init(struct permute_native *perm, uint64_t length, uint64_t seed,
                         uint64_t epoch, uint64_t cycle);

/* i < length. */
uint64_t permute_native_at(const struct permute_native *perm, uint64_t i);

/* The same of each of indices[0..n), in its place: several at a time, in a fraction of the time. */
void permute_native_many(const struct permute_native *perm, uint64_t *indices, size_t n);

#endif
