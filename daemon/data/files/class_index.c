#include "daemon/data/files/class_index.h"

/* `n` things of `size` bytes at `at`, which is a multiple of `align`. */
static bool class_index_has(uint64_t bytes, uint64_t at, uint64_t n, uint64_t size, uint64_t align)
{
    uint64_t len, end;

    return at % align == 0 && !mul_overflows(n, size, &len) && !add_overflows(at, len, &end) &&
           end <= bytes;
}

static bool class_index_has_text(const uint8_t *data, uint64_t bytes, uint64_t at)
{
    return at < bytes && memchr(data + at, '\0', bytes - at);
}

static bool class_index_is_dir_sound(const uint8_t *data, uint64_t bytes,
                                     const struct class_index_dir *dir)
{
    if (dir->files == 0 || dir->name_bytes == 0 || !class_index_has_text(data, bytes, dir->path) ||
        !class_index_has(bytes, dir->name, dir->files, sizeof(uint32_t), sizeof(uint32_t)) ||
        !class_index_has(bytes, dir->names, dir->name_bytes, 1, 1) ||
        data[dir->names + dir->name_bytes - 1] != '\0')
        return false;
    const uint32_t *name = (const uint32_t *)(const void *)(data + dir->name);
    uint32_t greatest = 0;
    for (uint32_t i = 0; i < dir->files; i++)
        greatest = name[i] > greatest ? name[i] : greatest;
    return greatest < dir->name_bytes;
}

bool class_index_is_sound(const uint8_t *data, uint64_t bytes)
{
    const struct class_index_head *head = (const void *)data;
    uint64_t files = 0;

    if (bytes < sizeof *head || !class_index_has_text(data, bytes, head->root) ||
        head->n_dirs == 0 ||
        !class_index_has(bytes, head->dirs, head->n_dirs, sizeof(struct class_index_dir),
                         sizeof(uint64_t)))
        return false;
    const struct class_index_dir *dirs = (const void *)(data + head->dirs);
    for (uint32_t i = 0; i < head->n_dirs; i++) {
        if (dirs[i].first != files || dirs[i].label >= head->classes ||
            !class_index_is_dir_sound(data, bytes, &dirs[i]))
            return false;
        files += dirs[i].files;
    }
    return files == head->files;
}
