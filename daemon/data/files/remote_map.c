/* Memory whose contents come when they are read. */
#include "daemon/data/files/guard.h"
#include "daemon/data/files/remote_private.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>

#include <utlist.h>
#include <xxhash.h>

enum {
    BLOCK = REMOTE_BLOCK_BYTES,
    /* Blocks that a reader in sequence gets at once; the next ones are asked for before
     * they are wanted: more of them as long as they come too late, and the link is not full. */
    AHEAD_BLOCKS = 16,
    AHEAD_MOST = 128,
    /* A reader that says that it needs so many reads no further in sequence: what follows a row
     * group of a shuffled dataset is another one, which is read much later, or has been. */
    TOLD_BLOCKS = 4,
};

/* What is known of a block; TOLD: it was asked for, as one of TOLD_BLOCKS or more. */
enum { ASKED = 1, READY = 2, BAD = 4, TOLD = 8 };

struct remote_map {
    struct remote_map *prev, *next; /* remote->maps */
    struct remote *remote;          /* borrowed */
    uint32_t object;
    int fd;        /* owned */
    uint8_t *data; /* owned mapping */
    uint64_t bytes;
    char *url;      /* owned */
    uint8_t *state; /* owned; of each block */
    bool has_bad;
    uint32_t ahead; /* blocks */
};

bool remote_has_maps;
/* A signal's handler has no other way to its data. */
static struct remote *remote_installed;
static struct sigaction remote_before;

static uint64_t remote_map_blocks(const struct remote_map *map)
{
    return (map->bytes + BLOCK - 1) / BLOCK;
}

static uint64_t remote_map_block_bytes(const struct remote_map *map, uint64_t block, uint64_t n)
{
    return min_u64(map->bytes - block * BLOCK, n * BLOCK);
}

static struct remote_map *remote_find_map(const void *at)
{
    struct remote_map *map;

    if (!remote_installed)
        return NULL;
    DL_FOREACH (remote_installed->maps, map) {
        if ((uintptr_t)at - (uintptr_t)map->data < map->bytes)
            return map;
    }
    return NULL;
}

/* ---- blocks: async-signal-safe -------------------------------------------------------------- */

/* Blocks that nobody has asked for, of `n` from `block` on; their state then. */
static void remote_map_expect(struct remote_map *map, uint64_t block, uint64_t n, uint8_t state)
{
    uint64_t end = min_u64(block + n, remote_map_blocks(map));

    while (block < end) {
        uint64_t first = block;

        while (block < end && map->state[block] == 0)
            map->state[block++] = state;
        if (block > first) {
            struct remote_question question = {
                .op = REMOTE_EXPECT,
                .object = map->object,
                .first = first * BLOCK,
                .bytes = remote_map_block_bytes(map, first, block - first)};
            (void)remote_send(map->remote, &question);
        } else {
            block++;
        }
    }
}

static void remote_drop(struct remote_ready *ready)
{
    struct remote_map *map = ready->map;
    struct remote_question question = {.op = REMOTE_DROP};

    if (!map)
        return;
    ready->map = NULL;
    question.object = map->object;
    question.first = ready->block * BLOCK;
    question.bytes = remote_map_block_bytes(map, ready->block, 1);
    (void)mprotect(map->data + question.first, question.bytes, PROT_NONE);
    map->state[ready->block] = 0;
    (void)remote_send(map->remote, &question);
}

/* The place of the block that was had first; those of a run that comes stay. */
static struct remote_ready *remote_oldest(struct remote *remote, const struct remote_map *map,
                                          uint64_t block, uint64_t n)
{
    struct remote_ready *ready;

    do {
        ready = &remote->ready[remote->next_ready];
        remote->next_ready = (remote->next_ready + 1) % remote->window;
    } while (ready->map == map && ready->block - block < n);
    return ready;
}

/* Not more blocks than the window has. */
static bool remote_map_make_ready(struct remote_map *map, uint64_t block, uint64_t n)
{
    if (mprotect(map->data + block * BLOCK, remote_map_block_bytes(map, block, n), PROT_READ) < 0)
        return false;
    for (uint64_t i = block; i < block + n; i++) {
        if (map->state[i] == READY)
            continue;
        struct remote_ready *ready = remote_oldest(map->remote, map, block, n);
        remote_drop(ready);
        *ready = (struct remote_ready){.map = map, .block = i};
        map->state[i] = READY;
    }
    return true;
}

/* How many blocks of an answer's: up to one whose zeroes are there until they are told of. */
static uint64_t remote_map_run(const struct remote_map *map, uint64_t block, uint64_t bytes)
{
    uint64_t most = min_u64(remote_map_blocks(map) - block, map->remote->window);
    uint64_t n = 1;

    most = min_u64(most, (bytes + BLOCK - 1) / BLOCK);
    while (n < most && map->state[block + n] != BAD)
        n++;
    return n;
}

/* mmap() is none of the functions that POSIX allows here; on Linux it is a system call and no more.
 */
static bool remote_map_give_zeroes(struct remote_map *map, uint64_t block)
{
    void *got = mmap(map->data + block * BLOCK, remote_map_block_bytes(map, block, 1), PROT_READ,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

    if (got == MAP_FAILED)
        return false;
    map->state[block] = BAD;
    map->has_bad = true;
    map->remote->guard->damaged = 1;
    return true;
}

static bool remote_map_fetch(struct remote_map *map, uint64_t block)
{
    struct remote *remote = map->remote;
    struct remote_question question = {.op = REMOTE_NEED,
                                       .object = map->object,
                                       .first = block * BLOCK,
                                       .bytes = remote_map_block_bytes(map, block, 1)};
    bool in_sequence = block > 0 && map->state[block - 1] == READY && map->state[block] != TOLD;
    struct remote_answer answer;
    int fd;

    if (in_sequence)
        remote_map_expect(map, block + 1, map->ahead, ASKED);
    remote_ask(remote, &question, &answer, &fd);
    close_fdp(&fd);
    if (answer.code) {
        remote->failed = answer;
        return remote_map_give_zeroes(map, block);
    }
    uint64_t n = remote_map_run(map, block, answer.bytes);
    if (in_sequence && answer.waited)
        map->ahead = (uint32_t)min_u64(2 * map->ahead, AHEAD_MOST);
    if (in_sequence)
        remote_map_expect(map, block + n, map->ahead, ASKED);
    return remote_map_make_ready(map, block, n);
}

static void remote_hand_on(int number, siginfo_t *info, void *context)
{
    if (remote_before.sa_flags & SA_SIGINFO)
        remote_before.sa_sigaction(number, info, context);
    else if (remote_before.sa_handler != SIG_DFL && remote_before.sa_handler != SIG_IGN)
        remote_before.sa_handler(number);
    else
        (void)sigaction(number, &remote_before, NULL);
}

static void remote_on_sigsegv(int number, siginfo_t *info, void *context)
{
    struct remote_map *map = remote_find_map(info->si_addr);
    int code = errno;
    bool done =
        map && remote_map_fetch(map, ((uintptr_t)info->si_addr - (uintptr_t)map->data) / BLOCK);

    errno = code;
    if (!done)
        remote_hand_on(number, info, context);
}

/* ---- maps ----------------------------------------------------------------------------------- */

static void remote_install(struct remote *remote)
{
    struct sigaction action = {.sa_sigaction = remote_on_sigsegv, .sa_flags = SA_SIGINFO};

    if (!remote_installed)
        (void)sigaction(SIGSEGV, &action, &remote_before);
    remote_installed = remote;
    remote_has_maps = true;
}

static void remote_map_free(struct remote_map *map)
{
    if (map->data)
        munmap(map->data, map->bytes);
    close_fdp(&map->fd);
    free(map->url);
    free(map->state);
    free(map);
}

int remote_map(struct remote *remote, const char *url, const void **ret,
               struct remote_map **ret_map, struct stat *ret_st, struct dl_error *err)
{
    struct remote_answer answer;
    _cleanup_fd_ int fd = -1;
    int r = remote_open_pages(remote, url, &answer, &fd, ret_st, err);

    *ret_map = NULL;
    *ret = NULL;
    if (r < 0 || answer.bytes == 0)
        return r;
    if (!remote->ready) {
        remote->window = answer.window;
        remote->ready = calloc(remote->window, sizeof *remote->ready);
    }
    struct remote_map *map = remote->ready ? calloc(1, sizeof *map) : NULL;
    if (!map)
        return dl_error_set(err, ENOMEM, url, "out of memory");
    *map = (struct remote_map){.remote = remote,
                               .object = answer.object,
                               .fd = steal_fd(&fd),
                               .bytes = answer.bytes,
                               .ahead = AHEAD_BLOCKS};
    map->url = strdup(url);
    map->state = calloc(remote_map_blocks(map), 1);
    void *data = mmap(NULL, map->bytes, PROT_NONE, MAP_SHARED, map->fd, 0);
    map->data = data == MAP_FAILED ? NULL : data;
    if (!map->url || !map->state || !map->data) {
        remote_map_free(map);
        return dl_error_set(err, ENOMEM, url, "its %llu bytes cannot be mapped", (ull)answer.bytes);
    }
    remote_install(remote);
    DL_APPEND(remote->maps, map);
    *ret = map->data;
    *ret_map = map;
    return 0;
}

void remote_unmap(struct remote_map *map)
{
    struct remote_question question = {.op = REMOTE_CLOSE};

    if (!map)
        return;
    question.object = map->object;
    (void)remote_send(map->remote, &question);
    for (uint32_t i = 0; i < map->remote->window; i++) {
        if (map->remote->ready[i].map == map)
            map->remote->ready[i].map = NULL;
    }
    DL_DELETE(map->remote->maps, map);
    remote_has_maps = map->remote->maps != NULL;
    remote_map_free(map);
}

/* The same, for later: whether somebody has asked for it says nothing then. */
static void remote_map_look_ahead(struct remote_map *map, uint64_t block, uint64_t n)
{
    for (; n > 0 && map->state[block] == READY; n--)
        block++;
    const uint64_t what[] = {map->object, block, n};
    const struct remote_question question = {.op = REMOTE_AHEAD,
                                             .object = map->object,
                                             .first = block * BLOCK,
                                             .bytes = remote_map_block_bytes(map, block, n)};

    if (n > 0 && !remote_note(map->remote->said, XXH3_64bits(what, sizeof what)))
        (void)remote_send(map->remote, &question);
}

void remote_expect_memory(const void *at, uint64_t bytes)
{
    struct remote_map *map = remote_find_map(at);

    if (!map || bytes == 0)
        return;
    uint64_t first = (uint64_t)((const uint8_t *)at - map->data);
    uint64_t end = min_u64(map->bytes, first + bytes);
    uint64_t n = (end - 1) / BLOCK - first / BLOCK + 1;
    if (map->remote->ahead)
        remote_map_look_ahead(map, first / BLOCK, n);
    else
        remote_map_expect(map, first / BLOCK, n, n < TOLD_BLOCKS ? ASKED : TOLD);
}

/* Asked for again when it is read again. */
static bool remote_map_mend(struct remote_map *map)
{
    bool all = true;

    for (uint64_t i = 0; i < remote_map_blocks(map); i++) {
        if (map->state[i] != BAD)
            continue;
        if (mmap(map->data + i * BLOCK, remote_map_block_bytes(map, i, 1), PROT_NONE,
                 MAP_SHARED | MAP_FIXED, map->fd, (off_t)(i * BLOCK)) == MAP_FAILED)
            all = false;
        else
            map->state[i] = 0;
    }
    map->has_bad = !all;
    return all;
}

int remote_tell(struct remote *remote, struct dl_error *err)
{
    struct remote_map *map;
    int r = 0;

    DL_FOREACH (remote->maps, map) {
        if (!map->has_bad)
            continue;
        (void)remote_map_mend(map);
        r = dl_error_set(err, EIO, map->url, "%s", remote->failed.message);
    }
    return r;
}
