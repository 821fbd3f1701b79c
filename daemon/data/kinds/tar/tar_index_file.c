/* Index files that others wrote. */
#include "daemon/data/kinds/tar/tar_index.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>

enum { DALI_FIELDS_MAX = 4 };

static int tar_index_file_refuse(const char *path, uint64_t sample, const char *what,
                                 struct dl_error *err)
{
    return dl_error_set(err, EINVAL, path,
                        "says that sample %llu %s; recreate the index of this shard, or use "
                        "index: auto",
                        (ull)sample, what);
}

/* Where sample index->n begins: behind the ones before it, and in the shard. */
static int tar_index_file_add(struct tar_index *index, uint64_t room, uint64_t offset,
                              const char *path, const struct tar_view *view, struct dl_error *err)
{
    uint64_t before = index->n > 0 ? tar_index_offset(index, index->n - 1) : 0;

    if (index->n == room)
        return dl_error_set(err, EINVAL, path, "has more samples than it says; recreate it");
    if (offset % TAR_BLOCK != 0 || offset >= view->bytes || offset / TAR_BLOCK > UINT32_MAX ||
        (index->n > 0 && offset <= before))
        return tar_index_file_refuse(path, index->n, "begins where none of the shard can", err);
    index->blocks[index->n++] = (uint32_t)(offset / TAR_BLOCK);
    return 0;
}

/* `n` is what the file's own size allows. */
static int tar_index_file_alloc(struct tar_index *index, uint64_t n, const char *path,
                                struct dl_error *err)
{
    index->blocks = calloc(max_u64(n, 1), sizeof *index->blocks);
    index->room = n;
    return index->blocks ? 0 : dl_error_set(err, ENOMEM, path, "out of memory for the index");
}

/* ---- Energon -------------------------------------------------------------------------------- */

static int tar_index_file_parse_energon(const uint8_t *data, uint64_t bytes, const char *path,
                                        const struct tar_view *view, struct tar_index *index,
                                        struct dl_error *err)
{
    uint64_t n = bytes / sizeof n, offset;
    int r;

    if (bytes % sizeof n != 0 || n == 0)
        return dl_error_set(
            err, EINVAL, path,
            "is not an index of Energon or DALI: %llu bytes are not numbers of 64 bits",
            (ull)bytes);
    r = tar_index_file_alloc(index, n - 1, path, err);
    for (uint64_t i = 0; r == 0 && i + 1 < n; i++) {
        memcpy(&offset, data + i * sizeof offset, sizeof offset);
        r = tar_index_file_add(index, n - 1, offset, path, view, err);
    }
    if (r < 0)
        return r;
    memcpy(&offset, data + (n - 1) * sizeof offset, sizeof offset);
    if (offset > view->bytes)
        return tar_index_file_refuse(path, n - 1, "ends beyond the shard's end", err);
    return 0;
}

/* ---- DALI ----------------------------------------------------------------------------------- */

struct word {
    const uint8_t *at;
    size_t len;
};

static bool tar_index_file_next_word(const uint8_t **at, const uint8_t *end, struct word *ret)
{
    while (*at < end && (**at == ' ' || **at == '\r'))
        (*at)++;
    ret->at = *at;
    while (*at < end && **at != ' ' && **at != '\r')
        (*at)++;
    ret->len = (size_t)(*at - ret->at);
    return ret->len > 0;
}

static bool tar_index_file_number(const struct word *word, uint64_t *ret)
{
    uint64_t value = 0;

    for (size_t i = 0; i < word->len; i++) {
        if (!isdigit(word->at[i]) || value > INT64_MAX / 16)
            return false;
        value = 10 * value + (uint64_t)(word->at[i] - '0');
    }
    *ret = value;
    return word->len > 0;
}

/* Where the sample of the line ends: behind the last of its components. A name may have spaces. */
static bool tar_index_file_line_end(const uint8_t *at, const uint8_t *end, unsigned fields,
                                    uint64_t *ret)
{
    struct word words[DALI_FIELDS_MAX];
    uint64_t offset, size;
    unsigned n = 0;

    while (n < fields && tar_index_file_next_word(&at, end, &words[n]))
        n++;
    if (n < fields)
        return false;
    for (;;) {
        struct word next;
        if (!tar_index_file_number(&words[1], &offset) ||
            !tar_index_file_number(&words[2], &size) || offset > INT64_MAX / 2 ||
            size > INT64_MAX / 2)
            return false;
        *ret = align_up(offset + size, TAR_BLOCK);
        for (n = 0; n < fields && tar_index_file_next_word(&at, end, &next); n++)
            words[n] = next;
        if (n == 0)
            return true;
        if (n < fields)
            return false;
    }
}

static int tar_index_file_parse_lines(const uint8_t *at, const uint8_t *end, unsigned fields,
                                      const char *path, const struct tar_view *view,
                                      struct tar_index *index, struct dl_error *err)
{
    uint64_t begin = 0, behind;
    int r = 0;

    while (r == 0 && at < end) {
        const uint8_t *line = at, *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        at = stop < end ? stop + 1 : end;
        if (stop == line)
            continue;
        if (!tar_index_file_line_end(line, stop, fields, &behind))
            return tar_index_file_refuse(path, index->n, "is not one, in a line without components",
                                         err);
        r = tar_index_file_add(index, index->room, begin, path, view, err);
        begin = behind;
    }
    return r;
}

static int tar_index_file_parse_dali(const uint8_t *data, uint64_t bytes, const char *path,
                                     const struct tar_view *view, struct tar_index *index,
                                     struct dl_error *err)
{
    const uint8_t *at = data, *end = data + bytes;
    const uint8_t *stop = memchr(data, '\n', bytes);
    struct word version, count;
    uint64_t n;

    stop = stop ? stop : end;
    if (!tar_index_file_next_word(&at, stop, &version) ||
        !tar_index_file_next_word(&at, stop, &count) || version.len != 4 ||
        memcmp(version.at, "v1.", 3) != 0 || (version.at[3] != '1' && version.at[3] != '2') ||
        !tar_index_file_number(&count, &n))
        return dl_error_set(err, EINVAL, path,
                            "begins with neither v1.1 nor v1.2 and a number, as wds2idx writes it");
    int r = tar_index_file_alloc(index, min_u64(n, bytes / 2), path, err);
    if (r == 0)
        r = tar_index_file_parse_lines(stop, end, version.at[3] == '2' ? 4 : 3, path, view, index,
                                       err);
    if (r == 0 && index->n != n)
        r = dl_error_set(err, EINVAL, path, "has %llu samples, not %llu as it says", (ull)index->n,
                         (ull)n);
    return r;
}

int tar_index_parse(const uint8_t *data, uint64_t bytes, const char *path,
                    const struct tar_view *view, struct tar_index *ret, struct dl_error *err)
{
    struct tar_index index = {0};
    struct tar_reader *reader = NULL;
    struct tar_member member;
    int r;

    if (bytes >= 2 && data[0] == 'v' && isdigit(data[1]))
        r = tar_index_file_parse_dali(data, bytes, path, view, &index, err);
    else
        r = tar_index_file_parse_energon(data, bytes, path, view, &index, err);
    if (r == 0 && index.n > 0) {
        reader = malloc(sizeof *reader);
        if (reader)
            tar_reader_init(reader, view, tar_index_offset(&index, 0));
        if (!reader)
            r = dl_error_set(err, ENOMEM, path, "out of memory");
        else if (tar_next(reader, &member, NULL) != 0)
            r = tar_index_file_refuse(path, 0, "begins where the shard has no header", err);
    }
    free(reader);
    if (r < 0) {
        tar_index_deinit(&index);
        return r;
    }
    *ret = index;
    return 0;
}

/* ---- wids ----------------------------------------------------------------------------------- */

int tar_counts_parse(const uint8_t *data, uint64_t bytes, const char *path, struct tar_counts *ret,
                     struct dl_error *err)
{
    json_error_t why;
    json_t *root = json_loadb((const char *)data, bytes, 0, &why);

    if (!root)
        return dl_error_set(err, EINVAL, path, "is not JSON: %s, in its line %d", why.text,
                            why.line);
    if (!json_is_array(json_object_get(root, "shardlist"))) {
        json_decref(root);
        return dl_error_set(err, EINVAL, path, "has no list \"shardlist\", as widsindex writes it");
    }
    ret->json = root;
    return 0;
}

void tar_counts_deinit(struct tar_counts *counts)
{
    json_decref(counts->json);
    *counts = (struct tar_counts){0};
}

static const char *tar_index_file_base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

int tar_counts_find(const struct tar_counts *counts, const char *shard, uint64_t *ret)
{
    const json_t *list = json_object_get(counts->json, "shardlist");

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const char *url = json_string_value(json_object_get(entry, "url"));
        const json_t *n = json_object_get(entry, "nsamples");
        if (url && json_is_integer(n) && json_integer_value(n) >= 0 &&
            strcmp(tar_index_file_base(url), tar_index_file_base(shard)) == 0) {
            *ret = (uint64_t)json_integer_value(n);
            return 0;
        }
    }
    return -ENOENT;
}
