#include "daemon/data/image/kept_pictures.h"

#include <time.h>

void kept_pictures_init(struct kept_pictures *kept, const struct spec_dataset *spec, uint64_t files,
                        const struct data_env *env)
{
    *kept = (struct kept_pictures){.files = files};
    for (uint32_t i = 0; env && spec->cache > 0 && i < env->n_pictures; i++) {
        if (strcmp(env->pictures[i].root, spec->files[0].path) == 0)
            kept->cache = &env->pictures[i].cache;
    }
}

void kept_pictures_deinit(struct kept_pictures *kept)
{
    picture_deinit(&kept->whole);
    *kept = (struct kept_pictures){0};
}

bool kept_pictures_open(struct kept_pictures *kept, int fd, struct image_decoder *decoder,
                        struct image_size *ret)
{
    struct pictures_entry entry;
    struct stat st;

    if (!kept->cache || fstat(fd, &st) < 0)
        return false;
    pictures_key_of(&st, &kept->key);
    if (!pictures_cache_find(kept->cache, &kept->key, &entry))
        return false;
    *ret = (struct image_size){.height = entry.height, .width = entry.width};
    image_open_pixels(decoder, &(struct image_pixels){.pixels = entry.pixels,
                                                      .size = *ret,
                                                      .step = PICTURES_CACHE_COLOURS});
    return true;
}

/* Written to so lately that another write might leave the times as they are: file systems count
 * them in ticks of some milliseconds. */
static bool kept_pictures_is_settled(const struct pictures_key *key)
{
    enum { SETTLED_NS = 100 * 1000 * 1000 };
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    int64_t age = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - key->changed_ns;
    return age < -SETTLED_NS || age > SETTLED_NS;
}

bool kept_pictures_wants(const struct kept_pictures *kept, int fd, struct image_size size)
{
    struct pictures_key now;
    struct stat st;

    if (!kept->cache || fstat(fd, &st) < 0)
        return false;
    pictures_key_of(&st, &now);
    return memcmp(&now, &kept->key, sizeof now) == 0 && kept_pictures_is_settled(&now) &&
           pictures_cache_wants(kept->cache, &now, size.height, size.width, kept->files);
}

static void kept_pictures_narrow(const struct picture *p, uint8_t *out)
{
    for (size_t i = 0, n = picture_pixels(p); i < n; i++)
        memcpy(out + i * PICTURES_CACHE_COLOURS, p->pixels + i * PICTURE_PIXEL,
               PICTURES_CACHE_COLOURS);
}

static void kept_pictures_put(const struct kept_pictures *kept)
{
    const struct picture *p = &kept->whole;
    struct pictures_room room;

    if (!pictures_cache_take(kept->cache, &kept->key, p->size.height, p->size.width, &room))
        return;
    kept_pictures_narrow(p, room.pixels);
    (void)pictures_cache_publish(kept->cache, &room);
}

int kept_pictures_add(struct kept_pictures *kept, struct image_decoder *decoder,
                      const struct image_file *file, struct dl_error *err)
{
    struct picture_box all = {.size = image_source(decoder)};
    struct image_size size;

    if (image_decode_picture(decoder, &all, &kept->whole, NULL) < 0)
        return image_open(decoder, file, &size, err);
    kept_pictures_put(kept);
    image_open_pixels(decoder, &(struct image_pixels){.pixels = kept->whole.pixels,
                                                      .size = kept->whole.size,
                                                      .step = PICTURE_PIXEL});
    return 0;
}
