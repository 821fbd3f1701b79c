#include "daemon/base/relay.h"

#include "daemon/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct relay {
    int fd; /* owned */
    bool is_socket;
    bool may_wait; /* writing would block without room */
};

/*
 * Opens the same pipe or terminal anew: O_NONBLOCK belongs to the open file description, which is
 * shared with processes that do not expect it. Not for regular files: their offset is shared as
 * well, and writing does not block.
 */
static int relay_open_anew(int fd, mode_t mode)
{
    char path[64];

    if (!S_ISFIFO(mode) && !S_ISCHR(mode))
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

struct relay *relay_new(int fd)
{
    _cleanup_fd_ int given = fd;
    struct stat st;
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || fstat(fd, &st) < 0)
        return NULL;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    struct relay *relay = must_alloc(sizeof *relay);
    relay->is_socket = S_ISSOCK(st.st_mode);
    relay->fd = relay_open_anew(fd, st.st_mode);
    if (relay->fd < 0) {
        relay->fd = steal_fd(&given);
        relay->may_wait = !S_ISREG(st.st_mode);
    }
    return relay;
}

struct relay *relay_free(struct relay *relay)
{
    if (!relay)
        return NULL;
    close_fdp(&relay->fd);
    free(relay);
    return NULL;
}

static bool relay_has_room(const struct relay *relay)
{
    struct pollfd p = {.fd = relay->fd, .events = POLLOUT};

    return !relay->may_wait || (poll(&p, 1, 0) == 1 && (p.revents & POLLOUT));
}

/* What cannot be written now is lost. */
static void relay_put(const struct relay *relay, const char *text, size_t len)
{
    ssize_t n = 0;

    if (relay->is_socket)
        n = send(relay->fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    else if (relay_has_room(relay))
        n = write(relay->fd, text, len);
    (void)n;
}

static size_t relay_whole_lines(const struct relay_lines *lines)
{
    const char *last = memrchr(lines->text, '\n', lines->len);

    return last ? (size_t)(last - lines->text) + 1 : 0;
}

static void relay_put_lines(const struct relay *relay, struct relay_lines *lines, size_t n)
{
    if (n == 0)
        return;
    relay_put(relay, lines->text, n);
    lines->len -= n;
    memmove(lines->text, lines->text + n, lines->len);
}

void relay_add(struct relay *relay, struct relay_lines *lines, const char *text, size_t len)
{
    while (relay && len > 0) {
        size_t n = min_u64(len, sizeof lines->text - lines->len);

        memcpy(lines->text + lines->len, text, n);
        lines->len += n;
        text += n;
        len -= n;
        relay_put_lines(relay, lines, relay_whole_lines(lines));
        if (lines->len == sizeof lines->text)
            relay_put_lines(relay, lines, lines->len);
    }
}

void relay_end(struct relay *relay, struct relay_lines *lines)
{
    if (relay && lines->len > 0)
        relay_add(relay, lines, "\n", 1);
}

/* ---- the last of it ------------------------------------------------------------------------- */

void last_words_add(struct last_words *words, const char *text, size_t len)
{
    relay_add(words->relay, &words->lines, text, len);
    if (len > LAST_WORDS / 2) {
        memcpy(words->text, text + len - LAST_WORDS / 2, LAST_WORDS / 2);
        words->len = LAST_WORDS / 2;
        return;
    }
    if (words->len + len > LAST_WORDS) {
        size_t keep = LAST_WORDS - len;
        memmove(words->text, words->text + words->len - keep, keep);
        words->len = keep;
    }
    memcpy(words->text + words->len, text, len);
    words->len += len;
}

void last_words_read(struct last_words *words, int fd)
{
    char text[LAST_WORDS];
    ssize_t n;

    /* The child cannot have written more than the pipe's size: the rest is another process's. */
    for (int i = 0; i < 256 && (n = read(fd, text, sizeof text)) > 0; i++)
        last_words_add(words, text, (size_t)n);
}

const char *last_words_told(struct last_words *words, char ret[static LAST_WORDS + 32])
{
    relay_end(words->relay, &words->lines);
    while (words->len > 0 && (uint8_t)words->text[words->len - 1] <= ' ')
        words->len--;
    words->text[words->len] = '\0';
    for (size_t i = 0; i < words->len; i++) {
        if (words->text[i] == '\n')
            words->text[i] = ' ';
    }
    snprintf(ret, LAST_WORDS + 32, "%s%s", words->len ? "; its last output: " : "", words->text);
    return ret;
}
