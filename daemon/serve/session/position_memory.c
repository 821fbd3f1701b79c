#include "daemon/serve/session/position_memory.h"

#include "proto/common/sealed.h"

#include <sys/mman.h>

struct rank_position *position_new(int *ret_fd)
{
    int fd = sealed_memory("dloader-position", POSITION_BYTES);
    void *memory =
        fd < 0 ? MAP_FAILED : mmap(NULL, POSITION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (memory == MAP_FAILED) {
        close_fdp(&fd);
        return NULL;
    }
    *ret_fd = fd;
    return memory;
}

struct rank_position *position_free(struct rank_position *position)
{
    if (position)
        munmap(position, POSITION_BYTES);
    return NULL;
}
