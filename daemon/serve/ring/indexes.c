#include "daemon/serve/ring/indexes.h"

#include "daemon/base/memory.h"
#include "proto/common/sealed.h"

#include <errno.h>

static bool index_list_has_one(const struct spec_dataset *dataset)
{
    return dataset->kind == DATASET_IMAGEFOLDER || dataset->kind == DATASET_AUDIOFOLDER ||
           dataset->kind == DATASET_TFRECORD || dataset->kind == DATASET_FILES ||
           (dataset->kind == DATASET_TAR && dataset->index == INDEX_AUTO);
}

uint32_t index_list_wanted(const struct spec_dataset *dataset)
{
    uint32_t n = index_list_has_one(dataset);

    for (uint32_t i = 0; i < dataset->n_datasets; i++)
        n += index_list_wanted(&dataset->datasets[i]);
    return n;
}

static bool index_list_has(const struct index_list *list, struct dl_span place, uint32_t form)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const struct index *index = &list->items[i];
        if (index->form == form && strlen(index->place) == place.len &&
            memcmp(index->place, place.data, place.len) == 0)
            return true;
    }
    return false;
}

/* Its memory is there already. */
static int index_list_charge(struct charge *charge, const struct payer *payer, uint64_t bytes,
                             struct dl_error *err)
{
    int r = quota_charge(payer->account, QUOTA_DESCRIPTORS, 1, err);

    if (r < 0)
        return r;
    r = charge_take(charge, payer, bytes, "split the dataset into loaders with fewer files", err);
    if (r < 0)
        quota_return(payer->account, QUOTA_DESCRIPTORS, 1);
    else
        charge_settle(charge);
    return r;
}

int index_list_add(struct index_list *list, const struct payer *payer, struct dl_span place,
                   uint32_t form, int fd, struct dl_error *err)
{
    _cleanup_fd_ int owned = fd;
    struct charge charge = {0};
    uint64_t bytes;

    if (index_list_has(list, place, form))
        return 0;
    if (sealed_size(owned, &bytes) < 0)
        return dl_error_set(err, EPROTO, "W_INDEXED", "its file descriptor is not a sealed memfd");
    int r = index_list_charge(&charge, payer, bytes, err);
    if (r < 0)
        return r;
    list->items = must_realloc(list->items, (list->n + 1) * sizeof *list->items);
    list->items[list->n++] = (struct index){.place = must_have(span_dup(place)),
                                            .form = form,
                                            .fd = steal_fd(&owned),
                                            .charge = charge};
    return 0;
}

void index_list_deinit(struct index_list *list)
{
    for (uint32_t i = 0; i < list->n; i++) {
        struct index *index = &list->items[i];
        quota_return(index->charge.payer.account, QUOTA_DESCRIPTORS, 1);
        charge_return(&index->charge);
        close_fdp(&index->fd);
        free(index->place);
    }
    free(list->items);
    *list = (struct index_list){0};
}
