/*
 * The screen of `dlctl top`: each drawing is all of it, by the escape sequences of ECMA-48 and
 * xterm's other screen, which every terminal has. Keys are heard between looks, and while
 * libdlclient waits for a daemon that does not answer. Whatever ends the program leaves the
 * terminal as it was.
 */
#include "client/dlctl/top/top.h"

#include "client/dlctl/report.h"
#include "client/dlctl/text.h"
#include "proto/common/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>

enum { SILENT_MS = 3000, MOST_MS = 1000 };
enum { TEXT_HEIGHT = 24, SIZE_MOST = 1000, KEYS_FROM = 4 }; /* lines, columns, lines */
enum { KEY_CTRL_C = 3, KEY_CTRL_Z = 26 };

static const char ENTER[] = "\033[?1049h\033[?25l\033[?7l"; /* no cursor, no line wraps */
static const char LEAVE[] = "\033[?7h\033[?25h\033[?1049l";

static struct termios terminal_before; /* of a signal handler's use, too */

struct terminal {
    struct top *top;
    uint64_t next_ns;  /* the next look */
    uint64_t asked_ns; /* the one that is under way; 0: none is */
    bool over;
};

/* ---- beginning and end ---------------------------------------------------------------------- */

static void terminal_write(const char *text, size_t len)
{
    ssize_t n;

    for (; len > 0; text += n, len -= (size_t)n) {
        n = write(STDOUT_FILENO, text, len);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return; /* it is gone, which is seen when keys are read */
        n = n < 0 ? 0 : n;
    }
}

static void terminal_enter(void)
{
    struct termios raw = terminal_before;

    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~(tcflag_t)(IXON);
    raw.c_cc[VMIN] = raw.c_cc[VTIME] = 0;
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    terminal_write(ENTER, sizeof ENTER - 1);
}

static void terminal_leave(void)
{
    terminal_write(LEAVE, sizeof LEAVE - 1);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &terminal_before);
}

/* Its former disposition is back already, and is what ends the program. */
static void terminal_on_end(int number)
{
    terminal_leave();
    (void)raise(number);
}

static void terminal_on_resize(int number)
{
    (void)number; /* poll() ends: the screen is drawn */
}

static void terminal_take_signals(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    const struct sigaction resize = {.sa_handler = terminal_on_resize};
    const struct sigaction end = {.sa_handler = terminal_on_end, .sa_flags = (int)SA_RESETHAND};

    (void)sigaction(SIGWINCH, &resize, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        (void)sigaction(ends[i], &end, NULL);
}

/* The whole group, as the terminal would: who has started this may wait for it. Where nobody could
 * continue it, the kernel stops nothing. */
static void terminal_suspend(void)
{
    terminal_leave();
    (void)kill(0, SIGTSTP);
    terminal_enter();
}

/* ---- drawing -------------------------------------------------------------------------------- */

/* Green, yellow or as it is, by the verdict that begins there. */
static const char *terminal_colour_of(const char *line)
{
    static const char *const good[] = {"healthy", "trainer-bound"};
    static const char *const slow[] = {"loader-bound", "starved", "throttled", "straggling"};

    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        if (strncmp(line, good[i], strlen(good[i])) == 0)
            return "\033[32m";
    for (size_t i = 0; i < ARRAY_SIZE(slow); i++)
        if (strncmp(line, slow[i], strlen(slow[i])) == 0)
            return "\033[33m";
    return NULL;
}

/* As much of a line as there is room for, taking each code point for one column. */
static void terminal_put_line(FILE *out, size_t width, const char *look, const char *line)
{
    size_t len = 0, columns = 0;

    while (line[len] && line[len] != '\n') {
        columns += ((unsigned char)line[len] & 0xc0) != 0x80;
        if (columns > width)
            break;
        len++;
    }
    fprintf(out, "\033[K%s%.*s\033[0m", look, (int)len, line);
}

/* The title, the titles of the columns, rows, and below these their verdicts, which are indented
 * and may have several lines. */
static void terminal_put_lines(FILE *out, size_t width, const char *text, size_t lines)
{
    const char *no_color = getenv("NO_COLOR"), *colour = "";
    bool colours = !no_color || !*no_color;

    for (size_t i = 0; i < lines; i++, text += strcspn(text, "\n") + 1) {
        bool below = strncmp(text, "  ", 2) == 0, titles = strncmp(text, "NAME ", 5) == 0;
        const char *begins = below && colours ? terminal_colour_of(text + 2) : NULL;

        colour = !below ? "" : begins ? begins : colour;
        terminal_put_line(out, width, i == 0 ? "\033[1m" : titles ? "\033[7m" : colour, text);
        fputc('\n', out);
    }
}

static void terminal_put_keys(FILE *out, size_t width, size_t height)
{
    char keys[128] = "q quit   sort by:";

    for (size_t i = 0, at = strlen(keys); i < TOP_SORTS && at < sizeof keys; i++)
        at += (size_t)snprintf(keys + at, sizeof keys - at, "  %c %s", top_sorts[i].key,
                               top_sorts[i].name);
    fprintf(out, "\033[%zu;1H", height);
    terminal_put_line(out, width, "\033[2m", keys);
}

static size_t terminal_lines(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Without verdicts where they leave no room; rows that have none are counted. */
static int terminal_draw(const struct terminal *t)
{
    struct winsize size = {0};
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col;
    size_t width = known ? min_u64(size.ws_col, SIZE_MOST) : TEXT_WIDTH;
    size_t height = known ? size.ws_row : TEXT_HEIGHT, room = max_u64(height, 2) - 1, lines = 0,
           len;
    _cleanup_free_ char *text = NULL, *drawn = NULL;
    char more[32];
    FILE *out;
    int r = 0;

    for (int verdicts = 1; verdicts >= 0 && (!text || lines > room) && r == 0; verdicts--) {
        free_memoryp(&text);
        r = top_make_text(t->top, width, verdicts, &text);
        lines = r == 0 ? terminal_lines(text) : 0;
    }
    out = r == 0 ? open_memstream(&drawn, &len) : NULL;
    if (!out)
        return -ENOMEM;
    fputs("\033[H", out);
    terminal_put_lines(out, width, text, lines > room ? room - 1 : lines);
    fputs("\033[J", out);
    snprintf(more, sizeof more, "(%zu more)", lines - room + 1);
    if (lines > room)
        terminal_put_line(out, width, "", more);
    if (height >= KEYS_FROM)
        terminal_put_keys(out, width, height);
    if (fclose(out) == EOF)
        return -ENOMEM;
    terminal_write(drawn, len);
    return 0;
}

/* ---- what happens --------------------------------------------------------------------------- */

/* The key of the order that is in use turns it round. */
static void terminal_take_key(struct terminal *t, char key)
{
    struct top *top = t->top;

    t->over = t->over || key == 'q' || key == KEY_CTRL_C;
    if (key == KEY_CTRL_Z)
        terminal_suspend();
    for (size_t i = 0; i < TOP_SORTS; i++) {
        if (top_sorts[i].key != key)
            continue;
        top->reverse = top->sort == &top_sorts[i] && !top->reverse;
        top->sort = &top_sorts[i];
        top_rows_sort(&top->rows, top->sort, top->reverse);
    }
}

static void terminal_take_keys(struct terminal *t, int timeout_ms)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char keys[64];
    ssize_t n = 0;

    if (poll(&in, 1, timeout_ms) > 0)
        n = read(STDIN_FILENO, keys, sizeof keys);
    for (ssize_t i = 0; i < n; i++)
        terminal_take_key(t, keys[i]);
    t->over = t->over || (in.revents & (POLLHUP | POLLERR | POLLNVAL));
}

/* While libdlclient waits for the daemon. */
static int terminal_check(void *data)
{
    struct terminal *t = data;
    uint64_t silent_ms = (clock_ns() - t->asked_ns) / 1000000;

    terminal_take_keys(t, 0);
    if (silent_ms >= SILENT_MS)
        snprintf(t->top->notice, sizeof t->top->notice, "the daemon has not answered for %u s",
                 (unsigned)(silent_ms / 1000));
    if (!t->over)
        (void)!terminal_draw(t);
    return t->over;
}

/* A look, if it is time: why one failed is on the screen. */
static void terminal_look(struct terminal *t)
{
    struct dl_error err = {0};
    uint64_t now = clock_ns();

    if (now < t->next_ns)
        return;
    t->next_ns = now + t->top->o->interval_ms * 1000000;
    t->asked_ns = now;
    dl_set_interrupt(terminal_check, t);
    if (top_take_look(t->top, &err) == 0)
        t->top->shown++;
    dl_set_interrupt(NULL, NULL);
}

/* Until the next look, or the next drawing: a signal in between may have told of a new size. */
static int terminal_timeout_ms(const struct terminal *t)
{
    uint64_t now = clock_ns();

    return t->next_ns <= now ? 0 : (int)min_u64((t->next_ns - now) / 1000000 + 1, MOST_MS);
}

static bool terminal_is_there(void)
{
    const char *term = getenv("TERM");

    return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0 &&
           tcgetattr(STDIN_FILENO, &terminal_before) == 0;
}

int top_show_screen(struct top *top)
{
    struct terminal t = {.top = top, .next_ns = clock_ns() + top_first_ms(top) * 1000000};
    int r = 0;

    if (!terminal_is_there())
        return -ENOTTY;
    terminal_take_signals();
    terminal_enter();
    while (r == 0 && !t.over && !top_is_done(top)) {
        terminal_look(&t);
        r = t.over ? 0 : terminal_draw(&t);
        if (r == 0 && !top_is_done(top))
            terminal_take_keys(&t, terminal_timeout_ms(&t));
    }
    terminal_leave(); /* before anything is said */
    return r < 0 ? report_errno(top->o, r, top->o->verb->name) : STATUS_DONE;
}
