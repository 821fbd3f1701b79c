/* What `peek` found in one batch, and how it is told: one JSON object or lines for people. */
#ifndef DLCTL_CONTENTS_H
#define DLCTL_CONTENTS_H

#include "client/dlclient.h"
#include "client/dlctl/batch/element.h"
#include "client/dlctl/batch/pickle.h"
#include "client/dlctl/batch/stats.h"
#include <stdio.h>

enum {
    CONTENTS_TEXT = 256, /* bytes kept of each string at most */
    CONTENTS_DIMS = 8,
};

/* How a string or bytes begin. */
struct text_start {
    uint64_t nbytes; /* of all of it */
    uint32_t kept;
    char bytes[CONTENTS_TEXT];
};

/* A leaf, an object, or an empty container. */
struct content {
    char *path; /* owned; keys and positions joined by dots, "" for the batch itself */
    enum dl_node_kind kind;
    uint32_t dtype; /* of a tensor */
    uint32_t ndim;  /* of a tensor; of text 1 for a list, 0 for a single one */
    uint64_t shape[CONTENTS_DIMS];
    uint64_t nbytes;         /* of a tensor, of all text; of an object's pickle */
    uint32_t tensors;        /* of an object: those that follow, which its pickle refers to */
    char type[PICKLE_CLASS]; /* of an object: its class, or "" */
    bool has_stats;
    struct stats stats;
    struct element *elements; /* owned; the first ones of a tensor, row by row */
    struct text_start *texts; /* owned; the first ones of text */
    uint64_t n_values;        /* in either */
};

struct contents {
    char *name; /* owned; of the loader */
    uint64_t seed;
    uint64_t epoch;
    uint64_t step;
    uint64_t rank;
    uint64_t world;
    bool fed;          /* the order is the client's, so that dlctl chose the samples */
    uint64_t *indices; /* owned */
    size_t samples;
    uint64_t nbytes;
    struct content *nodes; /* owned; in preorder */
    size_t n_nodes;
};

void contents_deinit(struct contents *c);

/* Adds a node of that kind; valid until the next one is added. NULL when out of memory. */
struct content *contents_add(struct contents *c, const char *path, enum dl_node_kind kind);

/* At most `values` indices are printed; in JSON all. */
void contents_print(FILE *file, const struct contents *c, uint64_t values);
json_t *contents_json(const struct contents *c); /* NULL when out of memory */

#endif
