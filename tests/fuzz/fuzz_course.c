/*
 * Words of nodes about a loader: whatever the bytes are, they are refused, or a word that is
 * written and read again as the same; and where nodes go on by it is a place that there is. The
 * first bytes say which round it is and what a rank asks for; then the words, with a 0 between two.
 */
#include "daemon/cluster/course.h"

#include "tests/fuzz/fuzz.h"

enum { WORDS = 6, HEAD = 4, FIRST = 2, WORLD = 4 };

static void check_again(const struct course_word *word, uint64_t round)
{
    _cleanup_(buffer_deinit)
    struct dl_buffer bytes = {0}, twice = {0};
    struct course_word again;

    course_word_write(word, &bytes);
    FUZZ_ASSERT(course_word_read((struct dl_span){bytes.data, bytes.len}, round, &again));
    course_word_write(&again, &twice);
    FUZZ_ASSERT(twice.len == bytes.len && memcmp(twice.data, bytes.data, bytes.len) == 0);
    buffer_deinit(&twice);
}

static uint32_t read_words(const uint8_t *data, size_t len, uint64_t round,
                           struct course_word *words)
{
    uint32_t n = 0;

    while (len > 0 && n < WORDS) {
        const uint8_t *end = memchr(data, 0, len);
        size_t size = end ? (size_t)(end - data) : len;

        if (course_word_read((struct dl_span){data, size}, round, &words[n]))
            check_again(&words[n++], round);
        data += end ? size + 1 : size;
        len -= end ? size + 1 : size;
    }
    return n;
}

static void place(const struct course *course, const uint8_t *asks, const struct course_point *at)
{
    const struct course_round *first = course_first(course), *round;
    struct course_rank rank = {
        .entered = asks[0] % 2 ? COURSE_NEW : first->number, .given = *at, .behind = *at};
    struct course_wish wish = {.epoch = asks[1] % 3 ? at->epoch + asks[1] % 2 : COURSE_ANYWHERE,
                               .step = asks[2]};
    struct course_place ret = {0};
    struct dl_error err = {0};

    if (asks[1] % 5)
        wish.before = at->history;
    int r = course_place(course, &rank, &wish, &ret, &err);
    FUZZ_ASSERT(r == 0 || (err.code && err.message[0]));
    round = r == 0 ? course_find(course, ret.round) : NULL;
    FUZZ_ASSERT(r < 0 || (round && round->known && round->world == ret.world && ret.world > 0));
    FUZZ_ASSERT(r < 0 || ret.before.n <= DL_BOUND_HISTORY);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct course_word words[WORDS];
    struct course_said said[WORDS] = {0};
    struct course_point begin = {0};
    struct course course = {0};
    struct dl_error err = {0};

    if (len < HEAD)
        return 0;
    uint64_t round = 1 + data[0];
    uint32_t n = read_words(data + HEAD, len - HEAD, round, words);
    for (uint32_t i = 0; i < n; i++)
        said[i] = (struct course_said){.node = "node", .word = &words[i]};
    int r = course_agree(said, n, &begin, &err);
    FUZZ_ASSERT(r >= 0 || (err.code && err.message[0]));
    if (r < 0)
        return 0;
    course_enter(&course, round, FIRST, WORLD);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < words[i].knows.n; k++)
            course_learn(&course, words[i].knows.of[k].number, &words[i].knows.of[k].begin);
    course_learn(&course, round, &begin);
    FUZZ_ASSERT(course_latest(&course)->number == round);
    place(&course, data + 1, n > 0 && words[0].says ? &words[0].at : &begin);
    return 0;
}
