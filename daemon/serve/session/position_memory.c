#include "daemon/serve/session/position_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Sealed: no client can make it smaller under the daemon's hands. */
static int position_make_memfd(void)
{
    int fd = memfd_create("dloader-position", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd >= 0 && (ftruncate(fd, POSITION_BYTES) < 0 ||
                    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0))
        close_fdp(&fd);
    return fd;
}

struct rank_position *position_new(int *ret_fd)
{
    int fd = position_make_memfd();
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
