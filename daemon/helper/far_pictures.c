#include "daemon/helper/far_pictures.h"

#include "daemon/cache/ids_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

/* The answer, if there is one, is what the worker is to be told. */
static int far_pictures_ask(int asks, const struct dl_message *wish, struct frame_reader *ret)
{
    _cleanup_(buffer_deinit) struct dl_buffer out = {0};
    int pair[2];
    int r = message_encode(wish, &out);

    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    _cleanup_fd_ int ours = pair[0];
    ssize_t n = fdpass_send(asks, out.data, out.len, &pair[1], 1, 0);
    close_fdp(&pair[1]);
    if (n >= 0)
        n = fdpass_recv(ours, ret, 0);
    return n < 0 ? (int)n : 0;
}

/* Used as long as this process runs, which keeps the descriptor and its lock for that. */
static int far_pictures_use(int fd)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};

    return fcntl(fd, F_SETLK, &lock) < 0 ? -errno : 0;
}

static int far_pictures_offer_one(int asks, const struct far_worker *worker,
                                  const struct dl_message *wish)
{
    _cleanup_(frame_reader_deinit) struct frame_reader reader = {0};
    struct dl_span payload;
    struct dl_message msg;
    int r = far_pictures_ask(asks, wish, &reader);

    if (r < 0 || frame_reader_next(&reader, &payload) <= 0)
        return r;
    int fd = frame_reader_take_fd(&reader);
    if (fd < 0)
        return -EPROTO;
    r = message_decode(payload.data, payload.len, TO_WORKER, &msg, NULL);
    if (r == 0)
        r = far_pictures_use(fd);
    return r < 0 ? r : far_worker_keep(worker, &msg, fd);
}

static int far_pictures_offer_pages(int asks, const struct far_worker *worker, const char *root,
                                    uint64_t bytes)
{
    const struct dl_message wish = {.number = DL_MSG_W_PICTURES,
                                    .w_pictures = {span_str(root), bytes}};

    return far_pictures_offer_one(asks, worker, &wish);
}

static int far_pictures_offer_ids(int asks, const struct far_worker *worker, const char *model,
                                  uint64_t bytes)
{
    const struct dl_message wish = {.number = DL_MSG_W_IDS, .w_ids = {span_str(model), bytes}};

    return far_pictures_offer_one(asks, worker, &wish);
}

int far_pictures_offer(int asks, const struct far_worker *worker,
                       const struct spec_dataset *dataset)
{
    uint64_t bytes, ids = dataset->model ? ids_cache_bytes(dataset->ids) : 0;
    const char *root = spec_kept(dataset, &bytes);
    int r = bytes > 0 ? far_pictures_offer_pages(asks, worker, root, bytes) : 0;

    if (r == 0 && ids > 0)
        r = far_pictures_offer_ids(asks, worker, dataset->model, ids);
    for (uint32_t i = 0; r == 0 && i < dataset->n_datasets; i++)
        r = far_pictures_offer(asks, worker, &dataset->datasets[i]);
    return r;
}
