/*
 * The screen of `dlctl top`: what is drawn goes through ncurses. Keys and signals are heard between
 * looks, and while libdlclient waits for a daemon that does not answer. Signals are taken from a
 * descriptor, so that whatever ends the program leaves the terminal as it was.
 */
#include "client/dlctl/top/top.h"

#include "client/dlctl/report.h"
#include "proto/common/clock.h"

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
    int signals; /* descriptor */
    SCREEN *screen;
    int attributes[LOOKS];
    uint64_t next_ns;  /* the next look */
    uint64_t asked_ns; /* the one that is under way; 0: none is */
    bool ended;        /* by a signal */
    bool stopped;      /* by Ctrl-Z: not yet, but it is to be */
};

/* ---- drawing -------------------------------------------------------------------------------- */

static bool terminal_wants_colours(void)
{
    const char *no = getenv("NO_COLOR");

    return has_colors() && !(no && *no);
}

static void terminal_set_looks(struct terminal *t)
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
    if (!terminal_wants_colours() || start_color() == ERR)
        return;
    (void)use_default_colors();
    for (size_t i = 0; i < ARRAY_SIZE(colours); i++) {
        short pair = (short)(i + 1);

        if (init_pair(pair, colours[i].colour, -1) != ERR ||
            init_pair(pair, colours[i].colour, COLOR_BLACK) != ERR)
            t->attributes[colours[i].look] |= COLOR_PAIR(pair);
    }
}

static int terminal_clamp(int n)
{
    return n < 1 ? 1 : n > SIZE_MAX_COLUMNS ? SIZE_MAX_COLUMNS : n;
}

/* Read for each drawing: SIGWINCH only makes one. Ncurses would take $LINES and $COLUMNS for it, if
 * they are exported. */
static void terminal_take_size(void)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_row == 0 || size.ws_col == 0 ||
        (size.ws_row == LINES && size.ws_col == COLS))
        return;
    (void)resizeterm(size.ws_row, size.ws_col);
    (void)clearok(stdscr, TRUE);
}

static int terminal_draw(const struct terminal *t)
{
    terminal_take_size();

    _cleanup_(top_screen_deinit)
    struct top_screen screen = {
        .width = terminal_clamp(COLS), .height = terminal_clamp(LINES), .keys = true};
    int line = 0, r = top_session_layout(t->s, &screen);

    if (r < 0)
        return r;
    erase();
    for (size_t i = 0, n; i < screen.text.len; i += n) {
        const char *at = (const char *)screen.text.data + i;

        n = 1;
        if (*at == '\n') {
            (void)move(++line, 0);
        } else if (*at > 0 && *at < LOOKS) {
            (void)attrset(t->attributes[(int)*at]);
        } else {
            while (i + n < screen.text.len && (at[n] < 0 || at[n] >= ' '))
                n++;
            (void)addnstr(at, (int)n);
        }
    }
    (void)attrset(A_NORMAL);
    refresh();
    return 0;
}

/* ---- what happens --------------------------------------------------------------------------- */

static void terminal_take_signals(struct terminal *t)
{
    struct signalfd_siginfo info;

    while (read(t->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGWINCH)
            (void)clearok(stdscr, TRUE); /* what the terminal made of the lines is its affair */
        else if (info.ssi_signo == SIGTSTP)
            t->stopped = true;
        else
            t->ended = true;
    }
}

static void terminal_never_called(int number)
{
    (void)number;
}

/* Where SIGTSTP has a handler, ncurses leaves it alone; else it would ignore it while it draws. */
static void terminal_take_tstp(bool take)
{
    const struct sigaction action = {.sa_handler = take ? terminal_never_called : SIG_DFL};
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    (void)sigprocmask(take ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
    (void)sigaction(SIGTSTP, &action, NULL);
}

/* Until SIGCONT. It comes again with the next drawing. */
static void terminal_suspend(struct terminal *t)
{
    (void)endwin();
    terminal_take_tstp(false);
    (void)raise(SIGTSTP);
    terminal_take_tstp(true);
    t->stopped = false;
}

static int terminal_key(int ch)
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

static void terminal_take_keys(struct terminal *t)
{
    bool paused = t->s->state.paused;
    int ch;

    while ((ch = getch()) != ERR) {
        if (ch == 0x0C) /* Ctrl-L */
            (void)clearok(stdscr, TRUE);
        (void)top_state_key(&t->s->state, t->s->model, terminal_key(ch));
    }
    if (paused && !t->s->state.paused)
        t->next_ns = 0; /* what it stood still for is over */
}

/* Keys and signals, and how long the daemon has been silent. */
static void terminal_hear(struct terminal *t)
{
    struct pollfd terminal = {.fd = STDIN_FILENO, .events = POLLIN};
    uint64_t silent_ms = (clock_ns() - t->asked_ns) / 1000000;

    terminal_take_signals(t);
    if (t->stopped)
        terminal_suspend(t);
    terminal_take_keys(t);
    if (poll(&terminal, 1, 0) > 0 && (terminal.revents & (POLLHUP | POLLERR | POLLNVAL)))
        t->ended = true; /* the terminal is gone */
    if (t->asked_ns && silent_ms >= SILENT_MS && !t->s->state.paused)
        snprintf(t->s->notice, sizeof t->s->notice, "the daemon has not answered for %u s",
                 (unsigned)(silent_ms / 1000));
}

static bool terminal_is_over(const struct terminal *t)
{
    return t->ended || t->s->state.quit;
}

/* While libdlclient waits for the daemon. */
static int terminal_check(void *data)
{
    struct terminal *t = data;

    terminal_hear(t);
    if (!terminal_is_over(t))
        (void)!terminal_draw(t);
    return terminal_is_over(t);
}

/* A look, if it is time: why one failed is on the screen. */
static void terminal_look(struct terminal *t)
{
    struct dl_error err = {0};
    uint64_t now = clock_ns();

    if (t->s->state.paused || now < t->next_ns)
        return;
    t->next_ns = now + t->s->o->interval_ms * 1000000;
    t->asked_ns = now;
    dl_set_interrupt(terminal_check, t);
    if (top_session_look(t->s, &err) == 0)
        t->s->shown++;
    dl_set_interrupt(NULL, NULL);
    t->asked_ns = 0;
}

/* Until the next look. */
static int terminal_timeout_ms(const struct terminal *t)
{
    enum { MOST = 1000 };
    uint64_t now = clock_ns();

    if (t->s->state.paused)
        return MOST;
    return t->next_ns <= now ? 0 : (int)min_u64((t->next_ns - now) / 1000000 + 1, MOST);
}

/* Once round. A negative errno: it cannot continue. */
static int terminal_turn(struct terminal *t)
{
    struct pollfd fds[] = {
        {.fd = STDIN_FILENO, .events = POLLIN},
        {.fd = t->signals, .events = POLLIN},
    };

    if (poll(fds, ARRAY_SIZE(fds), terminal_timeout_ms(t)) < 0 && errno != EINTR)
        return -errno;
    terminal_hear(t);
    if (!terminal_is_over(t))
        terminal_look(t);
    return terminal_is_over(t) ? 0 : terminal_draw(t);
}

/* ---- beginning and end ---------------------------------------------------------------------- */

/* newterm() would lose memory over a kind of terminal that is not known. */
static bool terminal_is_known(void)
{
    int status;

    if (setupterm(NULL, STDOUT_FILENO, &status) == ERR)
        return false;
    (void)del_curterm(cur_term);
    return true;
}

static bool terminal_is_there(void)
{
    const char *term = getenv("TERM");

    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && *term &&
           strcmp(term, "dumb") != 0 && terminal_is_known();
}

/* Who started this without job control has SIGTSTP ignored. */
static bool terminal_is_default(int number)
{
    struct sigaction action;

    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_DFL;
}

static int terminal_begin_signals(struct terminal *t)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGWINCH);
    if (terminal_is_default(SIGTSTP)) {
        sigaddset(&set, SIGTSTP);
        terminal_take_tstp(true);
    }
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -errno;
    t->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return t->signals < 0 ? -errno : 0;
}

/* False: it cannot be drawn on. */
static bool terminal_begin_screen(struct terminal *t)
{
    t->screen = newterm(NULL, stdout, stdin);
    if (!t->screen)
        return false;
    (void)cbreak();
    (void)noecho();
    (void)nonl();
    (void)keypad(stdscr, TRUE);
    (void)nodelay(stdscr, TRUE);
    (void)set_escdelay(ESCAPE_MS);
    (void)curs_set(0);
    terminal_set_looks(t);
    return true;
}

static void terminal_end(struct terminal *t)
{
    if (t->screen) {
        (void)endwin();
        delscreen(t->screen);
        t->screen = NULL;
    }
    close_fdp(&t->signals);
}

static int terminal_run(struct terminal *t)
{
    int r = 0;

    t->next_ns = clock_ns() + top_session_first_ms(t->s) * 1000000;
    while (r == 0 && !terminal_is_over(t) && !top_session_done(t->s))
        r = terminal_turn(t);
    return r;
}

int top_terminal(struct top_session *s)
{
    _cleanup_(terminal_end)
    struct terminal t = {.s = s, .signals = -1};
    int r;

    if (!terminal_is_there())
        return -ENOTTY;
    r = terminal_begin_signals(&t);
    if (r == 0 && !terminal_begin_screen(&t))
        return -ENOTTY;
    if (r == 0)
        r = terminal_run(&t);
    terminal_end(&t); /* before anything is said */
    return r < 0 ? report_errno(s->o, r, s->o->verb->name) : STATUS_DONE;
}
