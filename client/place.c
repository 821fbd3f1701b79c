/*
 * The position in an epoch that a rank of the cluster shares with its daemon: the rank uses no
 * batch that the daemon does not know of.
 */
#include "client/internal.h"

#include "proto/position.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

static bool place_is_position(int fd, uint64_t bytes)
{
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    return seals >= 0 && (seals & wanted) == wanted && bytes == POSITION_BYTES &&
           fstat(fd, &st) == 0 && st.st_size == POSITION_BYTES;
}

int place_map(struct dl_epoch *epoch, int fd, uint64_t bytes)
{
    void *memory;

    if (!place_is_position(fd, bytes))
        return -EPROTO;
    memory = mmap(NULL, POSITION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return -ENOMEM;
    place_drop(epoch);
    epoch->used = memory;
    return 0;
}

void place_drop(struct dl_epoch *epoch)
{
    if (epoch->used)
        munmap(epoch->used, POSITION_BYTES);
    epoch->used = NULL;
}

bool place_may_use(struct dl_epoch *epoch)
{
    const struct entry *first = &epoch->entries[epoch->head];

    return !epoch->used || first->descriptor.step == UINT64_MAX ||
           position_advance(epoch->used, first->descriptor.step + 1);
}
