/*
 * The screen of `dlctl top`: what is drawn goes through ncurses, and what happens (keys, signals,
 * what was seen of the daemon, the next look's time) comes through one poll(). Signals are taken
 * from a descriptor, so that whatever ends the program leaves the terminal as it was.
 */
#include "client/dlctl/report.h"
#include "client/dlctl/top/session.h"
#include "client/dlctl/top/watch.h"
#include "proto/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>

#define NCURSES_WIDECHAR 1
#include <ncurses.h>
#include <term.h>

enum { SILENT_MS = 3000, ESCAPE_MS = 25 };

/* A screen has to be looked at to be too small: this is what cells are allocated for at most. */
enum { SIZE_MAX_COLUMNS = 1000 };

struct terminal {
    struct top_session *s;
    struct top_watch watch;
    int signals; /* descriptor */
    SCREEN *screen;
    int attributes[LOOKS];
    uint64_t next_ns;  /* the next look */
    uint64_t asked_ns; /* the last one */
    bool ended;        /* by a signal */
    bool stopped;      /* by Ctrl-Z: not yet, but it is to be */
};

/* ---- drawing -------------------------------------------------------------------------------- */

static bool wants_colours(void)
{
    const char *no = getenv("NO_COLOR");

    return has_colors() && !(no && *no);
}

static void set_looks(struct terminal *t)
{
    static const int plain[LOOKS] = {
        [LOOK_STRONG] = A_BOLD, [LOOK_HEAD] = A_REVERSE, [LOOK_PICK] = A_STANDOUT | A_BOLD,
        [LOOK_GOOD] = A_NORMAL, [LOOK_WARN] = A_BOLD,    [LOOK_BAD] = A_BOLD,
    };
    static const struct {
        enum top_look look;
        short colour;
    } colours[] = {{LOOK_GOOD, COLOR_GREEN}, {LOOK_WARN, COLOR_YELLOW}, {LOOK_BAD, COLOR_RED}};

    memcpy(t->attributes, plain, sizeof plain);
    if (!wants_colours() || start_color() == ERR)
        return;
    (void)use_default_colors();
    for (size_t i = 0; i < ARRAY_SIZE(colours); i++) {
        short pair = (short)(i + 1);

        if (init_pair(pair, colours[i].colour, -1) != ERR ||
            init_pair(pair, colours[i].colour, COLOR_BLACK) != ERR)
            t->attributes[colours[i].look] |= COLOR_PAIR(pair);
    }
}

static void draw_cell(const struct terminal *t, int line, int column, const struct top_cell *cell)
{
    const wchar_t text[2] = {(wchar_t)cell->ch, L'\0'};
    attr_t attributes = (attr_t)t->attributes[cell->look];
    cchar_t character;

    if (setcchar(&character, text, attributes, PAIR_NUMBER(attributes), NULL) != ERR)
        (void)mvadd_wch(line, column, &character);
}

static int clamp(int n)
{
    return n < 1 ? 1 : n > SIZE_MAX_COLUMNS ? SIZE_MAX_COLUMNS : n;
}

static int draw(const struct terminal *t)
{
    const struct top_shape shape = {clamp(COLS), clamp(LINES), t->s->unicode, true};
    struct top_grid grid = {0};
    int r = top_session_layout(t->s, &shape, &grid);

    if (r < 0)
        return r;
    erase();
    for (int line = 0; line < grid.height; line++) {
        for (int column = 0; column < grid.width; column++) {
            const struct top_cell *cell = top_grid_at(&grid, line, column);

            if (cell->ch && (cell->ch != ' ' || cell->look != LOOK_PLAIN))
                draw_cell(t, line, column, cell);
        }
    }
    refresh();
    top_grid_deinit(&grid);
    return 0;
}

/* ---- what happens --------------------------------------------------------------------------- */

static void resize(void)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row == 0 || size.ws_col == 0)
        return;
    (void)resizeterm(size.ws_row, size.ws_col);
    (void)clearok(stdscr, TRUE); /* what the terminal made of the old lines is its own affair */
}

static void take_signals(struct terminal *t)
{
    struct signalfd_siginfo info;

    while (read(t->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGWINCH)
            resize();
        else if (info.ssi_signo == SIGTSTP)
            t->stopped = true;
        else
            t->ended = true;
    }
}

static void never_called(int number)
{
    (void)number;
}

/* Where SIGTSTP has a handler, ncurses leaves it alone; else it would ignore it while it draws. */
static void take_tstp(bool take)
{
    const struct sigaction action = {.sa_handler = take ? never_called : SIG_DFL};
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    (void)sigprocmask(take ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
    (void)sigaction(SIGTSTP, &action, NULL);
}

/* Until SIGCONT. It comes again with the next drawing, at the size that is then. */
static void stop(struct terminal *t)
{
    (void)endwin();
    take_tstp(false);
    (void)raise(SIGTSTP);
    take_tstp(true);
    resize();
    t->stopped = false;
}

static int key_of(int ch)
{
    switch (ch) {
    case KEY_UP:
        return TOP_KEY_UP;
    case KEY_DOWN:
        return TOP_KEY_DOWN;
    case KEY_ENTER:
    case '\r':
    case '\n':
        return TOP_KEY_ENTER;
    case 0x1B:
        return TOP_KEY_ESCAPE;
    default:
        return ch < 0x80 ? ch : -1;
    }
}

static void take_keys(struct terminal *t)
{
    bool paused = t->s->state.paused;
    int ch;

    while ((ch = getch()) != ERR) {
        if (ch == 0x0C) /* Ctrl-L */
            (void)clearok(stdscr, TRUE);
        (void)top_state_key(&t->s->state, t->s->model, key_of(ch));
    }
    if (paused && !t->s->state.paused)
        t->next_ns = 0; /* what it stood still for is over */
}

static int take_seen(struct terminal *t)
{
    _cleanup_(top_seen_deinit)
    struct top_seen seen = {0};
    int r = top_watch_read(&t->watch, &seen);

    if (r <= 0)
        return r;
    if (t->s->state.paused) /* it was asked for before */
        return 0;
    r = top_session_take(t->s, &seen);
    if (r == 0 && !seen.failure.code)
        t->s->shown++;
    return r;
}

/* A daemon that stands still is told of, too. */
static void look_at_clock(struct terminal *t, uint64_t now)
{
    uint64_t silent_ms = (now - t->asked_ns) / 1000000;

    if (t->watch.asked && silent_ms >= SILENT_MS && !t->s->state.paused)
        snprintf(t->s->notice, sizeof t->s->notice, "the daemon has not answered for %u s",
                 (unsigned)(silent_ms / 1000));
}

static int ask(struct terminal *t, uint64_t now)
{
    if (t->s->state.paused || t->watch.asked || now < t->next_ns)
        return 0;
    t->next_ns = now + t->s->o->interval_ms * 1000000;
    t->asked_ns = now;
    return top_watch_ask(&t->watch);
}

/* Until the next look, and for a second at most: the clock is looked at, too. */
static int timeout_ms(const struct terminal *t, uint64_t now)
{
    enum { MOST = 1000 };

    if (t->s->state.paused || t->watch.asked)
        return MOST;
    return t->next_ns <= now ? 0 : (int)min_u64((t->next_ns - now) / 1000000 + 1, MOST);
}

/* Once round. A negative errno: it cannot go on. */
static int step(struct terminal *t)
{
    struct pollfd fds[] = {
        {.fd = STDIN_FILENO, .events = POLLIN},
        {.fd = t->signals, .events = POLLIN},
        {.fd = t->watch.fd, .events = POLLIN},
    };
    int r = ask(t, clock_ns());

    if (r == 0 && poll(fds, ARRAY_SIZE(fds), timeout_ms(t, clock_ns())) < 0 && errno != EINTR)
        r = -errno;
    if (r < 0)
        return r;
    take_signals(t);
    if (t->stopped)
        stop(t);
    take_keys(t);
    if (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL)) /* the terminal is gone */
        t->ended = true;
    r = take_seen(t);
    look_at_clock(t, clock_ns());
    return r < 0 || t->ended || t->s->state.quit ? r : draw(t);
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static bool is_terminal(void)
{
    const char *term = getenv("TERM");

    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && *term &&
           strcmp(term, "dumb") != 0;
}

/* Before there is a screen: somebody waits for it, and can end that as usual. */
static int first_look(struct terminal *t, struct top_seen *seen)
{
    int r = top_watch_ask(&t->watch);

    while (r == 0) {
        struct pollfd fd = {.fd = t->watch.fd, .events = POLLIN};

        if (poll(&fd, 1, -1) < 0 && errno != EINTR)
            return -errno;
        r = top_watch_read(&t->watch, seen);
    }
    return r < 0 ? r : 0;
}

/* Who started this without job control has SIGTSTP ignored. */
static bool is_default(int number)
{
    struct sigaction action;

    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_DFL;
}

static int begin_signals(struct terminal *t)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGWINCH);
    if (is_default(SIGTSTP)) {
        sigaddset(&set, SIGTSTP);
        take_tstp(true);
    }
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -errno;
    t->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return t->signals < 0 ? -errno : 0;
}

/* newterm() would lose memory over a kind of terminal that is not known. */
static bool is_known(void)
{
    int status;

    if (setupterm(NULL, STDOUT_FILENO, &status) == ERR)
        return false;
    (void)del_curterm(cur_term);
    return true;
}

/* False: the terminal's kind is not known, or it cannot be drawn on. */
static bool begin_screen(struct terminal *t)
{
    if (!is_known() || !(t->screen = newterm(NULL, stdout, stdin)))
        return false;
    resize(); /* ncurses would take $LINES and $COLUMNS for it, if they are exported */
    (void)cbreak();
    (void)noecho();
    (void)nonl();
    (void)keypad(stdscr, TRUE);
    (void)nodelay(stdscr, TRUE);
    (void)set_escdelay(ESCAPE_MS);
    (void)curs_set(0);
    set_looks(t);
    return true;
}

static void terminal_end(struct terminal *t)
{
    if (t->screen) {
        (void)endwin();
        delscreen(t->screen);
        t->screen = NULL;
    }
    top_watch_deinit(&t->watch);
    close_fdp(&t->signals);
}

static int run(struct terminal *t)
{
    int r = 0;

    t->next_ns = clock_ns() + top_session_first_ms(t->s) * 1000000;
    while (r == 0 && !t->ended && !t->s->state.quit && !top_session_done(t->s))
        r = step(t);
    return r;
}

int top_terminal(struct top_session *s)
{
    _cleanup_(terminal_end)
    struct terminal t = {.s = s, .signals = -1, .watch = {.fd = -1}};
    _cleanup_(top_seen_deinit)
    struct top_seen seen = {0};
    int r;

    if (!is_terminal())
        return -ENOTTY;
    r = top_watch_start(s->o->socket, &t.watch);
    if (r == 0)
        r = first_look(&t, &seen);
    if (r == 0 && seen.failure.code)
        return report_error(s->o, &seen.failure);
    if (r == 0)
        r = top_session_take(s, &seen);
    if (r == 0)
        r = begin_signals(&t);
    if (r == 0 && !begin_screen(&t))
        return -ENOTTY;
    if (r == 0)
        r = run(&t);
    terminal_end(&t); /* before anything is said */
    return r < 0 ? report_errno(s->o, r, s->o->verb->name) : STATUS_DONE;
}
