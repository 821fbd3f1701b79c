#include "daemon/data/decode/tokenizer/charsmap.h"

#include "daemon/data/decode/tokenizer/chars.h"
#include "proto/common/base64.h"
#include "proto/common/utf8.h"

enum { CLUSTER_MOST = 5 }; /* bytes of a cluster that is looked for as a whole */

struct charsmap {
    uint8_t *bytes;       /* owned */
    const uint8_t *units; /* in it: units of the trie, of 4 bytes each */
    uint32_t n_units;
    const uint8_t *texts; /* in it, each ends with a NUL */
    size_t n_texts;
};

void charsmap_free(struct charsmap *map)
{
    if (map)
        free(map->bytes);
    free(map);
}

static bool charsmap_parse(struct charsmap *map, size_t n)
{
    uint32_t trie;

    if (n < sizeof trie)
        return false;
    memcpy(&trie, map->bytes, sizeof trie);
    if (trie % 4 != 0 || trie < 4 || trie > n - sizeof trie)
        return false;
    map->units = map->bytes + sizeof trie;
    map->n_units = trie / 4;
    map->texts = map->units + trie;
    map->n_texts = n - sizeof trie - trie;
    for (size_t at = 0, bytes; at < map->n_texts; at += bytes) {
        bytes = utf8_char(map->texts + at, map->n_texts - at);
        if (bytes == 0)
            return false;
    }
    return true;
}

int charsmap_read(const struct file_node *node, struct charsmap **ret)
{
    struct charsmap *map;
    const char *text;
    size_t len;
    int r = file_need_text(node, &text, &len);

    if (r < 0)
        return r;
    map = calloc(1, sizeof *map);
    if (map)
        map->bytes = malloc(BASE64_BYTES(len) + 1);
    if (!map || !map->bytes) {
        charsmap_free(map);
        return file_no_memory(node);
    }
    ssize_t n = base64_decode(text, len, map->bytes);
    if (n < 0 || !charsmap_parse(map, (size_t)n)) {
        charsmap_free(map);
        return file_refuse(node, "is not a table of SentencePiece's in base64");
    }
    *ret = map;
    return 0;
}

/* ---- the trie ------------------------------------------------------------------------------- */

/* A unit: [0, 8): the byte that leads to it, [8]: it has a value, [9]: its offset counts in 256s,
 * [10, 31): its offset; of a value [31] is set, and the others are the value. */
static bool charsmap_unit(const struct charsmap *map, uint32_t at, uint32_t *ret)
{
    if (at >= map->n_units)
        return false;
    memcpy(ret, map->units + 4 * (size_t)at, sizeof *ret);
    return true;
}

static uint32_t charsmap_offset(uint32_t unit)
{
    return unit >> 10 << ((unit & 1U << 9) >> 6);
}

/* What stands for the shortest text that is in the trie and that this one begins with. */
static bool charsmap_find(const struct charsmap *map, const uint8_t *text, size_t n,
                          const uint8_t **ret, size_t *ret_n)
{
    uint32_t at = 0, unit, value;

    if (!charsmap_unit(map, 0, &unit))
        return false;
    at ^= charsmap_offset(unit);
    for (size_t i = 0; i < n && text[i] != 0; i++) {
        at ^= text[i];
        if (!charsmap_unit(map, at, &unit) || (unit & (1U << 31 | 0xFF)) != text[i])
            return false;
        at ^= charsmap_offset(unit);
        if (!(unit >> 8 & 1))
            continue;
        if (!charsmap_unit(map, at, &value))
            return false;
        value &= INT32_MAX;
        /* In the middle of a character there is no text: that library ends there. */
        if (value > map->n_texts || (value < map->n_texts && (map->texts[value] & 0xC0) == 0x80))
            return false;
        *ret = map->texts + value;
        *ret_n = strnlen((const char *)*ret, map->n_texts - value);
        return true;
    }
    return false;
}

/* ---- texts ---------------------------------------------------------------------------------- */

/* Where the cluster that begins at `at` ends. */
static size_t charsmap_cluster(const uint8_t *text, size_t n, size_t at)
{
    int32_t state = 0;
    size_t bytes = utf8_char(text + at, n - at);
    uint32_t c = utf8_decode(text + at, bytes);

    for (at += bytes; at < n; at += bytes) {
        bytes = utf8_char(text + at, n - at);
        uint32_t next = utf8_decode(text + at, bytes);
        if (char_breaks(c, next, &state))
            break;
        c = next;
    }
    return at;
}

static int charsmap_apply_char(const struct charsmap *map, const uint8_t *text, size_t n,
                               struct growing_bytes *to)
{
    if (charsmap_find(map, text, n, &text, &n))
        return growing_bytes_add(to, text, n);
    return growing_bytes_add(to, text, n);
}

int charsmap_apply(const struct charsmap *map, const uint8_t *text, size_t n,
                   struct growing_bytes *to)
{
    const uint8_t *form;
    size_t form_n;
    int r = 0;

    for (size_t at = 0, end, bytes; r == 0 && at < n; at = end) {
        end = charsmap_cluster(text, n, at);
        if (end - at <= CLUSTER_MOST && charsmap_find(map, text + at, end - at, &form, &form_n)) {
            r = growing_bytes_add(to, form, form_n);
            continue;
        }
        for (; r == 0 && at < end; at += bytes) {
            bytes = utf8_char(text + at, end - at);
            r = charsmap_apply_char(map, text + at, bytes, to);
        }
    }
    return r;
}
