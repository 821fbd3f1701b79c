#include "daemon/data/decode/image/cached_pictures.h"

#include <time.h>

void cached_pictures_init(struct cached_pictures *cached, const struct spec_dataset *spec,
                          uint64_t files, const struct data_env *env)
{
    *cached = (struct cached_pictures){.files = files};
    for (uint32_t i = 0; env && spec->cache > 0 && i < env->n_pictures; i++) {
        if (strcmp(env->pictures[i].root, spec->files[0].path) == 0)
            cached->cache = &env->pictures[i].cache;
    }
}

void cached_pictures_deinit(struct cached_pictures *cached)
{
    picture_deinit(&cached->whole);
    *cached = (struct cached_pictures){0};
}

bool cached_pictures_open(struct cached_pictures *cached, int fd, struct image_decoder *decoder,
                          struct image_size *ret)
{
    struct pictures_entry entry;
    struct stat st;

    if (!cached->cache || fstat(fd, &st) < 0)
        return false;
    pictures_key_of(&st, &cached->key);
    if (!pictures_cache_find(cached->cache, &cached->key, &entry))
        return false;
    *ret = (struct image_size){.height = entry.height, .width = entry.width};
    image_open_pixels(decoder, &(struct image_pixels){.pixels = entry.pixels,
                                                      .size = *ret,
                                                      .step = PICTURES_CACHE_COLOURS});
    return true;
}

/* Written to so lately that another write might leave the times as they are: file systems count
 * them in ticks of some milliseconds. */
static bool cached_pictures_is_settled(const struct pictures_key *key)
{
    enum { SETTLED_NS = 100 * 1000 * 1000 };
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - key->changed_ns;
    return age < -SETTLED_NS || age > SETTLED_NS;
}

bool cached_pictures_wants(const struct cached_pictures *cached, int fd, struct image_size size)
{
    struct pictures_key now;
    struct stat st;

    if (!cached->cache || fstat(fd, &st) < 0)
        return false;
    pictures_key_of(&st, &now);
    return memcmp(&now, &cached->key, sizeof now) == 0 && cached_pictures_is_settled(&now) &&
           pictures_cache_wants(cached->cache, &now, size.height, size.width, cached->files);
}

static void cached_pictures_narrow(const struct picture *p, uint8_t *out)
{
    for (size_t i = 0, n = picture_pixels(p); i < n; i++)
        memcpy(out + i * PICTURES_CACHE_COLOURS, p->pixels + i * PICTURE_PIXEL,
               PICTURES_CACHE_COLOURS);
}

static void cached_pictures_put(const struct cached_pictures *cached)
{
    const struct picture *p = &cached->whole;
    struct pictures_room room;

    if (!pictures_cache_take(cached->cache, &cached->key, p->size.height, p->size.width, &room))
        return;
    cached_pictures_narrow(p, room.pixels);
    (void)pictures_cache_publish(cached->cache, &room);
}

int cached_pictures_add(struct cached_pictures *cached, struct image_decoder *decoder,
                        const struct image_file *file, struct dl_error *err)
{
    struct picture_box all = {.size = image_source(decoder)};
    struct image_file exact = *file;
    struct image_size size;

    exact.exact = true;
    if (image_open(decoder, &exact, &size, NULL) < 0 ||
        image_decode_picture(decoder, &all, &cached->whole, NULL) < 0)
        return image_open(decoder, file, &size, err);
    cached_pictures_put(cached);
    image_open_pixels(decoder, &(struct image_pixels){.pixels = cached->whole.pixels,
                                                      .size = cached->whole.size,
                                                      .step = PICTURE_PIXEL});
    return 0;
}
