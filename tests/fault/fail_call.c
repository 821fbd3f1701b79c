/*
 * Makes one system call fail, the k-th of its name from now on: preloaded into a daemon or a worker
 * by the tests. The file that FAIL_CALL names says which, "NUMBER CALL ERRNO K"; another NUMBER is
 * another order, and counts anew. Once it was obeyed there is a file of that name and ".hit".
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* By the kernel's own door: the functions here may be ours. */
static size_t read_order(char *text, size_t len)
{
    const char *path = getenv("FAIL_CALL");
    long fd = path ? syscall(SYS_open, path, O_RDONLY | O_CLOEXEC) : -1;
    long n = fd < 0 ? 0 : syscall(SYS_read, fd, text, len - 1);

    if (fd >= 0)
        syscall(SYS_close, fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

static void say_hit(void)
{
    char path[4096];
    long fd;

    snprintf(path, sizeof path, "%s.hit", getenv("FAIL_CALL"));
    fd = syscall(SYS_open, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0)
        syscall(SYS_close, fd);
}

/* 0, or the error that this call is to fail with. */
static int order(const char *name)
{
    static long last, left;
    char text[128], call[32] = "";
    long number = 0, k = 0;
    int code = errno, error = 0;

    if (read_order(text, sizeof text) == 0 ||
        sscanf(text, "%ld %31s %d %ld", &number, call, &error, &k) != 4 ||
        strcmp(call, name) != 0) {
        errno = code;
        return 0;
    }
    if (number != last) {
        last = number;
        left = k;
    }
    errno = code;
    if (left <= 0 || --left > 0)
        return 0;
    say_hit();
    return error;
}

static int fails(const char *name)
{
    int code = order(name);

    if (code)
        errno = code;
    return code;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int memfd_create(const char *name, unsigned flags)
{
    return fails("memfd_create") ? -1 : NEXT(memfd_create)(name, flags);
}

int ftruncate64(int fd, off64_t length)
{
    return fails("ftruncate") ? -1 : NEXT(ftruncate64)(fd, length);
}

int posix_fallocate64(int fd, off64_t offset, off64_t len)
{
    int code = order("posix_fallocate");

    return code ? code : NEXT(posix_fallocate64)(fd, offset, len);
}

/* Of files: private memory is the allocator's business. */
void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t offset)
{
    return fd >= 0 && fails("mmap") ? MAP_FAILED : NEXT(mmap64)(addr, len, prot, flags, fd, offset);
}

int socketpair(int domain, int type, int protocol, int fds[2])
{
    return fails("socketpair") ? -1 : NEXT(socketpair)(domain, type, protocol, fds);
}

int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    return fails("accept") ? -1 : NEXT(accept4)(fd, addr, len, flags);
}

int eventfd(unsigned value, int flags);
int eventfd(unsigned value, int flags)
{
    return fails("eventfd") ? -1 : NEXT(eventfd)(value, flags);
}

int pipe2(int fds[2], int flags)
{
    return fails("pipe") ? -1 : NEXT(pipe2)(fds, flags);
}

pid_t fork(void)
{
    return fails("fork") ? -1 : NEXT(fork)();
}

int open64(const char *path, int flags, ...)
{
    va_list args;

    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails("open") ? -1 : NEXT(open64)(path, flags, mode);
}
