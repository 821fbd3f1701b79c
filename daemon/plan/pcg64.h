/*
 * NumPy's default generator: the draws of numpy.random.default_rng(seed), an integer, from any
 * position on. That is PCG64 (O'Neill's pcg_setseq_128_xsl_rr_64) whose state is derived from the
 * seed by numpy.random.SeedSequence (O'Neill's seed_seq_fe with a pool of four words). NumPy
 * promises that bit generators keep their draws (NEP 19). Pure. Not thread-safe.
 */
#ifndef DL_PLAN_PCG64_H
#define DL_PLAN_PCG64_H

#include "proto/common/base.h"

struct pcg64 {
    unsigned __int128 state;
    unsigned __int128 increment; /* odd */
};

void pcg64_init(struct pcg64 *generator, uint64_t seed);
void pcg64_skip(struct pcg64 *generator, uint64_t draws); /* in up to 64 steps */
uint64_t pcg64_next(struct pcg64 *generator);

#endif
