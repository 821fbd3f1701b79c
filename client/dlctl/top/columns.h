/* The columns of each kind of row. The first of each but top_loader_columns is the loader's name:
 * there is no need for it where all are of one. */
#ifndef DLCTL_TOP_COLUMNS_H
#define DLCTL_TOP_COLUMNS_H

#include "client/dlctl/top/model.h"
#include "client/dlctl/top/table.h"

extern const struct top_column top_loader_columns[], top_epoch_columns[], top_rank_columns[],
    top_worker_columns[];
extern const int top_loader_columns_n, top_epoch_columns_n, top_rank_columns_n,
    top_worker_columns_n;

/* How a verdict looks. */
enum top_look top_verdict_look(const char *verdict);

#endif
