#include "daemon/helper/sent.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Consumes `fd`. */
static int sent_map(struct sent *sent, int fd, uint64_t bytes, int access)
{
    void *at = mmap(NULL, bytes, access, MAP_SHARED, fd, 0);

    if (at == MAP_FAILED) {
        int r = -errno;
        close(fd);
        return r;
    }
    *sent = (struct sent){.fd = fd, .bytes = at, .len = bytes};
    return 0;
}

static int sent_open_file(struct sent *sent, const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

    if (fd < 0)
        return -errno;
    /* Sealed by the client: cut short, it would kill this process. */
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &st) < 0 || st.st_size == 0 || seals < 0 || !(seals & F_SEAL_SHRINK)) {
        close(fd);
        return -EINVAL;
    }
    return sent_map(sent, fd, (uint64_t)st.st_size, PROT_READ);
}

int sent_open(struct sent *sent, const char *path, struct dl_error *err)
{
    int r = sent_open_file(sent, path);

    return r == 0 ? 0
                  : dl_error_set(err, -r, "dataset.args.sent",
                                 "%s cannot be read: %s; helpers get what a program has made for "
                                 "them, as long as it runs",
                                 path, strerror(-r));
}

int sent_room(struct sent *sent, uint64_t bytes)
{
    int fd = memfd_create("dloader-sent", MFD_CLOEXEC);

    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)bytes) < 0) {
        int r = -errno;
        close(fd);
        return r;
    }
    return sent_map(sent, fd, bytes, PROT_READ | PROT_WRITE);
}

void sent_deinit(struct sent *sent)
{
    if (!sent->bytes)
        return;
    (void)munmap(sent->bytes, sent->len);
    close(sent->fd);
    *sent = (struct sent){0};
}

int sent_read(const struct sent *sent, bool any_versions, char ret_lines[static ALIKE_MAX],
              struct dl_span *ret, struct dl_error *err)
{
    const uint8_t *at = sent->bytes, *end = sent->bytes + sent->len;
    size_t told = 0;

    for (const uint8_t *line = at; at < end; line = at) {
        const uint8_t *stop = memchr(at, '\n', (size_t)(end - at));
        size_t len = stop ? (size_t)(stop - line) : 0;

        at = stop ? stop + 1 : end;
        if (stop && len == 0) {
            ret_lines[told] = '\0';
            *ret = (struct dl_span){at, (size_t)(end - at)};
            return 0;
        }
        if (told + len + 1 >= ALIKE_MAX)
            break;
        if (any_versions && !alike_is_code((const char *)line, len))
            continue;
        memcpy(ret_lines + told, line, len);
        told += len;
        ret_lines[told++] = '\n';
    }
    return dl_error_set(err, EINVAL, "dataset.args.sent", "does not begin as what clients make");
}
