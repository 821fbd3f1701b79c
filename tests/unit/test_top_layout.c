/* The screen of dlctl top: whole screens, every size from 1 by 1 on, what keys do, and names that
 * terminals would obey. */
#include "tests/unit/top_case.h"

#include "proto/common/utf8.h"
#include <locale.h>
#include <wchar.h>

/* ---- cases ---------------------------------------------------------------------------------- */

#define STATUS                                                             \
    "{version: 1.2.3, state: running, pid: 7, uptime_s: 60, sessions: 2, " \
    "memory_bytes: 3145728}"

static const struct top_texts THEN = {
    STATUS,
    "[{name: images, uid: 1, batches: 100, samples: 6400, delivered_bytes: 0}]",
    "[{loader: images, uid: 1, job: '', session: 1, rank: 0, world: 2, epoch: 3, step: 10, steps: "
    "200,"
    "  samples: 640, waited_s: 0, age_s: 9, state: running},"
    " {loader: images, uid: 1, job: '', session: 2, rank: 1, world: 2, epoch: 3, step: 10, steps: "
    "200,"
    "  samples: 640, waited_s: 0, age_s: 9, state: running}]",
    "[{loader: images, uid: 1, worker: 0, pid: 101, state: ready, cpu_s: 4, tasks: 50},"
    " {loader: images, uid: 1, worker: 1, pid: 102, state: ready, cpu_s: 4, tasks: 50}]",
    "[]",
};
static const struct top_texts NOW = {
    STATUS,
    "[{name: images, uid: 1, batches: 140, samples: 8960, delivered_bytes: 41943040, faults: 0,"
    "  retries: 3, bad: 2, memory_bytes: 3145728, state: open,"
    "  verdict: 'loader-bound: the trainer waited 0.6 s for batches, 93 % of its time; 2 workers "
    "are"
    " busy for 99 % of the time, and fetch takes 100 % of that'}]",
    "[{loader: images, uid: 1, job: '', session: 1, rank: 0, world: 2, epoch: 3, step: 30, steps: "
    "200,"
    "  samples: 1920, waited_s: 1.5, age_s: 11, ready: 1, leased: 1, state: running},"
    " {loader: images, uid: 1, job: '', session: 2, rank: 1, world: 2, epoch: 3, step: 26, steps: "
    "200,"
    "  samples: 1664, waited_s: 0.06, age_s: 11, ready: 0, leased: 2, state: running}]",
    "[{loader: images, uid: 1, worker: 0, pid: 101, state: ready, cpu_s: 6, memory_bytes: 5242880,"
    "  tasks: 70, queued: 2, step: 31, samples: 'samples 64, 71, 99, … 64 in all', restarts: 0},"
    " {loader: images, uid: 1, worker: 1, pid: 102, state: starting, cpu_s: 5, memory_bytes: "
    "1048576,"
    "  tasks: 70, queued: 0, step: null, samples: null, restarts: 1}]",
    "[{loader: images, uid: 1, leased: 3, ready: 1, filling: 2, free: 4}]",
};

/* clang-format off */
#define ROWS_80                                                                          \
    "dloaderd 1.2.3 running, up 1 min, 2 sessions, 3.0 MiB, by name\n"                   \
    "LOADER     STATE     BATCH/S SAMPLE/S  WAIT RING         MEMORY FAULT RETRY  BAD\n" \
    "images     open           20     1280  39 % ##=--...    3.0 MiB     0     3    2\n" \
    "  loader-bound: the trainer waited 0.6 s for batches, 93 % of its time; 2\n"        \
    "  workers are busy for 99 % of the time, and fetch takes 100 % of that\n"           \
    "\n"                                                                                 \
    "LOADER       EPOCH RANKS PROGRESS         DONE         STEPS  STEP/S        LEFT\n" \
    "images           3   2/2 ##.............  14 %        56/400      18        22 s\n" \
    "\n"                                                                                 \
    "LOADER      EPOCH   RANK  WAIT          STEP SAMPLE/S READY HELD PINNED STATE\n"    \
    "images          3    0/2  75 %        30/200      640     1    1      0 running\n"  \
    "images          3    1/2   3 %        26/200      512     0    2      0 running\n"  \
    "\n"                                                                                 \
    "LOADER       WORKER STATE      CPU     MEMORY TASK/S DIED    STEP SAMPLES\n"        \
    "images            0 ready    100 %    5.0 MiB     10    0      31 64, 71, 99, ~~\n" \
    "images            1 starting  50 %    1.0 MiB     10    1       - -\n"
static const char SCREEN_80[] =
    ROWS_80
    "\n"
    "\n"
    "\n"
    "\n"
    "\n"
    "\n"
    "\n"
    "q quit  s sort  r reverse  arrows, Enter pick  p pause  h help\n";
static const char SCREEN_132[] =
    "dloaderd 1.2.3 running, up 1 min, 2 sessions, 3.0 MiB, by name\n"
    "LOADER                                       STATE     BATCH/S SAMPLE/S     DATA/S  WAIT RING        CPU     MEMORY FAULT RETRY  BAD\n"
    "images                                       open           20     1280   20.0 MiB  39 % ██▓▒▒░░░  150 %    3.0 MiB     0     3    2\n"
    "  loader-bound: the trainer waited 0.6 s for batches, 93 % of its time; 2 workers are busy for 99 % of the time, and fetch takes 100\n"
    "  % of that\n"
    "\n"
    "LOADER       EPOCH RANKS PROGRESS                                                             DONE         STEPS  STEP/S        LEFT\n"
    "images           3   2/2 █████████▍░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  14 %        56/400      18        22 s\n"
    "\n"
    "LOADER                                   EPOCH   RANK  WAIT                     STEP SAMPLE/S READY HELD PINNED        LEFT STATE\n"
    "images                                       3    0/2  75 % ███████▌░░        30/200      640     1    1      0        17 s running\n"
    "images                                       3    1/2   3 % ▎░░░░░░░░░        26/200      512     0    2      0        22 s running\n"
    "\n"
    "LOADER       WORKER     PID STATE      CPU     MEMORY TASK/S QUEUE DIED    STEP SAMPLES\n"
    "images            0     101 ready    100 %    5.0 MiB     10     2    0      31 64, 71, 99, … 64 in all\n"
    "images            1     102 starting  50 %    1.0 MiB     10     0    1       - -\n"
    "\n"
    "\n"
    "\n"
    "\n"
    "\n"
    "\n"
    "\n"
    "q quit  s sort  r reverse  arrows, Enter pick  p pause  h help\n";
static const char SCREEN_PICKED[] =
    "dloaderd 1.2.3 away, up 1 min, 2 sessions, 3.0 MiB, by name\n"
    "no daemon\n"
    "LOADER     STATE     BATCH/S SAMPLE/S  WAIT RING         MEMORY FAULT RETRY  BAD\n"
    "images     open           20     1280  39 % ##=--...    3.0 MiB     0     3    2\n"
    "  loader-bound: the trainer waited 0.6 s for batches, 93 % of its time; 2\n"
    "  workers are busy for 99 % of the time, and fetch takes 100 % of that\n"
    "\n"
    "EPOCH RANKS PROGRESS                      DONE         STEPS  STEP/S        LEFT\n"
    "    3   2/2 ###.........................  14 %        56/400      18        22 s\n"
    "\n"
    "EPOCH   RANK  WAIT          STEP SAMPLE/S READY HELD PINNED        LEFT STATE\n"
    "    3    0/2  75 %        30/200      640     1    1      0        17 s running\n"
    "    3    1/2   3 %        26/200      512     0    2      0        22 s running\n"
    "\n"
    "WORKER     PID STATE      CPU     MEMORY TASK/S QUEUE DIED    STEP SAMPLES\n"
    "     0     101 ready    100 %    5.0 MiB     10     2    0      31 64, 71, 99, ~\n"
    "     1     102 starting  50 %    1.0 MiB     10     0    1       - -\n"
    "\n"
    "\n"
    "q quit  s sort  r reverse  Esc all loaders  p pause  h help\n";
static const char SCREEN_40[] =
    "dloaderd 1.2.3 running, up 1 min, 2 ses~\n"
    "LOADER          BATCH/S  WAIT FAULT  BAD\n"
    "images               20  39 %     0    2\n"
    "EPOCH PROGRESS          DONE        LEFT\n"
    "    3 ##..............  14 %        22 s\n"
    "LOADER         RANK  WAIT READY STATE\n"
    "images          0/2  75 %     1 running\n"
    "WORKER   CPU     MEMORY SAMPLES\n"
    "     0 100 %    5.0 MiB 64, 71, 99, ~ 6~\n"
    "q quit  s sort  r reverse  arrows, Ente~\n";
static const char SCREEN_20[] =
    "dloaderd 1.2.3 runn~\n"
    "LOADER          WAIT\n"
    "images          39 %\n"
    "PROGRESS        LEFT\n"
    "#.......        22 s\n";
static const char SCREEN_TEXT[] = ROWS_80;
static const char SCREEN_OTHER[] =
    "dloaderd 1.2.3 running, up 1 min, 2 sessions, 3.0 MiB, by name\n"
    "that loader is not open\n";
/* clang-format on */

/* The caller's. */
static char *screen_of(const struct top_model *m, const struct top_state *s, const char *notice,
                       int width, int height, bool unicode, bool keys)
{
    struct top_screen screen = {.width = width, .height = height, .unicode = unicode, .keys = keys};
    char *text = NULL;
    size_t len;
    FILE *file = open_memstream(&text, &len);

    assert_non_null(file);
    assert_int_equal(top_layout(m, s, notice, &screen), 0);
    if (height > 0)
        assert_true(screen.line >= height);
    top_screen_print(&screen, file);
    assert_int_equal(fclose(file), 0);
    top_screen_deinit(&screen);
    return text;
}

static struct top_model *two_looks(const struct top_texts *then, const struct top_texts *now)
{
    struct top_model *before = top_case_model(then, 100, NULL);
    struct top_model *model = top_case_model(now, 102, before);

    top_model_free(before);
    return model;
}

/* ---- whole screens -------------------------------------------------------------------------- */

static const struct {
    int width, height;
    bool unicode, keys;
    const char *picked, *notice;
    const char *screen;
} screen_rows[] = {
    {80, 24, false, true, NULL, NULL, SCREEN_80},
    {132, 24, true, true, NULL, NULL, SCREEN_132},
    {80, 20, false, true, "images", "no daemon", SCREEN_PICKED},
    {40, 10, false, true, NULL, NULL, SCREEN_40},
    {20, 5, false, true, NULL, NULL, SCREEN_20},
    /* As text: as many lines as it takes. */
    {80, 0, false, false, NULL, NULL, SCREEN_TEXT},
    {80, 0, false, false, "other", NULL, SCREEN_OTHER},
};

TEST(test_screens)
{
    struct top_model *m = two_looks(&THEN, &NOW);

    for (size_t i = 0; i < ARRAY_SIZE(screen_rows); i++) {
        struct top_state s = {0};
        char *text;

        s.picked = screen_rows[i].picked ? strdup(screen_rows[i].picked) : NULL;
        text = screen_of(m, &s, screen_rows[i].notice, screen_rows[i].width, screen_rows[i].height,
                         screen_rows[i].unicode, screen_rows[i].keys);
        print_message("# %zu\n", i);
        assert_string_equal(text, screen_rows[i].screen);
        free(text);
        top_state_deinit(&s);
    }
    top_model_free(m);
}

TEST(test_nothing_yet)
{
    struct top_state s = {0};
    char *text = screen_of(NULL, &s, "no daemon", 30, 4, false, true);

    assert_string_equal(text, "dloaderd\nno daemon\n\n\n");
    free(text);
    s.help = s.paused = true;
    text = screen_of(NULL, &s, NULL, 30, 7, false, true);
    assert_non_null(strstr(text, "dloaderd               PAUSED\nq      ends\n"));
    assert_non_null(strstr(text, "\nq quit  s sort"));
    free(text);
}

/* ---- what is active ------------------------------------------------------------------------- */

/* Two loaders that are read and ten that nobody reads, by their names in between. */
static struct top_model *some_active(void)
{
    _cleanup_free_ char *loaders = NULL, *ranks = NULL, *workers = NULL;
    size_t len;
    FILE *files[] = {open_memstream(&loaders, &len), open_memstream(&ranks, &len),
                     open_memstream(&workers, &len)};

    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        fputc('[', files[i]);
    for (unsigned i = 0; i < 12; i++) {
        bool active = i == 3 || i == 7;

        fprintf(
            files[0], "{name: 'train.py: Set%02u', uid: 1, state: open, verdict: '%s'}, ", i,
            active ? "loader-bound: the trainer waited 6.0 s for batches, 60 % of its time; cores "
                     "are short: 2 workers are busy for 93 % of the time, and wait for a processor "
                     "for 54 % of that; samples that cost less, or more processors; more workers "
                     "do not help"
                   : "idle; at the end of the last epoch it was healthy: trainers hardly wait");
        fprintf(
            files[1],
            "{loader: 'train.py: Set%02u', uid: 1, rank: 0, world: 1, epoch: 0, step: 5, steps: 9, "
            "state: %s}, ",
            i, active ? "running" : "stopped");
        fprintf(files[2], "{loader: 'train.py: Set%02u', uid: 1, worker: 0, state: ready}, ", i);
    }
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        fputc(']', files[i]);
        assert_int_equal(fclose(files[i]), 0);
    }
    const struct top_texts texts = {STATUS, loaders, ranks, workers, "[]"};
    return two_looks(&texts, &texts);
}

TEST(test_active_first)
{
    struct top_model *m = some_active();
    struct top_state s = {0};
    _cleanup_free_ char *text = screen_of(m, &s, NULL, 80, 24, false, true);
    static const char begin[] =
        "dloaderd 1.2.3 running, up 1 min, 2 sessions, 3.0 MiB, by name\n"
        "LOADER               BATCH/S SAMPLE/S  WAIT RING         MEMORY FAULT RETRY  BAD\n"
        "train.py: Set03            0        0     - -               0 B     0     0    0\n"
        "  loader-bound: the trainer waited 6.0 s for batches, 60 % of its time; cores\n"
        "  are short: 2 workers are busy for 93 % of the time, and wait for a processor\n"
        "  for 54 % of that; samples that cost less, or more processors; more workers do\n"
        "  not help\n"
        "train.py: Set07            0        0     - -               0 B     0     0    0\n"
        "  loader-bound: the trainer waited 6.0 s for batches, 60 % of its time; cores\n";

    if (strncmp(text, begin, strlen(begin)) != 0)
        fail_msg("%s", text);
    assert_non_null(strstr(text, "\n(10 more)\nLOADER "));
    /* In each table those that are read, whatever the order. */
    for (int reverse = 0; reverse <= 1; reverse++) {
        top_model_sort(m, TOP_BY_NAME, reverse);
        for (unsigned i = 0; i < 2; i++) {
            const char *want = i == (unsigned)reverse ? "train.py: Set03" : "train.py: Set07";

            assert_string_equal(ROW(m, LOADERS, i)->loader, want);
            assert_string_equal(ROW(m, EPOCHS, i)->loader, want);
            assert_string_equal(ROW(m, RANKS, i)->loader, want);
            assert_string_equal(ROW(m, WORKERS, i)->loader, want);
        }
    }
    top_model_free(m);
}

/* ---- every size ----------------------------------------------------------------------------- */

/* Rows enough for no screen, with names of all kinds. */
static struct top_model *crowd(void)
{
    static const char *const names[] = {"plain",
                                        "\"\\x1b[2J\\x07\"",
                                        "数据集",
                                        "\"\\u202Eabc\"",
                                        "\"a very long name of a loader indeed\"",
                                        "\"\""};
    char *texts[4] = {0};
    size_t len;
    FILE *files[4];

    for (int i = 0; i < 4; i++) {
        files[i] = open_memstream(&texts[i], &len);
        assert_non_null(files[i]);
        fputc('[', files[i]);
    }
    for (unsigned i = 0; i < 40; i++) {
        const char *name = names[i % ARRAY_SIZE(names)];

        fprintf(files[0], "{name: %s, uid: %u, batches: %u, verdict: '%s'}, ", name, i, i,
                i % 2 ? "straggling: rank 1 waits for batches for 80 % of its time (0.4 s), 数据"
                      : "idle");
        fprintf(
            files[1],
            "{loader: %s, job: j, rank: %u, world: 60, epoch: %u, step: %u, steps: 1000000000000,"
            " state: running, tokens: 1, padded: 3}, ",
            name, i, i % 7, i);
        fprintf(files[2], "{loader: %s, worker: %u, pid: 4194304, state: given up}, ", name, i);
        fprintf(files[3], "{loader: %s, leased: %u, ready: 1, free: 9}, ", name, i);
    }
    for (int i = 0; i < 4; i++) {
        fputc(']', files[i]);
        assert_int_equal(fclose(files[i]), 0);
    }
    struct top_model *m =
        two_looks(&(struct top_texts){STATUS, "[]", "[]", "[]", "[]"},
                  &(struct top_texts){STATUS, texts[0], texts[1], texts[2], texts[3]});
    for (int i = 0; i < 4; i++)
        free(texts[i]);
    return m;
}

/* As many lines of as many columns, and nothing that a terminal would obey. */
static void check_screen(const struct top_screen *screen)
{
    const uint8_t *at = screen->text.data, *end = at + screen->text.len;
    int lines = 0, columns = 0;

    while (at < end) {
        size_t n = utf8_char(at, (size_t)(end - at));
        uint32_t ch = n ? utf8_decode(at, n) : 0;

        assert_true(n > 0 && ch != 0x7F && (ch < 0x80 || (screen->unicode && ch >= 0xA0)));
        assert_true(ch < 0x200B || ch > 0x202E || ch == 0x2026);
        assert_true(ch >= ' ' || ch == '\n' || (ch > 0 && ch < LOOKS));
        columns = ch == '\n' ? 0 : columns + (ch >= ' ' ? wcwidth((wchar_t)ch) : 0);
        assert_true(columns <= screen->width);
        lines += ch == '\n';
        at += n;
    }
    assert_true(screen->height ? lines == screen->height : lines > 0);
    assert_int_equal(columns, 0);
}

static void check_size(const struct top_model *m, int width, int height)
{
    static char name[] = "数据集";

    /* Two of eight kinds of screen for each size. */
    for (unsigned i = 0; i < 2; i++) {
        const unsigned kind = ((unsigned)width + 3 * (unsigned)height + 4 * i) % 8;
        const struct top_state s = {.help = kind == 7,
                                    .paused = kind & 1,
                                    .picked = kind & 2 ? name : NULL,
                                    .selected = name,
                                    .sort = TOP_BY_ERRORS};
        struct top_screen screen = {.width = width,
                                    .height = height,
                                    .unicode = !(kind & 1),
                                    .keys = !(kind & 4) || kind == 7};

        assert_int_equal(top_layout(m, &s, kind & 4 ? "no daemon" : NULL, &screen), 0);
        check_screen(&screen);
        top_screen_deinit(&screen);
    }
}

TEST(test_sizes)
{
    struct top_model *many = crowd(), *few = two_looks(&THEN, &NOW);

    for (int width = 1; width <= 200; width += (int)harness_stride()) {
        /* Each height with some width, and many with a few. */
        for (int height = width % 3; height <= 200; height += width % 66 == 0 ? 3 : 83) {
            check_size(many, width, height);
            check_size(few, width, height);
        }
    }
    top_model_free(many);
    top_model_free(few);
}

/* A screen is full from top to bottom before anything is left out, and says what is. */
TEST(test_crowd)
{
    struct top_model *m = crowd();

    for (int height = 8; height <= 100; height++) {
        struct top_state s = {0};
        char *text = screen_of(m, &s, NULL, 100, height, false, true), *line, *rest = text;
        int lines = 0, more = 0, titles = 0;

        while ((line = strsep(&rest, "\n")) && rest) {
            lines++;
            more += strstr(line, " more)") != NULL;
            titles += strncmp(line, "LOADER ", 7) == 0;
            if (lines < height - 2)
                assert_true(*line);
        }
        assert_int_equal(lines, height);
        assert_true(titles <= 4 && titles >= (height >= 12 ? 4 : 2));
        if (height >= 20)
            assert_int_equal(more, 4);
        free(text);
    }
    top_model_free(m);
}

/* ---- keys ----------------------------------------------------------------------------------- */

static const struct top_texts THREE = {STATUS, "[{name: a}, {name: b}, {name: c}]", "[]", "[]",
                                       "[]"};

static const struct {
    int keys[6];
    enum top_sort sort;
    bool reverse, paused, help, quit;
    int row;
    const char *picked;
} key_rows[] = {
    {{0}, .row = 0},
    {{'q'}, .quit = true},
    {{'s'}, .sort = TOP_BY_RATE},
    {{'s', 's'}, .sort = TOP_BY_WAIT},
    {{'s', 's', 's', 's', 's', 's'}, .sort = TOP_BY_NAME},
    {{'w'}, .sort = TOP_BY_WAIT},
    {{'m', 'r'}, .sort = TOP_BY_MEMORY, .reverse = true},
    {{'e', 'r', 'r', 'n'}, .sort = TOP_BY_NAME},
    {{'b', 'c'}, .sort = TOP_BY_CPU},
    {{'p'}, .paused = true},
    {{'p', ' '}, .paused = false},
    {{'h'}, .help = true},
    {{'h', '?'}, .help = false},
    {{'h', TOP_KEY_ESCAPE}, .help = false},
    {{TOP_KEY_DOWN}, .row = 1},
    {{TOP_KEY_DOWN, 'j', TOP_KEY_DOWN, 'j'}, .row = 2},
    {{TOP_KEY_DOWN, TOP_KEY_UP, 'k', 'k'}, .row = 0},
    {{TOP_KEY_ENTER}, .row = 0, .picked = "a"},
    {{TOP_KEY_DOWN, TOP_KEY_ENTER}, .row = 1, .picked = "b"},
    {{TOP_KEY_DOWN, TOP_KEY_ENTER, TOP_KEY_DOWN}, .row = 1, .picked = "b"},
    {{TOP_KEY_DOWN, TOP_KEY_ENTER, TOP_KEY_ESCAPE, TOP_KEY_DOWN}, .row = 2},
    {{TOP_KEY_ENTER, 'h', TOP_KEY_ESCAPE}, .row = 0, .picked = "a"},
    {{-1, 'z', 0x2026, '\t'}, .row = 0},
};

TEST(test_keys)
{
    struct top_model *m = top_case_model(&THREE, 1, NULL);

    for (size_t i = 0; i < ARRAY_SIZE(key_rows); i++) {
        struct top_state s = {0};

        print_message("# %zu\n", i);
        for (size_t j = 0; j < ARRAY_SIZE(key_rows[i].keys) && key_rows[i].keys[j]; j++)
            (void)top_state_key(&s, m, key_rows[i].keys[j]);
        assert_int_equal(s.sort, key_rows[i].sort);
        assert_int_equal(s.reverse, key_rows[i].reverse);
        assert_int_equal(s.paused, key_rows[i].paused);
        assert_int_equal(s.help, key_rows[i].help);
        assert_int_equal(s.quit, key_rows[i].quit);
        assert_int_equal(top_state_row(&s, m), key_rows[i].row);
        assert_int_equal(!!s.picked, !!key_rows[i].picked);
        if (s.picked)
            assert_string_equal(s.picked, key_rows[i].picked);
        top_state_deinit(&s);
    }
    top_model_free(m);
}

/* Of two users' loaders of one name each is a row of its own. */
TEST(test_keys_of_users)
{
    static const struct top_texts texts = {
        "{pid: 1}", "[{name: a, uid: 1}, {name: a, uid: 2}, {name: b, uid: 1}]", NULL, NULL, NULL};
    struct top_model *m = top_case_model(&texts, 1, NULL);
    struct top_state s = {0};

    for (int row = 0; row < 3; row++) {
        assert_int_equal(top_state_row(&s, m), row);
        (void)top_state_key(&s, m, TOP_KEY_DOWN);
    }
    (void)top_state_key(&s, m, TOP_KEY_UP);
    (void)top_state_key(&s, m, TOP_KEY_ENTER);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(top_state_shows(&s, ROW(m, LOADERS, i)), i == 1);
    top_state_deinit(&s);
    /* Who names one means all of that name. */
    s.picked = strdup("a");
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(top_state_shows(&s, ROW(m, LOADERS, i)), i < 2);
    top_state_deinit(&s);
    top_model_free(m);
}

/* With nothing to choose from. */
TEST(test_keys_of_nothing)
{
    static const int keys[] = {TOP_KEY_UP, TOP_KEY_DOWN, TOP_KEY_ENTER, TOP_KEY_ESCAPE, 's', 'p'};
    struct top_model *empty = top_case_model(&(struct top_texts){0}, 1, NULL);
    struct top_model *const models[] = {NULL, empty};

    for (size_t i = 0; i < ARRAY_SIZE(models); i++) {
        struct top_state s = {0};

        for (size_t j = 0; j < ARRAY_SIZE(keys); j++)
            assert_true(top_state_key(&s, models[i], keys[j]));
        assert_int_equal(top_state_row(&s, models[i]), -1);
        assert_null(s.picked);
        top_state_deinit(&s);
    }
    top_model_free(empty);
}

TEST(test_selected_is_seen)
{
    struct top_model *m = crowd();
    struct top_state s = {0};

    for (uint32_t i = 0; i < m->rows[TOP_LOADERS].n; i++) {
        for (int height = 5; height < 40; height += 6) {
            struct top_screen screen = {
                .width = 100, .height = height, .unicode = true, .keys = true};
            int picked = 0;

            s.selected = strdup(ROW(m, LOADERS, i)->loader);
            s.selected_uid = ROW(m, LOADERS, i)->uid;
            assert_int_equal(top_layout(m, &s, NULL, &screen), 0);
            for (size_t at = 0; at < screen.text.len; at++)
                picked += screen.text.data[at] == LOOK_PICK &&
                          (at == 0 || screen.text.data[at - 1] == '\n');
            assert_int_equal(picked, 1);
            top_screen_deinit(&screen);
            top_state_deinit(&s);
        }
    }
    top_model_free(m);
}

/* How wide characters are is the locale's to say. */
BEFORE_TESTS
{
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        exit(77);
}
