/* What workers say: reports of errors, untrusted in each byte and number; last words; lines. */
#include "tests/lib/harness.h"

#include "daemon/base/relay.h"
#include "daemon/serve/pool/report.h"
#include "proto/common/utf8.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { SLOT_BYTES = 1 << 18 };

static char *slot; /* aligned, and exactly as large as it says */

static int make_slot(void **state)
{
    slot = calloc(1, SLOT_BYTES);
    return slot ? 0 : -1;
}

static int free_slot(void **state)
{
    free(slot);
    return 0;
}

static char *read_at(uint64_t off, uint32_t len, uint32_t more)
{
    struct slot_header header = {.error_off = off, .error_len = len, .error_more = more};

    memcpy(slot, &header, sizeof header);
    return report_read(slot, SLOT_BYTES);
}

/* A report of `n` bytes behind the text "gist" at offset 512. */
static char *read_text(const char *text, size_t n)
{
    memcpy(slot + 512, "gist", 5);
    memcpy(slot + 517, text, n);
    return read_at(512, 4, (uint32_t)n);
}

TEST(test_kept, make_slot, free_slot)
{
    static const struct {
        const char *written;
        const char *read;
    } cases[] = {
        {"KeyError\nCaught\n\tin \xC3\xA9\n", "KeyError\nCaught\n\tin \xC3\xA9\n"},
        {"x", "x"},
        {"\n", "\n"},
        {"a\x1B[2Jb\r\x07", "a?[2Jb??"},
        {"\xFF\xC3", "??"},
        {"\xC2\x85\x7F", "???"}, /* C1 is two bytes */
        {"\xED\xA0\x80", "???"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_free_ char *got = read_text(cases[i].written, strlen(cases[i].written));
        assert_non_null(got);
        assert_string_equal(got, cases[i].read);
    }
    _cleanup_free_ char *zero = read_text("a\0b", 3);
    assert_string_equal(zero, "a?b");
}

TEST(test_cut, make_slot, free_slot)
{
    static const char first[] = "a.b:C\n";
    _cleanup_free_ char *text = malloc(REPORT_MAX + 2);

    assert_non_null(text);
    for (size_t n = REPORT_MAX - 1; n <= REPORT_MAX + 2; n++) {
        memset(text, 'x', n);
        memcpy(text, first, sizeof first - 1);
        memcpy(text + n - 4, "end\n", 4);
        _cleanup_free_ char *got = read_text(text, n);
        assert_int_equal(strlen(got), n > REPORT_MAX ? REPORT_MAX : n);
        assert_memory_equal(got, first, sizeof first - 1);
        assert_string_equal(got + strlen(got) - 4, "end\n");
        assert_int_equal(strncmp(got + sizeof first - 1, "[...]\n", 6) == 0, n > REPORT_MAX);
    }
    /* Without an end, the first line ends all the same; a character cut in two is none. */
    for (size_t i = 0; i < REPORT_MAX + 2; i += 2)
        memcpy(text + i, "\xC3\xA9", 2);
    _cleanup_free_ char *got = read_text(text, REPORT_MAX + 2);
    assert_int_equal(strlen(got), REPORT_MAX);
    assert_ptr_equal(strchr(got, '\n'), got + REPORT_LINE_MAX - 1);
    assert_true(utf8_text((const uint8_t *)got, REPORT_MAX));
}

/* Whatever the numbers say, only the slot is read; a sanitizer watches. */
TEST(test_numbers, make_slot, free_slot)
{
    static const uint64_t offs[] = {
        0, 128, SLOT_BYTES - 2, SLOT_BYTES - 1, SLOT_BYTES, SLOT_BYTES + 1, INT64_MAX, UINT64_MAX};
    static const uint32_t lens[] = {0, 1, 2, SLOT_BYTES - 130, SLOT_BYTES - 129, UINT32_MAX};
    static const uint32_t mores[] = {1, 2, REPORT_MAX, REPORT_MAX + 1, SLOT_BYTES, UINT32_MAX};

    for (size_t i = 0; i < ARRAY_SIZE(offs) * ARRAY_SIZE(lens) * ARRAY_SIZE(mores); i++) {
        uint64_t off = offs[i % ARRAY_SIZE(offs)];
        uint32_t len = lens[i / ARRAY_SIZE(offs) % ARRAY_SIZE(lens)];
        _cleanup_free_ char *got =
            read_at(off, len, mores[i / ARRAY_SIZE(offs) / ARRAY_SIZE(lens)]);
        assert_int_equal(got != NULL, off < SLOT_BYTES && off + len + 1 < SLOT_BYTES);
        if (got)
            assert_in_range(strlen(got), 1, REPORT_MAX);
    }
    assert_null(read_at(128, 1, 0));
}

TEST(test_last_words)
{
    struct last_words words = {0};
    char told[LAST_WORDS + 32], long_text[3 * LAST_WORDS];
    int ends[2];

    assert_string_equal(last_words_told(&words, told), "");
    last_words_add(&words, "out of\n", 7);
    last_words_add(&words, "cheese\n \n", 9);
    assert_string_equal(last_words_told(&words, told), "; its last output: out of cheese");
    memset(long_text, 'x', sizeof long_text);
    for (size_t n = 1; n < sizeof long_text; n += 37) {
        last_words_add(&words, long_text, n);
        last_words_add(&words, "end", 3);
        last_words_told(&words, told);
        assert_true(words.len <= LAST_WORDS);
        assert_string_equal(told + strlen(told) - 4, "xend");
    }
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    assert_int_equal(write(ends[1], "good bye\n", 9), 9);
    words.len = 0;
    last_words_read(&words, ends[0]);
    assert_string_equal(last_words_told(&words, told), "; its last output: good bye");
    close(ends[0]);
    close(ends[1]);
}

static size_t take(int fd, char ret[static 65536])
{
    ssize_t n = read(fd, ret, 65535);

    n = n < 0 ? 0 : n;
    ret[n] = '\0';
    return (size_t)n;
}

static void check_relay(int in, int out)
{
    struct last_words one = {0}, two = {0};
    char told[LAST_WORDS + 32];
    static char got[65536];

    assert_int_equal(fcntl(out, F_SETFL, O_NONBLOCK), 0);
    struct relay *relay = relay_new(dup(in));
    assert_non_null(relay);
    one.relay = two.relay = relay;
    last_words_add(&one, "half ", 5);
    last_words_add(&two, "an other\nand ", 13);
    last_words_add(&one, "a line\n\nrest", 12);
    take(out, got);
    assert_string_equal(got, "an other\nhalf a line\n\n");
    last_words_told(&one, told);
    assert_string_equal(told, "; its last output: half a line  rest");
    last_words_told(&two, told);
    take(out, got);
    assert_string_equal(got, "rest\nand \n");
    for (int i = 0; i <= 3 * RELAY_BYTES / 4; i++)
        last_words_add(&one, "long", 4);
    last_words_told(&one, told);
    assert_int_equal(take(out, got), 3 * RELAY_BYTES + 5);
    /* Nobody reads: it does not wait, and goes on once somebody does. */
    for (int i = 0; i < 200000; i++)
        last_words_add(&two, "nobody listens\n", 15);
    while (take(out, got) > 0)
        continue;
    last_words_add(&two, "now\n", 4);
    take(out, got);
    assert_string_equal(got, "now\n");
    relay_free(relay);
}

TEST(test_relay)
{
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    check_relay(ends[1], ends[0]);
    assert_int_equal(fcntl(ends[1], F_GETFL), O_WRONLY); /* it is shared: as it was */
    assert_null(relay_new(ends[0]));                     /* and closed */
    close(ends[1]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    check_relay(ends[1], ends[0]);
    close(ends[0]);
    struct relay *relay = relay_new(dup(ends[1]));
    struct relay_lines lines = {0};
    relay_add(relay, &lines, "to the dead\n", 12); /* no SIGPIPE */
    relay_free(relay);
    close(ends[1]);
    relay_add(NULL, &lines, "x", 1);
    relay_end(NULL, &lines);
}

/* What others write to a file between two lines stays, and so do the lines. */
TEST(test_relay_to_file)
{
    char path[] = "relay-XXXXXX", got[64] = "";
    struct relay_lines lines = {0};
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    struct relay *relay = relay_new(dup(fd));
    assert_int_equal(write(fd, "a\n", 2), 2);
    relay_add(relay, &lines, "b\n", 2);
    assert_int_equal(write(fd, "c\n", 2), 2);
    relay_add(relay, &lines, "d\n", 2);
    assert_int_equal(pread(fd, got, sizeof got - 1, 0), 8);
    assert_string_equal(got, "a\nb\nc\nd\n");
    relay_free(relay);
    close(fd);
    unlink(path);
}
