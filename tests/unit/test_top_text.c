/* Texts in lines, where they are broken, bars, and the time left: by table. */
#include "tests/lib/harness.h"

#include "client/dlctl/top/top.h"
#include <locale.h>
#include <math.h>

static const struct {
    bool unicode;
    int column, columns;
    const char *text;
    const char *line; /* of 8 columns */
} puts_rows[] = {
    {true, 0, 8, "abc", "abc"},
    {true, 2, 8, "abc", "  abc"},
    {true, 0, 8, "abcdefgh", "abcdefgh"},
    {true, 0, 8, "abcdefghi", "abcdefg…"},
    {false, 0, 8, "abcdefghi", "abcdefg~"},
    {true, 0, 4, "abcdefghi", "abc…"},
    {true, 6, 8, "abc", "      a…"},
    {true, 0, 1, "abc", "…"},
    {true, 0, 0, "abc", ""},
    {true, 0, -1, "abc", ""},
    {true, 8, 8, "abc", ""},
    {true, 0, 8, "", ""},
    /* What a terminal would obey, and what has no width. */
    {true, 0, 8, "a\x1b[2J", "a?[2J"},
    {true, 0, 8, "\x7f\t\n\r\x08", "?????"},
    {true, 0, 8,
     "\xc2\x9b"
     "1m",
     "?1m"},
    {true, 0, 8, "a\xcc\x81", "a?"}, /* an accent of its own */
    {true, 0, 8,
     "\xe2\x80\xae"
     "ab",
     "?ab"}, /* turns the writing round */
    {true, 0, 8, "\xff\xc3(\xe2\x82",
     "?"
     "?(?"
     "?"}, /* no UTF-8 */
    {false, 0, 8,
     "gr\xc3\xb6\xc3\x9f"
     "e",
     "gr??e"},
    {false, 0, 8, "1, …", "1, ~"},
    /* Two columns each. */
    {true, 0, 8, "数据", "数据"},
    {true, 0, 4, "数据", "数据"},
    {true, 0, 3, "数据", "数…"},
    {true, 0, 2, "数据", "…"},
    {true, 7, 8, "数", "       …"},
    {false, 0, 8, "数据", "??"},
    {true, 0, 8, "𝄞é", "𝄞é"},
};

TEST(test_put)
{
    for (size_t i = 0; i < ARRAY_SIZE(puts_rows); i++) {
        struct top_screen screen = {.width = 8, .height = 2, .unicode = puts_rows[i].unicode};
        char want[64], *text = NULL;
        size_t len;
        FILE *file = open_memstream(&text, &len);

        print_message("# %zu\n", i);
        assert_non_null(file);
        top_screen_end_line(&screen);
        top_screen_put(&screen, puts_rows[i].column, LOOK_PLAIN, false, "");
        top_screen_put(&screen, puts_rows[i].columns, LOOK_BAD, false, puts_rows[i].text);
        top_screen_end_line(&screen);
        top_screen_line(&screen, LOOK_BAD, "behind the last line");
        assert_int_equal(screen.error, 0);
        top_screen_print(&screen, file);
        assert_int_equal(fclose(file), 0);
        snprintf(want, sizeof want, "\n%s\n", puts_rows[i].line);
        assert_string_equal(text, want);
        free(text);
        top_screen_deinit(&screen);
    }
}

static const struct {
    int columns;
    const char *text;
    const char *first, *rest;
} break_rows[] = {
    {10, "two words", "two words", ""},
    {9, "two words", "two words", ""},
    {8, "two words", "two", "words"},
    {3, "two words", "two", "words"},
    {2, "two words", "tw", "o words"},
    {4, "two  words", "two ", "words"},
    {9, "two words and", "two words", "and"},
    {1, "数据", "数", "据"},
    {0, "ab", "a", "b"},
    {5, "", "", ""},
};

TEST(test_break)
{
    const struct top_screen screen = {.width = 8, .unicode = true};

    for (size_t i = 0; i < ARRAY_SIZE(break_rows); i++) {
        const char *text = break_rows[i].text;
        size_t len = top_screen_break(&screen, &text, break_rows[i].columns);

        print_message("# %zu\n", i);
        assert_int_equal(len, strlen(break_rows[i].first));
        assert_memory_equal(break_rows[i].text, break_rows[i].first, len);
        assert_string_equal(text, break_rows[i].rest);
    }
}

static const struct {
    double share;
    int columns;
    const char *unicode, *ascii;
} bar_rows[] = {
    {0, 4, "░░░░", "...."},  {1, 4, "████", "####"}, {0.5, 4, "██░░", "##.."},
    {0.25, 2, "▌░", ".."},   {0.999, 2, "█▉", "#."}, {NAN, 4, "-", "-"},
    {7, 2, "██", "##"},      {-1, 2, "░░", ".."},    {0.5, 0, "", ""},
    {INFINITY, 1, "█", "#"}, {0.5, -3, "", ""},
};

static const struct {
    double slots[4];
    int columns;
    const char *unicode, *ascii;
} ring_rows[] = {
    {{1, 1, 1, 1}, 4, "█▓▒░", "#=-."}, {{1, 1, 1, 1}, 8, "██▓▓▒▒░░", "##==--.."},
    {{0, 0, 0, 9}, 3, "░░░", "..."},   {{3, 0, 0, 0}, 2, "██", "##"},
    {{0, 0, 0, 0}, 2, "-", "-"},       {{0x1p64, 0, 0, 0x1p64}, 2, "█░", "#."},
};

TEST(test_bars)
{
    char text[512];

    for (size_t i = 0; i < ARRAY_SIZE(bar_rows); i++) {
        print_message("# bar %zu\n", i);
        top_bar(bar_rows[i].share, bar_rows[i].columns, true, text, sizeof text);
        assert_string_equal(text, bar_rows[i].unicode);
        top_bar(bar_rows[i].share, bar_rows[i].columns, false, text, sizeof text);
        assert_string_equal(text, bar_rows[i].ascii);
    }
    for (size_t i = 0; i < ARRAY_SIZE(ring_rows); i++) {
        print_message("# ring %zu\n", i);
        top_ring_bar(ring_rows[i].slots, ring_rows[i].columns, true, text, sizeof text);
        assert_string_equal(text, ring_rows[i].unicode);
        top_ring_bar(ring_rows[i].slots, ring_rows[i].columns, false, text, sizeof text);
        assert_string_equal(text, ring_rows[i].ascii);
    }
    top_bar(1, 100000, true, text, sizeof text); /* wider than any screen */
    assert_int_equal(strlen(text), 3 * TOP_BAR_MAX);
}

/* How wide characters are is the locale's to say. */
BEFORE_TESTS
{
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        exit(77);
}
