/* How long a loader's samples are: part of its row in the view `loaders`. */
#include "daemon/serve/views_private.h"

/* The bins from the first to the last that have samples; null: lengths are not known. */
void view_add_lengths(struct row *row, const struct loader *l)
{
    const struct lengths_found *found = loader_lengths(l);
    uint32_t first = 0, end = LENGTHS_BINS;

    while (found && first < end && found->bins[first] == 0)
        first++;
    while (found && end > first && found->bins[end - 1] == 0)
        end--;
    if (!found || first == end) {
        row_null(row, "lengths");
        return;
    }
    struct value *bins = row_list(row, "lengths");
    for (uint32_t i = first; i < end && row->r == 0; i++) {
        struct row inner = row_push(bins);

        row_uint(&inner, "upper", lengths_bin_upper(i));
        row_uint(&inner, "samples", found->bins[i]);
        row->r = inner.r;
    }
}
