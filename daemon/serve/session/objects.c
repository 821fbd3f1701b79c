#include "daemon/serve/session/objects.h"

#include "daemon/serve/base/memory.h"
#include "proto/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static const char place[] = "dataset.pickle";

/* What a worker maps must stay as large and as it is. */
static int check(uint64_t number, int fd, struct dl_error *err)
{
    static const int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    if (seals < 0 || (seals & wanted) != wanted)
        return dl_error_set(err, EINVAL, place,
                            "object %llu is %s; send a memfd with the seals F_SEAL_SHRINK, "
                            "F_SEAL_GROW and F_SEAL_WRITE",
                            (unsigned long long)number,
                            seals < 0 ? "no memfd" : "not sealed against every change");
    if (fstat(fd, &st) < 0)
        return dl_error_set(err, errno, place, "object %llu cannot be looked at: %s",
                            (unsigned long long)number, strerror(errno));
    if (st.st_size < 1 || (uint64_t)st.st_size > DL_MAX_SEGMENT_BYTES)
        return dl_error_set(err, EINVAL, place, "object %llu has %lld bytes, not 1 to %llu",
                            (unsigned long long)number, (long long)st.st_size,
                            (unsigned long long)DL_MAX_SEGMENT_BYTES);
    return 0;
}

static void remove_at(struct objects *objects, uint32_t i)
{
    close_fdp(&objects->items[i].fd);
    objects->n--;
    memmove(&objects->items[i], &objects->items[i + 1],
            (objects->n - i) * sizeof objects->items[0]);
}

static struct object *find(const struct objects *objects, uint64_t number)
{
    for (uint32_t i = 0; i < objects->n; i++) {
        if (objects->items[i].number == number)
            return &objects->items[i];
    }
    return NULL;
}

void objects_deinit(struct objects *objects)
{
    while (objects->n > 0)
        remove_at(objects, objects->n - 1);
    free(objects->items);
    *objects = (struct objects){0};
}

void objects_add(struct objects *objects, uint64_t number, int fd)
{
    struct object *object = find(objects, number);

    if (object) /* said anew: the last word counts */
        remove_at(objects, (uint32_t)(object - objects->items));
    if (!objects->items)
        objects->items = must_alloc(OBJECTS_MAX * sizeof *objects->items);
    if (objects->n == OBJECTS_MAX)
        remove_at(objects, 0);
    object = &objects->items[objects->n++];
    *object = (struct object){.number = number, .fd = fd};
    if (check(number, fd, &object->why) < 0)
        close_fdp(&object->fd);
}

int objects_take(struct objects *objects, uint64_t number, int *ret_fd, struct dl_error *err)
{
    struct object *object = find(objects, number);

    if (!object)
        return dl_error_set(err, ENOENT, place,
                            "no object %llu is here; send OBJECT before each OPEN that names it "
                            "(of those that none has named, the last %d are kept)",
                            (unsigned long long)number, OBJECTS_MAX);
    int r = object->fd < 0 ? -object->why.code : 0;
    if (r < 0 && err)
        *err = object->why;
    if (r == 0)
        *ret_fd = steal_fd(&object->fd);
    remove_at(objects, (uint32_t)(object - objects->items));
    return r;
}
