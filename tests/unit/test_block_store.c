/* What a disk keeps of remote objects is what was written, or nothing: by random steps, while the
 * process that has the store is killed, bits of its files turn, they are cut off, or the disk is
 * full.
 */
#include "tests/lib/harness.h"

#include "daemon/cache/block_record.h"
#include "daemon/cache/block_store.h"
#include "daemon/cache/cache_room.h"
#include "tests/lib/splitmix.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
    BLOCK = REMOTE_BLOCK_BYTES,
    OBJECTS = 12,
    OBJECT_BLOCKS = 4,
    STEPS = 3000,
    DAMAGES = 40,
    FILE_EXTRA = 16 * 1024, /* what a file system takes for where a file's bytes are */
};

static int open_dir(void)
{
    static int number;
    char path[512];

    snprintf(path, sizeof path, "%s/%d", harness_tmpdir(), number++);
    assert_int_equal(mkdir(path, 0700), 0);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static struct block_store *open_store(int dir, uint64_t limit)
{
    struct block_store *store;
    struct dl_error err = {0};

    if (block_store_open(dir, limit, &store, &err) < 0)
        fail_msg("%s: %s", err.path, err.message);
    return store;
}

/* ---- blocks --------------------------------------------------------------------------------- */

/* Of an object at its URL, and which version of it. */
struct one {
    char where[64];
    char etag[32];
    struct block_name name;
    uint8_t data[BLOCK];
    size_t len;
};

static void make_one(struct one *one, uint64_t object, uint64_t version, uint64_t block)
{
    uint64_t random = object * 1000003 + version * 101 + block;

    snprintf(one->where, sizeof one->where, "https://host s3://bucket/%llu",
             (unsigned long long)object);
    snprintf(one->etag, sizeof one->etag, "\"%llu\"", (unsigned long long)version);
    one->len = block < OBJECT_BLOCKS - 1 ? BLOCK : (object * 7919 + 1) % BLOCK;
    one->name = (struct block_name){.where = one->where,
                                    .block = block,
                                    .etag = one->etag,
                                    .modified = -1,
                                    .bytes = (OBJECT_BLOCKS - 1) * BLOCK + one->len};
    for (size_t i = 0; i + 8 <= sizeof one->data; i += 8) {
        uint64_t next = next_random(&random);
        memcpy(one->data + i, &next, sizeof next);
    }
}

static bool write_on(struct block_store *store, const struct one *one, enum store_terms terms)
{
    struct block_write write;

    if (!block_write_begin(store, &one->name, (struct dl_span){one->data, one->len}, terms, &write))
        return false;
    block_write_run(&write);
    block_write_end(store, &write);
    return write.r == 0;
}

static bool write_one(struct block_store *store, const struct one *one)
{
    return write_on(store, one, STORE_BY_ORDER);
}

enum found { NOT_THERE, THERE, ANOTHER };

/* If it is there, it is right. */
static enum found read_one(struct block_store *store, const struct one *one)
{
    struct block_read read;
    enum found found = NOT_THERE;

    if (!block_read_begin(store, one->where, one->name.block, &read))
        return NOT_THERE;
    block_read_run(&read);
    if (read.good && strcmp(read.name.etag, one->etag) != 0) {
        found = ANOTHER;
        read.good = false; /* as who wants another one says: it goes */
    } else if (read.good) {
        found = THERE;
        assert_int_equal(read.name.bytes, one->name.bytes);
        assert_int_equal(read.data.len, one->len);
        assert_memory_equal(read.data.data, one->data, one->len);
    }
    block_read_end(store, &read);
    return found;
}

static uint64_t write_all(struct block_store *store)
{
    static struct one one;
    uint64_t n = 0;

    for (uint64_t i = 0; i < OBJECTS * OBJECT_BLOCKS; i++) {
        make_one(&one, i / OBJECT_BLOCKS, 0, i % OBJECT_BLOCKS);
        n += write_one(store, &one);
    }
    return n;
}

static uint64_t count_all(struct block_store *store)
{
    static struct one one;
    uint64_t n = 0;

    for (uint64_t i = 0; i < OBJECTS * OBJECT_BLOCKS; i++) {
        make_one(&one, i / OBJECT_BLOCKS, 0, i % OBJECT_BLOCKS);
        n += read_one(store, &one) == THERE;
    }
    return n;
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* Bytes that the blocks take. */
static uint64_t taken(int dir)
{
    struct stat blocks;

    assert_int_equal(fstatat(dir, "blocks", &blocks, 0), 0);
    return (uint64_t)blocks.st_blocks * 512;
}

/* Three versions of objects come and go, the store is closed and opened with other limits. */
TEST(test_random_steps)
{
    static struct one one;
    uint64_t random = 1, limit = 12 * BLOCK, n_there = 0;
    int dir = open_dir();
    struct block_store *store = open_store(dir, limit);

    (void)state;
    for (int step = 0; step < STEPS; step++) {
        uint64_t what = next_random(&random) % 64;
        make_one(&one, next_random(&random) % OBJECTS, next_random(&random) % 3,
                 next_random(&random) % OBJECT_BLOCKS);
        if (what == 0) {
            store = block_store_close(store);
            limit = next_random(&random) % 20 * BLOCK;
            store = open_store(dir, limit);
        } else if (what == 1) {
            block_store_drop(store, one.where, one.name.block);
            assert_false(block_store_has(store, one.where, one.name.block));
        } else if (what < 32) {
            n_there += read_one(store, &one) == THERE;
        } else if (write_one(store, &one)) {
            assert_int_equal(read_one(store, &one), THERE);
        }
        assert_true(taken(dir) <= limit + FILE_EXTRA);
    }
    assert_true(n_there > STEPS / 50);
    block_store_close(store);
    close(dir);
}

/* Without room for all, half of it stays, and what is there stays there. */
TEST(test_reopened)
{
    int dir = open_dir();
    struct block_store *store = open_store(dir, OBJECTS * OBJECT_BLOCKS * BLOCK / 2);

    (void)state;
    (void)write_all(store);
    uint64_t n = count_all(store), bytes = block_store_shelf(store)->bytes;
    assert_true(n > OBJECTS * OBJECT_BLOCKS / 3);
    block_store_close(store);
    store = open_store(dir, OBJECTS * OBJECT_BLOCKS * BLOCK / 2);
    assert_int_equal(block_store_shelf(store)->bytes, bytes);
    assert_int_equal(count_all(store), n);
    block_store_close(store);
    close(dir);
}

/* Another process has it, and then it is killed, wherever it is: what it has written is there. */
TEST(test_killed)
{
    static struct one one;
    int dir = open_dir();
    uint64_t most = 0;

    (void)state;
    for (int round = 0; round < 20; round++) {
        int said[2];
        uint8_t last = 0, n = 0;
        assert_int_equal(pipe(said), 0);
        pid_t pid = fork();
        if (pid == 0) {
            struct block_store *mine = open_store(dir, UINT32_MAX);
            for (n = 0; n < OBJECTS * OBJECT_BLOCKS; n++) {
                make_one(&one, n / OBJECT_BLOCKS, 0, n % OBJECT_BLOCKS);
                (void)write_one(mine, &one);
                last = n + 1;
                (void)!write(said[1], &last, 1);
            }
            pause();
        }
        while (last < OBJECTS * OBJECT_BLOCKS / 20 * round && read(said[0], &last, 1) == 1)
            n = last;
        if (n > 0) {
            struct block_store *none;
            assert_int_equal(block_store_open(dir, UINT32_MAX, &none, NULL), -EBUSY);
        }
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        close(said[0]);
        close(said[1]);
        struct block_store *store = open_store(dir, UINT32_MAX);
        uint64_t there = count_all(store);
        assert_true(there >= n && there >= most);
        most = there;
        block_store_close(store);
    }
    close(dir);
}

static void turn_bits(int dir, const char *name, uint64_t *random, int n)
{
    int fd = openat(dir, name, O_RDWR);
    struct stat st;

    assert_true(fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0);
    for (int i = 0; i < n; i++) {
        off_t at = (off_t)(next_random(random) % (uint64_t)st.st_size);
        uint8_t byte;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (uint8_t)(1 << next_random(random) % 8);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
}

static void cut_off(int dir, const char *name, uint64_t *random)
{
    int fd = openat(dir, name, O_RDWR);
    struct stat st;

    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    assert_int_equal(ftruncate(fd, (off_t)(next_random(random) % (uint64_t)(st.st_size + 1))), 0);
    close(fd);
}

/* While the store is open, or before it is opened: nothing wrong is read, the rest is there, and
 * what was damaged can be written anew. */
TEST(test_damaged)
{
    static const char *const files[] = {"index", "blocks"};
    uint64_t random = 7, n_damaged = 0, n_lost = 0;
    int dir = open_dir();
    struct block_store *store = open_store(dir, UINT32_MAX);

    (void)state;
    for (int i = 0; i < DAMAGES; i++) {
        bool is_open = i % 2 == 0;
        assert_int_equal(write_all(store) + OBJECTS * OBJECT_BLOCKS - n_lost,
                         i == 0 ? 2 * OBJECTS * OBJECT_BLOCKS : OBJECTS * OBJECT_BLOCKS);
        if (!is_open)
            store = block_store_close(store);
        if (i % 8 < 6)
            turn_bits(dir, files[i / 2 % 2], &random, 1 + i % 5);
        else
            cut_off(dir, files[i / 8 % 2], &random);
        if (!is_open)
            store = open_store(dir, UINT32_MAX);
        uint64_t there = count_all(store);
        n_lost = OBJECTS * OBJECT_BLOCKS - there;
        n_damaged += n_lost > 0;
        if (i % 8 < 6 && i / 2 % 2 == 1)
            assert_true(n_lost <= (uint64_t)(1 + i % 5));
    }
    assert_true(n_damaged > DAMAGES / 4);
    block_store_close(store);
    close(dir);
}

/* Of two nodes: copies make room for what others look for here, which makes room for nothing where
 * it is kept if there is room; which is which the files say. */
TEST(test_terms)
{
    static const struct placement_node nodes[] = {{1, 1000}, {2, 1000}};
    enum { ROOM = 10 };
    static struct one one;
    struct placement placement = {0};
    const uint32_t slot = BLOCK + 4096;
    int dir = open_dir();
    struct block_store *store = open_store(dir, ROOM * slot);
    uint64_t n[3] = {0};

    (void)state;
    assert_int_equal(placement_set(&placement, nodes, 2, 0), 0);
    block_store_place(store, &placement);
    for (uint64_t i = 0; i < OBJECTS * OBJECT_BLOCKS; i++) {
        make_one(&one, i / OBJECT_BLOCKS, 0, i % OBJECT_BLOCKS);
        n[0] += write_on(store, &one, STORE_COPY);
    }
    assert_true(n[0] >= ROOM);
    assert_int_equal(block_store_shelf(store)->first_bytes, 0);
    assert_int_equal(block_store_room(store), ROOM * slot);
    for (uint64_t i = 0; i < OBJECTS * OBJECT_BLOCKS; i++) {
        make_one(&one, i / OBJECT_BLOCKS, 1, i % OBJECT_BLOCKS);
        snprintf(one.where, sizeof one.where, "https://host s3://other/%llu",
                 (unsigned long long)i / OBJECT_BLOCKS);
        bool fits = block_store_taken(&one.name) <= block_store_room(store);
        bool kept = write_on(store, &one, STORE_IF_ROOM);
        assert_int_equal(kept, fits);
        n[1] += kept;
        n[2] += kept && one.len < BLOCK;
    }
    assert_true(n[1] >= ROOM && n[1] <= ROOM + n[2]);
    assert_int_equal(block_store_shelf(store)->n, n[1]);
    assert_true(block_store_room(store) < slot);
    make_one(&one, 0, 0, 0);
    assert_false(write_on(store, &one, STORE_COPY));
    block_store_close(store);
    store = open_store(dir, (ROOM + 1) * slot);
    block_store_place(store, &placement);
    assert_true(write_on(store, &one, STORE_COPY));
    block_store_close(store);
    store = open_store(dir, (ROOM + 1) * slot);
    block_store_place(store, &placement);
    assert_int_equal(block_store_shelf(store)->n, n[1] + 1);
    assert_int_equal(block_store_shelf(store)->bytes - block_store_shelf(store)->first_bytes, slot);
    assert_true(block_store_own(store, one.where, 0));
    assert_true(block_store_own(store, one.where, 0));
    assert_false(block_store_own(store, one.where, 1));
    assert_int_equal(block_store_shelf(store)->bytes, block_store_shelf(store)->first_bytes);
    block_store_place(store, NULL);
    assert_int_equal(block_store_shelf(store)->bytes, block_store_shelf(store)->first_bytes);
    block_store_close(store);
    placement_deinit(&placement);
    close(dir);
}

/* So large a file, and no larger. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

TEST(test_full)
{
    int dir = open_dir();
    struct block_store *store = open_store(dir, UINT32_MAX);

    (void)state;
    (void)signal(SIGXFSZ, SIG_IGN);
    limit_files(10 * RECORD_SLOT_BYTES + 1000);
    assert_true(write_all(store) > 10); /* those of a lower order still take the place of others */
    assert_int_equal(block_store_shelf(store)->n, count_all(store));
    assert_true(count_all(store) > 5 && count_all(store) <= 10);
    assert_true(block_store_shelf(store)->limit < 11 * BLOCK);
    limit_files(RLIM_INFINITY);
    block_store_close(store);
    close(dir);
}

TEST(test_removed)
{
    static struct one one;
    int dir = open_dir();
    struct block_store *store = open_store(dir, UINT32_MAX);
    struct block_write write;

    (void)state;
    make_one(&one, 0, 0, 0);
    assert_true(write_one(store, &one));
    assert_int_equal(unlinkat(dir, "index", 0) | unlinkat(dir, "blocks", 0), 0);
    assert_int_equal(read_one(store, &one), THERE);
    make_one(&one, 0, 0, 1);
    assert_true(block_write_begin(store, &one.name, (struct dl_span){one.data, one.len},
                                  STORE_BY_ORDER, &write));
    block_write_run(&write);
    assert_int_equal(write.r, -ESTALE);
    block_write_end(store, &write);
    block_store_close(store);
    close(dir);
}

/* What cannot be told from another one later is not kept; nor is one of an object that is said to
 * have another time. */
TEST(test_names)
{
    static struct one one;
    int dir = open_dir();
    struct block_store *store = open_store(dir, UINT32_MAX);

    (void)state;
    make_one(&one, 0, 0, 0);
    one.etag[0] = '\0';
    assert_false(write_one(store, &one));
    one.name.modified = 1000;
    assert_true(write_one(store, &one));
    assert_int_equal(read_one(store, &one), THERE);
    block_store_check(store, one.where, 0, 77);
    assert_int_equal(block_store_checked(store, one.where, 0), 77);
    block_store_close(store);
    store = open_store(dir, UINT32_MAX);
    assert_int_equal(block_store_checked(store, one.where, 0), 0);
    block_store_close(store);
    close(dir);
}

/* The limit falls while the store is open: what is beyond it goes at once, but what is being read.
 */
TEST(test_limit_falls)
{
    int dir = open_dir();
    struct block_store *store = open_store(dir, OBJECTS * OBJECT_BLOCKS * BLOCK / 2);
    const struct shelf *shelf = block_store_shelf(store);
    uint64_t limit = 12 * BLOCK;
    static struct one one;
    struct block_read read;

    (void)state;
    (void)write_all(store);
    assert_true(shelf->bytes > limit);
    block_store_limit(store, limit);
    assert_true(shelf->bytes <= limit);
    assert_true(taken(dir) <= limit + FILE_EXTRA);
    for (uint64_t object = 0; !block_read_begin(store, one.where, 0, &read); object++)
        make_one(&one, object, 0, 0);
    block_store_limit(store, 0);
    assert_int_equal(shelf->n, 1);
    block_read_run(&read);
    block_read_end(store, &read);
    block_store_limit(store, 0);
    assert_int_equal(shelf->n, 0);
    block_store_limit(store, limit);
    assert_true(write_all(store) > 0);
    uint64_t n = shelf->n;
    block_store_limit(store, 2 * limit);
    assert_true(write_all(store) > 0);
    assert_true(shelf->n > n);
    block_store_close(store);
    close(dir);
}

/* ---- files beside blocks -------------------------------------------------------------------- */

/* A file of the cache in `room`, that was used at this second, of bytes that are not on the disk.
 */
static const char *make_file(int number, uint64_t bytes, time_t when)
{
    char name[64];

    snprintf(name, sizeof name, "room/%016d.index", number);
    const char *path = harness_file(name, "", 0);
    const struct timespec times[2] = {{.tv_sec = when}, {.tv_sec = when}};
    assert_int_equal(truncate(path, (off_t)bytes), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    return path;
}

/* Of files and blocks together there is no more than the limit: blocks go for files, and files that
 * were not used for longest for those that were, once they have half of it. Blocks that another
 * process has stay its own. */
TEST(test_one_limit)
{
    char room[512];
    const uint64_t size = 24 * BLOCK;

    (void)state;
    snprintf(room, sizeof room, "%s/room", harness_tmpdir());
    assert_int_equal(mkdir(room, 0700), 0);
    int around = open(room, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(around, CACHE_BLOCKS, 0700), 0);
    int dir = openat(around, CACHE_BLOCKS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct block_store *store = open_store(dir, cache_room_blocks(size, disk_cache_bytes(around)));
    (void)write_all(store);
    uint64_t whole = taken(dir);
    assert_true(whole > size - 2 * BLOCK && whole <= size + FILE_EXTRA);
    const char *first = make_file(1, 8 * BLOCK, 1000);
    cache_room_make(room, size);
    assert_true(taken(dir) + FILE_EXTRA >= whole); /* the store is open */
    block_store_close(store);
    cache_room_make(room, 0); /* as one who keeps no blocks */
    assert_true(taken(dir) + FILE_EXTRA >= whole);
    cache_room_make(room, size);
    assert_int_equal(access(first, F_OK), 0);
    assert_true(taken(dir) <= size - 8 * BLOCK + FILE_EXTRA);
    assert_true(taken(dir) > size / 3);
    const char *second = make_file(2, 6 * BLOCK, 2000);
    cache_room_make(room, size);
    assert_int_equal(access(first, F_OK), -1);
    assert_int_equal(access(second, F_OK), 0);
    assert_int_equal(disk_cache_bytes(around), 6 * BLOCK);
    assert_true(taken(dir) > size / 3);
    close(dir);
    close(around);
}

/* What others could have written is not read. */
TEST(test_of_others)
{
    int dir = open_dir();
    struct block_store *store = open_store(dir, UINT32_MAX);
    struct dl_error err = {0};

    (void)state;
    block_store_close(store);
    assert_int_equal(fchmodat(dir, "blocks", 0620, 0), 0);
    assert_int_equal(block_store_open(dir, UINT32_MAX, &store, &err), -EPERM);
    assert_string_equal(err.path, "blocks");
    assert_int_equal(unlinkat(dir, "blocks", 0), 0);
    assert_int_equal(symlinkat("elsewhere", dir, "blocks"), 0);
    assert_int_equal(block_store_open(dir, UINT32_MAX, &store, &err), -ELOOP);
    close(dir);
}
