#include "daemon/serve/ring/pictures.h"

#include "daemon/base/memory.h"
#include "daemon/cache/ids_cache.h"
#include "proto/common/sealed.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>

#include <utlist.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct pictures {
    struct pictures *prev, *next; /* set->head */
    struct pictures_set *set;     /* borrowed */
    char *root;                   /* owned */
    struct charge charge;
    uint32_t refs;
    int fd;       /* owned memfd */
    void *header; /* owned mapping of pictures_header() bytes, read-only */
    uint64_t bytes;
    bool ids; /* of a tokenizer, instead of pictures */
};

/* What a dataset wants an arena for. */
struct wish {
    const char *root; /* borrowed */
    const char *key;  /* of the spec, in errors */
    uint64_t bytes;   /* 0: nothing is wanted */
    bool ids;
};

static size_t pictures_header(const struct pictures *p)
{
    return p->ids ? ids_arena_header() : pictures_arena_header();
}

static void pictures_unref(struct pictures *p)
{
    assert(p->refs > 0);
    if (--p->refs > 0)
        return;
    DL_DELETE(p->set->head, p);
    if (p->header)
        munmap(p->header, pictures_header(p));
    close_fdp(&p->fd);
    quota_return(p->charge.payer.account, QUOTA_DESCRIPTORS, 1);
    charge_return(&p->charge);
    free(p->root);
    free(p);
}

/* The header is written before any other process has the file. */
int pictures_memory(const char *root, uint64_t bytes, bool ids)
{
    size_t header = ids ? ids_arena_header() : pictures_arena_header();
    _cleanup_fd_ int fd = sealed_begin("dloader-pictures");

    if (fd < 0 || fchmod(fd, 0400) < 0 || ftruncate(fd, (off_t)bytes) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return -errno;
    void *base = mmap(NULL, header, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    /* Which pictures are kept of a folder larger than its memory is the same at each start. */
    if (ids)
        ids_arena_init(base, bytes);
    else
        pictures_arena_init(base, bytes, XXH3_64bits(root, strlen(root)));
    munmap(base, header);
    return steal_fd(&fd);
}

static int pictures_make_memory(struct pictures *p)
{
    p->fd = pictures_memory(p->root, p->bytes, p->ids);
    if (p->fd < 0)
        return p->fd;
    void *base = mmap(NULL, pictures_header(p), PROT_READ, MAP_SHARED, p->fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    p->header = base;
    return 0;
}

static struct pictures *pictures_set_find(const struct pictures_set *set, const struct wish *wish,
                                          const struct payer *payer)
{
    struct pictures *p;

    DL_FOREACH (set->head, p) {
        if (p->charge.payer.account == payer->account && p->ids == wish->ids &&
            strcmp(p->root, wish->root) == 0)
            return p;
    }
    return NULL;
}

/* What the dataset keeps of its folder or first file. */
static struct wish pictures_wish(const struct spec_dataset *dataset)
{
    uint64_t bytes;
    const char *root = spec_kept(dataset, &bytes);
    const char *key = dataset->kind == DATASET_PARQUET ? "dataset.shared" : "dataset.cache";

    return (struct wish){root, key, bytes, false};
}

/* What it keeps of its texts. */
static struct wish pictures_wish_ids(const struct spec_dataset *dataset)
{
    uint64_t bytes = dataset->model ? ids_cache_bytes(dataset->ids) : 0;

    return (struct wish){dataset->model, "dataset.ids", bytes, true};
}

static int pictures_new(struct pictures_set *set, const struct wish *wish,
                        const struct payer *payer, struct pictures **ret, struct dl_error *err)
{
    struct charge charge = {0};
    char remedy[32];
    int r = quota_charge(payer->account, QUOTA_DESCRIPTORS, 1, err);

    if (r < 0)
        return r;
    snprintf(remedy, sizeof remedy, "lower %s", wish->key);
    r = charge_take(&charge, payer, wish->bytes, remedy, err);
    if (r < 0) {
        quota_return(payer->account, QUOTA_DESCRIPTORS, 1);
        return r;
    }
    struct pictures *p = must_alloc(sizeof *p);
    *p = (struct pictures){.set = set,
                           .root = must_strdup(wish->root),
                           .charge = charge,
                           .refs = 1,
                           .fd = -1,
                           .bytes = wish->bytes,
                           .ids = wish->ids};
    DL_APPEND(set->head, p);
    r = pictures_make_memory(p);
    if (r < 0) {
        pictures_unref(p);
        return dl_error_set(err, -r, wish->key,
                            "%llu bytes of shared memory cannot be allocated: %s; lower it",
                            (ull)wish->bytes, strerror(-r));
    }
    *ret = p;
    return 0;
}

static bool pictures_list_has(const struct pictures_list *list, const struct pictures *p)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (list->items[i] == p)
            return true;
    }
    return false;
}

/* Takes the caller's reference. */
static void pictures_list_append(struct pictures_list *list, struct pictures *p)
{
    list->items = must_have(realloc(list->items, (list->n + 1) * sizeof(struct pictures *)));
    list->items[list->n++] = p;
}

static int pictures_list_add(struct pictures_set *set, const struct wish *wish,
                             const struct payer *payer, struct pictures_list *list,
                             struct dl_error *err)
{
    struct pictures *p = wish->bytes > 0 ? pictures_set_find(set, wish, payer) : NULL;
    bool asked_for = !wish->ids || wish->bytes != SPEC_IDS_BYTES;
    struct dl_error unsaid = {0};

    if (wish->bytes == 0 || (p && pictures_list_has(list, p)))
        return 0; /* the folder is there twice */
    if (p)
        p->refs++;
    int r = p ? 0 : pictures_new(set, wish, payer, &p, asked_for ? err : &unsaid);
    if (r == 0)
        pictures_list_append(list, p);
    return asked_for ? r : 0; /* batches are the same without it */
}

/* Adds the dataset and those inside it; they are nested as deep as a spec may be. */
static int pictures_list_add_all(struct pictures_set *set, const struct spec_dataset *dataset,
                                 const struct payer *payer, struct pictures_list *list,
                                 struct dl_error *err)
{
    const struct wish wish = pictures_wish(dataset), ids = pictures_wish_ids(dataset);
    int r = pictures_list_add(set, &wish, payer, list, err);

    if (r == 0)
        r = pictures_list_add(set, &ids, payer, list, err);
    for (uint32_t i = 0; r == 0 && i < dataset->n_datasets; i++)
        r = pictures_list_add_all(set, &dataset->datasets[i], payer, list, err);
    return r;
}

int pictures_list_make(struct pictures_set *set, const struct spec_dataset *dataset,
                       const struct payer *payer, struct pictures_list *ret, struct dl_error *err)
{
    struct pictures_list list = {0};
    int r = pictures_list_add_all(set, dataset, payer, &list, err);

    if (r < 0)
        pictures_list_deinit(&list);
    *ret = list;
    return r;
}

uint64_t pictures_set_wants(const struct pictures_set *set, const struct spec_dataset *dataset,
                            const struct payer *payer, uint64_t *bytes)
{
    const struct wish wish = pictures_wish(dataset);
    uint64_t n = 0;

    if (wish.bytes > 0 && !pictures_set_find(set, &wish, payer)) {
        n++;
        *bytes += wish.bytes;
    }
    for (uint32_t i = 0; i < dataset->n_datasets; i++)
        n += pictures_set_wants(set, &dataset->datasets[i], payer, bytes);
    return n;
}

uint64_t pictures_list_bytes(const struct pictures_list *list, const struct quota_account *payer)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < list->n; i++)
        if (!payer || list->items[i]->charge.payer.account == payer)
            bytes += list->items[i]->bytes;
    return bytes;
}

uint64_t pictures_list_own_bytes(const struct pictures_list *list)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < list->n; i++)
        bytes += list->items[i]->refs == 1 ? list->items[i]->bytes : 0;
    return bytes;
}

void pictures_list_share(struct pictures_list *list, const struct pictures_list *from)
{
    for (uint32_t i = 0; i < from->n; i++) {
        if (pictures_list_has(list, from->items[i]))
            continue;
        from->items[i]->refs++;
        pictures_list_append(list, from->items[i]);
    }
}

void pictures_list_deinit(struct pictures_list *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        pictures_unref(list->items[i]);
    free(list->items);
    *list = (struct pictures_list){0};
}

const char *pictures_root(const struct pictures *p)
{
    return p->root;
}

bool pictures_has_ids(const struct pictures *p)
{
    return p->ids;
}

int pictures_fd(const struct pictures *p)
{
    return p->fd;
}

uint64_t pictures_bytes(const struct pictures *p)
{
    return p->bytes;
}

static void pictures_counts_of(const struct pictures *p, struct pictures_counts *ret)
{
    struct ids_counts ids;

    if (!p->ids) {
        pictures_arena_counts(p->header, p->bytes, ret);
        return;
    }
    ids_arena_counts(p->header, p->bytes, &ids);
    *ret = (struct pictures_counts){ids.used_bytes, ids.texts, ids.hits, ids.misses};
}

void pictures_list_counts(const struct pictures_list *list, struct pictures_counts *ret,
                          uint64_t *ret_bytes)
{
    *ret = (struct pictures_counts){0};
    *ret_bytes = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        struct pictures_counts one;

        pictures_counts_of(list->items[i], &one);
        ret->used_bytes += one.used_bytes;
        ret->pictures += one.pictures;
        ret->hits += one.hits;
        ret->misses += one.misses;
        *ret_bytes += list->items[i]->bytes;
    }
}

/* The index is counted as there: it is, where pictures are many. */
void pictures_set_settle(void *set)
{
    struct pictures *p;

    DL_FOREACH (((struct pictures_set *)set)->head, p) {
        struct pictures_counts counts;

        pictures_counts_of(p, &counts);
        charge_settle_up_to(&p->charge, counts.used_bytes);
    }
}
