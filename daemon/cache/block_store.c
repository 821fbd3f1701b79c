#include "daemon/cache/block_store.h"

#include "daemon/cache/block_record.h"
#include "proto/common/fd_io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <xxhash.h>

enum {
    STORE_PAGE = 4096, /* what is allocated at a time */
    STORE_VERSION = 1,
};

#define STORE_ENTRY_COPY \
    (UINT32_C(1) << 31) /* an earlier release takes none of these for a block */

/* The index begins with it. */
struct store_header {
    char magic[8];
    uint32_t version;
    uint32_t slot_bytes;
    uint64_t seed; /* of keys: drawn */
    uint64_t check;
};

/* Then there is one for each slot. */
struct store_entry {
    uint64_t key; /* 0: nothing is in it */
    uint32_t point;
    uint32_t bytes; /* of the record, | STORE_ENTRY_COPY */
    uint64_t check;
};
_Static_assert(sizeof(struct store_header) == 32 && sizeof(struct store_entry) == 24,
               "the format of the file");

struct block_store {
    int index, blocks; /* owned */
    uint64_t seed;
    bool closed;                       /* nothing more is written */
    bool full;                         /* the disk is: the limit does not rise */
    const struct placement *placement; /* borrowed; NULL: none */
    struct shelf shelf;
};

static const char store_magic[8] = {'d', 'l', 'b', 'l', 'o', 'c', 'k', 's'};

/* ---- what is where -------------------------------------------------------------------------- */

static uint64_t store_entry_at(uint32_t slot)
{
    return sizeof(struct store_header) + (uint64_t)slot * sizeof(struct store_entry);
}

static uint64_t store_key(const struct block_store *store, const char *where, uint64_t block)
{
    uint64_t key = XXH3_64bits_withSeed(where, strlen(where), store->seed + block);

    return key ? key : 1;
}

static uint32_t store_order(const struct block_store *store, uint32_t point, bool is_copy)
{
    return store->placement ? placement_order(store->placement, point, is_copy) : point;
}

/* As its entry has it, or where it is another: an earlier release's points were the store's own. */
static void store_set_point(struct block_store *store, uint32_t slot, uint32_t point)
{
    struct shelf_slot *is = &store->shelf.slots[slot];

    is->point = point;
    shelf_reorder(&store->shelf, slot, store_order(store, point, is->copy));
}

static uint64_t store_entry_check(const struct block_store *store, uint32_t slot,
                                  const struct store_entry *entry)
{
    return XXH3_64bits_withSeed(entry, offsetof(struct store_entry, check), store->seed ^ slot);
}

static uint64_t store_header_check(const struct store_header *header)
{
    return XXH3_64bits(header, offsetof(struct store_header, check));
}

/* What it takes on the disk. */
static uint32_t store_taken(uint64_t record_bytes)
{
    return (uint32_t)align_up(record_bytes, STORE_PAGE);
}

/* Its bytes are the file system's again, where that can take them; if not, the slot's next record
 * overwrites them. */
static void store_punch(const struct block_store *store, uint32_t slot, uint64_t n)
{
    (void)fallocate(store->blocks, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    (off_t)(slot * (uint64_t)RECORD_SLOT_BYTES), (off_t)(n * RECORD_SLOT_BYTES));
}

static int store_write_entry(const struct block_store *store, uint32_t slot,
                             const struct store_entry *entry)
{
    return fd_pwrite_all(store->index, entry, sizeof *entry, store_entry_at(slot));
}

/* First the entry: without its record it would be read for nothing. */
static void store_erase(const struct block_store *store, uint32_t slot)
{
    static const struct store_entry none;

    (void)!store_write_entry(store, slot, &none);
    store_punch(store, slot, 1);
}

/* It is off the shelf. */
static void store_let_go(struct block_store *store, uint32_t slot)
{
    store_erase(store, slot);
    shelf_give_back(&store->shelf, slot);
}

static void store_remove(struct block_store *store, uint32_t slot)
{
    shelf_take_off(&store->shelf, slot);
    store_let_go(store, slot);
}

/* ---- opening -------------------------------------------------------------------------------- */

/* What others could have written is not what the store says. */
static int store_open_file(int dir, const char *name, int *ret, struct dl_error *err)
{
    _cleanup_fd_ int fd =
        openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return dl_error_set(err, errno, name, "it cannot be opened to be read and written: %s",
                            strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022) != 0)
        return dl_error_set(err, EPERM, name,
                            "others may write to it, or it is no file: remove it");
    *ret = steal_fd(&fd);
    return 0;
}

static int store_begin_anew(struct block_store *store, struct dl_error *err)
{
    struct store_header header = {.version = STORE_VERSION, .slot_bytes = RECORD_SLOT_BYTES};

    memcpy(header.magic, store_magic, sizeof header.magic);
    if (getrandom(&header.seed, sizeof header.seed, 0) != sizeof header.seed)
        return dl_error_set(err, EAGAIN, "index", "the system has no random numbers");
    header.check = store_header_check(&header);
    store->seed = header.seed;
    int r = ftruncate(store->index, 0) < 0 || ftruncate(store->blocks, 0) < 0 ? -errno : 0;
    if (r == 0)
        r = fd_pwrite_all(store->index, &header, sizeof header, 0);
    return r < 0 ? dl_error_set(err, -r, "index", "it cannot be written: %s", strerror(-r)) : 0;
}

/* False: it is none of ours, or damaged. */
static bool store_read_header(struct block_store *store)
{
    struct store_header header;

    if (fd_pread_all(store->index, &header, sizeof header, 0) != sizeof header ||
        memcmp(header.magic, store_magic, sizeof header.magic) != 0 ||
        header.version != STORE_VERSION || header.slot_bytes != RECORD_SLOT_BYTES ||
        header.check != store_header_check(&header))
        return false;
    store->seed = header.seed;
    return true;
}

static void store_load_entry(struct block_store *store, uint32_t slot,
                             const struct store_entry *entry)
{
    uint32_t bytes = entry->bytes & ~STORE_ENTRY_COPY;
    struct shelf_slot *is = &store->shelf.slots[slot];

    if (entry->key == 0 || bytes == 0 || bytes > RECORD_SLOT_BYTES ||
        entry->check != store_entry_check(store, slot, entry) ||
        !shelf_load(&store->shelf, slot, entry->key, entry->point, bytes))
        return;
    is->point = entry->point;
    is->copy = bytes != entry->bytes;
}

/* A slot without a block may have bytes: a process was killed after them, before their entry. */
static void store_clear_free(struct block_store *store)
{
    const struct shelf *shelf = &store->shelf;

    (void)!ftruncate(store->index, (off_t)store_entry_at(shelf->n_slots));
    (void)!ftruncate(store->blocks, (off_t)(shelf->n_slots * (uint64_t)RECORD_SLOT_BYTES));
    for (uint32_t slot = 0; slot < shelf->n_slots;) {
        uint32_t begin = slot;

        while (slot < shelf->n_slots && shelf->slots[slot].key == 0)
            slot++;
        if (slot == begin)
            slot++;
        else
            store_punch(store, begin, slot - begin);
    }
}

static int store_load(struct block_store *store, struct dl_error *err)
{
    enum { AT_ONCE = 4096 };
    _cleanup_free_ struct store_entry *entries = malloc(AT_ONCE * sizeof *entries);
    struct stat st;

    if (!entries || fstat(store->index, &st) < 0)
        return dl_error_set(err, ENOMEM, "index", "it cannot be read");
    uint64_t n = ((uint64_t)st.st_size - sizeof(struct store_header)) / sizeof *entries;
    int r = shelf_begin_load(&store->shelf, (uint32_t)min_u64(n, SHELF_SLOTS_MOST));
    if (r < 0)
        return dl_error_set(err, -r, "index", "there is no memory for what it lists");
    for (uint32_t slot = 0; slot < store->shelf.n_slots;) {
        uint32_t some = (uint32_t)min_u64(AT_ONCE, store->shelf.n_slots - slot);
        int64_t have =
            fd_pread_all(store->index, entries, some * sizeof *entries, store_entry_at(slot));
        for (uint32_t i = 0; i < some && have >= (int64_t)((i + 1) * sizeof *entries); i++)
            store_load_entry(store, slot + i, &entries[i]);
        slot += some;
    }
    shelf_end_load(&store->shelf);
    store_clear_free(store);
    return 0;
}

static int store_open(struct block_store *store, int dir, struct dl_error *err)
{
    int r = store_open_file(dir, "index", &store->index, err);

    if (r < 0)
        return r;
    if (flock(store->index, LOCK_EX | LOCK_NB) < 0)
        return dl_error_set(err, errno == EWOULDBLOCK ? EBUSY : errno, "index",
                            "another process has it");
    if ((r = store_open_file(dir, "blocks", &store->blocks, err)) < 0)
        return r;
    return store_read_header(store) ? store_load(store, err) : store_begin_anew(store, err);
}

/* But for what is being read or written. */
static void store_trim(struct block_store *store)
{
    uint32_t slot;

    while (!shelf_fits(&store->shelf, 0) && (slot = shelf_greatest(&store->shelf)) != SHELF_NONE)
        store_remove(store, slot);
}

int block_store_open(int dir, uint64_t limit, struct block_store **ret, struct dl_error *err)
{
    struct block_store *store = calloc(1, sizeof *store);

    if (!store)
        return dl_error_set(err, ENOMEM, "index", "out of memory");
    store->index = store->blocks = -1;
    shelf_init(&store->shelf, limit);
    int r = store_open(store, dir, err);
    if (r < 0) {
        block_store_close(store);
        return r;
    }
    store_trim(store);
    *ret = store;
    return 0;
}

struct block_store *block_store_close(struct block_store *store)
{
    if (!store)
        return NULL;
    shelf_deinit(&store->shelf);
    close_fdp(&store->blocks);
    close_fdp(&store->index);
    free(store);
    return NULL;
}

/* ---- what is there -------------------------------------------------------------------------- */

void block_store_limit(struct block_store *store, uint64_t limit)
{
    if (limit < store->shelf.limit || !store->full)
        store->shelf.limit = limit;
    store_trim(store);
}

const struct shelf *block_store_shelf(const struct block_store *store)
{
    return &store->shelf;
}

static uint32_t store_find(const struct block_store *store, const char *where, uint64_t block)
{
    uint32_t slot = shelf_find(&store->shelf, store_key(store, where, block));
    const struct shelf_slot *is = slot == SHELF_NONE ? NULL : &store->shelf.slots[slot];

    return is && is->there && !is->unwanted ? slot : SHELF_NONE;
}

bool block_store_has(const struct block_store *store, const char *where, uint64_t block)
{
    return store_find(store, where, block) != SHELF_NONE;
}

uint64_t block_store_checked(const struct block_store *store, const char *where, uint64_t block)
{
    uint32_t slot = store_find(store, where, block);

    return slot == SHELF_NONE ? 0 : store->shelf.slots[slot].checked;
}

void block_store_check(struct block_store *store, const char *where, uint64_t block,
                       uint64_t checked)
{
    uint32_t slot = store_find(store, where, block);

    if (slot != SHELF_NONE)
        store->shelf.slots[slot].checked = checked;
}

/* What it takes is known when it comes: as much as the others do. Else where objects are much
 * smaller than a slot, a part of the disk would stay empty for a block that does not come. */
static uint64_t store_typical(const struct block_store *store)
{
    const struct shelf *shelf = &store->shelf;

    return shelf->n > 0 ? shelf->bytes / shelf->n : RECORD_SLOT_BYTES;
}

bool block_store_wants(struct block_store *store, const char *where, uint64_t block)
{
    uint32_t order = store_order(store, placement_point(where, block), false);

    return !store->closed &&
           shelf_find(&store->shelf, store_key(store, where, block)) == SHELF_NONE &&
           (shelf_fits(&store->shelf, store_typical(store)) ||
            shelf_victim(&store->shelf, order) != SHELF_NONE);
}

uint64_t block_store_room(const struct block_store *store)
{
    const struct shelf *shelf = &store->shelf;

    return store->closed || shelf->first_bytes > shelf->limit ? 0
                                                              : shelf->limit - shelf->first_bytes;
}

uint64_t block_store_taken(const struct block_name *name)
{
    uint64_t at = name->block * REMOTE_BLOCK_BYTES;

    return store_taken(record_head_bytes(name) + min_u64(name->bytes - at, REMOTE_BLOCK_BYTES));
}

/* Also of one that is being written, whose entry says that it is a copy. */
bool block_store_own(struct block_store *store, const char *where, uint64_t block)
{
    uint32_t slot = shelf_find(&store->shelf, store_key(store, where, block));
    struct shelf_slot *is = slot == SHELF_NONE ? NULL : &store->shelf.slots[slot];

    if (!is || is->unwanted || (is->copy && !shelf_fits_first(&store->shelf, is->bytes)))
        return false;
    is->copy = false;
    store_set_point(store, slot, is->point);
    return true;
}

void block_store_place(struct block_store *store, const struct placement *placement)
{
    struct shelf *shelf = &store->shelf;

    store->placement = placement;
    shelf_set_first(shelf, placement ? placement_first(placement) : UINT32_MAX);
    for (uint32_t slot = 0; slot < shelf->n_slots; slot++)
        if (shelf->slots[slot].key != 0)
            store_set_point(store, slot, shelf->slots[slot].point);
}

/* Nobody finds it any more. Its slot is another's when nobody is at it; what is being written stays
 * until it is. */
static void store_drop_slot(struct block_store *store, uint32_t slot)
{
    struct shelf_slot *is = &store->shelf.slots[slot];

    if (!is->there)
        is->unwanted = true;
    else if (is->busy == 0)
        store_remove(store, slot);
    else
        shelf_take_off(&store->shelf, slot);
}

void block_store_drop(struct block_store *store, const char *where, uint64_t block)
{
    uint32_t slot = shelf_find(&store->shelf, store_key(store, where, block));

    if (slot != SHELF_NONE)
        store_drop_slot(store, slot);
}

/* ---- reading -------------------------------------------------------------------------------- */

bool block_read_begin(struct block_store *store, const char *where, uint64_t block,
                      struct block_read *ret)
{
    uint32_t slot = store_find(store, where, block);

    *ret = (struct block_read){.store = store, .where = where, .block = block, .slot = slot};
    if (slot == SHELF_NONE)
        return false;
    struct shelf_slot *is = &store->shelf.slots[slot];
    ret->bytes = is->bytes;
    is->busy++;
    store_set_point(store, slot, placement_point(where, block));
    shelf_pass(&store->shelf, is->bytes);
    shelf_use(&store->shelf, slot);
    return true;
}

/* The file may end with the record, which ends before its last page does. */
void block_read_run(struct block_read *read)
{
    uint64_t at = read->slot * (uint64_t)RECORD_SLOT_BYTES;
    int64_t have;

    if (!(read->record = malloc(read->bytes)))
        return;
    have = fd_pread_all(read->store->blocks, read->record, read->bytes, at);
    read->good = have > 0 &&
                 record_read((struct dl_span){read->record, (size_t)have}, &read->name, &read->etag,
                             &read->data, read->where) &&
                 read->name.block == read->block;
}

void block_read_end(struct block_store *store, struct block_read *read)
{
    struct shelf_slot *is = &store->shelf.slots[read->slot];

    assert(is->busy > 0);
    is->busy--;
    if (is->key != 0 && !read->good)
        store_drop_slot(store, read->slot);
    else if (is->key == 0 && is->busy == 0)
        store_let_go(store, read->slot);
    free(steal_ptr(read->record));
    free(steal_ptr(read->etag));
}

/* ---- writing -------------------------------------------------------------------------------- */

/* What goes is off the shelf, even where it does not do. */
static bool store_make_room(struct block_store *store, uint32_t order, uint32_t bytes,
                            struct block_write *write)
{
    struct shelf *shelf = &store->shelf;

    while (!shelf_fits(shelf, bytes) && write->n_gone < STORE_GONE_MOST) {
        uint32_t slot = shelf_victim(shelf, order);
        if (slot == SHELF_NONE)
            break;
        shelf_take_off(shelf, slot);
        write->gone[write->n_gone++] = slot;
    }
    return shelf_fits(shelf, bytes);
}

static void store_erase_gone(const struct block_write *write)
{
    for (uint32_t i = 0; i < write->n_gone; i++)
        store_erase(write->store, write->gone[i]);
}

static void store_give_back_gone(struct block_store *store, const struct block_write *write)
{
    for (uint32_t i = 0; i < write->n_gone; i++)
        shelf_give_back(&store->shelf, write->gone[i]);
}

/* It takes the place of one that goes, if one does: the files do not grow. */
static bool store_admit(struct block_store *store, struct block_write *write)
{
    uint32_t order = store_order(store, write->point, write->copy);
    uint32_t above = write->if_room ? store->shelf.first : order; /* these may go */
    bool fits = store_make_room(store, above, write->bytes, write);

    write->replaces = fits && write->n_gone > 0;
    if (write->replaces)
        shelf_give_back(&store->shelf, write->gone[--write->n_gone]);
    if (fits && shelf_add(&store->shelf, write->key, order, write->bytes, &write->slot) == 0) {
        store->shelf.slots[write->slot].busy = 1;
        store->shelf.slots[write->slot].point = write->point;
        store->shelf.slots[write->slot].copy = write->copy;
        return true;
    }
    store_erase_gone(write);
    store_give_back_gone(store, write);
    return false;
}

bool block_write_begin(struct block_store *store, const struct block_name *name,
                       struct dl_span data, enum store_terms terms, struct block_write *ret)
{
    uint64_t key = store_key(store, name->where, name->block);
    size_t head = record_head_bytes(name);
    uint32_t taken = store_taken(head + data.len);

    shelf_pass(&store->shelf, taken);
    if (store->closed || head + data.len > RECORD_SLOT_BYTES ||
        (!*name->etag && name->modified < 0) || shelf_find(&store->shelf, key) != SHELF_NONE ||
        (terms == STORE_IF_ROOM && !shelf_fits_first(&store->shelf, taken)))
        return false;
    *ret = (struct block_write){.store = store,
                                .data = data,
                                .head_bytes = head,
                                .key = key,
                                .point = placement_point(name->where, name->block),
                                .bytes = taken,
                                .copy = terms == STORE_COPY,
                                .if_room = terms == STORE_IF_ROOM};
    if (!(ret->head = malloc(head)))
        return false;
    record_fill_head(name, data.len, ret->head);
    if (store_admit(store, ret))
        return true;
    free(steal_ptr(ret->head));
    return false;
}

static int store_write_record(struct block_write *write)
{
    const struct block_store *store = write->store;
    struct store_entry entry = {.key = write->key,
                                .point = write->point,
                                .bytes = write->bytes | (write->copy ? STORE_ENTRY_COPY : 0)};
    uint64_t at = write->slot * (uint64_t)RECORD_SLOT_BYTES;
    struct stat st;
    int r;

    if (fstat(store->blocks, &st) < 0 || st.st_nlink == 0)
        return -ESTALE;
    record_seal(write->head, write->head_bytes, write->data);
    if ((r = fd_pwrite_all(store->blocks, write->head, write->head_bytes, at)) < 0 ||
        (r = fd_pwrite_all(store->blocks, write->data.data, write->data.len,
                           at + write->head_bytes)) < 0)
        return r;
    entry.check = store_entry_check(store, write->slot, &entry);
    return store_write_entry(store, write->slot, &entry);
}

void block_write_run(struct block_write *write)
{
    store_erase_gone(write);
    if (write->replaces)
        store_erase(write->store, write->slot);
    write->r = store_write_record(write);
    if (write->r < 0)
        store_erase(write->store, write->slot);
}

static bool store_is_full(int r)
{
    return r == -ENOSPC || r == -EDQUOT || r == -EFBIG;
}

void block_write_end(struct block_store *store, struct block_write *write)
{
    struct shelf *shelf = &store->shelf;
    struct shelf_slot *is = &shelf->slots[write->slot];

    assert(is->busy == 1 && !is->there);
    is->busy = 0;
    is->there = true;
    free(steal_ptr(write->head));
    store_give_back_gone(store, write);
    if (write->r < 0) {
        shelf_take_off(shelf, write->slot);
        shelf_give_back(shelf, write->slot);
        store->full |= store_is_full(write->r);
        if (store_is_full(write->r))
            shelf->limit = min_u64(shelf->limit, shelf->bytes);
        else
            store->closed = true;
    } else if (is->unwanted) {
        store_remove(store, write->slot);
    }
}
