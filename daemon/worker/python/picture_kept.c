/* Pictures for dloaderd._lazy, of files that workers keep decoded. */
#include "daemon/worker/python/pictures.h"

#include "daemon/worker/forked.h"
#include "daemon/worker/python/spent.h"

#include "daemon/data/decode/image/cached_pictures.h"
#include "proto/common/clock.h"

#include <sys/mman.h>

const char picture_find_text[] =
    "picture_find(fd) -> (key, pixels, height, width), or None\n\n"
    "Of the file fd, as workers keep it decoded: R, G, B, in memory that is never unmapped. "
    "pixels\n"
    "is None where it is not kept: then picture_keep() takes the key. None: nothing is kept.";
const char picture_keep_text[] =
    "picture_keep(fd, key, data, files) -> (pixels, height, width), or None\n\n"
    "key: of picture_find(), before data, the file's bytes, were read. Decodes the picture, and\n"
    "keeps it if it is one of those for which there is room, of so many files. None: it is not.";

/* Of the one cache that a worker has. A copy of this process, and what Python holds when a worker
 * has ended, may read it yet. */
static const uint8_t *kept_pixels; /* never unmapped; NULL: nothing has been found yet */

/* NULL: it cannot be mapped; or with an exception. */
static PyObject *kept_view(const struct pictures_cache *cache, const struct pictures_entry *entry)
{
    if (!kept_pixels) {
        void *base = mmap(NULL, cache->bytes, PROT_READ, MAP_SHARED, cache->fd, 0);
        if (base == MAP_FAILED)
            return NULL;
        kept_pixels = base;
    }
    const uint8_t *at = kept_pixels + (entry->pixels - (const uint8_t *)cache->arena);
    /* No buffer of Python's is of const bytes: it is asked for reading alone. */
    return PyMemoryView_FromMemory(
        (char *)(uintptr_t)at,
        (Py_ssize_t)entry->height * (Py_ssize_t)entry->width * PICTURES_CACHE_COLOURS, PyBUF_READ);
}

PyObject *picture_find(PyObject *module, PyObject *fd)
{
    const struct pictures_cache *cache = pictures_kept_in();
    uint64_t began = clock_ns();
    struct pictures_entry entry = {0};
    struct pictures_key key;
    struct stat st;

    (void)module;
    if (!cache || forked_copy)
        Py_RETURN_NONE;
    int file = PyObject_AsFileDescriptor(fd);
    if (file < 0)
        return NULL;
    if (fstat(file, &st) < 0)
        Py_RETURN_NONE;
    pictures_key_of(&st, &key);
    PyObject *pixels = pictures_cache_find(cache, &key, &entry) ? kept_view(cache, &entry) : NULL;
    spent_add(began);
    if (!pixels && PyErr_Occurred())
        return NULL;
    if (!pixels)
        pixels = Py_NewRef(Py_None);
    return Py_BuildValue("(y#NII)", (const char *)&key, (Py_ssize_t)sizeof key, pixels,
                         entry.height, entry.width);
}

/* Decoded, and kept; false: it is not. */
static bool kept_add(struct cached_pictures *cached, int fd, const struct image_file *file,
                     struct pictures_entry *ret)
{
    struct image_decoder *decoder = NULL;
    struct image_size size;
    struct dl_error err;
    bool kept = image_decoder_new(&decoder, &err) == 0 &&
                image_open(decoder, file, &size, &err) == 0 &&
                cached_pictures_wants(cached, fd, size) &&
                cached_pictures_add(cached, decoder, file, &err) == 0 &&
                pictures_cache_look(cached->cache, &cached->key, ret);

    image_decoder_free(decoder);
    return kept;
}

PyObject *picture_keep(PyObject *module, PyObject *args)
{
    struct cached_pictures cached = {.cache = pictures_kept_in()};
    struct pictures_entry entry;
    unsigned long long files;
    uint64_t began = clock_ns();
    Py_buffer key, data;
    bool kept = false;
    int fd;

    (void)module;
    if (!PyArg_ParseTuple(args, "iy*y*K:picture_keep", &fd, &key, &data, &files))
        return NULL;
    if (cached.cache && !forked_copy && (size_t)key.len == sizeof cached.key) {
        const struct image_file file = {
            .data = data.buf, .bytes = (size_t)data.len, .path = "picture", .exact = true};
        memcpy(&cached.key, key.buf, sizeof cached.key);
        cached.files = files;
        Py_BEGIN_ALLOW_THREADS;
        kept = kept_add(&cached, fd, &file, &entry);
        Py_END_ALLOW_THREADS;
    }
    PyBuffer_Release(&key);
    PyBuffer_Release(&data);
    PyObject *pixels = kept ? kept_view(cached.cache, &entry) : NULL;
    cached_pictures_deinit(&cached);
    spent_add(began);
    if (pixels)
        return Py_BuildValue("(NII)", pixels, entry.height, entry.width);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}
